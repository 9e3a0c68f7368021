//! Processes that are measured, and what the kernel says of them (`/proc`, so Linux only).

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

use crate::Result;

/// A process that says in its first line where it listens. It is ended when this is dropped.
pub(crate) struct Process {
    child: Child,
    /// Its first line.
    pub(crate) line: String,
    /// Kept, so that it can go on writing.
    out: BufReader<ChildStdout>,
    /// Whether it is asked to end, as a profiler must be that has something to write.
    is_gentle: bool,
}

/// What a process used so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    /// Processor time of its own threads, those that ended among them, in microseconds.
    pub(crate) own: f64,
    /// Processor time of its children that have ended, in microseconds.
    pub(crate) children: f64,
    /// Bytes that it handed to files.
    pub(crate) handed: f64,
    /// Bytes that had to go to a disk because of it.
    pub(crate) written: f64,
}

impl Used {
    /// What was used between `before` and this.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            own: self.own - before.own,
            children: self.children - before.children,
            handed: self.handed - before.handed,
            written: self.written - before.written,
        }
    }
}

/// What a process used so far, by its id.
pub(crate) fn used(id: u32) -> Result<Used> {
    let stat = fs_err::read_to_string(format!("/proc/{id}/stat"))?;
    // The name before may hold anything, so counting begins behind it: with the state, the third field.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(id)?))?;
    let tick = 1e6 / rustix::param::clock_ticks_per_second() as f64;
    let ticks = |field: usize| -> Result<f64> {
        let number = fields.get(field - 3).ok_or("the kernel tells too little of a process")?;
        Ok(number.parse::<u64>()? as f64 * tick)
    };
    let io = allowed(fs_err::read_to_string(format!("/proc/{id}/io")))?;
    let bytes = |name: &str| -> Result<f64> {
        let Some(io) = &io else { return Ok(f64::NAN) };
        let line = io.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        Ok(line.ok_or("the kernel tells no bytes of a process")?.parse::<u64>()? as f64)
    };
    Ok(Used {
        // To the nanosecond: in ticks of 10 ms a few hundred steps cannot be told from a fifth more of them.
        own: Duration::from(clock.now()?).as_secs_f64() * 1e6,
        children: ticks(16)? + ticks(17)?,
        handed: bytes("wchar")?,
        written: bytes("write_bytes")?,
    })
}

/// The most memory that a process had resident, in millions of bytes.
pub(crate) fn peak(id: u32) -> Result<f64> {
    let status = fs_err::read_to_string(format!("/proc/{id}/status"))?;
    let size = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next());
    Ok(size.ok_or("the kernel tells no peak of memory")?.parse::<u64>()? as f64 * 1024.0 / 1e6)
}

/// Processor time of each thread so far, in nanoseconds.
pub(crate) type Times = HashMap<u32, u64>;

impl Process {
    /// Starts a program and waits for its first line.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started
            .map_err(|error| format!("{} cannot be started: {error}", command.get_program().display()))?;
        let out = child.stdout.take().ok_or("a process has no output")?;
        let (mut out, mut line) = (BufReader::new(out), String::new());
        out.read_line(&mut line)?;
        Ok(Self { child, line: line.trim().to_owned(), out, is_gentle: false })
    }

    /// One that is asked to end, and waited for.
    pub(crate) fn ended_gently(mut self) -> Self {
        self.is_gentle = true;
        self
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its next line takes the place of the first.
    pub(crate) fn next_line(&mut self) -> Result<()> {
        let mut line = String::new();
        self.out.read_line(&mut line)?;
        self.line = line.trim().to_owned();
        Ok(())
    }

    /// Says a line to it, and gives the line that it says then.
    pub(crate) fn ask(&mut self, line: &str) -> Result<String> {
        let input = self.child.stdin.as_mut().ok_or("a process has no input")?;
        writeln!(input, "{line}")?;
        input.flush()?;
        let mut answer = String::new();
        self.out.read_line(&mut answer)?;
        if answer.is_empty() {
            return Err(format!("a process ended when it was asked {line:?}").into());
        }
        Ok(answer)
    }

    /// This program again, in another role.
    pub(crate) fn role(role: &str, arguments: &[&str]) -> Result<Self> {
        Self::start(Command::new(std::env::current_exe()?).arg(role).args(arguments))
    }

    /// Processor time of each thread so far.
    pub(crate) fn times(&self) -> Result<Times> {
        let mut times = Times::new();
        for thread in fs_err::read_dir(format!("/proc/{}/task", self.id()))? {
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
        resident(self.id())
    }
}

/// The same of a process with this id.
pub(crate) fn resident(id: u32) -> Result<f64> {
    megabytes(id, "Rss:", "VmRSS:")
}

/// Its memory without pages of files, in millions of bytes.
pub(crate) fn anonymous(id: u32) -> Result<f64> {
    megabytes(id, "Anonymous:", "RssAnon:")
}

/// `None` for what only root is told of a process that hides its memory, as the engine does.
fn allowed(read: std::io::Result<String>) -> Result<Option<String>> {
    match read {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// `field` of a process's memory, or `other` of what everybody is told.
fn megabytes(id: u32, field: &str, other: &str) -> Result<f64> {
    let (sizes, field) = match allowed(fs_err::read_to_string(format!("/proc/{id}/smaps_rollup")))? {
        Some(sizes) => (sizes, field),
        None => (fs_err::read_to_string(format!("/proc/{id}/status"))?, other),
    };
    let size = sizes.lines().find_map(|line| line.strip_prefix(field));
    let kilobytes: u64 = size
        .and_then(|size| size.split_whitespace().next())
        .ok_or("the kernel tells no memory of a process")?
        .parse()?;
    Ok(kilobytes as f64 * 1024.0 / 1e6)
}

impl Drop for Process {
    fn drop(&mut self) {
        // What it leaves behind is of no use to anybody, unless a profiler says otherwise.
        let id = rustix::process::Pid::from_child(&self.child);
        if !self.is_gentle || rustix::process::kill_process(id, rustix::process::Signal::TERM).is_err() {
            drop(self.child.kill());
        }
        drop(self.child.wait());
    }
}
