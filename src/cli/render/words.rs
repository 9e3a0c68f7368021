//! What is told in a line: waits, totals, answers, things to do, and what a call is about.

use playhouse_protocol::question::{QuestionAnswer, Todo, TodoStatus};
use playhouse_protocol::record::{CallProposed, ConsentAnswer};
use playhouse_protocol::usage::Totals;
use playhouse_session::about::argument;
pub(super) use playhouse_session::about::first_line;

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
    text.push_str(&format!(", {} out, ", tokens.all_output()));
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
