//! One usage object: from the figures that stand in it to exclusive counts.

use playhouse_protocol::usage::Tokens;
use serde_json::{Map, Value};

use super::UsageConvention;
use super::table::{Count, FIGURES, Figure, INPUT_DETAILS, OUTPUT_DETAILS, Place, Relation, Side};

/// Objects inside of objects that are looked into.
const DEPTH: usize = 8;
/// The most names that are remembered of one usage object.
const MOST_UNKNOWN: usize = 16;

/// What a usage object says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Reading {
    /// The classes of input, where it has a figure of any.
    pub(super) input: Option<Tokens>,
    /// The classes of output, where it has a figure of any.
    pub(super) output: Option<Tokens>,
    /// Whether all figures are counts and agree with each other.
    pub(super) agrees: bool,
    /// Whether it says for how long what was written is kept.
    pub(super) has_lifetimes: bool,
}

impl Reading {
    /// All classes.
    pub(super) fn tokens(&self) -> Tokens {
        self.input.unwrap_or_default() + self.output.unwrap_or_default()
    }
}

/// The count that a figure is: a number without a fraction.
pub(super) fn count(value: &Value) -> Option<u64> {
    /// Up to here every whole number is a float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    value.as_u64().or_else(|| {
        let float = value.as_f64().filter(|float| float.fract() == 0.0 && (0.0..=EXACT).contains(float))?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, and in range")]
        Some(float as u64)
    })
}

/// The figures of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    /// The largest, where there is any.
    most: Option<u64>,
    /// Whether it is a part of a larger figure: as the names of those say that are not 0.
    relation: Option<Relation>,
}

impl Found {
    fn most(self) -> u64 {
        self.most.unwrap_or(0)
    }
}

/// The figures of a usage object.
struct Figures<'a> {
    raw: &'a Map<String, Value>,
    /// Whether each figure is a count, and those of one kind are the same or 0.
    agree: bool,
}

impl Figures<'_> {
    fn find(&mut self, counts: Count) -> Found {
        let mut found = Found::default();
        for figure in FIGURES.iter().filter(|figure| figure.counts == counts) {
            for value in self.values(figure) {
                let Some(number) = count(&value) else {
                    self.agree = false;
                    found.most = Some(found.most());
                    continue;
                };
                let before = found.most();
                self.agree &= before == 0 || number == 0 || before == number;
                found.most = Some(before.max(number));
                if number > 0 && found.relation.is_none_or(|relation| relation == Relation::Convention) {
                    found.relation = Some(figure.relation);
                }
            }
        }
        found
    }

    /// The values at a figure's place that are not null.
    fn values(&self, figure: &Figure) -> Vec<Value> {
        let raw = self.raw;
        let at = |mut value: &Value| -> Option<Value> {
            for name in figure.name.split('/') {
                value = value.get(name)?;
            }
            (!value.is_null()).then(|| value.clone())
        };
        let below = |names: &[&str]| names.iter().filter_map(|name| at(raw.get(*name)?)).collect();
        match figure.place {
            Place::Top => {
                let (first, rest) = figure.name.split_once('/').unwrap_or((figure.name, ""));
                let value = raw.get(first).filter(|value| !value.is_null());
                let value = if rest.is_empty() { value } else { value.and_then(|value| value.get(rest)) };
                value.filter(|value| !value.is_null()).cloned().into_iter().collect()
            }
            Place::Input => below(&INPUT_DETAILS),
            Place::Output => below(&OUTPUT_DETAILS),
            Place::Anywhere => Vec::new(),
        }
    }
}

/// A group of figures that may be part of another one.
#[derive(Clone, Copy)]
struct Group {
    count: u64,
    /// Whether it is a part.
    inside: bool,
    relation: Relation,
}

impl Group {
    fn new(count: u64, relation: Option<Relation>, convention: bool) -> Self {
        let relation = relation.unwrap_or(Relation::Convention);
        let inside = match relation {
            Relation::Inside | Relation::Part => true,
            Relation::Beside => false,
            Relation::Convention => convention,
        };
        Self { count, inside, relation }
    }

    /// Whether names leave the other reading as well: with a total that tells them apart, or where the usual one does not fit.
    fn is_open(self) -> bool {
        self.count > 0 && matches!(self.relation, Relation::Part | Relation::Convention)
    }

    fn outside(self) -> u64 {
        if self.inside { 0 } else { self.count }
    }

    fn part(self) -> u64 {
        if self.inside { self.count } else { 0 }
    }
}

/// Hits, writes, reasoning, and calls that a provider makes on its own.
type Groups = [Group; 4];

/// Whether the parts fit into what they are parts of.
fn fits([hits, writes, reasoning, inner]: Groups, prompt: u64, completion: u64, inner_output: u64) -> bool {
    let input = hits.part().saturating_add(writes.part());
    let inner_input = inner.part().saturating_sub(inner_output);
    let output = reasoning.part().saturating_add(if inner.inside { inner_output } else { 0 });
    input.saturating_add(inner_input) <= prompt && output <= completion
}

/// Reads a usage object as one that counts by this convention.
pub(super) fn read(convention: UsageConvention, raw: &Map<String, Value>) -> Reading {
    let mut figures = Figures { raw, agree: true };
    let mut find = |counts| figures.find(counts);
    let (prompt, beside, hit, miss) =
        (find(Count::Prompt), find(Count::BesidePrompt), find(Count::Hit), find(Count::Miss));
    let written = find(Count::Write);
    let lifetimes = [Count::Write5m, Count::Write30m, Count::Write1h, Count::Write12h].map(&mut find);
    let (completion, reasoning, total) =
        (find(Count::Completion), find(Count::Reasoning), find(Count::Total).most);
    let [inner_input, inner_hit, inner_output] =
        [Count::InnerInput, Count::InnerHit, Count::InnerOutput].map(&mut find);
    let mut agrees = figures.agree;

    // Writes of known lifetimes, and the rest for the usual one.
    let known = lifetimes.iter().fold(0, |sum: u64, found| sum.saturating_add(found.most()));
    let detailed = lifetimes.iter().any(|found| found.most.is_some());
    let all_written = written.most.unwrap_or(known).max(known);
    agrees &= !detailed || written.most.is_none_or(|written| written == known);
    let mut writes = lifetimes.map(Found::most);
    let usual = &mut writes[usize::from(convention.writes_for_30_minutes())];
    *usual = usual.saturating_add(all_written - known);

    let prompt_count = prompt.most.or(miss.most.map(|miss| miss.saturating_add(hit.most()))).unwrap_or(0);
    let inside = convention.has_cache_inside();
    let write_relation = lifetimes.iter().find_map(|found| found.relation).or(written.relation);
    let inner = [inner_input, inner_hit, inner_output].map(Found::most);
    let inner_sum = inner.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
    let groups = [
        Group::new(hit.most(), hit.relation, inside),
        Group::new(all_written, write_relation, inside),
        Group::new(reasoning.most(), reasoning.relation, convention.has_reasoning_inside()),
        Group::new(inner_sum, None, false),
    ];
    // An answer that was cut while the model thought may have no other count than that.
    let completion_count = completion.most.unwrap_or(groups[2].part());
    let base = prompt_count.checked_add(beside.most()).and_then(|sum| sum.checked_add(completion_count));
    let sum =
        |groups: &Groups| groups.iter().try_fold(base?, |sum: u64, group| sum.checked_add(group.outside()));
    let is_right = |groups: &Groups| {
        fits(*groups, prompt_count, completion_count, inner[2])
            && total.is_none_or(|total| sum(groups) == Some(total))
    };
    let readings = (0_u32..16).filter(|flips| {
        let open = |(bit, group): (usize, &Group)| flips >> bit & 1 == 0 || group.is_open();
        groups.iter().enumerate().all(open)
    });
    let mut readings: Vec<u32> = readings.collect();
    readings.sort_by_key(|flips| flips.count_ones());
    let flipped = |flips: u32| {
        let mut groups = groups;
        for (bit, group) in groups.iter_mut().enumerate() {
            group.inside ^= flips >> bit & 1 == 1;
        }
        groups
    };
    let right = readings.into_iter().find(|flips| is_right(&flipped(*flips)));
    // Without a total, another reading than the usual one is a guess.
    agrees &= right.is_some_and(|flips| flips == 0 || total.is_some());
    let right = right.map(flipped);
    let [hits, written, reasoned, inner_group] = right.unwrap_or(groups);
    if let Some(miss) = miss.most {
        agrees &= prompt_count.checked_sub(hits.part()) == Some(miss);
    }

    let [inner_input, inner_hit, inner_output] = inner;
    let (own_input, own_output) = match inner_group.inside {
        true => (prompt_count.saturating_sub(inner_hit), completion_count),
        false => (prompt_count.saturating_add(inner_input), completion_count.saturating_add(inner_output)),
    };
    let uncached = own_input.saturating_sub(hits.part()).saturating_sub(written.part());
    let input = Tokens {
        input: uncached.saturating_add(beside.most()),
        cache_read: hits.count.saturating_add(inner_hit),
        cache_write_5m: writes[0],
        cache_write_30m: writes[1],
        cache_write_1h: writes[2],
        cache_write_12h: writes[3],
        ..Tokens::default()
    };
    let output = Tokens {
        output: own_output.saturating_sub(reasoned.part()),
        reasoning: reasoned.count,
        ..Tokens::default()
    };
    let has_writes = detailed || written.count > 0;
    let has_input = [prompt, beside, hit, miss].iter().any(|found| found.most.is_some()) || has_writes;
    let has_output = completion.most.is_some() || reasoning.most.is_some();
    Reading {
        input: has_input.then_some(input),
        output: has_output.then_some(output),
        agrees,
        has_lifetimes: known > 0,
    }
}

/// Whether a usage object has the figure of all input, or that of all output.
pub(super) fn has_main_figure(raw: &Map<String, Value>, side: Side) -> bool {
    let is_main = |figure: &&Figure| match side {
        Side::Input => matches!(figure.counts, Count::Prompt | Count::Miss),
        Side::Output => figure.counts == Count::Completion,
    };
    let figures = Figures { raw, agree: true };
    FIGURES.iter().filter(is_main).any(|figure| !figures.values(figure).is_empty())
}

/// The paths of figures above 0 that are named as counts of tokens, and that the table does not know.
pub(super) fn unknown(raw: &Map<String, Value>) -> Vec<String> {
    let mut names = Vec::new();
    for (name, value) in raw {
        match value {
            // What a call inside of the answer used has the form of the whole.
            Value::Array(calls) if name == super::inner::CALLS => {
                for call in calls.iter().filter_map(Value::as_object) {
                    call.iter().for_each(|(name, value)| walk(name, value, DEPTH, &mut names));
                }
            }
            _ => walk(name, value, DEPTH, &mut names),
        }
    }
    names
}

fn walk(path: &str, value: &Value, depth: usize, names: &mut Vec<String>) {
    if depth == 0 || names.len() >= MOST_UNKNOWN {
        return;
    }
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                walk(&format!("{path}/{name}"), value, depth - 1, names);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| walk(path, item, depth - 1, names)),
        Value::Number(number) if number.as_f64().is_some_and(|number| number > 0.0) => {
            let name = path.rsplit('/').next().unwrap_or(path);
            let is_count = ["tokens", "Tokens", "token_count", "TokenCount", "tokenCount"];
            if is_count.iter().any(|end| name.ends_with(end))
                && !FIGURES.iter().any(|figure| figure.is_at(path))
                && !names.iter().any(|name| name == path)
            {
                names.push(path.to_owned());
            }
        }
        _ => {}
    }
}
