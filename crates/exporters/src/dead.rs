//! Dead letters: what servers did not want.

use std::sync::Arc;

use playhouse_billing::export::{Answer, Answers, Cursor, DeadLetter, Place};
use playhouse_store::{Shelf, StoreError};
use tokio::task::spawn_blocking;

use crate::exporters::{Surroundings, store_error};
use crate::http::client;
use crate::reader::make;
use crate::records::Records;
use crate::sink::{Sink, Target};

/// The letters that shall be sent once more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Only the one with this id.
    pub id: Option<String>,
    /// Only those behind this place.
    pub after: Option<Place>,
    /// At most so many.
    pub limit: usize,
}

impl Wanted {
    /// All letters.
    pub const ALL: Self = Self { id: None, after: None, limit: usize::MAX };
}

/// What became of letters that were sent once more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retried {
    /// Letters that were accepted. They are gone.
    pub delivered: u64,
    /// Letters that were refused again. They stay, with the new reason.
    pub refused: u64,
    /// Letters that were not tried, because the server cannot be asked now.
    pub left: u64,
    /// Why not.
    pub reason: Option<String>,
    /// Whether the sink waited, and what waits with it is tried at once.
    pub hurried: bool,
    /// The place of the last one, where there are more behind it than were to be sent.
    pub next: Option<Place>,
}

/// The letters of the sink `name`, in the order of the feed. Blocks.
///
/// # Errors
/// The shelf cannot be read.
pub fn letters(shelf: &Arc<dyn Shelf>, name: &str) -> Result<Vec<DeadLetter>, StoreError> {
    Records::new(Arc::clone(shelf), name).letters().map_err(store_error)
}

/// Sends letters once more, one at a time, in the order of the feed. The sink may be at work meanwhile. They go in their
/// present form, so that a changed configuration can help. It ends with the first answer that is neither yes nor no.
///
/// # Errors
/// The shelf cannot be read or written.
pub async fn retry(
    sink: &Sink,
    shelf: &Arc<dyn Shelf>,
    wanted: &Wanted,
    surroundings: &Surroundings,
) -> Result<Retried, StoreError> {
    let mut retried = Retried::default();
    // Files refuse nothing.
    let Target::Server(server) = &sink.target else { return Ok(retried) };
    let client = client(&server.url).map_err(StoreError::Backend)?;
    let (read_from, name) = (Arc::clone(shelf), Arc::clone(&sink.name));
    let mut found = blocking(move || letters(&read_from, &name)).await?;
    found.retain(|letter| {
        wanted.id.as_ref().is_none_or(|id| *id == letter.id)
            && wanted.after.is_none_or(|after| letter.place > after)
    });
    if found.len() > wanted.limit {
        found.truncate(wanted.limit);
        retried.next = found.last().map(|letter| letter.place);
    }
    let mut rest = found.into_iter();
    while let Some(mut letter) = rest.next() {
        let cursor = Cursor::at(letter.place.number);
        let item = make(&*sink.shape, letter.place, cursor, letter.entry.clone());
        let answer = match server.deliver(&client, &[&item], surroundings).await {
            Answers::All(answer) => answer,
            Answers::Each(answers) => answers
                .into_iter()
                .next()
                .unwrap_or_else(|| Answer::Misconfigured { reason: "there is no request for it".to_owned() }),
        };
        let records = Records::new(Arc::clone(shelf), sink.name());
        match answer {
            Answer::Accepted => {
                blocking(move || records.forget(letter.place).map_err(store_error)).await?;
                retried.delivered += 1;
            }
            Answer::Refused { status, reason } => {
                letter.status = status;
                letter.reason = reason;
                letter.at = (surroundings.clock)();
                blocking(move || records.bury(&letter).map_err(store_error)).await?;
                retried.refused += 1;
            }
            Answer::Busy { reason, .. } | Answer::Misconfigured { reason } => {
                retried.left = rest.len() as u64 + 1;
                retried.reason = Some(reason);
                retried.next = None;
                break;
            }
        }
    }
    Ok(retried)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    spawn_blocking(work).await.map_err(|error| StoreError::Backend(error.to_string()))?
}
