//! Claude's thinking on its way back.

use bytes::Bytes;
use mock_llm::{Mock, MockOptions, Model, RuleCounts, Rules, Script, Step, reasoning};
use serde_json::{Value, json};

use super::mock_with;
use crate::support::{Answer, MESSAGES, ask, read};

const MODEL: &str = "claude-opus-5-5";
const BETA: (&str, &str) = ("anthropic-beta", "thinking-binding-controls-2026-08-01");

/// A conversation with a model that thinks and calls in each step.
struct Talk {
    mock: Mock,
    request: Value,
    headers: Vec<(String, String)>,
}

fn steps() -> Vec<Step> {
    (0..6).map(|step| reasoning(format!("Step {step}.")).call("read", json!({"step": step}))).collect()
}

fn begin(model: &str, rules: Rules) -> Talk {
    let request = json!({
        "model": model, "max_tokens": 100, "stream": false,
        "system": "Be kind.",
        "tools": [{"name": "read", "input_schema": {"type": "object"}}],
        "messages": [{"role": "user", "content": "Fix the test."}],
        "thinking": {"type": "adaptive", "display": "summarized"},
    });
    Talk { mock: mock_with(rules, model, steps()), request, headers: Vec::new() }
}

impl Talk {
    async fn ask(&self) -> Answer {
        let body = Bytes::from(self.request.to_string());
        read(self.mock.respond(MESSAGES, &self.headers, body).await).await
    }

    /// Asks, and adds the answer and the results of its calls.
    async fn go_on(&mut self) -> Value {
        let answer = self.ask().await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let answer = answer.json();
        let results: Vec<Value> = answer["content"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|block| block["type"] == "tool_use")
            .map(|call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "ok"}))
            .collect();
        let messages = self.messages();
        messages.push(json!({"role": "assistant", "content": answer["content"]}));
        messages.push(json!({"role": "user", "content": results}));
        answer
    }

    fn messages(&mut self) -> &mut Vec<Value> {
        self.request["messages"].as_array_mut().unwrap()
    }

    fn counts(&self) -> RuleCounts {
        self.mock.rules_report().total
    }

    /// Checks the counts of valid, stale, foreign and missing blocks.
    #[track_caller]
    fn counted(&self, valid: u64, stale: u64, foreign: u64, missing: u64) {
        let counts = self.counts();
        assert_eq!(
            (counts.valid, counts.stale, counts.foreign, counts.missing),
            (valid, stale, foreign, missing)
        );
    }

    /// Checks that the request is refused for a block of thinking bound to another conversation.
    async fn refused_at(&self, place: &str) {
        let answer = self.ask().await;
        let message = format!(
            "{place}: Invalid `signature` in `thinking` block. The block is bound to a different conversation."
        );
        let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
        assert_eq!((answer.status, answer.json()), (400, error));
    }
}

async fn after_two_steps(rules: Rules) -> Talk {
    let mut talk = begin(MODEL, rules);
    talk.go_on().await;
    talk.go_on().await;
    talk
}

#[tokio::test]
async fn thinking_comes_back_as_it_was() {
    let mut talk = after_two_steps(Rules::default()).await;
    talk.counted(1, 0, 0, 0);
    let answer = talk.go_on().await;
    assert_eq!(answer["content"][0]["thinking"], "Step 2.");
    assert_eq!(answer.get("input_transformations"), None);
    talk.counted(2, 0, 0, 0);
    // A retry counts nothing twice.
    talk.messages().truncate(5);
    talk.ask().await;
    talk.counted(2, 0, 0, 0);
    assert_eq!(talk.counts().refused, 0);
    let note = talk.mock.journal().entries().pop().unwrap().rules.unwrap();
    assert_eq!((note.refused, note.valid, note.stale, note.missing), (None, 2, 0, 0));
}

#[tokio::test]
async fn a_stream_signs_as_well() {
    let mut talk = begin(MODEL, Rules::default());
    let signature = talk.ask().await.json()["content"][0]["signature"].clone();
    talk.request["stream"] = json!(true);
    let answer = talk.ask().await;
    let signed = |event: &&Value| event["delta"]["type"] == "signature_delta";
    assert_eq!(answer.events().iter().find(signed).unwrap()["delta"]["signature"], signature);
}

#[tokio::test]
async fn a_changed_system_prompt_is_noticed() {
    let mut talk = after_two_steps(Rules::default()).await;
    talk.request["system"] = json!("Be brief.");
    talk.refused_at("messages.1.content.0").await;
    talk.counted(1, 2, 0, 0);
    assert_eq!(talk.counts().refused, 1);
    talk.request["system"] = json!([{"type": "text", "text": "Be kind."}]);
    assert_eq!(talk.ask().await.status, 200);
}

#[tokio::test]
async fn changed_tools_are_noticed() {
    let mut talk = after_two_steps(Rules::default()).await;
    talk.request["tools"].as_array_mut().unwrap().push(json!({"name": "write"}));
    talk.refused_at("messages.1.content.0").await;
}

#[tokio::test]
async fn a_changed_message_is_noticed_behind_it() {
    let mut talk = after_two_steps(Rules::default()).await;
    talk.messages()[2]["content"][0]["content"] = json!("cleared");
    talk.refused_at("messages.3.content.0").await;
    talk.counted(1, 1, 0, 0);
}

#[tokio::test]
async fn a_dropped_block_makes_later_ones_stale() {
    let mut talk = after_two_steps(Rules::default()).await;
    talk.messages()[1]["content"].as_array_mut().unwrap().remove(0);
    talk.refused_at("messages.3.content.0").await;
    talk.counted(1, 1, 0, 1);
}

#[tokio::test]
async fn a_reminder_in_one_request_only_is_noticed() {
    let mut talk = begin(MODEL, Rules::default());
    talk.go_on().await;
    let reminder = json!({"type": "text", "text": "This is the last step."});
    talk.messages()[2]["content"].as_array_mut().unwrap().push(reminder);
    talk.go_on().await;
    talk.messages()[2]["content"].as_array_mut().unwrap().pop();
    talk.refused_at("messages.3.content.0").await;
}

#[tokio::test]
async fn how_a_request_is_written_is_no_change() {
    let mut talk = after_two_steps(Rules::default()).await;
    let mark = json!({"type": "ephemeral"});
    talk.request["system"] = json!([{"type": "text", "text": "Be kind.", "cache_control": mark}]);
    talk.request["tools"][0]["cache_control"] = mark.clone();
    talk.request["tool_choice"] = json!({"type": "auto"});
    talk.request["max_tokens"] = json!(50);
    talk.messages()[0]["content"] = json!([{"type": "text", "text": "Fix the test.", "cache_control": mark}]);
    talk.messages()[2]["content"][0]["cache_control"] = mark.clone();
    talk.go_on().await;
    talk.messages()[2]["content"][0].as_object_mut().unwrap().remove("cache_control");
    talk.messages()[4]["content"][0]["cache_control"] = mark;
    talk.go_on().await;
    talk.counted(3, 0, 0, 0);
}

#[tokio::test]
async fn thinking_made_after_a_change_is_valid() {
    let mut talk = after_two_steps(Rules::default()).await;
    talk.request["system"] = json!("Be brief.");
    for at in [1, 3] {
        talk.messages()[at]["content"].as_array_mut().unwrap().remove(0);
    }
    talk.go_on().await;
    talk.go_on().await;
    // The two that had to go were not missed.
    talk.counted(2, 0, 0, 0);
}

#[tokio::test]
async fn stale_thinking_can_be_dropped() {
    for by_request in [true, false] {
        let mut talk = after_two_steps(Rules { drop_stale_thinking: !by_request, ..Rules::default() }).await;
        if by_request {
            talk.headers.push((BETA.0.to_owned(), BETA.1.to_owned()));
            talk.request["thinking"]["block_binding"] = json!({"prefix_mismatch_behavior": "drop_block"});
        }
        talk.messages()[0]["content"] = json!("Fix all tests.");
        let dropped = |message: usize| {
            json!({"type": "thinking_dropped", "reason": "prefix_binding_mismatch",
                "message_index": message, "content_index": 0})
        };
        let first = talk.go_on().await;
        assert_eq!(first["input_transformations"], json!([dropped(1), dropped(3)]));
        // It is bound to what is left, so it stays valid while the others go on being sent, and when they go.
        let second = talk.go_on().await;
        assert_eq!(second["input_transformations"], json!([dropped(1), dropped(3)]));
        talk.counted(2, 2, 0, 0);
        for at in [1, 3] {
            talk.messages()[at]["content"].as_array_mut().unwrap().remove(0);
        }
        assert_eq!(talk.go_on().await.get("input_transformations"), None);
        talk.counted(3, 2, 0, 0);
        assert_eq!(talk.counts().refused, 0);
        talk.messages()[0]["content"] = json!("Fix no test.");
        talk.request["stream"] = json!(true);
        let start = talk.ask().await.events().remove(0);
        assert_eq!(start["message"]["input_transformations"].as_array().unwrap().len(), 3);
    }
}

#[tokio::test]
async fn changed_and_forged_blocks_are_refused() {
    for model in [MODEL, "claude-opus-4-6"] {
        let mut talk = begin(model, Rules::default());
        talk.go_on().await;
        let message = |answer: Answer| (answer.status, answer.json()["error"]["message"].clone());
        let sound = talk.request.clone();
        talk.messages()[1]["content"][0]["thinking"] = json!("Something else.");
        let changed = "messages.1.content.0: `thinking` or `redacted_thinking` blocks cannot be modified. These \
                       blocks must remain as they were in the original response.";
        assert_eq!(message(talk.ask().await), (400, json!(changed)));
        talk.request = sound.clone();
        talk.messages()[1]["content"][0]["signature"] = json!("bW9jay1yZWFzb25pbmctc2lnbmF0dXJl");
        let forged = "messages.1.content.0: Invalid `signature` in `thinking` block";
        assert_eq!(message(talk.ask().await), (400, json!(forged)));
        talk.request = sound;
        assert_eq!(talk.ask().await.status, 200);
        talk.counted(1, 0, 0, 0);
    }
}

#[tokio::test]
async fn older_models_do_not_look_at_what_stood_before() {
    for model in ["claude-opus-4-6", "claude-opus-5", "claude-fable-5"] {
        let mut talk = begin(model, Rules::default());
        talk.go_on().await;
        talk.request["system"] = json!("Be brief.");
        talk.messages()[0]["content"] = json!("Fix all tests.");
        assert_eq!(talk.ask().await.status, 200, "{model}");
        talk.counted(1, 0, 0, 0);
    }
    for model in ["claude-sonnet-5-5", "claude-haiku-5-5", "claude-fable-5-1", "claude-fable-5-2"] {
        let mut talk = begin(model, Rules::default());
        talk.go_on().await;
        talk.request["system"] = json!("Be brief.");
        talk.refused_at("messages.1.content.0").await;
    }
}

#[tokio::test]
async fn thinking_of_another_model_is_dropped() {
    let other = "claude-sonnet-5-5";
    let model = || steps().into_iter().fold(Model::new(), Model::step);
    let script = Script::new().model(MODEL, model()).model(other, model());
    let mut talk = begin(MODEL, Rules::default());
    talk.mock = Mock::with_rules(script, MockOptions::default(), Rules::default()).unwrap();
    talk.go_on().await;
    talk.request["model"] = json!(other);
    let answer = talk.go_on().await;
    assert_eq!(answer["input_transformations"][0]["reason"], "model_binding_mismatch");
    talk.go_on().await;
    talk.counted(1, 0, 1, 0);
    assert_eq!(talk.mock.rules_report().models[other], talk.counts());
}

#[tokio::test]
async fn the_text_is_empty_unless_it_is_asked_for() {
    let displays = [Value::Null, json!("summarized"), json!("omitted")];
    for (model, texts) in [
        (MODEL, ["", "Step 0.", ""]),
        ("claude-fable-5-1", ["", "Step 0.", ""]),
        ("claude-sonnet-5-5", ["Step 0.", "Step 0.", ""]),
        ("claude-fable-5", ["Step 0.", "Step 0.", ""]),
    ] {
        for (display, text) in displays.iter().zip(texts) {
            let mut talk = begin(model, Rules::default());
            talk.request["thinking"]["display"] = display.clone();
            let answer = talk.go_on().await;
            assert_eq!(answer["content"][0]["thinking"], text, "{model} {display}");
            // With its empty text it comes back as well.
            assert_eq!(talk.ask().await.status, 200);
            talk.counted(1, 0, 0, 0);
        }
    }
}

#[tokio::test]
async fn redacted_thinking_is_bound_too() {
    let step = || Step::empty().redacted_reasoning("c2VjcmV0").reasoning("Hm.").call("read", json!({}));
    let mut talk = begin(MODEL, Rules::default());
    talk.mock = mock_with(Rules::default(), MODEL, [step(), step(), step()]);
    talk.go_on().await;
    talk.go_on().await;
    talk.counted(2, 0, 0, 0);
    let sound = talk.request.clone();
    talk.messages()[1]["content"].as_array_mut().unwrap().swap(0, 1);
    talk.refused_at("messages.1.content.0").await;
    talk.request = sound;
    talk.messages()[1]["content"].as_array_mut().unwrap().remove(0);
    talk.refused_at("messages.1.content.0").await;
}

/// Each block of an answer is bound to those before it, not to the text between them.
#[tokio::test]
async fn an_answer_may_think_several_times() {
    let step =
        || reasoning("a").text("Look.").reasoning("b").text("There.").reasoning("c").call("read", json!({}));
    let mut talk = begin(MODEL, Rules::default());
    talk.mock = mock_with(Rules::default(), MODEL, [step(), step(), step()]);
    talk.go_on().await;
    talk.go_on().await;
    talk.counted(3, 0, 0, 0);
    let sound = talk.request.clone();
    talk.messages()[1]["content"].as_array_mut().unwrap().remove(4);
    talk.refused_at("messages.3.content.0").await;
    talk.counted(3, 3, 0, 1);
    talk.request = sound;
    talk.messages()[1]["content"].as_array_mut().unwrap().remove(0);
    talk.refused_at("messages.1.content.1").await;
}

#[tokio::test]
async fn an_answer_may_not_end_with_thinking() {
    let mut talk = after_two_steps(Rules::default()).await;
    let last = talk.messages().len() - 2;
    talk.messages()[last]["content"].as_array_mut().unwrap().pop();
    talk.messages().pop();
    talk.messages().push(json!({"role": "user", "content": "Go on."}));
    let answer = talk.ask().await;
    assert_eq!(answer.status, 400);
    assert!(
        answer.text.contains("The final block in an assistant message cannot be `thinking`"),
        "{}",
        answer.text
    );
}

/// Answers are recognised by their calls, or by their text, and by all that stands before them.
#[tokio::test]
async fn what_could_have_come_back_is_counted_once() {
    let mut talk = after_two_steps(Rules::default()).await;
    let last = talk.messages().len() - 2;
    talk.messages()[last]["content"].as_array_mut().unwrap().remove(0);
    talk.go_on().await;
    talk.counted(1, 0, 0, 1);
    talk.go_on().await;
    talk.counted(2, 0, 0, 1);
    let entries = talk.mock.journal().entries();
    let missing: Vec<u64> =
        entries.iter().map(|entry| entry.rules.as_ref().map_or(0, |note| note.missing)).collect();
    assert_eq!(missing, [0, 0, 1, 1]);

    // Never sent back: the first one is missed, and so is the second, which was made without it.
    let mut talk = begin(MODEL, Rules::default());
    let model = Model::new().step(reasoning("a").text("A.")).next_turn().step(reasoning("b").text("B."));
    let script = Script::new().model(MODEL, model);
    talk.mock = Mock::with_rules(script, MockOptions::default(), Rules::default()).unwrap();
    for _ in 0..2 {
        let answer = talk.ask().await.json();
        talk.messages().push(json!({"role": "assistant", "content": answer["content"][1]["text"]}));
        talk.messages().push(json!({"role": "user", "content": "Go on."}));
    }
    talk.ask().await;
    talk.counted(0, 0, 0, 2);

    // Not missed where what stood before it is something else.
    let mut talk = after_two_steps(Rules::default()).await;
    for at in [1, 3] {
        talk.messages()[at]["content"].as_array_mut().unwrap().remove(0);
    }
    talk.request["system"] = json!("Be brief.");
    talk.ask().await;
    talk.counted(1, 0, 0, 0);
}

#[tokio::test]
async fn a_mock_without_rules_lets_everything_pass() {
    let mut talk = after_two_steps(Rules::default()).await;
    talk.mock = Mock::new(Script::new().model(MODEL, Model::new()));
    talk.request["system"] = json!("Be brief.");
    talk.request["temperature"] = json!(0.5);
    let answer = ask(&talk.mock, MESSAGES, &talk.request).await;
    assert_eq!((answer.status, talk.mock.rules_report()), (200, mock_llm::RulesReport::default()));
}
