//! What this process holds in memory, and who may look at it.

use std::io;

/// Keeps other processes of the same user from reading this process's memory and its environment (`/proc/ID/mem`,
/// `/proc/ID/environ`), from tracing it, and the system from writing it to a core file. For the start of the program, before
/// any command runs: what it starts is not covered. It does not hold against root, or whoever may trace any process
/// (`CAP_SYS_PTRACE`): a command that runs as root without walls around it reads all the same.
///
/// # Errors
/// When the system refuses, or has no such thing.
pub fn keep_memory_private() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return Ok(rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?);
    #[cfg(not(target_os = "linux"))]
    Err(io::Error::new(io::ErrorKind::Unsupported, "only Linux can keep the memory of a process private"))
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Scope, limits, program};

    const INNER: &str = "PLAYHOUSE_TEST_OF_MEMORY";

    /// Runs itself once more, as a user that is not root: root may read everything.
    #[test]
    fn another_process_of_the_user_cannot_read_the_environment() {
        if std::env::var_os(INNER).is_some() {
            return inner();
        }
        let this = std::env::current_exe().unwrap();
        let name = "process::memory::tests::another_process_of_the_user_cannot_read_the_environment";
        let user = rustix::process::getuid().is_root().then(|| limits::words_of_own_user(&Scope::new()));
        let words =
            user.map(|words| words.expect("setpriv is missing: install util-linux")).unwrap_or_default();
        let words: Vec<_> = words.into_iter().chain([this.into_os_string()]).collect();
        let output = program(&words[0])
            .args(&words[1..])
            .args(["--exact", name, "--nocapture"])
            .env(INNER, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
    }

    fn inner() {
        let environment = format!("/proc/{}/environ", std::process::id());
        let reads = || program("cat").arg(&environment).output().unwrap().status.success();
        assert!(reads(), "it could not be read in the first place");
        keep_memory_private().unwrap();
        assert!(!reads());
        let now = rustix::process::dumpable_behavior().unwrap();
        assert_eq!(now, rustix::process::DumpableBehavior::NotDumpable);
    }
}
