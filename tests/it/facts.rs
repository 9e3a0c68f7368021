//! What is known of a model decides what it is sent, and what that costs.

use mock_llm::{Model, Script, Step, UsageOverride, reasoning, text};
use playhouse::protocol::Record;
use serde_json::{Value, json};

use crate::stage::{Dialect, Ended, Stage, finish};

/// A picture, by its first bytes.
/// A picture of one pixel.
const PNG: &[u8] = b"\x89PNG\x0d\x0a\x1a\x0a\x00\x00\x00\x0dIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x00\x00\x00\x00:~\x9bU\x00\x00\x00\x0aIDATx\xdac\xa8\x07\x00\x00\x81\x00\x80~\x1c)\xc7\x00\x00\x00\x00IEND\xaeB`\x82";

/// A stage on which a built-in model plays.
struct Known {
    stage: Stage,
    model: &'static str,
    /// The variables that say where it is and what its key is.
    variables: [(&'static str, String); 2],
}

impl Known {
    fn new(model: &'static str, [address, path, key]: [&'static str; 3], steps: Vec<Step>) -> Self {
        let (_, bare) = model.split_once('/').unwrap();
        let script = Script::new().model(bare, steps.into_iter().fold(Model::new(), Model::step));
        let stage = Stage::speaking(Dialect::OpenaiChat, script);
        let variables = [(address, format!("{}{path}", stage.url())), (key, "key-123456789".to_owned())];
        Self { stage, model, variables }
    }

    fn deepseek(steps: Vec<Step>) -> Self {
        Self::new("deepseek/deepseek-v4-pro", ["DEEPSEEK_BASE_URL", "/v1", "DEEPSEEK_API_KEY"], steps)
    }

    fn anthropic(model: &'static str) -> Self {
        Self::new(model, ["ANTHROPIC_BASE_URL", "", "ANTHROPIC_API_KEY"], Vec::new())
    }

    fn openai(model: &'static str, steps: Vec<Step>) -> Self {
        Self::new(model, ["OPENAI_BASE_URL", "/v1", "OPENAI_API_KEY"], steps)
    }

    fn run<const N: usize>(&self, arguments: [&str; N]) -> Ended {
        let mut command = self.stage.command(["run", "-m", self.model].into_iter().chain(arguments));
        command.envs(self.variables.iter().map(|(name, value)| (*name, value)));
        finish(command)
    }
}

#[test]
fn deepseek_reads_in_the_second_step_what_it_thought_in_the_first() {
    let known = Known::deepseek(vec![
        reasoning("I should look first.").call("list", json!({})),
        text("It is empty."),
    ]);
    known.run(["What is here?"]).is(0);
    let requests = known.stage.requests();
    let answer = &requests[1]["messages"].as_array().unwrap()[2];
    assert_eq!(answer["role"], "assistant");
    assert_eq!(answer["reasoning_content"], "I should look first.");
    assert_eq!(answer["tool_calls"][0]["function"]["name"], "list");
}

#[test]
fn a_model_is_told_how_much_to_think_in_words_that_it_takes() {
    let told = |known: Known| -> Value {
        let (provider, model) = known.model.split_once('/').unwrap();
        known.stage.configure(&format!("[providers.{provider}.models.\"{model}\"]\nreasoning = \"low\""));
        known.run(["Go."]).is(0);
        known.stage.requests().remove(0)
    };
    let newest = told(Known::anthropic("anthropic/claude-opus-4-8"));
    assert_eq!(newest["thinking"], json!({"type": "adaptive", "display": "summarized"}));
    assert_eq!(newest["output_config"], json!({"effort": "low"}));
    let older = told(Known::anthropic("anthropic/claude-sonnet-4-5"));
    assert_eq!(older["thinking"], json!({"type": "enabled", "budget_tokens": 4096}));
    assert_eq!(older["output_config"], Value::Null);
    assert_eq!(told(Known::deepseek(Vec::new()))["reasoning_effort"], "high", "it knows none below");
    let alibaba = ["DASHSCOPE_BASE_URL", "/v1", "DASHSCOPE_API_KEY"];
    let budget = told(Known::new("alibaba/qwen3.7-max", alibaba, Vec::new()));
    assert_eq!((&budget["enable_thinking"], &budget["thinking_budget"]), (&json!(true), &json!(4096)));
    assert_eq!(budget["reasoning_effort"], Value::Null);
    let openrouter = ["OPENROUTER_BASE_URL", "/v1", "OPENROUTER_API_KEY"];
    let object = told(Known::new("openrouter/z-ai/glm-5.2", openrouter, Vec::new()));
    assert_eq!(object["reasoning"], json!({"effort": "high"}));
}

#[test]
fn reasoning_comes_encrypted_and_goes_back_also_if_nothing_is_said_about_it() {
    let steps = vec![reasoning("look").call("list", json!({})), text("done")];
    let known = Known::openai("openai/gpt-5.3-codex", steps);
    known.run(["Go."]).is(0);
    let requests = known.stage.requests();
    assert_eq!(requests[0]["include"], json!(["reasoning.encrypted_content"]));
    assert_eq!(requests[0]["reasoning"], Value::Null);
    let back = requests[1]["input"].as_array().unwrap().iter().find(|item| item["type"] == "reasoning");
    assert!(!back.unwrap()["encrypted_content"].as_str().unwrap().is_empty());
}

#[test]
fn a_request_that_was_long_is_paid_as_one() {
    let reported = UsageOverride { input: Some(300_000), output: Some(1_000), ..UsageOverride::default() };
    let known = Known::openai("openai/gpt-5.4", vec![text("ok").usage(reported)]);
    known.run(["Go."]).is(0).says(["$1.5225"]);
    let costs: Vec<String> = known
        .stage
        .records(&known.stage.session())
        .into_iter()
        .filter_map(|record| match record {
            Record::AttemptEnded(ended) => Some(ended.cost.unwrap().to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(costs, ["$1.5225"]);
}

#[test]
fn a_model_that_reads_no_images_is_sent_none() {
    let known = Known::deepseek(vec![text("").call("read", json!({"filePath": "dot.png"})), text("I see.")]);
    known.stage.write("dot.png", PNG);
    known.run(["Look at dot.png."]).is(0);
    let second = known.stage.requests().remove(1).to_string();
    assert!(second.contains("is not shown: this model reads no images"), "{second}");
    assert!(!second.contains("image_url"), "{second}");

    // Nor one that a person attaches: it reads a note in its place.
    known.run(["-f", "dot.png", "What is this?"]).is(0);
    let third = known.stage.requests().remove(2).to_string();
    assert!(
        third.contains("dot.png") && third.contains("is not shown: this model reads no images"),
        "{third}"
    );
    assert!(!third.contains("image_url"), "{third}");
}
