//! A process that is killed in the middle of a turn, and what the next one makes of it.

use std::collections::BTreeMap;

use mock_llm::{Model, call, text};
use playhouse::protocol::Record;
use playhouse::protocol::message::{CallOutcome, CallResult};
use playhouse::protocol::record::{AttemptOutcome, TurnOutcome};
use rustix::process::{Signal, kill_process};
use serde_json::json;

use crate::interrupt::{process, start};
use crate::stage::Stage;

/// Every attempt that the model was asked stands in the log once: begun, ended, and with what it used.
fn check_attempts(stage: &Stage, records: &[Record]) {
    let mut attempts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for record in records {
        match record {
            Record::AttemptStarted(started) => {
                attempts.entry(started.attempt.to_string()).or_default().0 += 1;
            }
            Record::AttemptEnded(ended) => {
                assert!(ended.usage.is_some(), "{ended:?}");
                attempts.entry(ended.attempt.to_string()).or_default().1 += 1;
            }
            _ => {}
        }
    }
    let asked: BTreeMap<String, (usize, usize)> =
        stage.asked().into_iter().map(|entry| (entry.attempt.unwrap(), (1, 1))).collect();
    assert_eq!(attempts, asked);
}

fn results(records: &[Record]) -> Vec<&CallResult> {
    records
        .iter()
        .filter_map(|record| match record {
            Record::CallSettled { result, .. } => Some(result),
            _ => None,
        })
        .collect()
}

fn outcomes(records: &[Record]) -> Vec<TurnOutcome> {
    let outcome =
        |record: &Record| if let Record::TurnEnded(ended) = record { Some(ended.outcome) } else { None };
    records.iter().filter_map(outcome).collect()
}

#[test]
fn a_turn_goes_on_after_a_kill_during_a_command() {
    let command = "echo run >> runs.txt; echo $$ > shell.pid; sleep 600";
    let stage = Stage::new(
        Model::new()
            .step(text("Now.").call("bash", json!({"command": command})))
            .step(text("It was interrupted."))
            .next_turn()
            .step(text("Going on.")),
    );
    let mut child = start(&stage, ["--yes", "--sandbox", "off", "Run it."]);
    let shell = process(&stage, "shell.pid");
    child.kill().unwrap();
    child.wait().unwrap();
    // It outlives the process that was killed.
    kill_process(shell, Signal::KILL).unwrap();

    let ended = stage.run(["-c", "go on"]).is(0);
    assert_eq!(ended.stdout, "It was interrupted.\nGoing on.\n");
    let ended =
        ended.says(["✗ bash echo run >> runs.txt", "\n    interrupted: the engine stopped", "completed\n"]);
    assert!(ended.stderr.contains("effects unknown"), "{}", ended.stderr);
    assert_eq!(stage.read("runs.txt"), "run\n", "it did not run again");

    let records = stage.records(&stage.session());
    assert_eq!(outcomes(&records), [TurnOutcome::Completed, TurnOutcome::Completed]);
    let results = results(&records);
    assert_eq!(results.len(), 1);
    assert_eq!(results[0].outcome, CallOutcome::Interrupted);
    assert!(results[0].output.contains("effects unknown"), "{}", results[0].output);
    assert!(stage.requests()[1].to_string().contains("effects unknown"));
    check_attempts(&stage, &records);
}

#[test]
fn a_turn_goes_on_after_a_kill_during_an_answer() {
    let slow = mock_llm::tokens(1_000).rate(20.0);
    let stage = Stage::new(Model::new().step(slow).next_turn().step(text("Never asked like this.")));
    let mut child = start(&stage, ["Talk."]);
    let mut first = [0; 8];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    stage.wait_for(|asked| asked[0].outcome == mock_llm::Outcome::ClientGone);

    // From here on the model answers at once: it is another one.
    let session = stage.session();
    let lists = stage.playhouse(["sessions", "list"]).is(0);
    assert!(lists.stdout.contains("busy"), "{}", lists.stdout);
    let mut child = start(&stage, ["-c", "go on"]);
    stage.wait_for(|asked| asked.len() == 2);
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(),
        Signal::INT,
    )
    .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    let records = stage.records(&session);
    // The first attempt was lost and is estimated; the second one answered the same prompt.
    let ends: Vec<&AttemptOutcome> = records
        .iter()
        .filter_map(
            |record| if let Record::AttemptEnded(ended) = record { Some(&ended.outcome) } else { None },
        )
        .collect();
    assert_eq!(ends, [&AttemptOutcome::Lost, &AttemptOutcome::Aborted]);
    assert_eq!(stage.requests()[0]["messages"], stage.requests()[1]["messages"]);
    assert_eq!(outcomes(&records), [TurnOutcome::Aborted, TurnOutcome::Aborted]);
    check_attempts(&stage, &records);
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_turn_that_was_killed_often_is_still_one_turn() {
    let stage = Stage::new(
        Model::new()
            .step(call("read", json!({"filePath": "a.txt"})).delay(std::time::Duration::from_millis(400)))
            .step(text("Read.").delay(std::time::Duration::from_millis(400)))
            .next_turn()
            .step(text("Done.")),
    );
    stage.write("a.txt", "content\n");
    for round in 1..=3 {
        let mut child = if round == 1 { start(&stage, ["Read it."]) } else { start(&stage, ["-c", "again"]) };
        stage.wait_for(|asked| asked.len() >= round);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    stage.run(["-c", "go on"]).is(0);
    let records = stage.records(&stage.session());
    let reads = results(&records).iter().filter(|result| result.output.contains("content")).count();
    assert_eq!(reads, 1, "a call has one result");
    assert!(outcomes(&records).iter().all(|outcome| *outcome == TurnOutcome::Completed));
    let admitted = records.iter().filter(|record| matches!(record, Record::PromptAdmitted(_))).count();
    assert_eq!(outcomes(&records).len(), admitted, "each prompt that was admitted ends");
    check_attempts(&stage, &records);
}

#[test]
fn a_turn_that_was_left_goes_on_by_hand() {
    let stage = Stage::new(Model::new().step(text("Well.").delay(std::time::Duration::from_millis(400))));
    let mut child = start(&stage, ["Talk."]);
    stage.wait_for(|asked| !asked.is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    let session = stage.session();
    stage.playhouse(["sessions", "list"]).is(0).shows(["busy"]);
    stage.playhouse(["sessions", "show", &session]).is(0).shows(["busy"]);
    assert_eq!(stage.asked().len(), 1, "whoever only looks makes nothing go on");

    let resumed = stage.playhouse(["sessions", "resume", &session, "--sandbox", "off"]).is(0);
    assert_eq!(resumed.stdout, format!("resumed {session}\n"));
    let records = stage.records(&session);
    assert_eq!(outcomes(&records), [TurnOutcome::Completed]);
    check_attempts(&stage, &records);
    let again = stage.playhouse(["sessions", "resume", &session, "--sandbox", "off"]).is(0);
    assert_eq!(again.stdout, format!("{session} has nothing unfinished\n"));
    let all = stage.playhouse(["sessions", "resume", "--all", "--sandbox", "off"]).is(0);
    assert_eq!(all.stdout, "nothing is unfinished\n");
    stage.playhouse(["sessions", "resume"]).is(2).says(["SESSION"]);
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_session_that_cannot_go_on_is_named_and_the_others_go_on() {
    let stage =
        Stage::new(Model::new().step(text("Well.").delay(std::time::Duration::from_millis(400))).cycle());
    let mut sessions = Vec::new();
    for number in 1..=2 {
        let mut child = start(&stage, ["Talk."]);
        stage.wait_for(|asked| asked.len() >= number);
        child.kill().unwrap();
        child.wait().unwrap();
        sessions.push(stage.session());
    }
    let (damaged, whole) = (&sessions[0], &sessions[1]);
    let place = stage.damage(damaged, stage.records(damaged).len() as u64);
    let resumed = stage.playhouse(["sessions", "resume", "--all", "--sandbox", "off"]).is(1);
    assert!(resumed.stdout.contains(&format!("resumed {whole}\n")), "{resumed:#?}");
    let passed = format!("passed over {damaged}, which is parked: record {place}");
    assert!(resumed.stdout.contains(&passed), "{resumed:#?}");
    resumed.says(["1 session does not go on"]);
    assert_eq!(outcomes(&stage.records(whole)), [TurnOutcome::Completed]);
    // What would be lost with a fork is said, and who wants it all the same says so.
    stage.run(["-s", damaged, "--fork", "And now?"]).is(1).says([&format!("record {place}"), "--readable"]);
    stage.run(["-s", damaged, "--fork", "--readable", "And now?"]).is(0);
}
