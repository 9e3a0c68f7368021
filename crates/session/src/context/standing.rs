//! What holds whatever a summary says: open entries of the list of things to do, commands in the background, skills that
//! were loaded, and files that were changed. Only the messages that are left out named it.

use std::collections::{BTreeMap, BTreeSet};

use playhouse_protocol::message::{CallInput, CallOutcome, CallPart, CallState, Message, Part};
use playhouse_protocol::question::{Todo, TodoStatus};
use serde_json::{Map, Value};

use super::texts;
use crate::changes;
use crate::fold::Session;

/// The most bytes of an entry.
const MOST_ENTRY: u64 = 300;
/// What is left free for the line that counts entries without room.
const REST: usize = 40;

/// What stands, in at most so many bytes; `None` where there is nothing. `before`: the messages that are left out.
pub(super) fn standing(session: &Session, before: &[Message], most: u64) -> Option<String> {
    let most = usize::try_from(most).unwrap_or(usize::MAX).checked_sub(texts::standing("").len())?;
    let found = Found::of(before);
    let todos = session.todos.iter().filter_map(entry).collect();
    let commands =
        found.commands.into_iter().map(|(id, command)| format!("- {id}: {}", line(command))).collect();
    let skills = found.skills.iter().map(|name| format!("- {}", line(name))).collect();
    let files = found.files.iter().map(|path| format!("- {}", line(path))).collect();
    let sections: [(&str, Vec<String>); 4] = [
        ("Open entries of the list of things to do:", todos),
        (
            "Commands that were left in the background (the tool process tells whether they still run):",
            commands,
        ),
        ("Skills that were loaded (load one again to read its instructions):", skills),
        ("Files that were changed:", files),
    ];
    let mut text = String::new();
    for (title, entries) in sections.into_iter().filter(|(_, entries)| !entries.is_empty()) {
        let section = section(title, &entries, most.saturating_sub(text.len()));
        if let Some(section) = section {
            text.extend([if text.is_empty() { "" } else { "\n\n" }, &section]);
        }
    }
    (!text.is_empty()).then(|| texts::standing(&text))
}

/// A title and as many entries as have room; `None` where not even one has.
fn section(title: &str, entries: &[String], room: usize) -> Option<String> {
    let mut section = title.to_owned();
    let mut shown = 0;
    for entry in entries {
        if section.len() + 1 + entry.len() + REST > room {
            break;
        }
        section.extend(["\n", entry]);
        shown += 1;
    }
    match entries.len() - shown {
        0 => Some(section),
        _ if shown == 0 => None,
        rest => Some(format!("{section}\n- and {rest} more")),
    }
}

fn entry(todo: &Todo) -> Option<String> {
    let state = match todo.status {
        TodoStatus::InProgress => "under way",
        TodoStatus::Pending => "not begun",
        TodoStatus::Completed | TodoStatus::Cancelled => return None,
    };
    Some(format!("- {} ({state})", line(&todo.content)))
}

/// The beginning of a text, as one line.
fn line(text: &str) -> String {
    texts::cut(&text.split_whitespace().collect::<Vec<_>>().join(" "), MOST_ENTRY).to_owned()
}

/// What calls did.
#[derive(Default)]
struct Found<'a> {
    /// By id: the commands that ran when they were seen last.
    commands: BTreeMap<&'a str, &'a str>,
    skills: BTreeSet<&'a str>,
    files: BTreeSet<&'a str>,
}

impl<'a> Found<'a> {
    fn of(messages: &'a [Message]) -> Self {
        let mut found = Self::default();
        for message in messages {
            let Message::Assistant(message) = message else { continue };
            for part in &message.parts {
                if let Part::Call(call) = part {
                    found.add(call);
                }
            }
        }
        found
    }

    fn add(&mut self, call: &'a CallPart) {
        let CallState::Settled(result) = &call.state else { return };
        if result.outcome != CallOutcome::Done {
            return;
        }
        let input = match &call.input {
            CallInput::Object(input) => Some(input),
            CallInput::Malformed(_) => None,
        };
        let asked = |name: &str| input.and_then(|input| input.get(name)).and_then(Value::as_str);
        if call.tool == "skill" {
            self.skills.extend(asked("name"));
        }
        self.files.extend(changes::paths(result));
        // A command that was begun, or looked at; or all of them.
        let listed = result.metadata.get("processes").and_then(Value::as_array);
        let all = listed.into_iter().flatten().filter_map(Value::as_object).chain([&result.metadata]);
        for facts in all {
            self.command(facts, asked("command"));
        }
    }

    fn command(&mut self, facts: &'a Map<String, Value>, begun: Option<&'a str>) {
        let Some(id) = facts.get("processId").and_then(Value::as_str) else { return };
        let command = facts.get("command").and_then(Value::as_str).or(begun);
        match facts.get("running").and_then(Value::as_bool) {
            Some(true) => {
                if let Some(command) = command {
                    self.commands.insert(id, command);
                }
            }
            Some(false) => {
                self.commands.remove(id);
            }
            None => {}
        }
    }
}
