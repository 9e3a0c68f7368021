//! The events of one answer.

use serde_json::{Value, json};

use super::{OpenaiResponses, Progress, content_part, incomplete, item, item_id, response, summary_part};
use crate::usage;
use crate::wire::frame::{Frame, Mark};
use crate::wire::{About, Encode, Ending, PartKind, mark, push_json};

/// The item under way.
struct Open {
    kind: PartKind,
    id: String,
    text: String,
}

impl Open {
    /// What the events of its text are called.
    fn family(&self) -> Option<&'static str> {
        match self.kind {
            PartKind::Text => Some("response.output_text"),
            PartKind::Refusal => Some("response.refusal"),
            PartKind::Reasoning { .. } => Some("response.reasoning_summary_text"),
            PartKind::Call { .. } => Some("response.function_call_arguments"),
            PartKind::Redacted { .. } | PartKind::Block { .. } => None,
        }
    }

    /// The events that begin and end the part which holds its text, the name of that part's index, and the part. A call
    /// has no such part.
    fn part(&self, text: &str) -> Option<(&'static str, &'static str, Value)> {
        match self.kind {
            PartKind::Text | PartKind::Refusal => {
                Some(("response.content_part", "content_index", content_part(&self.kind, text)))
            }
            PartKind::Reasoning { .. } => {
                Some(("response.reasoning_summary_part", "summary_index", summary_part(text)))
            }
            PartKind::Call { .. } | PartKind::Redacted { .. } | PartKind::Block { .. } => None,
        }
    }
}

/// The encoder.
pub(super) struct Stream {
    about: About,
    /// The number of the next event.
    sequence: u64,
    /// The items that are whole.
    output: Vec<Value>,
    open: Option<Open>,
    /// What every delta of the item begins with, up to its number, and from there up to the token.
    before: Vec<u8>,
    middle: Vec<u8>,
    after: &'static [u8],
}

impl Stream {
    pub(super) fn new(about: About) -> Self {
        Self {
            about,
            sequence: 0,
            output: Vec::new(),
            open: None,
            before: Vec::new(),
            middle: Vec::new(),
            after: b"",
        }
    }

    /// Writes an event with these fields after its type and number.
    fn event(&mut self, mark: Mark, name: &str, fields: Value, frame: &mut Frame) {
        let mut data = json!({"type": name, "sequence_number": self.sequence});
        self.sequence += 1;
        if let (Value::Object(data), Value::Object(fields)) = (&mut data, fields) {
            data.extend(fields);
        }
        frame.event(mark, |out| {
            out.extend_from_slice(format!("event: {name}\ndata: {data}\n\n").as_bytes());
        });
    }

    /// The fields of an event about the item under way, with `more`.
    fn fields(&self, open: &Open, more: Value) -> Value {
        let mut fields = json!({"item_id": open.id, "output_index": self.output.len()});
        if let (Value::Object(fields), Value::Object(more)) = (&mut fields, more) {
            fields.extend(more);
        }
        fields
    }

    fn prepare_deltas(&mut self, open: &Open, family: &str) {
        let index = match &open.kind {
            PartKind::Reasoning { .. } => "\"summary_index\":0,",
            PartKind::Call { .. } => "",
            _ => "\"content_index\":0,",
        };
        self.before =
            format!("event: {family}.delta\ndata: {{\"type\":\"{family}.delta\",\"sequence_number\":")
                .into_bytes();
        let output = self.output.len();
        self.middle =
            format!(",\"item_id\":\"{}\",\"output_index\":{output},{index}\"delta\":", open.id).into_bytes();
        self.after = if open.kind == PartKind::Text { b",\"logprobs\":[]}\n\n" } else { b"}\n\n" };
    }
}

impl Encode for Stream {
    fn start(&mut self, frame: &mut Frame) {
        for name in ["response.created", "response.in_progress"] {
            let response = response(&self.about, Vec::new(), None);
            self.event(Mark::Structure, name, json!({"response": response}), frame);
        }
    }

    fn begin(&mut self, part: &PartKind, frame: &mut Frame) {
        let index = self.output.len();
        let open = Open { kind: part.clone(), id: item_id(&self.about, index, part), text: String::new() };
        let item = item(&self.about, index, part, Progress::Begun);
        let added = json!({"output_index": index, "item": item});
        self.event(Mark::Structure, "response.output_item.added", added, frame);
        if let Some((family, index, part)) = open.part("") {
            let fields = self.fields(&open, json!({index: 0, "part": part}));
            self.event(Mark::Structure, &format!("{family}.added"), fields, frame);
        }
        if let Some(family) = open.family() {
            self.prepare_deltas(&open, family);
        }
        self.open = Some(open);
    }

    fn delta(&mut self, token: &str, frame: &mut Frame) {
        let number = self.sequence;
        self.sequence += 1;
        if let Some(open) = &mut self.open {
            open.text.push_str(token);
        }
        frame.event(Mark::Token, |out| {
            out.extend_from_slice(&self.before);
            out.extend_from_slice(number.to_string().as_bytes());
            out.extend_from_slice(&self.middle);
            push_json(out, token);
            out.extend_from_slice(self.after);
        });
    }

    fn end(&mut self, frame: &mut Frame) {
        let Some(open) = self.open.take() else { return };
        if let Some(family) = open.family() {
            let more = match open.kind {
                PartKind::Text => json!({"content_index": 0, "text": open.text, "logprobs": []}),
                PartKind::Refusal => json!({"content_index": 0, "refusal": open.text}),
                PartKind::Call { .. } => json!({"arguments": open.text}),
                PartKind::Reasoning { .. } | PartKind::Redacted { .. } | PartKind::Block { .. } => {
                    json!({"summary_index": 0, "text": open.text})
                }
            };
            let fields = self.fields(&open, more);
            self.event(Mark::Structure, &format!("{family}.done"), fields, frame);
        }
        if let Some((family, index, part)) = open.part(&open.text) {
            let fields = self.fields(&open, json!({index: 0, "part": part}));
            self.event(Mark::Structure, &format!("{family}.done"), fields, frame);
        }
        let index = self.output.len();
        let item = item(&self.about, index, &open.kind, Progress::Done(&open.text));
        let done = json!({"output_index": index, "item": item});
        self.event(Mark::Structure, "response.output_item.done", done, frame);
        self.output.push(item);
    }

    fn finish(&mut self, ending: &Ending, frame: &mut Frame) {
        let name = match incomplete(&ending.finish) {
            None => "response.completed",
            Some(_) => "response.incomplete",
        };
        let response = response(&self.about, std::mem::take(&mut self.output), Some(ending));
        let says = usage::whole(&OpenaiResponses, ending).map(|(_, says)| says);
        self.event(mark(says), name, json!({"response": response}), frame);
    }

    fn error(&mut self, kind: &str, message: &str, frame: &mut Frame) {
        let code = if kind.is_empty() { "server_error" } else { kind };
        let fields = json!({"code": code, "message": message, "param": null});
        self.event(Mark::Structure, "error", fields, frame);
        let mut response = response(&self.about, std::mem::take(&mut self.output), None);
        response["status"] = json!("failed");
        response["error"] = json!({"code": code, "message": message});
        self.event(Mark::Structure, "response.failed", json!({"response": response}), frame);
    }
}
