//! Streams of events, as server-sent events.
//!
//! - [`sse`]: writes any source of events; what a slow client has not read yet is merged.
//! - [`batch`]: the merging.
//! - [`one`]: the events of one session.
//! - [`many`]: the events of all sessions of a tenant.
//! - [`awake`]: asks a stream only when something woke it.
//! - [`alarms`]: when it ends, and when it tells that it is alive.
//! - [`tags`]: those of one session as one text.

pub(crate) mod alarms;
pub(crate) mod awake;
pub(crate) mod batch;
pub(crate) mod many;
pub(crate) mod one;
pub(crate) mod sse;
pub(crate) mod tags;
