//! Processes that are measured, and what the kernel says of them (`/proc`, so Linux only).

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::Result;

/// A process that says in its first line where it listens. It is ended when this is dropped.
pub(crate) struct Process {
    child: Child,
    /// Its first line.
    pub(crate) line: String,
    /// Kept, so that it can go on writing.
    _out: BufReader<ChildStdout>,
}

/// Processor time of each thread so far, in nanoseconds.
pub(crate) type Times = HashMap<u32, u64>;

impl Process {
    /// Starts a program and waits for its first line.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().ok_or("a process has no output")?;
        let (mut out, mut line) = (BufReader::new(out), String::new());
        out.read_line(&mut line)?;
        Ok(Self { child, line: line.trim().to_owned(), _out: out })
    }

    /// This program again, in another role.
    pub(crate) fn role(role: &str, arguments: &[&str]) -> Result<Self> {
        Self::start(Command::new(std::env::current_exe()?).arg(role).args(arguments))
    }

    /// Processor time of each thread so far.
    pub(crate) fn times(&self) -> Result<Times> {
        let mut times = Times::new();
        for thread in fs_err::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let path = thread?.path();
            let id =
                path.file_name().and_then(|name| name.to_str()?.parse().ok()).ok_or("a strange thread")?;
            // A thread that ended meanwhile had not much to do.
            let Ok(text) = fs_err::read_to_string(path.join("schedstat")) else { continue };
            let time = text.split_whitespace().next().and_then(|number| number.parse().ok());
            times.insert(id, time.ok_or("the kernel tells no times of threads")?);
        }
        Ok(times)
    }

    /// Processor time since `before`, in microseconds.
    pub(crate) fn spent_since(&self, before: &Times) -> Result<f64> {
        let spent = |(id, now): (&u32, &u64)| now.saturating_sub(before.get(id).copied().unwrap_or(0));
        Ok(self.times()?.iter().map(spent).sum::<u64>() as f64 / 1e3)
    }

    /// The memory that belongs to it alone or that it has written, in millions of bytes.
    pub(crate) fn resident(&self) -> Result<f64> {
        let sizes = fs_err::read_to_string(format!("/proc/{}/smaps_rollup", self.child.id()))?;
        let size = sizes.lines().find_map(|line| line.strip_prefix("Rss:"));
        let kilobytes: u64 = size
            .and_then(|size| size.split_whitespace().next())
            .ok_or("smaps_rollup lacks a field")?
            .parse()?;
        Ok(kilobytes as f64 * 1024.0 / 1e6)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // What it leaves behind is of no use to anybody.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
