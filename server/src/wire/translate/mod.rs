//! From the engine's words to the wire's. Pure: no clock, no I/O.

mod error;
mod facts;
mod live;
mod message;
mod output;
mod request;
mod session;

pub(crate) use error::error;
pub(crate) use facts::{agent, command, provider, tool};
pub(crate) use live::Live;
pub(crate) use message::{cut_off, history};
pub(crate) use request::questions;
pub(crate) use session::session;
#[cfg(test)]
mod tests;

use playhouse_protocol::SessionId;

use super::place::Place;

/// What messages are told in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) session: SessionId,
    pub(crate) place: &'a Place,
}

/// An exact amount as the wire has it.
fn dollars(amount: impl std::fmt::Display) -> f64 {
    amount.to_string().parse().unwrap_or(0.0)
}
