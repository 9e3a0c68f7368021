//! The names of what is measured: every metric that this engine writes, with its kind, its unit, its labels and its help.
//!
//! The table is the only place where a metric has a name. Whoever measures writes `Metric::Turns.name()`; the product makes
//! descriptions and buckets from it, and a test compares it with what a server really writes. It is data only: who records
//! and who exports is not known here.
//!
//! Names follow Prometheus: base units (seconds, bytes, dollars), counters end in `_total`, and everything of the engine
//! begins with `playhouse_`. Two groups keep the names by which the world knows them: `gen_ai_*` (OpenTelemetry's
//! conventions for generative AI) and `process_*` (what client libraries of Prometheus say of their process).
//!
//! Labels are few and their values bounded: either all of them stand here, or they come from a set that the operator
//! decides on (models, tools, routes), and what is beyond that set is [`OTHER`]. No label ever holds the id of a session.

/// The value of a label for all that is beyond the values that are kept apart.
pub const OTHER: &str = "other";

/// What a metric measures, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// It only grows, by whole numbers.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Values sorted into buckets; these are the upper bounds of the buckets.
    Histogram(&'static [f64]),
}

/// What the values of a metric are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    Count,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// US dollars.
    Dollars,
}

/// A label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// All its values; empty for one whose values are not known here, though bounded.
    pub values: &'static [&'static str],
}

/// Everything about a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    /// The metric.
    pub metric: Metric,
    /// Its name, as Prometheus reads it.
    pub name: &'static str,
    /// What it measures, and how.
    pub kind: Kind,
    /// What its values are.
    pub unit: Unit,
    /// Its labels.
    pub labels: &'static [Label],
    /// Whether the operator may have it by tenant as well, in a label of its own: [`TENANT`].
    pub by_tenant: bool,
    /// What it tells, for people.
    pub help: &'static str,
}

/// The label of the tenant, which an operator has to ask for.
pub const TENANT: &str = "tenant";

/// What a label of usage is called in metrics, which know letters, digits and underscores only.
///
/// ```
/// assert_eq!(playhouse_protocol::metric::label_name("cost-centre"), "label_cost_centre");
/// ```
pub fn label_name(name: &str) -> String {
    let plain = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    "label_".chars().chain(plain).collect()
}

/// What happens within a store and an engine: from a tenth of a millisecond to seconds.
const QUICK: &[f64] =
    &[0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];
/// Answers to clients.
const ANSWERS: &[f64] = &[0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
/// Work: from a call that reads a file to a turn that takes an hour.
const WORK: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0,
    3_600.0,
];
/// Requests to models, as OpenTelemetry's conventions want them.
const MODELS: &[f64] =
    &[0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// Money for one request.
const MONEY: &[f64] =
    &[0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// What a session does that has a place in memory.
pub const SESSION_STATES: &[&str] = &["idle", "running", "asking", "waking", "parked", "asleep", "suspended"];
/// Why the store takes no writes.
pub const SUSPENSION_REASONS: &[&str] = &["full", "read-only", "failed", "damaged", "replaced"];
/// Why sessions leave memory.
pub const EVICTION_REASONS: &[&str] = &["idle", "room"];
/// How turns end.
pub const TURN_OUTCOMES: &[&str] = &["completed", "aborted", "max-steps", "failed"];
/// Classes of tokens. Each token is in one.
pub const TOKEN_CLASSES: &[&str] = &["input", "cache_read", "cache_write", "output", "reasoning"];
/// How a request for consent ends.
pub const CONSENT_ANSWERS: &[&str] =
    &["once", "always", "covered", "declined", "timed_out", "unattended", "withdrawn"];
/// The engine's own actors and threads that others send to.
pub const MAILBOXES: &[&str] = &["supervisor", "metering", "store"];
/// Pools of threads for work that blocks.
pub const POOLS: &[&str] = &["engine", "tools"];
/// Kinds of streams of events.
pub const STREAMS: &[&str] = &["session", "tenant"];
/// What becomes of entries of the ledger at a sink.
pub const SINK_OUTCOMES: &[&str] = &["delivered", "refused"];
/// What sinks answer to requests.
pub const SINK_ANSWERS: &[&str] = &["accepted", "refused", "busy", "misconfigured"];
/// How far the counts of an attempt can be trusted.
pub const QUALITIES: &[&str] = &["reported", "estimated", "unreconciled"];
/// What budgets are of.
pub const BUDGETS: &[&str] = &["turn", "session", "tenant"];
/// Limits of tenants.
pub const LIMITS: &[&str] = &[
    "sessions",
    "running_turns",
    "tokens_per_minute",
    "spend_per_day",
    "subscribers",
    "questions",
    "storage",
];
/// What takes up storage of tenants.
pub const STORAGE_KINDS: &[&str] = &["outputs", "homes", "attachments", "undo"];

const MODEL: [Label; 2] = [open("provider"), open("model")];
const GEN_AI: [Label; 4] = [
    closed("gen_ai_operation_name", &["chat"]),
    open("gen_ai_provider_name"),
    open("gen_ai_request_model"),
    closed("gen_ai_token_modality", &["unknown"]),
];

/// A label whose values are bounded by what the operator decides on.
const fn open(name: &'static str) -> Label {
    Label { name, values: &[] }
}

/// A label whose values stand here.
const fn closed(name: &'static str, values: &'static [&'static str]) -> Label {
    Label { name, values }
}

macro_rules! metrics {
    ($($name:ident = $text:literal, $kind:expr, $unit:ident, $labels:expr, $by_tenant:literal, $help:literal;)*) => {
        /// Everything that is measured.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Metric {
            $(#[doc = concat!("`", $text, "`: ", $help)] $name,)*
        }

        impl Metric {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its name, as Prometheus reads it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// Everything about it.
            pub const fn facts(self) -> Facts {
                match self {
                    $(Self::$name => {
                        const LABELS: &[Label] = $labels;
                        Facts {
                            metric: self,
                            name: $text,
                            kind: $kind,
                            unit: Unit::$unit,
                            labels: LABELS,
                            by_tenant: $by_tenant,
                            help: $help,
                        }
                    })*
                }
            }
        }
    };
}

metrics! {
    Sessions = "playhouse_sessions", Kind::Gauge, Count, &[closed("state", SESSION_STATES)], false,
        "Sessions with a place in memory, by what they do. Those that are idle, running or asking are live; of one that is asleep only its events are there, since somebody follows them; one that is suspended goes on when the store takes writes again.";
    SessionsCreated = "playhouse_sessions_created_total", Kind::Counter, Count, &[], false,
        "Sessions that were created.";
    SessionCrashes = "playhouse_session_crashes_total", Kind::Counter, Count, &[], false,
        "Actors of sessions that crashed. Each is a bug; the session comes back from its log.";
    Evictions = "playhouse_session_evictions_total", Kind::Counter, Count, &[closed("reason", EVICTION_REASONS)], false,
        "Sessions that left memory: they had nothing to do for long (idle), or there were too many (room). They wake when somebody asks for them.";
    WakeDuration = "playhouse_session_wake_duration_seconds", Kind::Histogram(QUICK), Seconds, &[], false,
        "How long it took to read a session from its log, from the request on.";
    Turns = "playhouse_turns_total", Kind::Counter, Count, &[closed("outcome", TURN_OUTCOMES)], true,
        "Turns that ended, by outcome.";
    TurnDuration = "playhouse_turn_duration_seconds", Kind::Histogram(WORK), Seconds,
        &[closed("outcome", TURN_OUTCOMES)], false,
        "How long turns took from their start to their end, waiting for people included.";
    StepDuration = "playhouse_step_duration_seconds", Kind::Histogram(WORK), Seconds, &[], false,
        "How long steps took from their first attempt to their answer, waits between attempts included and calls not.";
    FirstToken = "playhouse_time_to_first_token_seconds", Kind::Histogram(MODELS), Seconds, &MODEL, false,
        "How long it took from a request to a model until the first piece of its answer.";
    Tokens = "playhouse_tokens_total", Kind::Counter, Count,
        &[MODEL[0], MODEL[1], closed("class", TOKEN_CLASSES)], true,
        "Tokens that attempts used, each in one class. The share of input that caches answered is cache_read over input, cache_read and cache_write.";
    AttemptCost = "playhouse_attempt_cost_dollars", Kind::Histogram(MONEY), Dollars, &MODEL, true,
        "What attempts cost, in US dollars, where the price is known. Its sum is what was spent.";
    AttemptUsage = "playhouse_attempt_usage_total", Kind::Counter, Count,
        &[MODEL[0], MODEL[1], closed("quality", QUALITIES), closed("assumed", &["no", "yes"])], false,
        "Attempts that used tokens, by how far their counts can be trusted, and whether a price or a factor was assumed for them.";
    ProviderRequests = "playhouse_provider_requests_total", Kind::Counter, Count,
        &[MODEL[0], MODEL[1], open("outcome")], false,
        "Requests to providers that ended: finished, aborted, lost (the process ended), or the class of the error.";
    ProviderWaiting = "playhouse_provider_requests_waiting", Kind::Gauge, Count, &[], false,
        "Requests to providers that wait until the limits of their key allow them.";
    Retries = "playhouse_retries_total", Kind::Counter, Count, &[open("provider"), open("reason")], false,
        "Attempts that failed and are made again, by the class of the error.";
    ToolCalls = "playhouse_tool_calls_total", Kind::Counter, Count, &[open("tool"), open("outcome")], false,
        "Calls of tools that have their result, by outcome.";
    ToolDuration = "playhouse_tool_duration_seconds", Kind::Histogram(WORK), Seconds, &[open("tool")], false,
        "How long calls ran, without what came before: reading their arguments and waiting for consent.";
    McpProcesses = "playhouse_mcp_processes", Kind::Gauge, Count, &[open("server")], false,
        "Processes of servers of tools that run; `workspace` stands for all that workspaces declare.";
    McpMemory = "playhouse_mcp_memory_bytes", Kind::Gauge, Bytes, &[open("server")], false,
        "Memory of those processes. What they share is counted for each.";
    McpProcessor = "playhouse_mcp_processor_seconds", Kind::Gauge, Seconds, &[open("server")], false,
        "Processor time that those processes have used since they were started.";
    LspServers = "playhouse_lsp_servers", Kind::Gauge, Count, &[open("server")], false,
        "Language servers that run.";
    LspMemory = "playhouse_lsp_memory_bytes", Kind::Gauge, Bytes, &[open("server")], false,
        "Memory of their processes. What they share is counted for each.";
    LspWait = "playhouse_lsp_wait_seconds", Kind::Histogram(WORK), Seconds, &[open("server")], false,
        "How long edits waited for a language server, before and after they wrote.";
    ToolProcesses = "playhouse_tool_processes", Kind::Gauge, Count, &[], false,
        "Commands that tools have running, in the background ones included. Each is a tree of processes.";
    Children = "playhouse_children", Kind::Gauge, Count, &[], false,
        "Actors of steps and calls at work.";
    ConsentsWaiting = "playhouse_consents_waiting", Kind::Gauge, Count, &[], false,
        "Requests for consent that wait for people.";
    ConsentWait = "playhouse_consent_wait_seconds", Kind::Histogram(WORK), Seconds,
        &[closed("answer", CONSENT_ANSWERS)], false,
        "How long requests for consent were open, by how they ended.";
    QuestionsWaiting = "playhouse_questions_waiting", Kind::Gauge, Count, &[], false,
        "Requests with questions of models that wait for people.";
    MailboxDepth = "playhouse_mailbox_depth", Kind::Gauge, Count, &[closed("mailbox", MAILBOXES)], false,
        "Messages that the engine's own actors, and the writer of the store, have not begun with.";
    PoolRunning = "playhouse_pool_running", Kind::Gauge, Count, &[closed("pool", POOLS)], false,
        "Pieces of blocking work that run.";
    PoolWaiting = "playhouse_pool_waiting", Kind::Gauge, Count, &[closed("pool", POOLS)], false,
        "Pieces of blocking work that wait their turn.";
    EventLag = "playhouse_event_lag_seconds", Kind::Histogram(QUICK), Seconds, &[], false,
        "How long it took from the making of a record until its event was published: the flush and the way to it.";
    EventResyncs = "playhouse_event_resyncs_total", Kind::Counter, Count, &[closed("stream", STREAMS)], false,
        "Subscribers that fell behind and were told to begin anew, by kind of stream.";
    LogAppend = "playhouse_log_append_duration_seconds", Kind::Histogram(QUICK), Seconds, &[], false,
        "How long appends took until they were durable, as sessions see it.";
    StoreSuspended = "playhouse_store_suspended", Kind::Gauge, Count, &[closed("reason", SUSPENSION_REASONS)], false,
        "1 while the store takes no writes for this reason, so that new prompts are refused; it goes on by itself.";
    OutputBytes = "playhouse_output_bytes", Kind::Gauge, Bytes, &[], false,
        "Bytes of saved outputs of all sessions, as they were counted last.";
    StorageBytes = "playhouse_storage_bytes", Kind::Gauge, Bytes, &[closed("kind", STORAGE_KINDS)], true,
        "Bytes that tenants take up: saved outputs of their sessions, homes of their commands, attachments, contents of files that are kept for undo.";
    DataFree = "playhouse_data_free_bytes", Kind::Gauge, Bytes, &[], false,
        "Bytes that are free on the file system of the data directory.";
    DataSize = "playhouse_data_size_bytes", Kind::Gauge, Bytes, &[], false,
        "Size of the file system of the data directory, in bytes.";
    TenantsSuspended = "playhouse_tenants_suspended", Kind::Gauge, Count, &[], false,
        "Tenants whose sessions are suspended, since they hold much of a data directory with less than 5 % free.";
    LogFlush = "playhouse_log_flush_duration_seconds", Kind::Histogram(QUICK), Seconds, &[], false,
        "How long the store took to write and flush one batch.";
    LedgerUnreadable = "playhouse_ledger_unreadable_total", Kind::Counter, Count, &[], false,
        "Entries of the ledger that cannot be read, each counted once: sinks and archives pass over them, `playhouse store check` names them.";
    Refused = "playhouse_refused_total", Kind::Counter, Count, &[closed("limit", LIMITS)], false,
        "Requests that were refused because their tenant has reached a limit.";
    BudgetRefusals = "playhouse_budget_refusals_total", Kind::Counter, Count, &[closed("budget", BUDGETS)], false,
        "Steps that were not made because a budget did not cover them, by the first budget that did not.";
    BudgetWaiting = "playhouse_budget_steps_waiting", Kind::Gauge, Count, &[], false,
        "Steps that wait until others have settled what is reserved of a budget.";
    BudgetReserved = "playhouse_budget_reserved_dollars", Kind::Gauge, Dollars, &[], false,
        "Money that is reserved of budgets for steps under way, in US dollars.";
    HttpRequests = "playhouse_http_requests_total", Kind::Counter, Count,
        &[open("route"), open("method"), open("status")], false,
        "Requests of clients that were answered, by the template of their route.";
    HttpDuration = "playhouse_http_request_duration_seconds", Kind::Histogram(ANSWERS), Seconds,
        &[open("route"), open("method")], false,
        "How long it took from the head of a request until the head of its answer. Streams go on after that.";
    Streams = "playhouse_streams_open", Kind::Gauge, Count, &[], false,
        "Streams of events that clients have open.";
    Connections = "playhouse_connections_open", Kind::Gauge, Count, &[], false,
        "Connections of clients.";
    SinkLagRows = "playhouse_sink_lag_rows", Kind::Gauge, Count, &[open("sink")], false,
        "Entries of the ledger that a sink has neither taken nor refused: rows, and ends of turns.";
    SinkLagTime = "playhouse_sink_lag_seconds", Kind::Gauge, Seconds, &[open("sink")], false,
        "How old the first entry of the ledger is that waits for a sink; 0 where none does.";
    SinkRows = "playhouse_sink_rows_total", Kind::Counter, Count,
        &[open("sink"), closed("outcome", SINK_OUTCOMES)], false,
        "Rows (or reports of turns) that a sink took, those that it was sent again counted again, or refused for good.";
    SinkRequests = "playhouse_sink_requests_total", Kind::Counter, Count,
        &[open("sink"), closed("answer", SINK_ANSWERS)], false,
        "Batches that were sent to sinks, by the answer; for a sink of reports requests, and for one of files writes.";
    SinkDeadLetters = "playhouse_sink_dead_letters", Kind::Gauge, Count, &[open("sink")], false,
        "Rows (or reports of turns) that a sink refused for good, and that wait for people.";
    BuildInfo = "playhouse_build_info", Kind::Gauge, Count, &[open("version")], false,
        "1, with the version of the engine.";
    GenAiInput = "gen_ai_client_inference_usage_input_tokens_total", Kind::Counter, Count, &GEN_AI, false,
        "Input tokens, cached ones included (OpenTelemetry).";
    GenAiOutput = "gen_ai_client_inference_usage_output_tokens_total", Kind::Counter, Count, &GEN_AI, false,
        "Output tokens, reasoning included (OpenTelemetry).";
    GenAiCacheRead = "gen_ai_client_inference_usage_cache_read_input_tokens_total", Kind::Counter, Count, &GEN_AI, false,
        "Input tokens that were read from a cache (OpenTelemetry).";
    GenAiCacheWrite = "gen_ai_client_inference_usage_cache_write_input_tokens_total", Kind::Counter, Count, &GEN_AI,
        false, "Input tokens that were written to a cache (OpenTelemetry).";
    GenAiReasoning = "gen_ai_client_inference_usage_reasoning_output_tokens_total", Kind::Counter, Count, &GEN_AI, false,
        "Output tokens that are reasoning (OpenTelemetry).";
    GenAiDuration = "gen_ai_client_operation_duration_seconds", Kind::Histogram(MODELS), Seconds,
        &[GEN_AI[0], GEN_AI[1], GEN_AI[2], open("error_type")], false,
        "How long requests to models took (OpenTelemetry). Those that failed have the label error_type.";
    ProcessCpu = "process_cpu_seconds_total", Kind::Counter, Seconds, &[], false,
        "Processor time of this process, user and system.";
    ProcessResident = "process_resident_memory_bytes", Kind::Gauge, Bytes, &[], false,
        "Memory of this process that is in RAM.";
    ProcessVirtual = "process_virtual_memory_bytes", Kind::Gauge, Bytes, &[], false,
        "Address space of this process.";
    ProcessFiles = "process_open_fds", Kind::Gauge, Count, &[], false,
        "File descriptors that this process has open.";
    ProcessMostFiles = "process_max_fds", Kind::Gauge, Count, &[], false,
        "File descriptors that this process may have open.";
    ProcessStart = "process_start_time_seconds", Kind::Gauge, Seconds, &[], false,
        "When this process was started, in seconds since 1970.";
    ProcessThreads = "process_threads", Kind::Gauge, Count, &[], false,
        "Threads of this process.";
}

impl Facts {
    /// Every combination of the values of its labels, where all of them stand here: one list of values for each, in the
    /// order of `labels`. `None` where some do not.
    pub fn combinations(&self) -> Option<Vec<Vec<&'static str>>> {
        let mut all = vec![Vec::new()];
        for label in self.labels {
            if label.values.is_empty() {
                return None;
            }
            all = all
                .iter()
                .flat_map(|before: &Vec<&'static str>| {
                    label.values.iter().map(|value| before.iter().copied().chain([*value]).collect())
                })
                .collect();
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_as_prometheus_wants_them() {
        let mut names = HashSet::new();
        for facts in Metric::ALL.iter().map(|metric| metric.facts()) {
            let name = facts.name;
            assert!(names.insert(name), "{name} is there twice");
            let fits = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(name.chars().all(fits), "{name}");
            let known = ["playhouse_", "gen_ai_client_", "process_"];
            assert!(known.iter().any(|prefix| name.starts_with(prefix)), "{name}");
            assert_eq!(name.ends_with("_total"), facts.kind == Kind::Counter, "{name}");
            let base = name.trim_end_matches("_total");
            match facts.unit {
                Unit::Seconds => assert!(base.ends_with("_seconds"), "{name}"),
                Unit::Bytes => assert!(base.ends_with("_bytes"), "{name}"),
                Unit::Dollars => assert!(base.ends_with("_dollars"), "{name}"),
                Unit::Count => assert!(!base.ends_with("_seconds") && !base.ends_with("_bytes"), "{name}"),
            }
            assert!(facts.help.ends_with('.') || facts.help.ends_with(')'), "{name}");
        }
    }

    #[test]
    fn labels_are_few_and_never_of_a_session() {
        for facts in Metric::ALL.iter().map(|metric| metric.facts()) {
            assert!(facts.labels.len() <= 4, "{}", facts.name);
            for label in facts.labels {
                let forbidden = ["session", "turn", "step", "message", "id", "le", "quantile", TENANT];
                assert!(!forbidden.contains(&label.name), "{}: {}", facts.name, label.name);
            }
        }
    }

    #[test]
    fn buckets_ascend() {
        for facts in Metric::ALL.iter().map(|metric| metric.facts()) {
            if let Kind::Histogram(buckets) = facts.kind {
                assert!(!buckets.is_empty() && buckets.is_sorted_by(|a, b| a < b), "{}", facts.name);
            }
        }
    }

    #[test]
    fn the_series_of_closed_labels_are_known() {
        assert_eq!(Metric::SessionsCreated.facts().combinations(), Some(vec![vec![]]));
        let turns = Metric::Turns.facts().combinations().unwrap();
        assert_eq!(turns.iter().flatten().copied().collect::<Vec<_>>(), TURN_OUTCOMES);
        assert_eq!(Metric::Tokens.facts().combinations(), None);
    }
}
