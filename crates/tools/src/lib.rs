//! The [`Tool`] trait, the registry and the native tools.
//!
//! A tool has two phases. [`Tool::prepare`] reads the arguments and says, without side effects, what the call would
//! touch, change and show; policy judges that. [`Tool::execute`] does it, and checks again what may have changed
//! meanwhile. Output is capped in one place for all tools, with the whole kept in a file that the model is told of.
//!
//! - [`tool`]: the trait, and what a call stands on ([`CallContext`])
//! - [`Registry`]: the tools of an engine; the native ones, and those that are added
//! - [`ToolSource`]: tools that come and go while the engine runs
//! - [`TypedTool`], [`FunctionTool`]: short ways to write a tool; as two functions, or as one
//! - [`Host`]: what the engine does for a call
//! - [`runner`]: the one way in which calls are made
//! - [`changed`]: the files that a call wrote; [`CallObserver`]: what sees a call before and after it runs
//! - [`arguments`]: schemas from types, and a strict reading that says what does not fit
//! - [`capture`]: tools that keep their arguments
//! - [`schema`]: values against JSON Schemas from outside
//! - [`submit`]: answers that have a schema
//! - [`truncate`]: what the model reads is capped, whatever a tool does
//! - [`web`]: the tools that reach out, and the door to the network that they go through
//! - [`media`]: images and documents, as models are shown them
//! - [`paths`]: the paths of a directory tree, for programs
//! - [`outputs`]: the files that hold the whole of it, and their end
//! - [`storage`]: how much sessions and tenants take up on disk, and its bounds
//! - [`read`](mod@read), [`write`](mod@write), [`edit`], [`bash`], [`glob`], [`grep`], [`list`]: the native tools, one module for each
//!
//! A call, from the text that a model wrote to what it reads:
//!
//! ```
//! use std::sync::Arc;
//!
//! use playhouse_policy::Verdict;
//! use playhouse_protocol::message::CallInput;
//! use playhouse_tools::storage::SessionStorage;
//! use playhouse_tools::{Alone, CallContext, OutputSink, Registry, WriteLog, runner};
//! use playhouse_sandbox::{Processes, Walls};
//! use playhouse_workspace::{FileTracker, PathLocks, Pool, Workspace};
//! use tokio_util::sync::CancellationToken;
//!
//! struct Nobody;
//! impl OutputSink for Nobody {
//!     fn write(&self, _text: &str) {}
//! }
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # runtime.block_on(async {
//! let folder = tempfile::tempdir()?;
//! let registry = Arc::new(Registry::native());
//! let context = CallContext {
//!     workspace: Arc::new(Workspace::open(folder.path(), folder.path().join("outputs"))?),
//!     files: Arc::new(FileTracker::new()),
//!     locks: Arc::new(PathLocks::new()),
//!     pool: Pool::new(4),
//!     cancel: CancellationToken::new(),
//!     output: Arc::new(Nobody),
//!     output_file: folder.path().join("outputs/call.txt"),
//!     storage: SessionStorage::alone(folder.path().join("outputs")),
//!     host: Arc::new(Alone::new(registry.clone())),
//!     processes: Processes::new().of("ses_1"),
//!     walls: Walls::open(),
//!     writes: WriteLog::default(),
//! };
//!
//! let input = CallInput::from_model(r#"{"command": "echo $((6 * 7)); exit 3"}"#);
//! let (tool, prepared) = runner::prepare(&registry, "bash", &input, &context).await?;
//! assert_eq!(context.host.judge(&*tool, &prepared), Verdict::Allow);
//! let result = runner::execute(&tool, prepared, &context).await?;
//! assert_eq!(result.output, "42\n[exit code 3]");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

pub mod apply_patch;
pub mod arguments;
pub mod bash;
pub mod batch;
pub mod capture;
pub mod changed;
pub mod edit;
mod files;
mod function;
pub mod glob;
pub mod grep;
mod host;
pub mod host_tool;
pub mod list;
pub mod media;
pub mod multiedit;
mod names;
pub mod notebook;
pub mod observe;
mod options;
pub mod outputs;
mod patch;
pub mod paths;
pub mod process;
pub mod question;
pub mod read;
pub mod registry;
pub mod runner;
pub mod schema;
pub mod skill;
pub mod source;
pub mod storage;
pub mod submit;
pub mod task;
#[cfg(test)]
pub mod testing;
pub mod todo;
pub mod tool;
pub mod truncate;
mod typed;
pub mod undo;
pub mod web;
pub mod write;

pub use apply_patch::{Rewrite, Rewrites};
pub use changed::{WriteLog, WriteLogReader};
pub use function::FunctionTool;
pub use host::{Alone, Host, Showing, Work, WorkEnd, judge_call};
pub use observe::{CallObserver, Intent, ObservedCall};
pub use options::NativeOptions;
pub use registry::{Registry, RegistryError};
pub use source::{
    Agreed, MCP_CALL, MCP_PREFIX, MCP_RESOURCE, MCP_SEARCH, StartRequest, ToolScope, ToolSource, ToolSources,
};
pub use tool::{
    Artifact, CallContext, NewAttachment, OutputSink, Plan, Prepared, Risk, Tool, ToolError, ToolOutput,
};
pub use typed::{Ready, Typed, TypedTool};
