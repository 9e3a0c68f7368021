//! What an answer used: every provider counts in its own way, and becomes exclusive counts here.
//!
//! - The figures are looked for wherever a provider is known to put them, under any provider: see `table`.
//! - Whether a figure is part of another one is told by its name, by the reported total, or by the convention of the
//!   provider and the dialect ([`UsageConvention`]), in that order.
//! - A stream may report several times. The largest report of input and that of output count, each as a whole.

mod inner;
mod read;
mod service;
mod table;

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;

use playhouse_protocol::usage::{Quality, Tokens};
use playhouse_protocol::{Cost, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::DialectKind;

/// How a provider counts tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UsageConvention {
    /// Classes of input are exclusive; reasoning is output.
    Anthropic,
    /// Cached tokens are part of the prompt's, reasoning is part of the completion's.
    OpenaiChat,
    /// The same with the names of Responses.
    OpenaiResponses,
    /// Cached tokens are part of the prompt's; thoughts stand beside the candidates'.
    Gemini,
    /// As `openai-chat`, but hits and misses of the cache have fields of their own, and add up to the prompt.
    DeepseekChat,
    /// As `openai-chat`, but reasoning stands beside the completion.
    XaiChat,
    /// As `openai-chat`, and tokens written to a cache are part of the prompt's.
    OpenrouterChat,
    /// As `openrouter-chat`, with another name for what was written.
    AlibabaChat,
}

/// Who counts otherwise than the dialect's own provider does.
const EXCEPTIONS: [(&str, DialectKind, UsageConvention); 4] = [
    ("deepseek", DialectKind::OpenaiChat, UsageConvention::DeepseekChat),
    ("xai", DialectKind::OpenaiChat, UsageConvention::XaiChat),
    ("openrouter", DialectKind::OpenaiChat, UsageConvention::OpenrouterChat),
    ("alibaba", DialectKind::OpenaiChat, UsageConvention::AlibabaChat),
];

impl UsageConvention {
    /// The convention of `provider` on `dialect`; that of the dialect where the provider is not known.
    pub fn of(provider: &str, dialect: DialectKind) -> Self {
        let exception = EXCEPTIONS.iter().find(|(name, on, _)| *name == provider && *on == dialect);
        exception.map_or(
            match dialect {
                DialectKind::Anthropic => Self::Anthropic,
                DialectKind::OpenaiChat => Self::OpenaiChat,
                DialectKind::OpenaiResponses => Self::OpenaiResponses,
                DialectKind::Gemini => Self::Gemini,
            },
            |(_, _, convention)| *convention,
        )
    }

    /// Whether input that was read from or written to a cache is part of the prompt's figure, where neither the names nor a
    /// total say so.
    const fn has_cache_inside(self) -> bool {
        !matches!(self, Self::Anthropic)
    }

    /// The same of reasoning and the completion's figure.
    const fn has_reasoning_inside(self) -> bool {
        !matches!(self, Self::XaiChat | Self::Gemini)
    }

    /// Whether a cache keeps for 30 minutes what is written to it, where nothing is said: else it is five.
    const fn writes_for_30_minutes(self) -> bool {
        matches!(self, Self::OpenaiChat | Self::OpenaiResponses)
    }
}

/// The classes of input or of output, from the report that is taken for them.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Side {
    tokens: Tokens,
    /// Whether the figures of that report agree with each other.
    agrees: bool,
}

impl Side {
    /// A larger count is above a smaller one, and of the same count one that is split further.
    fn rank(self) -> (u64, Reverse<u64>, usize) {
        let tokens = self.tokens;
        let classes = [
            tokens.cache_read,
            tokens.cache_write_5m,
            tokens.cache_write_30m,
            tokens.cache_write_1h,
            tokens.cache_write_12h,
            tokens.reasoning,
        ];
        let split = classes.iter().filter(|count| **count > 0).count();
        (tokens.total(), Reverse(tokens.input.saturating_add(tokens.output)), split)
    }
}

/// The usage objects of an answer.
#[derive(Debug)]
pub(crate) struct Reported {
    /// How they are to be read.
    convention: UsageConvention,
    /// Field by field, the last figure.
    figures: Map<String, Value>,
    /// The same before the first report that contradicts one before it.
    undisputed: Option<Map<String, Value>>,
    /// What is known of each side, with the figures that say so.
    input: Option<(Side, Map<String, Value>)>,
    output: Option<(Side, Map<String, Value>)>,
    /// What the provider says that the answer cost: the last amount above 0.
    cost: Option<Cost>,
    /// Ways of service that the answer names beside its usage objects.
    served: Option<String>,
    /// How often something new was reported.
    reports: u64,
}

impl Reported {
    pub(crate) fn new(convention: UsageConvention) -> Self {
        Self {
            convention,
            figures: Map::new(),
            undisputed: None,
            input: None,
            output: None,
            cost: None,
            served: None,
            reports: 0,
        }
    }

    /// Takes a report. What is null or missing in it is no figure: a side of which it says nothing is that of an earlier
    /// report.
    pub(crate) fn add(&mut self, usage: &Map<String, Value>) {
        let before = self.figures.clone();
        let lists_fewer_calls = !merge(&mut self.figures, usage);
        if self.figures == before && !lists_fewer_calls {
            return;
        }
        self.reports += 1;
        let unknown = read::unknown(&self.figures);
        let lacks_unknown = read::unknown(&before).iter().any(|name| !unknown.contains(name));
        let cost = service::cost(&self.figures);
        if cost.is_some_and(|cost| cost > Cost::ZERO) || self.cost.is_none() {
            self.cost = cost;
        }
        // A report counts as a whole. Where its figures do not add up, those that it leaves out may stand in an earlier one.
        let figures = self.completed(usage);
        let (mut reading, figures) = match read::read(self.convention, &figures) {
            whole if whole.agrees => (whole, figures),
            whole => match read::read(self.convention, &self.figures) {
                merged if merged.agrees => (merged, self.figures.clone()),
                _ => (whole, figures),
            },
        };
        // Without a word of the lifetimes, as much as was written before was written for as long, and only the rest for the
        // usual time.
        if let (Some(tokens), Some((known, _))) = (&mut reading.input, &self.input)
            && !reading.has_lifetimes
            && let Some(more) = tokens.cache_writes().checked_sub(known.tokens.cache_writes())
        {
            tokens.cache_write_5m = known.tokens.cache_write_5m;
            tokens.cache_write_30m = known.tokens.cache_write_30m;
            tokens.cache_write_1h = known.tokens.cache_write_1h;
            tokens.cache_write_12h = known.tokens.cache_write_12h;
            let is_30m = self.convention.writes_for_30_minutes();
            let usual = if is_30m { &mut tokens.cache_write_30m } else { &mut tokens.cache_write_5m };
            *usual = usual.saturating_add(more);
        }
        let side = |tokens: Option<Tokens>| {
            tokens.map(|tokens| (Side { tokens, agrees: reading.agrees }, figures.clone()))
        };
        let agree = take(&mut self.input, side(reading.input)) & take(&mut self.output, side(reading.output));
        if !agree || lists_fewer_calls || lacks_unknown {
            self.undisputed.get_or_insert(before);
        }
    }

    /// A report, with what is known of the sides whose main figure it leaves out.
    fn completed(&self, usage: &Map<String, Value>) -> Map<String, Value> {
        let mut figures = Map::new();
        for (of, known) in [(table::Side::Input, &self.input), (table::Side::Output, &self.output)] {
            let known = known.iter().flat_map(|(_, figures)| figures);
            if !read::has_main_figure(usage, of) {
                figures.extend(
                    known.filter(|(name, _)| of.has(name)).map(|(name, value)| (name.clone(), value.clone())),
                );
            }
        }
        merge(&mut figures, usage);
        figures
    }

    /// Takes the tier that an answer names beside its usage.
    pub(crate) fn tier(&mut self, name: &str) {
        self.served = service::unusual(name);
    }

    pub(crate) fn reports(&self) -> u64 {
        self.reports
    }

    /// What the model used that says it answered; `None` where no report holds a figure. Figures that nobody reads alone are
    /// kept, for an estimate.
    pub(crate) fn usage(&self, answered_by: Option<&str>) -> Option<Usage> {
        let unknown = read::unknown(&self.figures);
        if self.input.is_none() && self.output.is_none() && !unknown.is_empty() {
            let raw = Some(Value::Object(self.figures.clone()));
            return Some(Usage { quality: Quality::Estimated, raw, ..Usage::default() });
        }
        let sides = [&self.input, &self.output];
        let mut known = sides.into_iter().flatten().map(|(side, _)| side).peekable();
        known.peek()?;
        let (mut tokens, mut agrees) = (Tokens::default(), self.undisputed.is_none());
        for side in known {
            tokens += side.tokens;
            agrees &= side.agrees;
        }
        let split = inner::split(self.convention, &self.figures, tokens, answered_by);
        agrees &= split.agrees && unknown.is_empty();
        let mut served: Vec<String> = service::of(&self.figures).collect();
        served.extend(self.served.clone());
        let mut seen = BTreeSet::new();
        served.retain(|name| seen.insert(name.clone()));
        let figures = Value::Object(self.figures.clone());
        Some(Usage {
            tokens: split.own,
            quality: if agrees { Quality::Reported } else { Quality::Unreconciled },
            raw: Some(match &self.undisputed {
                Some(before) => Value::Array(vec![Value::Object(before.clone()), figures]),
                None => figures,
            }),
            served,
            provider_cost: self.cost,
            inner: split.inner,
        })
    }
}

/// Takes what a later report says of a side, unless it says less; whether it does not contradict what was known.
fn take<T>(known: &mut Option<(Side, T)>, later: Option<(Side, T)>) -> bool {
    let Some(later) = later else { return true };
    let order = known.as_ref().map_or(Ordering::Greater, |(known, _)| later.0.rank().cmp(&known.rank()));
    if order.is_ge() {
        *known = Some(later);
    }
    order.is_ge()
}

/// Puts the figures of `more` over those of `figures`, but for what is null. A list of calls inside of the answer is replaced
/// only by one that has no fewer, and no less in sum; whether all lists were such ones.
fn merge(figures: &mut Map<String, Value>, more: &Map<String, Value>) -> bool {
    let mut is_whole = true;
    for (name, value) in more {
        match (figures.get_mut(name), value) {
            (_, Value::Null) => {}
            (Some(Value::Object(figures)), Value::Object(more)) => is_whole &= merge(figures, more),
            (Some(Value::Array(calls)), Value::Array(more))
                if name == inner::CALLS && (more.len() < calls.len() || sum(more) < sum(calls)) =>
            {
                is_whole = false;
            }
            (Some(figure), value) => *figure = value.clone(),
            (None, value) => {
                figures.insert(name.clone(), value.clone());
            }
        }
    }
    is_whole
}

/// The sum of all numbers in these values.
fn sum(values: &[Value]) -> u64 {
    let of = |value: &Value| match value {
        Value::Object(members) => sum(&members.values().cloned().collect::<Vec<_>>()),
        Value::Array(items) => sum(items),
        value => read::count(value).unwrap_or(0),
    };
    values.iter().map(of).fold(0, u64::saturating_add)
}

/// The fields of a usage object that are named as counts of tokens and that nobody reads: names with `/` between them.
pub fn unknown_figures(usage: &Usage) -> Vec<String> {
    let reports = match &usage.raw {
        Some(Value::Array(reports)) => reports.as_slice(),
        raw => raw.as_slice(),
    };
    let names: BTreeSet<String> =
        reports.iter().filter_map(Value::as_object).flat_map(read::unknown).collect();
    names.into_iter().collect()
}

#[cfg(test)]
mod tests;
