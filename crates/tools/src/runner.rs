//! The one way in which calls are made, for models and for people.
//!
//! [`prepare`], then the judgement of the policy and its consent, then [`execute`]. What the model reads of the result is
//! capped here, whatever the tool does. Each of the two begins with a look at the workspace.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use playhouse_policy::Access;
use playhouse_protocol::message::CallInput;
use playhouse_protocol::record::Effect;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::files::document::cut_characters;
use crate::files::{counted, size};
use crate::tool::NewAttachment;
use crate::truncate::{self, Capped, Room};
use crate::{CallContext, Intent, ObservedCall, Prepared, Registry, Tool, ToolError, ToolOutput, arguments};

/// How long a cancelled tool has for cleaning up; then it is dropped. Commands need most of a second in the worst case.
const GRACE: Duration = Duration::from_secs(1);
/// The longest title, in characters.
const TITLE: usize = 200;
/// The most that clients get as facts of one result, in bytes of JSON.
const METADATA: usize = 64 * 1024;
/// What is left of a fact that is too long, in characters.
const FACT: usize = 2_000;
/// The most files of one result, and their bytes in all. They are sent with every request from then on.
const ATTACHED_FILES: usize = 20;
const ATTACHED_BYTES: usize = 10_000_000;
/// The fact that names the rules files that a result shows.
pub(crate) const RULES: &str = "rules";
/// The most facts that are named as cut.
const NAMED: usize = 20;

/// Finds the tool, reads the arguments, and says what the call would do. Has no side effects.
///
/// # Errors
/// When there is no such tool (with the nearest names), when the arguments do not fit (with what the tool takes), when
/// the tool refuses them, and when the call was cancelled.
pub async fn prepare(
    registry: &Registry,
    name: &str,
    input: &CallInput,
    context: &CallContext,
) -> Result<(Arc<dyn Tool>, Prepared), ToolError> {
    let tool = registry.find(name)?;
    let prepared = prepare_with(tool, input, context).await?;
    Ok((Arc::clone(tool), prepared))
}

/// The same with a tool that was found.
///
/// # Errors
/// As [`prepare`] has them.
pub async fn prepare_with(
    tool: &Arc<dyn Tool>,
    input: &CallInput,
    context: &CallContext,
) -> Result<Prepared, ToolError> {
    let prepared = tokio::select! {
        biased;
        () = context.cancel.cancelled() => Err(ToolError::Cancelled(String::new())),
        prepared = async {
            check_workspace(context).await?;
            prepare_uncapped(&**tool, input, context).await
        } => prepared,
    };
    match prepared {
        Ok(prepared) => Ok(prepared),
        Err(error) => Err(cap_error(error, Room::WHOLE, context).await),
    }
}

/// The workspace has to be the directory that it was: nobody who can change what lies above it chooses another one.
async fn check_workspace(context: &CallContext) -> Result<(), ToolError> {
    let workspace = context.workspace.clone();
    let checked = context.pool.brief(move || workspace.check()).await;
    checked.map_err(|error| ToolError::Failed(error.to_string()))
}

/// [`prepare_with`] for one who caps the errors.
pub(crate) async fn prepare_uncapped(
    tool: &dyn Tool,
    input: &CallInput,
    context: &CallContext,
) -> Result<Prepared, ToolError> {
    let input = match input {
        CallInput::Object(input) => input,
        CallInput::Malformed(written) => return Err(arguments::not_an_object(tool.spec(), written)),
    };
    let mut prepared = tokio::select! {
        biased;
        () = context.cancel.cancelled() => return Err(ToolError::Cancelled(String::new())),
        prepared = tool.prepare(input, context) => prepared?,
    };
    cap_title(&mut prepared.title);
    Ok(prepared)
}

/// Makes a call that was prepared and may run.
///
/// # Errors
/// What the tool answers as an error, capped as a result is; [`ToolError::Cancelled`] when the call was cancelled.
pub async fn execute(
    tool: &Arc<dyn Tool>,
    prepared: Prepared,
    context: &CallContext,
) -> Result<ToolOutput, ToolError> {
    let checked = tokio::select! {
        biased;
        () = context.cancel.cancelled() => Err(ToolError::Cancelled(String::new())),
        checked = check_workspace(context) => checked,
    };
    let mut executed = match checked {
        Ok(()) => execute_observed(&**tool, prepared, context).await,
        Err(error) => Err(error),
    };
    context.host.observers().iter().for_each(|observer| observer.tell(&mut executed));
    match executed {
        Ok(mut output) => {
            Attachable::new().limit(&mut output);
            let mut output = cap_output(output, Room::WHOLE, context).await;
            show_rules(&mut output);
            for (path, content) in &output.seen {
                context.files.remember(path, *content);
            }
            Ok(output)
        }
        Err(error) => Err(cap_error(error, Room::WHOLE, context).await),
    }
}

/// What the observers of a call that was prepared with this effect and these accesses, and may run, know before it does.
///
/// # Errors
/// What one of them says against it.
pub async fn intend(
    tool: &dyn Tool,
    effect: Effect,
    accesses: &[Access],
    context: &CallContext,
) -> Result<Intent, ToolError> {
    let mut all = Intent::default();
    let call = ObservedCall { tool, accesses };
    if call.is_observed(effect) {
        for observer in context.host.observers() {
            let Intent { before, tracked } = observer.intend(call, context).await?;
            all.before.extend(before);
            all.tracked |= tracked;
        }
    }
    Ok(all)
}

/// [`execute_uncapped`] in the sight of the observers.
async fn execute_observed(
    tool: &dyn Tool,
    mut prepared: Prepared,
    context: &CallContext,
) -> Result<ToolOutput, ToolError> {
    let accesses = std::mem::take(&mut prepared.accesses);
    let observers = match (ObservedCall { tool, accesses: &accesses }).is_observed(prepared.effect) {
        true => context.host.observers(),
        false => &[],
    };
    for observer in observers {
        observer.before(ObservedCall { tool, accesses: &accesses }, context).await;
    }
    let mut ended = execute_uncapped(tool, prepared, context).await;
    for observer in observers {
        observer.after(&mut ended, context).await;
    }
    ended
}

/// [`execute`] for one who caps what comes, and hands on which files were seen.
pub(crate) async fn execute_uncapped(
    tool: &dyn Tool,
    prepared: Prepared,
    context: &CallContext,
) -> Result<ToolOutput, ToolError> {
    match with_grace(tool.execute(prepared.plan, context), &context.cancel).await {
        Some(result) => result,
        None => Err(overdue()),
    }
}

fn overdue() -> ToolError {
    ToolError::Cancelled("it did not end by itself, so its effects are not known".into())
}

/// The result of `work`; `None` when it goes on for too long after it was cancelled.
async fn with_grace<T>(work: impl Future<Output = T>, cancel: &CancellationToken) -> Option<T> {
    let overdue = async {
        cancel.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        biased;
        result = work => Some(result),
        () = overdue => None,
    }
}

/// What a result may still attach.
pub(crate) struct Attachable {
    files: usize,
    bytes: usize,
}

impl Attachable {
    pub(crate) const fn new() -> Self {
        Self { files: ATTACHED_FILES, bytes: ATTACHED_BYTES }
    }

    /// Leaves with `output` the files that still fit, in order, and says in it which do not. Those are not seen.
    pub(crate) fn limit(&mut self, output: &mut ToolOutput) {
        let mut left_out = Vec::new();
        output.attachments.retain(|NewAttachment { mime, filename, content }| {
            let fits = self.files > 0 && content.len() <= self.bytes;
            if fits {
                self.files -= 1;
                self.bytes -= content.len();
            } else {
                left_out.push(format!("{filename} ({mime}, {})", size(content.len() as u64)));
            }
            fits
        });
        if !left_out.is_empty() {
            output.seen.clear();
            output.output.push_str(&format!(
                "\n[not attached: {}. One result attaches at most {} with {} in all: ask for fewer at once, or for \
                 smaller copies]",
                left_out.join(", "),
                counted(ATTACHED_FILES, "file"),
                size(ATTACHED_BYTES as u64)
            ));
        }
    }
}

/// Makes of a result what the model and clients get of it. Files that it does not show as a whole are not seen.
pub(crate) async fn cap_output(mut output: ToolOutput, room: Room, context: &CallContext) -> ToolOutput {
    let capped = truncate::cap_within(std::mem::take(&mut output.output), room, context).await;
    if capped.truncated {
        output.seen.clear();
    }
    cap_title(&mut output.title);
    cap_metadata(&mut output.metadata);
    describe(&capped, &mut output.metadata);
    output.output = capped.text;
    output
}

/// Puts the rules that a result brings behind it, and names them in its facts. They have room of their own.
fn show_rules(output: &mut ToolOutput) {
    let mut files = match output.metadata.remove(RULES) {
        Some(Value::Array(files)) => files,
        _ => Vec::new(),
    };
    for rules in output.rules.drain(..) {
        output.output.push_str("\n\n");
        output.output.push_str(&rules.render());
        files.push(rules.file.into());
    }
    if !files.is_empty() {
        output.metadata.insert(RULES.into(), Value::Array(files));
    }
}

/// The same of an error.
pub(crate) async fn cap_error(error: ToolError, room: Room, context: &CallContext) -> ToolError {
    let cap = |text| async move { truncate::cap_within(text, room, context).await.text };
    match error {
        ToolError::Invalid(text) => ToolError::Invalid(cap(text).await),
        ToolError::Failed(text) => ToolError::Failed(cap(text).await),
        ToolError::Cancelled(text) => ToolError::Cancelled(cap(text).await),
    }
}

fn cap_title(title: &mut String) {
    let (short, cut) = cut_characters(title, TITLE);
    if cut {
        *title = format!("{short}…");
    }
}

/// Facts go with every event and stay in the log. The longest are cut (texts) or left out (all else), and named in
/// `metadataCut`.
fn cap_metadata(metadata: &mut Map<String, Value>) {
    let length = |name: &str, value: &Value| name.len() + value.to_string().len() + 6;
    let mut sizes: Vec<(usize, String)> =
        metadata.iter().map(|(name, value)| (length(name, value), name.clone())).collect();
    let mut all: usize = sizes.iter().map(|(size, _)| size).sum();
    if all <= METADATA {
        return;
    }
    sizes.sort_unstable_by(|one, other| other.cmp(one));
    let (mut cut, mut shortened) = (Vec::new(), Vec::new());
    for (size, name) in sizes {
        if all <= METADATA {
            break;
        }
        all -= size;
        if let Some(Value::String(text)) = metadata.remove(&name) {
            let short = Value::String(format!("{}…", cut_characters(&text, FACT).0));
            shortened.push((name.clone(), short));
        }
        if cut.len() < NAMED {
            cut.push(Value::String(cut_characters(&name, TITLE).0.to_owned()));
        }
    }
    for (name, value) in shortened {
        all += length(&name, &value);
        // Unless there are very many of them.
        if all <= METADATA {
            metadata.insert(name, value);
        }
    }
    metadata.insert("metadataCut".into(), Value::Array(cut));
}

/// Tells clients that something was left out, and where it is.
pub(crate) fn describe(capped: &Capped, metadata: &mut serde_json::Map<String, Value>) {
    if capped.truncated {
        metadata.insert("truncated".into(), Value::Bool(true));
    }
    if let Some(file) = &capped.file {
        metadata.insert("outputPath".into(), Value::String(file.to_string_lossy().into_owned()));
    }
}

#[cfg(test)]
mod tests;
