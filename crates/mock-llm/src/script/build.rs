//! Scripts that are built in Rust.

use std::time::Duration;

use serde_json::Value;

use super::{Call, Finish, Item, Model, Script, Step, Turn, UsageOverride, is_rate};
use crate::fault::Fault;
use crate::framing::Framing;
use crate::usage::Reports;

impl Script {
    /// A script without models.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a model, or replaces the one of that name.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>, model: Model) -> Self {
        self.models.insert(name.into(), model);
        self
    }

    /// Simulates a prompt cache.
    #[must_use]
    pub fn prompt_cache(mut self) -> Self {
        self.prompt_cache = true;
        self
    }
}

impl Model {
    /// A model that says only its closing text.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a step to the last turn; the first one begins a turn.
    #[must_use]
    pub fn step(mut self, step: Step) -> Self {
        if self.turns.is_empty() {
            self.turns.push(Turn::default());
        }
        if let Some(turn) = self.turns.last_mut() {
            turn.steps.push(step);
        }
        self
    }

    /// Begins the turn of the next prompt.
    #[must_use]
    pub fn next_turn(mut self) -> Self {
        self.turns.push(Turn::default());
        self
    }

    /// Begins the turns again after the last one.
    #[must_use]
    pub fn cycle(mut self) -> Self {
        self.cycle = true;
        self
    }

    /// Sets what is said when the script holds nothing for a request.
    #[must_use]
    pub fn closing(mut self, text: impl Into<String>) -> Self {
        self.closing = Some(text.into());
        self
    }

    /// Sets the tokens a second of steps that set none. A rate that is not above 0 is none.
    #[must_use]
    pub fn rate(mut self, tokens_per_second: f64) -> Self {
        self.rate = is_rate(tokens_per_second).then_some(tokens_per_second);
        self
    }
}

/// A step that says a text.
pub fn text(text: impl Into<String>) -> Step {
    Step::default().text(text)
}

/// A step that reasons.
pub fn reasoning(text: impl Into<String>) -> Step {
    Step::default().reasoning(text)
}

/// A step that reasons, with the provider's proof of it.
pub fn signed_reasoning(text: impl Into<String>, signature: impl Into<String>) -> Step {
    Step::default().signed_reasoning(text, signature)
}

/// A step that declines in these words.
pub fn refusal(text: impl Into<String>) -> Step {
    Step::default().item(Item::Refusal(text.into()))
}

/// A step that calls a tool.
pub fn call(name: impl Into<String>, input: Value) -> Step {
    Step::default().call(name, input)
}

/// A step that calls several tools.
pub fn calls<N: Into<String>>(calls: impl IntoIterator<Item = (N, Value)>) -> Step {
    calls.into_iter().fold(Step::default(), |step, (name, input)| step.call(name, input))
}

/// A step that calls a tool with arguments that are sent as they are.
pub fn malformed_call(name: impl Into<String>, arguments: impl Into<String>) -> Step {
    Step::default().item(Item::Call(Call {
        name: name.into(),
        raw: Some(arguments.into()),
        ..Call::default()
    }))
}

/// A step that says `count` tokens of made-up prose.
pub fn tokens(count: u64) -> Step {
    Step::default().tokens(count)
}

/// A step that says a text several times.
pub fn repeat(text: impl Into<String>, times: u64) -> Step {
    Step::default().item(Item::Repeat { text: text.into(), times })
}

impl Step {
    /// A step that says nothing.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Adds a part.
    #[must_use]
    pub fn item(mut self, item: Item) -> Self {
        self.items.push(item);
        self
    }

    /// Adds a text.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.item(Item::Text(text.into()))
    }

    /// Adds reasoning.
    #[must_use]
    pub fn reasoning(self, text: impl Into<String>) -> Self {
        self.item(Item::Reasoning(text.into()))
    }

    /// Adds reasoning with this signature.
    #[must_use]
    pub fn signed_reasoning(self, text: impl Into<String>, signature: impl Into<String>) -> Self {
        self.item(Item::SignedReasoning { text: text.into(), signature: signature.into() })
    }

    /// Adds reasoning that nobody may read.
    #[must_use]
    pub fn redacted_reasoning(self, data: impl Into<String>) -> Self {
        self.item(Item::RedactedReasoning(data.into()))
    }

    /// Adds a call with this id.
    #[must_use]
    pub fn call_with_id(self, id: impl Into<String>, name: impl Into<String>, input: Value) -> Self {
        self.item(Item::Call(Call { name: name.into(), input, id: Some(id.into()), ..Call::default() }))
    }

    /// Adds a call.
    #[must_use]
    pub fn call(self, name: impl Into<String>, input: Value) -> Self {
        self.item(Item::Call(Call { name: name.into(), input, ..Call::default() }))
    }

    /// Adds a block or an item of the wire.
    #[must_use]
    pub fn block(self, block: Value) -> Self {
        self.item(Item::Block(block))
    }

    /// Adds `count` tokens of made-up prose.
    #[must_use]
    pub fn tokens(self, count: u64) -> Self {
        self.item(Item::Tokens(count))
    }

    /// Adds `count` tokens that tell the time: see [`Item::Times`].
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        self.item(Item::Times(count))
    }

    /// Sets why the answer ends.
    #[must_use]
    pub fn finish(mut self, finish: Finish) -> Self {
        self.finish = Some(finish);
        self
    }

    /// Sets the time between the request and the head of the answer, counted in whole milliseconds.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// Sets the tokens a second. A rate that is not above 0 is none.
    #[must_use]
    pub fn rate(mut self, tokens_per_second: f64) -> Self {
        self.rate = is_rate(tokens_per_second).then_some(tokens_per_second);
        self
    }

    /// Sets counts to report.
    #[must_use]
    pub fn usage(mut self, usage: UsageOverride) -> Self {
        self.usage = Some(usage);
        self
    }

    /// Sets how usage is reported.
    #[must_use]
    pub fn reports(mut self, reports: Reports) -> Self {
        self.reports = Some(Box::new(reports));
        self
    }

    /// Sets how the answer goes wrong.
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// Sets how the bytes of the answer are carried.
    #[must_use]
    pub fn framing(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }

    /// Sets how many times the same request meets the fault before it is answered well (see the field of that name).
    #[must_use]
    pub fn fail_first(mut self, times: u32) -> Self {
        self.fail_first = Some(times);
        self
    }

    /// Whether it holds calls.
    pub(crate) fn has_calls(&self) -> bool {
        self.items.iter().any(|item| matches!(item, Item::Call(_)))
    }
}
