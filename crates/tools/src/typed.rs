//! The short way to write a tool: with the types of its arguments and of what it does.

use std::borrow::Cow;
use std::future::Future;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_policy::Access;
use playhouse_protocol::Delegation;
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::message::CallInput;
use playhouse_protocol::record::{Effect, Recovery};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::arguments;
use crate::tool::{CallContext, Plan, Prepared, Risk, Tool, ToolError, ToolOutput};

/// A call of a [`TypedTool`] that is understood, and has not been done. See [`Prepared`].
#[derive(Clone, Debug)]
pub struct Ready<T> {
    /// Everything that it would touch, links resolved.
    pub accesses: Vec<Access>,
    /// What it may change.
    pub effect: Effect,
    /// What to do if the process ends in the middle of it.
    pub recovery: Recovery,
    /// What a person sees before agreeing to it.
    pub preview: String,
    /// One line for people.
    pub title: String,
    /// For `execute`.
    pub task: T,
}

impl<T> Ready<T> {
    /// A call that only looks, and may do so again after a crash: its title is all that a person sees before.
    pub fn looking(accesses: Vec<Access>, title: impl Into<String>, task: T) -> Self {
        let title = title.into();
        Self {
            accesses,
            effect: Effect::None,
            recovery: Recovery::Rerun,
            preview: title.clone(),
            title,
            task,
        }
    }
}

/// A tool with the types of its arguments and of its task. [`Typed`] makes a [`Tool`] of it.
///
/// ```
/// use playhouse_protocol::record::{Effect, Recovery};
/// use playhouse_tools::{CallContext, Ready, Risk, Tool as _, ToolError, ToolOutput, Typed, TypedTool};
/// use schemars::JsonSchema;
/// use serde::Deserialize;
///
/// struct Shout;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Arguments {
///     /// What is shouted.
///     text: String,
/// }
///
/// impl TypedTool for Shout {
///     const NAME: &'static str = "shout";
///     const DESCRIPTION: &'static str = "Shouts.";
///     const RISK: Risk = Risk::Safe;
///     type Arguments = Arguments;
///     type Task = String;
///
///     async fn prepare(&self, arguments: Arguments, _: &CallContext) -> Result<Ready<String>, ToolError> {
///         Ok(Ready {
///             accesses: Vec::new(),
///             effect: Effect::None,
///             recovery: Recovery::Rerun,
///             preview: String::new(),
///             title: "shout".into(),
///             task: arguments.text,
///         })
///     }
///
///     async fn execute(&self, text: String, _: &CallContext) -> Result<ToolOutput, ToolError> {
///         Ok(ToolOutput::text(text.to_uppercase()))
///     }
/// }
///
/// assert_eq!(Typed::new(Shout).spec().name, "shout");
/// ```
pub trait TypedTool: Send + Sync + 'static {
    /// Its name: 1 to 64 of the characters a-z, A-Z, 0-9, `_` and `-`.
    const NAME: &'static str;
    /// What a model is told of it.
    const DESCRIPTION: &'static str;
    /// How dangerous it is without a rule about it.
    const RISK: Risk;
    /// What rules call it.
    const PERMISSION: &'static str = Self::NAME;
    /// Whether it starts programs.
    const STARTS_PROGRAMS: bool = false;

    /// See [`Tool::changes_unnamed_files`].
    const CHANGES_UNNAMED_FILES: bool = Self::STARTS_PROGRAMS;
    /// As [`Tool::is_brief`] has it.
    const IS_BRIEF: bool = false;
    /// As [`Tool::only_for`] has it.
    const ONLY_FOR: Option<&'static str> = None;
    /// Its arguments. Their documentation is what the model reads of them.
    type Arguments: DeserializeOwned + JsonSchema + Send + 'static;
    /// What `prepare` hands to `execute`.
    type Task: Send + 'static;

    /// Completes what models are told of it, with what is known of this value only, as limits that are configured.
    fn complete(&self, _spec: &mut ToolSpec) {}

    /// See [`Tool::unavailable`].
    fn unavailable(&self) -> Option<String> {
        None
    }

    /// How long a call may run that is waited for, where its arguments may say it.
    fn longest(&self) -> Option<Duration> {
        None
    }

    /// The work that a call with these arguments hands over to another session.
    fn delegation(_input: &CallInput) -> Option<Delegation> {
        None
    }

    /// The arguments without what many models send beside them, where leaving it out changes nothing.
    fn forgiven(input: &Map<String, Value>) -> Cow<'_, Map<String, Value>> {
        Cow::Borrowed(input)
    }

    /// Says what the call would do, without side effects.
    ///
    /// # Errors
    /// What the model shall read.
    fn prepare(
        &self,
        arguments: Self::Arguments,
        context: &CallContext,
    ) -> impl Future<Output = Result<Ready<Self::Task>, ToolError>> + Send;

    /// Does what was prepared. Returns soon after `context.cancel` is cancelled; dropping the future cleans up.
    ///
    /// # Errors
    /// What the model shall read.
    fn execute(
        &self,
        task: Self::Task,
        context: &CallContext,
    ) -> impl Future<Output = Result<ToolOutput, ToolError>> + Send;
}

/// The [`Tool`] that a [`TypedTool`] is.
#[derive(Debug)]
pub struct Typed<T> {
    spec: ToolSpec,
    tool: T,
}

impl<T: TypedTool> Typed<T> {
    /// The tool that `tool` is.
    pub fn new(tool: T) -> Self {
        let mut spec = arguments::spec::<T::Arguments>(T::NAME, T::DESCRIPTION);
        tool.complete(&mut spec);
        Self { spec, tool }
    }
}

impl<T: TypedTool + Default> Default for Typed<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: TypedTool> Tool for Typed<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn risk(&self) -> Risk {
        T::RISK
    }

    fn permission(&self) -> &str {
        T::PERMISSION
    }

    fn starts_programs(&self) -> bool {
        T::STARTS_PROGRAMS
    }

    fn changes_unnamed_files(&self) -> bool {
        T::CHANGES_UNNAMED_FILES
    }

    fn is_brief(&self) -> bool {
        T::IS_BRIEF
    }

    fn unavailable(&self) -> Option<String> {
        self.tool.unavailable()
    }

    fn only_for(&self) -> Option<&str> {
        T::ONLY_FOR
    }

    fn longest(&self) -> Option<Duration> {
        self.tool.longest()
    }

    fn delegation(&self, input: &CallInput) -> Option<Delegation> {
        T::delegation(input)
    }

    fn prepare<'a>(
        &'a self,
        input: &'a Map<String, Value>,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        async move {
            let arguments = arguments::parse(T::NAME, &T::forgiven(input))?;
            let Ready { accesses, effect, recovery, preview, title, task } =
                self.tool.prepare(arguments, context).await?;
            Ok(Prepared { accesses, effect, recovery, preview, title, plan: Box::new(task) })
        }
        .boxed()
    }

    fn execute<'a>(
        &'a self,
        plan: Plan,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        async move {
            let task = plan.downcast::<T::Task>().map_err(|_| {
                ToolError::Failed(format!(
                    "{} was given the plan of another tool; this is a bug in the engine",
                    T::NAME
                ))
            })?;
            self.tool.execute(*task, context).await
        }
        .boxed()
    }
}
