//! A terminal, with the test at its other end.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::stage::Stage;

/// A `run` at a terminal, whose other end is given too. Its standard output is a pipe.
pub(crate) fn at_a_terminal<const N: usize>(stage: &Stage, arguments: [&str; N]) -> (Child, Terminal) {
    let mut command = stage.command(["run"].into_iter().chain(arguments));
    command.env("NO_COLOR", "1");
    start(command)
}

/// The same of any command.
pub(crate) fn start(mut command: Command) -> (Child, Terminal) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let open = || fs_err::OpenOptions::new().read(true).write(true).open(&name).unwrap().into_parts().0;
    let child = command.stdin(open()).stdout(Stdio::piped()).stderr(open()).spawn().unwrap();
    (child, Terminal { master: File::from(master), shown: String::new() })
}

/// The other end.
pub(crate) struct Terminal {
    master: File,
    /// All that was shown, and not yet waited for.
    shown: String,
}

impl Terminal {
    /// Waits until it shows this. It ends with the process, whose questions do not wait for ever.
    pub(crate) fn until(&mut self, text: &str) -> String {
        let mut buffer = [0; 1024];
        loop {
            if let Some((before, after)) = self.shown.split_once(text) {
                let (before, after) = (before.to_owned(), after.to_owned());
                self.shown = after;
                return before;
            }
            match self.master.read(&mut buffer) {
                Ok(count) if count > 0 => self.shown.push_str(&String::from_utf8_lossy(&buffer[..count])),
                _ => panic!("{text:?} never came, but {:?}", self.shown),
            }
        }
    }

    /// Types a line.
    pub(crate) fn types(&mut self, line: &str) {
        self.master.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}
