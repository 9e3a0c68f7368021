//! Commands that are left running.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_sandbox::process::{Receive, Spec};
use playhouse_sandbox::{BackgroundCommand, State};
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
    let copy = |id: &str| -> Box<dyn Receive> {
        Box::new(Copy { saver: Saver::new(folder.join(format!("{id}.txt")), pool) })
    };
    let started = context.processes.start(spec, options.most_background, copy).await;
    let command = started.map_err(|error| ToolError::Failed(error.to_string()))?;
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
struct Copy {
    saver: Saver,
}

impl Receive for Copy {
    fn receive<'a>(&'a mut self, chunk: &'a [u8]) -> BoxFuture<'a, ()> {
        self.saver.add(chunk);
        // At once: somebody may search the file while the command runs.
        self.saver.write().boxed()
    }
}
