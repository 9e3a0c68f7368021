//! Usage objects of providers, and what becomes of them in the ledger: worked examples in each dialect.

use mock_llm::Model;
use playhouse::protocol::ledger::Purpose;
use playhouse::protocol::usage::Quality;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::stage::Stage;
use crate::tap::Tap;
use crate::usage::rows;

/// An answer as it stands on the wire, whose text is `fine`, with this usage.
fn answer(provider: &str, model: &str, usage: &Value, service_tier: Option<&str>) -> String {
    let event = |kind: &str, mut data: Value| {
        data["type"] = json!(kind);
        format!("event: {kind}\ndata: {data}\n\n")
    };
    let body = match provider {
        "openai" => {
            let text = json!({"type": "message", "id": "msg_1", "role": "assistant",
                "content": [{"type": "output_text", "text": "fine"}]});
            let response = json!({"model": model, "status": "completed", "output": [text], "usage": usage,
                "service_tier": service_tier});
            event("response.completed", json!({"response": response}))
        }
        "anthropic" => {
            let delta = json!({"index": 0, "delta": {"type": "text_delta", "text": "fine"}});
            [
                event("message_start", json!({"message": {"model": model, "usage": {"output_tokens": 1}}})),
                event(
                    "content_block_start",
                    json!({"index": 0, "content_block": {"type": "text", "text": ""}}),
                ),
                event("content_block_delta", delta),
                event("content_block_stop", json!({"index": 0})),
                event("message_delta", json!({"delta": {"stop_reason": "end_turn"}, "usage": usage})),
                event("message_stop", json!({})),
            ]
            .concat()
        }
        "google" => {
            let candidate =
                json!({"content": {"role": "model", "parts": [{"text": "fine"}]}, "finishReason": "STOP"});
            format!(
                "data: {}\n\n",
                json!({"candidates": [candidate], "usageMetadata": usage, "modelVersion": model})
            )
        }
        _ => {
            let choice = json!({"index": 0, "delta": {"content": "fine"}, "finish_reason": "stop"});
            let last = json!({"choices": [], "usage": usage});
            format!(
                "data: {}\n\ndata: {last}\n\ndata: [DONE]\n\n",
                json!({"model": model, "choices": [choice]})
            )
        }
    };
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{body}")
}

#[test]
fn usage_objects_of_each_dialect_give_their_sums() {
    let responses = |input: u64, details: Value, output: u64| {
        json!({"input_tokens": input, "input_tokens_details": details, "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": input + output})
    };
    let opus = json!({"input_tokens": 1_000, "cache_read_input_tokens": 40_000, "cache_creation_input_tokens": 8_000,
        "cache_creation": {"ephemeral_5m_input_tokens": 3_000, "ephemeral_1h_input_tokens": 5_000},
        "output_tokens": 500, "service_tier": "standard"});
    let within = |calls: Value| {
        let mut usage = opus.clone();
        usage["iterations"] = calls;
        usage
    };
    let compaction = json!([{"type": "compaction", "input_tokens": 20_000, "output_tokens": 1_000}]);
    let advisor = json!([{"type": "advisor_message", "model": "claude-haiku-5-5", "input_tokens": 10_000, "output_tokens": 100}]);
    let lifetimes = json!({"cached_tokens": 0, "cache_write_tokens": 30_000,
        "cache_write_tokens_details": {"ttl_30m_tokens": 10_000, "ttl_12h_tokens": 20_000}});
    for (provider, model, usage, service_tier, dollars) in [
        (
            "openai",
            "gpt-6.1-sol",
            responses(100_000, json!({"cached_tokens": 60_000, "cache_write_tokens": 30_000}), 2_000),
            None,
            "0.121",
        ),
        (
            "openai",
            "gpt-6.1-sol",
            responses(300_000, json!({"cached_tokens": 200_000}), 1_000),
            None,
            "0.455",
        ),
        ("openai", "gpt-6-luna", responses(35_000, lifetimes, 1_000), None, "0.00725"),
        (
            "openai",
            "gpt-5.5",
            responses(100_000, json!({"cached_tokens": 80_000}), 3_000),
            Some("flex"),
            "0.115",
        ),
        ("anthropic", "claude-opus-5-5", opus.clone(), None, "0.077"),
        ("anthropic", "claude-opus-5-5", within(compaction), None, "0.177"),
        ("anthropic", "claude-opus-5-5", within(advisor), None, "0.07805"),
        (
            "anthropic",
            "claude-opus-5-5",
            json!({"input_tokens": 1_000, "output_tokens": 500, "speed": "fast", "inference_geo": "us"}),
            None,
            "0.0308",
        ),
        (
            "anthropic",
            "claude-haiku-5-5",
            json!({"input_tokens": 50_000, "cache_read_input_tokens": 60_000, "output_tokens": 1_000}),
            None,
            "0.0305",
        ),
        (
            "google",
            "gemini-3.8-flash",
            json!({"promptTokenCount": 20_000, "cachedContentTokenCount": 18_000, "toolUsePromptTokenCount": 500,
                "candidatesTokenCount": 800, "thoughtsTokenCount": 300, "totalTokenCount": 21_600}),
            None,
            "0.00735",
        ),
        (
            "deepseek",
            "deepseek-v4-pro",
            json!({"prompt_tokens": 20_000, "prompt_cache_hit_tokens": 18_000, "prompt_cache_miss_tokens": 2_000,
                "completion_tokens": 1_000, "total_tokens": 21_000}),
            None,
            "0.007392",
        ),
    ] {
        let stage = Stage::new(Model::new());
        let tap = Tap::answering(answer(provider, model, &usage, service_tier));
        let dialect = if provider == "openai" { "dialect = \"openai-responses\"\n" } else { "" };
        let version = if provider == "google" || provider == "anthropic" { "" } else { "/v1" };
        stage.configure(&format!(
            "[providers.{provider}]\n{dialect}base_url = \"{}{version}\"\napi_key_env = \"WORKED_KEY\"\n\
             [providers.{provider}.models.\"{model}\".cost.multiples]\noff_peak = 1\n",
            tap.url()
        ));
        let name = format!("{provider}/{model}");
        let mut command = stage.command(["run", "-m", &name, "Go."]);
        command.env("WORKED_KEY", "k-0123456789");
        crate::stage::finish(command).is(0);
        let rows: Vec<_> = rows(&stage).into_iter().filter(|row| row.purpose == Purpose::Turn).collect();
        let sum: Decimal = rows.iter().map(|row| row.cost.unwrap().0).sum();
        assert_eq!(sum.normalize().to_string(), dollars, "{name} {usage}: {rows:#?}");
        assert!(
            rows.iter().all(|row| row.quality == Quality::Reported && row.assumed.is_empty()),
            "{rows:#?}"
        );
        for row in &rows {
            assert_eq!(row.prices.cost(&row.tokens), row.cost, "the prices of a row give its cost");
        }
    }
}
