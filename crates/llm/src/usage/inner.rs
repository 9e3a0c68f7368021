//! Calls inside of an answer that have usage of their own.

use playhouse_protocol::usage::{InnerUsage, Tokens};
use serde_json::{Map, Value};

use super::UsageConvention;
use super::read::read;

/// The member that lists them.
pub(super) const CALLS: &str = "iterations";
/// The most of them that are read.
const MOST: usize = 64;
/// The call that gave the answer: the figures of the whole are its own.
const ANSWER: &str = "message";
/// The call of another model that gave the answer in place of the one that was asked.
const FALLBACK: &str = "fallback_message";

/// What the whole answer used, told apart.
#[derive(Debug, PartialEq)]
pub(super) struct Split {
    /// What the model used that was asked, without its calls in `inner`.
    pub(super) own: Tokens,
    /// What other models used, and other calls of the same one.
    pub(super) inner: Vec<InnerUsage>,
    /// Whether all figures are counts and agree with each other.
    pub(super) agrees: bool,
}

/// Tells apart what an answer used whose own figures are `whole`.
///
/// - Calls of the kind `message` are in these figures, unless a fallback gave the answer: then they are the fallback's.
/// - Calls of the model that was asked are told apart as well: which prices hold depends on the size of each.
/// - Other calls are beside them (`compaction`, `advisor_message`), unless all of the same model add up to them.
pub(super) fn split(
    convention: UsageConvention,
    raw: &Map<String, Value>,
    whole: Tokens,
    answered_by: Option<&str>,
) -> Split {
    let text =
        |call: &Map<String, Value>, name: &str| call.get(name).and_then(Value::as_str).map(str::to_owned);
    let calls = raw.get(CALLS).and_then(Value::as_array).into_iter().flatten();
    let (mut own, mut calls_of_others) = (Vec::new(), Vec::new());
    // What is not read may be anything.
    let mut agrees = calls.clone().count() <= MOST;
    let mut fallback = None;
    for call in calls.filter_map(Value::as_object).take(MOST) {
        let reading = read(convention, call);
        agrees &= reading.agrees;
        let (kind, model) = (text(call, "type").unwrap_or_default(), text(call, "model"));
        match model.filter(|model| Some(model.as_str()) != answered_by) {
            _ if kind == FALLBACK => fallback = text(call, "model").or(fallback),
            Some(model) if kind != ANSWER => {
                calls_of_others.push(InnerUsage { model, tokens: reading.tokens(), answers: false });
            }
            _ => own.push((kind, reading.tokens())),
        }
    }
    let sum = |calls: &[(String, Tokens)]| calls.iter().fold(Tokens::default(), |sum, call| sum + call.1);
    let mut inner = calls_of_others;
    match fallback {
        Some(model) => {
            inner.insert(0, InnerUsage { model, tokens: whole, answers: true });
            let first = own.pop().map(|(_, tokens)| tokens).unwrap_or_default();
            inner.extend(own.into_iter().map(|(_, tokens)| own_call(tokens)));
            Split { own: first, inner, agrees }
        }
        None => {
            let all = sum(&own);
            let (answers, others): (Vec<_>, Vec<_>) = own.into_iter().partition(|(kind, _)| kind == ANSWER);
            // Output may have grown since the calls were listed.
            let answer = sum(&answers).all_input();
            let is_sum = answer != whole.all_input() && all.all_input() == whole.all_input();
            let (answers_in, others_in) = (is_sum || answer == whole.all_input(), is_sum);
            let mut own = whole;
            let answers = answers.iter().skip(1).filter(|_| answers_in).map(|call| (call.1, true));
            for (tokens, is_in_whole) in others.iter().map(|call| (call.1, others_in)).chain(answers) {
                if !is_in_whole {
                    inner.push(own_call(tokens));
                } else if let Some(rest) = less(own, tokens) {
                    own = rest;
                    inner.push(own_call(tokens));
                }
            }
            Split { own, inner, agrees }
        }
    }
}

/// A call of the model that was asked.
fn own_call(tokens: Tokens) -> InnerUsage {
    InnerUsage { model: String::new(), tokens, answers: false }
}

/// `whole` without `part`, where that is in it.
fn less(whole: Tokens, part: Tokens) -> Option<Tokens> {
    Some(Tokens {
        input: whole.input.checked_sub(part.input)?,
        cache_read: whole.cache_read.checked_sub(part.cache_read)?,
        cache_write_5m: whole.cache_write_5m.checked_sub(part.cache_write_5m)?,
        cache_write_30m: whole.cache_write_30m.checked_sub(part.cache_write_30m)?,
        cache_write_1h: whole.cache_write_1h.checked_sub(part.cache_write_1h)?,
        cache_write_12h: whole.cache_write_12h.checked_sub(part.cache_write_12h)?,
        output: whole.output.checked_sub(part.output)?,
        reasoning: whole.reasoning.checked_sub(part.reasoning)?,
    })
}
