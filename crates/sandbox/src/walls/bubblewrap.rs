//! Walls made of bubblewrap: a view of its own, and namespaces of its own for processes, users, the network and the rest.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::probe::Bubblewrap;
use super::view::{Sight, View};
use crate::process::shell;

/// What a root that is to work with files of others needs for it.
const POWERS: &[&str] = &["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID"];
/// What it needs besides to become another user.
const CHANGE_USER: &[&str] = &["CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"];

/// The words that run `inner` within a view, and the files that are to be removed when it has ended. They have to start in
/// the workspace. `user`: a program that goes over into what follows it, as another user. Blocks for a moment.
///
/// # Errors
/// When the repository in the workspace cannot be guarded.
pub(super) fn words(
    bubblewrap: &Bubblewrap,
    view: &View,
    workdir: &Path,
    user: Option<Vec<OsString>>,
    inner: Vec<OsString>,
    hidden: &[PathBuf],
) -> io::Result<(Vec<OsString>, Vec<PathBuf>)> {
    let sight = view.sight()?;
    let filter = view.filter();
    let mut words = alone(filter.as_deref(), true);
    words.push(bubblewrap.program.clone().into());
    let mut add = |options: &[&str]| words.extend(options.iter().map(OsString::from));
    add(&["--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"]);
    if !view.allowed().network {
        add(&["--unshare-net"]);
    }
    // Its own terminal session, so that it cannot reach the terminal of this one.
    add(&["--new-session", "--die-with-parent", "--cap-drop", "ALL"]);
    if bubblewrap.without_user && (!bubblewrap.with_user || needs_powers(view, user.is_some())) {
        let is_wanted = needs_powers(view, user.is_some());
        let powers = POWERS.iter().filter(|_| is_wanted).chain(CHANGE_USER.iter().filter(|_| user.is_some()));
        powers.for_each(|power| add(&["--cap-add", power]));
    } else {
        add(&["--unshare-user"]);
    }
    if filter.is_some() {
        add(&["--seccomp", "9"]);
    }
    words.extend(sight.options());
    words.extend(sight.covers(hidden));
    words.extend(["--chdir".into(), workdir.into(), "--".into()]);
    words.extend(checked(&sight));
    words.extend(user.into_iter().flatten());
    words.extend(inner);
    Ok((words, sight.absent))
}

/// Words that go over into what follows them, with no open files but the usual three, and with `filter` open as the ninth:
/// bubblewrap takes it so. A file that was handed to this process by whoever started it would lead out of the walls.
/// `holds_directory`: the directory in which they start is open as the eighth, for [`checked`], which closes it. The first
/// process in the walls, which stays, is bubblewrap's, and closes it as well.
pub(super) fn alone(filter: Option<&Path>, holds_directory: bool) -> Vec<OsString> {
    const CLOSE: &str = r#"if [ -n "$BASH_VERSION" ]; then
    for file in /proc/self/fd/*; do
        number=${file##*/}
        [ "$number" -le 2 ] || eval "exec $number<&-"
    done
else
    exec 3<&- 4<&- 5<&- 6<&- 7<&- 8<&- 9<&-
fi
[ -z "$1" ] || exec 9<"$1"
[ -z "$2" ] || exec 8<"$2"
shift 2
exec "$@""#;
    let filter = filter.map(OsString::from).unwrap_or_default();
    // A POSIX shell can name nine open files only.
    let directory = if holds_directory { "." } else { "" };
    vec![shell().into(), "-c".into(), CLOSE.into(), "playhouse".into(), filter, directory.into()]
}

/// Words that go over into what follows them when the workspace is the directory that is held open, and when everything that
/// guards it is where it should be. A program that runs already could put a link in the way while the view is built, where
/// there was nothing yet to hold it off.
fn checked(sight: &Sight) -> Vec<OsString> {
    const CHECK: &str = r#"if ! [ "$1" -ef /proc/self/fd/8 ]; then
    echo "the workspace is no longer the directory that it was, so the command was not run" >&2
    exit 126
fi
exec 8<&-
shift
base=
all="
"
while read -r _ _ _ root place options _; do
    [ "$place" != "$1" ] || base=${root%/}
    all="$all$place $root ${options%%,*}
"
done < /proc/self/mountinfo
shift
while [ -n "$1" ]; do
    case $all in *"
$1 $base$2 $3
"*) ;; *)
        echo "what guards $1 is not in place, so the command was not run" >&2
        exit 126 ;;
    esac
    shift 3
done
shift
exec "$@""#;
    let workspace = sight.workspace();
    let device = |path: &Path| fs_err::symlink_metadata(path).ok().map(|facts| facts.dev());
    let own = device(workspace);
    // What is mounted into the workspace from elsewhere cannot be put aside.
    let held = sight.held().into_iter().filter(|(place, _)| device(place) == own);
    let facts = held.filter_map(|(place, can_be_changed)| {
        let within = Path::new("/").join(place.strip_prefix(workspace).ok()?);
        Some([escaped(place), escaped(&within), if can_be_changed { "rw".into() } else { "ro".into() }])
    });
    let facts = facts.flatten();
    let first = ["/bin/sh".into(), "-c".into(), CHECK.into(), "playhouse".into(), workspace.into()];
    let first = first.into_iter().chain([escaped(workspace)]);
    first.chain(facts).chain([OsString::new()]).collect()
}

/// A path as the kernel shows it among mounts.
fn escaped(path: &Path) -> OsString {
    let mut shown = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => shown.extend(format!("\\{byte:03o}").into_bytes()),
            byte => shown.push(*byte),
        }
    }
    OsString::from_vec(shown)
}

/// In a user namespace root can change files of nobody else, and can become nobody else.
fn needs_powers(view: &View, has_user: bool) -> bool {
    let is_root = rustix::process::getuid().is_root();
    is_root && (has_user || view.owner().is_some_and(|owner| owner != 0))
}
