//! What the engine tells of itself, by the names of `playhouse_protocol::metric`.
//!
//! Everything is recorded through the `metrics` facade: without a recorder, which only a product installs, nothing happens.
//! What happens once per turn, step, call or flush is recorded where it happens. What goes up and down is counted in the
//! [`Census`] and told when somebody asks ([`Engine::observe`]), so that no scrape looks through sessions. Nothing is
//! recorded per token.

mod census;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use metrics::{Label, counter, gauge, histogram};
use parking_lot::Mutex;
use playhouse_protocol::message::CallOutcome;
use playhouse_protocol::metric::{
    EVICTION_REASONS, Metric, OTHER, QUALITIES, STORAGE_KINDS, TENANT, label_name,
};
use playhouse_protocol::usage::{Cost, Quality, Tokens};
use playhouse_protocol::{ErrorCode, Labels, ModelRef};
use playhouse_tools::storage::StorageUse;
use rust_decimal::prelude::ToPrimitive as _;

pub(crate) use self::census::{Census, Count, Doing, Standing};

/// The most models that have series of their own. Those that come later are [`OTHER`], so that no client can make series
/// without end by naming models.
const MOST_MODELS: usize = 256;

/// The most sets of values of labels of usage that have series of their own. Later ones are [`OTHER`]: the words are the
/// tenants' own.
const MOST_LABEL_VALUES: usize = 100;

/// What the actors of one engine measure with.
#[derive(Debug, Default)]
pub(crate) struct Measures {
    pub(crate) census: Arc<Census>,
    /// Whether what is spent is told by tenant, too.
    by_tenant: bool,
    by_label: LabelSeries,
    models: Mutex<HashMap<ModelRef, ModelLabels>>,
}

/// The labels of usage that metrics of tokens and cost have as well.
#[derive(Debug, Default)]
struct LabelSeries {
    /// Their names, and what they are called in metrics.
    names: Vec<(String, Arc<str>)>,
    /// The values that have series of their own, together.
    known: Mutex<HashSet<Vec<Arc<str>>>>,
}

impl LabelSeries {
    fn new(names: Vec<String>) -> Self {
        let names = names.into_iter().map(|name| {
            let called = label_name(&name).into();
            (name, called)
        });
        Self { names: names.collect(), known: Mutex::default() }
    }

    /// The values of these labels in metrics. A label that the session lacks is empty.
    fn of(&self, labels: &Labels) -> Vec<Label> {
        if self.names.is_empty() {
            return Vec::new();
        }
        let value = |name: &String| labels.get(name).map_or("", |label| &label[..]).into();
        let mut values: Vec<Arc<str>> = self.names.iter().map(|(name, _)| value(name)).collect();
        let mut known = self.known.lock();
        if !known.contains(&values) {
            if known.len() < MOST_LABEL_VALUES {
                known.insert(values.clone());
            } else {
                values.fill(OTHER.into());
            }
        }
        drop(known);
        let label =
            |((_, called), value): (&(String, Arc<str>), Arc<str>)| Label::new(Arc::clone(called), value);
        self.names.iter().zip(values).map(label).collect()
    }
}

/// Provider and model, as labels have them.
#[derive(Clone, Debug)]
pub(crate) struct ModelLabels {
    provider: Arc<str>,
    model: Arc<str>,
}

impl ModelLabels {
    fn of(model: &ModelRef) -> Self {
        Self { provider: model.provider.as_str().into(), model: model.model.as_str().into() }
    }

    fn labels(&self) -> Vec<Label> {
        // Room for the one or two that most metrics have beside them.
        let mut labels = Vec::with_capacity(4);
        labels.push(Label::new("provider", Arc::clone(&self.provider)));
        labels.push(Label::new("model", Arc::clone(&self.model)));
        labels
    }

    /// As OpenTelemetry has them.
    fn gen_ai(&self) -> Vec<Label> {
        vec![
            Label::from_static_parts("gen_ai_operation_name", "chat"),
            Label::new("gen_ai_provider_name", gen_ai_provider(&self.provider)),
            Label::new("gen_ai_request_model", Arc::clone(&self.model)),
        ]
    }
}

/// What OpenTelemetry calls a provider; others have the name that the operator gave them.
pub(crate) fn gen_ai_provider(provider: &Arc<str>) -> metrics::SharedString {
    metrics::SharedString::const_str(match &**provider {
        "google" | "gemini" => "gcp.gemini",
        "xai" => "x_ai",
        "mistral" => "mistral_ai",
        _ => return metrics::SharedString::from_shared(Arc::clone(provider)),
    })
}

/// What an attempt used, and how well that is known.
pub(crate) struct Used {
    pub(crate) model: ModelRef,
    pub(crate) tokens: Tokens,
    /// Absent where a price is not known.
    pub(crate) cost: Option<Cost>,
    pub(crate) quality: Quality,
    /// Whether a price or a factor was assumed.
    pub(crate) assumed: bool,
}

/// How a request to a provider ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestEnd {
    Finished,
    Aborted,
    Lost,
    Failed(ErrorCode),
}

/// Why a session leaves memory, in the order of `EVICTION_REASONS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// It had nothing to do for long.
    Idle,
    /// There are too many sessions.
    Room,
}

impl RequestEnd {
    const fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Aborted => "aborted",
            Self::Lost => "lost",
            Self::Failed(code) => code.name(),
        }
    }
}

impl Measures {
    pub(crate) fn new(by_tenant: bool, labels: Vec<String>) -> Self {
        Self { by_tenant, by_label: LabelSeries::new(labels), ..Self::default() }
    }

    /// The labels of a model. Only models that the directory knows are asked here: no request leaves for another.
    fn model(&self, model: &ModelRef) -> ModelLabels {
        let mut models = self.models.lock();
        if let Some(known) = models.get(model) {
            return known.clone();
        }
        if models.len() >= MOST_MODELS {
            return ModelLabels { provider: OTHER.into(), model: OTHER.into() };
        }
        let labels = ModelLabels::of(model);
        models.insert(model.clone(), labels.clone());
        labels
    }

    /// Adds the label of the tenant where the operator wants it.
    fn of_tenant(&self, mut labels: Vec<Label>, tenant: &Arc<str>) -> Vec<Label> {
        if self.by_tenant {
            labels.push(Label::new(TENANT, Arc::clone(tenant)));
        }
        labels
    }

    /// Bytes on disk, with a label for each tenant where the operator wants that.
    pub(crate) fn storage(&self, usages: &[(Arc<str>, StorageUse)]) {
        let all: u64 = usages.iter().map(|(_, usage)| usage.outputs).sum();
        gauge!(Metric::OutputBytes.name()).set(number(all));
        let mut sum = StorageUse::default();
        for (tenant, usage) in usages {
            if self.by_tenant {
                self.storage_of(*usage, Some(tenant));
            }
            sum.outputs += usage.outputs;
            sum.homes += usage.homes;
            sum.attachments += usage.attachments;
            sum.undo += usage.undo;
        }
        if !self.by_tenant {
            self.storage_of(sum, None);
        }
    }

    fn storage_of(&self, usage: StorageUse, tenant: Option<&Arc<str>>) {
        let all = [usage.outputs, usage.homes, usage.attachments, usage.undo];
        for (kind, bytes) in STORAGE_KINDS.iter().zip(all) {
            let mut labels = vec![Label::from_static_parts("kind", kind)];
            labels.extend(tenant.map(|tenant| Label::new(TENANT, Arc::clone(tenant))));
            gauge!(Metric::StorageBytes.name(), labels).set(number(bytes));
        }
    }

    /// A turn ended; `took` is known where this process saw its start.
    pub(crate) fn turn(&self, tenant: &Arc<str>, outcome: &'static str, took: Option<Duration>) {
        let labels = vec![Label::from_static_parts("outcome", outcome)];
        if let Some(took) = took {
            histogram!(Metric::TurnDuration.name(), labels.clone()).record(took);
        }
        counter!(Metric::Turns.name(), self.of_tenant(labels, tenant)).increment(1);
    }

    /// The first piece of an answer came.
    pub(crate) fn first_token(&self, model: &ModelRef, after: Duration) {
        histogram!(Metric::FirstToken.name(), self.model(model).labels()).record(after);
    }

    /// A request ended; `took` is known where this process saw its start.
    pub(crate) fn request(&self, model: &ModelRef, end: RequestEnd, took: Option<Duration>) {
        let model = self.model(model);
        let mut labels = model.labels();
        labels.push(Label::from_static_parts("outcome", end.name()));
        counter!(Metric::ProviderRequests.name(), labels).increment(1);
        if let Some(took) = took {
            let mut labels = model.gen_ai();
            if end != RequestEnd::Finished {
                labels.push(Label::from_static_parts("error_type", end.name()));
            }
            histogram!(Metric::GenAiDuration.name(), labels).record(took);
        }
    }

    /// What an attempt of a session with these labels used, or a call inside of its answer.
    pub(crate) fn usage(&self, tenant: &Arc<str>, labels: &Labels, used: &Used) {
        let Used { model, tokens, cost, quality, assumed } = used;
        let by_label = self.by_label.of(labels);
        let model = self.model(model);
        let quality = match quality {
            Quality::Reported => "reported",
            Quality::Estimated => "estimated",
            Quality::Unreconciled => "unreconciled",
        };
        // All of them, so that a share of none is 0 and not missing.
        for of in QUALITIES {
            for (name, is_assumed) in [("no", false), ("yes", true)] {
                let mut labels = model.labels();
                labels.push(Label::from_static_parts("quality", of));
                labels.push(Label::from_static_parts("assumed", name));
                let is_it = *of == quality && is_assumed == *assumed;
                counter!(Metric::AttemptUsage.name(), labels).increment(u64::from(is_it));
            }
        }
        let cache_write = tokens.cache_writes();
        for (class, count) in [
            ("input", tokens.input),
            ("cache_read", tokens.cache_read),
            ("cache_write", cache_write),
            ("output", tokens.output),
            ("reasoning", tokens.reasoning),
        ] {
            let mut labels = model.labels();
            labels.push(Label::from_static_parts("class", class));
            labels.extend_from_slice(&by_label);
            counter!(Metric::Tokens.name(), self.of_tenant(labels, tenant)).increment(count);
        }
        if let Some(dollars) = cost.and_then(|cost| cost.0.to_f64()) {
            let labels = [model.labels(), by_label].concat();
            histogram!(Metric::AttemptCost.name(), self.of_tenant(labels, tenant)).record(dollars);
        }
        for (metric, count) in [
            (Metric::GenAiInput, tokens.all_input()),
            (Metric::GenAiOutput, tokens.all_output()),
            (Metric::GenAiCacheRead, tokens.cache_read),
            (Metric::GenAiCacheWrite, cache_write),
            (Metric::GenAiReasoning, tokens.reasoning),
        ] {
            let mut labels = model.gen_ai();
            labels.push(Label::from_static_parts("gen_ai_token_modality", "unknown"));
            counter!(metric.name(), labels).increment(count);
        }
    }

    /// A step's attempt failed and is made again.
    pub(crate) fn retry(&self, model: &ModelRef, code: ErrorCode) {
        let labels = vec![
            Label::new("provider", self.model(model).provider),
            Label::from_static_parts("reason", code.name()),
        ];
        counter!(Metric::Retries.name(), labels).increment(1);
    }
}

/// A call has its result. A tool that there is not is none that has a series.
pub(crate) fn tool_call(tool: Option<&str>, outcome: &'static str) {
    let tool = tool.unwrap_or(OTHER).to_owned();
    counter!(Metric::ToolCalls.name(), "tool" => tool, "outcome" => outcome).increment(1);
}

/// A call ran for so long.
pub(crate) fn tool_ran(tool: &str, took: Duration) {
    histogram!(Metric::ToolDuration.name(), "tool" => tool.to_owned()).record(took);
}

#[allow(clippy::cast_precision_loss, reason = "a size may be off by one in 2^53")]
fn number(bytes: u64) -> f64 {
    bytes as f64
}

/// How calls end, as metrics and traces name it.
pub(crate) const fn outcome(outcome: CallOutcome) -> &'static str {
    match outcome {
        CallOutcome::Done => "done",
        CallOutcome::Failed => "failed",
        CallOutcome::Declined => "declined",
        CallOutcome::Cancelled => "cancelled",
        CallOutcome::Interrupted => "interrupted",
        CallOutcome::Crashed => "crashed",
    }
}

/// A request for consent is over.
pub(crate) fn consent(answer: &'static str, open: Option<Duration>) {
    if let Some(open) = open {
        histogram!(Metric::ConsentWait.name(), "answer" => answer).record(open);
    }
}

/// A session left memory.
pub(crate) fn left(why: Leaving) {
    counter!(Metric::Evictions.name(), "reason" => EVICTION_REASONS[why as usize]).increment(1);
}

/// Something that has no labels took so long.
pub(crate) fn took(metric: Metric, time: Duration) {
    histogram!(metric.name()).record(time);
}

/// Something that has no labels happened.
pub(crate) fn happened(metric: Metric) {
    counter!(metric.name()).increment(1);
}

/// A subscriber fell behind.
pub(crate) fn resync(stream: &'static str) {
    counter!(Metric::EventResyncs.name(), "stream" => stream).increment(1);
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::metric::SUSPENSION_REASONS;

    use super::*;

    #[test]
    fn models_beyond_the_bound_share_a_series() {
        let measures = Measures::default();
        let named = |number: usize| measures.model(&ModelRef::new("p", format!("m{number}")));
        for count in 0..MOST_MODELS {
            assert_eq!(*named(count).model, format!("m{count}"));
        }
        let beyond = named(MOST_MODELS);
        assert_eq!((&*beyond.provider, &*beyond.model), (OTHER, OTHER));
        assert_eq!(&*named(3).model, "m3");
    }

    #[test]
    fn values_of_labels_beyond_the_bound_share_a_series() {
        let series = LabelSeries::new(vec!["customer".to_owned(), "cost-centre".to_owned()]);
        let of = |customer: &str| {
            let labels = series.of(&[("customer".to_owned(), customer.to_owned())].into());
            labels.iter().map(|label| format!("{}={}", label.key(), label.value())).collect::<Vec<_>>()
        };
        for number in 0..MOST_LABEL_VALUES {
            assert_eq!(
                of(&number.to_string()),
                [format!("label_customer={number}"), "label_cost_centre=".to_owned()]
            );
        }
        assert_eq!(of("more"), ["label_customer=other", "label_cost_centre=other"]);
        assert_eq!(of("7"), ["label_customer=7", "label_cost_centre="]);
        assert!(LabelSeries::default().of(&[("customer".to_owned(), "1".to_owned())].into()).is_empty());
    }

    #[test]
    fn reasons_of_a_suspended_store_are_named_as_it_names_them() {
        let names = playhouse_store::SuspensionReason::ALL.map(playhouse_store::SuspensionReason::name);
        assert_eq!(names, SUSPENSION_REASONS);
    }

    #[test]
    fn the_tenant_is_a_label_only_where_it_is_wanted() {
        let tenant: Arc<str> = "acme".into();
        assert!(Measures::new(false, Vec::new()).of_tenant(Vec::new(), &tenant).is_empty());
        let labels = Measures::new(true, Vec::new()).of_tenant(Vec::new(), &tenant);
        assert_eq!((labels[0].key(), labels[0].value()), (TENANT, "acme"));
    }

    #[test]
    fn providers_have_the_names_that_opentelemetry_gives_them() {
        let name = |provider: &str| gen_ai_provider(&provider.into()).into_owned();
        assert_eq!(
            ["google", "xai", "anthropic", "mine"].map(name),
            ["gcp.gemini", "x_ai", "anthropic", "mine"]
        );
    }
}
