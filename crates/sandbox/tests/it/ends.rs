//! The end of commands in walls: nothing of them is left.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use playhouse_sandbox::Processes;
use playhouse_sandbox::Walls;
use playhouse_sandbox::process::{
    Environment, Exit, Input, Program, Run, STOP_GRACE, Spec, run, start, start_apart,
};
use tokio::io::AsyncBufReadExt as _;
use tokio_util::sync::CancellationToken;

use crate::house::{House, SECRET, Watch, example, gone, lives, sleeper};

/// Runs a command, and cancels it once it has written `ready`.
async fn cancel_when_ready(house: &House, command: &str) -> (Exit, String) {
    let mut watch = Watch::default();
    let spec = house.command(&house.walls(), command);
    let exit = run(&spec, &watch.ready.clone(), &mut watch).await.unwrap();
    (exit, watch.text)
}

#[tokio::test]
async fn exit_codes_come_through() {
    let house = House::new();
    let (exit, output) = house.run("echo out; echo err >&2; exit 7").await;
    assert_eq!((exit.code, output.as_str()), (Some(7), "out\nerr\n"));
    assert_eq!(house.run("kill -KILL $$").await.0.code, Some(137));
    assert_eq!(house.run("no-such-program").await.0.code, Some(127));
}

#[tokio::test]
async fn cancelled_ends_all_of_it() {
    let house = House::new();
    let sleeper = sleeper(1);
    let hiding = format!(
        "{sleeper} & setsid {sleeper} & (setsid env -i {sleeper} &) ; trap '' TERM; echo ready; {sleeper}; {sleeper}"
    );
    let (exit, _) = cancel_when_ready(&house, &hiding).await;
    assert!(exit.cancelled && !exit.timed_out, "{exit:?}");
    assert!(!lives(&sleeper));
}

#[tokio::test]
async fn a_command_may_clean_up_when_it_is_told_to_end() {
    let house = House::new();
    let command = "trap 'echo cleaned; exit 5' TERM; echo ready; sleep 60 & wait";
    let (exit, output) = cancel_when_ready(&house, command).await;
    assert_eq!((exit.code, exit.cancelled, output.as_str()), (Some(5), true, "ready\ncleaned\n"));
}

#[tokio::test]
async fn out_of_time_ends_all_of_it() {
    let house = House::new();
    let sleeper = sleeper(2);
    let command = house.command(&house.walls(), &format!("echo begun; setsid {sleeper} & {sleeper}"));
    let spec = Spec { timeout: Some(Duration::from_secs(2)), ..command };
    let mut output = Vec::new();
    let exit = run(&spec, &CancellationToken::new(), &mut output).await.unwrap();
    assert!(exit.timed_out, "{exit:?}");
    assert_eq!(output, b"begun\n");
    assert!(!lives(&sleeper));
}

#[tokio::test]
async fn what_it_leaves_behind_ends_with_it() {
    let house = House::new();
    let sleeper = sleeper(3);
    let output =
        house.done(&format!("setsid {sleeper} & (env -i setsid {sleeper} &); sleep 0.2; echo done")).await;
    assert_eq!(output, "done\n");
    assert!(gone(&sleeper).await);
}

#[tokio::test]
async fn dropped_it_is_killed() {
    let house = House::new();
    let sleeper = sleeper(4);
    let spec = house.command(&house.walls(), &format!("setsid {sleeper} & echo ready; {sleeper}"));
    let (never, mut watch) = (CancellationToken::new(), Watch::default());
    let ready = watch.ready.clone();
    tokio::select! {
        exit = run(&spec, &never, &mut watch) => panic!("ended by itself: {exit:?}"),
        () = ready.cancelled() => {}
    }
    assert!(gone(&sleeper).await);
}

#[tokio::test]
async fn a_command_in_the_background_goes_on_and_ends_with_its_session() {
    let house = House::new();
    let sleeper = sleeper(5);
    let processes = Processes::new();
    let session = processes.of("ses_1");
    let spec = house.command(&house.walls(), &format!("read line; echo got $line; {sleeper}"));
    let command = session.start(spec, 4, |_| Box::new(Vec::new())).await.unwrap();
    command.write(b"hello\n", Duration::from_secs(10)).await.unwrap();
    let mut text = Vec::new();
    while text != b"got hello\n" {
        command.has_news().await;
        assert!(command.runs(), "{:?} after {text:?}", command.state());
        text.extend(command.read_new().bytes);
    }
    session.end().await;
    assert!(gone(&sleeper).await);
}

#[test]
fn it_outlives_the_thread_that_asked_for_it() {
    let house = House::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let spec = house.command(&house.walls(), "sleep 0.5; echo alive");
    let handle = runtime.handle().clone();
    let asking = std::thread::spawn(move || handle.block_on(start(&spec, Input::Empty)).unwrap());
    let started = asking.join().unwrap();
    let mut output = Vec::new();
    let exit = runtime.block_on(started.wait(&CancellationToken::new(), &mut output)).unwrap();
    assert_eq!((exit.code, output.as_slice()), (Some(0), b"alive\n".as_slice()));
}

#[tokio::test]
async fn it_ends_with_its_engine_when_that_is_killed() {
    for level in [None, Some("--landlock")] {
        let house = House::new();
        let sleeper = sleeper(6);
        let command = format!("setsid {sleeper} & echo ready; {sleeper}");
        let mut engine = Command::new(example())
            .args(level)
            .arg(&house.root)
            .arg(command)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(engine.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line == "ready"), "it did not start");
        assert!(lives(&sleeper));
        engine.kill().unwrap();
        engine.wait().unwrap();
        assert!(gone(&sleeper).await, "{level:?}");
    }
}

/// Starts a program with pipes of its own within walls, and waits until it has written a line.
async fn apart(house: &House, walls: &Walls, script: &str) -> (Program, String) {
    let run = Run::Words(["bash", "-c", script].map(Into::into).into());
    let environment = Environment::empty().with("DECLARED", "yes");
    let program =
        start_apart(&Spec { run, environment, timeout: None, ..house.command(walls, "") }).await.unwrap();
    let mut line = String::new();
    tokio::io::BufReader::new(program.take_output().unwrap()).read_line(&mut line).await.unwrap();
    (program, line)
}

#[tokio::test]
async fn a_program_with_pipes_of_its_own_is_held_as_a_command_is() {
    let house = House::new();
    let script = "cat ../other/secret >&2; echo $DECLARED:$SECRET; exec 1>&-; setsid SLEEPER & trap '' TERM; while true; do SLEEPER; done";
    for (walls, number) in [(house.walls(), 7), (house.landlock(), 8)] {
        let sleeper = sleeper(number);
        let (program, line) = apart(&house, &walls, &script.replace("SLEEPER", &sleeper)).await;
        assert_eq!(line, "yes:\n", "{}", program.last_words());
        let exit = program.stop(Duration::from_millis(300)).await.unwrap();
        assert!(exit.cancelled, "{exit:?}");
        assert!(gone(&sleeper).await);
        assert!(program.last_words().contains("secret") && !program.last_words().contains(SECRET));
    }
}

#[tokio::test]
async fn a_program_in_walls_may_clean_up_before_it_ends() {
    let house = House::new();
    let (program, line) =
        apart(&house, &house.walls(), "trap 'echo cleaned >&2; exit 5' TERM; echo ready; sleep 60 & wait")
            .await;
    assert_eq!(line, "ready\n");
    let exit = program.stop(STOP_GRACE).await.unwrap();
    assert_eq!((exit.code, exit.cancelled, program.last_words().as_str()), (Some(5), true, "cleaned\n"));
}
