use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use fs_err::os::unix::fs::symlink;

use super::*;
use crate::{Workspace, hash};

pub(super) mod cut;
mod keeping;

struct Fixture {
    _folder: tempfile::TempDir,
    base: PathBuf,
    workspace: Workspace,
}

/// `base/work` is the workspace, with `dir/file` in it; `base/secret/file` lies beside it.
fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let base = fs_err::canonicalize(folder.path()).unwrap();
    for (directory, content) in [("work/dir", "old"), ("secret", "secret")] {
        fs_err::create_dir_all(base.join(directory)).unwrap();
        fs_err::write(base.join(directory).join("file"), content).unwrap();
    }
    let workspace = Workspace::open(&base.join("work"), base.join("out")).unwrap();
    Fixture { _folder: folder, base, workspace }
}

impl Fixture {
    fn resolve(&self, path: &str) -> Resolved {
        self.workspace.resolve(path).unwrap()
    }

    fn content(&self, path: &str) -> String {
        fs_err::read_to_string(self.base.join(path)).unwrap()
    }

    /// `work/dir` becomes a link to `secret`, as a command may do between judgement and use.
    fn swap_directory(&self) {
        fs_err::rename(self.base.join("work/dir"), self.base.join("work/was")).unwrap();
        symlink(self.base.join("secret"), self.base.join("work/dir")).unwrap();
    }

    fn swap_file(&self) {
        fs_err::remove_file(self.base.join("work/dir/file")).unwrap();
        symlink(self.base.join("secret/file"), self.base.join("work/dir/file")).unwrap();
    }

    fn names(&self, directory: &str) -> Vec<(String, Kind)> {
        let entries = read_dir(&self.resolve(directory)).unwrap().map(Result::unwrap);
        let mut names: Vec<_> =
            entries.map(|entry| (entry.name.into_string().unwrap(), entry.kind)).collect();
        names.sort();
        names
    }
}

fn read(resolved: &Resolved) -> Result<String, DoorError> {
    let mut text = String::new();
    open_read(resolved)?.read_to_string(&mut text).unwrap();
    Ok(text)
}

#[test]
fn a_file_is_read_and_written() {
    let fixture = fixture();
    let file = fixture.resolve("dir/file");
    assert_eq!(read(&file).unwrap(), "old");
    let written = write_atomic(&file, b"new", Expected::Content(hash(b"old"))).unwrap();
    assert_eq!((written.created, written.hash, written.parted), (false, hash(b"new"), 0));
    assert_eq!(read(&file).unwrap(), "new");
    assert_eq!(facts(&file).unwrap().map(|facts| (facts.kind, facts.bytes)), Some((Kind::File, 3)));
    assert_eq!(fixture.names("dir"), [("file".to_owned(), Kind::File)]);
}

#[test]
fn new_files_come_with_their_directories() {
    let fixture = fixture();
    let file = fixture.resolve("a/b/c");
    assert!(matches!(write_atomic(&file, b"x", Expected::Nothing), Err(DoorError::Missing(_))));
    create_parents(&file).unwrap();
    create_parents(&file).unwrap();
    assert!(write_atomic(&file, b"x", Expected::Nothing).unwrap().created);
    assert_eq!(fixture.content("work/a/b/c"), "x");
    assert_eq!(create_parents(&fixture.resolve("dir/new/x")).unwrap(), [fixture.base.join("work/dir/new")]);
}

#[test]
fn what_is_not_as_expected_stays_as_it_is() {
    let fixture = fixture();
    let file = fixture.resolve("dir/file");
    let refused = |expected| write_atomic(&file, b"new", expected).unwrap_err();
    assert!(matches!(refused(Expected::Nothing), DoorError::Exists(_)));
    assert!(matches!(refused(Expected::Content(hash(b"other"))), DoorError::Changed(_)));
    let missing = fixture.resolve("dir/missing");
    let error = write_atomic(&missing, b"new", Expected::Content(hash(b"old"))).unwrap_err();
    assert!(matches!(error, DoorError::Changed(_)), "{error}");
    assert!(matches!(read(&missing), Err(DoorError::Missing(shown)) if shown == "dir/missing"));
    assert_eq!(facts(&missing).unwrap(), None);
    // Nothing is left over of what was not put in place.
    assert_eq!(fixture.names("dir"), [("file".to_owned(), Kind::File)]);
    assert_eq!(fixture.content("work/dir/file"), "old");
}

#[test]
fn a_link_that_was_put_into_the_way_is_not_followed() {
    for swap in [Fixture::swap_directory, Fixture::swap_file] {
        let fixture = fixture();
        let (file, new) = (fixture.resolve("dir/file"), fixture.resolve("dir/deep/new"));
        swap(&fixture);
        assert!(matches!(read(&file), Err(DoorError::Replaced(_))));
        for expected in [Expected::Anything, Expected::Content(hash(b"secret"))] {
            assert!(matches!(write_atomic(&file, b"new", expected), Err(DoorError::Replaced(_))));
        }
        assert!(write_atomic(&file, b"new", Expected::Nothing).is_err());
        assert_eq!(fixture.content("secret/file"), "secret");
        let _ = create_parents(&new);
        assert!(!fixture.base.join("secret/deep").exists());
    }
    let fixture = fixture();
    let (directory, parents) = (fixture.resolve("dir"), fixture.resolve("dir/deep/new"));
    fixture.swap_directory();
    assert!(matches!(read_dir(&directory), Err(DoorError::Replaced(_))));
    assert!(matches!(open_directory(&directory), Err(DoorError::Replaced(_))));
    assert!(matches!(create_parents(&parents), Err(DoorError::Replaced(_))));
}

#[test]
fn only_regular_files_are_opened_and_nothing_is_waited_for() {
    let fixture = fixture();
    let directory = fixture.base.join("work/dir");
    let pipe = std::process::Command::new("mkfifo").arg(directory.join("pipe")).status().unwrap();
    assert!(pipe.success());
    let _listener = UnixListener::bind(directory.join("socket")).unwrap();
    for (path, kind) in [("dir/pipe", "pipe"), ("dir/socket", "socket"), ("/dev/zero", "device")] {
        let resolved = fixture.resolve(path);
        assert!(
            matches!(read(&resolved), Err(DoorError::Special { kind: found, .. }) if found == kind),
            "{path}"
        );
        let written = write_atomic(&resolved, b"x", Expected::Anything);
        assert!(matches!(written, Err(DoorError::Special { .. })), "{path}");
    }
    assert!(matches!(read(&fixture.resolve("dir")), Err(DoorError::Directory(_))));
    assert!(matches!(read(&fixture.resolve("/")), Err(DoorError::Directory(_))));
    assert!(matches!(read_dir(&fixture.resolve("dir/file")), Err(DoorError::NotDirectory(_))));
    assert!(read_dir(&fixture.resolve("/")).is_ok());
    let kinds = [("file", Kind::File), ("pipe", Kind::Pipe), ("socket", Kind::Socket)];
    assert_eq!(fixture.names("dir"), kinds.map(|(name, kind)| (name.to_owned(), kind)));
}

#[test]
fn permissions_are_kept_and_honoured() {
    let fixture = fixture();
    let (path, file) = (fixture.base.join("work/dir/file"), fixture.resolve("dir/file"));
    let mode = |mode| fs_err::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o751);
    write_atomic(&file, b"new", Expected::Anything).unwrap();
    assert_eq!(fs_err::metadata(&path).unwrap().mode() & 0o7777, 0o751);
    mode(0o444);
    assert!(matches!(write_atomic(&file, b"x", Expected::Anything), Err(DoorError::ReadOnly(_))));
    assert_eq!(fixture.content("work/dir/file"), "new");
}

#[test]
fn other_names_of_a_file_keep_their_content() {
    let fixture = fixture();
    fs_err::hard_link(fixture.base.join("secret/file"), fixture.base.join("work/dir/hard")).unwrap();
    write_atomic(&fixture.resolve("dir/hard"), b"new", Expected::Content(hash(b"secret"))).unwrap();
    assert_eq!(fixture.content("work/dir/hard"), "new");
    assert_eq!(fixture.content("secret/file"), "secret");
}

#[test]
fn nothing_outside_is_touched_while_directories_files_and_links_change_places() {
    let fixture = fixture();
    let work = fixture.base.join("work");
    fs_err::create_dir(work.join("files")).unwrap();
    fs_err::write(work.join("files/one"), "old").unwrap();
    symlink(fixture.base.join("secret"), work.join("swapped")).unwrap();
    symlink(fixture.base.join("secret/file"), work.join("files/two")).unwrap();
    let (in_directory, in_file) = (fixture.resolve("dir/file"), fixture.resolve("files/one"));
    let (new, taken) = (fixture.resolve("dir/made/here/new"), fixture.resolve("dir/taken"));
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let held = rustix::fs::open(&work, OFlags::RDONLY, Mode::empty()).unwrap();
            let swap = |one, two| {
                // What a writer just takes away is swapped the next time.
                let _ = rustix::fs::renameat_with(&held, one, &held, two, rustix::fs::RenameFlags::EXCHANGE);
            };
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                swap("dir", "swapped");
                swap("files/one", "files/two");
            }
        });
        let mut worked = 0;
        for round in 0..3000 {
            for place in [&in_directory, &in_file] {
                match read(place) {
                    Ok(text) => assert_ne!(text, "secret"),
                    Err(error) => {
                        assert!(matches!(error, DoorError::Replaced(_) | DoorError::Missing(_)), "{error}")
                    }
                }
            }
            let content = format!("round {round}");
            worked +=
                usize::from(write_atomic(&in_directory, content.as_bytes(), Expected::Anything).is_ok());
            let _ = write_atomic(&in_file, content.as_bytes(), Expected::Anything);
            if create_parents(&new).is_ok() {
                let _ = write_atomic(&new, b"x", Expected::Anything);
            }
            let _ = write_atomic(&taken, b"x", Expected::Nothing);
            let _ = take(&taken, Expected::Anything).and_then(Taken::remove);
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(worked > 0, "nothing was written at all");
    });
    let secret = fs_err::read_dir(fixture.base.join("secret")).unwrap();
    assert_eq!(secret.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>(), ["file"]);
    assert_eq!(fixture.content("secret/file"), "secret");
}

#[test]
fn what_is_not_to_be_changed_or_seen_stays_shut() {
    let fixture = fixture();
    for path in ["work/.git/hooks", "out", "keys"] {
        fs_err::create_dir_all(fixture.base.join(path)).unwrap();
        fs_err::write(fixture.base.join(path).join("file"), "kept").unwrap();
    }
    let workspace = fixture.workspace.clone().hiding(vec![fixture.base.join("keys")]);
    for (path, seen) in [(".git/hooks/file", true), ("../out/file", true), ("../keys/file", false)] {
        let place = workspace.resolve(path).unwrap();
        let refused = [
            write_atomic(&place, b"x", Expected::Anything).map(drop),
            create_parents(&workspace.resolve(&format!("{path}s/new/x")).unwrap()).map(drop),
            check_takable(&place),
            take(&place, Expected::Anything).and_then(Taken::remove),
            write_like(&place, b"x", &fixture.resolve("dir/file")).map(drop),
        ];
        for refused in refused {
            let shut = matches!(refused, Err(DoorError::NotToChange(_) | DoorError::Hidden(_)));
            assert!(shut, "{path}: {refused:?}");
        }
        assert_eq!(read(&place).is_ok(), seen, "{path}");
        assert_eq!(fs_err::read_to_string(place.path).unwrap(), "kept");
    }
    assert!(matches!(read_dir(&workspace.resolve("../keys").unwrap()), Err(DoorError::Hidden(_))));
}

#[test]
fn private_files_are_private_and_follow_no_link() {
    let fixture = fixture();
    let path = fixture.base.join("out/deep/call.txt");
    drop(create_private(&path).unwrap());
    assert_eq!(fs_err::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(fs_err::metadata(path.parent().unwrap()).unwrap().mode() & 0o7777, 0o700);
    fs_err::remove_file(&path).unwrap();
    symlink(fixture.base.join("secret/file"), &path).unwrap();
    drop(create_private(&path).unwrap());
    assert_eq!(fixture.content("secret/file"), "secret");
    assert!(!fs_err::symlink_metadata(&path).unwrap().is_symlink());
}

#[test]
fn a_taken_file_goes_back_as_it_was() {
    let fixture = fixture();
    let file = fixture.resolve("dir/file");
    let path = fixture.base.join("work/dir/file");
    fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).unwrap();
    let before = fs_err::metadata(&path).unwrap();
    let same = || {
        let now = fs_err::metadata(&path).unwrap();
        assert_eq!((now.ino(), now.mode(), now.mtime()), (before.ino(), before.mode(), before.mtime()));
        assert_eq!(fixture.names("dir"), [("file".to_owned(), Kind::File)]);
    };
    let taken = take(&file, Expected::Content(hash(b"old"))).unwrap();
    assert!(facts(&file).unwrap().is_none());
    taken.put_back().unwrap();
    same();
    drop(take(&file, Expected::Anything).unwrap());
    same();
    assert!(matches!(take(&file, Expected::Content(hash(b"new"))), Err(DoorError::Changed(_))));
    assert!(matches!(take(&fixture.resolve("dir"), Expected::Anything), Err(DoorError::Directory(_))));
    assert!(matches!(take(&fixture.resolve("none"), Expected::Anything), Err(DoorError::Missing(_))));
    assert!(matches!(check_takable(&fixture.resolve("none")), Err(DoorError::Missing(_))));
    assert!(matches!(check_takable(&fixture.resolve("dir")), Err(DoorError::Directory(_))));
    check_takable(&file).unwrap();
    same();

    let target = fixture.resolve("dir/moved");
    write_like(&target, b"moved", &file).unwrap();
    take(&file, Expected::Anything).unwrap().remove().unwrap();
    assert_eq!(fixture.names("dir"), [("moved".to_owned(), Kind::File)]);
    assert_eq!(fs_err::metadata(&target.path).unwrap().mode() & 0o777, 0o750);
}

#[test]
fn a_taken_file_does_not_replace_what_came_in_its_place() {
    let fixture = fixture();
    let taken = take(&fixture.resolve("dir/file"), Expected::Anything).unwrap();
    fs_err::write(fixture.base.join("work/dir/file"), "other").unwrap();
    let error = taken.put_back().unwrap_err().to_string();
    assert!(error.starts_with("dir/file (kept beside it as .playhouse-"), "{error}");
    // What is swept has another name.
    assert!(error.contains(".kept): "), "{error}");
    assert_eq!(fixture.content("work/dir/file"), "other");
    assert_eq!(fixture.names("dir").len(), 2);
}

#[test]
fn made_directories_are_removed_unless_they_are_used() {
    let fixture = fixture();
    let made = create_parents(&fixture.resolve("a/b/c/file")).unwrap();
    assert_eq!(made, ["work/a", "work/a/b", "work/a/b/c"].map(|path| fixture.base.join(path)));
    fs_err::write(fixture.base.join("work/a/other"), "").unwrap();
    remove_empty(&made);
    assert_eq!(fixture.names("a"), [("other".to_owned(), Kind::File)]);
}

#[test]
fn a_file_has_the_mode_that_it_is_written_with_before_it_has_its_name() {
    let fixture = fixture();
    let kept = fixture.base.join("kept");
    let in_place = InPlace { workspace: &fixture.workspace, kept: &kept };
    for (path, mode) in [("dir/new", 0o604), ("dir/file", 0o600), ("dir/file", 0o4755)] {
        let place = fixture.resolve(path);
        let written = write_with_mode(&place, b"x", Expected::Anything, &in_place, 0o100_000 | mode).unwrap();
        assert_eq!(written.mode & 0o7777, mode, "{path}");
    }
    // The owner may write in a new folder until it has its own mode.
    make_folder(&fixture.resolve("made"), 0o2571).unwrap();
    let mode = || fs_err::metadata(fixture.base.join("work/made")).unwrap().mode() & 0o7777;
    assert_eq!(mode(), 0o2771);
    set_folder_mode(&fixture.resolve("made"), 0o2571).unwrap();
    assert_eq!(mode(), 0o2571);
    assert!(!make_folder(&fixture.resolve("made"), 0o755).unwrap());
    assert!(matches!(make_folder(&fixture.resolve("dir/file"), 0o755), Err(DoorError::Exists(_))));
    assert!(remove_folder(&fixture.resolve("made")).unwrap());
    assert!(!remove_folder(&fixture.resolve("dir")).unwrap());
    assert!(remove_folder(&fixture.resolve("dir/file")).is_err());
}
