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
    /// What the model used that was asked.
    pub(super) own: Tokens,
    /// What other models used.
    pub(super) inner: Vec<InnerUsage>,
    /// Whether all figures are counts and agree with each other.
    pub(super) agrees: bool,
}

/// Tells apart what an answer used whose own figures are `whole`.
///
/// - Calls of the kind `message` are in these figures, unless a fallback gave the answer: then they are the fallback's.
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
    match fallback {
        Some(model) => {
            let inner = InnerUsage { model, tokens: whole, answers: true };
            calls_of_others.insert(0, inner);
            Split { own: sum(&own), inner: calls_of_others, agrees }
        }
        None => {
            let all = sum(&own);
            own.retain(|(kind, _)| kind != ANSWER);
            let others = sum(&own);
            // Output may have grown since the calls were listed.
            let answer = all.all_input().saturating_sub(others.all_input());
            let is_sum = answer != whole.all_input() && all.all_input() == whole.all_input();
            let beside = if is_sum { Tokens::default() } else { others };
            Split { own: whole + beside, inner: calls_of_others, agrees }
        }
    }
}
