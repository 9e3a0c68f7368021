#![cfg(target_os = "linux")]

use super::*;
use crate::process::{find_program, program};

fn spec(root: &Path, sandbox: Sandbox) -> WallsSpec {
    let spec = WallsSpec {
        sandbox,
        allowed: WallsAllowed::default(),
        workspace: root.join("workspace"),
        output: root.join("output"),
        shared: Vec::new(),
        home: root.join("home"),
        hidden: Vec::new(),
        roots: Vec::new(),
    };
    fs_err::create_dir_all(&spec.workspace).unwrap();
    spec
}

#[test]
fn where_nothing_works_it_is_refused_or_said() {
    // No test of this process asks for the bubblewrap that was found, nor names a program that confines itself.
    without_bubblewrap();
    let folder = tempfile::tempdir().unwrap();
    let error = Walls::build(&spec(folder.path(), Sandbox::Required)).unwrap_err().to_string();
    for part in
        ["sandbox = \"required\"", "bubblewrap is not to be used", "Landlock", "apt install bubblewrap"]
    {
        assert!(error.contains(part), "{error}");
    }
    let when_needed = |sandbox| Walls::when_needed(&Arc::new(spec(folder.path(), sandbox)));
    assert_eq!(when_needed(Sandbox::Required).unwrap_err().to_string(), error, "it is known before");
    assert!(when_needed(Sandbox::BestEffort).unwrap().known().is_none());
    let put_off = when_needed(Sandbox::BestEffort).unwrap();
    let walls = Walls::build(&spec(folder.path(), Sandbox::BestEffort)).unwrap();
    assert_eq!(put_off.in_force().unwrap(), walls.in_force().unwrap());
    let in_force = walls.in_force().unwrap();
    assert_eq!((in_force.strength, &*in_force.by, in_force.network), (Strength::None, "none", true));
    assert!(in_force.detail.contains("apt install bubblewrap"), "{in_force}");
}

#[test]
#[ignore = "only root gives its commands another user: scripts/test runs it where it is root, scripts/slow always"]
fn another_user_works_in_the_workspace() {
    assert!(
        rustix::process::getuid().is_root(),
        "only root gives its commands another user: run scripts/slow as root"
    );
    let folder = tempfile::tempdir().unwrap();
    let root = fs_err::canonicalize(folder.path()).unwrap();
    let spec = spec(&root, Sandbox::Required);
    let view = View::build(&spec, &Surroundings::of_this_process()).unwrap();
    let found = find_program("bwrap").expect("bwrap is needed: apt install bubblewrap");
    let bubblewrap = Bubblewrap { program: found, with_user: true, without_user: true };
    let powers = "+chown,+dac_override,+fowner,+fsetid";
    let [inherited, ambient, bounding] =
        ["inh-caps", "ambient-caps", "bounding-set"].map(|set| format!("--{set}=-all,{powers}"));
    let user = [
        "setpriv",
        "--reuid=1879099999",
        "--regid=0",
        "--clear-groups",
        &inherited,
        &ambient,
        &bounding,
        "--",
    ];
    let inner = [
        "/bin/sh",
        "-c",
        "id -u && echo made > file && grep CapBnd /proc/self/status && ls ~ && ! mount x /mnt",
    ];
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let (words, absent) =
        bubblewrap::words(&bubblewrap, &view, &spec.workspace, Some(words(&user)), words(&inner), &[])
            .unwrap();
    assert!(absent.is_empty());
    let mut output = program(&words[0]);
    output.args(&words[1..]).env("HOME", &spec.home).current_dir(&spec.workspace);
    let output = output.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said, "1879099999\nCapBnd:\t000000000000001b\n");
    assert_eq!(fs_err::read_to_string(spec.workspace.join("file")).unwrap(), "made\n");
}

#[test]
fn a_redirection_of_git_is_removed_when_the_command_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let [planted, link, kept] = ["commondir", "link", "folder"].map(|name| folder.path().join(name));
    fs_err::write(&planted, "../evil").unwrap();
    fs_err::os::unix::fs::symlink("/nowhere", &link).unwrap();
    fs_err::create_dir(&kept).unwrap();
    drop(After { absent: vec![planted.clone(), link.clone(), kept.clone(), folder.path().join("none")] });
    assert!(!planted.exists() && fs_err::symlink_metadata(&link).is_err() && kept.exists());
}

#[test]
fn what_was_made_for_walls_goes_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let view = View::build(&spec(folder.path(), Sandbox::Required), &Surroundings::default()).unwrap();
    let temporary = view.temporary();
    (0..300).for_each(|number| fs_err::write(temporary.join(number.to_string()), "").unwrap());
    drop(view);
    let is_gone = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        !temporary.exists()
    });
    assert!(is_gone);
}
