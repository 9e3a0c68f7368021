//! From a script and a request to what is said in answer.

use std::borrow::Cow;
use std::time::Duration;

use playhouse_protocol::Tokens;
use serde_json::Value;

use crate::builtin::Builtin;
use crate::cache::Cached;
use crate::fault::{Defect, Fault};
use crate::framing::Framing;
use crate::script::{
    Call, DEFAULT_CLOSING_TEXT, Finish, Item, Model, Script, Step, UsageOverride, is_rate, text,
};
use crate::tokens::Source;
use crate::usage::Reports;
use crate::wire::{Asked, Dialect, Ending, PartKind, Wire};

/// What is said in place of calls that the request forbids, when the step says nothing else.
pub const NO_CALLS_TEXT: &str = "I may not call tools now, so I stop here.";

/// An answer, ready to be said.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The parts, in order.
    pub(crate) parts: Vec<(PartKind, Source)>,
    /// Why it ends.
    pub(crate) finish: Finish,
    /// Counts to report.
    pub(crate) usage: UsageOverride,
    /// How they are reported.
    pub(crate) reports: Reports,
    /// Tokens a second; `None` for as fast as possible.
    pub(crate) rate: Option<f64>,
    /// Time until the head of the answer.
    pub(crate) delay: Duration,
    /// How it goes wrong.
    pub(crate) fault: Option<Fault>,
    /// How its bytes are carried.
    pub(crate) framing: Framing,
    /// How many times the same request meets the fault; `None` for always.
    pub(crate) fail_first: Option<u32>,
}

impl Plan {
    /// What `script`, or a built-in model, says to `asked`; `None` when there is no such model.
    pub(crate) fn find(script: &Script, rate: Option<f64>, asked: &Asked, wire: &dyn Wire) -> Option<Self> {
        let (step, model_rate) = match script.models.get(&asked.model) {
            Some(model) => (scripted(model, asked), model.rate),
            None => {
                let step = Builtin::find(&asked.model)?.step(asked.place, asked.may_call, &asked.prompt);
                (Cow::Owned(step), None)
            }
        };
        let rate = step.rate.or(model_rate).or(rate).filter(|rate| is_rate(*rate));
        Some(Self::of(&step, rate, asked, wire))
    }

    fn of(step: &Step, rate: Option<f64>, asked: &Asked, wire: &dyn Wire) -> Self {
        let mut calls = 0;
        let mut parts: Vec<(PartKind, Source)> = step
            .items
            .iter()
            .filter(|item| asked.may_call || !matches!(item, Item::Call(_)))
            .map(|item| match item {
                Item::Text(text) => (PartKind::Text, Source::text(text, 1)),
                Item::Reasoning(text) => (PartKind::Reasoning { signature: None }, Source::text(text, 1)),
                Item::SignedReasoning { text, signature } => {
                    (PartKind::Reasoning { signature: Some(signature.clone()) }, Source::text(text, 1))
                }
                Item::RedactedReasoning(data) => {
                    (PartKind::Redacted { data: data.clone() }, Source::text("", 1))
                }
                Item::Block(block) => {
                    let input = block.get("input").filter(|_| wire.dialect() == Dialect::Anthropic);
                    let input = input.map(Value::to_string).unwrap_or_default();
                    (PartKind::Block { block: block.clone() }, Source::text(input, 1))
                }
                Item::Refusal(text) => (PartKind::Refusal, Source::text(text, 1)),
                Item::Tokens(count) => (PartKind::Text, Source::prose(*count)),
                Item::Times(count) => (PartKind::Text, Source::times(*count)),
                Item::LargeEvent(bytes) => (PartKind::Text, Source::one(*bytes)),
                Item::Repeat { text, times } => (PartKind::Text, Source::text(text, *times)),
                Item::Call(call) => {
                    calls += 1;
                    let id = call.id.clone().unwrap_or_else(|| wire.call_id(asked.place, calls - 1));
                    (PartKind::Call { id, name: call.name.clone() }, Source::text(arguments(call), 1))
                }
            })
            .collect();
        let calls_left_out = !asked.may_call && step.has_calls();
        if calls_left_out && !parts.iter().any(|(kind, _)| *kind == PartKind::Text) {
            parts.push((PartKind::Text, Source::text(NO_CALLS_TEXT, 1)));
        }
        let finish = match &step.finish {
            Some(Finish::ToolCalls) if calls_left_out => Finish::Stop,
            Some(finish) => finish.clone(),
            None if calls > 0 => Finish::ToolCalls,
            None if parts.iter().any(|(kind, _)| *kind == PartKind::Refusal) => Finish::Refusal,
            None => Finish::Stop,
        };
        Self {
            parts,
            finish,
            usage: step.usage.unwrap_or_default(),
            reports: step.reports.as_deref().cloned().unwrap_or_default(),
            rate,
            delay: Duration::from_millis(step.delay_ms),
            fault: step.fault.clone(),
            framing: step.framing,
            fail_first: step.fail_first,
        }
    }

    /// Drops what would be said.
    pub(crate) fn say_nothing(&mut self) {
        self.parts.clear();
        self.finish = Finish::Stop;
    }

    /// Makes the calls what the fault says they are.
    pub(crate) fn break_calls(&mut self) {
        match self.fault.as_ref().and_then(Fault::defect) {
            Some(Defect::SameCallId) => same_ids(&mut self.parts),
            Some(Defect::ArgumentsNotAnObject) => {
                for (_, source) in self.parts.iter_mut().filter(|(kind, _)| kind.is_call()) {
                    *source = Source::text("[\"not\", \"an object\"]", 1);
                }
            }
            _ => {}
        }
    }

    /// The tokens of the input, for a request of so many bytes, as far as the simulated cache has it.
    pub(crate) fn input(&self, request_bytes: usize, cached: Cached) -> Tokens {
        let counted = request_bytes.div_ceil(4) as u64;
        let cached = cached.within(counted);
        let cache_read = self.usage.cache_read.unwrap_or(cached.read);
        let cache_write_5m = self.usage.cache_write.unwrap_or(cached.write_5m);
        let cache_write_1h = self.usage.cache_write_1h.unwrap_or(cached.write_1h);
        let cached = Tokens {
            cache_read,
            cache_write_5m,
            cache_write_30m: self.usage.cache_write_30m.unwrap_or(0),
            cache_write_1h,
            cache_write_12h: self.usage.cache_write_12h.unwrap_or(0),
            ..Tokens::default()
        };
        let input = self.usage.input.unwrap_or_else(|| counted.saturating_sub(cached.all_input()));
        Tokens { input, ..cached }
    }

    /// How the answer ends, after so many tokens of output and reasoning.
    pub(crate) fn ending(&self, input: Tokens, said: Tokens) -> Ending {
        let tokens = Tokens {
            output: self.usage.output.unwrap_or(said.output),
            reasoning: self.usage.reasoning.unwrap_or(said.reasoning),
            ..input
        };
        let is_reported = self.fault.as_ref().and_then(Fault::defect) != Some(Defect::NoUsage);
        let reports = self.reports.clone();
        Ending { finish: self.finish.clone(), tokens, total: self.usage.total, reports, is_reported }
    }
}

/// Gives all calls the id of the first; a single one is made twice.
fn same_ids(parts: &mut Vec<(PartKind, Source)>) {
    let Some(at) = parts.iter().position(|(kind, _)| kind.is_call()) else { return };
    if let PartKind::Call { id, .. } = &mut parts[at].0
        && id.is_empty()
    {
        *id = "call_mock_same".to_owned();
    }
    if parts.iter().filter(|(kind, _)| kind.is_call()).count() == 1 {
        parts.insert(at + 1, parts[at].clone());
    }
    let same = parts[at].0.clone();
    for (kind, _) in &mut parts[at + 1..] {
        if let (PartKind::Call { id, .. }, PartKind::Call { id: first, .. }) = (kind, &same) {
            id.clone_from(first);
        }
    }
}

fn scripted<'a>(model: &'a Model, asked: &Asked) -> Cow<'a, Step> {
    let turn = match model.turns.len() {
        0 => None,
        turns if model.cycle => model.turns.get(asked.place.turn % turns),
        _ => model.turns.get(asked.place.turn),
    };
    match turn.and_then(|turn| turn.steps.get(asked.place.step)) {
        Some(step) => Cow::Borrowed(step),
        None => Cow::Owned(text(model.closing.as_deref().unwrap_or(DEFAULT_CLOSING_TEXT))),
    }
}

fn arguments(call: &Call) -> String {
    match (&call.raw, &call.input) {
        (Some(raw), _) => raw.clone(),
        (None, serde_json::Value::Null) => "{}".to_owned(),
        (None, input) => input.to_string(),
    }
}
