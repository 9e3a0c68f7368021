//! What a written file keeps, and what becomes of one that is written in place and cut off.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use rustix::fs::XattrFlags;

use super::*;

/// Says to this binary that it is the process that a test started, and in which folder it works.
const CHILD: &str = "PLAYHOUSE_TEST_KEEPING";
/// After how many bytes it is killed.
const KILLED_AT: &str = "PLAYHOUSE_TEST_KILLED_AT";

impl Fixture {
    /// A workspace in a folder whose file system has extended attributes.
    fn with_attributes() -> Self {
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
        for place in [std::env::temp_dir(), target.clone()] {
            let folder = tempfile::tempdir_in(&place).unwrap();
            if rustix::fs::setxattr(folder.path(), "user.test", b"x", XattrFlags::empty()).is_ok() {
                return Self::at(folder);
            }
        }
        panic!(
            "neither {} nor {} has extended attributes of users: point TMPDIR to a file system that has",
            std::env::temp_dir().display(),
            target.display()
        );
    }

    fn at(folder: tempfile::TempDir) -> Self {
        let base = fs_err::canonicalize(folder.path()).unwrap();
        fs_err::create_dir_all(base.join("work/dir")).unwrap();
        fs_err::create_dir_all(base.join("secret")).unwrap();
        fs_err::write(base.join("work/dir/file"), "old").unwrap();
        let workspace = Workspace::open(&base.join("work"), base.join("out")).unwrap();
        Self { _folder: folder, base, workspace }
    }

    fn kept(&self) -> PathBuf {
        self.workspace.output().join("call.before")
    }

    fn write(&self, path: &str, content: &[u8]) -> Result<Written, DoorError> {
        let kept = self.kept();
        let in_place = InPlace { workspace: &self.workspace, kept: &kept };
        write_keeping(&self.resolve(path), content, Expected::Anything, &in_place)
    }

    fn inode(&self, path: &str) -> u64 {
        fs_err::metadata(self.base.join(path)).unwrap().ino()
    }

    /// The names in the folder of saved outputs.
    fn outputs(&self) -> Vec<String> {
        let Ok(entries) = fs_err::read_dir(self.workspace.output()) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn attributes(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0; 4096];
    let length = rustix::fs::listxattr(path, &mut names[..]).unwrap();
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names
        .map(|name| {
            let mut value = vec![0; 4096];
            let length = rustix::fs::getxattr(path, name, &mut value[..]).unwrap();
            (String::from_utf8(name.to_vec()).unwrap(), value[..length].to_vec())
        })
        .collect()
}

/// An access control list: `rw` for the owner, `r` for the user `user`, the mask `rw`.
#[cfg(target_os = "linux")]
fn acl(user: u32) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entry = |tag: u16, may: u16, id: u32| {
        [&tag.to_le_bytes()[..], &may.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let entries = [(1, 6, NOBODY), (2, 4, user), (4, 4, NOBODY), (16, 6, NOBODY), (32, 0, NOBODY)];
    let entries = entries.map(|(tag, may, id)| entry(tag, may, id)).concat();
    [&2_u32.to_le_bytes()[..], &entries].concat()
}

#[test]
fn extended_attributes_are_kept() {
    let fixture = Fixture::with_attributes();
    let path = fixture.base.join("work/dir/file");
    rustix::fs::setxattr(&path, "user.tag", b"x", XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(&path, "user.empty", b"", XattrFlags::empty()).unwrap();
    let before = (attributes(&path), fixture.inode("work/dir/file"));
    assert!(before.0.len() >= 2);
    fixture.write("dir/file", b"new").unwrap();
    assert_eq!((fixture.content("work/dir/file").as_str(), attributes(&path)), ("new", before.0.clone()));
    assert_ne!(fixture.inode("work/dir/file"), before.1, "another file came in its place");
    // One that is moved has them, too.
    write_like(&fixture.resolve("dir/moved"), b"moved", &fixture.resolve("dir/file")).unwrap();
    assert_eq!(attributes(&fixture.base.join("work/dir/moved")), before.0);
    write_atomic(&fixture.resolve("dir/file"), b"newer", Expected::Anything).unwrap();
    assert_eq!(attributes(&path), before.0);
}

#[cfg(target_os = "linux")]
#[test]
fn access_control_lists_are_kept_and_none_is_added() {
    let fixture = Fixture::with_attributes();
    let directory = fixture.base.join("work/dir");
    let set = |path: &Path, name: &str, list: &[u8]| {
        let set = rustix::fs::setxattr(path, name, list, XattrFlags::empty());
        set.unwrap_or_else(|error| panic!("{} has no access control lists: {error}", path.display()));
    };
    fs_err::write(directory.join("plain"), "old").unwrap();
    set(&directory.join("file"), "system.posix_acl_access", &acl(1234));
    // New files in the directory get this one.
    set(&directory, "system.posix_acl_default", &acl(4321));
    let mode = |name: &str| fs_err::metadata(directory.join(name)).unwrap().mode();
    let before = ["file", "plain"].map(|name| (attributes(&directory.join(name)), mode(name)));
    for name in ["file", "plain"] {
        fixture.write(&format!("dir/{name}"), b"new").unwrap();
    }
    assert_eq!(["file", "plain"].map(|name| (attributes(&directory.join(name)), mode(name))), before);
    assert!(before[0].0.contains_key("system.posix_acl_access") && before[1].0.is_empty());
}

#[test]
fn a_file_with_other_names_in_the_workspace_is_written_in_place() {
    let fixture = fixture();
    let work = fixture.base.join("work");
    for name in ["beside", "dir/beside", ".hidden"] {
        fs_err::hard_link(work.join("dir/file"), work.join(name)).unwrap();
    }
    for content in ["much longer than it was", "n", ""] {
        let written = fixture.write("dir/file", content.as_bytes()).unwrap();
        assert_eq!((written.created, written.hash, written.parted), (false, hash(content.as_bytes()), 0));
        for name in ["work/dir/file", "work/beside", "work/dir/beside", "work/.hidden"] {
            assert_eq!(
                (fixture.content(name).as_str(), fixture.inode(name)),
                (content, fixture.inode("work/beside"))
            );
        }
    }
    assert!(fixture.outputs().is_empty(), "nothing is kept of what was done");
    assert!(restore(&fixture.workspace).is_empty());
}

#[test]
fn other_names_that_are_not_to_be_changed_keep_their_content() {
    let fixture = fixture();
    let work = fixture.base.join("work");
    fs_err::create_dir_all(work.join(".git/hooks")).unwrap();
    for name in ["secret/other", "work/.git/hooks/pre-commit"] {
        let file = work.join("dir/file");
        fs_err::write(&file, "old").unwrap();
        fs_err::hard_link(&file, work.join("beside")).unwrap();
        fs_err::hard_link(&file, fixture.base.join(name)).unwrap();
        let written = fixture.write("dir/file", b"new").unwrap();
        assert_eq!(written.parted, 2);
        assert_eq!(fixture.content("work/dir/file"), "new");
        assert_eq!((fixture.content("work/beside").as_str(), fixture.content(name).as_str()), ("old", "old"));
        fs_err::remove_file(work.join("beside")).unwrap();
    }
}

/// Runs the test `name` of this module in a process of its own, within `bwrap` with these arguments.
fn within(name: &str, arguments: &[&str], base: &Path) {
    let ended = Command::new("bwrap")
        .args(["--dev-bind", "/", "/"])
        .args(arguments)
        .arg("--")
        .arg(std::env::current_exe().unwrap())
        .args([&format!("door::tests::keeping::{name}"), "--exact", "--nocapture"])
        .env(CHILD, base)
        .output()
        .expect("this needs bwrap: apt install bubblewrap");
    let said = [ended.stdout, ended.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(ended.status.success() && said.contains("it was written"), "{said}");
}

fn is_of_another(path: &Path) -> bool {
    fs_err::metadata(path).unwrap().uid() != rustix::process::getuid().as_raw()
}

/// Where no other file can come in its place, in a process that sees it so.
#[test]
fn process_that_cannot_rename() {
    let Some(base) = std::env::var_os(CHILD) else { return };
    let base = PathBuf::from(base);
    let workspace = Workspace::open(&base.join("work"), base.join("out")).unwrap();
    let place = workspace.resolve("dir/file").unwrap();
    let kept = workspace.output().join("call.before");
    // Where another file may come in its place, that one would have another owner.
    assert!(is_of_another(&place.path) || write_atomic(&place, b"new", Expected::Anything).is_err());
    fs_err::write(&place.path, "old").unwrap();
    let in_place = InPlace { workspace: &workspace, kept: &kept };
    let changed = write_keeping(&place, b"new", Expected::Content(hash(b"other")), &in_place);
    assert!(matches!(changed, Err(DoorError::Changed(_))), "{changed:?}");
    write_keeping(&place, b"new", Expected::Content(hash(b"old")), &in_place).unwrap();
    println!("it was written");
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_something_is_mounted_on_or_whose_directory_is_shut_is_written_in_place() {
    let fixture = fixture();
    let text = |path: &str| fixture.base.join(path).to_str().unwrap().to_owned();
    let (directory, file) = (text("work/dir"), text("work/dir/file"));
    let mounted = ["--bind", &text("secret/file"), &file];
    let shut = ["--ro-bind", &directory, &directory, "--bind", &file, &file];
    for (arguments, changed) in [(&mounted[..], "secret/file"), (&shut, "work/dir/file")] {
        let before = fixture.inode(changed);
        within("process_that_cannot_rename", arguments, &fixture.base);
        assert_eq!((fixture.content(changed).as_str(), fixture.inode(changed)), ("new", before));
        assert!(fixture.outputs().is_empty());
    }
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "only root can give a file away: scripts/test runs it where it is root, scripts/slow always"]
fn a_file_of_somebody_else_stays_theirs() {
    assert!(rustix::process::geteuid().is_root(), "only root can give a file away: run scripts/slow as root");
    let fixture = fixture();
    let path = fixture.base.join("work/dir/file");
    for (path, mode) in [(path.as_path(), 0o666), (&fixture.base.join("work/dir"), 0o777)] {
        fs_err::os::unix::fs::chown(path, Some(1234), Some(1234)).unwrap();
        fs_err::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let before = fixture.inode("work/dir/file");
    within(
        "process_that_cannot_rename",
        &["--unshare-user", "--uid", "1000", "--gid", "1000"],
        &fixture.base,
    );
    let now = fs_err::metadata(&path).unwrap();
    assert_eq!((now.uid(), now.gid(), now.ino()), (1234, 1234, before));
    assert_eq!(fixture.content("work/dir/file"), "new");
}

#[test]
fn a_write_in_place_that_fails_puts_the_old_content_back() {
    let fixture = fixture();
    let work = fixture.base.join("work");
    fs_err::hard_link(work.join("dir/file"), work.join("beside")).unwrap();
    let old = "old\n".repeat(50_000);
    fixture.write("dir/file", old.as_bytes()).unwrap();
    let new = "new!\n".repeat(60_000);
    cut::FAILS.set((100_000, 1));
    let error = fixture.write("dir/file", new.as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with("dir/file: No space left"), "{error}");
    assert!(fixture.content("work/beside") == old && fixture.outputs().is_empty());
    // Twice: the old content cannot be put back either.
    cut::FAILS.set((100_000, 2));
    let error = fixture.write("dir/file", new.as_bytes()).unwrap_err().to_string();
    let told = format!("it is in {} (", fixture.kept().display());
    assert!(error.contains(&told), "{error}");
    assert!(fs_err::read_to_string(fixture.kept()).unwrap() == old && fixture.content("work/beside") != old);
    // Whoever was told of it decides what to do.
    assert!(restore(&fixture.workspace).is_empty());
}

/// Writes in place, and is killed in the middle.
#[test]
fn process_that_is_killed() {
    let told = (std::env::var_os(CHILD), std::env::var(KILLED_AT));
    let (Some(base), Ok(at)) = told else { return };
    cut::KILLED_AT.store(at.parse().unwrap(), std::sync::atomic::Ordering::Relaxed);
    let base = PathBuf::from(base);
    let workspace = Workspace::open(&base.join("work"), base.join("out")).unwrap();
    let kept = workspace.output().join("prt_1.before");
    let in_place = InPlace { workspace: &workspace, kept: &kept };
    let new = fs_err::read(base.join("new")).unwrap();
    let written = write_keeping(&workspace.resolve("dir/file").unwrap(), &new, Expected::Anything, &in_place);
    panic!("it was not killed: {written:?}");
}

impl Fixture {
    /// Has a process write `new` over the file with two names that holds `old`, and kills it after `cut` bytes.
    fn cut(&self, old: &[u8], new: &[u8], cut: usize) {
        fs_err::write(self.base.join("work/dir/file"), old).unwrap();
        let _ = fs_err::hard_link(self.base.join("work/dir/file"), self.base.join("work/beside"));
        fs_err::write(self.base.join("new"), new).unwrap();
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["door::tests::keeping::process_that_is_killed", "--exact", "--nocapture"])
            .env(CHILD, &self.base)
            .env(KILLED_AT, cut.to_string())
            .output()
            .unwrap();
        let signal = std::os::unix::process::ExitStatusExt::signal(&ended.status);
        assert_eq!(signal, Some(9), "{}", String::from_utf8_lossy(&ended.stdout));
    }

    fn bytes(&self, path: &str) -> Vec<u8> {
        fs_err::read(self.base.join(path)).unwrap()
    }
}

#[test]
fn a_file_that_a_process_left_in_the_middle_gets_its_old_content_back() {
    let (short, long) = (b"short\n".repeat(20_000), b"a long line\n".repeat(30_000));
    for (old, new) in [(&short, &long), (&long, &short)] {
        for cut in [0, 1, 65_536, 100_000, new.len()] {
            let fixture = fixture();
            let out = fs_err::canonicalize(&fixture.base).unwrap().join("out");
            fixture.cut(old, new, cut);
            assert_eq!(fixture.outputs(), ["prt_1.before", "prt_1.before.json"]);
            assert!(fixture.bytes("out/prt_1.before") == **old);
            let torn = fixture.bytes("work/beside");
            let told = restore(&fixture.workspace);
            let expected = if torn == **old {
                assert_eq!(fixture.outputs(), ["prt_1.restored.json"]);
                "dir/file has its old content".to_owned()
            } else if torn == **new {
                "dir/file has its new content".to_owned()
            } else {
                assert_eq!(fixture.outputs(), ["prt_1.before", "prt_1.found", "prt_1.restored.json"]);
                assert!(fixture.bytes("out/prt_1.found") == torn && fixture.bytes("work/beside") == **old);
                let (kept, found) = (out.join("prt_1.before"), out.join("prt_1.found"));
                format!(
                    "dir/file had a part of the new content, and its old content was put back, which is also in {}; what it had is in {}",
                    kept.display(),
                    found.display()
                )
            };
            assert_eq!(told, BTreeMap::from([("prt_1".to_owned(), expected)]), "cut at {cut}");
            assert_eq!(fixture.bytes("work/beside") == **new, torn == **new);
            assert_eq!(fixture.inode("work/beside"), fixture.inode("work/dir/file"));
            // It is told again, and done once.
            fs_err::write(fixture.base.join("work/dir/file"), "mine").unwrap();
            assert_eq!(restore(&fixture.workspace), told);
            assert_eq!(fixture.content("work/dir/file"), "mine");
        }
    }
}

#[test]
fn what_somebody_else_wrote_or_is_at_work_on_is_left_alone() {
    let (old, new) = (b"old\n".repeat(40_000), b"new!\n".repeat(40_000));
    let left = |change: &dyn Fn(&Fixture)| {
        let fixture = fixture();
        fixture.cut(&old, &new, 65_536);
        change(&fixture);
        let before = fs_err::read(fixture.base.join("work/dir/file")).ok();
        let told = restore(&fixture.workspace).remove("prt_1").unwrap();
        assert_eq!(fs_err::read(fixture.base.join("work/dir/file")).ok(), before);
        let kept = format!(
            "its old content is in {}, and was not put back (",
            fixture.workspace.output().join("prt_1.before").display()
        );
        assert!(told.contains(&kept), "{told}");
        assert!(fixture.base.join("out/prt_1.before").exists());
    };
    left(&|fixture| fs_err::write(fixture.base.join("work/dir/file"), vec![b'x'; 1_000_000]).unwrap());
    left(&|fixture| fs_err::remove_file(fixture.base.join("work/dir/file")).unwrap());
    left(&|fixture| fs_err::write(fixture.base.join("out/prt_1.before"), "damaged").unwrap());

    let fixture = fixture();
    fixture.cut(&old, &new, 65_536);
    let record = fs_err::File::open(fixture.base.join("out/prt_1.before.json")).unwrap();
    rustix::fs::flock(&record, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert!(restore(&fixture.workspace).is_empty(), "it is at work");
    drop(record);
    assert_eq!(restore(&fixture.workspace).len(), 1);
    // A record that was not written to its end is of a write that had not begun.
    fs_err::write(fixture.base.join("out/prt_2.before.json"), "{\"path\":").unwrap();
    assert_eq!(restore(&fixture.workspace).len(), 1);
    assert!(!fixture.base.join("out/prt_2.before.json").exists());
}
