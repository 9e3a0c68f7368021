//! `todowrite` and `todoread`: the session's list of things to do.
//!
//! Neither keeps anything: the list is written to the session's log together with the result of the call.

use std::borrow::Cow;

use playhouse_protocol::question::{Todo, TodoPriority, TodoStatus};
use playhouse_protocol::record::{Effect, Recovery};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::tool::{CallContext, Risk, ToolError, ToolOutput};
use crate::{Ready, TypedTool};

/// The most entries of a list.
pub const MOST_TODOS: usize = 100;
/// The longest entry, in characters.
pub const LONGEST_TODO: usize = 1_000;

/// The tool that writes the list.
#[derive(Clone, Copy, Debug, Default)]
pub struct TodoWrite;

/// The arguments of `todowrite`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Written {
    todos: Vec<WrittenTodo>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WrittenTodo {
    content: String,
    status: Status,
    #[serde(default)]
    priority: Option<Priority>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Status {
    Pending,
    InProgress,
    Completed,
    Cancelled,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Priority {
    High,
    Medium,
    Low,
}

impl WrittenTodo {
    fn read(self) -> Todo {
        let status = match self.status {
            Status::Pending => TodoStatus::Pending,
            Status::InProgress => TodoStatus::InProgress,
            Status::Completed => TodoStatus::Completed,
            Status::Cancelled => TodoStatus::Cancelled,
        };
        let priority = match self.priority {
            Some(Priority::High) => TodoPriority::High,
            Some(Priority::Medium) | None => TodoPriority::Medium,
            Some(Priority::Low) => TodoPriority::Low,
        };
        Todo { content: self.content.trim().to_owned(), status, priority }
    }
}

impl TypedTool for TodoWrite {
    const NAME: &'static str = "todowrite";
    const DESCRIPTION: &'static str = include_str!("../../../prompts/tools/todowrite.md");
    const RISK: Risk = Risk::Safe;
    const IS_BRIEF: bool = true;
    type Arguments = Written;
    type Task = Vec<Todo>;

    /// Entries have their place for a name here, and an `id` in other tools of this kind.
    fn forgiven(input: &Map<String, Value>) -> Cow<'_, Map<String, Value>> {
        let mut input = input.clone();
        let todos = input.get_mut("todos").and_then(Value::as_array_mut);
        todos.into_iter().flatten().filter_map(Value::as_object_mut).for_each(|todo| drop(todo.remove("id")));
        Cow::Owned(input)
    }

    async fn prepare(&self, arguments: Written, _: &CallContext) -> Result<Ready<Vec<Todo>>, ToolError> {
        let todos: Vec<Todo> = arguments.todos.into_iter().map(WrittenTodo::read).collect();
        check(&todos)?;
        Ok(Ready {
            accesses: Vec::new(),
            effect: Effect::Session,
            // The list stands in the log with the result, or not at all: it is replaced as a whole.
            recovery: Recovery::Rerun,
            preview: shown(&todos),
            title: title(&todos),
            task: todos,
        })
    }

    async fn execute(&self, todos: Vec<Todo>, _: &CallContext) -> Result<ToolOutput, ToolError> {
        let mut output = output(&todos);
        let busy = todos.iter().filter(|todo| todo.status == TodoStatus::InProgress).count();
        if busy > 1 {
            output.output.push_str(&format!(
                "\n\n{busy} entries are in progress: have only one, so that people see what you are at"
            ));
        }
        output.todos = Some(todos);
        Ok(output)
    }
}

fn check(todos: &[Todo]) -> Result<(), ToolError> {
    if todos.len() > MOST_TODOS {
        return Err(ToolError::Invalid(format!(
            "the list has {} entries, and at most {MOST_TODOS}: join small ones, and leave out what is done",
            todos.len()
        )));
    }
    for (index, todo) in todos.iter().enumerate() {
        if todo.content.is_empty() {
            return Err(ToolError::Invalid(format!(
                "todos[{index}].content is empty: say what is to be done"
            )));
        }
        let length = todo.content.chars().count();
        if length > LONGEST_TODO {
            return Err(ToolError::Invalid(format!(
                "todos[{index}].content has {length} characters, and at most {LONGEST_TODO}: say it in one sentence"
            )));
        }
    }
    Ok(())
}

/// The tool that reads the list.
#[derive(Clone, Copy, Debug, Default)]
pub struct TodoRead;

/// The arguments of `todoread`: none.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

impl TypedTool for TodoRead {
    const NAME: &'static str = "todoread";
    const DESCRIPTION: &'static str = include_str!("../../../prompts/tools/todoread.md");
    const RISK: Risk = Risk::Safe;
    const IS_BRIEF: bool = true;
    type Arguments = Nothing;
    type Task = ();

    async fn prepare(&self, _: Nothing, _: &CallContext) -> Result<Ready<()>, ToolError> {
        Ok(Ready::looking(Vec::new(), "", ()))
    }

    async fn execute(&self, (): (), context: &CallContext) -> Result<ToolOutput, ToolError> {
        Ok(output(&context.host.todos()))
    }
}

fn output(todos: &[Todo]) -> ToolOutput {
    let mut metadata = Map::new();
    metadata.insert("todos".to_owned(), json!(todos));
    ToolOutput { title: title(todos), output: shown(todos), metadata, ..ToolOutput::default() }
}

/// How many are left, in one line.
fn title(todos: &[Todo]) -> String {
    let is_left = |todo: &&Todo| matches!(todo.status, TodoStatus::Pending | TodoStatus::InProgress);
    match todos.iter().filter(is_left).count() {
        1 => "1 thing to do".to_owned(),
        left => format!("{left} things to do"),
    }
}

/// The list as a model reads it.
fn shown(todos: &[Todo]) -> String {
    if todos.is_empty() {
        return "the list is empty".to_owned();
    }
    let line = |todo: &Todo| {
        let mark = match todo.status {
            TodoStatus::Pending => "[ ]",
            TodoStatus::InProgress => "[>]",
            TodoStatus::Completed => "[x]",
            TodoStatus::Cancelled => "[-]",
        };
        let priority = match todo.priority {
            TodoPriority::High => " (high)",
            TodoPriority::Medium => "",
            TodoPriority::Low => " (low)",
        };
        format!("{mark} {}{priority}", todo.content.replace('\n', " "))
    };
    todos.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testing::{self, Person};
    use crate::{Registry, Typed};

    async fn call(name: &str, input: Value, todos: &[Todo]) -> Result<ToolOutput, ToolError> {
        let folder = tempfile::tempdir().unwrap();
        let mut context = testing::context(folder.path(), &folder.path().join("outputs")).unwrap();
        context.host = Arc::new(Person { todos: todos.into(), ..Person::default() });
        let mut registry = Registry::new();
        registry.add(Arc::new(Typed::new(TodoWrite))).unwrap();
        registry.add(Arc::new(Typed::new(TodoRead))).unwrap();
        testing::call(&registry, name, &input, &context).await
    }

    #[tokio::test]
    async fn a_list_is_written_shown_and_read() {
        let input = json!({"todos": [
            {"content": "look at it", "status": "completed", "priority": "high"},
            {"content": "mend\nit", "status": "in_progress", "priority": "medium"},
            {"content": "tell them", "status": "pending", "priority": "low"},
            {"content": "rest", "status": "cancelled", "priority": null},
        ]});
        let written = call("todowrite", input.clone(), &[]).await.unwrap();
        let shown = "[x] look at it (high)\n[>] mend it\n[ ] tell them (low)\n[-] rest";
        assert_eq!((written.title.as_str(), written.output.as_str()), ("2 things to do", shown));
        let todos = written.todos.unwrap();
        assert_eq!(written.metadata["todos"][1]["status"], "in_progress");
        assert_eq!(written.metadata["todos"][3]["priority"], "medium");

        let read = call("todoread", json!({}), &todos).await.unwrap();
        assert_eq!((read.output.as_str(), &read.todos), (shown, &None));
        assert_eq!(read.metadata, written.metadata);
    }

    #[tokio::test]
    async fn an_id_that_other_tools_have_is_taken_and_left_out() {
        let todo = json!({"id": "1", "content": "x", "status": "pending"});
        let written = call("todowrite", json!({"todos": [todo]}), &[]).await.unwrap();
        assert_eq!(
            written.metadata["todos"],
            json!([{"content": "x", "status": "pending", "priority": "medium"}])
        );
        let error = call("todowrite", json!({"id": "1", "todos": []}), &[]).await.unwrap_err().to_string();
        assert!(error.contains("there is no `id`"), "{error}");
    }

    #[tokio::test]
    async fn an_empty_list_is_one_too() {
        let written = call("todowrite", json!({"todos": []}), &[]).await.unwrap();
        assert_eq!((written.output.as_str(), written.todos), ("the list is empty", Some(Vec::new())));
        assert_eq!(call("todoread", json!({}), &[]).await.unwrap().output, "the list is empty");
    }

    #[tokio::test]
    async fn several_in_progress_are_taken_and_mentioned() {
        let one = json!({"content": "x", "status": "in_progress", "priority": "low"});
        let written = call("todowrite", json!({"todos": [one, one]}), &[]).await.unwrap();
        assert!(
            written
                .output
                .ends_with("2 entries are in progress: have only one, so that people see what you are at")
        );
        assert_eq!(written.todos.unwrap().len(), 2);
    }

    #[tokio::test]
    async fn what_does_not_fit_is_refused_with_what_would() {
        let todo = |content: String| json!({"content": content, "status": "pending", "priority": "high"});
        for (input, says) in [
            (json!({}), "`todos` is missing"),
            (json!({"todos": "all"}), "`todos` must be a list"),
            (json!({"todos": [{"content": "x", "status": "done"}]}), "`todos[0].status` must be one of"),
            (json!({"todos": [{"status": "pending"}]}), "`todos[0].content` is missing"),
            (json!({"todos": [todo("x".into()), todo("  ".into())]}), "todos[1].content is empty"),
            (json!({"todos": [todo("x".repeat(1_001))]}), "1001 characters, and at most 1000"),
            (json!({"todos": vec![todo("x".into()); 101]}), "101 entries, and at most 100"),
        ] {
            let error = call("todowrite", input, &[]).await.unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let error = call("todoread", json!({"all": true}), &[]).await.unwrap_err().to_string();
        assert!(error.contains("there is no `all`"), "{error}");
    }
}
