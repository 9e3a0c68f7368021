//! Folders with the long outputs of `playhouse tool`: they stay for those who look them up, for a day.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, geteuid, test_kill_process};

/// How all of them are named; the id of the process and something random follow.
const NAME: &str = "playhouse-tool-";
/// How long they stay at least.
const KEPT: Duration = Duration::from_secs(24 * 3_600);
/// The most entries of the folder for temporary files that one start looks at.
const LOOKED_AT: usize = 100_000;

/// How the folder of this process begins.
pub(super) fn prefix() -> String {
    format!("{NAME}{}-", std::process::id())
}

/// Removes those folders in `place` that are older than a day, belong to this user, and whose process has ended. Follows no
/// links. What cannot be removed stays: the call is more important.
pub(super) fn sweep(place: &Path) {
    let Ok(entries) = fs_err::read_dir(place) else { return };
    for entry in entries.take(LOOKED_AT).flatten() {
        let Some(rest) =
            entry.file_name().to_str().and_then(|name| name.strip_prefix(NAME)).map(str::to_owned)
        else {
            continue;
        };
        // That of the entry itself, not of what a link leads to.
        let Ok(metadata) = entry.metadata() else { continue };
        let age = metadata.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok());
        let old = age.is_some_and(|age| age > KEPT);
        let own = metadata.uid() == geteuid().as_raw();
        if metadata.is_dir() && old && own && !is_alive(&rest) {
            // Removes links in it, and not what they lead to.
            drop(fs_err::remove_dir_all(entry.path()));
        }
    }
}

/// Whether the process lives that a name ends in, as far as it names one.
fn is_alive(rest: &str) -> bool {
    let process = rest.split_once('-').and_then(|(process, _)| process.parse().ok()).and_then(Pid::from_raw);
    // Of a process of somebody else there is an error, and it lives all the same.
    process.is_some_and(|process| test_kill_process(process) != Err(rustix::io::Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use fs_err as fs;

    use super::*;

    #[test]
    fn what_is_old_and_left_behind_goes() {
        let place = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = child.id();
        child.wait().unwrap();
        let folder = |name: String, age: Duration| {
            let path = place.path().join(name);
            fs::create_dir_all(path.join("ses")).unwrap();
            fs::write(path.join("ses/call.txt"), "x").unwrap();
            fs::os::unix::fs::symlink(place.path().join("precious"), path.join("link")).unwrap();
            fs::File::open(&path).unwrap().file().set_modified(SystemTime::now() - age).unwrap();
            path
        };
        let precious = folder("precious".into(), KEPT * 2);
        let gone = [folder(format!("{NAME}{dead}-a"), KEPT * 2), folder(format!("{NAME}oldname"), KEPT * 2)];
        let link = place.path().join(format!("{NAME}{dead}-link"));
        fs::os::unix::fs::symlink(&precious, &link).unwrap();
        let stays = [
            folder(format!("{NAME}{dead}-young"), KEPT / 2),
            folder(format!("{}alive", prefix()), KEPT * 2),
            precious.join("ses/call.txt"),
            link,
        ];
        sweep(place.path());
        assert!(gone.iter().all(|path| !path.exists()));
        assert!(stays.iter().all(|path| path.exists()), "{stays:?}");
        sweep(&place.path().join("missing"));
    }
}
