use std::path::Path;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::time::Duration;

use super::*;
use crate::process::{Environment, Exit, Run};

/// Keeps what is copied, up to so many bytes.
#[derive(Clone)]
struct Kept(Arc<Mutex<Vec<u8>>>, usize);

impl Default for Kept {
    fn default() -> Self {
        Self(Arc::default(), usize::MAX)
    }
}

impl OutputCopy for Kept {
    fn take<'a>(&'a mut self, chunk: &'a [u8]) -> BoxFuture<'a, Option<CutCopy>> {
        let mut kept = self.0.lock();
        let taken = chunk.len().min(self.1 - kept.len());
        kept.extend_from_slice(&chunk[..taken]);
        let cut = CutCopy { bytes: kept.len() as u64, reason: "it is full".to_owned() };
        std::future::ready((taken < chunk.len()).then_some(cut)).boxed()
    }
}

fn spec(command: &str) -> Spec {
    Spec {
        run: Run::Shell(command.to_owned()),
        workdir: "/".into(),
        timeout: None,
        environment: Environment::of_this_process(),
        scope: Scope::new(),
        limits: process::Limits::default(),
        walls: crate::Walls::open(),
    }
}

async fn start(processes: &SessionProcesses, command: &str) -> BackgroundCommand {
    processes.start(spec(command), 4, |_| Box::new(Kept::default())).await.unwrap()
}

/// Reads until `end` was written.
async fn read_until(command: &BackgroundCommand, end: &str) -> String {
    let mut text = String::new();
    let reading = async {
        while !text.ends_with(end) {
            command.has_news().await;
            text.push_str(&String::from_utf8(command.read_new().bytes).unwrap());
            assert!(command.runs() || text.ends_with(end), "it ended after {text:?}");
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reading).await.expect("it writes what the test waits for");
    text
}

fn lives(process: &str) -> bool {
    let stat = fs_err::read_to_string(Path::new("/proc").join(process.trim()).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with(['Z', 'X']))
}

async fn gone(process: &str) -> bool {
    for _ in 0..500 {
        if !lives(process) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

#[tokio::test]
async fn a_life_from_start_to_end() {
    let (engine, copy) = (Processes::new(), Kept::default());
    let session = engine.of("ses_1");
    let copied = copy.clone();
    let script = "echo begun; while read -r line; do echo \"got $line\"; done; echo over; exit 4";
    let command = session.start(spec(script), 1, |_| Box::new(copied)).await.unwrap();
    assert!(command.runs() && lives(&command.process().to_string()));
    assert_eq!((read_until(&command, "begun\n").await.as_str(), command.command()), ("begun\n", script));
    command.write(b"one\ntwo", Duration::from_secs(10)).await.unwrap();
    assert_eq!(read_until(&command, "one\n").await, "got one\n");
    command.write(b"\n", Duration::from_secs(10)).await.unwrap();
    assert_eq!(read_until(&command, "two\n").await, "got two\n");
    assert_eq!(command.written(), (22, false));
    command.close_input().await;
    let State::Ended(exit, _) = command.ended().await else { panic!("{command:?}") };
    assert_eq!(exit, Exit { code: Some(4), ..Exit::default() });
    let error = command.write(b"x", Duration::from_secs(10)).await.unwrap_err();
    assert_eq!(error.to_string(), "its standard input is closed");
    assert_eq!(command.read_new().bytes, b"over\n");
    assert_eq!(command.read_all().bytes, b"begun\ngot one\ngot two\nover\n");
    assert_eq!(*copy.0.lock(), command.read_all().bytes);
    assert_eq!(session.find(command.id()).unwrap().id(), command.id());
    // It has made room for another one.
    let next = session.start(spec("sleep 60"), 1, |_| Box::new(Kept::default())).await.unwrap();
    assert_eq!(session.list().iter().map(BackgroundCommand::runs).collect::<Vec<_>>(), [false, true]);
    let State::Ended(exit, _) = next.end().await else { panic!("{next:?}") };
    assert!(exit.cancelled);
}

#[tokio::test]
async fn a_copy_that_is_full_is_given_no_more_and_what_it_has_is_told() {
    let session = Processes::new().of("ses_1");
    let mut outcomes = Vec::new();
    for script in ["printf 0123456789", "printf 01234567890; sleep 0.1; printf 0"] {
        let copy = Kept(Arc::default(), 10);
        let copied = copy.clone();
        let command = session.start(spec(script), 4, |_| Box::new(copied)).await.unwrap();
        command.ended().await;
        // What is remembered is all of it.
        assert_eq!(command.written().0, command.read_all().bytes.len() as u64);
        let copied = String::from_utf8(copy.0.lock().clone()).unwrap();
        outcomes.push((copied, command.cut().map(|cut| cut.bytes)));
    }
    assert_eq!(outcomes, [("0123456789".to_owned(), None), ("0123456789".to_owned(), Some(10))]);
}

#[tokio::test]
async fn the_last_one_needs_no_id() {
    let session = Processes::new().of("ses_1");
    let error = session.find("last").unwrap_err().to_string();
    assert_eq!(error, "there is no background command \"last\"; this session has started none");
    for _ in 0..3 {
        let command = start(&session, "true").await;
        assert_eq!(session.find("last").unwrap().id(), command.id());
    }
}

#[tokio::test]
async fn so_many_run_and_no_more() {
    let session = Processes::new().of("ses_1");
    let first = start(&session, "sleep 60").await;
    let error = session.start(spec("sleep 60"), 1, |_| Box::new(Kept::default())).await.unwrap_err();
    assert!(matches!(error, BackgroundError::TooMany { live: 1, most: 1, .. }), "{error}");
    assert!(error.to_string().contains(first.id()), "{error}");
    let error = session.start(spec("true"), 0, |_| Box::new(Kept::default())).await.unwrap_err();
    assert!(matches!(error, BackgroundError::TooMany { .. }));
    session.end().await;
}

#[tokio::test]
async fn those_that_ended_are_forgotten_in_the_end() {
    let session = Processes::new().of("ses_1");
    let running = start(&session, "sleep 60").await;
    let mut ids = Vec::new();
    for _ in 0..KEPT + 3 {
        let command = start(&session, "true").await;
        command.ended().await;
        ids.push(command.id().to_owned());
    }
    start(&session, "true").await.ended().await;
    let known: Vec<String> = session.list().iter().map(|command| command.id().to_owned()).collect();
    assert!(known.len() <= KEPT + 2, "{}", known.len());
    assert!(known.contains(&running.id().to_owned()) && known.contains(ids.last().unwrap()));
    assert_eq!(session.find(&ids[0]).unwrap_err(), Unknown::Forgotten(ids[0].clone()));
    session.end().await;
}

#[tokio::test]
async fn an_id_that_is_not_there_says_why() {
    let (engine, earlier) = (Processes::new(), Processes::new());
    let old = start(&earlier.of("ses_1"), "true").await;
    let session = engine.of("ses_1");
    let error = session.find(old.id()).unwrap_err();
    assert_eq!(error, Unknown::EarlierRun(old.id().to_owned()));
    assert!(error.to_string().contains("ended with the engine that started it"), "{error}");
    let error = session.find("bg_1").unwrap_err().to_string();
    assert_eq!(error, "there is no background command \"bg_1\"; this session has started none");
    let command = start(&session, "true").await;
    for id in ["", "nonsense", "bg__1", "bg_zzzzzz_1", &format!("bg_{}_2", engine.table.run), "bg_é_1"] {
        let error = session.find(id).unwrap_err();
        assert!(matches!(&error, Unknown::Never { ids, .. } if ids == &[command.id()]), "{id}: {error}");
    }
    // That of another session.
    assert!(engine.of("ses_2").find(command.id()).is_err());
}

#[tokio::test]
async fn the_end_of_a_session_ends_what_its_commands_left_behind_and_no_other_session() {
    let engine = Processes::new();
    let (one, other) = (engine.of("ses_1"), engine.of("ses_12"));
    let mut left = Vec::new();
    for session in [&one, &other] {
        let command = start(session, "sleep 500 & echo $!; setsid sleep 500 & echo $!; wait").await;
        read_until(&command, "\n").await;
        let mut output = Vec::new();
        let foreground = Spec {
            scope: session.scope(),
            ..spec("setsid sleep 500 & disown; echo $!; trap '' TERM; sleep 500 & echo $!")
        };
        process::run(&foreground, &Default::default(), &mut output).await.unwrap();
        command.has_news().now_or_never();
        let text = String::from_utf8([command.read_all().bytes, output].concat()).unwrap();
        left.push(text.lines().map(str::to_owned).collect::<Vec<_>>());
    }
    assert!(left.concat().iter().all(|process| lives(process)), "{left:?}");
    one.end().await;
    for process in &left[0] {
        assert!(gone(process).await);
    }
    assert!(left[1].iter().all(|process| lives(process)), "{left:?}");
    assert!(one.list().is_empty());
    engine.end().await;
    for process in &left[1] {
        assert!(gone(process).await);
    }
}

#[tokio::test]
async fn a_session_that_ends_starts_nothing_more() {
    let session = Processes::new().of("ses_1");
    let opened = session.opened();
    opened.close().await;
    let error = session.start(spec("true"), 4, |_| Box::new(Kept::default())).await.unwrap_err();
    assert!(matches!(error, BackgroundError::Closed), "{error}");
}

#[tokio::test]
async fn an_engine_that_is_dropped_leaves_nothing() {
    let engine = Processes::new();
    let command = start(&engine.of("ses_1"), "setsid sleep 500 & echo $!; wait").await;
    let process = read_until(&command, "\n").await;
    drop(engine);
    assert!(gone(&process).await);
    command.ended().await;
}

#[tokio::test]
async fn who_does_not_read_its_input_is_not_waited_for_for_ever() {
    let session = Processes::new().of("ses_1");
    let command = start(&session, "exec sleep 500").await;
    let error = command.write(&vec![b'x'; 1_000_000], Duration::from_millis(200)).await.unwrap_err();
    assert!(
        matches!(error, WriteError::NotRead { written, all: 1_000_000, .. } if (1..1_000_000).contains(&written))
    );
    session.end().await;
}

#[tokio::test]
async fn much_output_is_remembered_at_its_end() {
    let session = Processes::new().of("ses_1");
    let command = start(&session, "head -c 5000000 /dev/zero; echo end").await;
    command.ended().await;
    let reading = command.read_new();
    assert_eq!(reading.skipped + reading.bytes.len() as u64, 5_000_004);
    assert!(reading.bytes.len() < 200_000 && reading.bytes.ends_with(b"end\n"));
}
