//! The chunks of one answer. Each repeats the counts so far, and lines end as this provider ends them.

use std::io::Write;

use playhouse_protocol::Tokens;
use serde_json::{Value, json};

use super::{Gemini, call_part, chunk, error_value, last_candidate, response_id, signature_of, status_of};
use crate::usage;
use crate::wire::frame::{Frame, Mark};
use crate::wire::{About, Encode, Ending, PartKind, Wire, mark, push_json};

/// The encoder.
pub(super) struct Stream {
    about: About,
    part: PartKind,
    /// The arguments of the call under way.
    arguments: String,
    /// A signature that the next part carries which is no thought.
    signature: Option<String>,
    /// Arguments that the format cannot carry.
    malformed: Option<String>,
    /// The input as it is reported, and what was said so far.
    tokens: Tokens,
    /// Whether a part was sent.
    is_begun: bool,
    /// What follows the counts in every chunk.
    tail: Vec<u8>,
}

impl Stream {
    pub(super) fn new(about: About) -> Self {
        let (model, id) = (json!(about.model), json!(response_id(&about)));
        Self {
            part: PartKind::Text,
            arguments: String::new(),
            signature: None,
            malformed: None,
            tokens: Gemini.reported(about.input),
            is_begun: false,
            tail: format!(",\"modelVersion\":{model},\"responseId\":{id}}}\r\n\r\n").into_bytes(),
            about,
        }
    }

    /// That of a chunk with a token.
    fn token_mark(&self) -> Mark {
        if self.about.is_early { Mark::TokenAndUsage(self.tokens) } else { Mark::Token }
    }

    fn write(frame: &mut Frame, mark: Mark, data: &Value) {
        frame.event(mark, |out| out.extend_from_slice(format!("data: {data}\r\n\r\n").as_bytes()));
    }
}

/// Appends the counts; as [`Wire::usage`], without a detour.
fn push_usage(out: &mut Vec<u8>, tokens: Tokens) {
    let input = tokens.all_input();
    let mut count = |name: &str, count: u64| {
        // Writing to a vector does not fail.
        let _ = write!(out, "\"{name}\":{count},");
    };
    count("promptTokenCount", input);
    let classes = [
        ("cachedContentTokenCount", tokens.cache_read),
        ("candidatesTokenCount", tokens.output),
        ("thoughtsTokenCount", tokens.reasoning),
    ];
    for (name, tokens) in classes.into_iter().filter(|(_, tokens)| *tokens > 0) {
        count(name, tokens);
    }
    count("totalTokenCount", tokens.total());
    let _ = write!(out, "\"promptTokensDetails\":[{{\"modality\":\"TEXT\",\"tokenCount\":{input}}}]");
}

impl Encode for Stream {
    fn start(&mut self, _frame: &mut Frame) {}

    fn begin(&mut self, part: &PartKind, _frame: &mut Frame) {
        self.part = part.clone();
        self.arguments.clear();
    }

    fn delta(&mut self, token: &str, frame: &mut Frame) {
        let is_thought = match self.part {
            PartKind::Block { .. } => return,
            PartKind::Call { .. } => {
                self.tokens.output += 1;
                self.arguments.push_str(token);
                return;
            }
            PartKind::Reasoning { .. } | PartKind::Redacted { .. } => {
                self.tokens.reasoning += 1;
                true
            }
            PartKind::Text | PartKind::Refusal => {
                self.tokens.output += 1;
                false
            }
        };
        self.is_begun = true;
        let is_early = self.about.is_early;
        frame.event(self.token_mark(), |out| {
            out.extend_from_slice(br#"data: {"candidates":[{"content":{"parts":[{"text":"#);
            push_json(out, token);
            out.extend_from_slice(if is_thought { b",\"thought\":true}" } else { b"}" });
            out.extend_from_slice(br#"],"role":"model"},"index":0}]"#);
            if is_early {
                out.extend_from_slice(br#","usageMetadata":{"#);
                push_usage(out, self.tokens);
                out.push(b'}');
            }
            out.extend_from_slice(&self.tail);
        });
    }

    fn end(&mut self, frame: &mut Frame) {
        match &self.part {
            PartKind::Text | PartKind::Refusal | PartKind::Block { .. } => {}
            kind @ (PartKind::Reasoning { .. } | PartKind::Redacted { .. }) => {
                self.signature = Some(signature_of(kind).to_owned());
            }
            PartKind::Call { id, name } => {
                match call_part(id, name, &self.arguments, self.signature.take()) {
                    Some(part) => {
                        self.is_begun = true;
                        let candidate = json!({"content": {"parts": [part], "role": "model"}, "index": 0});
                        let usage = Gemini.usage(self.tokens, self.tokens.total());
                        let chunk = chunk(&self.about, candidate, self.about.is_early.then_some(usage));
                        Self::write(frame, self.token_mark(), &chunk);
                    }
                    None => self.malformed = Some(self.arguments.clone()),
                }
            }
        }
    }

    fn finish(&mut self, ending: &Ending, frame: &mut Frame) {
        let parts = match self.signature.take() {
            Some(signature) => vec![json!({"text": "", "thoughtSignature": signature})],
            None if self.is_begun => vec![json!({"text": ""})],
            None => vec![],
        };
        let mut reports = usage::reports(&Gemini, ending);
        let last = reports.pop();
        for (usage, says) in reports {
            let candidate = json!({"content": {"parts": [{"text": ""}], "role": "model"}, "index": 0});
            Self::write(frame, mark(says), &chunk(&self.about, candidate, Some(usage)));
        }
        let candidate = last_candidate(parts, &ending.finish, self.malformed.as_deref());
        let (usage, says) = last.map_or((None, None), |(usage, says)| (Some(usage), says));
        Self::write(frame, mark(says), &chunk(&self.about, candidate, usage));
    }

    fn error(&mut self, kind: &str, message: &str, frame: &mut Frame) {
        let kind = if kind.is_empty() { "UNAVAILABLE" } else { kind };
        Self::write(frame, Mark::Structure, &error_value(status_of(kind), kind, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_way_writes_the_same_counts() {
        for tokens in [
            Tokens { input: 3, ..Tokens::default() },
            Tokens { input: 3, cache_read: 4, output: 5, reasoning: 6, ..Tokens::default() },
        ] {
            let mut out = b"{".to_vec();
            push_usage(&mut out, tokens);
            out.push(b'}');
            assert_eq!(String::from_utf8(out).unwrap(), Gemini.usage(tokens, tokens.total()).to_string());
        }
    }
}
