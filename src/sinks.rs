//! The sinks of a house: those that are configured, at work or at rest.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use playhouse_billing::export::{DeadLetter, Place};
use playhouse_exporters::{
    Exporters, LedgerFeed, Retried, SinkStatus, Surroundings, Wanted, exported_up_to, letters, retry,
    status_at_rest,
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
        Ok(statuses.into_iter().map(|status| facts(status, running)).collect())
    }

    async fn letters(
        &self,
        sink: Option<String>,
        after: Option<LetterPlace>,
        limit: usize,
    ) -> Result<LetterPage, CommandError> {
        let limit = if limit == 0 { USUAL_PAGE } else { limit.min(LONGEST_PAGE) };
        let names: Vec<String> = match sink {
            Some(name) => vec![self.known(&name)?.0.clone()],
            None => self.configured.keys().cloned().collect(),
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
        let (_, settings) = self.known(&name)?;
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
        let Retried { delivered, refused, left, reason, next } = resent.map_err(failed)?;
        if let Some(id) = wanted.id
            && delivered + refused + left == 0
        {
            return Err(CommandError::Invalid(format!(
                "the sink {name} has no dead letter {}; `playhouse billing dead {name}` shows those that it has",
                id.escape_debug()
            )));
        }
        Ok(Resent { delivered, refused, left, reason, next: next.map(|place| told_place(&name, place)) })
    }

    /// The sink of this name.
    fn known(&self, name: &str) -> Result<(&String, &SinkSettings), CommandError> {
        self.configured.get_key_value(name).ok_or_else(|| {
            let names = || self.configured.keys().map(String::as_str);
            let there_are = match names().collect::<Vec<_>>() {
                none if none.is_empty() => "none is configured".to_owned(),
                names => format!("there are {}", names.join(", ")),
            };
            let meant = did_you_mean(name, names());
            CommandError::Invalid(format!("unknown sink \"{}\"; {there_are}{meant}", name.escape_debug()))
        })
    }
}

fn surroundings() -> Surroundings {
    let random = || {
        // Keyed anew for each, by the system's randomness.
        let random = RandomState::new().hash_one(());
        f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX)
    };
    Surroundings { clock: Arc::new(now), random: Arc::new(random) }
}

fn failed(error: StoreError) -> CommandError {
    CommandError::Store(error.to_string())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, CommandError> {
    match spawn_blocking(work).await {
        Ok(result) => result.map_err(failed),
        Err(error) => Err(CommandError::Store(error.to_string())),
    }
}

fn facts(status: SinkStatus, running: bool) -> SinkFacts {
    SinkFacts {
        seconds_behind: status.seconds_behind(now()),
        sink: status.name,
        kind: status.kind.to_owned(),
        running,
        cursor: status.settled,
        rows_behind: status.rows_behind,
        dead_letters: status.dead_letters,
        delivered: status.delivered,
        error: status.trouble.map(|trouble| SinkError {
            misconfigured: trouble.misconfigured,
            reason: trouble.reason,
            since: trouble.since,
            tries: trouble.tries,
        }),
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
