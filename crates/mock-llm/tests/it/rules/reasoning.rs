//! Reasoning items of Responses on their way back.

use mock_llm::{Mock, RuleCounts, Rules, Step, reasoning};
use serde_json::{Value, json};

use super::{mock_with, openai_error};
use crate::support::{Answer, RESPONSES, ask, prompt, responses};

const NEW: &str = "gpt-6.2-sol";
const OLD: &str = "gpt-5.5";

/// A conversation with a model that reasons and calls in each step.
struct Talk {
    mock: Mock,
    request: Value,
}

fn begin(model: &str) -> Talk {
    let steps = (0..6).map(|step| reasoning(format!("Step {step}.")).call("read", json!({"step": step})));
    let mut request = responses(model, prompt());
    request["stream"] = json!(false);
    request["instructions"] = json!("Be kind.");
    Talk { mock: mock_with(Rules::default(), model, steps), request }
}

impl Talk {
    async fn ask(&self) -> Answer {
        ask(&self.mock, RESPONSES, &self.request).await
    }

    /// Asks, and adds the output and the results of its calls. Returns what was removed.
    async fn go_on(&mut self) -> Value {
        let answer = self.ask().await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let mut answer = answer.json();
        for item in answer["output"].as_array().unwrap() {
            self.input().push(item.clone());
            if item["type"] == "function_call" {
                let output =
                    json!({"type": "function_call_output", "call_id": item["call_id"], "output": "ok"});
                self.input().push(output);
            }
        }
        answer["input_transformations"].take()
    }

    fn input(&mut self) -> &mut Vec<Value> {
        self.request["input"].as_array_mut().unwrap()
    }

    fn counts(&self) -> RuleCounts {
        self.mock.rules_report().total
    }

    /// Checks the counts of valid, stale, foreign and missing items. None is ever refused.
    #[track_caller]
    fn counted(&self, valid: u64, stale: u64, foreign: u64, missing: u64) {
        let counts = self.counts();
        assert_eq!(
            (counts.valid, counts.stale, counts.foreign, counts.missing, counts.refused),
            (valid, stale, foreign, missing, 0)
        );
    }
}

async fn after_two_steps(model: &str) -> Talk {
    let mut talk = begin(model);
    talk.go_on().await;
    talk.go_on().await;
    talk
}

/// Entries for the reasoning of these steps.
fn removed(steps: &[usize]) -> Value {
    let entry = |step: &usize| {
        let id = format!("rs_mock_0_{step}_0");
        json!({"type": "reasoning", "id": id, "action": "removed", "reason": "prefix_mismatch"})
    };
    steps.iter().map(entry).collect()
}

#[tokio::test]
async fn reasoning_comes_back_as_it_was() {
    for model in [NEW, OLD] {
        let mut talk = after_two_steps(model).await;
        assert_eq!(talk.go_on().await, Value::Null);
        talk.counted(2, 0, 0, 0);
        // Neither is what a client leaves out of items, and how it writes a message.
        talk.input()[0] = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fix the test."}]});
        let call = talk.input()[2].as_object_mut().unwrap();
        call.remove("id");
        call.remove("status");
        talk.request["text"] = json!({"format": {"type": "text"}, "verbosity": "low"});
        talk.request["reasoning"] = json!({"effort": "high"});
        assert_eq!(talk.go_on().await, Value::Null);
        talk.counted(3, 0, 0, 0);
    }
}

#[tokio::test]
async fn instructions_bind_before_6_2() {
    for (model, is_bound) in [(OLD, true), ("gpt-5.6-sol", true), ("gpt-6.1-sol", true), (NEW, false)] {
        let mut talk = after_two_steps(model).await;
        talk.request["instructions"] = json!("Be brief.");
        let gone = talk.go_on().await;
        if is_bound {
            assert_eq!(gone, removed(&[0, 1]), "{model}");
            talk.counted(1, 2, 0, 0);
        } else {
            assert_eq!(gone, Value::Null, "{model}");
            talk.counted(2, 0, 0, 0);
        }
    }
}

#[tokio::test]
async fn changes_before_reasoning_remove_it() {
    for model in [NEW, OLD] {
        for (name, value) in [
            ("tools", json!([{"type": "function", "name": "write"}])),
            ("text", json!({"format": {"type": "json_object"}})),
        ] {
            let mut talk = after_two_steps(model).await;
            talk.request[name] = value;
            assert_eq!(talk.go_on().await, removed(&[0, 1]), "{model} {name}");
        }
        // An output that was cleared: what stands before it stays.
        let mut talk = after_two_steps(model).await;
        talk.input()[3]["output"] = json!("cleared");
        assert_eq!(talk.go_on().await, removed(&[1]), "{model}");
        talk.counted(1, 1, 0, 0);
        // What is made after the change is bound to what is left.
        assert_eq!(talk.go_on().await, removed(&[1]), "{model}");
        talk.counted(2, 1, 0, 0);
        let stale = talk.input().iter().position(|item| item["id"] == "rs_mock_0_1_0").unwrap();
        talk.input().remove(stale);
        assert_eq!(talk.go_on().await, Value::Null, "{model}");
        talk.counted(3, 1, 0, 0);
    }
}

#[tokio::test]
async fn the_stream_lists_what_was_removed() {
    let mut talk = after_two_steps(NEW).await;
    talk.input()[0]["content"] = json!("Fix all tests.");
    talk.request["stream"] = json!(true);
    let events = talk.ask().await.events();
    for event in [&events[0], events.last().unwrap()] {
        assert_eq!(event["response"]["input_transformations"], removed(&[0, 1]));
    }
}

#[tokio::test]
async fn items_left_out_are_counted_where_they_could_have_come_back() {
    for model in [NEW, OLD] {
        let mut talk = begin(model);
        for _ in 0..4 {
            talk.go_on().await;
            talk.input().retain(|item| item["type"] != "reasoning");
        }
        talk.counted(0, 0, 0, 3);
    }
    // Behind a change they could not.
    let mut talk = after_two_steps(NEW).await;
    talk.input()[0]["content"] = json!("Fix all tests.");
    talk.input().retain(|item| item["type"] != "reasoning");
    talk.go_on().await;
    talk.counted(1, 0, 0, 0);
    // Nor could they where they came without encrypted content.
    let mut talk = begin(NEW);
    talk.request["include"] = json!([]);
    talk.go_on().await;
    talk.input().retain(|item| item["type"] != "reasoning");
    talk.go_on().await;
    talk.counted(0, 0, 0, 0);
}

#[tokio::test]
async fn content_that_was_not_handed_out_is_refused() {
    let mut talk = after_two_steps(NEW).await;
    talk.input()[1]["encrypted_content"] = json!("bW9jay1lbmNyeXB0ZWQtcmVhc29uaW5n");
    let answer = talk.ask().await;
    let message = "The encrypted content for item rs_mock_0_0_0 could not be verified.";
    let error = openai_error(message, None, Some("invalid_encrypted_content"));
    assert_eq!((answer.status, answer.json()), (400, error));
}

#[tokio::test]
async fn items_of_another_model_are_removed() {
    let mut talk = after_two_steps(NEW).await;
    let other = "gpt-6.2-astra";
    talk.mock = mock_with(Rules::default(), other, [Step::empty(), Step::empty(), reasoning("x").text("y")]);
    talk.request["model"] = json!(other);
    let gone = talk.go_on().await;
    assert_eq!((gone.as_array().unwrap().len(), &gone[0]["reason"]), (2, &json!("model_mismatch")));
    talk.counted(0, 0, 2, 0);
}

/// Two answers with nothing between them: the second is no part of the first.
#[tokio::test]
async fn an_answer_may_follow_another_at_once() {
    let mut talk = begin(NEW);
    talk.mock = mock_with(Rules::default(), NEW, [reasoning("a").text("A.").reasoning("b").text("B.")]);
    talk.go_on().await;
    talk.go_on().await;
    talk.counted(2, 0, 0, 0);
    talk.input().push(json!({"role": "user", "content": "Go on."}));
    let sound = talk.request.clone();
    assert_eq!(talk.go_on().await, Value::Null);
    assert_ne!(sound["input"][1]["encrypted_content"], sound["input"][5]["encrypted_content"]);
    talk.counted(4, 0, 0, 0);
}
