//! Limits that each process of a command has, set by the shell before the command begins.
//!
//! They are worked out here, and not in the shell: a limit that this process has already is never made wider, and a shell
//! would need a process for each look.

use std::io;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Limits;

/// Between the signal that tells a process that its processor time is over and the one that ends it, in seconds.
const LAST_SECONDS: u64 = 10;

/// What is lowered.
struct Lowered {
    resource: Resource,
    /// The option of `ulimit`.
    option: char,
    /// What `ulimit` of a POSIX shell counts in, in bytes (or files, or seconds). bash counts `-f` in 512 bytes as well when
    /// it is called `sh`.
    unit: u64,
    soft: u64,
    /// `None` for one that stays.
    hard: Option<u64>,
}

/// How many files a program may open that asks for no more, as it was before this process did.
static USUAL_FILES: OnceLock<u64> = OnceLock::new();

/// Lets this process open as many files as it may: most systems give a program 1,024 unless it asks. Commands still begin with what this
/// process was given: some close each file that they might have, and some know of no more than 1,024.
///
/// # Errors
/// The system refuses.
pub fn raise_open_files() -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return Ok(());
    }
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    if let Some(current) = current {
        // Who raised them before knows better.
        let _ = USUAL_FILES.set(current);
    }
    Ok(())
}

/// What is lowered of the files that a command may open.
fn files(limit: Option<u64>, usual: Option<u64>) -> Option<Lowered> {
    let limit = limit.map(|files| files.max(16));
    let soft = limit.into_iter().chain(usual).min()?;
    Some(Lowered { resource: Resource::Nofile, option: 'n', unit: 1, soft, hard: limit })
}

/// Words for the prelude: an option of `ulimit` and its value, in turn. `memory`: nothing else bounds memory.
pub(super) fn steps(limits: &Limits, memory: bool) -> Vec<String> {
    // What a process allocates, and not its address space: many a runtime reserves far more of that than it ever uses.
    let data = limits.of_command().memory.filter(|_| memory);
    let cpu_seconds = limits.cpu_seconds.map(|seconds| seconds.max(1));
    let lowered = [
        lowered(Resource::Data, 'd', 1024, data, 0),
        lowered(Resource::Fsize, 'f', 512, limits.file_size, 0),
        files(limits.open_files, USUAL_FILES.get().copied()),
        lowered(Resource::Cpu, 't', 1, cpu_seconds, LAST_SECONDS),
    ];
    lowered.into_iter().flatten().flat_map(|lowered| lowered.steps(getrlimit(lowered.resource))).collect()
}

fn lowered(resource: Resource, option: char, unit: u64, limit: Option<u64>, spare: u64) -> Option<Lowered> {
    let soft = limit?;
    Some(Lowered { resource, option, unit, soft, hard: Some(soft.saturating_add(spare)) })
}

impl Lowered {
    /// The soft limit first, since it may not be above the hard one.
    fn steps(&self, now: Rlimit) -> Vec<String> {
        let lower = |letter: char, now: Option<u64>, to: u64| {
            let value = now.is_none_or(|now| to < now).then(|| (to / self.unit).to_string())?;
            Some([format!("-{letter}{}", self.option), value])
        };
        let hard = self.hard.and_then(|hard| lower('H', now.maximum, hard));
        let both = [lower('S', now.current, self.soft), hard];
        both.into_iter().flatten().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_lowered_and_never_raised() {
        let lowered = lowered(Resource::Fsize, 'f', 512, Some(10 * 512), 512).unwrap();
        let steps = |current, maximum| lowered.steps(Rlimit { current, maximum }).join(" ");
        assert_eq!(steps(None, None), "-Sf 10 -Hf 11");
        assert_eq!(steps(Some(512), None), "-Hf 11");
        assert_eq!(steps(Some(512), Some(1024)), "");
        assert_eq!(steps(Some(512), Some(11 * 512)), "");
        assert_eq!(steps(Some(6000), Some(6000)), "-Sf 10 -Hf 11");
    }

    #[test]
    fn commands_begin_with_as_many_files_as_the_engine_was_given() {
        let raised = Rlimit { current: Some(5_000), maximum: Some(5_000) };
        let steps = |limit, usual| files(limit, usual).map(|files| files.steps(raised).join(" "));
        assert_eq!(steps(Some(4_000), Some(1_024)).as_deref(), Some("-Sn 1024 -Hn 4000"));
        assert_eq!(steps(Some(500), Some(1_024)).as_deref(), Some("-Sn 500 -Hn 500"));
        assert_eq!(steps(None, Some(1_024)).as_deref(), Some("-Sn 1024"));
        assert_eq!(steps(Some(4_000), None).as_deref(), Some("-Sn 4000 -Hn 4000"));
        assert_eq!(steps(None, None), None);
    }

    #[test]
    fn what_is_not_limited_is_left_alone() {
        let none = Limits {
            memory: None,
            file_size: None,
            open_files: None,
            cpu_seconds: None,
            ..Limits::default()
        };
        assert!(steps(&none, true).is_empty());
        let memory = Limits { memory: Some(1 << 30), ..none };
        assert_eq!(steps(&memory, true), ["-Sd", "1048576", "-Hd", "1048576"]);
        assert!(steps(&memory, false).is_empty());
    }
}
