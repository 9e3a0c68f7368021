//! The sinks of a house: those that are configured, at work or at rest.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use playhouse_billing::export::{DeadLetter, Place};
use playhouse_exporters::{
    Exporters, LedgerFeed, Leftover, Retried, SinkStatus, Surroundings, SystemTimer, Wanted, exported_up_to,
    forget, leftovers, letters, retry, status_at_rest,
};
use playhouse_protocol::CommandError;
use playhouse_protocol::nearest::did_you_mean;
use playhouse_protocol::operator::{
    BillingRequest, Letter, LetterPage, LetterPlace, OperatorReply, Resent, SinkError, SinkFacts,
};
use playhouse_store::{Shelf, Store, StoreError};
use tokio::task::spawn_blocking;

use crate::clock::now;
use crate::config::{ConfigError, SinkSettings};
use crate::directory::Variables;

/// Letters of a page, where nobody says how many, and at most.
const USUAL_PAGE: usize = 100;
const LONGEST_PAGE: usize = 1_000;
/// What a sink is of which only the rest is there.
const UNKNOWN: &str = "unknown";
/// How many letters one request sends once more.
const RESENT: usize = 100;

/// The sinks that are configured.
pub(crate) struct Sinks {
    configured: BTreeMap<String, SinkSettings>,
    variables: Variables,
    shelf: Arc<dyn Shelf>,
    feed: Arc<LedgerFeed>,
    /// Where they are driven.
    exporters: Option<Exporters>,
}

impl Sinks {
    /// Those of this store. They are started where they are to be driven, which needs a tokio runtime around it.
    ///
    /// # Errors
    /// The key of one cannot be used.
    pub(crate) fn new(
        configured: BTreeMap<String, SinkSettings>,
        variables: Variables,
        store: &Store,
        driven: bool,
    ) -> Result<Self, ConfigError> {
        let (shelf, feed) = (Arc::clone(&store.shelf), Arc::new(LedgerFeed::new(Arc::clone(&store.ledger))));
        let mut exporters = None;
        if driven && !configured.is_empty() {
            let sinks = configured.iter().map(|(name, settings)| settings.sink(name, &*variables));
            let sinks = sinks.collect::<Result<_, _>>()?;
            let feed = Arc::clone(&feed);
            exporters = Some(Exporters::start(sinks, feed, Arc::clone(&shelf), surroundings()));
        }
        Ok(Self { configured, variables, shelf, feed, exporters })
    }

    /// Lets them deliver what there is, for so long at most. What is left then goes out after the next start.
    pub(crate) async fn stop(&self, time: Duration) {
        if let Some(exporters) = &self.exporters {
            exporters.stop(time).await;
        }
    }

    /// Tells the recorder of metrics how far they are.
    pub(crate) fn observe(&self) {
        if let Some(exporters) = &self.exporters {
            exporters.observe();
        }
    }

    /// By name, the number of the ledger's feed up to which each needs it no more.
    pub(crate) async fn exported(&self) -> Result<Vec<(String, u64)>, CommandError> {
        let names: Vec<String> = self.configured.keys().cloned().collect();
        let shelf = Arc::clone(&self.shelf);
        blocking(move || {
            names.into_iter().map(|name| exported_up_to(&shelf, &name).map(|number| (name, number))).collect()
        })
        .await
    }

    /// Does what the operator's commands ask.
    pub(crate) async fn answer(&self, request: BillingRequest) -> Result<OperatorReply, CommandError> {
        Ok(match request {
            BillingRequest::Status => OperatorReply::Sinks(self.status().await?),
            BillingRequest::Letters { sink, after, limit } => {
                OperatorReply::Letters(self.letters(sink, after, limit).await?)
            }
            BillingRequest::Resend { sink, id, after } => {
                OperatorReply::Resent(self.resend(sink, id, after).await?)
            }
            BillingRequest::Forget { sink, letters } => {
                OperatorReply::SinkForgotten(self.forget(sink, letters).await?)
            }
        })
    }

    async fn status(&self) -> Result<Vec<SinkFacts>, CommandError> {
        let running = self.exporters.is_some();
        let statuses = match &self.exporters {
            Some(exporters) => exporters.statuses(),
            None => {
                let (sinks, shelf, feed) =
                    (self.configured.clone(), Arc::clone(&self.shelf), Arc::clone(&self.feed));
                let status = move || {
                    let of = |(name, sink): (&String, &SinkSettings)| {
                        status_at_rest(name, sink.config(), &shelf, &*feed)
                    };
                    sinks.iter().map(of).collect::<Result<Vec<_>, _>>()
                };
                blocking(status).await?
            }
        };
        let configured = statuses.into_iter().map(|status| facts(status, running));
        Ok(configured.chain(self.leftovers().await?.into_iter().map(facts_of_leftover)).collect())
    }

    /// What is kept of sinks that are not configured.
    async fn leftovers(&self) -> Result<Vec<Leftover>, CommandError> {
        let (configured, shelf) = (self.configured.clone(), Arc::clone(&self.shelf));
        blocking(move || leftovers(&shelf, &|name| configured.contains_key(name))).await
    }

    /// Removes what is kept of a sink that is not configured. How many dead letters there were.
    async fn forget(&self, name: String, letters: bool) -> Result<u64, CommandError> {
        if self.configured.contains_key(&name) {
            return Err(CommandError::Invalid(format!(
                "the sink {name} is configured: remove `[sinks.{name}]` first, and start a running engine again"
            )));
        }
        let leftover = self.leftover(&name).await?;
        if leftover.dead_letters > 0 && !letters {
            return Err(CommandError::Invalid(format!(
                "the sink {name} has {}: keep a copy with `playhouse billing dead {name} --format json`, and then \
                 say `--dead-letters`",
                count(leftover.dead_letters)
            )));
        }
        let shelf = Arc::clone(&self.shelf);
        blocking(move || forget(&shelf, &name)).await
    }

    /// What is kept of the sink of this name, which is not configured.
    async fn leftover(&self, name: &str) -> Result<Leftover, CommandError> {
        let found = self.leftovers().await?;
        let names = || self.configured.keys().map(String::as_str).chain(found.iter().map(|kept| &*kept.name));
        match found.iter().find(|kept| kept.name == name) {
            Some(kept) => Ok(kept.clone()),
            None => Err(unknown(name, &names().collect::<Vec<_>>())),
        }
    }

    async fn letters(
        &self,
        sink: Option<String>,
        after: Option<LetterPlace>,
        limit: usize,
    ) -> Result<LetterPage, CommandError> {
        let limit = if limit == 0 { USUAL_PAGE } else { limit.min(LONGEST_PAGE) };
        let names: Vec<String> = match sink {
            Some(name) if self.configured.contains_key(&name) => vec![name],
            Some(name) => vec![self.leftover(&name).await?.name],
            None => {
                let leftovers = self.leftovers().await?.into_iter().map(|kept| kept.name);
                let mut names: Vec<String> = self.configured.keys().cloned().chain(leftovers).collect();
                names.sort();
                names
            }
        };
        let shelf = Arc::clone(&self.shelf);
        blocking(move || {
            let mut page = LetterPage::default();
            for name in names {
                let behind = match &after {
                    Some(after) if name < after.sink => continue,
                    Some(after) if name == after.sink => Some(place_of(after)),
                    _ => None,
                };
                let mut last = None;
                for letter in letters(&shelf, &name)? {
                    if behind.is_some_and(|behind| letter.place <= behind) {
                        continue;
                    }
                    if page.letters.len() == limit {
                        // One that is full without a letter of this sink ends with the one before it.
                        page.next = Some(told_place(&name, last.unwrap_or(Place { number: 0, part: 0 })));
                        return Ok(page);
                    }
                    last = Some(letter.place);
                    page.letters.push(told_letter(&name, letter)?);
                }
            }
            Ok(page)
        })
        .await
    }

    async fn resend(
        &self,
        name: String,
        id: Option<String>,
        after: Option<LetterPlace>,
    ) -> Result<Resent, CommandError> {
        let Some(settings) = self.configured.get(&name) else {
            let kept = self.leftover(&name).await?;
            return Err(CommandError::Invalid(format!(
                "the sink {name} is not configured: configure it again to send its {}, or remove them with `playhouse \
                 billing forget {name}`",
                count(kept.dead_letters)
            )));
        };
        let wanted = Wanted { id, after: after.as_ref().map(place_of), limit: RESENT };
        let resent = match &self.exporters {
            Some(exporters) => exporters.retry(&name, &wanted).await.map(Option::unwrap_or_default),
            None => {
                let sink = settings
                    .sink(&name, &*self.variables)
                    .map_err(|error| CommandError::Invalid(error.to_string()))?;
                retry(&sink, &self.shelf, &wanted, &surroundings()).await
            }
        };
        let Retried { delivered, refused, left, reason, hurried, next } = resent?;
        if let Some(id) = wanted.id
            && delivered + refused + left == 0
        {
            return Err(CommandError::Invalid(format!(
                "the sink {name} has no dead letter {}; `playhouse billing dead {name}` shows those that it has",
                id.escape_debug()
            )));
        }
        let next = next.map(|place| told_place(&name, place));
        Ok(Resent { delivered, refused, left, reason, hurried, next })
    }
}

fn unknown(name: &str, names: &[&str]) -> CommandError {
    let there_are = match names {
        [] => "none is configured".to_owned(),
        names => format!("there are {}", names.join(", ")),
    };
    let meant = did_you_mean(name, names.iter().copied());
    CommandError::Invalid(format!("unknown sink \"{}\"; {there_are}{meant}", name.escape_debug()))
}

fn count(letters: u64) -> String {
    if letters == 1 { "1 dead letter".to_owned() } else { format!("{letters} dead letters") }
}

fn surroundings() -> Surroundings {
    let random = || {
        // Keyed anew for each, by the system's randomness.
        let random = RandomState::new().hash_one(());
        f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX)
    };
    Surroundings { clock: Arc::new(now), timer: Arc::new(SystemTimer::start()), random: Arc::new(random) }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, CommandError> {
    match spawn_blocking(work).await {
        Ok(result) => result.map_err(CommandError::from),
        Err(error) => Err(CommandError::Store(error.to_string())),
    }
}

fn facts(status: SinkStatus, running: bool) -> SinkFacts {
    SinkFacts {
        seconds_behind: status.seconds_behind(now()),
        sink: status.name,
        kind: status.kind.to_owned(),
        configured: true,
        running,
        cursor: status.settled,
        rows_behind: status.rows_behind,
        dead_letters: status.dead_letters,
        delivered: status.delivered,
        archived: status.archived,
        error: status.trouble.map(|trouble| SinkError {
            misconfigured: trouble.misconfigured,
            reason: trouble.reason,
            since: trouble.since,
            tries: trouble.tries,
            waits_until: status.waits_until,
            asked: trouble.asked,
        }),
    }
}

fn facts_of_leftover(kept: Leftover) -> SinkFacts {
    SinkFacts {
        sink: kept.name,
        kind: kept.kind.unwrap_or_else(|| UNKNOWN.to_owned()),
        configured: false,
        running: false,
        cursor: kept.settled,
        rows_behind: 0,
        seconds_behind: 0.0,
        dead_letters: kept.dead_letters,
        delivered: 0,
        archived: None,
        error: None,
    }
}

fn place_of(told: &LetterPlace) -> Place {
    Place { number: told.number, part: told.part }
}

fn told_place(sink: &str, place: Place) -> LetterPlace {
    LetterPlace { sink: sink.to_owned(), number: place.number, part: place.part }
}

fn told_letter(sink: &str, letter: DeadLetter) -> Result<Letter, StoreError> {
    let DeadLetter { id, status, reason, at, entry, .. } = letter;
    let entry = serde_json::to_value(&entry).map_err(|error| StoreError::Backend(error.to_string()))?;
    Ok(Letter { sink: sink.to_owned(), id, status, reason, at, entry })
}
