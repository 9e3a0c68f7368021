//! `playhouse usage`: what was used and what it cost, and rows that are written away.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::sync_channel;

use mock_llm::{Cut, Entry as Asked, Fault, Model, Outcome, Script, text};
use playhouse::protocol::ledger::{RowPage, RowQuery};
use playhouse::protocol::record::{AttemptEnded, AttemptOutcome, AttemptStarted, SessionCreated};
use playhouse::protocol::usage::{Cost, Prices, Quality, Tokens, Usage};
use playhouse::protocol::{Day, Entry, IdGenerator, LedgerRow, ModelRef, Record, Seq, SessionId, Timestamp};
use playhouse::store::{Append, Store};
use rust_decimal::Decimal;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::interrupt::start;
use crate::stage::{Dialect, Stage, in_both, until};

/// All rows of the ledger: from whoever has the store open, else from the store itself.
pub(crate) fn rows(stage: &Stage) -> Vec<LedgerRow> {
    let (mut query, mut rows) = (RowQuery { limit: 10_000, ..RowQuery::default() }, Vec::new());
    let store = match stage.engine() {
        Some(_) => None,
        None => Some(Store::open(&stage.data).unwrap()),
    };
    loop {
        let page = match &store {
            Some(store) => store.ledger.rows(&query).unwrap(),
            None => asked(stage, &query),
        };
        rows.extend(page.rows);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return rows,
        }
    }
}

fn asked(stage: &Stage, query: &RowQuery) -> RowPage {
    let body = json!({"request": "rows", "data": query}).to_string();
    let mut stream = UnixStream::connect(stage.data.join("engine.sock")).unwrap();
    let head =
        "POST /operator HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json";
    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let mut reply: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
    serde_json::from_value(reply["data"].take()).unwrap()
}

/// The lines of `usage --format json` with these arguments.
fn usage<const N: usize>(stage: &Stage, arguments: [&str; N]) -> Vec<Value> {
    let ended = stage.playhouse(["usage", "--format", "json"].into_iter().chain(arguments)).is(0);
    let mut page: Value = serde_json::from_str(&ended.stdout).unwrap();
    serde_json::from_value(page["rows"].take()).unwrap()
}

/// The model `one` answers at once, `two` after a call, and the first answer of `cut` is cut.
fn script() -> Script {
    Script::new()
        .model("one", Model::new().step(text("Hello there, how are you?")).cycle())
        .model(
            "two",
            Model::new().step(text("I look.").call("list", json!({}))).step(text("Nothing.")).cycle(),
        )
        .model("cut", Model::new().step(text("a b c d e f g").fault(Fault::cut(5, Cut::Eof)).fail_first(1)))
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn sums_are_shown_by_every_group_and_in_every_form() {
    in_both(|| {
        let stage = Stage::speaking(Dialect::OpenaiChat, script());
        assert!(usage(&stage, []).is_empty());
        for model in ["local/one", "local/two", "local/cut"] {
            stage.run(["-m", model, "Go."]).is(0);
        }
        let reported: Vec<Tokens> = stage.asked().iter().filter_map(|entry| entry.reported).collect();
        let by_model = usage(&stage, ["--by", "model"]);
        let names = by_model.iter().map(|line| line["model"].as_str().unwrap()).collect::<Vec<_>>();
        assert_eq!(names, ["local/cut", "local/one", "local/two"]);
        // As the configuration of the stage has the prices: 1 for input, 2.5 for output.
        let one = reported[0];
        let cost = (Decimal::from(one.input) + Decimal::from(one.output) * Decimal::new(25, 1))
            / Decimal::from(1_000_000);
        let expected = json!({
            "model": "local/one", "input": one.input, "cache_read": 0, "cache_write": 0,
            "output": one.output, "reasoning": 0, "cost": by_model[1]["cost"], "rows": 1,
            "estimated_rows": 0, "unpriced_rows": 0, "unreconciled_rows": 0, "assumed_rows": 0,
        });
        assert_eq!(by_model[1], expected);
        assert_eq!(by_model[1]["cost"].as_str().unwrap().parse::<Decimal>().unwrap(), cost);
        assert_eq!((&by_model[0]["rows"], &by_model[0]["estimated_rows"]), (&json!(2), &json!(1)));
        let [whole] = &usage(&stage, [])[..] else { panic!("one sum over all") };
        assert_eq!(whole["rows"], 5);
        for group in ["tenant", "session", "model", "provider", "day", "purpose", "agent"] {
            let lines = usage(&stage, ["--by", group]);
            assert!(lines.iter().all(|line| line[group].is_string()), "{lines:?}");
            assert_eq!(lines.len(), if matches!(group, "session" | "model") { 3 } else { 1 }, "{group}");
            for name in ["input", "output", "rows", "estimated_rows"] {
                let sum: u64 = lines.iter().map(|line| line[name].as_u64().unwrap()).sum();
                assert_eq!(sum, whole[name], "{group}: {name}");
            }
            // The same as values with commas, and as a table.
            let csv = stage.playhouse(["usage", "--by", group, "--format", "csv"]).is(0).stdout;
            let mut csv = csv.lines();
            let names: Vec<&str> = csv.next().unwrap().split(',').collect();
            let whose = usize::from(group == "session");
            assert_eq!(names[whose..whose + 2], [group, "input"]);
            assert_eq!(
                (names[0] == "tenant", names.last()),
                (whose == 1 || group == "tenant", Some(&"assumed_rows"))
            );
            for (line, value) in csv.by_ref().zip(&lines) {
                for (name, cell) in names.iter().zip(line.split(',')) {
                    let value = value[*name].as_str().map_or_else(|| value[*name].to_string(), str::to_owned);
                    match *name {
                        // Money is written the same way, exactly and without zeros at the end.
                        "cost" => assert_eq!(
                            (cell, cell.parse::<Decimal>().unwrap().normalize()),
                            (&*value, value.parse().unwrap())
                        ),
                        _ => assert_eq!(cell, value, "{name}: {line}"),
                    }
                }
            }
            assert_eq!(csv.next(), None);
            let table = stage.playhouse(["usage", "--by", group]).is(0).stdout;
            let first = if group == "session" { "tenant" } else { group };
            assert!(table.starts_with(&first.to_uppercase()) && table.contains("CACHE READ"), "{table}");
            assert_eq!(table.lines().count(), lines.len() + 1);
            assert!(table.lines().skip(1).all(|line| line.contains(" $0.0")), "{table}");
        }
        let two = usage(&stage, ["--by", "purpose,model", "--by", "purpose"]);
        assert_eq!((two.len(), &two[0]["purpose"]), (3, &json!("turn")));
        // By day, with the edges of that day.
        let day = usage(&stage, ["--by", "day"])[0]["day"].as_str().unwrap().to_owned();
        let next = day.parse::<Day>().unwrap().next().to_string();
        assert_eq!(usage(&stage, ["--from", &day, "--to", &next]).as_slice(), std::slice::from_ref(whole));
        assert!(usage(&stage, ["--from", &next]).is_empty() && usage(&stage, ["--to", &day]).is_empty());
        assert_eq!(usage(&stage, ["--tenant", "local"]).len(), 1);
        assert!(usage(&stage, ["--tenant", "other"]).is_empty());
        for (arguments, said) in [
            (&["--tenant", "oth\u{7}er"][..], "no usage of tenant oth"),
            (&["--tenant", "local", "--to", &day], "no usage of tenant local at that time"),
        ] {
            let ended = stage.playhouse(["usage"].iter().chain(arguments)).is(0);
            assert!(ended.stderr.starts_with(said) && !ended.stderr.contains('\u{7}'), "{ended:#?}");
        }
        let all = stage.playhouse(["usage", "--tenant", "local"]).is(0);
        assert!(!all.stderr.contains("no usage"), "{all:#?}");
    });
}

#[test]
fn what_cannot_be_shown_is_refused() {
    in_both(|| {
        let stage = Stage::new(Model::new());
        let next = usage_day(&stage).next().next().to_string();
        for (arguments, said) in [
            (&["--from", "yesterday"][..], "is not a day"),
            (&["--to", "2026-02-30"], "write it as YYYY-MM-DD"),
            (&["--by", "modle"], "did you mean \"model\""),
            (&["--by", ""], "cannot be summed up by"),
            (&["--from", "2026-11-02", "--to", "2026-11-01"], "--from 2026-11-02 is after --to 2026-11-01"),
            (&["--format", "xml"], "possible values: table, json, csv"),
            (&["--by", "model", "archive", "--before", "2026-01-01"], "--by"),
            (&["archive"], "--before"),
            (&["archive", "--before", "soon"], "is not a day"),
            (&["archive", "--before", &next], "only what is past"),
        ] {
            let ended = stage.playhouse(["usage"].iter().chain(arguments)).is(2);
            assert!(ended.stderr.contains(said) && ended.stdout.is_empty(), "{arguments:?}: {ended:#?}");
        }
        assert!(!stage.data.join("archive").join(format!("usage-before-{next}.jsonl")).exists());
    });
}

/// The day that it is, as the store's clock has it.
fn usage_day(stage: &Stage) -> Day {
    let made = fs_err::metadata(&stage.config).unwrap().modified().unwrap();
    let since = made.duration_since(std::time::UNIX_EPOCH).unwrap();
    Day::of(Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap()))
}

/// What is known of an attempt from the log, in short.
fn told(rows: &[LedgerRow]) -> Vec<(u32, u32, Quality)> {
    rows.iter().map(|row| (row.step_number, row.attempt_number, row.quality)).collect()
}

#[test]
fn every_attempt_that_used_tokens_has_a_row_and_keeps_it() {
    in_both(|| {
        let silent = text("a b c d e f g h").fault(Fault::stall(5)).fail_first(1);
        let script = script().model("silent", Model::new().step(silent).cycle());
        let stage = Stage::speaking(Dialect::Anthropic, script);
        stage.run(["-m", "local/cut", "Go."]).is(0);
        let retried = rows(&stage);
        assert_eq!(told(&retried), [(1, 1, Quality::Estimated), (1, 2, Quality::Reported)]);
        // Aborted in the middle of an answer.
        let child = start(&stage, ["-m", "local/silent", "Wait."]);
        let is_silent = |entry: &Asked| entry.model.as_deref() == Some("silent") && entry.tokens > 0;
        until("it is in the middle of its answer", || stage.asked().iter().any(is_silent));
        kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), Signal::INT).unwrap();
        assert_eq!(child.wait_with_output().unwrap().status.code(), Some(3));
        let aborted = rows(&stage);
        assert_eq!(told(&aborted)[2..], [(1, 1, Quality::Estimated)]);
        assert!(aborted[2].tokens.all_input() > 0 && aborted[2].cost.is_some(), "{:?}", aborted[2]);
        // A fork pays for what is new in it only.
        stage.run(["-m", "local/two", "Go."]).is(0);
        let session = stage.session();
        stage.run(["-c", "--fork", "-m", "local/one", "Once more."]).is(0);
        let forked = rows(&stage);
        let of_fork: Vec<_> = forked.iter().filter(|row| row.session.as_str() == stage.session()).collect();
        assert_eq!((forked.len(), of_fork.len(), &*of_fork[0].model), (6, 1, "one"));
        // Rows and sums outlive their session.
        let sums = usage(&stage, ["--by", "session,model"]);
        stage.playhouse(["sessions", "delete", &session]).is(0);
        assert_eq!((rows(&stage), usage(&stage, ["--by", "session,model"])), (forked, sums));
        // Each request is in the ledger once, as its answer reported it.
        let mut rows: BTreeMap<String, LedgerRow> =
            rows(&stage).into_iter().map(|row| (row.attempt.to_string(), row)).collect();
        for entry in stage.asked() {
            let row = rows.remove(entry.attempt.as_deref().unwrap()).expect("it has a row");
            match entry.outcome {
                Outcome::Complete => assert_eq!(Some(row.tokens), entry.reported),
                _ => assert_eq!(row.quality, Quality::Estimated),
            }
        }
        assert!(rows.is_empty(), "{rows:?}");
    });
}

#[test]
fn an_attempt_that_was_lost_with_its_engine_has_a_row() {
    let silent = text("a b c d e f g h").fault(Fault::stall(5)).fail_first(1);
    let stage = Stage::new(Model::new().step(silent).next_turn().step(text("Here I am.")));
    let mut child = start(&stage, ["Wait."]);
    until("it is in the middle of its answer", || stage.asked().iter().any(|entry| entry.tokens > 0));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(rows(&stage).is_empty(), "nobody knows yet how it ended");
    stage.run(["-c", "Go on."]).is(0);
    let found = rows(&stage);
    assert_eq!(told(&found)[0], (1, 1, Quality::Estimated));
    assert!(found[0].tokens.input > 0 && found[0].cost.is_some(), "{:?}", found[0]);
    let asked: Vec<String> = stage.asked().into_iter().filter_map(|entry| entry.attempt).collect();
    let attempts: Vec<String> = found.iter().map(|row| row.attempt.to_string()).collect();
    assert_eq!(attempts, asked);
}

#[test]
fn calls_by_hand_are_in_no_bill() {
    in_both(|| {
        let stage = Stage::new(Model::new().step(text("Hello.")).cycle());
        stage.run(["--sandbox", "off", "Hi."]).is(0);
        stage.playhouse(["tool", "--sandbox", "off", "list", "--input", "{}"]).is(0);
        assert_eq!(rows(&stage).len(), 1);
        assert_eq!(usage(&stage, ["--by", "tenant,provider"]).len(), 1);
    });
}

/// The day before which rows are written away here.
const BEFORE: &str = "2026-03-04";

/// Puts rows into the store, while nobody has it open: `each` on the two days before that day, and on that day.
fn old_rows(stage: &Stage, each: usize) -> Vec<LedgerRow> {
    let store = Store::open(&stage.data).unwrap();
    let noon = BEFORE.parse::<Day>().unwrap().start().as_millis() + 43_200_000;
    let begin = Timestamp::from_millis(noon - 3 * 86_400_000);
    let mut ids = IdGenerator::new(|bytes| bytes.fill(5));
    let session: SessionId = ids.next(begin);
    let model = ModelRef::new("local", "m");
    let mut entries = vec![(
        begin,
        Record::SessionCreated(SessionCreated {
            title: "Old".to_owned(),
            ..SessionCreated::new(session, "local", stage.workspace.to_str().unwrap(), "build", model.clone())
        }),
    )];
    for number in 0..3 * each {
        let day = 2 - u64::try_from(number / each).unwrap();
        let at = Timestamp::from_millis(noon - day * 86_400_000);
        let (attempt, turn, step) = (ids.next(at), ids.next(at), ids.next(at));
        let prices = Prices { input: Some(1.into()), ..Prices::default() };
        entries.push((
            at,
            Record::AttemptStarted(AttemptStarted {
                estimated_input: 3,
                prices,
                ..AttemptStarted::new(attempt, turn, step, "build", model.clone())
            }),
        ));
        let tokens = Tokens { input: 1_000, ..Tokens::default() };
        entries.push((
            at,
            Record::AttemptEnded(AttemptEnded {
                attempt,
                outcome: AttemptOutcome::Finished,
                usage: Some(Usage {
                    tokens,
                    quality: Quality::Reported,
                    raw: None,
                    inner: Vec::new(),
                    provider_cost: None,
                    served: Vec::new(),
                }),
                cost: Some(Cost(Decimal::new(1, 3))),
                answered_by: None,
                assumed: Vec::new(),
                calls: Vec::new(),
                costs: None,
                ended: None,
                inner: Vec::new(),
            }),
        ));
    }
    let entries: Vec<Entry> =
        (1..).zip(entries).map(|(seq, (at, record))| Entry { seq: Seq(seq), at, record }).collect();
    for part in entries.chunks(1_000) {
        let (sender, receiver) = sync_channel(1);
        let expected = Seq(part[0].seq.0 - 1);
        let append = Append { session, tenant: "local".into(), expected, entries: part.to_vec() };
        store.log.append(append, Box::new(move |end| sender.send(end).unwrap()));
        receiver.recv().unwrap().unwrap();
    }
    drop(store);
    let rows = rows(stage);
    assert_eq!(rows.len(), 3 * each);
    rows
}

/// The whole lines of an archive.
fn archived(file: &Path) -> Vec<LedgerRow> {
    let text = fs_err::read_to_string(file).unwrap();
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn archive<const N: usize>(stage: &Stage, arguments: [&str; N]) -> crate::stage::Ended {
    stage.playhouse(["usage", "archive", "--before", BEFORE].into_iter().chain(arguments))
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn what_is_written_away_is_in_the_file_and_in_the_sums() {
    in_both(|| {
        let stage = Stage::new(Model::new().step(text("Hello.")).cycle());
        archive(&stage, []).is(0).says(["wrote 0 rows away"]);
        if let Some((engine, _)) = stage.engine() {
            kill_process(engine, Signal::KILL).unwrap();
            until("it is gone", || stage.engine().is_none());
        }
        let all = old_rows(&stage, 1_100);
        // In the background it is this that starts an engine.
        stage.run(["Hi."]).is(0);
        let sums = usage(&stage, ["--by", "day,session"]);
        assert_eq!((sums.len(), &sums[0]["rows"], &sums[0]["cost"]), (4, &json!(1_100), &json!("1.1")));
        let taken = stage.root().join("taken");
        fs_err::write(&taken, "mine\n").unwrap();
        archive(&stage, ["--output", taken.to_str().unwrap()]).is(2).says(["is there already"]);
        assert_eq!(fs_err::read_to_string(&taken).unwrap(), "mine\n");
        let file = stage.root().join("old.jsonl");
        let ended =
            archive(&stage, ["--output", file.to_str().unwrap()]).is(0).says(["wrote 2200 rows away"]);
        assert_eq!(ended.stdout, format!("{}\n", file.display()));
        assert_eq!(archived(&file), all[..2_200], "exactly, and in order");
        assert_eq!(rows(&stage)[..1_100], all[2_200..]);
        assert_eq!(rows(&stage).len(), 1_101);
        assert_eq!(usage(&stage, ["--by", "day,session"]), sums);
        archive(&stage, []).is(0).says(["wrote 0 rows away"]);
        // Where nobody names a file it is a new one each time.
        let ended = stage.playhouse(["usage", "archive", "--before", "2026-03-05"]).is(0);
        let file = PathBuf::from(ended.stdout.trim_end());
        assert_eq!(file, stage.data.join("archive/usage-before-2026-03-05.jsonl"));
        assert_eq!(archived(&file), all[2_200..]);
        assert_eq!(usage(&stage, ["--by", "day,session"]), sums);
    });
}

/// The file of an archive before it is finished.
fn part(file: &Path) -> PathBuf {
    PathBuf::from(format!("{}.part", file.display()))
}

/// Rows of each of three days, of which two are archived: some pages, so that a kill comes before the end.
const EACH: usize = 2_000;

/// Begins to write rows away to this file, and kills that as soon as some are there.
fn cut_off(stage: &Stage, file: &Path) {
    let size = || fs_err::metadata(part(file)).map_or(0, |facts| facts.len());
    let before = size();
    let arguments = ["usage", "archive", "--before", BEFORE, "--output", file.to_str().unwrap()];
    let mut command = stage.command(arguments);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("something is written", || size() > before);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn an_archive_that_was_cut_off_goes_on_and_no_row_is_in_two_places() {
    in_both(|| {
        let stage = Stage::new(Model::new().step(text("Hello.")).cycle());
        let all = old_rows(&stage, EACH);
        stage.run(["Hi."]).is(0);
        let sums = usage(&stage, ["--by", "day,session"]);
        let (file, other) = (stage.root().join("old.jsonl"), stage.root().join("other.jsonl"));
        for _ in 0..2 {
            cut_off(&stage, &file);
            assert!(!file.exists(), "it looks finished");
        }
        // As a loss of power leaves it, and as a kill between the file and the ledger does.
        let tail = serde_json::to_string(&all[0]).unwrap();
        let mut text = fs_err::read_to_string(part(&file)).unwrap();
        let next: Vec<_> = archived(&part(&file)).iter().map(|row| row.id.clone()).collect();
        // A page at hand has 500 rows here: each has the end of a turn behind it.
        let page: Vec<LedgerRow> = rows(&stage)[..300].to_vec();
        if !text.ends_with('\n') {
            text.truncate(text.rfind('\n').unwrap() + 1);
        }
        for row in page.iter().filter(|row| !next.contains(&row.id)) {
            text += &(serde_json::to_string(row).unwrap() + "\n");
        }
        text += &tail[..tail.len() / 2];
        fs_err::write(part(&file), text).unwrap();
        // Whatever is asked for next, it is the archive that was begun that is finished.
        let ended = archive(&stage, ["--output", file.to_str().unwrap()]).is(0);
        assert_eq!(ended.stdout, format!("{}\n", file.display()));
        assert!(
            // Whether rows had left the ledger before depends on when it was killed.
            ended.stderr.contains("going on with") && ended.stderr.contains(&format!("{} rows", 2 * EACH)),
            "{ended:#?}"
        );
        assert!(archived(&file) == all[..2 * EACH], "all, once, in order");
        assert!(!part(&file).exists());
        assert_eq!(rows(&stage)[..EACH], all[2 * EACH..]);
        assert_eq!(usage(&stage, ["--by", "day,session"]), sums);
        // As a kill leaves it that comes when the file has its name, and nobody knows.
        let note = format!(r#"{{"before":"{BEFORE}","file":{}}}"#, serde_json::to_string(&file).unwrap());
        fs_err::write(stage.data.join("archive/unfinished.json"), note).unwrap();
        let ended = archive(&stage, ["--output", file.to_str().unwrap()]).is(0).says(["was written already"]);
        assert_eq!(ended.stdout, format!("{}\n", file.display()));
        assert!(archived(&file) == all[..2 * EACH], "it is as it was");
        let ended = archive(&stage, ["--output", other.to_str().unwrap()]).is(0);
        assert_eq!(ended.stdout, "");
        assert!(
            ended.stderr.contains(&format!("those from before {BEFORE} (UTC) were written away already")),
            "{ended:#?}"
        );
        assert!(!other.exists() && !part(&other).exists());
    });
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn another_archive_finishes_the_one_that_was_cut_off() {
    in_both(|| {
        let stage = Stage::new(Model::new().step(text("Hello.")).cycle());
        let all = old_rows(&stage, EACH);
        stage.run(["Hi."]).is(0);
        let (first, second) = (stage.root().join("first.jsonl"), stage.root().join("second.jsonl"));
        cut_off(&stage, &first);
        // Without its file nobody knows what is where.
        let away = stage.root().join("away");
        fs_err::rename(part(&first), &away).unwrap();
        let ended = archive(&stage, ["--output", second.to_str().unwrap()]).is(1);
        assert!(
            ended.stderr.contains("first.jsonl.part is not there")
                && ended.stderr.contains("unfinished.json"),
            "{ended:#?}"
        );
        fs_err::rename(&away, part(&first)).unwrap();
        let ended = archive(&stage, ["--output", second.to_str().unwrap()]).is(0);
        assert!(ended.stderr.starts_with("finished ") && ended.stderr.contains("first.jsonl"), "{ended:#?}");
        assert!(!part(&first).exists());
        let mut found = archived(&first);
        assert!(
            ended
                .stdout
                .lines()
                .eq([&first, &second].iter().filter(|file| file.exists()).map(|file| file.to_str().unwrap()))
        );
        if second.exists() {
            found.extend(archived(&second));
        }
        assert!(found == all[..2 * EACH], "{} rows", found.len());
        assert!(!stage.data.join("archive/unfinished.json").exists());
    });
}
