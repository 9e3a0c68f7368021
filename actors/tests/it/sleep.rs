//! Sessions that have nothing to do leave memory, and come back as if they had not.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mock_llm::{Model, Script, call, text};
use playhouse_actors::{EngineOptions, Ground, SessionHandle, Subscription};
use playhouse_protocol::event::Provisional;
use playhouse_protocol::message::CallOutcome;
use playhouse_protocol::record::TurnOutcome;
use playhouse_protocol::{Command, ConsentAnswer, EventBody, MessageId, Prompt, Record, Sandbox, Seq};
use playhouse_store::Store;
use serde_json::json;

use crate::consents::{THERE, goes, waiting};
use crate::support::{Stage, open_ground, until};

/// Long enough to see a session in memory, and short enough to wait for.
const IDLE: Duration = Duration::from_millis(30);

async fn stage_with(script: Script, change: impl FnOnce(&mut EngineOptions)) -> Stage {
    Stage::with(Store::memory().unwrap(), Arc::new(tempfile::tempdir().unwrap()), script, change).await
}

async fn sleepy(script: Script) -> Stage {
    stage_with(script, |options| options.limits.idle_after = Some(IDLE)).await
}

/// Waits until no more than so many sessions are in memory.
async fn at_most(stage: &Stage, sessions: usize) {
    let fewer = async {
        while stage.engine.in_memory() > sessions {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(20), fewer).await;
    assert!(in_time.is_ok(), "{} sessions are in memory", stage.engine.in_memory());
}

fn woken(stage: &Stage) -> u32 {
    stage.directory.woken.load(Ordering::SeqCst)
}

async fn run(session: &SessionHandle, text: &str) {
    let ended = session.run(Prompt::text(text)).await.unwrap().ended;
    assert_eq!(ended.outcome, TurnOutcome::Completed, "{:?}", ended.error);
}

/// The durable events from behind `after` up to `until`, which must follow each other without a gap; and how often the reader
/// fell behind.
async fn follow(events: &mut Subscription, after: Seq, until: Seq) -> (Vec<Record>, u32) {
    let (mut last, mut records, mut resyncs) = (after, Vec::new(), 0);
    while last < until {
        let event = tokio::time::timeout(Duration::from_secs(20), events.next()).await.expect("it comes");
        let event = event.unwrap().expect("the stream goes on");
        match &event.event().body {
            EventBody::Durable(record) => {
                last = last.next();
                assert_eq!(event.event().id.seq, last, "each once, in order");
                records.push(record.as_ref().clone());
            }
            EventBody::Provisional(Provisional::Resync { .. }) => resyncs += 1,
            EventBody::Provisional(_) => {}
        }
    }
    (records, resyncs)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_rests_leaves_and_wakes_for_whoever_asks() {
    let stage = sleepy(Script::new()).await;
    let session = stage.session("echo").await;
    assert_eq!(stage.engine.in_memory(), 0, "one that nobody asked for was never there");
    run(&session, "one").await;
    for count in 1..4 {
        at_most(&stage, 0).await;
        assert_eq!(woken(&stage), count);
        match count {
            1 => run(&session, "two").await,
            2 => assert_eq!(session.snapshot().await.unwrap().summary.turns, 2),
            _ => {
                let mut events = session.events(Some(Seq::START)).await.unwrap();
                let ended = until(&mut events, |record| matches!(record, Record::TurnEnded(_))).await;
                assert!(matches!(ended, Record::TurnEnded(_)));
            }
        }
        assert_eq!(woken(&stage), count + 1);
    }
    at_most(&stage, 0).await;
    let stopped = stage.engine.shutdown().await;
    assert_eq!((stopped.sessions, stopped.stragglers), (0, Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn walls_are_built_for_whoever_needs_them() {
    let command = json!({ "command": "echo run > ran; cat ran" });
    let script = Script::new().model("runs", Model::new().step(call("bash", command)).step(text("Done.")));
    let stage = sleepy(script).await;
    *stage.directory.ground.lock().unwrap() = Ground { sandbox: Sandbox::BestEffort, ..open_ground() };
    let homes = stage.folder.path().join("homes");
    let quiet = stage.session("echo").await;
    for text in ["one", "two"] {
        run(&quiet, text).await;
        at_most(&stage, 0).await;
    }
    assert!(!homes.exists(), "no turn started a program");
    let asked = quiet.snapshot().await.unwrap().walls.expect("they are told to whoever asks");
    assert_eq!(asked.by, "bubblewrap", "this test needs bubblewrap (`apt install bubblewrap`): {asked}");
    assert!(homes.exists());

    fs_err::remove_dir_all(&homes).unwrap();
    let session = stage.session("runs").await;
    run(&session, "go").await;
    assert!(homes.exists(), "its command needed them");
    let records = stage.records(&session).await;
    let output = records.iter().find_map(|record| match record {
        Record::CallSettled { result, .. } => Some(result.output.as_str()),
        _ => None,
    });
    assert!(output.is_some_and(|output| output.contains("run")), "{output:?}");
    at_most(&stage, 0).await;
    assert_eq!(session.snapshot().await.unwrap().walls, Some(asked));
    stage.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_follows_a_session_that_sleeps_gets_all_and_is_told_of_its_end() {
    let stage = sleepy(Script::new()).await;
    let session = stage.session("echo").await;
    let mut events = session.events(Some(Seq::START)).await.unwrap();
    let mut place = Seq::START;
    at_most(&stage, 0).await;
    for turn in 0..4 {
        run(&session, "again").await;
        at_most(&stage, 0).await;
        let head = stage.engine.summary(session.id()).await.unwrap().head;
        let (records, resyncs) = follow(&mut events, place, head).await;
        assert_eq!(resyncs, 0, "whoever reads along misses nothing by sleep");
        assert!(records.iter().any(|record| matches!(record, Record::TurnEnded(_))), "turn {turn}");
        place = head;
    }
    assert_eq!(woken(&stage), 5, "it slept between the turns");
    // Deleted while it sleeps.
    let mut others = stage.session("echo").await.events(None).await.unwrap();
    at_most(&stage, 0).await;
    stage.engine.delete(session.id()).await.unwrap();
    let deleted = async { while events.next().await.unwrap().is_some() {} };
    tokio::time::timeout(Duration::from_secs(20), deleted).await.expect("the stream ends");
    at_most(&stage, 0).await;
    stage.engine.shutdown().await;
    let stopped = tokio::time::timeout(Duration::from_secs(20), others.next()).await;
    assert!(stopped.expect("the stream ends").unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_at_work_or_waits_for_people_stays() {
    let script = goes(&[THERE]).model("w", Model::new().step(call("probe", json!({"mode": "wait"}))));
    let stage = sleepy(script).await.bare();
    let (asking, mut events, asked) = waiting(&stage, stage.new_session("m")).await;
    let working = stage.session("w").await;
    // Without rules of the ground the probe is allowed: it is safe.
    working.prompt(Prompt::text("go")).await.unwrap();
    stage.probe.begun().await;
    tokio::time::sleep(5 * IDLE).await;
    assert_eq!((stage.engine.in_memory(), woken(&stage)), (2, 2));
    asking.answer(asked.consent, ConsentAnswer::Once).await.unwrap();
    until(&mut events, |record| matches!(record, Record::TurnEnded(_))).await;
    stage.probe.release(1);
    at_most(&stage, 0).await;
    assert_eq!(woken(&stage), 2, "nobody had to be woken for it");
    assert_eq!(stage.danger.went(), [THERE]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_in_the_background_stays_and_what_was_seen_of_files_survives_sleep() {
    let start = json!({"command": "echo begun; sleep 500", "background": true});
    let edit = json!({"filePath": "notes.txt", "oldString": "first", "newString": "second"});
    let process = |action: &str| json!({"action": action, "id": "last"});
    let script = Script::new().model(
        "m",
        Model::new()
            .step(call("bash", start).call("read", json!({"filePath": "notes.txt"})))
            .step(text("It runs."))
            .next_turn()
            .step(call("process", process("end")))
            .step(text("It ran."))
            .next_turn()
            .step(call("process", process("read")).call("edit", edit))
            .step(text("That was that.")),
    );
    let stage = sleepy(script).await;
    let notes = stage.folder.path().join("workspace/notes.txt");
    fs_err::write(&notes, "first\n").unwrap();
    let session = stage.session("m").await;
    run(&session, "go").await;
    tokio::time::sleep(5 * IDLE).await;
    assert_eq!((stage.engine.in_memory(), woken(&stage)), (1, 1), "a command of it runs");
    run(&session, "end it").await;
    at_most(&stage, 0).await;
    run(&session, "and now").await;
    assert_eq!(woken(&stage), 2);
    let results: Vec<_> = stage
        .records(&session)
        .await
        .into_iter()
        .filter_map(|record| match record {
            Record::CallSettled { result, .. } => Some((result.outcome, result.output)),
            _ => None,
        })
        .collect();
    assert!(results.iter().all(|(outcome, _)| *outcome == CallOutcome::Done), "{results:?}");
    assert_eq!(fs_err::read_to_string(&notes).unwrap(), "second\n");
    stage.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_there_are_too_many_those_leave_that_rested_longest() {
    let stage =
        stage_with(Script::new(), |options| (options.limits.idle_after, options.limits.max_live) = (None, 5))
            .await;
    let mut sessions = Vec::new();
    for _ in 0..20 {
        let session = stage.session("echo").await;
        run(&session, "hi").await;
        sessions.push(session);
    }
    at_most(&stage, 5).await;
    // More than 20, where one left before its prompt came: while the others still work, only it rests.
    let before = woken(&stage);
    // No more than stay: which of two rests first that answer at the same time is open.
    for session in &sessions[18..] {
        session.snapshot().await.unwrap();
    }
    assert_eq!(woken(&stage), before, "the last ones were there");
    for session in &sessions[..3] {
        session.snapshot().await.unwrap();
    }
    assert_eq!(woken(&stage), before + 3, "the first ones were not");
    at_most(&stage, 5).await;
    // Those that were used least lately made room.
    for session in sessions[..2].iter().chain(&sessions[18..]) {
        session.snapshot().await.unwrap();
    }
    assert_eq!(woken(&stage), before + 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn those_at_work_may_be_more_than_there_may_be() {
    let script = Script::new()
        .model("w", Model::new().step(call("probe", json!({"mode": "wait"}))).step(text("Done.")));
    let stage =
        stage_with(script, |options| (options.limits.idle_after, options.limits.max_live) = (None, 2)).await;
    let mut running = Vec::new();
    for _ in 0..6 {
        let session = stage.session("w").await;
        running.push((session.events(None).await.unwrap(), session.clone()));
        session.prompt(Prompt::text("go")).await.unwrap();
        stage.probe.begun().await;
    }
    assert_eq!((stage.engine.in_memory(), woken(&stage)), (6, 6));
    stage.probe.release(6);
    for (events, _) in &mut running {
        until(events, |record| matches!(record, Record::TurnEnded(_))).await;
    }
    at_most(&stage, 2).await;
    assert_eq!(woken(&stage), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_rests_for_longer_lets_go_of_its_conversation_and_asks_the_same_afterwards() {
    let stage = async |settle_after| {
        let calls = Model::new().step(call("probe", json!({"mode": "free"}))).step(text("Done.")).cycle();
        let script = Script::new().model("m", calls);
        stage_with(script, |options| {
            (options.limits.idle_after, options.limits.settle_after) = (None, settle_after)
        })
        .await
    };
    let keeps = stage(Duration::from_secs(3_600)).await;
    let lets_go = stage(Duration::from_millis(1)).await;
    let begun = |stage: &Stage| stage.directory.profiles.load(Ordering::SeqCst);
    let session = lets_go.session("m").await;
    let mut turns = 0;
    let until_begun_anew = async {
        while begun(&lets_go) < 4 {
            turns += 1;
            run(&session, &format!("prompt {turns}")).await;
            // What it is made of may change meanwhile.
            *lets_go.directory.system.lock().unwrap() = format!("Changed {turns} times.");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), until_begun_anew).await.expect("it lets go when it rests");
    assert_eq!((woken(&lets_go), lets_go.engine.in_memory()), (1, 1), "it stayed in memory");
    let session = keeps.session("m").await;
    for turn in 1..=turns {
        run(&session, &format!("prompt {turn}")).await;
    }
    assert_eq!(begun(&keeps), 1, "who rests for less keeps it");
    let bodies = |stage: &Stage| {
        let entries = stage.directory.mock.journal().entries().into_iter();
        entries.map(|entry| entry.body.expect("it was sent")).collect::<Vec<_>>()
    };
    let (expected, asked) = (bodies(&keeps), bodies(&lets_go));
    assert_eq!((expected.len(), asked.len()), (2 * turns, 2 * turns));
    for (number, (expected, asked)) in expected.iter().zip(&asked).enumerate() {
        assert!(expected == asked, "request {number}: {}", String::from_utf8_lossy(asked));
    }
}

/// Prompts from all sides to sessions that leave whenever they can.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_between_leaving_and_a_message_that_arrives() {
    const SESSIONS: usize = 4;
    const CALLERS: usize = 2;
    /// They go on until the sessions were woken so often.
    const WAKES: u32 = 150;
    let stage = stage_with(Script::new(), |options| {
        (options.limits.idle_after, options.limits.max_live) = (Some(Duration::from_micros(200)), 2);
    })
    .await;
    let mut callers = Vec::new();
    let mut followers = Vec::new();
    let mut sessions = Vec::new();
    for number in 0..SESSIONS {
        let session = stage.session("echo").await;
        // Half of the sessions are followed: their events stay while they sleep.
        if number % 2 == 0 {
            followers.push((session.clone(), session.events(Some(Seq::START)).await.unwrap()));
        }
        for caller in 0..CALLERS {
            // Each has a handle of its own, which knows an actor that may be gone.
            let session = stage.engine.session(session.id()).await.unwrap();
            let directory = Arc::clone(&stage.directory);
            callers.push(tokio::spawn(async move {
                let mut accepted = Vec::new();
                let mut count = 0;
                // On a busy machine turns take longer: with pauses of a fixed length no session would ever be idle.
                let mut turn = Duration::from_millis(5);
                while directory.woken.load(Ordering::SeqCst) < WAKES {
                    count += 1;
                    let pause = (number * 7 + caller * 5 + count * 3) % 11;
                    tokio::time::sleep(turn * u32::try_from(pause).unwrap() / 2).await;
                    let prompt = Prompt::text(format!("{caller}.{count}"));
                    match count % 4 {
                        0 => drop(session.snapshot().await.unwrap()),
                        1 => drop(session.command(Command::Change(Default::default())).await.unwrap()),
                        2 => accepted.push(session.prompt(prompt).await.unwrap().turn),
                        _ => {
                            let begun = Instant::now();
                            accepted.push(session.run(prompt).await.unwrap().ended.turn);
                            turn = begun.elapsed().max(Duration::from_millis(5));
                        }
                    }
                }
                (session.id(), accepted)
            }));
        }
        sessions.push(session);
    }
    let mut accepted: HashMap<_, Vec<MessageId>> = HashMap::new();
    for caller in callers {
        let done = tokio::time::timeout(Duration::from_secs(60), caller).await;
        let (session, turns) = done.expect("the sessions sleep now and then").unwrap();
        accepted.entry(session).or_default().extend(turns);
    }
    at_most(&stage, 0).await;
    for session in &sessions {
        let (entries, damage) = stage.engine.read(session.id()).await.unwrap();
        assert_eq!(damage, None);
        let mut admitted = Vec::new();
        let mut ended = Vec::new();
        for entry in &entries {
            match &entry.record {
                Record::PromptAdmitted(prompt) => admitted.push(prompt.message),
                Record::TurnEnded(turn) => {
                    assert_eq!(turn.outcome, TurnOutcome::Completed);
                    ended.push(turn.turn);
                }
                _ => {}
            }
        }
        assert_eq!(admitted, ended, "all of them ran, in their order, and none twice");
        let mut told = accepted.remove(&session.id()).unwrap();
        told.sort_unstable();
        admitted.sort_unstable();
        assert_eq!(told, admitted, "exactly those that were acknowledged");
        let lost = entries.iter().filter(|entry| {
            let Record::AttemptEnded(ended) = &entry.record else { return false };
            ended.outcome == playhouse_protocol::record::AttemptOutcome::Lost
        });
        assert_eq!(lost.count(), 0, "none left in the middle of its work");
    }
    for (session, mut events) in followers {
        // They were read by nobody so far: what the ring does not have any more comes from the log.
        let head = stage.engine.summary(session.id()).await.unwrap().head;
        follow(&mut events, Seq::START, head).await;
    }
}
