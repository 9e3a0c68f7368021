//! Budgets as they are configured: what `run` says, how it ends, and what is left of them after a restart.

use mock_llm::{Fault, Model, Script, Step, UsageOverride, call, text};
use playhouse::protocol::{ErrorCode, EventBody, Record};
use serde_json::{Value, json};

use crate::interrupt::start;
use crate::serve::Serving;
use crate::stage::{Dialect, Stage, in_both, through_an_engine};
use crate::usage::rows;

/// A step that uses 104,000 tokens, more than any request of a stage may need: $0.11.
fn dear(step: Step) -> Step {
    step.usage(UsageOverride { input: Some(100_000), output: Some(4_000), ..UsageOverride::default() })
}

fn worker() -> Model {
    Model::new().step(dear(call("list", json!({})))).step(dear(text("Never."))).cycle()
}

/// What the next step may need, as the refusal in this text says.
fn needed(said: &str) -> u64 {
    let (_, needed) = said.split_once("and the step may need ").unwrap();
    needed.split(';').next().unwrap().parse().unwrap()
}

#[test]
fn a_turn_that_its_budget_does_not_cover_fails_and_says_what_to_do() {
    in_both(|| {
        let stage = Stage::new(worker());
        stage.configure("[budgets.turn]\ntokens = 106_000");
        let ended = stage.run(["Look."]).is(1).says([
            "✓ list",
            "the turn's budget of 106000 tokens does not cover the next step: 104000 are used, and the step may need ",
            "; go on with a new prompt",
        ]);
        assert!(needed(&ended.stderr) > 4_000, "its input is more than nothing: {}", ended.stderr);
        assert_eq!((stage.asked().len(), rows(&stage).len()), (1, 1), "the second step was not sent");
        let ended = stage.run(["--format", "json", "-c", "Again."]).is(1);
        let error = ended.events().into_iter().find_map(|event| match event.body {
            EventBody::Durable(record) => match &*record {
                Record::TurnEnded(ended) => ended.error.clone(),
                _ => None,
            },
            EventBody::Provisional(_) => None,
        });
        assert_eq!(error.unwrap().code, ErrorCode::Budget);
        assert_eq!(stage.asked().len(), 2, "each turn has its own");
    });
}

#[test]
fn sessions_and_tenants_have_budgets_that_outlive_the_process() {
    let model = || Model::new().step(dear(text("Done."))).cycle();
    let stage = Stage::new(model());
    stage.configure("[budgets.session]\ncost = 0.13\n[budgets.tenant]\ncost = 0.35\nper = \"ever\"");
    stage.run(["One."]).is(0);
    // $0.11 is used. Another step, of some $0.03 at most, does not fit into this session, but into a new one.
    let said = [
        "the session's budget of $0.13 does not cover the next step: $0.11 is used",
        "go on in a new session",
    ];
    stage.run(["-c", "Two."]).is(1).says(said);
    stage.run(["Three."]).is(0);
    stage.run(["Four."]).is(0);
    let said =
        ["the tenant's budget of $0.35 does not cover the next step: $0.33 is used", "ask the operator"];
    stage.run(["Five."]).is(1).says(said);
    assert_eq!(stage.asked().len(), 3);
    // A tenant of its own has what is set for it.
    stage.configure("[budgets.tenants.local]\ncost = 1");
    stage.run(["Six."]).is(0);
}

#[test]
fn what_was_lost_when_the_engine_was_killed_is_counted() {
    let silent = Fault::stall(1);
    let stage = Stage::new(Model::new().step(text("I begin.").fault(silent)).cycle());
    stage.configure("[budgets.tenant]\nper = \"ever\"\ntokens = 1");
    let need = needed(&stage.run(["Begin."]).is(1).stderr);
    let config = fs_err::read_to_string(&stage.config).unwrap();
    fs_err::write(&stage.config, config.replace("tokens = 1", &format!("tokens = {}", need + 1_000)))
        .unwrap();
    let mut child = start(&stage, ["Begin."]);
    stage.wait_for(|asked| asked.len() == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    stage.run(["-c", "Go on."]).is(1).says(["the tenant's budget of", "does not cover the next step"]);
    let [lost] = &rows(&stage)[..] else { panic!("one attempt was lost, and none was made") };
    assert!(lost.tokens.total() > 1_000, "{lost:?}");
    assert_eq!(stage.asked().len(), 1);
}

#[test]
fn a_model_without_a_price_is_refused_under_a_budget_of_money() {
    let stage = Stage::new(Model::new().step(text("Done.")).cycle());
    let priced = fs_err::read_to_string(&stage.config).unwrap();
    let costs = "cost = { input = 1, output = 2.5, cache_read = 0.1, cache_write = 1.25 }";
    assert!(priced.contains(costs));
    let unpriced = priced.replace(costs, "");
    fs_err::write(&stage.config, format!("{unpriced}\n[budgets.turn]\ntokens = 200_000")).unwrap();
    stage.run(["Go."]).is(0);
    fs_err::write(&stage.config, format!("{unpriced}\n[budgets.turn]\ncost = 5")).unwrap();
    let said = ["the turn's budget of $5 needs to know what a step may cost, and the model has no price"];
    stage.run(["Go."]).is(1).says(said);
    let free = priced.replace(costs, "cost = { input = 0, output = 0 }");
    fs_err::write(&stage.config, format!("{free}\n[budgets.turn]\ncost = 0")).unwrap();
    stage.run(["Go."]).is(0);
    assert_eq!(stage.asked().len(), 2);
}

/// A step that mostly reads from the prompt cache, and costs $0.11 as long as a hit without a price costs what input does.
fn cached(step: Step) -> Step {
    step.usage(UsageOverride {
        input: Some(20_000),
        cache_read: Some(80_000),
        output: Some(4_000),
        ..UsageOverride::default()
    })
}

#[test]
fn limits_in_money_hold_where_prices_have_gaps_before_and_after_a_restart() {
    for (limit, said) in [
        (
            "[budgets.turn]\ncost = 0.13",
            "the turn's budget of $0.13 does not cover the next step: $0.11 is used",
        ),
        (
            "[budgets.session]\ncost = 0.13",
            "the session's budget of $0.13 does not cover the next step: $0.11 is used",
        ),
        (
            "[budgets.tenant]\ncost = 0.13\nper = \"ever\"",
            "the tenant's budget of $0.13 does not cover the next step: $0.11 is used",
        ),
        ("[server.limits]\nspend_per_day = 0.1", "this tenant spent $0.11 on this day"),
    ] {
        let is_of_turn = limit.contains("turn");
        let model = match is_of_turn {
            true => Model::new().step(cached(call("list", json!({})))).step(cached(text("Never."))).cycle(),
            false => Model::new().step(cached(text("Done."))).cycle(),
        };
        let stage = Stage::new(model);
        let config = fs_err::read_to_string(&stage.config).unwrap();
        let gaps = config.replace(", cache_read = 0.1, cache_write = 1.25", "");
        assert_ne!(gaps, config);
        fs_err::write(&stage.config, format!("{gaps}\n{limit}")).unwrap();
        let mut path = None;
        for run in ["before", "after"] {
            let serving = Serving::start(&stage, ["--port", "0"]);
            let path = path.get_or_insert_with(|| {
                let (status, session) = serving.ask("POST", "/session", &[], "{}");
                assert_eq!(status, 200, "{session}");
                let session: Value = serde_json::from_str(&session).unwrap();
                format!("/session/{}/message", session["id"].as_str().unwrap())
            });
            let prompt = json!({"parts": [{"type": "text", "text": "Look."}]}).to_string();
            if run == "before" && !is_of_turn {
                let (status, answer) = serving.ask("POST", path, &[], &prompt);
                assert!(status == 200 && answer.contains("Done."), "{limit}: {status}: {answer}");
            }
            let (status, answer) = serving.ask("POST", path, &[], &prompt);
            assert!(
                matches!(status, 200 | 429) && answer.contains(said),
                "{limit}, {run}: {status}: {answer}"
            );
        }
        assert_eq!(stage.asked().len(), if is_of_turn { 2 } else { 1 }, "{limit}");
    }
}

#[test]
fn a_budget_that_cannot_be_is_named_with_its_line() {
    let stage = Stage::new(Model::new());
    let lines = fs_err::read_to_string(&stage.config).unwrap().lines().count();
    let plain = fs_err::read_to_string(&stage.config).unwrap();
    for (text, said) in [
        ("[budgets.tenants.acme]\nper = \"day\"", "`budgets.tenants.acme.per`: is the period of a limit"),
        (
            "[budgets.tenant]\nper = \"week\"",
            "`budgets.tenant.per`: is \"week\", expected day, month or ever",
        ),
        ("[budgets.tenants.acme]\ncots = 1", "unknown key `budgets.tenants.acme.cots`"),
    ] {
        fs_err::write(&stage.config, format!("{plain}\n{text}")).unwrap();
        stage.run(["x"]).is(2).says([said, &format!("config.toml:{}: ", lines + 3)]);
    }
}

#[test]
fn clients_of_a_server_and_its_metrics_are_told() {
    through_an_engine(|| {
        let stage = Stage::speaking(Dialect::OpenaiChat, Script::new().model("m", worker()));
        stage.configure("[budgets.tenants.local]\ntokens = 106_000\nper = \"ever\"");
        let serving = Serving::start(&stage, ["--port", "0"]);
        let (status, session) = serving.ask("POST", "/session", &[], "{}");
        assert_eq!(status, 200, "{session}");
        let session: Value = serde_json::from_str(&session).unwrap();
        let path = format!("/session/{}/message", session["id"].as_str().unwrap());
        let prompt = json!({"parts": [{"type": "text", "text": "Look."}]}).to_string();
        let (status, answer) = serving.ask("POST", &path, &[], &prompt);
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let message = answer["info"]["error"]["data"]["message"].as_str().unwrap_or_default();
        let said = "the tenant's budget of 106000 tokens does not cover the next step: 104000 are used";
        assert!(status == 200 && message.starts_with(said), "{status}: {answer}");
        let (_, metrics) = serving.ask("GET", "/metrics", &[], "");
        for line in [
            "playhouse_budget_refusals_total{budget=\"tenant\"} 1",
            "playhouse_budget_refusals_total{budget=\"turn\"} 0",
            "playhouse_budget_steps_waiting 0",
            "playhouse_budget_reserved_dollars 0",
        ] {
            assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
        }
        assert!(!metrics.contains("outcome=\"budget\""), "what was not sent is no request");
    });
}
