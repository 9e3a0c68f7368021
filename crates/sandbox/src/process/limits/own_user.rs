//! A user of each session's own, for the commands of an engine that is root.
//!
//! The kernel keeps root to no limit of tasks, in a user namespace of its own neither: what counts is the user outside of
//! it. So without a control group the commands of a root engine run as a user that nobody else is, with the powers that
//! they need to work with files of others, and no more. They may then signal and look into processes of their own session
//! only. What they create belongs to that user.

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::process::Stdio;

use super::super::mark::Scope;
use super::super::{find_program, program};

/// Numbers of users from here on are nobody's: above those that systems, containers and networks give away.
const FIRST: u32 = 0x7000_0000;
const COUNT: u64 = 0x0080_0000;
/// What a command may do with files of others; root may do it, and the workspace is root's.
const POWERS: &str = "+chown,+dac_override,+fowner,+fsetid";

/// The number of the user of a session.
pub(super) fn of(session: &Scope) -> u32 {
    let mut hasher = DefaultHasher::new();
    session.as_str().hash(&mut hasher);
    // Below `COUNT`, so it fits.
    FIRST + u32::try_from(hasher.finish() % COUNT).unwrap_or_default()
}

/// A program with its arguments that goes over into the one that follows them, as this user.
pub(super) fn words(user: u32) -> Option<Vec<OsString>> {
    let setpriv = find_program("setpriv")?;
    let user = format!("--reuid={user}");
    let inherited = format!("--inh-caps=-all,{POWERS}");
    let ambient = format!("--ambient-caps=-all,{POWERS}");
    let bounding = format!("--bounding-set=-all,{POWERS}");
    let options =
        [&user, "--regid=0", "--clear-groups", "--no-new-privs", &inherited, &ambient, &bounding, "--"];
    Some([setpriv.into_os_string()].into_iter().chain(options.map(OsString::from)).collect())
}

/// Finds out whether the kernel keeps such a user to its limit, and whether this process can look into its processes,
/// without which those that hide are not found.
///
/// # Errors
/// Why it is not to be.
pub(super) fn try_out() -> Result<(), String> {
    let user = of(&Scope::run().within("trial"));
    let words = words(user).ok_or("there is no program setpriv")?;
    // It makes one process more, which is one too many.
    let mut trial = words.clone();
    trial.extend(["timeout", "5", "true"].map(OsString::from));
    if !succeeds(&trial, None)? {
        return Err("setpriv cannot change the user here".to_owned());
    }
    if succeeds(&trial, Some(1))? {
        return Err("the kernel keeps such a user to no limit of processes".to_owned());
    }
    if can_look_into(&words)? {
        Ok(())
    } else {
        Err("this process may not look into those of others".to_owned())
    }
}

/// Whether a program ends well, where its user may have `limit` processes.
fn succeeds(words: &[OsString], limit: Option<u32>) -> Result<bool, String> {
    let hold = super::Hold { user_limit: limit.map(u64::from), ..super::Hold::default() };
    let prelude =
        hold.prelude().unwrap_or_else(|| ["-c", "exec \"$@\"", "playhouse"].map(OsString::from).into());
    let mut shell = program("/bin/sh");
    shell.args(prelude).args(words);
    shell.env_clear().env("PATH", super::super::environment::search_path());
    shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.status().map(|status| status.success()).map_err(|error| error.to_string())
}

fn can_look_into(words: &[OsString]) -> Result<bool, String> {
    let mut command = words.iter();
    let first = command.next().ok_or("there is no program setpriv")?;
    let mut child = program(first)
        .args(command)
        .args(["/bin/sh", "-c", "echo; read -r _"])
        .env_clear()
        .env("PLAYHOUSE_TRIAL", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    let mut line = [0];
    let started = match child.stdout.take() {
        Some(mut output) => std::io::Read::read(&mut output, &mut line).unwrap_or_default() == 1,
        None => false,
    };
    let environment = fs_err::read(format!("/proc/{}/environ", child.id())).unwrap_or_default();
    // The end of its input ends it.
    drop(child.stdin.take());
    let status = child.wait().map_err(|error| error.to_string())?;
    if !started {
        return Err(format!("setpriv does not do it here: {status}"));
    }
    Ok(environment.starts_with(b"PLAYHOUSE_TRIAL"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_session_has_a_user_that_is_nobody_else() {
        let session = Scope::new();
        assert_eq!(of(&session), of(&session));
        assert_eq!(of(&session.command().parent()), of(&session));
        assert_ne!(of(&session), of(&Scope::new()));
        assert!((FIRST..FIRST + 0x0080_0000).contains(&of(&session)));
    }

    #[test]
    fn the_kernel_keeps_such_a_user_to_its_limit() {
        let tried = try_out();
        if !rustix::process::getuid().is_root() {
            assert!(tried.is_err(), "only root can give a user away");
            return;
        }
        let fits = tried.as_ref().err().is_none_or(|reason| reason.contains("may not look into"));
        assert!(
            fits,
            "{tried:?}: this takes setpriv (util-linux), timeout (coreutils) and root with CAP_SETUID"
        );
    }
}
