//! Commands that are left running.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_sandbox::process::Spec;
use playhouse_sandbox::{BackgroundCommand, CutCopy, OutputCopy, State};
use serde_json::Map;

use super::{BashOptions, report};
use crate::truncate::{Saver, clean, cut};
use crate::{CallContext, ToolError, ToolOutput};

/// What ends within this time is told at once.
const GRACE: Duration = Duration::from_millis(300);

/// Starts a command, and waits for a moment if it fails at once.
pub(super) async fn start(
    spec: Spec,
    title: String,
    options: &BashOptions,
    context: &CallContext,
) -> Result<ToolOutput, ToolError> {
    let folder = context.workspace.output().to_owned();
    let pool = context.pool.clone();
    let copy = |id: &str| -> Box<dyn OutputCopy> {
        Box::new(SavedCopy { saver: Saver::new(folder.join(format!("{id}.txt")), &context.storage, pool) })
    };
    let free = context.storage.free_before(&context.pool).await;
    let started = context.processes.start(spec, options.most_background, copy).await;
    let command = started.map_err(|error| ToolError::Failed(error.to_string()))?;
    watch_home(command.clone(), free, context);
    tokio::select! {
        biased;
        () = context.cancel.cancelled() => {
            command.end().await;
            return Err(ToolError::Cancelled("the command was ended".into()));
        }
        _ = command.ended() => {}
        () = tokio::time::sleep(GRACE) => {}
    }
    Ok(result(title, &command, context))
}

/// Ends the command if it fills its home.
fn watch_home(command: BackgroundCommand, free: Option<u64>, context: &CallContext) {
    let (storage, pool) = (context.storage.clone(), context.pool.clone());
    tokio::spawn(async move {
        tokio::select! {
            _ = command.ended() => {}
            bound = storage.home_is_full(&pool) => {
                tracing::info!(command = command.id(), %bound, "a command was ended that filled its home");
                command.end_because(format!("it was ended, as it filled its home directory: {bound}")).await;
            }
        }
        storage.count_homes_later(free, &pool);
    });
}

fn result(title: String, command: &BackgroundCommand, context: &CallContext) -> ToolOutput {
    let (id, state) = (command.id(), command.state());
    let text = clean(&command.read_new().bytes);
    let written = if text.is_empty() { "(no output)" } else { text.trim_end() };
    let output = match &state {
        State::Running => {
            let so_far =
                if text.is_empty() { String::new() } else { format!(" It has written so far:\n{written}") };
            format!(
                "[It runs in the background as {id}. Use the tool process to read, write to or end it.]{so_far}"
            )
        }
        State::Ended(exit, _) => format!("{written}\n[It has ended already: {}]", report::ending(*exit)),
        State::Lost(error) => format!("{written}\n[{error}]"),
    };
    let mut metadata = Map::new();
    metadata.insert("background".into(), true.into());
    metadata.insert("processId".into(), id.into());
    metadata.insert("pid".into(), command.process().into());
    metadata.insert("running".into(), (state == State::Running).into());
    if let State::Ended(exit, _) = state {
        metadata.insert("exit".into(), exit.code.into());
        metadata.insert("signal".into(), exit.signal.into());
    }
    let glance = cut::end(text.as_bytes(), report::GLANCE, usize::MAX);
    metadata.insert("output".into(), String::from_utf8_lossy(glance).into());
    if !matches!(command.written(), (0, _)) {
        let file = context.workspace.output().join(format!("{id}.txt"));
        metadata.insert("outputPath".into(), file.to_string_lossy().into());
    }
    ToolOutput { title, output, metadata, ..ToolOutput::default() }
}

/// The output, in a file of the session.
struct SavedCopy {
    saver: Saver,
}

impl OutputCopy for SavedCopy {
    fn take<'a>(&'a mut self, chunk: &'a [u8]) -> BoxFuture<'a, Option<CutCopy>> {
        self.saver.add(chunk);
        async move {
            // At once: somebody may search the file while the command runs.
            self.saver.write().await;
            self.saver.ended().map(|(bytes, reason)| CutCopy { bytes, reason })
        }
        .boxed()
    }
}
