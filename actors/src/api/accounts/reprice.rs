//! Prices rows anew: adds the difference to what they cost at the prices that hold now.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use playhouse_billing::reprice::{Corrections, CurrentPrices, Repriced, reprice};
use playhouse_protocol::ledger::{
    CURRENCY, GroupBy, RepriceReport, RepriceRequest, RowId, RowQuery, UsageQuery,
};
use playhouse_protocol::nearest::did_you_mean;
use playhouse_protocol::{CommandError, Day, LedgerRow, ModelRef, Timestamp};

use crate::api::engine::Engine;
use crate::base::now;
use crate::budget::Purses;

/// The number of rows in a page: so many are corrected in one write at most.
const PAGE: usize = 1_000;

/// The number of groups in a page.
const GROUPS: usize = 1_000;

/// The most corrections that are held at once, about 6 MB of them. Where a model has more, its rows are gone through in parts.
const MOST_CORRECTIONS: usize = 10_000;

/// One of several parts of the rows of a model.
#[derive(Clone, Copy)]
struct Part {
    number: u64,
    of: u64,
}

impl Part {
    /// Whether a row, or a correction of it, is in this part.
    fn has(self, row: &RowId) -> bool {
        let mut hasher = DefaultHasher::new();
        row.hash(&mut hasher);
        hasher.finish() % self.of == self.number
    }
}

/// Tenants whose rows were corrected. Their budgets are told once, however pricing anew ends.
struct Corrected {
    purses: Arc<Purses>,
    tenants: BTreeSet<String>,
}

impl Drop for Corrected {
    fn drop(&mut self) {
        self.tenants.iter().for_each(|tenant| self.purses.corrected(tenant));
    }
}

impl Engine {
    /// Adds a correction for each row of these models and days that costs something else at the prices that hold now. Calls
    /// inside of an answer that another model answered are rows of that model. What was corrected before is taken into
    /// account, so that a repetition adds nothing; so does one after a failure in the middle.
    ///
    /// # Errors
    /// The request cannot be fulfilled, or the store failed.
    pub async fn reprice(&self, request: RepriceRequest) -> Result<RepriceReport, CommandError> {
        let this = self.clone();
        // Whoever asked may go away: what was begun is ended, before the next one reads what is there.
        let run = tokio::spawn(async move { this.reprice_all(request).await });
        run.await.unwrap_or_else(|error| {
            Err(CommandError::NotAccepted(format!("pricing rows anew crashed: {error}. Do it again")))
        })
    }

    async fn reprice_all(&self, request: RepriceRequest) -> Result<RepriceReport, CommandError> {
        let RepriceRequest { from, to, models, dry_run } = request;
        if from >= to {
            let reason = format!(
                "`from` ({from}) is not before `to` ({to}), which is the first day that does not count: no day is in between"
            );
            return Err(CommandError::Invalid(reason));
        }
        if models.is_empty() {
            return Err(CommandError::Invalid(
                "`models` is empty: name the models whose rows are priced anew".into(),
            ));
        }
        // One at a time: it depends on the corrections that are there.
        let _held = self.shared.repricing.lock().await;
        let models: BTreeSet<ModelRef> = models.into_iter().collect();
        let used = self.attempts_by_model(None, None).await?;
        for model in &models {
            check_model(model, &used)?;
        }
        let archived_before = self.archived_before().await?;
        let mut report = RepriceReport { dry_run, ..RepriceReport::default() };
        let purses = Arc::clone(&self.shared.purses);
        let mut corrected = Corrected { purses, tenants: BTreeSet::new() };
        for model in models {
            let prices = CurrentPrices {
                list: self.shared.directory.prices(&model),
                catalogue: self.shared.directory.catalogue(&model),
            };
            let told = (&mut report, &mut corrected.tenants);
            self.reprice_model(&model, (from, to), &prices, archived_before, told).await?;
        }
        if !dry_run && report.corrected > 0 {
            tracing::info!(corrected = report.corrected, %from, %to, "rows of the ledger were corrected");
        }
        for cost in report.difference.values_mut() {
            *cost = cost.normalized();
        }
        Ok(report)
    }

    async fn reprice_model(
        &self,
        model: &ModelRef,
        (from, to): (Day, Day),
        prices: &CurrentPrices,
        archived_before: Option<Timestamp>,
        (report, corrected): (&mut RepriceReport, &mut BTreeSet<String>),
    ) -> Result<(), CommandError> {
        let all = RowQuery {
            from: Some(from.start()),
            model: Some(model.clone()),
            limit: PAGE,
            ..RowQuery::default()
        };
        // Sums stay when rows are archived: those that are missing were. No row of these days can be new.
        let last = archived_before
            .map(|before| Day::of(Timestamp::from_millis(before.as_millis().saturating_sub(1))));
        let end = last.map_or(from, |last| last.next().min(to));
        let counted =
            if end > from { self.attempts_by_model(Some(from), Some(end)).await? } else { BTreeMap::new() };
        let mut there = 0;
        let none = Corrections::default();
        let mut part = Part { number: 0, of: 1 };
        while part.number < part.of {
            // Corrections are as late as their rows, or later.
            let (mut corrections, mut count) = (HashMap::<RowId, Corrections>::new(), 0);
            self.each_page(all.clone(), corrected, |rows| {
                for row in rows {
                    let Some(corrected) = &row.corrects else { continue };
                    count += 1;
                    if part.has(corrected) && (part.of > 1 || corrections.len() < MOST_CORRECTIONS) {
                        corrections.entry(corrected.clone()).or_default().add(&row);
                    }
                }
                Vec::new()
            })
            .await?;
            if part.of == 1 && count > MOST_CORRECTIONS {
                part.of = count.div_ceil(MOST_CORRECTIONS) as u64;
                continue;
            }
            self.each_page(RowQuery { to: Some(to.start()), ..all.clone() }, corrected, |rows| {
                // A page is written at once: no hour is closed between this and its time.
                let (made, mut new) = (now(), Vec::new());
                for row in rows.iter().filter(|row| row.corrects.is_none() && part.has(&row.id)) {
                    report.looked_at += 1;
                    there += u64::from(row.ended < end.start());
                    match reprice(row, corrections.get(&row.id).unwrap_or(&none), prices, made) {
                        Repriced::Unpriced => report.unpriced += 1,
                        Repriced::Same => {}
                        Repriced::Corrected(correction) => {
                            report.corrected += 1;
                            let difference = report.difference.entry(CURRENCY.to_owned()).or_default();
                            *difference += correction.cost.unwrap_or_default();
                            new.push(*correction);
                        }
                    }
                }
                if report.dry_run { Vec::new() } else { new }
            })
            .await?;
            part.number += 1;
        }
        report.archived += counted.get(model).copied().unwrap_or_default().saturating_sub(there);
        Ok(())
    }

    /// Reads rows page by page, and adds the corrections that `take` makes of a page before the next one is read. Their
    /// tenants are added to `corrected`.
    async fn each_page(
        &self,
        mut query: RowQuery,
        corrected: &mut BTreeSet<String>,
        mut take: impl FnMut(Vec<LedgerRow>) -> Vec<LedgerRow>,
    ) -> Result<(), CommandError> {
        loop {
            let page = self.rows(query.clone()).await?;
            let new = take(page.rows);
            if !new.is_empty() {
                // What is refused may be there all the same.
                corrected.extend(new.iter().map(|row| row.tenant.clone()));
                self.ledger(move |ledger| ledger.correct(new)).await?;
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// The number of attempts of each model from the day `from` to before `to`, archived ones included.
    async fn attempts_by_model(
        &self,
        from: Option<Day>,
        to: Option<Day>,
    ) -> Result<BTreeMap<ModelRef, u64>, CommandError> {
        let mut query = UsageQuery {
            from: from.map(Day::start),
            to: to.map(Day::start),
            by: vec![GroupBy::Provider, GroupBy::Model],
            limit: GROUPS,
            ..UsageQuery::default()
        };
        let mut attempts = BTreeMap::new();
        loop {
            let page = self.usage_by(query.clone()).await?;
            for group in page.groups {
                let (Some(provider), Some(model)) = (group.key.provider, group.key.model) else { continue };
                let Some(name) = model.strip_prefix(&format!("{provider}/")) else { continue };
                *attempts.entry(ModelRef::new(&provider, name)).or_default() += group.sum.totals.attempts;
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(attempts),
            }
        }
    }
}

fn check_model(model: &ModelRef, used: &BTreeMap<ModelRef, u64>) -> Result<(), CommandError> {
    if used.contains_key(model) {
        return Ok(());
    }
    let names: Vec<String> = used.keys().map(ToString::to_string).collect();
    let meant = did_you_mean(&model.to_string(), names.iter().map(|name| &name[..]));
    let reason = format!(
        "no row of the ledger is of model \"{model}\": `playhouse usage --by model` lists those that were used{meant}"
    );
    Err(CommandError::Invalid(reason))
}
