//! What the ledger says of turns, sessions and tenants.

mod limits;
mod reprice;
mod tree;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use playhouse_protocol::ledger::{
    ArchivePage, ArchiveQuery, GroupBy, QueryError, RowPage, RowQuery, UsageGroup, UsagePage, UsageQuery,
    UsageSum,
};
use playhouse_protocol::{CommandError, Day, SessionId, SessionSummary, Timestamp};
use playhouse_store::{Ledger, StoreError};

use crate::api::engine::Engine;
use crate::base::now;

/// How many groups are looked at in one go.
const SLICE: usize = 1_000;

/// Groups of a page that names no limit.
const USUAL_GROUPS: usize = 1_000;

impl Engine {
    /// Sums of what was used, by groups.
    ///
    /// # Errors
    /// The query cannot be answered, or the store failed.
    pub async fn usage_by(&self, query: UsageQuery) -> Result<UsagePage, CommandError> {
        query.check().map_err(refused)?;
        self.ledger(move |ledger| ledger.usage(&query)).await
    }

    /// The same of those sessions only that `wanted` lets through. Sessions that were deleted are not among them, as nothing
    /// but their rows is left. All that are asked about are looked at, so that no place of a page names another session.
    ///
    /// # Errors
    /// The query cannot be answered or does not tell sessions apart, or the store failed.
    pub async fn usage_of(
        &self,
        mut query: UsageQuery,
        wanted: impl Fn(&SessionSummary) -> bool,
    ) -> Result<UsagePage, CommandError> {
        query.check().map_err(refused)?;
        if !query.by.contains(&GroupBy::Session) {
            return Err(CommandError::Invalid("what single sessions used is told `by` session only".into()));
        }
        let limit = if query.limit == 0 { USUAL_GROUPS } else { query.limit };
        query.limit = SLICE;
        let mut groups: Vec<UsageGroup> = Vec::new();
        loop {
            let (log, asked) = (Arc::clone(&self.shared.store.log), query.clone());
            let looked_up = self.ledger(move |ledger| {
                let page = ledger.usage(&asked)?;
                let mut summaries: HashMap<SessionId, Option<SessionSummary>> = HashMap::new();
                for session in page.groups.iter().filter_map(|group| group.key.session) {
                    if let Entry::Vacant(place) = summaries.entry(session) {
                        place.insert(log.summary(session)?);
                    }
                }
                Ok((page, summaries))
            });
            let (page, summaries) = looked_up.await?;
            let is_wanted =
                |session: SessionId| summaries.get(&session).and_then(Option::as_ref).is_some_and(&wanted);
            for group in page.groups.into_iter().filter(|group| group.key.session.is_some_and(is_wanted)) {
                if groups.len() == limit {
                    let next = groups.last().map(|group| group.key.clone());
                    return Ok(UsagePage { groups, next });
                }
                groups.push(group);
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(UsagePage { groups, next: None }),
            }
        }
    }

    /// A page of rows of the ledger.
    ///
    /// # Errors
    /// The query cannot be answered, or the store failed.
    pub async fn rows(&self, query: RowQuery) -> Result<RowPage, CommandError> {
        query.check().map_err(refused)?;
        self.ledger(move |ledger| ledger.rows(&query)).await
    }

    /// The latest time before which rows of the ledger were archived; `None` where that never happened.
    ///
    /// # Errors
    /// The store failed.
    pub async fn archived_before(&self) -> Result<Option<Timestamp>, CommandError> {
        self.ledger(|ledger| ledger.archived_before()).await
    }

    /// What a tenant used on this day (UTC) up to now, and the time that is now.
    ///
    /// # Errors
    /// The store failed.
    pub async fn used_today(&self, tenant: &str) -> Result<(UsageSum, Timestamp), CommandError> {
        let now = now();
        let query = UsageQuery {
            tenant: Some(tenant.to_owned()),
            from: Some(Day::of(now).start()),
            to: Some(Day::of(now).next().start()),
            ..UsageQuery::default()
        };
        let page = self.usage_by(query).await?;
        Ok((page.groups.first().map(|group| group.sum).unwrap_or_default(), now))
    }

    /// A page of what of the ledger may be written away.
    ///
    /// # Errors
    /// The time is not over yet, or the store failed.
    pub async fn archivable(&self, query: ArchiveQuery) -> Result<ArchivePage, CommandError> {
        check_past(query.before)?;
        self.ledger(move |ledger| {
            let page = ledger.archivable(&query)?;
            Ok(ArchivePage { archived_before: ledger.archived_before()?, ..page })
        })
        .await
    }

    /// Removes rows of the ledger that were written away; how many. Sums stay.
    ///
    /// # Errors
    /// The time is not over yet, or the store failed.
    pub async fn archive(&self, before: Timestamp, numbers: Vec<u64>) -> Result<u64, CommandError> {
        check_past(before)?;
        // A row is archived with its correction, or without both.
        let _held = self.shared.repricing.lock().await;
        self.ledger(move |ledger| ledger.archive(before, &numbers)).await
    }

    async fn ledger<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&dyn Ledger) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, CommandError> {
        let ledger = Arc::clone(&self.shared.store.ledger);
        let answer = self.shared.pool.run(move || ask(&*ledger)).await;
        answer.map_err(CommandError::from)
    }
}

fn refused(error: QueryError) -> CommandError {
    CommandError::Invalid(error.to_string())
}

fn check_past(before: Timestamp) -> Result<(), CommandError> {
    if before > now() {
        return Err(CommandError::Invalid(
            "only what is past can be written away: name an earlier day".into(),
        ));
    }
    Ok(())
}
