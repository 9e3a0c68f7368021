//! Models change while engines run: a new catalogue, what providers tell of their models, ends, and what was found.

use mock_llm::{MockOptions, Model, RefusalShape, Rules, Script, text};
use playhouse::protocol::{Day, Record};
use serde_json::{Value, json};

use crate::stage::{Ended, Stage, finish, through_an_engine};
use crate::tap::Tap;

/// So many days from today, in UTC.
fn day(days: i64) -> String {
    let time = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24 * days);
    time.strftime("%Y-%m-%d").to_string()
}

/// A catalogue with one model of the stage's server, and its price of input.
fn load(stage: &Stage, price: u32) {
    let file = stage.root().join("api.json");
    let models = json!({"acme": {"models": {"one": {
        "limit": {"context": 100_000, "output": 4_000}, "cost": {"input": price, "output": 1}
    }}}});
    fs_err::write(&file, models.to_string()).unwrap();
    stage.playhouse(["models".as_ref(), "update".as_ref(), file.as_os_str()]).is(0);
}

fn acme(stage: &Stage) {
    let config = format!("[providers.acme]\ndialect = \"openai-chat\"\nbase_url = \"{}/v1\"\n", stage.url());
    stage.configure(&config);
}

#[test]
fn a_running_engine_takes_a_new_catalogue_for_its_next_turns() {
    through_an_engine(|| {
        let script = Script::new().model("one", Model::new().cycle().step(text("Done.")));
        let stage = Stage::with_rules(script, MockOptions::default(), Rules::default());
        acme(&stage);
        load(&stage, 3);
        stage.run(["-m", "acme/one", "Go."]).is(0);
        let (engine, _) = stage.engine().unwrap();
        load(&stage, 7);
        let session = stage.session();
        stage.run(["-s", &session, "Go on."]).is(0);
        assert_eq!(stage.engine().unwrap().0, engine, "the same engine");
        let prices = stage.records(&session).into_iter().filter_map(|record| match record {
            Record::AttemptStarted(started) if !started.purpose.is_aside() => started.prices.input,
            _ => None,
        });
        let prices: Vec<String> = prices.map(|price| price.to_string()).collect();
        assert_eq!(prices, ["3", "7"]);
    });
}

#[test]
fn what_a_running_engine_found_is_shown() {
    through_an_engine(|| {
        let rules = Rules {
            refused_fields: vec!["stream_options".to_owned()],
            refusal_shape: RefusalShape::Prose,
            ..Rules::default()
        };
        let script = Script::new().model("one", Model::new().cycle().step(text("Done.")));
        let stage = Stage::with_rules(script, MockOptions::default(), rules);
        acme(&stage);
        load(&stage, 3);
        stage.run(["-m", "acme/one", "Go."]).is(0);
        let line = "`stream_options` is left out; to make this permanent, add: [providers.acme] stream_options = false\n";
        stage.playhouse(["models", "show", "acme/one"]).is(0).shows(["found           ", line]);
        let lines = stage.playhouse(["models", "show", "acme/one", "--format", "json"]).is(0).lines();
        assert_eq!(lines[0]["findings"][0]["configuration"], "[providers.acme] stream_options = false");
    });
}

/// An answer of a provider's list of models.
fn listing(models: &Value) -> Tap {
    let body = json!({"data": models}).to_string();
    Tap::answering(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
}

fn online(stage: &Stage, arguments: &[&str], anthropic: &Tap, openai: &Tap) -> Ended {
    let mut command = stage.command(arguments);
    command.env("ANTHROPIC_BASE_URL", anthropic.url()).env("ANTHROPIC_API_KEY", "sk-ant-secret");
    command.env("OPENAI_BASE_URL", format!("{}/v1", openai.url())).env("OPENAI_API_KEY", "sk-secret");
    let ended = finish(command);
    assert!(!format!("{ended:?}").contains("secret"), "{ended:?}");
    ended
}

#[test]
fn providers_tell_of_their_own_models() {
    let stage = Stage::new(Model::new());
    let thinking = json!({"supported": true, "types": {"adaptive": {"supported": true}}});
    let anthropic = listing(&json!([
        {"id": "claude-opus-6", "lifecycle": "active", "max_input_tokens": 2_000_000, "max_tokens": 256_000,
         "capabilities": {"thinking": thinking, "effort": {"supported": true, "max": {"supported": true}}}},
        {"id": "claude-sonnet-4-6", "lifecycle": "deprecated", "retires_at": format!("{}T00:00:00Z", day(5))},
    ]));
    let openai = listing(&json!([
        {"id": "gpt-5.5", "object": "model"},
        {"id": "gpt-6-luna", "object": "model", "shutdown_date": day(9)},
    ]));
    stage.configure("[providers.anthropic.models.claude-opus-6]\nreasoning = \"max\"");
    stage.configure("[providers.anthropic.models.claude-sonnet-4-6]\nreasoning = \"high\"");
    stage.configure("[providers.openai.models.\"gpt-6.2-sol\"]\nreasoning = \"high\"");
    let doctor = online(&stage, &["doctor", "--online"], &anthropic, &openai);
    doctor.shows([
        "anthropic lists 2 models",
        "anthropic/claude-opus-6: a window of 2000000 tokens, not 1000000; 256000 tokens of output, not 128000",
        "run `playhouse models update --online`",
        &format!("anthropic/claude-sonnet-4-6: ends {}", day(5)),
        "openai does not list openai/gpt-6.2-sol",
    ]);
    let updated = online(&stage, &["models", "update", "--online"], &anthropic, &openai).is(0);
    updated.shows(["anthropic lists 2 models, openai lists 2 models; kept what that tells in "]);
    assert_eq!(anthropic.header("x-api-key"), ["sk-ant-secret"; 2]);
    assert_eq!(openai.header("authorization"), ["Bearer sk-secret"; 2]);
    assert!(anthropic.heard().starts_with("GET /v1/models?limit=1000 "), "{}", anthropic.heard());
    assert!(openai.heard().starts_with("GET /v1/models "), "{}", openai.heard());
    // A catalogue that is loaded afterwards leaves that as it is.
    load(&stage, 3);
    stage.playhouse(["models", "show", "anthropic/claude-opus-6"]).is(0).shows([
        "source          configured",
        "context         2,000,000 tokens",
        "output          256,000 tokens",
        "reasoning       yes: max\n",
        "No price is known.",
    ]);
    stage.playhouse(["models", "show", "openai/gpt-6-luna"]).is(0).shows([
        "limits, abilities or end as its provider lists them",
        &format!("end             ends {}", day(9)),
        "usual ",
    ]);
}

#[test]
fn a_provider_that_cannot_be_asked_is_named_and_the_others_count() {
    let stage = Stage::new(Model::new());
    let refused = Tap::answering("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n");
    let openai = listing(&json!([{"id": "gpt-6-luna", "shutdown_date": day(9)}]));
    online(&stage, &["models", "update", "--online"], &refused, &openai)
        .is(1)
        .says(["anthropic: ", "/v1/models answers with status 401"])
        .shows(["openai lists 1 models; kept"]);
    let doctor = online(&stage, &["doctor", "--online"], &refused, &openai);
    doctor
        .is(0)
        .shows(["missing  online         anthropic: ", "ok       online         openai lists 1 models"]);
    let page = Tap::answering("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>");
    online(&stage, &["models", "update", "--online"], &page, &page).is(1).says(["not JSON", "openai: "]);
    // Without a key nobody is asked.
    stage.playhouse(["models", "update", "--online"]).is(2).says(["set OPENAI_API_KEY or ANTHROPIC_API_KEY"]);
    stage.playhouse(["models", "update"]).is(2).says(["FILE|URL"]);
}

/// A stage whose catalogue has a model that ends in so many days, and that the configuration names.
fn ending(days: i64) -> Stage {
    let stage = Stage::new(Model::new());
    acme(&stage);
    let text = format!(
        "version = \"2026-11-26\"\n[models.acme.old]\ncontext = 90000\noutput = 900\nends = \"{}\"\n\
         successor = \"new\"\n",
        day(days)
    );
    let file = stage.root().join("models.toml");
    fs_err::write(&file, text).unwrap();
    stage.playhouse(["models".as_ref(), "update".as_ref(), file.as_os_str()]).is(0);
    let config = fs_err::read_to_string(&stage.config).unwrap();
    fs_err::write(&stage.config, format!("small_model = \"acme/old\"\n{config}")).unwrap();
    stage
}

#[test]
fn models_of_the_configuration_that_end_are_named_with_their_successors() {
    for (days, says) in [(3, "ends"), (0, "ended")] {
        let told = format!("acme/old (`small_model`) {says} {}: use new", day(days));
        let stage = ending(days);
        stage.playhouse(["doctor"]).is(0).shows([&format!("weak     lifecycle      {told}")]);
        let mut command = stage.command(["run", "Go."]);
        command.env("PLAYHOUSE_LOG", "warn");
        finish(command).says([&told]);
    }
    let stage = ending(40);
    stage
        .playhouse(["doctor"])
        .is(0)
        .shows(["ok       lifecycle      no model of the configuration ends within 30 days"]);
}

#[test]
fn who_asks_a_model_that_has_ended_is_told_so() {
    let stage = ending(-2);
    let ended = stage.run(["-m", "acme/old", "Go."]).is(1);
    ended.says(["does not know the model \"old\"", &format!("the model ended on {}: use new", day(-2))]);
    // A title may be given up after the turn has ended.
    let ended = stage.records(&stage.session()).into_iter().find_map(|record| match record {
        Record::TurnEnded(ended) => Some(ended),
        _ => None,
    });
    let error = ended.expect("the turn ended").error.unwrap();
    let told = error.for_tenant();
    assert_eq!(error.ended.unwrap().on, day(-2).parse::<Day>().unwrap());
    assert_eq!(told.message, format!("acme/old ended on {}: use new", day(-2)));
}

#[test]
fn a_named_dialect_that_models_refuse_is_told() {
    let stage = Stage::new(Model::new());
    stage.configure("[providers.openai]\ndialect = \"openai-chat\"");
    let doctor = stage.playhouse(["doctor"]).is(0);
    doctor.shows([
        "dialect        openai: in `openai-chat` these refuse tools: ",
        "gpt-6.2-sol",
        "take `dialect` out of",
    ]);
    let usual = Stage::new(Model::new()).playhouse(["doctor"]).is(0);
    assert!(!usual.stdout.contains("refuse tools"), "{}", usual.stdout);
}
