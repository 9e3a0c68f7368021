//! Which step is answered, read from the request alone.

use mock_llm::{DEFAULT_CLOSING_TEXT, Mock, Model, NO_CALLS_TEXT, Script, call, repeat, text};
use serde_json::{Value, json};

use crate::support::{
    Answer, CHAT, MESSAGES, RESPONSES, ask, chat, gemini, gemini_path, messages, responses,
};

fn script() -> Script {
    Script::new().model(
        "fix",
        Model::new()
            .step(call("read", json!({})))
            .step(text("And").call("edit", json!({})))
            .step(text("Fixed."))
            .next_turn()
            .step(text("You are welcome.")),
    )
}

/// The beginning of a conversation in every format, from words: `p` a prompt, `c` an answer with a call, `r` its result,
/// `t` an answer in text, `s` a system message (where it is a message), `i` a user's message with an image only, `n` one
/// that names the call whose file it brings (where results cannot hold it).
fn conversation(words: &str) -> [Value; 4] {
    const IMAGE: &str = "data:image/png;base64,AAAA";
    const NAMED: &str = "\"x.bin\", from the call call_abc: not shown";
    let [mut anthropic, mut chat, mut responses, mut gemini] = [const { Vec::new() }; 4];
    for word in words.chars() {
        match word {
            'p' => {
                anthropic.push(json!({"role": "user", "content": [{"type": "text", "text": "Do."}]}));
                chat.push(json!({"role": "user", "content": "Do."}));
                responses.push(json!({"role": "user", "content": [{"type": "input_text", "text": "Do."}]}));
                gemini.push(json!({"role": "user", "parts": [{"text": "Do."}]}));
            }
            'c' => {
                let block = json!({"type": "tool_use", "id": "call_abc", "name": "read", "input": {}});
                anthropic.push(json!({"role": "assistant", "content": [block]}));
                let function = json!({"name": "read", "arguments": "{}"});
                let calls = json!([{"id": "call_abc", "type": "function", "function": function}]);
                chat.push(json!({"role": "assistant", "content": null, "tool_calls": calls}));
                let thoughts =
                    json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"});
                let call = json!({"type": "function_call", "call_id": "call_abc", "name": "read", "arguments": "{}"});
                responses.extend([thoughts, call]);
                let call = json!({"id": "call_abc", "name": "read", "args": {}});
                gemini.push(json!({"role": "model", "parts": [{"functionCall": call}]}));
            }
            'r' => {
                let block = json!({"type": "tool_result", "tool_use_id": "call_abc", "content": "x"});
                anthropic.push(json!({"role": "user", "content": [block]}));
                chat.push(json!({"role": "tool", "tool_call_id": "call_abc", "content": "x"}));
                responses.push(json!({"type": "function_call_output", "call_id": "call_abc", "output": "x"}));
                let result = json!({"id": "call_abc", "name": "read", "response": {"output": "x"}});
                gemini.push(json!({"role": "user", "parts": [{"functionResponse": result}]}));
            }
            't' => {
                anthropic.push(json!({"role": "assistant", "content": "Yes."}));
                chat.push(json!({"role": "assistant", "content": "Yes."}));
                let text = json!({"type": "output_text", "text": "Yes."});
                responses.push(json!({"type": "message", "role": "assistant", "content": [text]}));
                gemini.push(json!({"role": "model", "parts": [{"text": "Yes."}]}));
            }
            's' => {
                chat.push(json!({"role": "system", "content": "Be kind."}));
                responses.push(json!({"role": "developer", "content": "Be kind."}));
            }
            'i' => {
                let image = json!({"type": "image_url", "image_url": {"url": IMAGE}});
                chat.push(json!({"role": "user", "content": [image]}));
                let image = json!({"type": "input_image", "image_url": IMAGE});
                responses.push(json!({"role": "user", "content": [image]}));
                let image = json!({"inlineData": {"mimeType": "image/png", "data": "AAAA"}});
                gemini.push(json!({"role": "user", "parts": [image]}));
            }
            'n' => {
                chat.push(json!({"role": "user", "content": NAMED}));
                responses.push(json!({"role": "user", "content": NAMED}));
                gemini.push(json!({"parts": [{"text": NAMED}]}));
            }
            word => panic!("{word}"),
        }
    }
    [anthropic, chat, responses, gemini].map(Value::from)
}

/// Asks in every format, after a change to each request.
async fn all(mock: &Mock, model: &str, words: &str, change: impl Fn(&mut Value)) -> [Answer; 4] {
    let [anthropic, openai, input, contents] = conversation(words);
    let mut requests =
        [messages(model, anthropic), chat(model, openai), responses(model, input), gemini(contents)];
    requests.iter_mut().for_each(change);
    [
        ask(mock, MESSAGES, &requests[0]).await,
        ask(mock, CHAT, &requests[1]).await,
        ask(mock, RESPONSES, &requests[2]).await,
        ask(mock, &gemini_path(model), &requests[3]).await,
    ]
}

#[track_caller]
fn check(answers: &[Answer; 4], said: &str, calls: &[&str]) {
    for answer in answers {
        assert_eq!(answer.said(), said, "{}", answer.text);
        assert_eq!(answer.calls(), calls, "{}", answer.text);
    }
}

#[tokio::test]
async fn prompts_and_answers_say_where_it_stands() {
    let mock = Mock::new(script());
    let closing = DEFAULT_CLOSING_TEXT;
    let cases: [(&str, &str, &[&str]); 10] = [
        ("sp", "", &["read"]),
        ("spcr", "And", &["edit"]),
        ("pcrcr", "Fixed.", &[]),
        ("pcricr", "Fixed.", &[]),
        ("pcrncrn", "Fixed.", &[]),
        ("pcrcrcr", closing, &[]),
        ("pcrtp", "You are welcome.", &[]),
        ("pp", "You are welcome.", &[]),
        ("pcrtptp", closing, &[]),
        ("pcrtpcr", closing, &[]),
    ];
    for (words, said, calls) in cases {
        check(&all(&mock, "fix", words, |_| {}).await, said, calls);
    }
}

#[tokio::test]
async fn calls_that_are_forbidden_are_not_made() {
    let mock = Mock::new(script());
    let forbid = |request: &mut Value| {
        if request.get("contents").is_some() {
            request["toolConfig"] = json!({"functionCallingConfig": {"mode": "NONE"}});
        } else {
            let is_openai = request.get("max_tokens").is_none();
            request["tool_choice"] = if is_openai { json!("none") } else { json!({"type": "none"}) };
        }
    };
    let without_tools = |request: &mut Value| request["tools"] = json!([]);
    check(&all(&mock, "fix", "p", forbid).await, NO_CALLS_TEXT, &[]);
    check(&all(&mock, "fix", "p", without_tools).await, NO_CALLS_TEXT, &[]);
    check(&all(&mock, "fix", "pcr", forbid).await, "And", &[]);
    // A reminder at the end, as the user's words and as the beginning of the model's.
    check(&all(&mock, "fix", "pcrp", forbid).await, "And", &[]);
    check(&all(&mock, "fix", "pcrt", forbid).await, "And", &[]);
    check(&all(&mock, "fix", "pcrp", without_tools).await, "And", &[]);
    let answers = all(&mock, "fix", "p", forbid).await;
    let words = ["end_turn", "\"stop\"", "response.completed", "\"STOP\""];
    assert!(answers.iter().zip(words).all(|(answer, word)| answer.text.contains(word)));
}

#[tokio::test]
async fn turns_can_begin_again() {
    let model = Model::new().step(text("one")).next_turn().step(text("two")).cycle().closing("no more");
    let mock = Mock::new(Script::new().model("fix", model));
    check(&all(&mock, "fix", "ptptp", |_| {}).await, "one", &[]);
    check(&all(&mock, "fix", "ptptptp", |_| {}).await, "two", &[]);
    check(&all(&mock, "fix", "pcr", |_| {}).await, "no more", &[]);
}

#[tokio::test]
async fn built_in_models_need_no_script() {
    let mock = Mock::new(Script::new());
    let said = async |model: &str, words: &str| {
        let answers = all(&mock, model, words, |_| {}).await;
        for other in &answers[1..] {
            assert_eq!((other.said(), other.calls()), (answers[0].said(), answers[0].calls()));
        }
        (answers[0].said(), answers[0].calls().len())
    };
    assert_eq!(said("echo", "p").await, ("Do.".to_owned(), 0));
    assert_eq!(said("echo", "pcr").await, ("Do.".to_owned(), 0));
    assert_eq!(said("tools-2-tokens-3", "p").await, (String::new(), 1));
    assert_eq!(said("tools-2-tokens-3", "pcr").await, (String::new(), 1));
    assert_eq!(said("tools-2-tokens-3", "pcrcr").await, ("The small house".to_owned(), 0));
    assert_eq!(said("tokens-0", "p").await, (String::new(), 0));
}

#[tokio::test]
async fn a_script_comes_before_what_is_built_in() {
    let mock = Mock::new(Script::new().model("echo", Model::new().step(repeat("ha ", 3))));
    assert_eq!(ask(&mock, CHAT, &chat("echo", conversation("p")[1].clone())).await.said(), "ha ha ha ");
}
