//! Events on their way to clients: of one session by its ring, of all sessions by the hub.

pub(crate) mod hub;
pub(crate) mod published;
pub(crate) mod ring;
pub(crate) mod telling;
