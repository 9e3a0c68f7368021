//! The client of language servers: it knows the protocol, and neither processes nor sessions.
//!
//! - [`Client::start`] takes the two pipes of a server that somebody else started, and introduces itself.
//! - [`Client::show`] tells the server what stands in a file, [`Client::diagnose`] asks what is wrong with it. There are three
//!   answers, never two: nothing, these problems, and *not known yet* ([`Known`]).
//! - [`Client::ask`] is for the rest: definitions, references, symbols, calls, and the edits of a rename.
//! - [`ServerEntry`] says how a server is started; [`builtin`] are those that are known.
//!
//! What a server says is bounded in size and in time: [`frame`], [`RequestError`].

mod client;
mod connection;
mod diagnostics;
mod entry;
pub mod frame;
mod operation;
mod position;

pub use client::{Client, Start, Touch, uri_of};
pub use connection::{CLOSED, RequestError};
pub use diagnostics::{Known, Problem, Severity, difference};
pub use entry::{ServerEntry, builtin};
pub use operation::{Answer, FileEdits, Operation, Place, Query, Symbol};
pub use position::{Encoding, Position, Span, Spot, apply, line_of};
