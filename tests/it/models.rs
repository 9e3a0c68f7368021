//! `playhouse models`: the list, one model in full, and loading a whole catalogue.

use std::path::PathBuf;

use mock_llm::Model;
use serde_json::{Value, json};

use crate::stage::{Stage, finish};
use crate::tap::Tap;

/// A small catalogue in the format of models.dev.
fn catalogue() -> Value {
    json!({
        "acme": {"id": "acme", "env": ["ACME_KEY"], "models": {
            "one": {
                "limit": {"context": 131072, "output": 4096},
                "cost": {"input": 0.15, "output": 0.6, "tiers": [
                    {"tier": {"size": 50000}, "input": 0.3, "output": 1.2}
                ]},
                "modalities": {"input": ["text", "pdf"]},
            },
            "free": {"limit": {"context": 8192, "output": 1024}},
        }},
        "openai": {"models": {"gpt-4.1": {"limit": {"context": 77, "output": 7}}}},
    })
}

/// A file of the test with this content.
fn file(stage: &Stage, content: &str) -> PathBuf {
    let file = stage.root().join("api.json");
    fs_err::write(&file, content).unwrap();
    file
}

fn update(stage: &Stage, source: impl AsRef<std::ffi::OsStr>) -> crate::stage::Ended {
    stage.playhouse(["models".as_ref(), "update".as_ref(), source.as_ref()])
}

#[test]
fn the_list_tells_limits_prices_and_who_has_a_key() {
    let stage = Stage::new(Model::new());
    let listed = |arguments: &[&str]| {
        let mut command = stage.command(arguments);
        command.env("OPENAI_API_KEY", "sk-123456789");
        let ended = finish(command).is(0);
        assert!(!ended.stdout.contains("sk-123456789") && !ended.stderr.contains("sk-123456789"));
        ended
    };
    let all = listed(&["models"]);
    assert!(all.stdout.lines().count() > 70, "{}", all.stdout);
    all.shows([
        "US dollars per million tokens",
        "\nanthropic (no key: set ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN)\n",
        "claude-haiku-4-5 ",
        "200,000     64,000         1       0.1      1.25         5  yes        text, image, pdf\n",
        "\nlocal (needs no key)\n",
        "100,000      4,000",
        "\nollama (needs no key)\n  no model is known: configure one in [providers.ollama.models.NAME]\n",
        "\nopenai (key in OPENAI_API_KEY)\n",
        "gpt-5.4 ",
        "above 272,000 of input",
    ]);
    let some = listed(&["models", "openai", "--format", "json"]);
    let lines = some.lines();
    let line = lines.iter().find(|line| line["model"] == "gpt-5.4").unwrap();
    assert_eq!(
        *line,
        json!({
            "provider": "openai", "model": "gpt-5.4", "source": "built in", "key": "set",
            "context": 1_050_000, "input": 922_000, "output": 128_000,
            "prices": {"input": "2.5", "output": "15", "cache_read": "0.25"},
            "long": [{"above": 272_000, "prices": {"input": "5", "output": "22.5", "cache_read": "0.5"}}],
            "multiples": {"batch": "0.5", "eu": "1.1", "flex": "0.5", "priority": "2", "us": "1.1"},
            "gaps": ["cache_write", "cache_write above 272000 tokens"],
            "attachments": ["image", "pdf"], "reasoning": true, "temperature": true,
            "ends": null, "successor": null,
        })
    );
    assert!(lines.iter().all(|line| line["provider"] == "openai"));
    stage
        .playhouse(["models", "opena"])
        .is(2)
        .says(["unknown provider \"opena\"; there are ", "did you mean \"openai\""]);
}

/// A day so many days from today, in UTC.
fn day(days: i64) -> String {
    let time = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24 * days);
    time.strftime("%Y-%m-%d").to_string()
}

#[test]
fn models_that_ended_are_left_out_and_those_that_end_soon_are_marked() {
    let stage = Stage::new(Model::new());
    let mut text = "version = \"2026-11-26\"\n".to_owned();
    for (name, days) in [("gone", 0), ("going", 3), ("staying", 40)] {
        text += &format!(
            "[models.acme.{name}]\ncontext = 9000\noutput = 900\nends = \"{}\"\nsuccessor = \"new\"\n",
            day(days)
        );
    }
    update(&stage, file(&stage, &text)).is(0).shows(["kept 3 models of 1 providers"]);
    let listed = stage.playhouse(["models", "acme"]).is(0);
    let listed = listed.shows([&format!("text; loaded; ends {}: use new\n", day(3)), "staying "]);
    assert!(!listed.stdout.contains("gone ") && !listed.stdout.contains(&day(40)), "{}", listed.stdout);
    let lines = stage.playhouse(["models", "acme", "--format", "json"]).is(0).lines();
    let ends: Vec<&Value> = lines.iter().map(|line| &line["ends"]).collect();
    assert_eq!(ends, [&json!(day(3)), &json!(day(40))]);
    // Whoever names it is told of it.
    stage.playhouse(["models", "show", "acme/gone"]).is(0).shows([
        "source          loaded (models.toml 2026-11-26)\n",
        &format!("end             ended {}: use new\n", day(0)),
        "No price is known.",
    ]);
}

#[test]
fn one_model_is_shown_in_full() {
    let stage = Stage::new(Model::new());
    stage.playhouse(["models", "show", "openai/gpt-6.2-sol"]).is(0).shows([
        "openai/gpt-6.2-sol\n  source          built in (builtin-",
        "context         1,050,000 tokens\n",
        "input           922,000 tokens at most\n",
        "reads           text, image, pdf\n",
        "reasoning       yes: low, medium, high, xhigh, max\n",
        "rules           refuses or drops thinking behind a change of what stood before it\n",
        "                refuses temperature and top_p\n",
        "input  cache_read  cache_write_30m  cache_write_12h    output\n",
        "usual                          2         0.1              2.5                5        10\n",
        "above 272,000 of input         4         0.2                5               10        15\n",
        "ultrafast: times 3\n",
    ]);
    stage.playhouse(["models", "show", "deepseek/deepseek-v4-pro"]).is(0).shows([
        "reasoning       yes: high, max\n",
        "off_peak: times 0.5 (1-5 00:00-01:00, 1-5 04:00-06:00, 1-5 10:00-24:00, 6-7 00:00-24:00 UTC)\n",
    ]);
    stage.playhouse(["models", "show", "anthropic/claude-haiku-4-5"]).is(0).shows([
        "reasoning       yes: a budget from 1,024 tokens\n",
        "rules           goes on with an answer that the request begins\n",
    ]);
    stage.playhouse(["models", "show", "gateway/anthropic/claude-opus-6"]).is(0).shows([
        "inherited from  anthropic/claude-opus-5-5: all but its prices\n",
        "key             not configured\n",
        "rules           always thinks\n",
        "No price is known.",
    ]);
    let shown = stage.playhouse(["models", "show", "openai/gpt-6.3-sol", "--format", "json"]).is(0).lines();
    let [shown] = shown.as_slice() else { panic!("{shown:?}") };
    assert_eq!(
        (&shown["model"], &shown["inherited_from"]),
        (&json!("gpt-6.3-sol"), &json!("openai/gpt-6.2-sol"))
    );
    assert_eq!((&shown["prices"], &shown["multiples"]), (&json!({}), &json!({})));
    assert_eq!(
        shown["rules"],
        json!({
            "thinking": "on_request", "display": false, "prefix_check": true, "sampling": "never",
            "forced_tool_choice": true, "prefill": false, "parallel_calls": true, "system_messages": false,
            "responses": true, "chat": true, "system_in_input": true, "tool_search": true,
        })
    );
    stage
        .playhouse(["models", "show", "anthropic/claude-sonet-5"])
        .is(2)
        .says(["unknown model \"anthropic/claude-sonet-5\"; did you mean \"anthropic/claude-sonnet-5\""]);
    stage.playhouse(["models", "show", "claude"]).is(2).says(["PROVIDER/MODEL"]);
    stage.playhouse(["models", "show"]).is(2).says(["PROVIDER/MODEL"]);
}

#[test]
fn each_format_is_loaded_and_named() {
    let stage = Stage::new(Model::new());
    let litellm = json!({"xai/grok-9": {
        "litellm_provider": "xai", "mode": "chat", "max_input_tokens": 9000, "max_output_tokens": 900,
        "input_cost_per_token": 2e-06,
    }});
    let toml = "version = \"2026-11-26\"\n[models.xai.\"grok-9\"]\ncontext = 9000\noutput = 900\n";
    for (text, name) in [(litellm.to_string(), "(litellm)"), (toml.to_owned(), "(models.toml 2026-11-26)")] {
        update(&stage, file(&stage, &text)).is(0).shows(["kept 1 models of 1 providers"]);
        stage.playhouse(["models", "show", "xai/grok-9"]).is(0).shows(["source          loaded ", name]);
    }
    update(&stage, file(&stage, &format!("{toml}colour = 1\n")))
        .is(2)
        .says(["api.json: line 5: unknown field"]);
    let mut wrong = litellm;
    wrong["xai/grok-9"]["max_input_tokens"] = "many".into();
    update(&stage, file(&stage, &wrong.to_string()))
        .is(2)
        .says(["api.json: \"xai/grok-9\".max_input_tokens: is text, expected a whole number from 0"]);
}

#[test]
fn a_catalogue_is_loaded_from_a_file_and_kept() {
    let stage = Stage::new(Model::new());
    let kept = stage.root().join("models.json");
    let ended = update(&stage, file(&stage, &catalogue().to_string())).is(0);
    let says = format!("kept 3 models of 2 providers in {}; 2 of them have no price\n", kept.display());
    assert_eq!(ended.stdout, says);
    stage.playhouse(["models", "acme"]).is(0).shows([
        "acme (not configured)",
        "free ",
        "8,192      1,024         -         -         -         -  no         text; loaded\n",
        "one ",
        "131,072      4,096      0.15         -         -       0.6  no         text, pdf; loaded\n",
        "above 50,000 of input",
        "0.3         -         -       1.2\n",
    ]);
    // It stands before what is built in, and behind what is configured.
    let source = |model: &str| {
        let lines = stage.playhouse(["models", "openai", "--format", "json"]).is(0).lines();
        let line = lines.iter().find(|line| line["model"] == model).unwrap();
        (line["source"].as_str().unwrap().to_owned(), line["context"].as_u64().unwrap())
    };
    assert_eq!(source("gpt-4.1"), ("loaded".to_owned(), 77));
    assert_eq!(source("gpt-5.4"), ("built in".to_owned(), 1_050_000));
    stage.configure("[providers.openai.models.\"gpt-4.1\"]\ncontext = 99");
    assert_eq!(source("gpt-4.1"), ("configured".to_owned(), 99));
    // A provider of the catalogue becomes usable with an address, its models without another word.
    stage.configure(&format!(
        "[providers.acme]\ndialect = \"openai-chat\"\nbase_url = \"{}/v1\"",
        stage.url()
    ));
    stage.run(["-m", "acme/one", "Go."]).is(1).says(["404"]);
    assert_eq!(stage.asked()[0].model.as_deref(), Some("one"));
}

#[test]
fn a_model_that_holds_no_conversation_is_not_offered() {
    let stage = Stage::new(Model::new());
    let model = |context: u64, output: &str| json!({"limit": {"context": context, "output": context / 2}, "modalities": {"output": [output]}});
    let models =
        json!({"painter": model(9_000, "image"), "poet": model(9_000, "text"), "blank": model(0, "text")});
    update(&stage, file(&stage, &json!({"openai": {"models": models}}).to_string())).is(0);
    let names = stage.playhouse(["models", "openai", "--format", "json"]).is(0);
    let names: Vec<Value> = names.lines().iter().map(|line| line["model"].clone()).collect();
    assert!(names.contains(&json!("poet")), "{names:?}");
    assert!(!names.contains(&json!("painter")) && !names.contains(&json!("blank")), "{names:?}");
    let unusable = "unknown model \"openai/painter\": it does not answer in text";
    stage.run(["-m", "openai/painter", "Go."]).is(2).says([unusable]);
    stage.run(["-m", "openai/blank", "Go."]).is(2).says(["does not tell how much it reads or writes"]);
}

#[test]
fn a_catalogue_that_is_wrong_changes_nothing() {
    let stage = Stage::new(Model::new());
    update(&stage, file(&stage, &catalogue().to_string())).is(0);
    let kept = stage.root().join("models.json");
    let before = fs_err::read(&kept).unwrap();
    let mut wrong = catalogue();
    wrong["acme"]["models"]["one"]["limit"]["context"] = "many".into();
    for (text, says) in [
        (
            wrong.to_string(),
            "api.json: acme.models.one.limit.context: is text, expected a whole number from 0",
        ),
        ("{".to_owned(), "api.json: not JSON: "),
        ("{}".to_owned(), "there is no model in it"),
    ] {
        update(&stage, file(&stage, &text)).is(2).says([says]);
    }
    update(&stage, stage.root().join("absent.json")).is(2).says(["absent.json"]);
    update(&stage, stage.root()).is(2);
    stage.playhouse(["models", "update"]).is(2).says(["FILE|URL"]);
    assert_eq!(fs_err::read(&kept).unwrap(), before);
}

#[test]
fn a_kept_catalogue_that_cannot_be_read_is_named_and_mended() {
    let stage = Stage::new(Model::new());
    fs_err::write(stage.root().join("models.json"), r#"{"format":"playhouse-models","version":7}"#).unwrap();
    for command in [&["models"][..], &["run", "Go."]] {
        stage
            .playhouse(command)
            .is(2)
            .says(["models.json: catalogue version 7", "run `playhouse models update` again"]);
    }
    stage.playhouse(["--version"]).is(0);
    update(&stage, file(&stage, &catalogue().to_string())).is(0);
    stage.run(["Go."]).is(0);
}

#[test]
fn a_catalogue_is_fetched() {
    let stage = Stage::new(Model::new());
    let body = catalogue().to_string();
    let tap = Tap::answering(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
    let url = format!("{}/api.json?token=secret", tap.url());
    update(&stage, &url).is(0).shows(["kept 3 models of 2 providers"]);
    assert!(tap.heard().starts_with("GET /api.json?token=secret HTTP/1.1\r\n"), "{}", tap.heard());
    let gone = Tap::answering("HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n");
    let ended = update(&stage, format!("{}/api.json?token=secret", gone.url())).is(1);
    assert!(!ended.stderr.contains("secret"), "{}", ended.stderr);
    ended.says(["/api.json answers with status 410 Gone"]);
    let page = Tap::answering("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>");
    update(&stage, page.url()).is(2).says([page.url(), "not JSON: "]);
    update(&stage, "ftp://a.example/api.json").is(1).says(["use http or https"]);
}

/// As large as that of models.dev: a few thousand models, of which some do not answer with text, some have no price, and some one in
/// steps.
#[test]
fn a_whole_catalogue_is_loaded() {
    const OTHERS: u32 = 200;
    let model = |number: u32| {
        let output = if number.is_multiple_of(5) { "image" } else { "text" };
        let mut model = json!({
            "id": format!("m-{number}"), "name": format!("Model {number}"), "attachment": number.is_multiple_of(2),
            "reasoning": number.is_multiple_of(3), "temperature": true, "tool_call": true, "open_weights": false,
            "release_date": "2026-10-01", "last_updated": "2026-11-01", "knowledge": "2026-05",
            "modalities": {"input": ["text", "image"], "output": [output]},
            "limit": {"context": 200_000, "output": 32_000},
        });
        if !number.is_multiple_of(4) {
            model["cost"] = json!({"input": 3, "output": 15.5, "cache_read": 0.3, "tiers": [
                {"tier": {"type": "context", "size": 128_000}, "input": 6, "output": 31},
            ]});
        }
        model
    };
    let provider = |name: &str| {
        let models: serde_json::Map<String, Value> =
            (0..20).map(|number| (format!("family/m-{number}"), model(number))).collect();
        json!({"id": name, "env": ["KEY"], "npm": "@ai-sdk/openai-compatible", "models": models})
    };
    let names = ["anthropic", "fireworks-ai", "openrouter"].map(str::to_owned);
    let names: Vec<String> =
        names.into_iter().chain((0..OTHERS).map(|number| format!("p{number}"))).collect();
    let all: serde_json::Map<String, Value> =
        names.iter().map(|name| (name.clone(), provider(name))).collect();
    let stage = Stage::new(Model::new());
    let path = stage.workspace.join("all.json");
    fs_err::write(&path, Value::Object(all).to_string()).unwrap();
    let says = format!("kept {} models of {} providers", names.len() * 20, names.len());
    update(&stage, &path).is(0).shows([&says]);
    for provider in ["anthropic", "fireworks-ai", "openrouter"] {
        let lines = stage.playhouse(["models", provider, "--format", "json"]).is(0).lines();
        assert!(lines.len() >= 16, "{provider}: {} answer with text", lines.len());
    }
    stage.run(["Go."]).is(0);
}

#[test]
fn what_never_ends_is_not_read_and_no_password_is_shown() {
    let stage = Stage::new(Model::new());
    update(&stage, "/dev/zero").is(2).says(["/dev/zero has more than 64 MB"]);
    for url in ["https://ada:hunter2@example:99999/x", "ftp://ada:hun?ter2@example/x"] {
        let ended = update(&stage, url).is(1).says(["example"]);
        assert!(!ended.stderr.contains("hun") && !ended.stdout.contains("hun"), "{ended:?}");
    }
}
