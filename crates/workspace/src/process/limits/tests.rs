use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::process::{Environment, Exit, Input, Scope, Spec, end_all, running};

/// Lit only after a harmless command was held to its limit by the kernel.
const BOMB: &str = ":(){ :|:& };:";
/// Asks for more tasks than it gets.
const HARMLESS: &str = "for i in $(seq 100); do sleep 20 & done; wait";
/// What the commands of these tests may have.
const MOST: u32 = 64;

struct Blast {
    exit: Exit,
    /// What was left of it after some seconds.
    left: u64,
}

/// Runs a command behind a wall, for ten seconds at most.
async fn light(wall: &'static Wall, command: &str) -> Blast {
    let scope = Scope::new();
    let spec = Spec {
        command: command.to_owned(),
        workdir: "/".into(),
        timeout: Some(Duration::from_secs(10)),
        environment: Environment::of_this_process(),
        scope: scope.clone(),
        most_tasks: MOST,
    };
    let hold = move |command: &Scope| wall.hold(command, MOST);
    let started = running::start(&spec, Input::Empty, hold).await.unwrap();
    let exit = started.wait(&CancellationToken::new(), &mut Vec::new()).await.unwrap();
    let mut left = tasks(&scope).await;
    for _ in 0..500 {
        if left == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        left = tasks(&scope).await;
    }
    Blast { exit, left }
}

async fn tasks(scope: &Scope) -> u64 {
    let wanted = scope.clone();
    tokio::task::spawn_blocking(move || super::super::tree::count(&wanted)).await.unwrap()
}

/// One bomb at a time.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn is_put_out(wall: &'static Wall, command: &str) -> Exit {
    let Blast { exit, left } = light(wall, command).await;
    assert_eq!(left, 0, "{wall:?}: {command}");
    exit
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_wants_too_much_is_ended_and_so_is_a_fork_bomb() {
    let _turn = TURN.lock().await;
    let wall = wall();
    let exit = is_put_out(wall, HARMLESS).await;
    assert!(exit.too_many_tasks, "{wall:?} does not hold {HARMLESS}: {exit:?}");
    // A bomb is lit only where the kernel holds it whatever happens here: without that it takes the whole machine.
    if let Wall::Groups(_) = wall {
        let exit = is_put_out(wall, &format!("{BOMB}; sleep 60")).await;
        assert!(exit.too_many_tasks, "{exit:?}");
        // The shell of this one may have ended before it goes off.
        is_put_out(wall, BOMB).await;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guard_alone_ends_a_command_that_wants_too_much() {
    static GUARD: Wall = Wall::Guard;
    let _turn = TURN.lock().await;
    let exit = is_put_out(&GUARD, HARMLESS).await;
    assert!(exit.too_many_tasks, "{exit:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_force_is_told() {
    let limits = limits_in_force();
    assert_eq!(limits.outlives, None);
    match (&limits.tasks, wall()) {
        (TaskLimit::ControlGroup { folder, .. }, Wall::Groups(_)) => assert!(folder.is_dir()),
        (TaskLimit::UserLimit, Wall::User) | (TaskLimit::Watched, Wall::Guard) => {}
        other => panic!("{other:?}"),
    }
    assert!(!limits.tasks.to_string().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_user_limit_is_set_before_the_command_begins() {
    let hold = Hold { user_limit: Some(4_321), ..Hold::default() };
    let prelude = hold.prelude().unwrap();
    let (first, rest) = crate::process::words("ulimit -u; echo \"$0 $#\"", Some(prelude));
    let output = crate::process::program(first).args(rest).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    assert!(output.starts_with("4321\n") && output.ends_with(" 0\n"), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_command_left_behind_in_its_group_ends_with_the_scope() {
    let in_group = matches!(wall(), Wall::Groups(_));
    let scope = Scope::new();
    let spec = Spec {
        // Without a parent and in a session of its own; where there is a control group, without a mark as well.
        command: format!("{} setsid sleep 500 & echo $!", if in_group { "env -i" } else { "" }),
        workdir: "/".into(),
        timeout: Some(Duration::from_secs(10)),
        environment: Environment::of_this_process(),
        scope: scope.clone(),
        most_tasks: 64,
    };
    let mut output = Vec::new();
    let exit = crate::process::run(&spec, &CancellationToken::new(), &mut output).await.unwrap();
    assert_eq!(exit.code, Some(0));
    let process = format!("/proc/{}", String::from_utf8(output).unwrap().trim());
    assert!(Path::new(&process).exists(), "it was left alone");
    let folders = || {
        let Wall::Groups(groups) = wall() else { return 0 };
        let entries = fs_err::read_dir(groups.folder()).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(&scope.folder_name())).count()
    };
    assert_eq!(folders(), usize::from(in_group));
    end_all(&scope).await;
    for _ in 0..500 {
        if !Path::new(&process).exists() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!Path::new(&process).exists());
    for _ in 0..500 {
        if folders() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("its folder is left");
}
