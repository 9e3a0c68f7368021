//! What an engine left unfinished when it was killed, and what the next one makes of it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mock_llm::{Model, Script, call, text, tokens};
use playhouse_actors::{Heard, Resume};
use playhouse_protocol::event::Provisional;
use playhouse_protocol::ledger::{Purpose, RowQuery};
use playhouse_protocol::message::CallOutcome;
use playhouse_protocol::record::{AttemptOutcome, SessionChanged, TurnOutcome};
use playhouse_protocol::usage::Quality;
use playhouse_protocol::{
    Command, CommandError, ConsentAnswer, EventBody, NewSession, Prompt, Record, Seq, SessionId, WhenBusy,
    question,
};
use playhouse_store::Store;
use playhouse_tools::Tool;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::consents::THERE;
use crate::support::{Stage, bare_ground, kinds, until};
use crate::tasks::{child, hands_over};

fn question() -> Value {
    json!({"questions": [{
        "question": "Which?", "header": "Which", "options": [{"label": "This", "description": "one"}],
    }]})
}

/// Models that are in the middle of something for ever, for the engine that is killed; or that end, for the one after it.
fn script(slow: bool) -> Script {
    let mode = |one: &str| json!({"mode": if slow { format!("{one}wait") } else { format!("{one}once") }});
    let pause = if slow { Duration::from_secs(600) } else { Duration::ZERO };
    let calls = |input| Model::new().step(call("probe", input)).step(text("Done."));
    Script::new()
        .model("streams", Model::new().step(text("A whole answer.").delay(pause)))
        .model("reads", calls(mode("free-")))
        .model("writes", calls(mode("")))
        .model("asks", Model::new().step(call("question", question())).step(text("Thanks.")))
        .model("dares", Model::new().step(call("danger", json!({"to": THERE}))).step(text("Done.")))
}

/// A store and a folder that outlive their engines.
pub(crate) struct Ground {
    pub(crate) store: Store,
    folder: Arc<tempfile::TempDir>,
}

impl Ground {
    pub(crate) fn new() -> Self {
        Self { store: Store::memory().unwrap(), folder: Arc::new(tempfile::tempdir().unwrap()) }
    }

    pub(crate) async fn stage(&self, script: Script, resume: Resume) -> Stage {
        self.stage_with(script, resume, None).await
    }

    async fn stage_with(&self, script: Script, resume: Resume, tool: Option<Arc<dyn Tool>>) -> Stage {
        Stage::with(self.store.clone(), Arc::clone(&self.folder), script, |options| {
            tool.into_iter().for_each(|tool| options.tools.add(tool).unwrap());
            options.resume = resume;
            options.limits.idle_after = Some(Duration::from_millis(20));
        })
        .await
    }

    /// Runs an engine up to the end of `work`, and kills it there: nothing of it runs any more.
    fn killed<T>(&self, work: impl AsyncFnOnce(&Stage) -> T) -> T {
        self.killed_with(script(true), work)
    }

    /// The same, with other models.
    pub(crate) fn killed_with<T>(&self, script: Script, work: impl AsyncFnOnce(&Stage) -> T) -> T {
        self.killed_by(script, None, work)
    }

    /// The same, with one more tool.
    pub(crate) fn killed_by<T>(
        &self,
        script: Script,
        tool: Option<Arc<dyn Tool>>,
        work: impl AsyncFnOnce(&Stage) -> T,
    ) -> T {
        // Several threads: what ends on one is seen by what still runs on another.
        let runtime = Builder::new_multi_thread().worker_threads(8).enable_all().build().unwrap();
        let done = runtime.block_on(async {
            let stage = self.stage_with(script, Resume::OnDemand, tool).await;
            *stage.directory.ground.lock().unwrap() = bare_ground();
            work(&stage).await
        });
        runtime.shutdown_timeout(Duration::from_secs(20));
        done
    }
}

async fn ended(stage: &Stage, session: SessionId) -> Vec<TurnOutcome> {
    let mut events = stage.engine.session(session).await.unwrap().events(Some(Seq::START)).await.unwrap();
    let turns = stage.engine.summary(session).await.unwrap();
    let mut outcomes = Vec::new();
    while outcomes.len() < (turns.turns + turns.open_turns) as usize {
        let Record::TurnEnded(ended) =
            until(&mut events, |record| matches!(record, Record::TurnEnded(_))).await
        else {
            unreachable!()
        };
        outcomes.push(ended.outcome);
    }
    outcomes
}

/// Waits until nothing is unfinished, without asking any session for anything.
pub(crate) async fn all_is_finished(stage: &Stage) {
    let finished = async {
        while !stage.engine.unfinished().await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), finished).await.expect("the sessions go on by themselves");
}

/// Begins a turn, and waits for a record of it.
async fn begin(stage: &Stage, model: &str, kind: &str) -> SessionId {
    let session = stage.session(model).await;
    let mut events = session.events(None).await.unwrap();
    session.prompt(Prompt::text("go")).await.unwrap();
    until(&mut events, |record| record.kind() == kind).await;
    session.id()
}

#[test]
fn an_engine_that_starts_goes_on_with_all_that_was_left() {
    let ground = Ground::new();
    let [streams, reads, writes] = ground.killed(async |stage| {
        let streams = begin(stage, "streams", "attempt.started").await;
        let reads = begin(stage, "reads", "call.intended").await;
        let writes = begin(stage, "writes", "call.intended").await;
        stage.probe.begun().await;
        stage.probe.begun().await;
        // Another one waits behind it.
        stage.engine.session(writes).await.unwrap().prompt(Prompt::text("and then")).await.unwrap();
        let idle = stage.session("echo").await;
        idle.run(Prompt::text("hi")).await.unwrap();
        [streams, reads, writes]
    });
    Runtime::new().unwrap().block_on(async {
        let stage = ground.stage(script(false), Resume::Auto).await;
        // The call that only reads runs again, as it was proposed.
        stage.probe.begun().await;
        stage.probe.release(1);
        all_is_finished(&stage).await;
        assert_eq!(stage.directory.woken.load(Ordering::SeqCst), 3, "one without work is left alone");
        let records = async |session| stage.engine.read(session).await.unwrap().0;
        for (session, turns) in [(streams, 1), (reads, 1), (writes, 2)] {
            assert_eq!(ended(&stage, session).await, vec![TurnOutcome::Completed; turns]);
        }
        // The streaming step was made again, and both attempts stand in the log.
        let attempts: Vec<AttemptOutcome> = records(streams)
            .await
            .into_iter()
            .filter_map(|entry| match entry.record {
                Record::AttemptEnded(ended) => Some(ended.outcome),
                _ => None,
            })
            .collect();
        assert_eq!(attempts, [AttemptOutcome::Lost, AttemptOutcome::Finished]);
        let mut results = Vec::new();
        for session in [reads, writes] {
            let settled = records(session).await.into_iter().filter_map(|entry| match entry.record {
                Record::CallSettled { result, .. } => Some((result.outcome, result.output)),
                _ => None,
            });
            results.push(settled.collect::<Vec<_>>());
        }
        assert_eq!(results[0], [(CallOutcome::Done, "did free-wait".to_owned())], "it ran again");
        // The second prompt's turn makes no call.
        let (outcome, output) = &results[1][0];
        assert_eq!(*outcome, CallOutcome::Interrupted);
        assert!(output.contains("effects unknown: check before you repeat it"), "{output}");
    });
}

#[test]
fn a_file_that_was_cut_off_is_put_back_and_the_call_says_so() {
    let ground = Ground::new();
    let old = "old\n".repeat(1_000);
    let (session, file, kept) = ground.killed(async |stage| {
        let session = begin(stage, "writes", "call.intended").await;
        stage.probe.begun().await;
        let records = stage.engine.read(session).await.unwrap().0;
        let call = records.into_iter().find_map(|entry| match entry.record {
            Record::CallIntended(intended) => Some(intended.call),
            _ => None,
        });
        // What a call leaves that writes in place, and is killed in the middle.
        let summary = stage.engine.summary(session).await.unwrap();
        let file = Path::new(&summary.workspace).join("torn");
        let outputs =
            fs_err::canonicalize(stage.folder.path()).unwrap().join("outputs").join(session.as_str());
        let kept = outputs.join(format!("{}.before", call.unwrap()));
        fs_err::write(&file, format!("new\n{}", &old[4..])).unwrap();
        fs_err::create_dir_all(&outputs).unwrap();
        fs_err::write(&kept, &old).unwrap();
        let hash = |text: &str| playhouse_workspace::hash(text.as_bytes()).to_string();
        let record = json!({"path": file, "before": hash(&old), "after": hash("new\n"), "size": 4});
        fs_err::write(kept.with_extension("before.json"), record.to_string()).unwrap();
        (session, file, kept)
    });
    Runtime::new().unwrap().block_on(async {
        let stage = ground.stage(script(false), Resume::Auto).await;
        all_is_finished(&stage).await;
        assert_eq!(fs_err::read_to_string(&file).unwrap(), old);
        let records = stage.engine.read(session).await.unwrap().0;
        let settled = records.into_iter().find_map(|entry| match entry.record {
            Record::CallSettled { result, .. } => Some(result),
            _ => None,
        });
        let result = settled.unwrap();
        assert_eq!(result.outcome, CallOutcome::Interrupted);
        let told = format!(
            "torn had a part of the new content, and its old content was put back, which is also in {};",
            kept.display()
        );
        assert!(result.output.contains(&told), "{}", result.output);
        assert_eq!(fs_err::read_to_string(&kept).unwrap(), old);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_stops_writes_down_what_an_answer_has_used_so_far() {
    let ground = Ground::new();
    let long = |rate| Script::new().model("long", Model { rate, ..Model::new().step(tokens(2_000)) });
    let stage = ground.stage(long(Some(200.0)), Resume::Auto).await;
    let session = begin(&stage, "long", "attempt.started").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let began = Instant::now();
    let stopped = stage.engine.shutdown().await;
    assert!(began.elapsed() < Duration::from_secs(5) && stopped.stragglers.is_empty(), "{stopped:?}");
    drop(stage);
    let entries = ground.store.log.read(session, Seq(0), usize::MAX).unwrap().entries;
    let Some(Record::AttemptEnded(ended)) = entries.last().map(|entry| entry.record.clone()) else {
        panic!("{entries:#?}")
    };
    assert_eq!(ended.outcome, AttemptOutcome::Lost);
    let usage = ended.usage.unwrap();
    assert_eq!(usage.quality, Quality::Estimated);
    assert!((20..1_000).contains(&usage.tokens.output), "{usage:?}");
    // The next engine asks again, and tells that attempt nothing more.
    let stage = ground.stage(long(None), Resume::Auto).await;
    all_is_finished(&stage).await;
    let entries = stage.engine.read(session).await.unwrap().0;
    let attempts = entries.into_iter().filter_map(|entry| match entry.record {
        Record::AttemptEnded(ended) => Some(ended.outcome),
        _ => None,
    });
    assert_eq!(attempts.collect::<Vec<_>>(), [AttemptOutcome::Lost, AttemptOutcome::Finished]);
    let spent = stage.engine.summary(session).await.unwrap().totals().tokens.output;
    assert_eq!(spent, usage.tokens.output + 2_000);
}

/// The same of one beside the steps of turns, in a session that is idle meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_stops_writes_down_what_a_title_has_used_so_far() {
    let ground = Ground::new();
    let titler = Model { rate: Some(200.0), ..Model::new().step(tokens(2_000)) };
    let stage = ground.stage(Script::new().model("titler", titler), Resume::Auto).await;
    stage.directory.titles.store(true, Ordering::SeqCst);
    let session = stage.session("echo").await;
    let mut events = session.events(None).await.unwrap();
    session.run(Prompt::text("hi")).await.unwrap();
    let session = session.id();
    // That of the turn, and the one beside it.
    for _ in 0..2 {
        until(&mut events, |record| matches!(record, Record::AttemptStarted(_))).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let stopped = stage.engine.shutdown().await;
    assert!(stopped.stragglers.is_empty(), "{stopped:?}");
    drop(stage);
    let entries = ground.store.log.read(session, Seq(0), usize::MAX).unwrap().entries;
    let ended = entries.iter().filter_map(|entry| match &entry.record {
        Record::AttemptEnded(ended) => Some(ended),
        _ => None,
    });
    let ended: Vec<_> = ended.collect();
    assert_eq!(
        ended.iter().map(|ended| ended.outcome.clone()).collect::<Vec<_>>(),
        [AttemptOutcome::Finished, AttemptOutcome::Lost]
    );
    let usage = ended[1].usage.as_ref().unwrap();
    assert_eq!(usage.quality, Quality::Estimated);
    assert!((20..1_000).contains(&usage.tokens.output), "{usage:?}");
    assert!(ground.store.log.unfinished().unwrap().is_empty(), "nothing is left to be done");
}

#[test]
fn what_was_left_waits_where_its_workspace_is_not_there_yet() {
    let ground = Ground::new();
    let workspace = ground.folder.path().join("workspace/late");
    fs_err::create_dir_all(&workspace).unwrap();
    let session = ground.killed(async |stage| {
        let place = workspace.to_string_lossy().into_owned();
        let new = NewSession { workspace: place, ..stage.new_session("streams") };
        let session = stage.engine.create(new).await.unwrap();
        let mut events = session.events(None).await.unwrap();
        session.prompt(Prompt::text("go")).await.unwrap();
        until(&mut events, |record| record.kind() == "attempt.started").await;
        session.id()
    });
    fs_err::remove_dir(&workspace).unwrap();
    Runtime::new().unwrap().block_on(async {
        let stage = ground.stage(script(false), Resume::Auto).await;
        let refused = stage.engine.resume(session).await.unwrap_err().to_string();
        assert!(refused.contains("late") && refused.contains("not"), "{refused}");
        let resumed = stage.engine.resume_each(vec![session]).await;
        assert_eq!((resumed.sessions.len(), resumed.passed_over.len()), (0, 1), "{resumed:?}");
        // Somebody who looks at it wakes it, and it waits.
        let handle = stage.engine.session(session).await.unwrap();
        let refused = handle.compact(None).await.unwrap_err().to_string();
        assert!(refused.contains("late"), "{refused}");
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(handle.snapshot().await.unwrap().summary.open_turns, 1);
        assert_eq!(stage.engine.unfinished().await.unwrap(), [session]);
        fs_err::create_dir(&workspace).unwrap();
        assert_eq!(stage.engine.resume(session).await, Ok(true));
        all_is_finished(&stage).await;
        assert_eq!(ended(&stage, session).await, [TurnOutcome::Completed]);
    });
}

/// Nothing of it is unfinished: it was looked at while its workspace was away, and is in memory when that comes back.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_in_memory_works_as_soon_as_its_workspace_is_there_again() {
    let ground = Ground::new();
    let workspace = ground.folder.path().join("workspace/late");
    fs_err::create_dir_all(&workspace).unwrap();
    let stage = ground.stage(Script::new(), Resume::Manual).await;
    let place = workspace.to_string_lossy().into_owned();
    let new = NewSession { workspace: place, ..stage.new_session("echo") };
    let session = stage.engine.create(new).await.unwrap().id();
    drop(stage);
    fs_err::remove_dir(&workspace).unwrap();
    let stage = Stage::with(ground.store.clone(), Arc::clone(&ground.folder), Script::new(), |options| {
        options.limits.idle_after = None;
    })
    .await;
    let handle = stage.engine.session(session).await.unwrap();
    handle.snapshot().await.unwrap();
    for _ in 0..2 {
        let refused = handle.run(Prompt::text("hi")).await.unwrap_err().to_string();
        assert!(refused.contains("late"), "{refused}");
    }
    fs_err::create_dir(&workspace).unwrap();
    // Many at once have it read again, once or more: each of them is answered.
    let prompts = (0..8).map(|number| {
        let handle = handle.clone();
        async move {
            let prompt = Prompt { when_busy: WhenBusy::Queue, ..Prompt::text(format!("number {number}")) };
            handle.run(prompt).await.unwrap().ended.outcome
        }
    });
    assert_eq!(futures::future::join_all(prompts).await, [TurnOutcome::Completed; 8]);
    assert_eq!(stage.engine.summary(session).await.unwrap().turns, 8);
}

/// A parent and its sub-session work in a directory that is not there at the start. Only the parent is resumed.
#[test]
fn a_turn_that_waited_for_its_workspace_takes_its_tasks_along() {
    let worker = |slow: bool| {
        let pause = if slow { Duration::from_secs(600) } else { Duration::ZERO };
        hands_over(Model::new().step(text("Found it.").delay(pause)))
    };
    let ground = Ground::new();
    let workspace = ground.folder.path().join("workspace/late");
    fs_err::create_dir_all(&workspace).unwrap();
    let [parent, task] = ground.killed_with(worker(true), async |stage| {
        let place = workspace.to_string_lossy().into_owned();
        let new = NewSession { workspace: place, ..stage.new_session("m") };
        let parent = stage.engine.create(new).await.unwrap();
        parent.prompt(Prompt::text("go")).await.unwrap();
        let task = child(stage, parent.id()).await;
        let mut events = task.events(Some(Seq::START)).await.unwrap();
        until(&mut events, |record| record.kind() == "attempt.started").await;
        [parent.id(), task.id()]
    });
    fs_err::remove_dir(&workspace).unwrap();
    Runtime::new().unwrap().block_on(async {
        let stage = Stage::with(ground.store.clone(), Arc::clone(&ground.folder), worker(false), |options| {
            // Nobody else makes them go on, as an engine with `Resume::Auto` does some time after its start.
            (options.resume, options.limits.idle_after) = (Resume::OnDemand, None);
        })
        .await;
        for session in [parent, task] {
            // Both are in memory, and wait.
            stage.engine.session(session).await.unwrap().snapshot().await.unwrap();
        }
        assert_eq!(stage.directory.mock.journal().count(), 0);
        fs_err::create_dir(&workspace).unwrap();
        assert_eq!(stage.engine.resume(parent).await, Ok(true));
        all_is_finished(&stage).await;
        for session in [parent, task] {
            assert_eq!(ended(&stage, session).await, [TurnOutcome::Completed]);
        }
    });
}

#[test]
fn what_waits_for_people_still_waits_and_has_all_its_time_again() {
    let ground = Ground::new();
    let begun = ground.killed(async |stage| {
        let consent =
            [begin(stage, "dares", "consent.asked").await, begin(stage, "dares", "consent.asked").await];
        let asks = begin(stage, "asks", "question.asked").await;
        (consent, asks, stage.engine.waiting("local").await.unwrap())
    });
    let ([answered, left], asks, before) = begun;
    Runtime::new().unwrap().block_on(async {
        let (store, folder) = (ground.store.clone(), Arc::clone(&ground.folder));
        let stage = Stage::prepared(store, folder, script(false), |directory, options| {
            *directory.ground.lock().unwrap() = bare_ground();
            (options.resume, options.limits.asking_wait) = (Resume::Auto, Duration::from_secs(5));
        })
        .await;
        let after = stage.engine.waiting("local").await.unwrap();
        assert_eq!(after, before, "the same requests, by the same names");
        let of = |session| after.iter().find(|waiting| waiting.session == session).unwrap();
        let handle = stage.engine.session(answered).await.unwrap();
        handle.answer(of(answered).consents[0].consent, ConsentAnswer::Once).await.unwrap();
        let handle = stage.engine.session(asks).await.unwrap();
        let this = Some(vec![vec!["This".to_owned()]]);
        handle.answer_question(of(asks).questions[0].question, this).await.unwrap();
        all_is_finished(&stage).await;
        assert_eq!(stage.danger.went(), [THERE], "one was answered, and the other's time passed");
        let told = |session| {
            let engine = stage.engine.clone();
            async move {
                let entries = engine.read(session).await.unwrap().0;
                entries.into_iter().find_map(|entry| match entry.record {
                    Record::ConsentSettled { answer, .. } => Some(answer),
                    _ => None,
                })
            }
        };
        assert_eq!(told(left).await, Some(ConsentAnswer::TimedOut));
        assert_eq!(told(answered).await, Some(ConsentAnswer::Once));
        let entries = stage.engine.read(asks).await.unwrap().0;
        let settled = entries.iter().filter_map(|entry| match &entry.record {
            Record::QuestionSettled { answer, .. } => Some(answer),
            _ => None,
        });
        assert!(matches!(settled.collect::<Vec<_>>()[..], [question::QuestionAnswer::Answered { .. }]));
    });
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn many_that_were_left_all_go_on() {
    const SESSIONS: usize = 120;
    let ground = Ground::new();
    let sessions = ground.killed(async |stage| {
        let mut sessions = Vec::new();
        for _ in 0..SESSIONS {
            sessions.push(begin(stage, "streams", "attempt.started").await);
        }
        sessions
    });
    Runtime::new().unwrap().block_on(async {
        let stage = ground.stage(script(false), Resume::Auto).await;
        // Somebody who comes meanwhile is served.
        let session = stage.session("echo").await;
        let ended = session.run(Prompt::text("hi")).await.unwrap().ended;
        assert_eq!(ended.outcome, TurnOutcome::Completed);
        all_is_finished(&stage).await;
        // Each went on by being asked for again, and once.
        for session in sessions {
            let (entries, _) = stage.engine.read(session).await.unwrap();
            let attempts = entries.iter().filter_map(|entry| match &entry.record {
                Record::AttemptEnded(ended) => Some(&ended.outcome),
                _ => None,
            });
            let attempts: Vec<_> = attempts.collect();
            assert_eq!(attempts, [&AttemptOutcome::Lost, &AttemptOutcome::Finished], "{entries:#?}");
        }
        assert_eq!(stage.directory.mock.journal().count(), SESSIONS as u64 + 1, "each once");
    });
}

/// A runtime ends its tasks one after another: those that still run must not take the end of the others for crashes.
#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_runtime_that_ends_under_its_sessions_leaves_their_work_open() {
    for round in 0..12 {
        let ground = Ground::new();
        let outside = Runtime::new().unwrap();
        let sessions = ground.killed(async |stage| {
            let mut sessions = Vec::new();
            for _ in 0..20 {
                sessions.push(begin(stage, "streams", "attempt.started").await);
                sessions.push(begin(stage, "reads", "call.intended").await);
            }
            // They have much to do up to the end.
            for session in sessions.iter().cycle().take(80) {
                let session = stage.engine.session(*session).await.unwrap();
                outside.spawn(async move { while session.snapshot().await.is_ok() {} });
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            sessions
        });
        outside.shutdown_background();
        for session in sessions {
            let read = ground.store.log.read(session, Seq::START, usize::MAX).unwrap();
            let last = &read.entries.last().unwrap().record;
            let is_open = matches!(
                last,
                Record::AttemptStarted(_) | Record::SystemSettled(_) | Record::ToolsSettled(_)
            ) || matches!(last.kind(), "call.intended");
            assert!(is_open, "round {round}: {last:?}");
        }
    }
}

#[test]
fn by_hand_nothing_goes_on_until_somebody_wants_it() {
    let ground = Ground::new();
    let [resumed, prompted, aborted, removed] = ground.killed(async |stage| {
        let mut sessions = [None; 4];
        for (number, model) in ["reads", "streams", "reads", "streams"].into_iter().enumerate() {
            let kind = if model == "reads" { "call.intended" } else { "attempt.started" };
            sessions[number] = Some(begin(stage, model, kind).await);
        }
        sessions.map(Option::unwrap)
    });
    Runtime::new().unwrap().block_on(async {
        let stage = ground.stage(script(false), Resume::Manual).await;
        let heads = async || {
            let mut heads = Vec::new();
            for session in [resumed, prompted, aborted, removed] {
                heads.push(stage.engine.summary(session).await.unwrap().head);
            }
            heads
        };
        let before = heads().await;
        // Whoever only looks makes nothing go on.
        for session in [resumed, prompted, aborted, removed] {
            let handle = stage.engine.session(session).await.unwrap();
            assert_eq!(handle.snapshot().await.unwrap().summary.open_turns, 1);
            let mut events = handle.events(Some(Seq::START)).await.unwrap();
            until(&mut events, |record| matches!(record, Record::AttemptStarted(_))).await;
        }
        stage.engine.waiting("local").await.unwrap();
        let asleep = async {
            while stage.engine.in_memory() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), asleep).await.expect("they need no memory");
        assert_eq!(heads().await, before, "nothing was appended");
        assert_eq!(stage.directory.mock.journal().count(), 0);
        // A change of the session is none of its turns.
        let changed = SessionChanged { title: Some("Later".into()), ..SessionChanged::default() };
        let handle = stage.engine.session(resumed).await.unwrap();
        handle.command(Command::Change(changed)).await.unwrap();
        assert_eq!(stage.engine.summary(resumed).await.unwrap().open_turns, 1);
        assert_eq!(
            (stage.directory.mock.journal().count(), stage.probe.executed.load(Ordering::SeqCst)),
            (0, 0)
        );

        assert_eq!(stage.engine.resume(resumed).await, Ok(true));
        stage.probe.begun().await;
        stage.probe.release(1);
        assert_eq!(ended(&stage, resumed).await, [TurnOutcome::Completed]);
        assert_eq!(stage.engine.resume(resumed).await, Ok(false), "nothing is left");
        let handle = stage.engine.session(prompted).await.unwrap();
        handle.prompt(Prompt::text("and now")).await.unwrap();
        assert_eq!(ended(&stage, prompted).await, [TurnOutcome::Completed; 2]);
        let asked = stage.directory.mock.journal().count();
        assert_eq!(stage.engine.session(aborted).await.unwrap().abort().await, Ok(1));
        assert_eq!(ended(&stage, aborted).await, [TurnOutcome::Aborted]);
        stage.engine.delete(removed).await.unwrap();
        assert_eq!(stage.directory.mock.journal().count(), asked, "nobody was asked for what was not wanted");
        assert!(stage.engine.unfinished().await.unwrap().is_empty());
    });
}

#[test]
fn those_that_are_left_by_hand_go_on_together() {
    let ground = Ground::new();
    let sessions = ground.killed(async |stage| {
        let mut sessions = Vec::new();
        for _ in 0..5 {
            sessions.push(begin(stage, "streams", "attempt.started").await);
        }
        sessions
    });
    Runtime::new().unwrap().block_on(async {
        let stage = ground.stage(script(false), Resume::Manual).await;
        let mut unfinished = stage.engine.unfinished().await.unwrap();
        unfinished.push(SessionId::parse("ses_0123456789abABCDEFGHIJKLMN").unwrap());
        let mut resumed = stage.engine.resume_each(unfinished).await;
        assert!(resumed.passed_over.is_empty(), "{resumed:?}");
        resumed.sessions.sort_unstable();
        all_is_finished(&stage).await;
        let mut expected = sessions.clone();
        expected.sort_unstable();
        assert_eq!(resumed.sessions, expected, "one that there is not is left out");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_parked_gets_another_chance() {
    let script = Script::new()
        .model("m", Model::new().step(call("probe", json!({"mode": "wait"}))).step(text("Done.")));
    let stage = Stage::new(script).await;
    let session = stage.session("m").await;
    let mut events = session.events(None).await.unwrap();
    session.prompt(Prompt::text("go")).await.unwrap();
    stage.probe.begun().await;
    stage.directory.panics_in_session.store(1_000, Ordering::SeqCst);
    let mut listener = stage.engine.hub().listen(&"local".into(), None, |_| true);
    stage.probe.release(1);
    let parked = async {
        loop {
            match events.next().await {
                Ok(event) => assert!(event.is_some()),
                Err(error) => return error,
            }
        }
    };
    let parked = tokio::time::timeout(Duration::from_secs(20), parked).await.expect("it is parked");
    assert!(matches!(parked, CommandError::Parked { .. }), "{parked}");
    // Whoever watches all sessions is told as well.
    let told = async {
        loop {
            let Some(Heard::Event(shout)) = listener.next().await else { panic!("nothing is missed") };
            if let EventBody::Provisional(Provisional::SessionParked { reason }) = &shout.event.event().body {
                return reason.clone();
            }
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(20), told).await.expect("it is told");
    assert!(parked.to_string().contains(&told), "{told}");
    // It crashes again as long as the reason lasts.
    assert_eq!(stage.engine.resume(session.id()).await, Ok(true));
    let parked_again = async {
        while !matches!(session.snapshot().await, Err(CommandError::Parked { .. })) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), parked_again).await.expect("it is parked again");
    assert!(stage.engine.parked(session.id()).unwrap().contains("it crashed"));
    assert_eq!(stage.engine.summary(session.id()).await.unwrap().open_turns, 1);
    assert!(stage.engine.busy("local").await.unwrap().is_empty(), "nothing runs there");
    stage.directory.panics_in_session.store(0, Ordering::SeqCst);
    assert_eq!(stage.engine.resume(session.id()).await, Ok(true));
    assert_eq!(ended(&stage, session.id()).await, [TurnOutcome::Completed]);
    assert_eq!(stage.engine.parked(session.id()), None);
    assert_eq!(stage.probe.executed.load(Ordering::SeqCst), 1, "what had run did not run again");
    assert!(kinds(&stage.records(&session).await).contains(&"call.settled"));
}

/// The first engine is killed while the title is written, after the turn is over. Nobody asks the second one for anything.
#[test]
fn a_title_that_was_cut_off_in_an_idle_session_gets_its_row_at_the_start() {
    for resume in [Resume::Auto, Resume::Manual] {
        let ground = Ground::new();
        let titler = Model::new().step(text("A title").delay(Duration::from_secs(600)));
        let session = ground.killed_with(Script::new().model("titler", titler), async |stage| {
            stage.directory.titles.store(true, Ordering::SeqCst);
            let session = stage.session("echo").await;
            session.run(Prompt::text("hi")).await.unwrap();
            // That of the step, and that of the title.
            stage.directory.mock.journal().wait_until(|entries| entries.len() == 2).await;
            assert!(kinds(&stage.records(&session).await).contains(&"turn.ended"));
            session.id()
        });
        let rows = || ground.store.ledger.rows(&RowQuery { session: Some(session), ..RowQuery::default() });
        assert_eq!(rows().unwrap().rows.len(), 1, "that of the step");
        Runtime::new().unwrap().block_on(async {
            let stage = ground.stage(Script::new(), resume).await;
            all_is_finished(&stage).await;
            let rows = rows().unwrap().rows;
            let titles: Vec<_> = rows.iter().filter(|row| row.purpose == Purpose::Title).collect();
            assert_eq!((rows.len(), titles.len()), (2, 1), "{rows:?}");
            assert_eq!(stage.directory.mock.journal().count(), 0, "nobody is asked for it again");
        });
    }
}
