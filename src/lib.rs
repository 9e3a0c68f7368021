//! Playhouse: an engine that runs many AI coding-agent sessions at once, each isolated in its own actor.
//!
//! This crate is what a program embeds, and the command line is one such program:
//!
//! - [`House`] starts an engine from [`config::Settings`]: with a data directory, or in memory.
//! - [`Engine`] makes, finds, lists and removes sessions; [`SessionHandle`] drives one.
//! - [`Credentials`] gives each tenant its keys; without it they come from the environment.
//! - [`protocol`] holds the commands, replies, records and events, all of them serde types.
//! - [`tools`] holds the [`Tool`](tools::Tool) trait, for tools of your own.
//! - [`cli`] is the command line.
//!
//! ```
//! use playhouse::config::Settings;
//! use playhouse::protocol::{NewSession, Prompt};
//! use playhouse::{House, mock_llm};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let settings = Settings::load(None, &|_| None).unwrap();
//! let script = mock_llm::Script::new()
//!     .model("greeter", mock_llm::Model::new().step(mock_llm::text("Hello!")));
//! let house = House::builder(settings).mock(script).start().await.unwrap();
//! let workspace = std::env::current_dir().unwrap();
//! let session = house
//!     .engine()
//!     .create(NewSession {
//!         model: Some("mock/greeter".parse().unwrap()),
//!         ..NewSession::new("local", workspace.to_string_lossy())
//!     })
//!     .await
//!     .unwrap();
//! let finished = session.run(Prompt::text("Say hello.")).await.unwrap();
//! assert_eq!(finished.ended.outcome.to_string(), "completed");
//! house.shutdown().await;
//! # });
//! ```

mod capture;
pub mod cli;
mod client;
mod clock;
pub mod config;
mod directory;
#[cfg(test)]
mod directory_tests;
mod exposition;
mod facts;
mod house;
mod labels;
mod logging;
mod mock;
mod operations;
mod shown;
mod sinks;
mod system;
mod templates;

pub use house::{House, HouseBuilder, HouseError};
pub use mock_llm;
pub use playhouse_actors::{
    AgentDirectory, Choice, Directory, Engine, EngineLimits, EngineOptions, Ground, ModelDirectory, Moderate,
    Profile, ProfileDirectory, ProfileRequest, Published, SessionHandle, Stopped, Subscription,
    TemplateDirectory, UsageReport, WorkspaceDirectory, fold,
};
pub use playhouse_llm::Credentials;
pub use playhouse_policy as policy;
pub use playhouse_protocol as protocol;
pub use playhouse_sandbox as sandbox;
pub use playhouse_server as server;
pub use playhouse_session as session;
pub use playhouse_store as store;
pub use playhouse_tools as tools;
pub use playhouse_workspace as workspace;
