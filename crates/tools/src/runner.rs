//! The one way in which calls are made, for models and for people.
//!
//! [`prepare`], then the judgement of the policy and its consent, then [`execute`]. What the model reads of the result is
//! capped here, whatever the tool does.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use playhouse_protocol::message::CallInput;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::truncate::{self, Capped};
use crate::{CallContext, Prepared, Registry, Tool, ToolError, ToolOutput, arguments};

/// How long a cancelled tool has for cleaning up; then it is dropped. Commands need most of a second in the worst case.
const GRACE: Duration = Duration::from_secs(1);

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
    let prepared = prepare_with(&**tool, input, context).await?;
    Ok((tool.clone(), prepared))
}

/// The same with a tool that was found.
///
/// # Errors
/// As [`prepare`] has them.
pub async fn prepare_with(
    tool: &dyn Tool,
    input: &CallInput,
    context: &CallContext,
) -> Result<Prepared, ToolError> {
    let input = match input {
        CallInput::Object(input) => input,
        CallInput::Malformed(written) => return Err(arguments::not_an_object(tool.spec(), written)),
    };
    let prepared = tokio::select! {
        biased;
        () = context.cancel.cancelled() => Err(ToolError::Cancelled(String::new())),
        prepared = tool.prepare(input, context) => prepared,
    };
    match prepared {
        Ok(prepared) => Ok(prepared),
        Err(error) => Err(cap_error(error, context).await),
    }
}

/// Makes a call that was prepared and may run.
///
/// # Errors
/// What the tool answers as an error, capped as a result is; [`ToolError::Cancelled`] when the call was cancelled.
pub async fn execute(
    tool: &dyn Tool,
    prepared: Prepared,
    context: &CallContext,
) -> Result<ToolOutput, ToolError> {
    let result = match with_grace(tool.execute(prepared.plan, context), &context.cancel).await {
        Some(result) => result,
        None => Err(ToolError::Cancelled("it did not end by itself, so its effects are not known".into())),
    };
    match result {
        Ok(output) => Ok(cap_output(output, context).await),
        Err(error) => Err(cap_error(error, context).await),
    }
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

async fn cap_output(mut output: ToolOutput, context: &CallContext) -> ToolOutput {
    let capped = truncate::cap(std::mem::take(&mut output.output), context).await;
    describe(&capped, &mut output.metadata);
    output.output = capped.text;
    output
}

async fn cap_error(error: ToolError, context: &CallContext) -> ToolError {
    match error {
        ToolError::Invalid(text) => ToolError::Invalid(truncate::cap(text, context).await.text),
        ToolError::Failed(text) => ToolError::Failed(truncate::cap(text, context).await.text),
        ToolError::Cancelled(text) => ToolError::Cancelled(truncate::cap(text, context).await.text),
    }
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
