//! What the rules say of calls, without running them: as of a model's call, with nobody's consent.

use std::path::Path;
use std::sync::Arc;

use playhouse_policy::{Rules, Verdict};
use playhouse_protocol::message::CallInput;
use playhouse_sandbox::{Processes, Walls};
use playhouse_tools::{Alone, CallContext, runner};
use playhouse_workspace::{FileTracker, PathLocks, Pool, Workspace};
use tokio_util::sync::CancellationToken;

use super::super::asker::visible;
use super::super::tools::configured;
use super::super::{CommandResult, Common, Exit, Failure, print};
use super::ScriptedCall;
use crate::house::resolved;
use crate::operations::check_tool;

/// Threads for the work of tools that blocks.
const THREADS: usize = 2;

/// Prints a line for each call.
pub(super) async fn tell(common: &Common, calls: &[ScriptedCall], directory: &Path) -> CommandResult {
    let settings = common.settings_apart()?;
    let settings = settings.with_workspace(directory)?;
    let registry = Arc::new(configured(&settings)?);
    for call in calls {
        check_tool(&call.tool, &registry).map_err(Failure::usage)?;
    }
    let policy = settings.policy(playhouse_prompts::Agents::DEFAULT, Rules::new());
    let outputs = tempfile::tempdir()?;
    let workspace = Workspace::open(directory, outputs.path().join("output"))
        .map_err(|error| Failure::usage(error.to_string()))?
        .hiding(settings.own.iter().map(|path| resolved(path)).collect());
    let context = CallContext {
        workspace: Arc::new(workspace),
        files: Arc::new(FileTracker::new()),
        locks: PathLocks::of_this_process(),
        pool: Pool::new(THREADS),
        cancel: CancellationToken::new(),
        output: Arc::new(()),
        output_file: outputs.path().join("output/call.txt"),
        storage: playhouse_tools::storage::SessionStorage::alone(outputs.path().join("output")),
        host: Arc::new(Alone::with_policy(Arc::clone(&registry), policy)),
        processes: Processes::new().of("by-hand"),
        walls: Walls::open(),
        writes: playhouse_tools::WriteLog::default(),
    };
    for call in calls {
        let input = CallInput::Object(call.input.clone());
        let line = match runner::prepare(&registry, &call.tool, &input, &context).await {
            // It would be answered with this, and the rules not asked.
            Err(error) => format!("refuse: {error}"),
            Ok((tool, prepared)) => match context.host.judge(&*tool, &prepared) {
                Verdict::Allow => "allow".to_owned(),
                Verdict::Ask { reason, .. } => format!("ask: {reason}"),
                Verdict::Deny { reason } => format!("deny: {reason}"),
            },
        };
        print(&(visible(&line) + "\n"))?;
    }
    Ok(Exit::Completed)
}
