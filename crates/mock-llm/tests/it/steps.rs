//! Which step is answered, read from the request alone.

use mock_llm::{DEFAULT_CLOSING_TEXT, Mock, Model, NO_CALLS_TEXT, Script, call, repeat, text};
use serde_json::{Value, json};

use crate::support::{Answer, CHAT, MESSAGES, ask, chat, messages};

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

/// The beginning of a conversation in both formats, from words: `p` a prompt, `c` an answer with a call, `r` its result,
/// `t` an answer in text, `s` a system message (in chat only), `i` a user's message with an image only, `n` one that names
/// the call whose file it brings.
fn conversation(words: &str) -> [Value; 2] {
    let image = "data:image/png;base64,AAAA";
    let [mut anthropic, mut openai] = [Vec::new(), Vec::new()];
    for word in words.chars() {
        match word {
            'p' => {
                anthropic.push(json!({"role": "user", "content": [{"type": "text", "text": "Do."}]}));
                openai.push(json!({"role": "user", "content": "Do."}));
            }
            'c' => {
                let block = json!({"type": "tool_use", "id": "call_abc", "name": "read", "input": {}});
                anthropic.push(json!({"role": "assistant", "content": [block]}));
                let function = json!({"name": "read", "arguments": "{}"});
                let calls = json!([{"id": "call_abc", "type": "function", "function": function}]);
                openai.push(json!({"role": "assistant", "content": null, "tool_calls": calls}));
            }
            'r' => {
                let block = json!({"type": "tool_result", "tool_use_id": "call_abc", "content": "x"});
                anthropic.push(json!({"role": "user", "content": [block]}));
                openai.push(json!({"role": "tool", "tool_call_id": "call_abc", "content": "x"}));
            }
            't' => {
                anthropic.push(json!({"role": "assistant", "content": "Yes."}));
                openai.push(json!({"role": "assistant", "content": "Yes."}));
            }
            's' => openai.push(json!({"role": "system", "content": "Be kind."})),
            'i' => openai.push(
                json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": image}}]}),
            ),
            'n' => openai
                .push(json!({"role": "user", "content": "\"x.bin\", from the call call_abc: not shown"})),
            word => panic!("{word}"),
        }
    }
    [Value::from(anthropic), Value::from(openai)]
}

async fn both(mock: &Mock, words: &str, change: impl Fn(&mut Value)) -> [Answer; 2] {
    let [anthropic, openai] = conversation(words);
    let mut requests = [messages("fix", anthropic), chat("fix", openai)];
    requests.iter_mut().for_each(change);
    [ask(mock, MESSAGES, &requests[0]).await, ask(mock, CHAT, &requests[1]).await]
}

#[track_caller]
fn check(answers: &[Answer; 2], said: &str, calls: &[&str]) {
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
        check(&both(&mock, words, |_| {}).await, said, calls);
    }
}

#[tokio::test]
async fn calls_that_are_forbidden_are_not_made() {
    let mock = Mock::new(script());
    let forbid = |request: &mut Value| {
        let is_chat = request.get("max_tokens").is_none();
        request["tool_choice"] = if is_chat { json!("none") } else { json!({"type": "none"}) };
    };
    let without_tools = |request: &mut Value| request["tools"] = json!([]);
    check(&both(&mock, "p", forbid).await, NO_CALLS_TEXT, &[]);
    check(&both(&mock, "p", without_tools).await, NO_CALLS_TEXT, &[]);
    check(&both(&mock, "pcr", forbid).await, "And", &[]);
    // A reminder at the end, as the user's words and as the beginning of the model's.
    check(&both(&mock, "pcrp", forbid).await, "And", &[]);
    check(&both(&mock, "pcrt", forbid).await, "And", &[]);
    check(&both(&mock, "pcrp", without_tools).await, "And", &[]);
    let answers = both(&mock, "p", forbid).await;
    assert!(answers[0].text.contains("end_turn") && answers[1].text.contains("\"stop\""));
}

#[tokio::test]
async fn turns_can_begin_again() {
    let model = Model::new().step(text("one")).next_turn().step(text("two")).cycle().closing("no more");
    let mock = Mock::new(Script::new().model("fix", model));
    check(&both(&mock, "ptptp", |_| {}).await, "one", &[]);
    check(&both(&mock, "ptptptp", |_| {}).await, "two", &[]);
    check(&both(&mock, "pcr", |_| {}).await, "no more", &[]);
}

#[tokio::test]
async fn built_in_models_need_no_script() {
    let mock = Mock::new(Script::new());
    let said = async |model: &str, words: &str| {
        let [anthropic, openai] = conversation(words);
        let answers = [
            ask(&mock, MESSAGES, &messages(model, anthropic)).await,
            ask(&mock, CHAT, &chat(model, openai)).await,
        ];
        assert_eq!(answers[0].said(), answers[1].said());
        assert_eq!(answers[0].calls(), answers[1].calls());
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
