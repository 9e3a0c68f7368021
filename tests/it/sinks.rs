//! Sinks: what the ledger is exported to, by an engine in another process that is killed at any moment.

pub(crate) mod chaos;
mod people;

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use mock_llm::{Model, Script, call, text};
use playhouse::protocol::LedgerRow;
use playhouse::protocol::ledger::{ArchiveQuery, RowQuery};
use playhouse::protocol::operator::{BillingRequest, OperatorReply, OperatorRequest, SinkFacts};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::metrics::prompt;
use crate::serve::{Serving, ask};
use crate::sink_server::{Kind, Mood, SIGNING_KEY, Server, TOKEN};
use crate::stage::{Dialect, Ended, Stage, finish, in_both, until};

/// A stage with two models, each of which reads a file and says so.
fn stage() -> Stage {
    let model =
        || Model::new().step(call("read", json!({"filePath": "a.txt"}))).step(text("I read it.")).cycle();
    let stage = Stage::speaking(
        Dialect::OpenaiChat,
        Script::new().prompt_cache().model("haiku", model()).model("opus", model()),
    );
    stage.write("a.txt", "one\n").configure("[billing]\nlight = [\"*/haiku\"]");
    stage
}

/// The table of a sink for this server, with short waits. What is in `more` comes first.
pub(crate) fn sink(name: &str, server: &Server, more: &str) -> String {
    let (kind, path, key) = match server.kind {
        Kind::OpenMeter => ("openmeter", "", "SINK_TOKEN"),
        Kind::Polar => ("polar", "", "SINK_TOKEN"),
        Kind::Webhook => ("webhook", "/hook", "SINK_SIGNING"),
        Kind::Report => ("report", "/hook", "SINK_TOKEN"),
    };
    let url = server.url();
    let mut text = format!(
        "[sinks.{name}]\n{more}\nkind = \"{kind}\"\nurl = \"{url}{path}\"\nkey_env = \"{key}\"\nretry_first_ms = 2\n"
    );
    for (key, value) in [("linger_ms", 1), ("retry_longest_ms", 20)] {
        if !more.contains(key) {
            text += &format!("{key} = {value}\n");
        }
    }
    text
}

/// The same command with the keys of the sinks.
pub(crate) fn keyed(mut command: Command) -> Command {
    command.env("SINK_TOKEN", TOKEN).env("SINK_SIGNING", SIGNING_KEY);
    command
}

fn serve(stage: &Stage) -> Serving {
    Serving::of(keyed(stage.command(["serve", "--sandbox", "off", "--port", "0"])))
}

fn run<const N: usize>(stage: &Stage, arguments: [&str; N]) -> Ended {
    finish(keyed(stage.command(["run", "--sandbox", "off"].into_iter().chain(arguments))))
}

/// `playhouse billing`, as a client of whoever has the data directory open, or in process.
fn billing<const N: usize>(stage: &Stage, arguments: [&str; N]) -> Ended {
    stage.client(["billing"].into_iter().chain(arguments))
}

/// Asks the engine that has the data directory open.
fn operate(stage: &Stage, request: &OperatorRequest) -> OperatorReply {
    let socket = UnixStream::connect(stage.data.join("engine.sock")).unwrap();
    let body = serde_json::to_string(request).unwrap();
    let (status, answer) = ask(socket, "POST", "/operator", &["connection: close"], &body);
    assert_eq!(status, 200, "{answer}");
    serde_json::from_str(&answer).unwrap()
}

fn status(stage: &Stage) -> Vec<SinkFacts> {
    match operate(stage, &OperatorRequest::Billing(BillingRequest::Status)) {
        OperatorReply::Sinks(sinks) => sinks,
        other => panic!("{other:?}"),
    }
}

/// All rows of the ledger, by id.
fn rows(stage: &Stage) -> Vec<LedgerRow> {
    let mut query = RowQuery { limit: 100, ..RowQuery::default() };
    let mut rows = Vec::new();
    loop {
        let OperatorReply::Rows(page) = operate(stage, &OperatorRequest::Rows(query.clone())) else {
            panic!()
        };
        rows.extend(page.rows);
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    rows.sort_by(|a, b| a.id.cmp(&b.id));
    rows
}

/// Waits until no turn runs and no sink is behind.
pub(crate) fn settled(stage: &Stage) {
    until("all turns are over, and all of the ledger is exported", || {
        let listed = operate(stage, &OperatorRequest::List(Default::default()));
        let OperatorReply::Sessions(list) = listed else { panic!("{listed:?}") };
        let is_quiet = list.sessions.iter().all(|session| session.turn.is_none());
        is_quiet && status(stage).iter().all(|sink| sink.rows_behind == 0)
    });
}

/// The rows of all files of a sink, in their order, without what is no row: an hour may be closed meanwhile.
fn lines(folder: &Path) -> Vec<LedgerRow> {
    let mut paths: Vec<_> = fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    // `usage.ndjson` is the last one: a dot sorts after a hyphen.
    paths.sort();
    let texts = paths.into_iter().map(|path| fs_err::read_to_string(path).unwrap());
    let read =
        |text: String| text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>();
    let rows = texts.flat_map(read).filter(|line| line.get("type").is_none());
    rows.map(|row| serde_json::from_value(row).unwrap()).collect()
}

#[test]
fn what_a_sink_refuses_waits_for_people() {
    let server = Server::start(Kind::Webhook, 1);
    server.with(|state| state.bad_text = Some("\"opus\"".to_owned()));
    let stage = stage();
    stage.configure(&sink("money", &server, ""));
    let serving = serve(&stage);
    prompt(&serving, &stage, "haiku");
    prompt(&serving, &stage, "opus");
    until("two rows are refused", || status(&stage)[0].dead_letters == 2);
    settled(&stage);
    server.with(|state| assert_eq!(state.taken.len(), 2));
    let dead = billing(&stage, ["dead", "--format", "json"]).is(0).lines();
    let opus: Vec<LedgerRow> = rows(&stage).into_iter().filter(|row| row.model == "opus").collect();
    let entry = |letter: &Value| serde_json::from_value::<LedgerRow>(letter["entry"]["row"].clone()).unwrap();
    let mut entries: Vec<LedgerRow> = dead.iter().map(entry).collect();
    entries.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(entries, opus);
    let id = dead[0]["id"].as_str().unwrap();
    let shown = billing(&stage, ["dead", "money"]).is(0);
    assert!(shown.stdout.contains(id) && shown.stdout.contains("status 422"), "{}", shown.stdout);
    assert!(!shown.stdout.contains(SIGNING_KEY), "{}", shown.stdout);
    billing(&stage, ["status"]).is(0).shows([
        "SINK",
        "money",
        "webhook",
        "2  all but dead letters is delivered",
    ]);
    for arguments in [["dead", "mony"], ["retry", "mony"]] {
        billing(&stage, arguments).is(2).says(["unknown sink \"mony\"", "did you mean \"money\"?"]);
    }
    billing(&stage, ["retry", "money", "row_none"]).is(2).says(["money has no dead letter row_none"]);
    billing(&stage, ["retry"]).is(1).shows(["money: 0 delivered, 2 refused again"]);
    // One is made right while an engine runs, the other one when there is none.
    server.with(|state| state.bad_text = None);
    billing(&stage, ["retry", "money", id]).is(0).shows(["money: 1 delivered, 0 refused again"]);
    assert_eq!(status(&stage)[0].dead_letters, 1);
    serving.signal(Signal::TERM);
    serving.ended().is(0);
    let left = billing(&stage, ["status", "--format", "json"]).is(0).lines();
    let told = ["sink", "kind", "running", "rows_behind", "dead_letters"].map(|key| left[0][key].clone());
    assert_eq!(told, [json!("money"), json!("webhook"), json!(false), json!(0), json!(1)]);
    let place = format!("{}:", stage.config.display());
    billing(&stage, ["retry"]).is(2).says([&place, "`sinks.money.key_env` names the variable SINK_SIGNING"]);
    let retry = keyed(stage.command(["billing", "retry", "--format", "json"]));
    assert_eq!(
        finish(retry).is(0).lines(),
        [json!({"sink": "money", "delivered": 1, "refused": 0, "left": 0})]
    );
    billing(&stage, ["retry"]).is(0).shows(["there are no dead letters"]);
    server.with(|state| assert_eq!(state.taken.len(), 4));
}

#[test]
fn a_server_that_ends_delivers_first_what_there_is() {
    let server = Server::start(Kind::OpenMeter, 1);
    let stage = stage();
    stage.configure(&sink("meter", &server, "linger_ms = 3600000"));
    let serving = serve(&stage);
    prompt(&serving, &stage, "haiku");
    until("the turn is over", || {
        let listed = operate(&stage, &OperatorRequest::List(Default::default()));
        let OperatorReply::Sessions(list) = listed else { panic!("{listed:?}") };
        list.sessions.len() == 1 && list.sessions[0].turn.is_none() && rows(&stage).len() == 2
    });
    server.with(|state| assert_eq!(state.taken.len(), 0, "it waits for more"));
    serving.signal(Signal::TERM);
    serving.ended().is(0);
    server.with(|state| assert_eq!(state.taken.len(), 2));
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn sinks_that_are_silent_or_gone_hold_nobody_up() {
    let silent = Server::start(Kind::OpenMeter, 1);
    silent.with(|state| state.script = vec![Mood::Silent; 1_000]);
    in_both(|| {
        let stage = stage();
        stage.configure(&sink("silent", &silent, "timeout_ms = 3600000"));
        stage.configure("[sinks.gone]\nkind = \"report\"\nurl = \"http://127.0.0.1:9\"");
        assert_eq!(run(&stage, ["-m", "local/haiku", "Go."]).is(0).stdout, "I read it.\n");
    });
    let stage = stage();
    stage.configure(&sink("silent", &silent, "timeout_ms = 3600000"));
    let serving = serve(&stage);
    prompt(&serving, &stage, "haiku");
    until("it is asked", || !rows(&stage).is_empty());
    serving.signal(Signal::TERM);
    serving.ended().is(0);
}

#[test]
fn runs_deliver_by_themselves_or_leave_it_to_the_next() {
    in_both(|| {
        let server = Server::start(Kind::Webhook, 1);
        let stage = stage();
        let folder = stage.root().join("usage");
        stage.configure(&sink("money", &server, ""));
        stage.configure(&format!("[sinks.files]\nkind = \"file\"\nfolder = {folder:?}"));
        run(&stage, ["-m", "local/haiku", "Go."]).is(0);
        until("the rows of the first run are there", || {
            run(&stage, ["-m", "local/opus", "Go."]).is(0);
            let of_haiku = |body: &Value| body["model"] == "haiku";
            let taken = server.with(|state| state.taken.values().filter(|row| of_haiku(&row[0])).count());
            let files = if folder.exists() { lines(&folder) } else { Vec::new() };
            taken == 2 && files.iter().filter(|row| row.model == "haiku").count() == 2
        });
        // What is the operator's is not for sessions.
        let tool = |path: &Path| {
            let mut command = stage.command(["tool", "--sandbox", "off", "--yes", "read", "--input"]);
            command.arg(json!({"filePath": path}).to_string());
            finish(keyed(command))
        };
        let denied = tool(&folder.join("usage.ndjson"));
        assert!(denied.code != Some(0) && !denied.stdout.contains("row_"), "{denied:?}");
    });
}

#[test]
fn rows_that_a_sink_still_needs_are_not_archived() {
    let server = Server::start(Kind::OpenMeter, 1);
    server.with(|state| state.script = vec![Mood::Status(503); 100_000]);
    let stage = stage();
    let folder = stage.root().join("usage");
    stage.configure(&sink("slow", &server, ""));
    stage.configure(&format!("[sinks.files]\nkind = \"file\"\nfolder = {folder:?}"));
    let serving = serve(&stage);
    prompt(&serving, &stage, "haiku");
    until("one of two sinks has it", || {
        let behind = status(&stage).iter().filter(|sink| sink.rows_behind == 0).count();
        rows(&stage).len() == 2 && behind == 1
    });
    let before = rows(&stage).iter().map(|row| row.ended.as_millis()).max().unwrap() + 1;
    let before = playhouse::protocol::Timestamp::from_millis(before);
    let query = ArchiveQuery { before, up_to: None, after: 0, limit: 0 };
    let archivable = || match operate(&stage, &OperatorRequest::Archivable(query.clone())) {
        OperatorReply::Archivable(page) => page,
        other => panic!("{other:?}"),
    };
    let page = archivable();
    assert_eq!((page.rows.len(), page.kept), (0, 2));
    assert_eq!(page.behind, ["slow"]);
    let archive = |numbers: Vec<u64>| operate(&stage, &OperatorRequest::Archive { before, numbers });
    let OperatorReply::Failed(refused) = archive(vec![1]) else { panic!("it was archived") };
    assert!(refused.to_string().contains("the sink slow has exported up to 0 only"), "{refused}");
    assert_eq!(rows(&stage).len(), 2);
    server.with(|state| state.script.clear());
    settled(&stage);
    until("the cursors are saved", || archivable().kept == 0);
    assert_eq!(archive(archivable().numbers), OperatorReply::Archived(2));
    assert!(rows(&stage).is_empty());
    server.with(|state| assert_eq!(state.taken.len(), 2));
}

#[test]
fn a_wrong_configuration_stops_the_engine_with_its_line() {
    let stage = stage();
    let file = |line: usize| format!("{}:{line}: ", stage.config.display());
    let text = fs_err::read_to_string(&stage.config).unwrap();
    let first = text.lines().count() + 2;
    let wrong = |lines: &str| {
        fs_err::write(&stage.config, &text).unwrap();
        stage.configure(lines);
        let ended = stage.playhouse(["serve", "--port", "0"]).is(2);
        assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
        ended
    };
    wrong("[sinks.a]\nkind = \"kafka\"").says([&file(first + 1), "`sinks.a.kind`: is \"kafka\""]);
    wrong("[sinks.a]\nkind = \"polar\"\nkey = \"hunter2\"")
        .says([&file(first + 2), "unknown key `sinks.a.key`"]);
    wrong("[sinks.a]\nkind = \"webhook\"\nkey_env = \"K\"").says([&file(first), "`sinks.a.url` is needed"]);
    wrong("[sinks.a]\nkind = \"report\"\nurl = \"http://ada:hunter2@r\"")
        .says([&file(first + 2), "holds a user or a password"]);
    // The configuration is right, and the variable of the key is not.
    wrong("[sinks.a]\nkind = \"polar\"\nkey_env = \"POLAR\"")
        .says([&file(first + 2), "`sinks.a.key_env` names the variable POLAR, which is not set"]);
    stage.run(["Go."]).is(2).says([&file(first + 2), "POLAR"]);
    stage.playhouse(["doctor"]).shows(["wrong", "sinks", "POLAR, which is not set", "no engine starts"]);
    // What only looks needs no key.
    billing(&stage, ["status"]).is(0).shows(["a ", "polar", "at rest"]);
    stage.playhouse(["sessions", "list"]).is(0);
    let mut keyed = stage.command(["doctor"]);
    keyed.env("POLAR", "hunter2");
    let seen = finish(keyed).shows(["ok", "sinks", "a: https://api.polar.sh/v1/events/ingest"]);
    assert!(!seen.stdout.contains("hunter2"));
}
