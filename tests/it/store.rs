//! `playhouse store`: damage is found, space comes back, and a new data directory gets what is configured.

use fs_err as fs;
use mock_llm::{Model, text};
use serde_json::Value;

use crate::stage::{Stage, in_both};

fn stage() -> Stage {
    Stage::new(Model::new().step(text("Hello.")).cycle())
}

fn json<const N: usize>(stage: &Stage, code: i32, arguments: [&str; N]) -> Value {
    let ended = stage.playhouse(["store"].into_iter().chain(arguments).chain(["--format", "json"])).is(code);
    serde_json::from_str(&ended.stdout).unwrap()
}

#[test]
fn a_store_is_checked_and_compacted_by_whoever_has_it_open() {
    in_both(|| {
        let stage = stage();
        let ended = stage.playhouse(["store", "check"]).is(2);
        assert!(ended.stderr.contains("there is no store in"), "{}", ended.stderr);
        assert!(!stage.data.join("format.json").exists(), "and none is made");
        for _ in 0..2 {
            stage.run(["Go."]).is(0);
        }
        let report = json(&stage, 0, ["check"]);
        assert_eq!((&report["sessions"], &report["rows"]), (&2.into(), &2.into()), "{report}");
        assert_eq!(report["problems"], Value::Array(Vec::new()), "{report}");
        stage.playhouse(["sessions", "delete", &stage.session()]).is(0);
        let reclaimed = json(&stage, 0, ["compact"]);
        assert!(
            reclaimed["before"].as_u64() > Some(0) && reclaimed["after"].as_u64() > Some(0),
            "{reclaimed}"
        );
        assert!(stage.data.join("sled-1").is_dir() && !stage.data.join("sled").exists());
        assert_eq!(json(&stage, 0, ["check"])["sessions"], 1);
        let told = stage.playhouse(["store", "compact"]).is(0).stdout;
        assert!(told.starts_with("the database takes up "), "{told}");
        let told = stage.playhouse(["store", "check"]).is(0).stdout;
        assert!(told.starts_with("nothing is wrong: 1 session,"), "{told}");
    });
}

#[test]
fn damage_is_named_and_ends_with_a_code() {
    let stage = stage();
    stage.run(["Go."]).is(0);
    let session = stage.session();
    let place = stage.damage(&session, 3);
    let report = json(&stage, 1, ["check"]);
    assert_eq!(report["problems"][0]["place"], format!("session {session}, record {place}"));
    let told = stage.playhouse(["store", "check"]).is(1).stdout;
    assert!(
        told.contains(&format!("session {session}, record {place}: the checksum does not match")),
        "{told}"
    );
    assert!(told.contains("1 thing is wrong"), "{told}");
}

#[test]
fn a_new_data_directory_gets_the_backend_that_is_configured() {
    in_both(|| {
        let stage = stage();
        let configuration = fs::read_to_string(&stage.config).unwrap();
        fs::write(&stage.config, format!("store = \"redb\"\n{configuration}")).unwrap();
        stage.run(["Go."]).is(0);
        assert!(stage.data.join("redb").is_dir() && !stage.data.join("sled").exists());
        let session = stage.session();
        // It keeps what it has.
        fs::write(&stage.config, format!("store = \"sled\"\n{configuration}")).unwrap();
        assert_eq!(json(&stage, 0, ["check"])["sessions"], 1);
        assert_eq!(stage.session(), session);
        assert!(!stage.data.join("sled").exists());
        fs::write(&stage.config, format!("store = \"reddb\"\n{configuration}")).unwrap();
        let ended = stage.playhouse(["sessions", "list"]).is(2);
        assert!(
            ended.stderr.contains("`store`: is \"reddb\", expected sled or redb; did you mean \"redb\"?"),
            "{}",
            ended.stderr
        );
    });
}
