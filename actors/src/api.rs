//! Handles: what drives an engine and its sessions from outside of the actors.
//!
//! A handle sends messages to actors and reads the store. It starts none of them: that is [`crate::start`].

pub(crate) mod accounts;
pub(crate) mod artifacts;
pub(crate) mod creation;
pub(crate) mod engine;
pub(crate) mod forking;
pub(crate) mod handle;
pub(crate) mod load;
pub(crate) mod looking;
mod observe;
pub(crate) mod reading;
pub(crate) mod removal;
pub(crate) mod resume;
pub(crate) mod subscription;
pub(crate) mod templates;
pub(crate) mod tools;
