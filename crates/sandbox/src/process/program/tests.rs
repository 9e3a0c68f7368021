use std::path::PathBuf;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use super::super::tests::{gone, lives, sleeper};
use super::super::{Environment, Limits, Run, Scope, end_all, is_of_a_command};
use super::*;
use crate::walls::Walls;

fn spec<const N: usize>(words: [&str; N]) -> Spec {
    Spec {
        run: Run::Words(words.map(Into::into).into()),
        workdir: PathBuf::from("/"),
        timeout: None,
        environment: Environment::empty(),
        scope: Scope::new(),
        limits: Limits::default(),
        walls: Walls::open(),
    }
}

/// A program that bash is, with all of this process's environment that commands get.
fn bash(script: &str) -> Spec {
    Spec { environment: Environment::of_this_process(), ..spec(["bash", "-c", script]) }
}

/// Waits until it has written a line.
async fn line(program: &Program) -> String {
    let mut line = String::new();
    BufReader::new(program.take_output().unwrap()).read_line(&mut line).await.unwrap();
    line.trim_end().to_owned()
}

async fn said(program: &Program) -> String {
    let mut said = String::new();
    program.take_output().unwrap().read_to_string(&mut said).await.unwrap();
    said
}

#[tokio::test]
async fn words_reach_the_program_as_they_are() {
    let spec = spec(["printf", "<%s>", "a b", "", "$HOME", "*", "'\"", "new\nline", "-n"]);
    let program = start_apart(&spec).await.unwrap();
    assert_eq!(said(&program).await, "<a b><><$HOME><*><'\"><new\nline><-n>");
    assert_eq!(program.ended().await.unwrap(), Exit { code: Some(0), ..Exit::default() });
    assert_eq!(program.ended().await.unwrap().code, Some(0), "asked again");
}

#[tokio::test]
async fn its_environment_is_what_is_declared() {
    let environment = Environment::empty().with("DECLARED", "yes");
    let program = start_apart(&Spec { environment, ..spec(["env"]) }).await.unwrap();
    let said = said(&program).await;
    let mut names: Vec<_> = said.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.sort_unstable();
    // A shell that sets limits before the program may add the first two.
    names.retain(|name| !["PWD", "SHLVL", "_", "OLDPWD"].contains(name));
    assert_eq!(names, ["DECLARED", "PLAYHOUSE_COMMAND"]);
}

#[tokio::test]
async fn a_path_of_its_own_is_where_it_is_looked_for() {
    let environment = Environment::empty().with("PATH", "/nowhere:relative");
    for (name, environment) in [("env", environment), ("no-such-program", Environment::empty())] {
        let error = start_apart(&Spec { environment, ..spec([name]) }).await.unwrap_err().to_string();
        assert!(error.contains(&format!("there is no program \"{name}\" in PATH")), "{error}");
    }
    let error = start_apart(&Spec { run: Run::Words(Vec::new()), ..spec(["env"]) }).await.unwrap_err();
    assert!(error.to_string().contains("no program is named"), "{error}");
    let error = start_apart(&spec(["/does/not/exist"])).await;
    // Where something bounds it, a shell stands before the program and tells that it is not there.
    match error {
        Err(error) => assert!(error.to_string().contains("/does/not/exist"), "{error}"),
        Ok(program) => assert_eq!(program.ended().await.unwrap().code, Some(127)),
    }
}

#[tokio::test]
async fn its_errors_are_apart_and_only_their_end_is_kept() {
    let script = "for i in $(seq 5000); do echo error$i >&2; done; echo out";
    let program = start_apart(&bash(script)).await.unwrap();
    assert_eq!(said(&program).await, "out\n");
    assert_eq!(program.ended().await.unwrap().code, Some(0));
    let last = program.last_words();
    assert!(last.ends_with("error4999\nerror5000\n") && last.len() == LAST_WORDS, "{}", last.len());
}

#[tokio::test]
async fn it_may_end_by_itself_once_its_input_has_ended() {
    let program = start_apart(&bash("trap 'echo told' TERM; echo ready; cat; exit 3")).await.unwrap();
    let mut output = BufReader::new(program.take_output().unwrap());
    let mut first = String::new();
    output.read_line(&mut first).await.unwrap();
    let exit = program.stop(STOP_GRACE).await.unwrap();
    assert_eq!(exit, Exit { code: Some(3), cancelled: true, ..Exit::default() });
    let mut rest = String::new();
    output.read_to_string(&mut rest).await.unwrap();
    assert_eq!((first.as_str(), rest.as_str()), ("ready\n", ""), "it was not told");
}

#[tokio::test]
async fn what_does_not_end_by_itself_is_told_to() {
    let program = start_apart(&bash("trap 'echo cleaned >&2; exit 5' TERM; echo ready; sleep 600 & wait"))
        .await
        .unwrap();
    line(&program).await;
    let exit = program.stop(STOP_GRACE).await.unwrap();
    assert_eq!((exit.code, exit.cancelled, program.last_words().as_str()), (Some(5), true, "cleaned\n"));
}

#[tokio::test]
async fn what_it_says_while_it_ends_holds_up_nothing() {
    // More than both pipes hold, to a standard error that is read and to an output that nobody took.
    let script = "trap 'yes error | head -c 300000 >&2; echo last >&2; yes out | head -c 300000; exit 5' TERM; sleep 600 & \
                  echo ready >&2; wait";
    let program = start_apart(&bash(script)).await.unwrap();
    while !program.last_words().contains("ready") {
        tokio::task::yield_now().await;
    }
    let exit = program.stop(60 * STOP_GRACE).await.unwrap();
    assert_eq!((exit.code, exit.cancelled), (Some(5), true));
    assert!(program.last_words().contains("error\nlast\n"));
}

#[tokio::test]
async fn what_does_not_listen_is_killed_with_all_that_descends_from_it() {
    let sleeper = sleeper(7);
    // One that left the process group, and one that lost its parent as well.
    let script = format!(
        "trap '' TERM; setsid {sleeper} & (setsid {sleeper} &); echo ready; while true; do {sleeper}; done"
    );
    let program = start_apart(&bash(&script)).await.unwrap();
    line(&program).await;
    assert!(lives(&sleeper));
    let exit = program.stop(Duration::from_millis(300)).await.unwrap();
    assert_eq!((exit.signal, exit.cancelled), (Some(9), true));
    assert!(gone(&sleeper).await);
    assert_eq!(program.stop(STOP_GRACE).await.unwrap(), exit, "asked again");
}

#[tokio::test]
async fn what_it_leaves_behind_ends_with_it() {
    let sleeper = sleeper(8);
    let program =
        start_apart(&bash(&format!("setsid {sleeper} >/dev/null 2>&1 & echo ready"))).await.unwrap();
    line(&program).await;
    assert_eq!(program.ended().await.unwrap().code, Some(0));
    assert!(gone(&sleeper).await);
}

#[tokio::test]
async fn dropped_it_is_killed() {
    let sleeper = sleeper(9);
    let program = start_apart(&bash(&format!("setsid {sleeper} & exec cat"))).await.unwrap();
    let other = program.clone();
    drop(program);
    let mut input = other.take_input().unwrap();
    input.write_all(b"somebody holds it\n").await.unwrap();
    assert_eq!(line(&other).await, "somebody holds it");
    drop(other);
    assert!(gone(&sleeper).await);
    assert!(!lives(&sleeper));
}

#[tokio::test]
async fn it_has_its_time_and_ends_with_its_scope() {
    let spec = Spec { timeout: Some(Duration::from_millis(200)), ..spec(["sleep", "600"]) };
    let exit = start_apart(&spec).await.unwrap().ended().await.unwrap();
    assert!(exit.timed_out && !exit.cancelled, "{exit:?}");
    let spec = Spec { timeout: None, ..spec };
    let program = start_apart(&spec).await.unwrap();
    end_all(&spec.scope).await;
    assert_eq!(program.ended().await.unwrap().signal, Some(15));
}

#[test]
fn it_outlives_the_thread_and_the_task_that_started_it() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let handle = runtime.handle().clone();
    let starter = std::thread::spawn(move || handle.block_on(start_apart(&bash("echo ready; cat"))).unwrap());
    let program = starter.join().unwrap();
    runtime.block_on(async {
        let mut input = program.take_input().unwrap();
        let mut output = BufReader::new(program.take_output().unwrap()).lines();
        assert_eq!(output.next_line().await.unwrap().as_deref(), Some("ready"));
        input.write_all(b"still here\n").await.unwrap();
        assert_eq!(output.next_line().await.unwrap().as_deref(), Some("still here"));
        assert!(program.take_input().is_none() && program.id() > 0);
    });
}

/// The numbers of processes that a program writes, one a line.
async fn ids(program: &Program, count: usize) -> Vec<u32> {
    let mut lines = BufReader::new(program.take_output().unwrap()).lines();
    let mut ids = Vec::new();
    while ids.len() < count {
        ids.push(lines.next_line().await.unwrap().unwrap().trim().parse().unwrap());
    }
    ids
}

#[tokio::test]
async fn processes_of_commands_are_known_whatever_they_left() {
    // Itself, a child in a session of its own without its environment, one that has lost that and its parent, and one that has
    // lost its parent but not its mark.
    let script = "echo $$; setsid env -i sh -c 'echo $$; cat' & (env -i sh -c 'echo $$; sleep 600' &); (setsid sh -c 'echo $$; sleep 600' &); wait";
    let program = start_apart(&bash(script)).await.unwrap();
    for id in ids(&program, 4).await {
        assert!(is_of_a_command(id), "{id}");
    }
    assert!(is_of_a_command(program.id()));
    let parent = rustix::process::getppid().unwrap().as_raw_pid();
    for id in [std::process::id(), u32::try_from(parent).unwrap(), 1, u32::MAX] {
        assert!(!is_of_a_command(id), "{id}");
    }
    let mut gone = crate::process::program("true").spawn().unwrap();
    gone.wait().unwrap();
    assert!(is_of_a_command(gone.id()), "it may have been one");
    program.stop(Duration::from_millis(300)).await.unwrap();
}
