//! What people are told of sinks, and what they can do about them.

use playhouse::protocol::Timestamp;
use playhouse::protocol::ledger::ArchiveQuery;
use playhouse::protocol::operator::{ArchivedRows, OperatorReply, OperatorRequest};
use rustix::process::Signal;
use serde_json::json;

use super::{billing, lines, operate, prompt, rows, serve, settled, sink, stage, status};
use crate::sink_server::{Kind, Mood, Server};
use crate::stage::until;

#[test]
fn a_wait_that_a_server_asks_for_is_shown_and_can_be_ended() {
    let server = Server::start(Kind::OpenMeter, 1);
    server.with(|state| state.script = vec![Mood::MuchLater]);
    let stage = stage();
    stage.configure(&sink("meter", &server, ""));
    let serving = serve(&stage);
    prompt(&serving, &stage, "haiku");
    until("it waits", || {
        status(&stage)[0].error.as_ref().is_some_and(|error| error.asked && error.waits_until.is_some())
    });
    let error = status(&stage).remove(0).error.unwrap();
    let wait = error.waits_until.unwrap().millis_since(error.since);
    assert!(wait <= 3_600_000 + 60_000, "{wait}");
    let shown = billing(&stage, ["status"]).is(0);
    shown.shows(["fails since", "waits until", "as it was asked to, because http://", "status 429"]);
    let told = billing(&stage, ["status", "--format", "json"]).is(0).lines().remove(0);
    assert_eq!(told["error"]["asked"], true);
    assert_eq!(told["error"]["waits_until"], json!(error.waits_until));
    billing(&stage, ["retry"])
        .is(0)
        .shows(["meter: 0 delivered, 0 refused again; what it waits with is tried now"]);
    settled(&stage);
    server.with(|state| assert_eq!(state.taken.len(), 2));
    billing(&stage, ["retry"]).is(0).shows(["there are no dead letters, and no sink waits"]);
    let told = billing(&stage, ["retry", "meter", "--format", "json"]).is(0).lines();
    assert_eq!(told, [json!({"sink": "meter", "delivered": 0, "refused": 0, "left": 0})]);
    serving.signal(Signal::TERM);
    serving.ended().is(0);
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn what_is_kept_of_a_sink_that_is_not_configured_is_shown_and_can_be_removed() {
    let server = Server::start(Kind::Webhook, 1);
    server.with(|state| state.bad_text = Some("\"opus\"".to_owned()));
    let stage = stage();
    let without = fs_err::read_to_string(&stage.config).unwrap();
    stage.configure(&sink("money", &server, ""));
    let serving = serve(&stage);
    prompt(&serving, &stage, "opus");
    until("two rows are refused", || status(&stage)[0].dead_letters == 2);
    settled(&stage);
    billing(&stage, ["forget", "money"])
        .is(2)
        .says(["the sink money is configured: remove `[sinks.money]` first"]);
    let cursor = status(&stage)[0].cursor;
    serving.signal(Signal::TERM);
    serving.ended().is(0);
    fs_err::write(&stage.config, without).unwrap();
    // Both where no engine runs, and where one does.
    for runs in [false, true] {
        let serving = runs.then(|| serve(&stage));
        let shown = billing(&stage, ["status"]).is(0);
        shown.shows(["money", "2  not configured: `playhouse billing forget money` removes"]);
        let told = billing(&stage, ["status", "--format", "json"]).is(0).lines().remove(0);
        let facts = ["configured", "running", "cursor", "dead_letters"].map(|key| told[key].clone());
        assert_eq!(facts, [json!(false), json!(false), json!(cursor), json!(2)]);
        for arguments in [vec!["dead"], vec!["dead", "money"]] {
            let arguments = ["billing"].into_iter().chain(arguments);
            stage.client(arguments).is(0).shows(["money", "row_", "status 422"]);
        }
        billing(&stage, ["retry"]).is(0).shows(["there are no dead letters"]);
        billing(&stage, ["retry", "money"]).is(2).says([
            "not configured",
            "its 2 dead letters",
            "billing forget money",
        ]);
        billing(&stage, ["retry", "mony"]).is(2).says(["there are money", "did you mean \"money\"?"]);
        billing(&stage, ["forget", "money"]).is(2).says(["has 2 dead letters", "`--dead-letters`"]);
        if let Some(serving) = serving {
            billing(&stage, ["forget", "money", "--dead-letters"]).is(0).shows(["(2 dead letters removed)"]);
            assert!(status(&stage).is_empty());
            billing(&stage, ["forget", "money"]).is(2).says(["unknown sink \"money\"; none is configured"]);
            serving.signal(Signal::TERM);
            serving.ended().is(0);
        }
    }
}

#[test]
fn a_new_sink_says_what_was_archived_before_it_began() {
    let stage = stage();
    let serving = serve(&stage);
    prompt(&serving, &stage, "haiku");
    until("the turn is over", || {
        let listed = operate(&stage, &OperatorRequest::List(Default::default()));
        let OperatorReply::Sessions(list) = listed else { panic!("{listed:?}") };
        list.sessions.len() == 1 && list.sessions[0].turn.is_none() && rows(&stage).len() == 2
    });
    let ended = rows(&stage).iter().map(|row| row.ended.as_millis()).max().unwrap();
    let before = Timestamp::from_millis(ended + 1);
    let query = ArchiveQuery { before, up_to: None, after: 0, limit: 0 };
    let OperatorReply::Archivable(page) = operate(&stage, &OperatorRequest::Archivable(query)) else {
        panic!()
    };
    let archived = operate(&stage, &OperatorRequest::Archive { before, numbers: page.numbers });
    assert_eq!(archived, OperatorReply::Archived(2));
    serving.signal(Signal::TERM);
    serving.ended().is(0);
    let folder = stage.root().join("usage");
    stage.configure(&format!("[sinks.files]\nkind = \"file\"\nfolder = {folder:?}"));
    let told = "not sent: 2 rows from before";
    billing(&stage, ["status"]).is(0).shows(["at rest", told]);
    let serving = serve(&stage);
    prompt(&serving, &stage, "opus");
    until("the new rows are there", || folder.join("usage.ndjson").exists() && lines(&folder).len() == 2);
    settled(&stage);
    assert_eq!(status(&stage)[0].archived, Some(ArchivedRows { rows: 2, before }));
    billing(&stage, ["status"]).is(0).shows(["all is delivered", told]);
    serving.signal(Signal::TERM);
    serving.ended().is(0).says(["rows that were archived are not sent to the new sink"]);
}

#[test]
fn a_folder_that_cannot_be_written_stops_the_engine_with_its_line() {
    let stage = stage();
    let line = fs_err::read_to_string(&stage.config).unwrap().lines().count() + 4;
    let place = stage.root().join("taken");
    fs_err::write(&place, "no folder").unwrap();
    let folder = place.join("usage");
    stage.configure(&format!("[sinks.files]\nkind = \"file\"\nfolder = {folder:?}"));
    let file = format!("{}:{line}: ", stage.config.display());
    let problem = format!("`sinks.files.folder` cannot be written: {} is not a folder", place.display());
    stage.playhouse(["serve", "--port", "0"]).is(2).says([&file, &problem, "in the data directory"]);
    stage.run(["Go."]).is(2).says([&file, &problem]);
    stage.playhouse(["doctor"]).shows(["wrong", "sinks", &problem]);
    // What only looks is not held up, and shows where the sink is.
    billing(&stage, ["status"]).is(0).shows(["files", "at rest"]);
    assert!(!folder.exists(), "nothing is made to find out");
}
