//! A history as one text, for a model that writes a summary or a title of it.

use playhouse_protocol::MessageId;
use playhouse_protocol::message::{CallInput, CallState, FinishReason, Message, Part};

use super::{Shown, texts};
use crate::fold::Session;

/// How much of an output is quoted: its beginning, and its end.
const OUTPUT_BEGIN: u64 = 1_200;
const OUTPUT_END: u64 = 600;
/// How much of a call's arguments is quoted.
const INPUT: u64 = 800;
/// The least that is quoted of a conversation, however small the room is.
const LEAST: u64 = 4_000;

/// What is read of the messages before `from`, in at most so many bytes: where it is longer, the middle is left out.
pub(crate) fn digest(session: &Session, from: usize, most: u64) -> String {
    let mut text = String::new();
    let begins = session.context.begins_at();
    if let Some(compacted) = &session.context.compacted {
        let kept = [compacted.first, compacted.prompt].into_iter().flatten();
        let mut kept: Vec<usize> = kept.filter(|place| *place < begins).collect();
        kept.sort_unstable();
        kept.iter()
            .filter_map(|place| session.messages.get(*place))
            .for_each(|message| write(session, message, &mut text));
        section("What stands for the messages before", &compacted.text, &mut text);
    }
    let most = most.max(LEAST);
    // What is left out in the end is not written.
    let enough = |bytes: usize, most: u64| bytes as u64 >= most;
    let messages = session.messages.get(begins..from).unwrap_or_default();
    let mut rest = messages.iter();
    while !enough(text.len(), most / 4)
        && let Some(message) = rest.next()
    {
        write(session, message, &mut text);
    }
    let (mut pieces, mut bytes) = (Vec::new(), 0);
    while !enough(bytes, most)
        && let Some(message) = rest.next_back()
    {
        let mut piece = String::new();
        write(session, message, &mut piece);
        bytes += piece.len();
        pieces.push(piece);
    }
    if rest.len() > 0 {
        section("Left out", &format!("{} messages stood here", rest.len()), &mut text);
    }
    text.extend(pieces.into_iter().rev());
    texts::conversation(&without_middle(&text, most))
}

/// What was said and done in the turn that ended last, in at most so many bytes: where it is longer, the middle is left out.
pub(crate) fn digest_of_turn(session: &Session, turn: MessageId, most: u64) -> String {
    let begin = session.messages.iter().rposition(|message| message.id() == turn).unwrap_or_default();
    let mut text = String::new();
    let messages = session.messages.get(begin..).unwrap_or_default();
    messages.iter().for_each(|message| write(session, message, &mut text));
    texts::turn(&without_middle(&text, most))
}

/// The text of a prompt, its first bytes.
pub(crate) fn beginning(parts: &[Part], most: u64) -> String {
    let text = parts.iter().filter_map(|part| match part {
        Part::Text { .. } => part.said(),
        Part::File { file, .. } => Some(file.filename.as_str()),
        _ => None,
    });
    let text = text.collect::<Vec<_>>().join("\n");
    texts::cut(text.trim(), most).to_owned()
}

/// What somebody said. Its lines are quoted, so that no file or page that stands in one speaks as somebody else.
fn section(who: &str, text: &str, out: &mut String) {
    if !text.trim().is_empty() {
        out.push_str("# ");
        out.push_str(who);
        out.push('\n');
        for line in text.trim().split(['\n', '\r', '\u{2028}', '\u{2029}']) {
            out.push_str("> ");
            out.push_str(line);
            out.push('\n');
        }
        out.push('\n');
    }
}

fn write(session: &Session, message: &Message, out: &mut String) {
    match message {
        Message::User(message) if message.withdrawn || message.kind.is_compaction() => {}
        Message::User(message) => {
            for part in &message.parts {
                match part {
                    Part::Text { .. } => section("The user", part.told().unwrap_or_default(), out),
                    Part::File { file, .. } => section("The user attached", &file.filename, out),
                    Part::Reasoning { .. } | Part::Call(_) => {}
                }
            }
        }
        Message::Assistant(message) if matches!(message.finish, None | Some(FinishReason::Failed)) => {}
        Message::Assistant(message) => {
            for part in &message.parts {
                match part {
                    Part::Text { text, .. } => section("The agent", text, out),
                    Part::Call(call) => {
                        let input = match &call.input {
                            CallInput::Object(_) => call.input.to_value().to_string(),
                            CallInput::Malformed(text) => text.clone(),
                        };
                        let input = texts::cut(&input, INPUT);
                        let tool: String =
                            call.tool.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
                        section(&format!("The agent called `{tool}`"), input, out);
                        let CallState::Settled(result) = &call.state else { continue };
                        let output = match session.context.shown(call.id) {
                            Shown::Line => "(the output was cleared)".to_owned(),
                            Shown::Whole | Shown::Beginning(_) => {
                                ends(&result.output, OUTPUT_BEGIN, OUTPUT_END)
                            }
                        };
                        section("Result", &output, out);
                    }
                    Part::Reasoning { .. } | Part::File { .. } => {}
                }
            }
        }
    }
}

/// The beginning and the end of a text that is longer than both.
fn ends(text: &str, begin: u64, end: u64) -> String {
    if text.len() as u64 <= begin + end {
        return text.to_owned();
    }
    let (first, last) = (texts::cut(text, begin), texts::cut_front(text, end));
    let left_out = text.len() - first.len() - last.len();
    format!("{first}\n[… {left_out} bytes are left out here …]\n{last}")
}

/// A quarter of the room is for the beginning, where the goal stands, and the rest for the end.
fn without_middle(text: &str, most: u64) -> String {
    if text.len() as u64 <= most {
        return text.to_owned();
    }
    let begin = most / 4;
    let (first, last) = (texts::cut(text, begin), texts::cut_front(text, most - begin));
    let left_out = text.len() - first.len() - last.len();
    // What the end begins with may be the rest of a quoted line.
    let quote = if text[..text.len() - last.len()].ends_with('\n') { "" } else { "> " };
    format!("{first}\n[… {left_out} bytes are left out here …]\n{quote}{last}")
}
