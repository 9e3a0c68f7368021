//! The simulated prompt cache, and usage as scripts have it.

use mock_llm::{Mock, Model, Script, UsageOverride, text};
use serde_json::{Value, json};

use crate::support::{
    CHAT, MESSAGES, RESPONSES, ask, ask_all, chat, gemini, gemini_path, messages, responses,
};

fn conversation(prompts: usize) -> Vec<String> {
    (0..prompts).map(|number| format!("Prompt number {number}.")).collect()
}

/// Input, read from the cache and written to it, as the journal has it.
async fn told(mock: &Mock, path: &str, request: &Value) -> [u64; 3] {
    ask(mock, path, request).await;
    let tokens = mock.journal().entries().pop().unwrap().reported.unwrap();
    assert_eq!(tokens.all_input(), request.to_string().len().div_ceil(4) as u64);
    [tokens.input, tokens.cache_read, tokens.cache_write_5m]
}

#[tokio::test]
async fn what_was_asked_before_is_read_from_the_cache() {
    let mock = Mock::new(Script::new().prompt_cache());
    let roles = |key: &str| -> Box<dyn Fn(usize) -> Value> {
        let key = key.to_owned();
        Box::new(move |count| {
            let said = conversation(count).into_iter().map(|text| match key.as_str() {
                "parts" => json!({"role": "user", "parts": [{"text": text}]}),
                _ => json!({"role": "user", "content": text}),
            });
            said.collect()
        })
    };
    let (content, parts) = (roles("content"), roles("parts"));
    let gemini_path = gemini_path("echo");
    for (path, request) in [
        (CHAT, &(|count| chat("echo", content(count))) as &dyn Fn(usize) -> Value),
        (RESPONSES, &|count| responses("echo", content(count))),
        (&gemini_path, &|count| gemini(parts(count))),
    ] {
        let [first, none, _] = told(&mock, path, &request(1)).await;
        assert_eq!(none, 0, "{path}");
        let [rest, read, write] = told(&mock, path, &request(5)).await;
        assert!(read > 0 && read < first && write == 0, "{path}: {read} of {first}");
        let [again, all, _] = told(&mock, path, &request(5)).await;
        assert!(all > read && again < rest, "{path}: {all} of {again}");
    }
}

#[tokio::test]
async fn another_model_another_format_and_another_beginning_share_nothing() {
    let mock = Mock::new(Script::new().prompt_cache());
    let with_tools = |model: &str, tools: Value| {
        let mut request = chat(model, json!([{"role": "user", "content": "x"}]));
        request["tools"] = tools;
        request
    };
    let tool = || json!([{"type": "function", "function": {"name": "a"}}]);
    told(&mock, CHAT, &with_tools("echo", tool())).await;
    assert_eq!(told(&mock, CHAT, &with_tools("tokens-1", tool())).await[1], 0);
    assert_eq!(told(&mock, CHAT, &with_tools("echo", json!([{"type": "function"}]))).await[1], 0);
    assert_eq!(told(&mock, RESPONSES, &responses("echo", json!("x"))).await[1], 0);
    assert!(told(&mock, CHAT, &with_tools("echo", tool())).await[1] > 0);
}

#[tokio::test]
async fn marks_say_what_is_kept() {
    let mock = Mock::new(Script::new().prompt_cache());
    let request = |count: usize, mark: Option<Value>| {
        let mut said: Vec<Value> = conversation(count)
            .into_iter()
            .map(|text| json!({"role": "user", "content": [{"type": "text", "text": text}]}))
            .collect();
        if let (Some(mark), Some(last)) = (mark, said.last_mut()) {
            last["content"][0]["cache_control"] = mark;
        }
        messages("echo", json!(said))
    };
    let mark = || Some(json!({"type": "ephemeral"}));
    assert_eq!(told(&mock, MESSAGES, &request(2, None)).await[1..], [0, 0]);
    assert_eq!(told(&mock, MESSAGES, &request(2, None)).await[1..], [0, 0]);
    let [_, read, written] = told(&mock, MESSAGES, &request(2, mark())).await;
    assert!(read == 0 && written > 0);
    let [_, read, more] = told(&mock, MESSAGES, &request(3, mark())).await;
    assert!(read == written && more > 0 && more < written);
    let hour = request(9, Some(json!({"type": "ephemeral", "ttl": "1h"})));
    let answer = ask(&mock, MESSAGES, &hour).await;
    let usage = &answer.events()[0]["message"]["usage"];
    assert!(usage["cache_creation"]["ephemeral_1h_input_tokens"].as_u64() > Some(0), "{usage}");
    assert_eq!(usage["cache_creation"]["ephemeral_5m_input_tokens"], 0);
}

#[tokio::test]
async fn without_it_nothing_is_cached() {
    let mock = Mock::new(Script::new());
    let request = chat("echo", json!([{"role": "user", "content": "x"}]));
    for _ in 0..2 {
        assert_eq!(told(&mock, CHAT, &request).await[1], 0);
    }
}

#[tokio::test]
async fn a_script_says_what_is_reported_in_every_format() {
    let usage = UsageOverride {
        input: Some(10),
        cache_read: Some(1000),
        cache_write: Some(20),
        cache_write_1h: Some(5),
        output: Some(7),
        reasoning: Some(3),
        total: Some(9999),
        ..UsageOverride::default()
    };
    let model = Model::new().step(text("a").usage(usage));
    let mock = Mock::new(Script::new().model("m", model).prompt_cache());
    let [anthropic, chat, responses, gemini] = ask_all(&mock, "m").await;
    let last = |answer: &crate::support::Answer, from_end: usize| {
        let events = answer.events();
        events[events.len() - from_end].clone()
    };
    let told = &last(&anthropic, 2)["usage"];
    assert_eq!(
        (&told["input_tokens"], &told["cache_read_input_tokens"], &told["cache_creation_input_tokens"]),
        (&json!(10), &json!(1000), &json!(25))
    );
    assert_eq!(
        (&told["output_tokens"], &told["cache_creation"]["ephemeral_1h_input_tokens"]),
        (&json!(10), &json!(5))
    );
    let told = &last(&chat, 1)["usage"];
    assert_eq!(
        (&told["prompt_tokens"], &told["completion_tokens"], &told["total_tokens"]),
        (&json!(1035), &json!(10), &json!(9999))
    );
    let told = &last(&responses, 1)["response"]["usage"];
    assert_eq!(
        (&told["input_tokens"], &told["output_tokens"], &told["total_tokens"]),
        (&json!(1035), &json!(10), &json!(9999))
    );
    assert_eq!(told["input_tokens_details"]["cached_tokens"], 1000);
    let told = &last(&gemini, 1)["usageMetadata"];
    assert_eq!(
        (
            &told["promptTokenCount"],
            &told["candidatesTokenCount"],
            &told["thoughtsTokenCount"],
            &told["totalTokenCount"]
        ),
        (&json!(1035), &json!(7), &json!(3), &json!(9999))
    );
}
