//! From a script and a request to what is said in answer.

use std::borrow::Cow;
use std::time::Duration;

use playhouse_protocol::Tokens;

use crate::builtin::Builtin;
use crate::fault::Fault;
use crate::script::{
    Call, DEFAULT_CLOSING_TEXT, Finish, Item, Model, Script, Step, UsageOverride, is_rate, text,
};
use crate::tokens::Source;
use crate::wire::{Asked, Ending, PartKind, Wire};

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
    /// Tokens a second; `None` for as fast as possible.
    pub(crate) rate: Option<f64>,
    /// Time until the head of the answer.
    pub(crate) delay: Duration,
    /// How it goes wrong.
    pub(crate) fault: Option<Fault>,
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
                Item::Reasoning(text) => (PartKind::Reasoning, Source::text(text, 1)),
                Item::Tokens(count) => (PartKind::Text, Source::prose(*count)),
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
            None => Finish::Stop,
        };
        Self {
            parts,
            finish,
            usage: step.usage.unwrap_or_default(),
            rate,
            delay: Duration::from_millis(step.delay_ms),
            fault: step.fault.clone(),
            fail_first: step.fail_first,
        }
    }

    /// Drops what would be said.
    pub(crate) fn say_nothing(&mut self) {
        self.parts.clear();
        self.finish = Finish::Stop;
    }

    /// The tokens of the input, for a request of so many bytes.
    pub(crate) fn input(&self, request_bytes: usize) -> Tokens {
        let counted = request_bytes.div_ceil(4) as u64;
        let cache_read = self.usage.cache_read.unwrap_or(0);
        let cache_write_5m = self.usage.cache_write.unwrap_or(0);
        let rest = counted.saturating_sub(cache_read).saturating_sub(cache_write_5m);
        Tokens { input: self.usage.input.unwrap_or(rest), cache_read, cache_write_5m, ..Tokens::default() }
    }
}

/// How an answer ends that was planned with `finish` and `usage`, after so many tokens of output and reasoning.
pub(crate) fn ending(finish: Finish, usage: UsageOverride, input: Tokens, said: Tokens) -> Ending {
    let tokens = Tokens {
        output: usage.output.unwrap_or(said.output),
        reasoning: usage.reasoning.unwrap_or(said.reasoning),
        ..input
    };
    Ending { finish, tokens }
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
