//! A terminal with a screen, which tmux keeps.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{needed, opencode};
use crate::interrupt::is_alive;
use crate::stage::Stage;

/// Far longer than a client takes for anything, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(60);

/// The terminal client of opencode on a screen of its own. All of it ends with this.
pub(super) struct Screen {
    /// Where tmux listens.
    socket: PathBuf,
    /// What the client says beside the screen.
    stderr: PathBuf,
    client: Pid,
}

impl Screen {
    /// Starts the client with these arguments.
    pub(super) fn start<const N: usize>(stage: &Stage, arguments: [&str; N]) -> Self {
        let client = opencode(stage);
        let [socket, stderr] = ["tmux.sock", "client.err"].map(|name| stage.root().join(name));
        // The client's environment is that of tmux.
        let mut tmux = Command::new(needed("tmux"));
        tmux.env_clear().current_dir(&stage.workspace);
        tmux.envs(client.get_envs().filter_map(|(name, value)| Some((name, value?))));
        tmux.env("LANG", "C.UTF-8").env("TERM", "xterm-256color").env("CLIENT_STDERR", &stderr);
        tmux.args(["-u", "-S"]).arg(&socket).args(["-f", "/dev/null"]);
        tmux.args(["new-session", "-d", "-x", "110", "-y", "60", "-P", "-F", "#{pane_pid}"]);
        tmux.args(["sh", "-c", "exec \"$@\" 2>\"$CLIENT_STDERR\"", "sh"]);
        tmux.arg(client.get_program()).args(arguments);
        let output = tmux.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let number = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
        Self { socket, stderr, client: Pid::from_raw(number).unwrap() }
    }

    fn tmux<const N: usize>(&self, arguments: [&str; N]) -> Option<String> {
        let mut tmux = Command::new(needed("tmux"));
        let output = tmux.env_clear().args(["-u", "-S"]).arg(&self.socket).args(arguments).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// What it shows now; nothing when the client has ended.
    fn now(&self) -> String {
        self.tmux(["capture-pane", "-p"]).unwrap_or_default()
    }

    /// Waits until the screen is so; what it shows then.
    #[track_caller]
    fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let screen = self.now();
            if is_so(&screen) {
                return screen;
            }
            if Instant::now() > deadline {
                let stderr = fs_err::read_to_string(&self.stderr).unwrap_or_default();
                panic!("the screen never {what}\n{screen}\n{stderr}");
            }
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Waits until it shows all of these, one after the other.
    #[track_caller]
    pub(super) fn shows<const N: usize>(&self, texts: [&str; N]) -> String {
        self.until(&format!("shows {texts:?}"), |screen| {
            let behind = |rest: &str, text: &&str| Some(rest.split_once(*text)?.1.to_owned());
            texts.iter().try_fold(screen.to_owned(), |rest, text| behind(&rest, text)).is_some()
        })
    }

    /// Waits until it does not show this.
    #[track_caller]
    pub(super) fn hides(&self, text: &str) -> String {
        self.until(&format!("hides {text:?}"), |screen| !screen.is_empty() && !screen.contains(text))
    }

    /// Presses keys, by the names that tmux has for them.
    pub(super) fn press<const N: usize>(&self, keys: [&str; N]) {
        for key in keys {
            self.tmux(["send-keys", key]).expect("the client is there");
        }
    }

    /// Types characters.
    pub(super) fn types(&self, text: &str) {
        self.tmux(["send-keys", "-l", text]).expect("the client is there");
    }

    /// Types a line and sends it.
    #[track_caller]
    pub(super) fn prompts(&self, text: &str) {
        self.types(text);
        self.shows([text]);
        self.press(["Enter"]);
    }

    /// Waits until the client has ended.
    #[track_caller]
    pub(super) fn ends(&self) {
        self.until("goes away", |_| !is_alive(self.client));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.tmux(["kill-server"]);
        // It goes with its terminal, unless it hangs. One that has ended cannot be killed.
        let _ = kill_process(self.client, Signal::KILL);
    }
}
