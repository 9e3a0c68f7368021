//! One model as it stands in a file: in `models.toml`, and in what is kept of a whole catalogue.

use playhouse_protocol::Prices;
use playhouse_protocol::capability::{BudgetRange, Effort, Modalities, ReasoningField, ReasoningForm};
use playhouse_protocol::usage::LongContext;
use serde::{Deserialize, Serialize};

use crate::facts::ModelFacts;

/// One model of a file. `models.toml` says what each key means.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) aliases: Vec<String>,
    context: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input: Option<u64>,
    output: u64,
    #[serde(default)]
    prices: Prices,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    long: Vec<LongContext>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    attachments: Vec<Attachment>,
    #[serde(default, skip_serializing_if = "is_no")]
    reasoning: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    efforts: Option<Vec<Effort>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    budget: Option<BudgetRange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reasoning_field: Option<ReasoningField>,
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    text: bool,
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    temperature: bool,
    #[serde(default, skip_serializing_if = "is_no")]
    prefill: bool,
    #[serde(default, skip_serializing_if = "is_no")]
    responses: bool,
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_yes(value: &bool) -> bool {
    *value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_no(value: &bool) -> bool {
    !*value
}

#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Attachment {
    Image,
    Pdf,
}

impl From<Entry> for ModelFacts {
    fn from(entry: Entry) -> Self {
        let Entry { efforts, budget, .. } = entry;
        let told = efforts.is_some() || budget.is_some();
        Self {
            context: entry.context,
            input: entry.input,
            output: entry.output,
            prices: entry.prices,
            long: entry.long,
            modalities: Modalities {
                image: entry.attachments.contains(&Attachment::Image),
                pdf: entry.attachments.contains(&Attachment::Pdf),
            },
            text: entry.text,
            reasoning: entry.reasoning,
            reasoning_form: told.then(|| ReasoningForm { efforts: efforts.unwrap_or_default(), budget }),
            reasoning_field: entry.reasoning_field,
            temperature: entry.temperature,
            prefill: entry.prefill,
            responses: entry.responses,
        }
    }
}

impl From<&ModelFacts> for Entry {
    fn from(facts: &ModelFacts) -> Self {
        let Modalities { image, pdf } = facts.modalities;
        let form = facts.reasoning_form.as_ref();
        let kinds = [(image, Attachment::Image), (pdf, Attachment::Pdf)];
        Self {
            aliases: Vec::new(),
            context: facts.context,
            input: facts.input,
            output: facts.output,
            prices: facts.prices,
            long: facts.long.clone(),
            attachments: kinds.into_iter().filter_map(|(reads, kind)| reads.then_some(kind)).collect(),
            reasoning: facts.reasoning,
            efforts: form.map(|form| form.efforts.clone()),
            budget: form.and_then(|form| form.budget),
            reasoning_field: facts.reasoning_field,
            text: facts.text,
            temperature: facts.temperature,
            prefill: facts.prefill,
            responses: facts.responses,
        }
    }
}
