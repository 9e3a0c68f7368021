//! One model as it stands in a file: in `models.toml`, and in what is kept of a whole catalogue.

use std::collections::BTreeMap;

use playhouse_protocol::capability::{
    BudgetRange, Effort, Modalities, ReasoningField, ReasoningForm, RequestRules, Sampling,
};
use playhouse_protocol::usage::{LongContext, OffPeak};
use playhouse_protocol::{Day, PriceList, Prices};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::facts::ModelFacts;

/// One model of a file. `models.toml` says what each key means.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) aliases: Vec<String>,
    pub(crate) context: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) input: Option<u64>,
    pub(crate) output: u64,
    #[serde(default)]
    pub(crate) prices: Prices,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) long: Vec<LongContext>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) multiples: BTreeMap<String, Decimal>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) off_peak: Vec<OffPeak>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) attachments: Vec<Attachment>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) reasoning: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) efforts: Option<Vec<Effort>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) budget: Option<BudgetRange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning_field: Option<ReasoningField>,
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub(crate) text: bool,
    #[serde(default, skip_serializing_if = "playhouse_protocol::is_default")]
    pub(crate) rules: RequestRules,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ends: Option<Day>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) successor: Option<String>,
    /// The form of three rules in files of version 2.
    #[serde(default, skip_serializing)]
    pub(crate) temperature: Option<bool>,
    #[serde(default, skip_serializing)]
    pub(crate) prefill: Option<bool>,
    #[serde(default, skip_serializing)]
    pub(crate) responses: Option<bool>,
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_yes(value: &bool) -> bool {
    *value
}

#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Attachment {
    Image,
    Pdf,
}

impl From<Entry> for ModelFacts {
    fn from(entry: Entry) -> Self {
        let Entry { efforts, budget, mut rules, .. } = entry;
        if entry.temperature == Some(false) {
            rules.sampling = Sampling::Never;
        }
        rules.prefill |= entry.prefill.unwrap_or(false);
        if entry.responses == Some(true) {
            (rules.responses, rules.chat) = (true, false);
        }
        let told = efforts.is_some() || budget.is_some();
        Self {
            context: entry.context,
            input: entry.input,
            output: entry.output,
            prices: PriceList {
                usual: entry.prices,
                long: entry.long,
                multiples: entry.multiples,
                off_peak: entry.off_peak,
            },
            modalities: Modalities {
                image: entry.attachments.contains(&Attachment::Image),
                pdf: entry.attachments.contains(&Attachment::Pdf),
            },
            text: entry.text,
            reasoning: entry.reasoning,
            reasoning_form: told.then(|| ReasoningForm { efforts: efforts.unwrap_or_default(), budget }),
            reasoning_field: entry.reasoning_field,
            rules,
            ends: entry.ends,
            successor: entry.successor,
        }
    }
}

impl From<&ModelFacts> for Entry {
    fn from(facts: &ModelFacts) -> Self {
        let Modalities { image, pdf } = facts.modalities;
        let form = facts.reasoning_form.as_ref();
        let kinds = [(image, Attachment::Image), (pdf, Attachment::Pdf)];
        let PriceList { usual, long, multiples, off_peak } = facts.prices.clone();
        Self {
            aliases: Vec::new(),
            context: facts.context,
            input: facts.input,
            output: facts.output,
            prices: usual,
            long,
            multiples,
            off_peak,
            attachments: kinds.into_iter().filter_map(|(reads, kind)| reads.then_some(kind)).collect(),
            reasoning: facts.reasoning,
            efforts: form.map(|form| form.efforts.clone()),
            budget: form.and_then(|form| form.budget),
            reasoning_field: facts.reasoning_field,
            text: facts.text,
            rules: facts.rules,
            ends: facts.ends,
            successor: facts.successor.clone(),
            temperature: None,
            prefill: None,
            responses: None,
        }
    }
}
