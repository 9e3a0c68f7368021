//! A tool that is one function: the short way to add one.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::record::{Effect, Recovery};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::arguments;
use crate::tool::{CallContext, Plan, Prepared, Risk, Tool, ToolError, ToolOutput};

type Answer = Result<ToolOutput, ToolError>;
/// A call whose arguments were read.
type Start = Box<dyn FnOnce(CallContext) -> BoxFuture<'static, Answer> + Send>;
type Read = dyn Fn(&Map<String, Value>) -> Result<Start, ToolError> + Send + Sync;

/// A tool that is one function. Its arguments are described to models by their type, and read strictly.
///
/// It touches no paths as far as policy is told: one that works on files implements [`Tool`] itself. It must not block: what does
/// belongs into [`CallContext::pool`].
///
/// ```
/// use playhouse_tools::{FunctionTool, Tool, ToolOutput};
/// use schemars::JsonSchema;
/// use serde::Deserialize;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Sum {
///     /// The numbers to add up.
///     numbers: Vec<i64>,
/// }
///
/// let tool = FunctionTool::new("add_up", "Adds up numbers.", |sum: Sum, _context| async move {
///     Ok(ToolOutput::text(sum.numbers.iter().sum::<i64>().to_string()))
/// });
/// assert_eq!(tool.spec().parameters["properties"]["numbers"]["description"], "The numbers to add up.");
/// ```
pub struct FunctionTool {
    spec: ToolSpec,
    effect: Effect,
    read: Box<Read>,
}

impl fmt::Debug for FunctionTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionTool")
            .field("name", &self.spec.name)
            .field("effect", &self.effect)
            .finish_non_exhaustive()
    }
}

impl FunctionTool {
    /// A tool that changes nothing: its calls run side by side, and again after a crash.
    ///
    /// The future should end soon after `context.cancel` is cancelled; it is dropped when it does not.
    pub fn new<T, F, R>(name: &str, description: &str, function: F) -> Self
    where
        T: DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(T, CallContext) -> R + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        let (function, tool) = (Arc::new(function), name.to_owned());
        let read = move |input: &Map<String, Value>| {
            let arguments: T = arguments::parse(&tool, input)?;
            let function = Arc::clone(&function);
            Ok(Box::new(move |context| function(arguments, context).boxed()) as Start)
        };
        // Its author can say nothing elsewhere, so it keeps all of the schema.
        let spec =
            ToolSpec { parameters: arguments::schema::<T>(), ..arguments::spec::<T>(name, description) };
        Self { spec, effect: Effect::None, read: Box::new(read) }
    }

    /// Says what its calls may change. Those that change something run by themselves, and are not repeated after a
    /// crash.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }
}

impl Tool for FunctionTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn risk(&self) -> Risk {
        match self.effect {
            Effect::None | Effect::Session => Risk::Safe,
            Effect::Workspace | Effect::Delegated => Risk::Dangerous,
        }
    }

    fn prepare<'a>(
        &'a self,
        input: &'a Map<String, Value>,
        _context: &'a CallContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        let prepared = (self.read)(input).map(|start| Prepared {
            accesses: Vec::new(),
            effect: self.effect,
            recovery: if self.effect == Effect::None { Recovery::Rerun } else { Recovery::Interrupt },
            preview: format!("{} {}", self.spec.name, Value::Object(input.clone())),
            title: self.spec.name.clone(),
            plan: Box::new(start),
        });
        std::future::ready(prepared).boxed()
    }

    fn execute<'a>(&'a self, plan: Plan, context: &'a CallContext) -> BoxFuture<'a, Answer> {
        match plan.downcast::<Start>() {
            Ok(start) => start(context.clone()),
            Err(_) => {
                let message = format!("{} was given the plan of another tool: this is a bug", self.spec.name);
                std::future::ready(Err(ToolError::Failed(message))).boxed()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::testing::{call, context};
    use crate::{Registry, ToolOutput};

    #[derive(Deserialize, JsonSchema)]
    struct Greeting {
        name: String,
    }

    fn greeter() -> FunctionTool {
        FunctionTool::new("greet", "Greets.", |greeting: Greeting, context| async move {
            if greeting.name.is_empty() {
                return Err(ToolError::Failed("nobody is there".into()));
            }
            context.output.write("…");
            Ok(ToolOutput::text(format!("Hello, {}!", greeting.name)))
        })
    }

    #[tokio::test]
    async fn it_is_called_like_any_other() {
        let folder = tempfile::tempdir().unwrap();
        let context = context(folder.path(), &folder.path().join("outputs")).unwrap();
        let mut registry = Registry::new();
        registry.add(Arc::new(greeter())).unwrap();
        let good = call(&registry, "greet", &json!({"name": "Ada"}), &context).await.unwrap();
        assert_eq!((good.title.as_str(), good.output.as_str()), ("", "Hello, Ada!"));
        let failed = call(&registry, "greet", &json!({"name": ""}), &context).await;
        assert_eq!(failed, Err(ToolError::Failed("nobody is there".into())));
        let misfit = call(&registry, "greet", &json!({"nmae": "Ada"}), &context).await.unwrap_err();
        assert!(matches!(misfit, ToolError::Invalid(_)) && misfit.to_string().contains("name"), "{misfit}");
    }

    #[tokio::test]
    async fn what_changes_something_is_not_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let context = context(folder.path(), &folder.path().join("outputs")).unwrap();
        let Value::Object(input) = json!({"name": "Ada"}) else { unreachable!() };
        let prepared = greeter().prepare(&input, &context).await.unwrap();
        assert_eq!((prepared.effect, prepared.recovery), (Effect::None, Recovery::Rerun));
        let writer = greeter().effect(Effect::Workspace);
        let prepared = writer.prepare(&input, &context).await.unwrap();
        assert_eq!((prepared.effect, prepared.recovery), (Effect::Workspace, Recovery::Interrupt));
        assert_eq!(prepared.preview, r#"greet {"name":"Ada"}"#);
        assert!(writer.execute(Box::new(()), &context).await.is_err());
    }
}
