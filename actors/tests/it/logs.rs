//! What the engine logs, kept to be read.

use std::io::{self, Write};
use std::sync::{Mutex, OnceLock};

use playhouse_protocol::SessionId;

static LINES: Mutex<String> = Mutex::new(String::new());

struct Kept;

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.lock().unwrap().push_str(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps what is logged from now on. The log is one for the whole process: lines are told apart by their session.
pub(crate) fn keep() {
    static KEPT: OnceLock<()> = OnceLock::new();
    KEPT.get_or_init(|| tracing_subscriber::fmt().with_ansi(false).with_writer(|| Kept).init());
}

/// The lines about a session.
pub(crate) fn of(session: SessionId) -> Vec<String> {
    let session = session.to_string();
    let lines = LINES.lock().unwrap();
    lines.lines().filter(|line| line.contains(&session)).map(str::to_owned).collect()
}
