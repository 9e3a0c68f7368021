//! Counts of what the rules found.

use std::collections::BTreeMap;

use serde::Serialize;

use super::memory::Seen;

/// The most different messages of refusals that are kept for each model.
const MESSAGES: usize = 1_000;

/// The findings of the rules since the mock was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RulesReport {
    /// All models together.
    pub total: RuleCounts,
    /// Each model by its name.
    pub models: BTreeMap<String, RuleCounts>,
}

/// Counts of what the rules found. Blocks of reasoning are counted once each, however many requests they are in: two
/// blocks are the same if model, text and everything before them are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleCounts {
    /// Requests that a rule refused.
    pub refused: u64,
    /// The messages of those refusals, with how often each was sent. At most 1,000 different ones are kept.
    pub messages: BTreeMap<String, u64>,
    /// Blocks that came back as they were handed out, after what stood before them then.
    pub valid: u64,
    /// Blocks that came back after something else than they were handed out after: refused or dropped.
    pub stale: u64,
    /// Blocks that came back to another model than the one that made them: dropped.
    pub foreign: u64,
    /// Blocks that could have come back and did not: the answer that had them came back, and what stood before it is
    /// what stood there then.
    pub missing: u64,
}

/// The findings of the rules in one request. It counts every block, also those of earlier requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleNote {
    /// The message with which a rule refused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// See [`RuleCounts::valid`].
    pub valid: u64,
    /// See [`RuleCounts::stale`].
    pub stale: u64,
    /// See [`RuleCounts::foreign`].
    pub foreign: u64,
    /// See [`RuleCounts::missing`].
    pub missing: u64,
}

/// A class of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Class {
    Valid,
    Stale,
    Foreign,
    Missing,
}

impl RuleNote {
    /// Counts a block.
    pub(super) fn count(&mut self, class: Class) {
        *match class {
            Class::Valid => &mut self.valid,
            Class::Stale => &mut self.stale,
            Class::Foreign => &mut self.foreign,
            Class::Missing => &mut self.missing,
        } += 1;
    }
}

impl RuleCounts {
    fn count(&mut self, class: Class) {
        *match class {
            Class::Valid => &mut self.valid,
            Class::Stale => &mut self.stale,
            Class::Foreign => &mut self.foreign,
            Class::Missing => &mut self.missing,
        } += 1;
    }

    fn refuse(&mut self, message: &str) {
        self.refused += 1;
        if self.messages.len() < MESSAGES || self.messages.contains_key(message) {
            *self.messages.entry(message.to_owned()).or_default() += 1;
        }
    }
}

/// The report under way.
#[derive(Debug, Default)]
pub(super) struct Tally {
    report: RulesReport,
    seen: Seen<(Class, u64)>,
}

impl Tally {
    /// Counts a block of `model`, unless it was counted in that class before.
    pub(super) fn block(&mut self, model: &str, class: Class, id: u64) {
        if self.seen.add((class, id)) {
            self.report.total.count(class);
            self.report.models.entry(model.to_owned()).or_default().count(class);
        }
    }

    /// Counts a refused request to `model`.
    pub(super) fn refused(&mut self, model: &str, message: &str) {
        self.report.total.refuse(message);
        self.report.models.entry(model.to_owned()).or_default().refuse(message);
    }

    /// The report as it stands.
    pub(super) fn report(&self) -> RulesReport {
        self.report.clone()
    }
}
