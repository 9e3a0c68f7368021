use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::Walls;
use crate::process::{Environment, Exit, Input, Run, Scope, Spec, end_all, running};

/// Lit only after a harmless command was held to its limit by the kernel.
const BOMB: &str = ":(){ :|:& };:";
/// Asks for more tasks than it gets.
const HARMLESS: &str = "for i in $(seq 100); do sleep 20 & done; wait";
/// What the commands of these tests may have.
const MOST: u32 = 64;

fn few_tasks() -> Limits {
    Limits { tasks: MOST, ..Limits::default() }
}

struct Blast {
    exit: Exit,
    /// What was left of it after some seconds.
    left: u64,
}

/// Runs a command behind a wall, for ten seconds at most.
async fn light(wall: &'static Wall, command: &str) -> Blast {
    let scope = Scope::new();
    let spec = Spec {
        run: Run::Shell(command.to_owned()),
        workdir: "/".into(),
        timeout: Some(Duration::from_secs(10)),
        environment: Environment::of_this_process(),
        scope: scope.clone(),
        limits: few_tasks(),
        walls: Walls::open(),
    };
    let hold = move |command: &Scope| wall.hold(command, &few_tasks());
    let started = running::start(&spec, Input::Empty, crate::process::Output::Together, hold).await.unwrap();
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

fn in_groups(wall: &Wall) -> bool {
    wall.groups.as_ref().is_some_and(|groups| groups.controllers().tasks)
}

/// Runs a command in a session of its own.
async fn run(command: &str, limits: Limits) -> (Exit, String) {
    let spec = Spec {
        run: Run::Shell(command.to_owned()),
        workdir: std::env::temp_dir(),
        timeout: Some(Duration::from_secs(60)),
        environment: Environment::of_this_process(),
        scope: Scope::new().within("ses"),
        limits,
        walls: Walls::open(),
    };
    let mut output = Vec::new();
    let exit = crate::process::run(&spec, &CancellationToken::new(), &mut output).await.unwrap();
    (exit, String::from_utf8(output).unwrap())
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
    if in_groups(wall) {
        let exit = is_put_out(wall, &format!("{BOMB}; sleep 60")).await;
        assert!(exit.too_many_tasks, "{exit:?}");
        // The shell of this one may have ended before it goes off.
        is_put_out(wall, BOMB).await;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guard_alone_ends_a_command_that_wants_too_much() {
    static GUARD: Wall = Wall { groups: None, without: Without::Guard };
    let _turn = TURN.lock().await;
    let exit = is_put_out(&GUARD, HARMLESS).await;
    assert!(exit.too_many_tasks, "{exit:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_force_is_told() {
    let limits = limits_in_force();
    assert_eq!(limits.outlives, None);
    match (&limits.tasks, wall().without) {
        (Bound::ControlGroup { folder, .. }, _) => assert!(in_groups(wall()) && folder.is_dir()),
        (Bound::UserLimit, Without::User)
        | (Bound::OwnUser, Without::OwnUser)
        | (Bound::Watched, Without::Guard) => {}
        other => panic!("{other:?}"),
    }
    assert!(matches!(limits.memory, Bound::ControlGroup { .. } | Bound::EachProcess));
    let shown = limits.to_string();
    let names: Vec<_> =
        shown.lines().filter_map(|line| line.split_once(": ")).map(|(name, _)| name).collect();
    assert_eq!(
        names,
        ["processes", "memory", "file size", "open files", "processor time", "end of commands"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_user_limit_is_set_before_the_command_begins() {
    let hold = Hold { user_limit: Some(4_321), ..Hold::default() };
    let prelude = hold.prelude().unwrap();
    let words = Run::Shell("ulimit -u; echo \"$0 $#\"".into()).words(&Environment::empty()).unwrap();
    let (first, rest) = crate::process::bounded(words, Some(prelude));
    let output = crate::process::program(&first).args(rest).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    assert!(output.starts_with("4321\n") && output.ends_with(" 0\n"), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_command_left_behind_in_its_group_ends_with_the_scope() {
    let in_group = in_groups(wall());
    let scope = Scope::new();
    let spec = Spec {
        // Without a parent and in a session of its own; where there is a control group, without a mark as well.
        run: Run::Shell(format!("{} setsid sleep 500 & echo $!", if in_group { "env -i" } else { "" })),
        workdir: "/".into(),
        timeout: Some(Duration::from_secs(10)),
        environment: Environment::of_this_process(),
        scope: scope.clone(),
        limits: few_tasks(),
        walls: Walls::open(),
    };
    let mut output = Vec::new();
    let exit = crate::process::run(&spec, &CancellationToken::new(), &mut output).await.unwrap();
    assert_eq!(exit.code, Some(0));
    let process = format!("/proc/{}", String::from_utf8(output).unwrap().trim());
    assert!(Path::new(&process).exists(), "it was left alone");
    let folders =
        || wall().folders().iter().filter(|folder| folder.join(scope.folder_name()).exists()).count();
    assert_eq!(folders(), wall().folders().len());
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

/// Holds so many bytes in the memory of one process, for a moment.
fn eats(bytes: u64) -> String {
    format!("head -c {bytes} /dev/zero | tail -n 1 | wc -c")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_uses_too_much_memory_is_ended_and_told_so() {
    let limits = Limits { memory: Some(64 << 20), ..Limits::default() };
    let (exit, output) = run(&eats(8 << 20), limits).await;
    assert_eq!((exit.code, exit.out_of_memory, output.trim()), (Some(0), false, "8388608"));
    let (exit, output) = run(&format!("{}; sleep 30", eats(256 << 20)), limits).await;
    match wall().groups.as_ref().is_some_and(|groups| groups.controllers().memory) {
        true => assert!(exit.out_of_memory && !exit.timed_out && !exit.too_many_tasks, "{exit:?}: {output}"),
        // Each process for itself: this one gets no more and says so.
        false => assert!(!output.contains("268435456"), "{output}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_a_session_share_their_memory_and_their_processes() {
    let bounded = wall().groups.as_ref().map(|groups| groups.controllers()).unwrap_or_default();
    if bounded.memory {
        let limits = Limits { memory: Some(1 << 30), session_memory: Some(64 << 20), ..Limits::default() };
        let (exit, output) = run(&eats(256 << 20), limits).await;
        assert!(exit.out_of_memory, "{exit:?}: {output}");
    }
    if bounded.tasks {
        let limits = Limits { tasks: 4096, session_tasks: Some(MOST), ..Limits::default() };
        let (exit, output) = run(HARMLESS, limits).await;
        assert!(exit.too_many_tasks || output.contains("fork"), "{exit:?}: {output}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_process_has_its_limits_of_files_and_of_time() {
    let limits = Limits {
        file_size: Some(1 << 20),
        open_files: Some(64),
        cpu_seconds: Some(7),
        memory: Some(1 << 30),
        ..Limits::default()
    };
    let told = "for option in -Sf -Hf -Sn -Hn -St -Ht; do ulimit $option; done";
    let (_, output) = run(told, limits).await;
    // bash counts the size of files in 1024 bytes.
    assert_eq!(output.lines().collect::<Vec<_>>(), ["1024", "1024", "64", "64", "7", "17"]);
    let writes = "file=$(mktemp); (head -c 9000000 /dev/zero > $file); code=$?; stat -c %s $file; rm $file; exit $code";
    let (exit, output) = run(writes, limits).await;
    assert_eq!((exit.code, output.lines().last()), (Some(128 + 25), Some("1048576")), "{output}");
    let (exit, _) = run("while :; do :; done", Limits { cpu_seconds: Some(1), ..limits }).await;
    assert_eq!(exit.signal, Some(24), "{exit:?}");
}

/// A POSIX shell sets the limits, and each of them must know the options.
#[test]
fn the_prelude_speaks_to_each_shell() {
    let limits = Limits { file_size: Some(1 << 20), open_files: Some(64), ..Limits::default() };
    let hold = Hold { steps: rlimit::steps(&limits, true), ..Hold::default() };
    let told = "ulimit -n; ulimit -Hn; ulimit -d; ulimit -f; echo \"$0\"";
    for (shell, posix) in [("sh", true), ("dash", true), ("bash", false)] {
        let Some(program) = crate::process::find_program(shell) else { continue };
        let mut prelude = crate::process::program(&program);
        // As it is when it is called sh.
        if !posix {
            prelude.arg("--posix");
        }
        let output =
            prelude.args(hold.prelude().unwrap()).args(["/bin/sh", "-c", told, "name"]).output().unwrap();
        let output = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<_> = output.lines().collect();
        assert_eq!(lines, ["64", "64", "16777216", "2048", "name"], "{shell}");
    }
}

#[test]
fn a_command_whose_group_is_gone_does_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let members = folder.path().join("gone/cgroup.procs").display().to_string();
    let words = ["-c", PRELUDE, "playhouse", &members, "", "echo", "ran"].map(OsString::from);
    let output = crate::process::program("/bin/sh").args(words).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(126), b"".as_slice()));
}

/// Where there is no control group, and root has no limit of its own.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "only root gives its commands another user: scripts/test runs it where it is root, scripts/slow always"]
async fn a_user_of_their_own_holds_the_commands_of_root() {
    static OWN_USER: Wall = Wall { groups: None, without: Without::OwnUser };
    assert!(
        rustix::process::getuid().is_root(),
        "only root gives its commands another user: run scripts/slow as root"
    );
    let _turn = TURN.lock().await;
    // The folder is root's, and for nobody else.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("made");
    let command = format!("[ \"$(id -u)\" != 0 ] && touch {}", file.display());
    let Blast { exit, left } = light(&OWN_USER, &command).await;
    assert_eq!((exit.code, left), (Some(0), 0), "files of root must stay writable");
    assert!(file.exists());
    // The kernel refuses the rest, or the guard sees it first.
    let Blast { exit, left } = light(&OWN_USER, HARMLESS).await;
    assert!(exit.too_many_tasks || exit.timed_out || exit.code.is_some_and(|code| code != 0), "{exit:?}");
    assert_eq!(left, 0);
}
