use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use fs_err as fs;
use fs_err::os::unix::fs::symlink;
use tempfile::TempDir;

use super::noted::BESIDE;
use super::*;

mod folders;
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
        let index = Arc::new(TreeIndex::new(&root, folder.path(), limits, &[root.join("data")]));
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

    /// Commits all files and packs them, the one of this name as written a while ago, and asks git.
    async fn ask_of_a_pack(&self, name: &str) {
        self.git("add -A");
        self.git("commit -qm x");
        self.git("repack -adq");
        // What was written in the moment in which git looked is not trusted.
        let past = std::time::SystemTime::now() - Duration::from_secs(60);
        fs::File::options().write(true).open(self.root.join(name)).unwrap().set_modified(past).unwrap();
        self.git("status -s");
        self.index.ask_git().await;
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
        let state = stage.index.state.lock();
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

#[tokio::test]
async fn where_attributes_may_lie_elsewhere_contents_are_kept() {
    let stage = Stage::new(&[("packed", "in a pack\n")]);
    stage.git("init -q");
    stage.git("config core.attributesFile /nowhere");
    stage.ask_of_a_pack("packed").await;
    let tracking = stage.begin("s");
    let content = stage.index.state.lock().files.as_ref().unwrap()[b"packed".as_slice()].content.clone();
    assert!(matches!(content, Content::Spooled(_)), "{content:?}");
    drop(tracking);
}

#[test]
fn a_workspace_that_takes_too_long_is_looked_at_ever_more_rarely() {
    let scan = Duration::from_nanos(1);
    let stage = Stage::with(TreeLimits { scan, ..TreeLimits::default() }, &[("a", "x")]);
    let pause = || {
        let seen = stage.seen(|| ());
        assert!(seen.gaps.iter().any(|gap| gap.contains("takes longer than")), "{seen:?}");
        stage.index.state.lock().slow
    };
    assert!(pause() < pause(), "the pause after the first time is over");
    stage.index.state.lock().slow = 60;
    assert!(pause() > 60, "however often");
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
    let among = vec!["first".to_owned(), "second".to_owned()];
    let doubtful = || vec![Doubtful { path: root.join("both"), among: among.clone() }];
    assert_eq!(told(&second, root), ["both: - > by one of them"]);
    assert_eq!(second.ambiguous, doubtful());
    assert_eq!(
        told(&first, root),
        ["again: - > by the first", "alone: - > by the first", "both: - > by one of them"]
    );
    assert_eq!(first.ambiguous, doubtful());
}

#[test]
fn commands_of_one_session_share_no_change() {
    let stage = Stage::new(&[("a", "one")]);
    let behind = stage.begin("s");
    behind.in_background();
    stage.index.state.lock().running[0].since = Instant::now().checked_sub(2 * BESIDE).unwrap();
    stage.write("behind", "1");
    let before = stage.begin("s");
    stage.write("before", "1");
    assert_eq!(told(&before.end(), &stage.root), ["before: - > 1"]);
    // People work beside one that runs for long.
    let behind = behind.end();
    assert_eq!((told(&behind, &stage.root), behind.ambiguous.len()), (vec!["behind: - > 1".to_owned()], 1));
}

#[test]
fn what_a_tool_writes_meanwhile_is_not_the_commands() {
    let stage = Stage::new(&[("a", "one"), ("b", "one")]);
    let place = stage.root.join("a");
    let command = stage.begin("first");
    let held = stage.index.hold(&"tool".into(), [place.as_path()]);
    let state = |content: &str| Some(FileState::new(hash(content.as_bytes()), content.as_bytes(), 0o100_644));
    stage.write("a", "by the tool");
    // Somebody looks between the write and its notice.
    drop(stage.begin("third"));
    held.wrote(&[FileWrite { path: place.clone(), before: state("one"), after: state("by the tool") }], &[]);
    stage.write("b", "by the command");
    assert_eq!(told(&command.end(), &stage.root), ["b: one > by the command"]);

    // The command changed it before the tool did.
    let command = stage.begin("first");
    stage.write("a", "by the command");
    let held = stage.index.hold(&"tool".into(), [place.as_path()]);
    stage.write("a", "by both");
    held.wrote(
        &[FileWrite { path: place.clone(), before: state("by the command"), after: state("by both") }],
        &[],
    );
    let seen = command.end();
    assert_eq!(
        (told(&seen, &stage.root), seen.ambiguous),
        (vec!["a: by the tool > by both".to_owned()], vec![Doubtful { path: place, among: Vec::new() }])
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
    let mut state = stage.index.state.lock();
    let (kept, gone) = (hash(b"kept"), hash(b"gone"));
    state.spool.put(kept, b"kept").unwrap();
    state.spool.put(gone, b"gone").unwrap();
    state.spool.keep_only(&HashSet::from([kept]));
    assert_eq!((state.spool.get(kept), state.spool.get(gone)), (Some(b"kept".to_vec()), None));
}

#[test]
fn a_tool_that_was_cut_off_leaves_it_open_whose_a_change_is() {
    let stage = Stage::new(&[("a", "one"), ("b", "one")]);
    let command = stage.begin("first");
    drop(stage.index.hold(&"tool".into(), [stage.root.join("a").as_path(), stage.root.join("b").as_path()]));
    stage.write("a", "by one of them");
    let seen = command.end();
    assert_eq!(
        (told(&seen, &stage.root), seen.ambiguous),
        (
            vec!["a: one > by one of them".into()],
            vec![Doubtful { path: stage.root.join("a"), among: Vec::new() }]
        )
    );
}

#[tokio::test]
async fn a_packed_or_new_file_that_a_command_changed_before_a_tool_is_of_both() {
    let stage = Stage::new(&[("packed", "one\n")]);
    stage.git("init -q");
    stage.ask_of_a_pack("packed").await;
    let command = stage.begin("first");
    for name in ["packed", "new"] {
        stage.write(name, "by the command\n");
        let place = stage.root.join(name);
        let held = stage.index.hold(&"tool".into(), [place.as_path()]);
        stage.write(name, "by both\n");
        let state =
            |content: &str| Some(FileState::new(hash(content.as_bytes()), content.as_bytes(), 0o100_644));
        held.wrote(
            &[FileWrite { path: place, before: state("by the command\n"), after: state("by both\n") }],
            &[],
        );
    }
    let seen = command.end();
    assert_eq!(told(&seen, &stage.root), ["new: - > by both\n", "packed: one\n > by both\n"]);
    assert_eq!(seen.ambiguous.len(), 2);
}

#[test]
fn the_engines_own_files_are_no_files_of_the_workspace() {
    let stage = Stage::new(&[("data/log", "one"), ("a", "one")]);
    let seen = stage.seen(|| ["data/log", "data/new", "a"].iter().for_each(|path| stage.write(path, "two")));
    assert_eq!(told(&seen, &stage.root), ["a: one > two"]);
}

#[test]
fn a_look_that_is_given_up_makes_no_file_gone() {
    let limits = TreeLimits { files: 3, ..TreeLimits::default() };
    let stage = Stage::with(limits, &[("a", "one"), ("b", "one")]);
    let command = stage.begin("first");
    stage.write("a", "two");
    drop(stage.begin("second"));
    ["c", "d", "e"].iter().for_each(|path| stage.write(path, "more"));
    let seen = command.end();
    assert!(seen.files.is_empty() && seen.gaps.len() == 1, "{seen:?}");
}

#[test]
fn what_had_no_room_is_kept_by_a_later_turn() {
    let limits = TreeLimits { kept: 4, ..TreeLimits::default() };
    let stage = Stage::with(limits, &[("a", "123"), ("b", "123 too")]);
    let begin = |turn: &str| stage.index.begin(&Watcher { session: "s".into(), turn: turn.into() });
    drop((begin("one"), begin("two")));
    let stage_of =
        |path: &str| stage.index.state.lock().files.as_ref().unwrap()[path.as_bytes()].content.clone();
    assert!(
        matches!(stage_of("a"), Content::Spooled(_)) && matches!(stage_of("b"), Content::Unread(Why::NoRoom))
    );
    let limits = TreeLimits { kept: 7, ..TreeLimits::default() };
    let stage = Stage::with(limits, &[("a", "123"), ("b", "123 too")]);
    let begin = |turn: &str| stage.index.begin(&Watcher { session: "s".into(), turn: turn.into() });
    drop((begin("one"), begin("two")));
    let state = stage.index.state.lock();
    let is_kept = |entry: &Entry| matches!(entry.content, Content::Spooled(_));
    assert!(state.files.as_ref().unwrap().values().all(is_kept), "{:?}", state.files);
}

#[test]
fn rules_of_a_repository_above_count() {
    let folder = tempfile::tempdir().unwrap();
    let top = fs::canonicalize(folder.path()).unwrap();
    fs::create_dir_all(top.join(".git/info")).unwrap();
    fs::write(top.join(".git/info/exclude"), "*.tmp\n").unwrap();
    fs::write(top.join(".gitignore"), "/app/built/\n*.log\n").unwrap();
    fs::create_dir_all(top.join("app/built")).unwrap();
    let root = top.join("app");
    let index = Arc::new(TreeIndex::new(&root, folder.path(), TreeLimits::default(), &[]));
    let tracking = index.begin(&Watcher { session: "s".into(), turn: "t".into() });
    for path in ["built/out", "a.log", "b.tmp", "c"] {
        fs::write(root.join(path), "x").unwrap();
    }
    let seen = tracking.end();
    assert_eq!(told(&seen, &root), ["a.log: - > (unknown)", "b.tmp: - > (unknown)", "c: - > x"]);
}

/// What was told, each as `kind path by`.
fn heard(stage: &Stage) -> Vec<String> {
    let news = stage.index.news().unwrap();
    let told = |file: &FileChange| {
        let path = file.path.strip_prefix(&stage.root).unwrap().display();
        let by = match &file.by {
            ChangedBy::Session(session) => session.to_string(),
            by => format!("{by:?}"),
        };
        format!("{:?} {path} {by}", file.kind)
    };
    news.files.iter().map(told).collect()
}

fn watched(files: &[(&str, &str)]) -> Stage {
    let stage = Stage::new(files);
    stage.git("init -q");
    assert!(stage.index.expect_watch());
    stage.index.watch().unwrap();
    assert_eq!(heard(&stage), [""; 0]);
    stage
}

#[test]
fn what_changes_in_a_watched_workspace_is_told_with_who_did_it() {
    let stage = watched(&[
        (".gitignore", "*.log\nbuilt/\n"),
        ("a", "1"),
        ("d/e/f", "2"),
        ("built/x", "3"),
        ("b", "4"),
    ]);
    stage.write("a", "one");
    stage.write("n.log", "ignored");
    stage.write("built/x", "ignored");
    stage.write("new/below/it", "made");
    fs::remove_dir_all(stage.root.join("d")).unwrap();
    fs::rename(stage.root.join("b"), stage.root.join("c")).unwrap();
    let told = ["Modified a Outside", "Deleted b Outside", "Added c Outside", "Deleted d/e/f Outside"];
    let told = told.into_iter().chain(["Added new/below/it Outside"]);
    assert_eq!(heard(&stage), told.collect::<Vec<_>>());
    // Folders that came later are watched as well.
    stage.write("new/below/it", "changed");
    fs::rename(stage.root.join("new"), stage.root.join("moved")).unwrap();
    stage.write("moved/below/too", "made");
    let told =
        ["Added moved/below/it Outside", "Added moved/below/too Outside", "Deleted new/below/it Outside"];
    assert_eq!(heard(&stage), told);
    let command = stage.begin("s");
    stage.write("moved/below/it", "by a command");
    assert_eq!(heard(&stage), ["Modified moved/below/it s"]);
    let other = stage.begin("t");
    stage.write("a", "by one of two");
    assert_eq!(heard(&stage), ["Modified a Unclear"]);
    drop((command, other));
    // A tool says itself what it writes.
    let path = stage.root.join("a");
    let before = FileState { content: Some(hash(b"by one of two")), size: 13, bytes: None, mode: 0o100644 };
    let held = stage.index.hold(&"tool".into(), [path.as_path()]);
    stage.write("a", "by a tool");
    assert_eq!(heard(&stage), [""; 0]);
    let after = FileState { content: Some(hash(b"by a tool")), size: 9, bytes: None, mode: 0o100644 };
    held.wrote(&[FileWrite { path, before: Some(before), after: Some(after) }], &[]);
    assert_eq!(heard(&stage), ["Modified a tool"]);
    assert_eq!(heard(&stage), [""; 0]);
    // Rules that change say what is a file.
    stage.write(".gitignore", "a\n");
    assert_eq!(heard(&stage), ["Modified .gitignore Outside", "Added built/x Outside"]);
}

#[test]
fn a_command_in_a_watched_workspace_is_seen_as_without_a_watch() {
    let files =
        [(".gitignore", "built/\n"), ("a", "one"), ("d/b", "two"), ("d/sub/c", "three"), ("gone/x", "four")];
    let work = |stage: &Stage| {
        stage.write("a", "1");
        stage.write("d/sub/c", "3");
        stage.write("d/sub/new", "n");
        stage.write("built/ignored", "i");
        stage.write("made/deep/er", "m");
        fs::remove_dir_all(stage.root.join("gone")).unwrap();
        fs::rename(stage.root.join("d"), stage.root.join("e")).unwrap();
        fs::set_permissions(stage.root.join("e/b"), Permissions::from_mode(0o755)).unwrap();
    };
    let plain = Stage::new(&files);
    let seen = plain.seen(|| work(&plain));
    let heard = watched(&files);
    let seen_too = heard.seen(|| work(&heard));
    assert_eq!(told(&seen_too, &heard.root), told(&seen, &plain.root));
    assert_eq!(seen.files.len(), 8, "{:?}", told(&seen, &plain.root));
    assert_eq!((seen_too.not_covered, seen_too.gaps), (vec![], vec![]));
    // What a person wrote between two commands is there before the second one.
    heard.write("a", "by hand");
    heard.index.news().unwrap();
    let seen = heard.seen(|| heard.write("a", "by a command"));
    assert_eq!(told(&seen, &heard.root), ["a: by hand > by a command"]);
}

#[test]
fn events_that_were_lost_cost_one_look_at_everything() {
    let stage = watched(&[("a", "1"), ("d/b", "2")]);
    stage.index.state.lock().dirty.all = true;
    stage.write("d/b", "two");
    assert_eq!(heard(&stage), ["Modified d/b Outside"]);
    // The watch goes on.
    stage.write("d/b", "three");
    stage.write("d/c", "new");
    assert!(!stage.index.state.lock().dirty.all);
    assert_eq!(heard(&stage), ["Modified d/b Outside", "Added d/c Outside"]);
    // Another folder in the place of the workspace is another one.
    fs::rename(&stage.root, stage.root.with_file_name("old")).unwrap();
    fs::create_dir(&stage.root).unwrap();
    stage.write("a", "other");
    assert_eq!(heard(&stage), ["Modified a Outside", "Deleted d/b Outside", "Deleted d/c Outside"]);
    stage.write("a", "again");
    assert_eq!(heard(&stage), ["Modified a Outside"]);
    fs::remove_dir_all(&stage.root).unwrap();
    stage.index.news();
    assert_eq!(stage.index.news(), None);
}

#[test]
fn hearing_of_changes_costs_no_content_that_is_kept() {
    let stage = watched(&[("a", "one"), ("b", "bee")]);
    let first = stage.begin("s");
    stage.write("a", "two");
    first.end();
    let second = stage.begin("s");
    // It changed so shortly ago that it is read again, for which there is no room when news is asked for.
    stage.write("b", "two");
    stage.index.news().unwrap();
    stage.write("a", "three");
    let seen = second.end();
    assert_eq!(told(&seen, &stage.root), ["a: two > three", "b: bee > two"]);
    assert_eq!(seen.not_covered, []);
}

#[test]
fn what_no_event_tells_of_is_seen() {
    let stage = watched(&[("a", "one"), ("d/x", "ex"), ("e", "3")]);
    let outer = stage.root.with_file_name("outer");
    fs::write(&outer, "linked").unwrap();
    fs::hard_link(&outer, stage.root.join("d/link")).unwrap();
    stage.index.news().unwrap();
    let seen = stage.seen(|| fs::write(&outer, "through the other name").unwrap());
    assert_eq!(told(&seen, &stage.root), ["d/link: linked > through the other name"]);
    fs::remove_file(stage.root.join("d/link")).unwrap();
    // Rules that lie in no watched folder.
    fs::create_dir_all(stage.root.join(".git/info")).unwrap();
    fs::write(stage.root.join(".git/info/exclude"), "fresh/\n").unwrap();
    stage.index.news().unwrap();
    assert_eq!(stage.seen(|| stage.write("fresh/y", "ignored")).files, []);
    // A tool writes where folders are ignored: from then on the file counts.
    let path = stage.root.join("fresh/z");
    let held = stage.index.hold(&"tool".into(), [path.as_path()]);
    stage.write("fresh/z", "by a tool");
    let after = FileState::new(hash(b"by a tool"), b"by a tool", 0o100_644);
    held.wrote(&[FileWrite { path, before: None, after: Some(after) }], &[]);
    let seen = stage.seen(|| stage.write("fresh/z", "by a command"));
    assert_eq!(told(&seen, &stage.root), ["fresh/z: by a tool > by a command"]);
    fs::write(stage.root.join(".git/info/exclude"), "").unwrap();
    let seen = stage.seen(|| stage.write("fresh/y", "counts"));
    assert_eq!(told(&seen, &stage.root), ["fresh/y: ignored > counts"]);
}

/// Whatever is done, looking where something changed sees what looking at everything sees.
#[test]
fn looks_at_parts_see_what_a_look_at_everything_sees() {
    for seed in 0..40 {
        let stage = watched(&[(".gitignore", "*.log\nout/\n"), ("a/b/c", "1"), ("a/d", "2"), ("e", "3")]);
        let mut random = (seed + 1_u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut draw = |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random % below as u64).unwrap()
        };
        let names = ["a", "b", "out", "e", "x.log", "f"];
        let plain = Arc::new(TreeIndex::new(&stage.root, stage.folder.path(), TreeLimits::default(), &[]));
        let look = |index: &Arc<TreeIndex>| {
            drop(index.begin(&Watcher { session: "s".into(), turn: "t".into() }));
        };
        look(&plain);
        for step in 0..60 {
            let mut path = || -> PathBuf { (0..=draw(3)).map(|_| names[draw(names.len())]).collect() };
            let (one, other) = (stage.root.join(path()), stage.root.join(path()));
            // What cannot be done is left.
            let _ = match draw(10) {
                0..3 => fs::create_dir_all(one.parent().unwrap())
                    .and_then(|()| fs::write(&one, format!("{step}"))),
                3 => fs::remove_dir_all(&one),
                4 => fs::remove_file(&one),
                5 | 6 => fs::rename(&one, &other),
                7 => symlink(&other, &one),
                8 => fs::set_permissions(
                    &one,
                    Permissions::from_mode(if draw(2) == 0 { 0o755 } else { 0o700 }),
                ),
                _ => fs::write(stage.root.join(".gitignore"), ["out/\n", "*.log\n", "f\n", ""][draw(4)]),
            };
            if draw(3) == 0 {
                stage.index.news().unwrap();
                look(&plain);
            }
        }
        look(&stage.index);
        look(&plain);
        let known = |index: &TreeIndex| -> Vec<(String, Stamp, bool)> {
            let told = |path: &[u8], entry: &Entry| {
                (String::from_utf8_lossy(path).into_owned(), entry.stamp, entry.content.is_ignored())
            };
            index.state.lock().files.iter().flatten().map(|(path, entry)| told(path, entry)).collect()
        };
        assert!(stage.index.state.lock().watch.is_some());
        assert_eq!(known(&stage.index), known(&plain), "seed {seed}");
        assert_eq!(stage.index.state.lock().folders, plain.state.lock().folders, "seed {seed}");
    }
}
