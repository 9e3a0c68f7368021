use futures::FutureExt;

use super::*;

fn spec(command: &str) -> Spec {
    Spec {
        run: Run::Shell(command.to_owned()),
        workdir: PathBuf::from("/"),
        timeout: Some(Duration::from_secs(60)),
        environment: Environment::of_this_process(),
        scope: Scope::new(),
        limits: Limits::default(),
        walls: Walls::open(),
    }
}

async fn finish(command: &str) -> (Exit, String) {
    let mut output = Vec::new();
    let exit = run(&spec(command), &CancellationToken::new(), &mut output).await.unwrap();
    (exit, String::from_utf8(output).unwrap())
}

/// Collects output, and cancels a token once `ready` was written.
#[derive(Default)]
struct Watch {
    text: String,
    ready: CancellationToken,
}

impl Receive for Watch {
    fn receive<'a>(&'a mut self, chunk: &'a [u8]) -> BoxFuture<'a, ()> {
        self.text.push_str(&String::from_utf8_lossy(chunk));
        if self.text.contains("ready") {
            self.ready.cancel();
        }
        std::future::ready(()).boxed()
    }
}

/// Runs a command, and cancels it once it has written `ready`.
async fn cancel_when_ready(command: &str) -> (Exit, String) {
    let mut watch = Watch::default();
    let exit = run(&spec(command), &watch.ready.clone(), &mut watch).await.unwrap();
    (exit, watch.text)
}

/// Whether a process lives whose command line holds `mark`.
pub(super) fn lives(mark: &str) -> bool {
    let entries = fs_err::read_dir("/proc").unwrap().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok()).any(|entry| {
        let line = fs_err::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(mark)
    })
}

/// A number of seconds that no other test sleeps, so that the sleeper can be found by it.
pub(super) fn sleeper(number: u32) -> String {
    format!("sleep 86{:05}{number}", std::process::id() % 100_000)
}

pub(super) async fn gone(mark: &str) -> bool {
    for _ in 0..500 {
        if !lives(mark) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

#[tokio::test]
async fn both_streams_come_in_order_with_the_exit_code() {
    let (exit, output) = finish("for i in 1 2 3; do echo out$i; echo err$i >&2; done; exit 7").await;
    assert_eq!(output, "out1\nerr1\nout2\nerr2\nout3\nerr3\n");
    assert_eq!(exit, Exit { code: Some(7), ..Exit::default() });
    let (exit, output) = finish("kill -KILL $$").await;
    assert_eq!((exit.code, exit.signal, output.as_str()), (None, Some(9), ""));
}

#[tokio::test]
async fn nothing_is_lost_when_the_shell_ends_at_once() {
    for _ in 0..20 {
        let (_, output) = finish("head -c 60000 /dev/zero | tr '\\0' x").await;
        assert_eq!(output.len(), 60_000);
    }
}

#[tokio::test]
async fn standard_input_is_empty() {
    assert_eq!(finish("cat; echo end").await.1, "end\n");
}

#[tokio::test]
async fn the_environment_is_small() {
    // The test runner's own environment has these.
    let given = std::env::var("CARGO_MANIFEST_DIR").expect("run the tests with cargo");
    let (_, output) = finish("env").await;
    assert!(!output.contains(&given) && !output.contains("CARGO_MANIFEST_DIR"), "{output}");
    let known = ["PWD", "SHLVL", "_", "PLAYHOUSE_COMMAND"];
    let passed: Vec<String> = Environment::of_this_process()
        .variables()
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .collect();
    for name in output.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name) {
        assert!(
            known.contains(&name) || passed.iter().any(|passed| passed == name),
            "{name} was passed down"
        );
    }
}

#[tokio::test]
async fn a_child_in_the_background_holds_nothing_up() {
    let sleeper = sleeper(1);
    let (exit, output) = finish(&format!("{sleeper} & disown; echo done; echo $! >&2")).await;
    assert_eq!(exit.code, Some(0));
    let (first, child) = output.split_once('\n').unwrap();
    assert_eq!(first, "done");
    let kill = finish(&format!("kill {child}")).await;
    assert_eq!(kill.0.code, Some(0), "it should have been left alone");
}

#[tokio::test]
async fn a_child_that_goes_on_writing_is_not_listened_to_for_ever() {
    let (exit, output) = finish("(while true; do echo more; sleep 0.02; done) & echo done").await;
    assert_eq!(exit.code, Some(0));
    assert!(output.contains("done") && output.contains("more"), "{output}");
}

#[tokio::test]
async fn cancelled_ends_the_tree() {
    let sleeper = sleeper(2);
    let (exit, output) = cancel_when_ready(&format!("{sleeper} & echo ready; {sleeper}")).await;
    assert!(exit.cancelled && !exit.timed_out && exit.code.is_none(), "{exit:?}");
    assert_eq!(output, "ready\n");
    assert!(!lives(&sleeper));
}

#[tokio::test]
async fn a_child_that_ignores_the_signal_is_killed() {
    let sleeper = sleeper(3);
    let stubborn = format!("trap '' TERM; (trap '' TERM; {sleeper}) & echo ready; {sleeper}; {sleeper}");
    let (exit, _) = cancel_when_ready(&stubborn).await;
    assert!(exit.cancelled, "{exit:?}");
    assert!(!lives(&sleeper));
}

#[tokio::test]
async fn a_command_may_clean_up_when_it_is_told_to_end() {
    let (exit, output) =
        cancel_when_ready("trap 'echo cleaned; exit 5' TERM; echo ready; sleep 60 & wait").await;
    assert_eq!((exit.code, exit.cancelled), (Some(5), true));
    assert_eq!(output, "ready\ncleaned\n");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn children_with_a_session_of_their_own_are_found() {
    let sleeper = sleeper(4);
    // The second one has lost its parent as well.
    let command = format!(
        "setsid {sleeper} & (setsid {sleeper} & ) ; sh -c 'setsid sh -c \"{sleeper}; true\" & exit 0'; \
         sleep 0.1; echo ready; {sleeper}"
    );
    let (exit, _) = cancel_when_ready(&command).await;
    assert!(exit.cancelled, "{exit:?}");
    assert!(!lives(&sleeper));
}

#[tokio::test]
async fn out_of_time_ends_the_tree_and_keeps_the_output() {
    let sleeper = sleeper(5);
    let spec = Spec {
        timeout: Some(Duration::from_millis(300)),
        ..spec(&format!("echo begun; {sleeper} & {sleeper}"))
    };
    let mut output = Vec::new();
    let exit = run(&spec, &CancellationToken::new(), &mut output).await.unwrap();
    assert!(exit.timed_out && !exit.cancelled, "{exit:?}");
    assert_eq!(output, b"begun\n");
    assert!(!lives(&sleeper));
}

#[tokio::test]
async fn dropping_the_future_kills_the_tree() {
    let sleeper = sleeper(6);
    let spec = spec(&format!("setsid {sleeper} & {sleeper} & echo ready; {sleeper}"));
    let (never, mut watch) = (CancellationToken::new(), Watch::default());
    let ready = watch.ready.clone();
    tokio::select! {
        exit = run(&spec, &never, &mut watch) => panic!("ended by itself: {exit:?}"),
        () = ready.cancelled() => {}
    }
    assert!(gone(&sleeper).await);
}

#[tokio::test]
async fn cancelled_before_it_starts_it_does_not_start() {
    let cancel = CancellationToken::new();
    cancel.cancel();
    let mut output = Vec::new();
    let exit = run(&spec("echo started"), &cancel, &mut output).await.unwrap();
    assert!(exit.cancelled && output.is_empty());
}

#[tokio::test]
async fn a_busy_receiver_holds_the_command_back_and_can_be_left() {
    struct Stuck;
    impl Receive for Stuck {
        fn receive<'a>(&'a mut self, _chunk: &'a [u8]) -> BoxFuture<'a, ()> {
            std::future::pending().boxed()
        }
    }
    let spec = Spec { timeout: Some(Duration::from_millis(300)), ..spec("yes") };
    let cancel = CancellationToken::new();
    let exit = run(&spec, &cancel, &mut Stuck).await.unwrap();
    assert!(exit.timed_out);
}

#[tokio::test]
async fn a_command_that_cannot_start_says_where() {
    let spec = Spec { workdir: PathBuf::from("/does/not/exist"), ..spec("true") };
    let error = run(&spec, &CancellationToken::new(), &mut Vec::new()).await.unwrap_err();
    assert!(error.to_string().contains("/does/not/exist"), "{error}");
}
