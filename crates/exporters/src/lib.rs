//! Carries the ledger to the systems that bill: files, OpenMeter, Polar, webhooks, and a report for each turn.
//!
//! - [`Feed`]: the ledger as sinks read it, in the order in which entries became durable; [`LedgerFeed`] is that of a store.
//! - [`SinkConfig`] and [`Sink`]: a sink as it is configured, and when that was checked and its keys were found.
//! - [`Exporters`]: the sinks of an engine, each in a task of its own with a durable cursor.
//! - [`SinkStatus`]: how far a sink is; [`status_at_rest`] says it of one that nobody drives, and [`exported_up_to`] what it
//!   still needs.
//! - [`letters`] and [`retry`]: what a server did not want. [`leftovers`] and [`forget`]: what is kept of sinks that are not
//!   configured any more.
//!
//! What is sent, waited for and given up is decided by `playhouse_billing::export`; here it is done. `driver` is the loop of a
//! sink, `http` and `file` are where it leads, `records` is what is kept on the shelf, `keys` holds secrets, `measure` tells
//! metrics.
//!
//! Delivery is at least once and in the order of the feed. What a sink knows beside its saved cursor is nothing that it
//! could not read again, so it may end at any point. In files nothing is doubled: they are cut back to the length that was
//! saved together with the cursor. (Of a file that others take away in the middle of a write, what was not saved is in the
//! next one once more.)
//!
//! ```
//! use playhouse_exporters::{Sink, SinkConfig, SinkKind};
//!
//! let mut config = SinkConfig::new(SinkKind::Polar);
//! config.key_env = Some("POLAR_TOKEN".to_owned());
//! let vault = |variable: &str| (variable == "POLAR_TOKEN").then(|| "polar_oat_1".to_owned().into());
//! let sink = Sink::new("polar", &config, &vault).unwrap();
//! assert_eq!(sink.address(), "https://api.polar.sh/v1/events/ingest");
//!
//! config.url = Some("api.polar.sh".to_owned());
//! let error = Sink::new("polar", &config, &vault).unwrap_err();
//! assert_eq!(error.to_string(), "sinks.polar.url is no address of the web: it must begin with https:// or http://");
//! ```

mod begin;
mod closing;
mod config;
mod dead;
mod driver;
mod exporters;
mod feed;
mod file;
mod http;
mod keys;
mod measure;
mod reader;
mod records;
mod rest;
mod retry_after;
mod sink;
mod status;

pub use config::{ConfigError, SinkConfig, SinkKind, Start};
pub use dead::{Retried, Wanted, letters, retry};
pub use exporters::{Exporters, Surroundings, SystemTimer, Timer};
pub use feed::{Feed, LedgerFeed};
pub use file::ACTIVE;
pub use rest::{Leftover, exported_up_to, forget, leftovers, status_at_rest};
pub use sink::Sink;
pub use status::SinkStatus;
