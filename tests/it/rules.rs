//! Long sessions with today's models: a mock that refuses what their providers refuse never does.

use std::fmt::Write as _;

use fs_err as fs;
use mock_llm::{
    Fault, Mock, MockOptions, Model, Moment, RefusalShape, Rules, RulesReport, Script, call, reasoning, text,
};
use playhouse::protocol::Record;
use serde_json::{Value, json};

use crate::stage::Stage;
use crate::tap::Tap;

/// A model of a provider, and what it is spoken to in.
struct Asked {
    provider: &'static str,
    dialect: &'static str,
    model: &'static str,
    /// Another model of the family, to switch to and back.
    sibling: &'static str,
}

const ASKED: [Asked; 7] = [
    Asked { provider: "a", dialect: "openai-responses", model: "gpt-6.2-sol", sibling: "gpt-6.1-sol" },
    Asked { provider: "b", dialect: "openai-responses", model: "gpt-5.5", sibling: "gpt-5.4" },
    Asked { provider: "c", dialect: "anthropic", model: "claude-opus-5-5", sibling: "claude-sonnet-5-5" },
    Asked { provider: "d", dialect: "anthropic", model: "claude-sonnet-4-6", sibling: "claude-opus-4-6" },
    Asked { provider: "e", dialect: "gemini", model: "gemini-3.8-flash", sibling: "gemini-3.7-flash" },
    Asked { provider: "f", dialect: "openai-chat", model: "deepseek-v4-pro", sibling: "deepseek-v4-flash" },
    Asked { provider: "g", dialect: "openai-chat", model: "plain-1", sibling: "plain-2" },
];

/// The window: small, so that results are cleared and the history is compacted more than once.
const WINDOW: &str = "context = 40000\noutput = 4000\nreasoning = \"high\"\ntemperature = 0.5\n";

/// A model that thinks and reads one file after the other, and stops when it may not call.
fn reading() -> Model {
    (0..150).fold(Model::new().cycle(), |model, number| {
        let input = json!({"filePath": format!("f{number}.txt")});
        model
            .step(reasoning(format!("Thought {number}.")).text(format!("File {number}.")).call("read", input))
    })
}

/// A mock that knows all of these models, a configuration with a provider for each, and a workspace of files.
fn stage(rules: Rules) -> Stage {
    let names = || ASKED.iter().flat_map(|asked| [asked.model, asked.sibling]);
    let script = names().fold(Script::new(), |script, name| script.model(name, reading()));
    let stage = Stage::with_rules(script, MockOptions::default(), rules);
    let url = stage.url();
    let mut config = "model = \"a/gpt-6.2-sol\"\n".to_owned();
    for Asked { provider, dialect, model, sibling } in &ASKED {
        let path = if dialect.starts_with("openai") { "/v1" } else { "" };
        writeln!(config, "[providers.{provider}]\ndialect = \"{dialect}\"\nbase_url = \"{url}{path}\"")
            .unwrap();
        for name in [model, sibling] {
            writeln!(config, "[providers.{provider}.models.\"{name}\"]\n{WINDOW}").unwrap();
        }
    }
    fs::write(&stage.config, config).unwrap();
    for number in 0..150 {
        stage.write(&format!("f{number}.txt"), format!("{number} {}\n", "words of a file ".repeat(120)));
    }
    stage
}

/// A long turn to its step limit, a next one, a switch to a sibling and to another family and back, and a fork.
fn drive(stage: &Stage, asked: &Asked) {
    let own = format!("{}/{}", asked.provider, asked.model);
    let sibling = format!("{}/{}", asked.provider, asked.sibling);
    let other = if asked.dialect == "anthropic" { "a/gpt-6.2-sol" } else { "c/claude-opus-5-5" };
    stage.run(["-m", &own, "--steps", "140", "Read it all."]).is(4);
    let session = stage.session();
    for (model, steps) in [(own.as_str(), "12"), (&sibling, "4"), (&own, "4"), (other, "4"), (&own, "36")] {
        stage.run(["-s", &session, "-m", model, "--steps", steps, "Go on."]).is(4);
    }
    let records = stage.records(&session);
    let count = |is_it: fn(&Record) -> bool| records.iter().filter(|record| is_it(record)).count();
    let cleared = count(|record| matches!(record, Record::ContextCleared(_)));
    let compacted = count(|record| matches!(record, Record::ContextCompacted(_)));
    assert!(cleared > 1 && compacted > 0, "{own}: {cleared} times cleared, {compacted} times compacted");
    stage.run(["-s", &session, "--fork", "-m", &own, "--steps", "4", "And now?"]).is(4);
}

fn check(report: &RulesReport, name: &str) {
    for (model, counts) in &report.models {
        assert_eq!(counts.refused, 0, "{name}: {model}: {:?}", counts.messages);
        assert_eq!((counts.stale, counts.missing), (0, 0), "{name}: {model}: {counts:?}");
    }
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn two_hundred_steps_are_refused_by_no_model_and_leave_nothing_behind_that_could_come_back() {
    for asked in &ASKED {
        let stage = stage(Rules::default());
        drive(&stage, asked);
        let requests = stage.requests();
        assert!(requests.len() >= 200, "{}: {} requests", asked.model, requests.len());
        let report = stage.mock.rules_report();
        check(&report, asked.model);
        let valid = report.models.get(asked.model).map_or(0, |counts| counts.valid);
        // A server that is just compatible has no rules, and Claude's and GPT's own reasoning came back.
        assert_eq!(valid > 0, asked.model != "plain-1", "{}: {valid} came back", asked.model);
    }
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_provider_that_drops_stale_reasoning_finds_none() {
    let stage = stage(Rules { drop_stale_thinking: true, ..Rules::default() });
    drive(&stage, &ASKED[2]);
    check(&stage.mock.rules_report(), "claude-opus-5-5");
}

#[test]
fn a_refused_parameter_is_left_out_and_the_turn_goes_on() {
    for shape in [RefusalShape::Param, RefusalShape::Path, RefusalShape::Prose] {
        let refused = ["reasoning_effort", "stream_options", "temperature", "max_tokens", "tool_choice"];
        let rules = Rules {
            refused_fields: refused.map(str::to_owned).to_vec(),
            refusal_shape: shape,
            ..Rules::default()
        };
        let script = Script::new().model("plain-1", Model::new().step(text("Done.")));
        let stage = Stage::with_rules(script, MockOptions::default(), rules);
        let config = format!(
            "model = \"g/plain-1\"\n[providers.g]\ndialect = \"openai-chat\"\nbase_url = \"{}/v1\"\n\
             [providers.g.models.plain-1]\n{WINDOW}",
            stage.url()
        );
        fs::write(&stage.config, config).unwrap();
        // The last step says that nothing may be called.
        stage.run(["--steps", "1", "Hello."]).is(4);
        let requests = stage.requests();
        assert_eq!(requests.len(), refused.len() + 1, "{shape:?}: one more for each parameter");
        let last = requests.last().unwrap();
        for name in refused {
            assert!(requests[0].get(name).is_some() && last.get(name).is_none(), "{shape:?}: {name}");
        }
        assert_ne!(last["messages"], Value::Null);
        assert_eq!(last["max_completion_tokens"], requests[0]["max_tokens"], "{shape:?}: the same limit");
    }
}

#[test]
fn a_tool_from_outside_that_is_refused_is_set_aside_and_the_turn_goes_on() {
    let rules = Rules {
        refused_fields: vec!["x-never".to_owned()],
        refusal_shape: RefusalShape::Path,
        ..Rules::default()
    };
    let models = Model::new().step(call("save_note", json!({"q": "kept"}))).step(text("Done."));
    let script = Script::new().model("plain-1", models.cycle());
    let stage = Stage::with_rules(script, MockOptions::default(), rules);
    let url = stage.url();
    let config = format!(
        "model = \"g/plain-1\"\n[providers.g]\ndialect = \"openai-chat\"\nbase_url = \"{url}/v1\"\n\
         [providers.g.models.plain-1]\ncontext = 40000\noutput = 4000\n"
    );
    fs::write(&stage.config, config).unwrap();
    for (name, keyword) in [("odd", "x-never: true"), ("note", "minLength: 1")] {
        let tool = format!(
            "---\nname: save_{name}\ndescription: Keeps it\nschema:\n  type: object\n  properties:\n    \
             q: {{type: string, {keyword}}}\n---\n"
        );
        stage.write(&format!(".playhouse/capture/{name}.md"), tool);
    }
    // A program that starts again has to find it again: what is shown is the same.
    for (run, prompt) in ["Keep it.", "Keep more."].into_iter().enumerate() {
        if run == 0 {
            stage.run([prompt]).is(0);
        } else {
            stage.run(["-s", &stage.session(), prompt]).is(0);
        }
        let requests = &stage.requests()[3 * run..];
        let names = |request: &Value| -> Vec<String> {
            let tools = request["tools"].as_array().unwrap().iter();
            tools.map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(requests.len(), 3, "one refusal for two steps");
        assert!(names(&requests[0]).contains(&"save_odd".to_owned()));
        let rest: Vec<_> = names(&requests[0]).into_iter().filter(|name| name != "save_odd").collect();
        assert_eq!([names(&requests[1]), names(&requests[2])], [rest.clone(), rest]);
    }
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn reasoning_that_a_server_does_not_take_back_is_left_out_and_the_turn_goes_on() {
    for Asked { provider, model, .. } in ASKED.iter().filter(|asked| asked.model != "plain-1") {
        let mut stage = stage(Rules::default());
        // A server whose signatures are no others'.
        stage.goes_on_before(Mock::new(Script::new().model(*model, reading())));
        stage.run(["-m", &format!("{provider}/{model}"), "--steps", "3", "Read."]).is(4);
        let session = stage.session();
        let script = Script::new().model(*model, reading());
        stage.goes_on_before(Mock::with_rules(script, MockOptions::default(), Rules::default()).unwrap());
        stage.run(["-s", &session, "--steps", "4", "Go on."]).is(4);
        let report = stage.mock.rules_report();
        let counts = &report.models[*model];
        // DeepSeek's is text, which any server takes.
        let refused = u64::from(*model != "deepseek-v4-pro");
        assert_eq!(counts.refused, refused, "{model}: {:?}", counts.messages);
        assert!(counts.refused == 0 || counts.valid > 0, "{model}: what is made afterwards comes back");
    }
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn the_reasoning_of_answers_that_say_nothing_or_fail_goes_back() {
    for Asked { provider, model, dialect, .. } in ASKED.iter().filter(|asked| asked.dialect != "openai-chat")
    {
        // Gemini signs at the end of an answer, which one that fails does not reach.
        let failed = u64::from(*dialect != "gemini");
        let begun = || reasoning("Begun.").text("One two three.");
        let script = Model::new()
            .step(reasoning("Only thought."))
            .next_turn()
            .step(begun().fault(Fault::error_event(Moment::InText, "Broken.")))
            .next_turn()
            .step(reasoning("Said.").text("Done."))
            .next_turn()
            .step(text("Well."));
        let mut stage = stage(Rules::default());
        let config = fs::read_to_string(&stage.config).unwrap();
        fs::write(&stage.config, config.replace("[providers.a]", "retry.attempts = 1\n[providers.a]"))
            .unwrap();
        let script = Script::new().model(*model, script);
        stage.goes_on_before(Mock::with_rules(script, MockOptions::default(), Rules::default()).unwrap());
        let full = format!("{provider}/{model}");
        stage.run(["-m", &full, "Think."]).is(0).says(["only its reasoning"]);
        let session = stage.session();
        for (prompt, code) in [("Speak.", 1), ("Again.", 0), ("And?", 0)] {
            stage.run(["-s", &session, prompt]).is(code);
        }
        let report = stage.mock.rules_report();
        check(&report, model);
        let last = stage.requests().pop().unwrap().to_string();
        assert_eq!(last.matches("(The answer ended here.)").count() as u64, 1 + failed, "{model}");
        assert!(!last.contains("One two"), "{model}: what it began to say is no answer");
        assert_eq!(report.models[*model].valid, 2 + failed, "{model}: {:?}", report.models[*model]);
    }
}

#[test]
fn what_did_not_help_is_taken_back_and_the_refusal_is_final() {
    let stage = Stage::new(Model::new());
    let body = json!({"error": {"type": "invalid_request_error", "param": null,
        "message": "Invalid schema for function 'read': 'minimum' is not permitted, nor is anything else."}});
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.to_string().len()
    );
    let tap = Tap::answering(answer);
    stage.configure(&format!(
        "[providers.g]\ndialect = \"openai-chat\"\nbase_url = \"{}/v1\"\n[providers.g.models.plain-1]\n{WINDOW}",
        tap.url()
    ));
    let posts = || tap.heard().matches("POST /v1/chat/completions ").count();
    stage.run(["-m", "g/plain-1", "Hello."]).is(1).says(["'minimum' is not permitted"]);
    let first = posts();
    assert!(first > 1, "the request is sent again without the keyword: {first}");
    assert!(first < 30, "{first}");
    stage.run(["-m", "g/plain-1", "Hello."]).is(1);
    assert_eq!(posts(), 2 * first, "nothing of it is kept");
}
