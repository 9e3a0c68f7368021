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
#[ignore = "slow: scripts/slow runs it"]
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

/// Changes a byte of what the last command wrote into the database, with more of it behind.
fn flip(stage: &Stage, before: &[u8]) {
    let file = stage.data.join("sled/db");
    let mut content = fs::read(&file).unwrap();
    let written = (0..content.len()).filter(|place| before.get(*place).unwrap_or(&0) != &content[*place]);
    let written: Vec<usize> = written.collect();
    content[written[40]] ^= 0x10;
    fs::write(file, content).unwrap();
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn what_can_be_read_of_a_damaged_database_goes_on_after_a_salvage() {
    let stage = stage();
    stage.playhouse(["store", "salvage"]).is(2).says(["holds no store"]);
    stage.run(["First."]).is(0);
    let first = stage.session();
    let before = fs::read(stage.data.join("sled/db")).unwrap();
    stage.run(["Second."]).is(0);
    let second = stage.session();
    flip(&stage, &before);
    let damaged = fs::read(stage.data.join("sled/db")).unwrap();
    stage.playhouse(["sessions", "list"]).is(2).says(["is damaged: byte ", "playhouse store check"]);
    stage.run(["More."]).is(2).says(["is damaged: byte "]);
    let report = json(&stage, 1, ["check"]);
    assert!(report["problems"][0]["what"].as_str().unwrap().contains("is not what was written"), "{report}");
    assert!(fs::read(stage.data.join("sled/db")).unwrap() == damaged, "nothing but a salvage changes it");

    // One that was killed left a copy.
    let leftover = stage.data.join("salvage-AbC123");
    fs::create_dir(&leftover).unwrap();
    fs::write(leftover.join("db"), "half of it").unwrap();
    let salvaged = json(&stage, 0, ["salvage"]);
    assert_eq!(salvaged["sessions"], 1, "{salvaged}");
    assert_eq!(salvaged["not_there"], Value::from(vec![second.clone()]), "{salvaged}");
    let kept = std::path::Path::new(salvaged["kept"].as_str().unwrap());
    assert!(fs::read(kept.join("sled/db")).unwrap() == damaged, "the old one is kept as it was");
    let folders = fs::read_dir(&stage.data).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(
        folders.into_iter().all(|name| !name.to_string_lossy().starts_with("salvage-")),
        "copies are gone"
    );

    assert_eq!(json(&stage, 0, ["check"])["problems"], Value::Array(Vec::new()));
    assert_eq!(stage.session(), first);
    let outcomes = stage.records(&first);
    assert!(matches!(outcomes.last(), Some(playhouse::protocol::Record::TurnEnded(_))), "{outcomes:?}");
    stage.playhouse(["sessions", "show", &second]).is(2);
    stage.run(["--session", &first, "And now?"]).is(0);
    // Once more, of a store in which nothing is wrong, as people read it.
    let told = stage.playhouse(["store", "salvage"]).is(0).stdout;
    assert!(told.contains("1 session can be read; what was there before is in "), "{told}");
    assert!(told.contains("damaged-2"), "{told}");
}

#[test]
fn no_salvage_of_a_store_that_is_in_use() {
    let stage = stage();
    stage.run(["Go."]).is(0);
    let serving = crate::serve::Serving::start(&stage, ["--port", "0"]);
    assert!(serving.has_begun());
    stage.playhouse(["store", "salvage"]).is(2).says(["is in use by"]);
    assert!(stage.data.join("sled/db").exists() && !stage.data.join("damaged-1").exists());
}
