//! The shapes in which providers report usage, as models of the script.

use mock_llm::{
    Cut, Entry, Fault, InnerCall, Model, Moment, Reports, Script, Step, Told, UsageOverride, reasoning, text,
};
use playhouse::protocol::usage::Tokens;
use serde_json::{Value, json};

use super::TEXT;

/// Factors of ways of service, in every model.
pub(super) const MULTIPLES: [(&str, &str); 3] = [("flex", "0.5"), ("fast", "2"), ("us", "1.1")];
/// What the names of models begin with that report usage objects as they are.
const OBJECT: &str = "object-";
/// Counts of all lifetimes of caches. Formats that lack one report it as input.
const LIFETIMES: UsageOverride = UsageOverride {
    input: Some(4_001),
    cache_read: Some(70),
    cache_write: Some(300),
    cache_write_30m: Some(500),
    cache_write_1h: Some(700),
    cache_write_12h: Some(1_100),
    output: Some(180),
    reasoning: Some(50),
    total: None,
};

/// Whether a model is one of these.
pub(super) fn is_shape(model: &str) -> bool {
    model.starts_with("shape-") || model.starts_with(OBJECT)
}

/// Whether some figures of an answer contradict each other or are not known.
pub(super) fn is_in_doubt(model: &str, dialect: &str) -> bool {
    match model {
        // Responses reports once.
        "shape-taken-back" => dialect != "openai-responses",
        // Its stream begins with one token of output, and zeros follow.
        "shape-nulls" => dialect == "anthropic",
        model => model == "object-unknown",
    }
}

/// The models with these shapes.
pub(super) fn models(script: Script) -> Script {
    let said = || reasoning("Hm.").text(TEXT).usage(LIFETIMES);
    let cycle = |step: Step| Model::new().step(step).cycle();
    let call = |kind: &str, model: Option<&str>, input, output| InnerCall {
        kind: kind.to_owned(),
        model: model.map(str::to_owned),
        tokens: Tokens { input, cache_read: 7, output, ..Tokens::default() },
    };
    let calls = |calls: Vec<InnerCall>| Reports { calls, ..Reports::default() };
    let told = |told: &[Told]| Reports { told: told.to_vec(), ..Reports::default() };
    let compaction = || call("compaction", None, 90_000, 400);
    let within = || calls(vec![compaction(), call("advisor_message", Some("plain"), 800, 30)]);
    let fallback = vec![call("message", None, 500, 3), call("fallback_message", Some("plain"), 1, 1)];
    let served = Reports {
        tier: Some("flex".to_owned()),
        speed: Some("fast".to_owned()),
        region: Some("us".to_owned()),
        ..Reports::default()
    };
    let cut = text(TEXT)
        .call("list", json!({"path": "."}))
        .usage(LIFETIMES)
        .fault(Fault::cut(Moment::InText, Cut::Reset))
        .fail_first(1);
    let script = script
        .model("shape-lifetimes", cycle(said()))
        .model("shape-within", cycle(said().reports(within())))
        .model("shape-fallback", cycle(said().reports(calls(fallback))))
        .model("shape-served", cycle(said().reports(served)))
        .model("shape-larger", cycle(said().reports(told(&[Told::Half, Told::Counts]))))
        .model("shape-split", cycle(said().reports(told(&[Told::Unsplit, Told::Counts, Told::NoLifetimes]))))
        .model("shape-nulls", cycle(said().reports(told(&[Told::Zeros, Told::Counts, Told::Nulls]))))
        .model("shape-taken-back", cycle(said().reports(told(&[Told::Counts, Told::Zeros]))))
        .model("shape-cut", Model::new().step(cut).step(said().reports(within())).cycle());
    objects().into_iter().fold(script, |script, (name, counts, object)| {
        let reports = Reports { object: object.as_object().cloned(), ..Reports::default() };
        script.model(format!("{OBJECT}{name}"), cycle(text(TEXT).usage(counts).reports(reports)))
    })
}

/// Usage objects of providers and gateways, each with what it says under any provider.
fn objects() -> Vec<(&'static str, UsageOverride, Value)> {
    let counts = |input, cache_read, output, reasoning| UsageOverride {
        input: Some(input),
        cache_read: Some(cache_read),
        cache_write: Some(0),
        output: Some(output),
        reasoning: Some(reasoning),
        ..UsageOverride::default()
    };
    let short = |short, long, counts| UsageOverride {
        cache_write: Some(short),
        cache_write_1h: Some(long),
        ..counts
    };
    let chat = |details: Value| json!({"prompt_tokens": 100, "completion_tokens": 25, "total_tokens": 125, "prompt_tokens_details": details});
    let ephemeral = json!({"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20});
    let long =
        UsageOverride { cache_write_30m: Some(10), cache_write_12h: Some(20), ..counts(20, 50, 20, 5) };
    vec![
        (
            "chat",
            counts(40, 60, 20, 5),
            json!({"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 60, "audio_tokens": 3},
                "completion_tokens": 25, "total_tokens": 125, "completion_tokens_details":
                {"reasoning_tokens": 5, "accepted_prediction_tokens": 1}}),
        ),
        (
            "responses",
            long,
            json!({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 50, "cache_write_tokens": 30,
                "cache_write_tokens_details": {"ttl_30m_tokens": 10, "ttl_12h_tokens": 20}},
                "output_tokens": 25, "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 125}),
        ),
        (
            "messages",
            short(10, 20, counts(20, 50, 20, 5)),
            json!({"input_tokens": 20, "cache_read_input_tokens": 50, "cache_creation_input_tokens": 30,
                "cache_creation": ephemeral, "output_tokens": 25,
                "output_tokens_details": {"thinking_tokens": 5}, "total_tokens": 125}),
        ),
        (
            "gemini",
            counts(47, 60, 20, 5),
            json!({"promptTokenCount": 100, "cachedContentTokenCount": 60, "toolUsePromptTokenCount": 7,
                "candidatesTokenCount": 20, "thoughtsTokenCount": 5, "totalTokenCount": 132,
                "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 100}],
                "cacheTokensDetails": [{"modality": "TEXT", "tokenCount": 60}]}),
        ),
        (
            "live",
            counts(100, 0, 25, 0),
            json!({"promptTokenCount": 100, "responseTokenCount": 25, "totalTokenCount": 125}),
        ),
        (
            "deepseek",
            counts(40, 60, 25, 0),
            json!({"prompt_tokens": 100, "prompt_cache_hit_tokens": 60, "prompt_cache_miss_tokens": 40,
                "completion_tokens": 25, "total_tokens": 125}),
        ),
        (
            "litellm",
            short(10, 20, counts(20, 50, 25, 0)),
            chat(json!({"cache_read_tokens": 50, "cache_creation_tokens": 30,
                "cache_creation_token_details": ephemeral})),
        ),
        (
            "model-studio",
            short(10, 20, counts(20, 50, 25, 0)),
            chat(
                json!({"cached_tokens": 50, "cache_creation_input_tokens": 30, "cache_creation": ephemeral}),
            ),
        ),
        (
            "moonshot",
            counts(40, 60, 25, 0),
            json!({"prompt_tokens": 100, "cached_tokens": 60, "completion_tokens": 25, "total_tokens": 125}),
        ),
        (
            "sakana",
            counts(51, 64, 31, 0),
            json!({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 60,
                "orchestration_input_tokens": 11, "orchestration_input_cached_tokens": 4}, "output_tokens": 25,
                "output_tokens_details": {"orchestration_output_tokens": 6}, "total_tokens": 146}),
        ),
        (
            "floats",
            counts(100, 0, 25, 0),
            json!({"prompt_tokens": 100.0, "completion_tokens": 25.0, "total_tokens": 125.0, "cost": 0.0123}),
        ),
        (
            "unknown",
            counts(100, 0, 25, 0),
            json!({"prompt_tokens": 100, "completion_tokens": 25, "total_tokens": 125, "dream_tokens": 7}),
        ),
    ]
}

/// What an answer that was told to its end used: its model, and in calls inside of it others. Worked out from the journal
/// without anything of the engine.
pub(super) fn told_apart(entry: &Entry, reported: Tokens) -> (Tokens, Vec<(&str, Tokens)>) {
    let calls = entry.reports.as_ref().map(|reports| &reports.calls[..]).unwrap_or_default();
    let fallback = calls.iter().find(|call| call.kind == "fallback_message");
    let (mut own, mut others) = match fallback {
        Some(call) => (Tokens::default(), vec![(call.model.as_deref().unwrap(), reported)]),
        None => (reported, Vec::new()),
    };
    for call in calls {
        match (&*call.kind, call.model.as_deref()) {
            ("fallback_message", _) => {}
            ("message", _) if fallback.is_none() => {}
            (_, Some(model)) => others.push((model, call.tokens)),
            (_, None) => own += call.tokens,
        }
    }
    (own, others)
}

/// Ways of service that an answer names.
pub(super) fn served(entry: &Entry) -> Vec<String> {
    let Some(reports) = &entry.reports else { return Vec::new() };
    [&reports.tier, &reports.speed, &reports.region].into_iter().flatten().cloned().collect()
}
