//! What is told in a line: waits, totals, answers, things to do, and what a call is about.

use playhouse_protocol::message::CallInput;
use playhouse_protocol::question::{QuestionAnswer, Todo, TodoStatus};
use playhouse_protocol::record::{CallProposed, ConsentAnswer};
use playhouse_protocol::usage::Totals;

/// Things to do that are shown at once.
const TODOS_SHOWN: usize = 20;

/// A wait for people.
pub(super) fn seconds(millis: u64) -> String {
    match millis {
        0..10_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        _ => format!("{} s", millis.div_ceil(1_000)),
    }
}

/// Tokens and cost in one line.
pub(in crate::cli) fn usage(totals: &Totals) -> String {
    let tokens = &totals.tokens;
    let mut text = format!("{} tokens in", tokens.all_input());
    if tokens.cache_read > 0 {
        text.push_str(&format!(" ({} from cache)", tokens.cache_read));
    }
    text.push_str(&format!(", {} out, ", tokens.output + tokens.reasoning));
    match totals.known_cost() {
        Some(cost) => text.push_str(&cost.to_string()),
        None => text.push_str("cost unknown"),
    }
    if totals.estimated > 0 {
        text.push_str(" (partly estimated)");
    }
    text
}

/// How a request with questions ended, in one line.
pub(super) fn told(answer: &QuestionAnswer) -> String {
    let nothing = || "not answered".to_owned();
    match answer {
        QuestionAnswer::Answered { answers } => {
            let each =
                answers.iter().map(|chosen| if chosen.is_empty() { nothing() } else { chosen.join(", ") });
            each.collect::<Vec<_>>().join("; ").replace('\n', " ")
        }
        QuestionAnswer::TimedOut => "not answered in time".to_owned(),
        QuestionAnswer::Rejected | QuestionAnswer::Withdrawn => nothing(),
    }
}

/// A list of things to do, one a line.
pub(super) fn listed(todos: &[Todo]) -> String {
    let line = |todo: &Todo| {
        let mark = match todo.status {
            TodoStatus::Pending => "[ ]",
            TodoStatus::InProgress => "[>]",
            TodoStatus::Completed => "[x]",
            TodoStatus::Cancelled => "[-]",
        };
        format!("  {mark} {}", first_line(&todo.content))
    };
    let mut lines: Vec<String> = todos.iter().take(TODOS_SHOWN).map(line).collect();
    match todos.len().saturating_sub(TODOS_SHOWN) {
        0 => {}
        more => lines.push(format!("  and {more} more")),
    }
    if lines.is_empty() { "  (nothing to do)".to_owned() } else { lines.join("\n") }
}

/// What to call a call, in one short line.
pub(super) fn label(proposed: &CallProposed) -> String {
    format!("{} {}", proposed.tool, argument(&proposed.input)).trim_end().to_owned()
}

/// What a call is said to do, where it says so, as in the title of its result.
pub(super) fn title(input: &CallInput) -> String {
    let described = match input {
        CallInput::Object(object) => object.get("description").and_then(serde_json::Value::as_str),
        CallInput::Malformed(_) => None,
    };
    match described.map(str::trim).filter(|text| !text.is_empty()) {
        Some(text) => first_line(text),
        None => argument(input),
    }
}

/// The argument that tells most about a call, in one short line.
fn argument(input: &CallInput) -> String {
    let CallInput::Object(object) = input else { return String::new() };
    let known = ["command", "filePath", "pattern", "path"].iter().find_map(|key| object.get(*key));
    let value = known.or_else(|| object.values().find(|value| value.is_string()));
    let text = value.and_then(serde_json::Value::as_str).unwrap_or_default();
    first_line(text)
}

pub(super) fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(100).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// How a request for consent ended, in one line.
pub(in crate::cli) fn settled(answer: &ConsentAnswer) -> String {
    match answer {
        ConsentAnswer::Once => "allowed once".to_owned(),
        ConsentAnswer::Always => "allowed for always".to_owned(),
        ConsentAnswer::Decline { message: None } => "declined".to_owned(),
        ConsentAnswer::Decline { message: Some(message) } => format!("declined: {}", first_line(message)),
        ConsentAnswer::Unattended => {
            "declined: nobody is there to be asked; a rule (`[permissions]` in the configuration) or --yes allows it"
                .to_owned()
        }
        ConsentAnswer::Covered { .. } | ConsentAnswer::TimedOut | ConsentAnswer::Withdrawn => {
            format!("asked no more: {answer}")
        }
    }
}
