use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use fs_err as fs;
use fs_err::os::unix::fs::symlink;
use tempfile::TempDir;

use super::*;
use crate::LINK;

/// A workspace with its index.
struct Stage {
    folder: TempDir,
    root: PathBuf,
    index: Arc<TreeIndex>,
}

impl Stage {
    fn new(files: &[(&str, &str)]) -> Self {
        Self::with(TreeLimits::default(), files)
    }

    fn with(limits: TreeLimits, files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap().join("work");
        fs::create_dir(&root).unwrap();
        let index = Arc::new(TreeIndex::new(&root, folder.path(), limits));
        let stage = Self { folder, root, index };
        files.iter().for_each(|(path, content)| stage.write(path, content));
        stage
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn git(&self, arguments: &str) {
        let status = std::process::Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"])
            .args(arguments.split(' '))
            .current_dir(&self.root)
            .env("HOME", self.folder.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .unwrap();
        assert!(status.status.success(), "git {arguments}: {status:?}");
    }

    fn begin(&self, session: &str) -> Tracking {
        self.index.begin(&Watcher { session: session.into(), turn: "t".into() })
    }

    /// What the work changed, seen by one session.
    fn seen(&self, work: impl FnOnce()) -> SeenChanges {
        let tracking = self.begin("s");
        work();
        tracking.end()
    }
}

fn text(state: &Option<FileState>) -> String {
    match state {
        None => "-".to_owned(),
        Some(FileState { bytes: Some(bytes), .. }) => String::from_utf8_lossy(bytes).into_owned(),
        Some(FileState { content: Some(_), .. }) => "(hash)".to_owned(),
        Some(_) => "(unknown)".to_owned(),
    }
}

/// Each change as `path: before > after`.
fn told(seen: &SeenChanges, root: &Path) -> Vec<String> {
    let told = |write: &FileWrite| {
        let path = write.path.strip_prefix(root).unwrap().display();
        format!("{path}: {} > {}", text(&write.before), text(&write.after))
    };
    seen.files.iter().map(told).collect()
}

#[test]
fn every_kind_of_change_is_seen_with_what_was_there() {
    let stage = Stage::new(&[
        ("a", "one"),
        ("b", "bee"),
        ("d/c", "sea"),
        ("mode", "m"),
        ("same", "s"),
        ("f", "file"),
    ]);
    symlink("a", stage.root.join("link")).unwrap();
    let seen = stage.seen(|| {
        stage.write("a", "two");
        fs::remove_file(stage.root.join("b")).unwrap();
        fs::remove_dir_all(stage.root.join("d")).unwrap();
        stage.write("new/e", "made");
        fs::set_permissions(stage.root.join("mode"), Permissions::from_mode(0o755)).unwrap();
        stage.write("same", "s");
        fs::remove_file(stage.root.join("link")).unwrap();
        symlink("b", stage.root.join("link")).unwrap();
        fs::remove_file(stage.root.join("f")).unwrap();
        stage.write("f/inner", "below");
    });
    let expected = [
        "a: one > two",
        "b: bee > -",
        "d/c: sea > -",
        "f: file > -",
        "f/inner: - > below",
        "link: a > b",
        "mode: m > m",
        "new/e: - > made",
    ];
    assert_eq!(told(&seen, &stage.root), expected);
    assert_eq!(seen.files[5].before.as_ref().unwrap().mode & crate::TYPE, LINK);
    assert!(seen.ambiguous.is_empty() && seen.not_covered.is_empty() && seen.gaps.is_empty(), "{seen:?}");
    assert_eq!(stage.seen(|| ()), SeenChanges::default());
}

#[test]
fn two_quick_writes_of_one_length_are_told_apart() {
    let stage = Stage::new(&[("a", "0")]);
    for round in 1..50_u8 {
        let seen = stage.seen(|| stage.write("a", &(round % 10).to_string()));
        assert_eq!(told(&seen, &stage.root), [format!("a: {} > {}", (round - 1) % 10, round % 10)]);
    }
}

#[test]
fn what_changes_between_calls_is_nobodys() {
    let stage = Stage::new(&[("a", "one")]);
    assert_eq!(stage.seen(|| ()), SeenChanges::default());
    stage.write("a", "by a person");
    let seen = stage.seen(|| stage.write("b", "by the command"));
    assert_eq!(told(&seen, &stage.root), ["b: - > by the command"]);
}

#[tokio::test]
async fn what_git_packed_is_not_kept_and_can_be_had_without_git() {
    let stage = Stage::new(&[
        ("packed", "in a pack\n"),
        ("crlf.txt", "a\r\nb\r\n"),
        ("up.filtered", "LOUD"),
        ("dirty", "x"),
    ]);
    stage.write(".gitattributes", "*.txt text eol=crlf\n*.filtered filter=none\n");
    stage.git("init -q");
    stage.git("add -A");
    stage.git("commit -qm x");
    stage.git("repack -adq");
    // What was written in the moment in which git looked is not trusted.
    let past = std::time::SystemTime::now() - Duration::from_secs(60);
    for name in ["packed", "crlf.txt", "up.filtered"] {
        fs::File::options().write(true).open(stage.root.join(name)).unwrap().set_modified(past).unwrap();
    }
    stage.write("dirty", "changed since");
    stage.git("status -s");
    stage.index.ask_git().await;
    let tracking = stage.begin("s");
    {
        let state = stage.index.lock();
        let content = |name: &str| state.files.as_ref().unwrap()[name.as_bytes()].content.clone();
        assert!(matches!(content("packed"), Content::Packed(_)), "{:?}", content("packed"));
        assert!(matches!(content("crlf.txt"), Content::Packed(_)));
        assert!(matches!(content("up.filtered"), Content::Spooled(_)), "its content is not git's");
        assert!(matches!(content("dirty"), Content::Spooled(_)));
    }
    fs::remove_dir_all(stage.root.join(".git")).unwrap();
    for name in ["packed", "crlf.txt", "up.filtered", "dirty"] {
        stage.write(name, "gone");
    }
    let seen = tracking.end();
    let expected = [
        "crlf.txt: a\r\nb\r\n > gone",
        "dirty: changed since > gone",
        "packed: in a pack\n > gone",
        "up.filtered: LOUD > gone",
    ];
    assert_eq!(told(&seen, &stage.root), expected);
    assert!(seen.not_covered.is_empty(), "{:?}", seen.not_covered);
}

#[test]
fn what_git_ignores_is_seen_and_not_kept_unless_it_is_named() {
    let include = vec!["/conf/*.local".to_owned(), "*.env".to_owned()];
    let limits = TreeLimits { include, ..TreeLimits::default() };
    let files = [
        (".gitignore", "*.log\n*.env\nconf/\nbuilt/\n"),
        ("a.log", "old"),
        ("b.env", "old"),
        ("conf/c.local", "old"),
        ("conf/d.other", "old"),
        ("built/e", "old"),
    ];
    let stage = Stage::with(limits, &files);
    let seen = stage.seen(|| files[1..].iter().for_each(|(path, _)| stage.write(path, "new")));
    let expected = ["a.log: (unknown) > (unknown)", "b.env: old > new", "conf/c.local: old > new"];
    assert_eq!(told(&seen, &stage.root), expected);
    assert_eq!(seen.not_covered, [(stage.root.join("a.log"), "git ignores it")]);
}

#[test]
fn what_two_sessions_may_have_changed_is_ambiguous() {
    let stage = Stage::new(&[("a", "one")]);
    let first = stage.begin("first");
    stage.write("alone", "by the first");
    let second = stage.begin("second");
    stage.write("both", "by one of them");
    let (second, root) = (second.end(), &stage.root);
    stage.write("again", "by the first");
    let first = first.end();
    assert_eq!(told(&second, root), ["both: - > by one of them"]);
    assert_eq!(second.ambiguous, [root.join("both")]);
    assert_eq!(
        told(&first, root),
        ["again: - > by the first", "alone: - > by the first", "both: - > by one of them"]
    );
    assert_eq!(first.ambiguous, [root.join("both")]);
}

#[test]
fn commands_of_one_session_share_no_change() {
    let stage = Stage::new(&[("a", "one")]);
    let behind = stage.begin("s");
    behind.in_background();
    stage.write("behind", "1");
    let before = stage.begin("s");
    stage.write("before", "1");
    assert_eq!(told(&before.end(), &stage.root), ["before: - > 1"]);
    assert_eq!(told(&behind.end(), &stage.root), ["behind: - > 1"]);
}

#[test]
fn what_a_tool_writes_meanwhile_is_not_the_commands() {
    let stage = Stage::new(&[("a", "one"), ("b", "one")]);
    let place = stage.root.join("a");
    let command = stage.begin("first");
    let held = stage.index.hold([place.as_path()]);
    let state = |content: &str| Some(FileState::new(hash(content.as_bytes()), content.as_bytes(), 0o100_644));
    stage.write("a", "by the tool");
    // Somebody looks between the write and its notice.
    drop(stage.begin("third"));
    held.wrote(&[FileWrite { path: place.clone(), before: state("one"), after: state("by the tool") }]);
    drop(held);
    stage.write("b", "by the command");
    assert_eq!(told(&command.end(), &stage.root), ["b: one > by the command"]);

    // The command changed it before the tool did.
    let command = stage.begin("first");
    stage.write("a", "by the command");
    let held = stage.index.hold([place.as_path()]);
    stage.write("a", "by both");
    held.wrote(&[FileWrite {
        path: place.clone(),
        before: state("by the command"),
        after: state("by both"),
    }]);
    drop(held);
    let seen = command.end();
    assert_eq!(
        (told(&seen, &stage.root), seen.ambiguous),
        (vec!["a: by the tool > by both".to_owned()], vec![place])
    );
}

#[test]
fn limits_are_told_and_cost_no_time() {
    let few = TreeLimits { files: 2, ..TreeLimits::default() };
    let stage = Stage::with(few, &[("a", "1"), ("b", "2"), ("c", "3")]);
    let seen = stage.seen(|| stage.write("a", "new"));
    assert!(
        seen.files.is_empty() && seen.gaps.len() == 1 && seen.gaps[0].contains("more than 2 files"),
        "{seen:?}"
    );
    // It is not looked at again, although it would do by now.
    fs::remove_file(stage.root.join("c")).unwrap();
    assert_eq!(stage.seen(|| ()).gaps, seen.gaps);

    let little = TreeLimits { kept: 4, ..TreeLimits::default() };
    let stage = Stage::with(little, &[("a", "123"), ("b", "123"), ("c", "123456")]);
    let seen = stage.seen(|| ["a", "b", "c", "new"].iter().for_each(|path| stage.write(path, "7")));
    let told_of = told(&seen, &stage.root);
    // Which of the two files has room is not said.
    let kept = told_of.iter().filter(|told| told.ends_with(": 123 > 7")).count();
    assert!(
        kept == 1 && told_of.contains(&"c: (unknown) > 7".into()) && told_of.contains(&"new: - > 7".into()),
        "{told_of:?}"
    );
    assert_eq!(seen.not_covered.len(), 2);

    let stage = Stage::new(&[("a", "1")]);
    let large = "x".repeat(3_000_000);
    let seen = stage.seen(|| stage.write("large", &large));
    assert_eq!((told(&seen, &stage.root), seen.not_covered), (vec!["large: - > (hash)".to_owned()], vec![]));
    let seen = stage.seen(|| fs::remove_file(stage.root.join("large")).unwrap());
    assert_eq!(told(&seen, &stage.root), ["large: (hash) > -"]);
    assert_eq!(seen.not_covered, [(stage.root.join("large"), "it is too large")]);
}

#[test]
fn a_folder_that_cannot_be_read_is_not_empty() {
    let stage = Stage::new(&[("shut/a", "1"), ("b", "1")]);
    assert_eq!(stage.seen(|| ()), SeenChanges::default());
    fs::set_permissions(stage.root.join("shut"), Permissions::from_mode(0o0)).unwrap();
    let is_shut = fs::read_dir(stage.root.join("shut")).is_err();
    let seen = stage.seen(|| stage.write("b", "2"));
    assert_eq!(told(&seen, &stage.root), ["b: 1 > 2"]);
    fs::set_permissions(stage.root.join("shut"), Permissions::from_mode(0o755)).unwrap();
    // Who may read everything sees nothing of it.
    assert!(is_shut || rustix::process::geteuid().is_root());
}

#[test]
fn contents_that_nothing_stands_for_are_forgotten() {
    let stage = Stage::new(&[]);
    let mut state = stage.index.lock();
    let (kept, gone) = (hash(b"kept"), hash(b"gone"));
    state.spool.put(kept, b"kept").unwrap();
    state.spool.put(gone, b"gone").unwrap();
    state.spool.keep_only(&HashSet::from([kept]));
    assert_eq!((state.spool.get(kept), state.spool.get(gone)), (Some(b"kept".to_vec()), None));
}
