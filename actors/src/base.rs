//! The lowest module, which every other may use: the clock, ids, counts of children, gates, traces of actors.

use std::any::Any;
use std::time::{SystemTime, UNIX_EPOCH};

use playhouse_protocol::{SessionId, Timestamp};

mod children;
pub(crate) mod durable;
pub(crate) mod gate;
mod ids;
mod task;

pub(crate) use children::{Child, Children};
pub(crate) use ids::{Ids, random_fraction};
pub(crate) use task::{spawn, spawn_on};

/// Wall-clock time.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// An actor begins with a message. Told at the level `trace`, of this target; tests make actors panic here.
pub(crate) fn begins(actor: &'static str, message: &'static str, session: Option<SessionId>) {
    let session = session.map(tracing::field::display);
    tracing::trace!(target: "playhouse::mailbox", actor, begins = message, session);
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no reason was given")
}
