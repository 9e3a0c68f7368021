//! `playhouse usage reprice`: corrections of what rows cost.

use mock_llm::{Model, text};
use serde_json::Value;

use crate::stage::{Stage, in_both};

/// The lines of `usage --format json` with these arguments: rows, input, and cost.
fn sums(stage: &Stage) -> Vec<(u64, u64, String)> {
    let ended = stage.playhouse(["usage", "--format", "json"]).is(0);
    let page: Value = serde_json::from_str(&ended.stdout).unwrap();
    let line = |line: &Value| {
        (
            line["rows"].as_u64().unwrap(),
            line["input"].as_u64().unwrap(),
            line["cost"].as_str().unwrap().to_owned(),
        )
    };
    page["rows"].as_array().unwrap().iter().map(line).collect()
}

#[test]
fn rows_are_corrected_at_the_prices_that_hold_now() {
    in_both(|| {
        let stage = Stage::new(Model::new().step(text("Hello there.")));
        stage.run(["-m", "local/m", "Go."]).is(0);
        let before = sums(&stage);
        let [(1, input, cost)] = &before[..] else { panic!("{before:?}") };
        let period = ["usage", "reprice", "--from", "2026-01-01", "--to", "2100-01-01"];
        let reprice = |more: &[&str]| {
            let arguments = [&period[..], &["--model", "local/m", "--format", "json"], more].concat();
            serde_json::from_str::<Value>(&stage.playhouse(arguments).is(0).stdout).unwrap()
        };
        assert_eq!(reprice(&[])["corrected"], 0, "no price changed");
        // The next engine has other prices.
        if let Some((engine, _)) = stage.engine() {
            rustix::process::kill_process(engine, rustix::process::Signal::TERM).unwrap();
            crate::stage::until("the engine ended", || stage.engine().is_none());
        }
        let config = fs_err::read_to_string(&stage.config).unwrap();
        fs_err::write(&stage.config, config.replace("input = 1, output = 2.5", "input = 2, output = 5"))
            .unwrap();
        let dry = reprice(&["--dry-run"]);
        assert_eq!(
            (&dry["looked_at"], &dry["corrected"], &dry["dry_run"]),
            (&1.into(), &1.into(), &true.into())
        );
        assert_eq!(dry["difference"]["USD"], **cost);
        assert_eq!(sums(&stage), before);
        assert_eq!(reprice(&[])["difference"]["USD"], **cost);
        let told = stage.playhouse([&period[..], &["--model", "local/m"]].concat()).is(0);
        assert!(told.stdout.contains("1 row looked at\n0 rows corrected"), "{}", told.stdout);
        let after = sums(&stage);
        let [(1, same, twice)] = &after[..] else { panic!("{after:?}") };
        let exact = |text: &str| text.parse::<rust_decimal::Decimal>().unwrap();
        assert_eq!((same, exact(twice)), (input, exact(cost) + exact(cost)));
        for (arguments, said) in [
            (&["--from", "2026-01-01", "--to", "2026-01-01", "--model", "local/m"][..], "is not before"),
            (&["--from", "2026-02-30", "--to", "2026-03-01", "--model", "local/m"], "is not a day"),
            (&["--from", "2026-01-01", "--to", "2026-01-02"], "--model"),
            (&["--from", "2026-01-01", "--to", "2026-01-02", "--model", "m"], "m"),
            (
                &["--from", "2026-01-01", "--to", "2026-01-02", "--model", "local/n"],
                "no row of the ledger is of model",
            ),
        ] {
            let ended = stage.playhouse(["usage", "reprice"].iter().chain(arguments)).is(2);
            assert!(ended.stderr.contains(said) && ended.stdout.is_empty(), "{arguments:?}: {ended:#?}");
        }
    });
}
