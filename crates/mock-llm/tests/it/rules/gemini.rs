//! Rules of Gemini.

use mock_llm::{Rules, Step, call, reasoning, text};
use serde_json::{Value, json};

use super::{answer_with, mock_with};
use crate::support::{Answer, ask, gemini, gemini_path, gemini_prompt};

async fn ask_thinking(model: &str, thinking: Value) -> Answer {
    let set = json!({"generationConfig": {"thinkingConfig": thinking}});
    answer_with(Rules::default(), &gemini_path(model), &[], gemini(gemini_prompt()), &set).await
}

#[track_caller]
fn refused(answer: &Answer, message: &str) {
    let error = json!({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}});
    assert_eq!((answer.status, answer.json()), (400, error));
}

#[tokio::test]
async fn budgets_and_levels() {
    let both = "You can only set only one of thinking budget and thinking level.";
    for model in ["gemini-2.5-pro", "gemini-3.8-flash", "gemini-4-argon"] {
        refused(&ask_thinking(model, json!({"thinkingBudget": 1000, "thinkingLevel": "low"})).await, both);
        assert_eq!(ask_thinking(model, json!({"thinkingBudget": 1000})).await.status, 200, "{model}");
        assert_eq!(ask_thinking(model, json!({"thinking_budget": -1})).await.status, 200, "{model}");
    }
    refused(
        &ask_thinking("gemini-2.5-pro", json!({"thinkingLevel": "low"})).await,
        "Thinking level is not supported for this model.",
    );
    for (model, levels) in [
        ("gemini-3-pro-preview", "LOW medium high"),
        ("gemini-3.8-flash", "minimal low MEDIUM high"),
        ("gemini-4-argon", "low medium high"),
        ("gemini-4-hydrogen", "low medium high xhigh"),
    ] {
        for level in ["minimal", "low", "medium", "high", "xhigh", "LOW", "MEDIUM"] {
            let answer = ask_thinking(model, json!({"thinkingLevel": level})).await;
            let is_known = levels.split(' ').any(|known| known.eq_ignore_ascii_case(level));
            assert_eq!(answer.status, if is_known { 200 } else { 400 }, "{model} {level}");
        }
    }
    refused(
        &ask_thinking("gemini-4-argon", json!({"thinkingLevel": "xhigh"})).await,
        "Thinking level XHIGH is not supported for this model. Please retry with other thinking level.",
    );
    for (model, budget, status) in [
        ("gemini-2.5-pro", 0, 400),
        ("gemini-2.5-pro", 127, 400),
        ("gemini-2.5-pro", 32_768, 200),
        ("gemini-2.5-flash", 0, 200),
        ("gemini-2.5-flash", 24_577, 400),
        ("gemini-2.5-flash-lite", 511, 400),
        ("gemini-2.5-flash-lite", 512, 200),
    ] {
        let answer = ask_thinking(model, json!({"thinkingBudget": budget})).await;
        assert_eq!(answer.status, status, "{model} {budget}");
    }
}

/// The conversation after an answer with two calls, whose first part has this signature.
fn after(signature: Option<&str>) -> Value {
    let result = json!({"functionResponse": {"name": "read", "response": {"output": "x"}}});
    let mut first = json!({"functionCall": {"name": "read", "args": {}}});
    if let Some(signature) = signature {
        first["thoughtSignature"] = json!(signature);
    }
    let second = json!({"functionCall": {"name": "read", "args": {}}});
    json!([
        gemini_prompt()[0],
        {"role": "model", "parts": [first, second]},
        {"role": "user", "parts": [result, result]},
    ])
}

fn signature_of(answer: &Answer) -> String {
    let parts: Vec<Value> = answer
        .events()
        .iter()
        .flat_map(|event| event["candidates"][0]["content"]["parts"].as_array().cloned().unwrap_or_default())
        .filter(|part| part["functionCall"].is_object())
        .collect();
    assert_eq!((parts.len(), parts[1].get("thoughtSignature")), (2, None));
    parts[0]["thoughtSignature"].as_str().unwrap().to_owned()
}

fn two_calls(step: Step) -> Step {
    step.call("read", json!({})).call("read", json!({}))
}

#[tokio::test]
async fn the_first_call_comes_back_with_its_signature() {
    let model = "gemini-3.8-flash";
    let path = gemini_path(model);
    for step in [two_calls(Step::empty()), two_calls(reasoning("Hm.")), two_calls(text("Look."))] {
        let mock = mock_with(Rules::default(), model, [step, text("Done.")]);
        let first = ask(&mock, &path, &gemini(gemini_prompt())).await;
        let signature = signature_of(&first);
        let answer = ask(&mock, &path, &gemini(after(Some(&signature)))).await;
        assert_eq!(answer.said(), "Done.");
        let answer = ask(&mock, &path, &gemini(after(Some("skip_thought_signature_validator")))).await;
        assert_eq!(answer.said(), "Done.");
        let mut changed = signature.clone();
        changed.replace_range(20..21, "x");
        refused(&ask(&mock, &path, &gemini(after(Some(&changed)))).await, "Corrupted thought signature.");
        let answer = ask(&mock, &path, &gemini(after(None))).await;
        assert_eq!((answer.status, &answer.json()["error"]["status"]), (400, &json!("INVALID_ARGUMENT")));
        let error = answer.json();
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("Function call is missing a thought_signature"), "{message}");
        let report = mock.rules_report();
        // It was missed where the word for a call of another model stood in its place.
        let counts = &report.models[model];
        assert_eq!((counts.refused, counts.valid, counts.missing), (2, 1, 1));
    }
}

#[tokio::test]
async fn signatures_begin_with_version_3() {
    let model = "gemini-2.5-flash";
    let mock = mock_with(Rules::default(), model, [call("read", json!({})), text("Done.")]);
    let answer = ask(&mock, &gemini_path(model), &gemini(gemini_prompt())).await;
    assert!(!answer.text.contains("thoughtSignature"), "{}", answer.text);
    let answer = ask(&mock, &gemini_path(model), &gemini(after(None))).await;
    assert_eq!(answer.said(), "Done.");
}
