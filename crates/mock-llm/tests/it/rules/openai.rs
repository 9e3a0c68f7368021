//! Parameters that OpenAI's models refuse.

use mock_llm::Rules;
use serde_json::{Value, json};

use super::{answer_with, openai_error, without};
use crate::support::{Answer, CHAT, RESPONSES, chat, prompt, responses};

async fn ask_chat(model: &str, has_tools: bool, set: &Value) -> Answer {
    let request = chat(model, prompt());
    let request = if has_tools { request } else { without(request, "tools") };
    answer_with(Rules::default(), CHAT, &[], request, set).await
}

async fn ask_responses(model: &str, set: &Value) -> Answer {
    answer_with(Rules::default(), RESPONSES, &[], responses(model, prompt()), set).await
}

#[tokio::test]
async fn chat_takes_tools_by_version_and_effort() {
    let efforts = [json!({}), json!({"reasoning_effort": "none"}), json!({"reasoning_effort": "low"})];
    for (model, taken) in [
        ("gpt-4.1", [true, true, true]),
        ("gpt-5.1", [true, true, true]),
        ("gpt-5.4-mini", [true, true, false]),
        ("gpt-5.5", [true, true, false]),
        ("gpt-5.6-sol", [false, true, false]),
        ("gpt-6-sol", [false, true, false]),
        ("gpt-6.1-terra", [false, true, false]),
    ] {
        for (set, taken) in efforts.iter().zip(taken) {
            let answer = ask_chat(model, true, set).await;
            assert_eq!(answer.status, if taken { 200 } else { 400 }, "{model} {set}");
            if !taken {
                let message = format!(
                    "Function tools with reasoning_effort are not supported for {model} in /v1/chat/completions. \
                     Please use /v1/responses instead."
                );
                assert_eq!(answer.json(), openai_error(&message, Some("reasoning_effort"), None));
            }
            assert_eq!(ask_chat(model, false, set).await.status, 200, "{model} {set} without tools");
        }
    }
    for model in ["gpt-6-astra", "gpt-6.1-sol", "gpt-6.2-sol", "gpt-6.2-astra", "gpt-7"] {
        for (set, param) in
            [(json!({}), "reasoning_effort"), (json!({"reasoning_effort": "low"}), "reasoning_effort")]
        {
            let answer = ask_chat(model, true, &set).await;
            assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!(param)), "{model}");
            assert_eq!(ask_chat(model, false, &set).await.status, 200, "{model}");
        }
    }
}

#[tokio::test]
async fn some_models_are_on_responses_only() {
    for model in ["gpt-5.3-codex", "gpt-5.2-pro", "gpt-5.5-pro"] {
        let answer = ask_chat(model, false, &json!({})).await;
        let message = "This model is only supported in v1/responses and not in v1/chat/completions.";
        assert_eq!((answer.status, answer.json()), (404, openai_error(message, Some("model"), None)));
        assert_eq!(ask_responses(model, &json!({})).await.status, 200);
    }
}

#[tokio::test]
async fn efforts_are_those_of_the_family() {
    let all = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
    for (model, known) in [
        ("gpt-5", "minimal low medium high"),
        ("gpt-5-mini", "minimal low medium high"),
        ("gpt-5.1", "none low medium high"),
        ("gpt-5.2", "none low medium high xhigh"),
        ("gpt-5.5", "none low medium high xhigh"),
        ("gpt-5.5-pro", "medium high xhigh"),
        ("gpt-5.6-luna", "none low medium high xhigh max"),
        ("gpt-6-luna", "none low medium high xhigh max"),
        ("gpt-6-astra", "low medium high xhigh max"),
        ("gpt-6.1-sol", "low medium high xhigh max"),
        ("gpt-6.2-astra", "low medium high xhigh max"),
    ] {
        let known: Vec<&str> = known.split(' ').collect();
        for effort in all {
            let answer = ask_responses(model, &json!({"reasoning": {"effort": effort}})).await;
            assert_eq!(answer.status, if known.contains(&effort) { 200 } else { 400 }, "{model} {effort}");
        }
    }
    let answer = ask_responses("gpt-6.2-sol", &json!({"reasoning": {"effort": "none"}})).await;
    let message = "Unsupported value: 'none' is not supported with the 'gpt-6.2-sol' model. Supported values are: \
                   'low', 'medium', 'high', 'xhigh', 'max'.";
    assert_eq!(answer.json(), openai_error(message, Some("reasoning.effort"), Some("unsupported_value")));
    let answer = ask_chat("gpt-5.6-sol", false, &json!({"reasoning_effort": "max"})).await;
    let message = "Unsupported value: 'max' is not supported with the 'gpt-5.6-sol' model. Supported values are: \
                   'none', 'low', 'medium', 'high', 'xhigh'.";
    assert_eq!(answer.json(), openai_error(message, Some("reasoning_effort"), Some("unsupported_value")));
}

#[tokio::test]
async fn sampling_is_taken_where_the_effort_is_none() {
    for (model, with_none) in [
        ("gpt-5", None),
        ("gpt-5.1", Some(200)),
        ("gpt-5.6-sol", Some(200)),
        ("gpt-6-luna", Some(200)),
        ("gpt-6-astra", None),
        ("gpt-6.1-sol", None),
        ("gpt-6.2-sol", None),
    ] {
        for (name, value) in [("temperature", json!(0.5)), ("top_p", json!(0.9))] {
            let message = format!("Unsupported parameter: '{name}' is not supported with this model.");
            let error = openai_error(&message, Some(name), Some("unsupported_parameter"));
            for set in [json!({name: value}), json!({name: value, "reasoning": {"effort": "low"}})] {
                let answer = ask_responses(model, &set).await;
                assert_eq!((answer.status, answer.json()), (400, error.clone()), "{model} {set}");
            }
            assert_eq!(ask_chat(model, false, &json!({name: value})).await.json(), error, "{model}");
            if let Some(status) = with_none {
                let set = json!({name: value, "reasoning": {"effort": "none"}});
                assert_eq!(ask_responses(model, &set).await.status, status, "{model}");
                let set = json!({name: value, "reasoning_effort": "none"});
                assert_eq!(ask_chat(model, true, &set).await.status, status, "{model}");
            }
            assert_eq!(ask_responses(model, &json!({name: null})).await.status, 200, "{model}");
        }
    }
    assert_eq!(ask_chat("gpt-4.1", true, &json!({"temperature": 0.5})).await.status, 200);
}

#[tokio::test]
async fn parameters_of_older_models_are_refused() {
    let answer = ask_chat("gpt-5", false, &json!({"max_tokens": 5})).await;
    let message = "Unsupported parameter: 'max_tokens' is not supported with this model. Use \
                   'max_completion_tokens' instead.";
    assert_eq!(answer.json(), openai_error(message, Some("max_tokens"), Some("unsupported_parameter")));
    for model in ["gpt-5.5", "gpt-6.2-sol"] {
        assert_eq!(ask_chat(model, false, &json!({"max_tokens": 5})).await.status, 400);
        assert_eq!(ask_chat(model, false, &json!({"max_completion_tokens": 5})).await.status, 200);
    }
    assert_eq!(ask_chat("gpt-4.1", false, &json!({"max_tokens": 5})).await.status, 200);
    for name in ["presence_penalty", "frequency_penalty", "logit_bias"] {
        let answer = ask_chat("gpt-5.6-sol", false, &json!({name: 1, "reasoning_effort": "none"})).await;
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!(name)));
    }
}

#[tokio::test]
async fn what_six_does_no_longer_take() {
    let retention = json!({"prompt_cache_retention": "24h"});
    for (model, status) in [("gpt-5.5", 200), ("gpt-5.6-sol", 200), ("gpt-6-sol", 400), ("gpt-6.2-sol", 400)]
    {
        let answer = ask_responses(model, &retention).await;
        assert_eq!(answer.status, status, "{model}");
        if status == 400 {
            let error = &answer.json()["error"];
            assert_eq!(
                (&error["param"], &error["code"]),
                (&json!("prompt_cache_retention"), &json!("unsupported_parameter"))
            );
        }
        assert_eq!(ask_chat(model, false, &retention).await.status, status, "{model}");
    }
    for (model, status) in [("gpt-6.1-sol", 200), ("gpt-6.2-sol", 400)] {
        assert_eq!(ask_responses(model, &json!({"service_tier": "flex"})).await.status, status, "{model}");
        assert_eq!(ask_responses(model, &json!({"service_tier": "priority"})).await.status, 200, "{model}");
    }
}
