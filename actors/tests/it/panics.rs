//! A panic in each kind of actor, at each message, while other sessions run.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mock_llm::{Model, Script, call, text};
use playhouse_actors::SessionHandle;
use playhouse_protocol::record::{SessionChanged, TurnOutcome};
use playhouse_protocol::{
    Command, CommandError, ConsentAnswer, IdGenerator, NewSession, Prompt, Record, SessionId, Timestamp,
};
use serde_json::json;

use crate::logs;
use crate::support::{Stage, bare_ground};
use crate::suspended::Disk;

/// Sessions that run beside the one in trouble. Half of them may be live at a time.
const OTHERS: usize = 40;

/// An actor, and a message to it.
type Place = (&'static str, &'static str);

/// Every message of every actor that a session in trouble meets, the supervision of its children included.
const MESSAGES: &[Place] = &[
    ("session", "awake"),
    ("session", "command"),
    ("session", "flushed"),
    ("session", "attempt"),
    ("session", "prepared"),
    ("session", "call"),
    ("session", "ask"),
    ("session", "granted"),
    ("session", "rejudge"),
    ("session", "deadline"),
    ("session", "resume"),
    ("session", "leave"),
    ("session", "delete"),
    ("session", "child-ended"),
    ("step", "run"),
    ("call", "prepare"),
    ("call", "execute"),
    ("supervisor", "find"),
    ("supervisor", "resume"),
    ("supervisor", "woken"),
    ("supervisor", "respawn"),
    ("supervisor", "request"),
    ("supervisor", "removed"),
    ("supervisor", "ended"),
    ("metering", "ended"),
    ("metering", "forget"),
    ("metering", "session"),
];

/// What no session alone is meant with. The last one of all, `stop`, comes when the engine ends.
const OF_ALL: &[Place] =
    &[("supervisor", "sweep"), ("supervisor", "make-room"), ("supervisor", "go-on"), ("metering", "report")];
const STOP: Place = ("supervisor", "stop");

/// Where else it panics, so that the message comes at all.
fn before((_, message): Place) -> Option<Place> {
    (message == "respawn").then_some(("session", "command"))
}

fn script() -> Script {
    let question = json!({"questions": [{
        "question": "Which?", "header": "Which", "options": [{"label": "This", "description": "one"}],
    }]});
    // What is allowed for always to one is allowed to all: each goes to a place of its own.
    (0..MESSAGES.len() + OF_ALL.len()).fold(Script::new(), |script, number| {
        let model = Model::new()
            .step(call("probe", json!({"mode": "once"})))
            .step(call("question", question.clone()))
            .step(call("question", question.clone()))
            .step(call("danger", json!({"to": format!("test://{number}/a")})))
            .step(text("Done."));
        script.model(format!("m{number}"), model)
    })
}

/// Does it until it is done: what is not accepted may be said again, and what crashed comes back.
async fn insist<T, F: Future<Output = Result<T, CommandError>>>(what: &str, act: impl Fn() -> F) -> T {
    let done = async {
        loop {
            match act().await {
                Ok(done) => return done,
                Err(CommandError::NotAccepted(_) | CommandError::Store(_)) => {}
                Err(error) => panic!("{what}: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), done).await.unwrap_or_else(|_| panic!("{what} is not done"))
}

/// A turn in which people are asked, to its end.
async fn turn(session: &SessionHandle) {
    let message = IdGenerator::new(|_| {}).next(Timestamp::from_millis(1_800_000_000_000));
    let prompt = Prompt { message: Some(message), ..Prompt::text("go") };
    insist("the prompt", || session.prompt(prompt.clone())).await;
    let mut first = None;
    let turn = async {
        loop {
            let snapshot = insist("the snapshot", || session.snapshot()).await;
            if snapshot.summary.turns > 0 {
                return;
            }
            // Nobody answers the first question.
            for asked in &snapshot.questions {
                if *first.get_or_insert(asked.question) != asked.question {
                    drop(session.answer_question(asked.question, Some(vec![vec!["This".into()]])).await);
                }
            }
            for asked in &snapshot.consents {
                drop(session.answer(asked.consent, ConsentAnswer::Always).await);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), turn).await.expect("the turn ends");
}

/// Everything that people do with a session: prompts, answers and changes; below it, too.
async fn live(stage: &Stage, session: &SessionHandle, model: &str) {
    turn(session).await;
    let new = || NewSession { parent: Some(session.id()), ..stage.new_session(model) };
    turn(&insist("the sub-session", || stage.engine.create(new())).await).await;
    insist("the change", || session.command(Command::Change(SessionChanged::default()))).await;
    drop(stage.engine.session_usage(session.id()).await);
    insist("the resumption", || stage.engine.resume(session.id())).await;
}

async fn remove(stage: &Stage, session: SessionId) {
    insist("the removal", || async {
        match stage.engine.delete(session).await {
            Err(CommandError::NotFound(_)) => Ok(()),
            other => other,
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "slow: scripts/slow runs it"]
async fn a_panic_at_any_message_of_any_actor_disturbs_nobody_else() {
    logs::keep();
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let (store, disk) = Disk::with_a_store();
    let stage = Stage::with(store.clone(), Arc::clone(&folder), script(), |options| {
        options.limits.asking_wait = Duration::from_millis(100);
        (options.limits.idle_after, options.limits.max_live) = (Some(Duration::from_millis(20)), OTHERS / 2);
    })
    .await;
    let mut others = Vec::new();
    for _ in 0..OTHERS {
        others.push(stage.session("echo").await);
    }
    *stage.directory.ground.lock().unwrap() = bare_ground();
    for (number, (actor, message)) in MESSAGES.iter().chain(OF_ALL).copied().enumerate() {
        let of_one = MESSAGES.contains(&(actor, message));
        let model = format!("m{number}");
        let victim = stage.session(&model).await;
        let fault = (actor, message, of_one.then(|| victim.id()));
        logs::set_fire(fault);
        if let Some((actor, message)) = before((actor, message)) {
            logs::set_fire((actor, message, Some(victim.id())));
        }
        // Only the victim has results of calls. It waits for the store then.
        disk.too_large.store(u32::from(message == "go-on"), Ordering::SeqCst);
        let running = others.iter().cloned().map(|other| async move { other.run(Prompt::text("hi")).await });
        let running = tokio::spawn(futures::future::join_all(running.collect::<Vec<_>>()));
        live(&stage, &victim, &model).await;
        // What comes by itself, and what is said at the end only.
        let met = async {
            while logs::is_set(fault) {
                match message {
                    "delete" | "removed" => remove(&stage, victim.id()).await,
                    "report" => drop(stage.engine.usage().await),
                    _ => {}
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let met = tokio::time::timeout(Duration::from_secs(20), met).await;
        assert!(met.is_ok(), "{actor} never began with {message}");
        for ended in running.await.unwrap() {
            let ended = ended.unwrap_or_else(|error| panic!("{actor}, {message}: {error}")).ended;
            assert_eq!(ended.outcome, TurnOutcome::Completed, "{actor}, {message}: {:?}", ended.error);
        }
        remove(&stage, victim.id()).await;
        let gone = stage.engine.session(victim.id()).await.map(|_| ());
        assert_eq!(gone, Err(CommandError::NotFound(victim.id())), "{actor}, {message}");
    }
    for other in &others {
        let records = stage.records(other).await;
        let turns = records.iter().filter(|record| matches!(record, Record::TurnEnded(_))).count();
        assert_eq!(turns, MESSAGES.len() + OF_ALL.len(), "each prompt ran once");
        let attempts = records.iter().filter(|record| matches!(record, Record::AttemptStarted(_))).count();
        assert_eq!(attempts, turns, "and none of them twice");
    }
    assert!(stage.engine.usage().await.is_ok());
    let fault = (STOP.0, STOP.1, None);
    logs::set_fire(fault);
    let stopped = stage.engine.shutdown().await;
    assert!(!logs::is_set(fault), "it never began with stop");
    assert_eq!(stopped.stragglers, Vec::<String>::new());
    let again = Stage::on(store, folder, script(), 1 << 20).await;
    for other in &others {
        let other = again.engine.session(other.id()).await.unwrap();
        let ended = other.run(Prompt::text("hi")).await.unwrap().ended;
        assert_eq!(ended.outcome, TurnOutcome::Completed, "{:?}", ended.error);
    }
}
