use std::fs::File;

use super::*;

/// A tree of files (`name` or `name=content`) and directories (`name/`).
fn tree(entries: &[&str]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for entry in entries {
        let (name, content) = entry.split_once('=').unwrap_or((entry, ""));
        let path = root.path().join(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        if name.ends_with('/') {
            fs_err::create_dir_all(path).unwrap();
        } else {
            fs_err::write(path, content).unwrap();
        }
    }
    root
}

#[allow(clippy::disallowed_methods)]
fn open(path: &Path) -> Directory {
    Directory::new(File::open(path).unwrap().into())
}

fn walk_with(root: &Path, inner: &str, limits: Limits, hidden: bool) -> (Vec<String>, Report) {
    let cancel = CancellationToken::new();
    let mut seen = Vec::new();
    let start = Start::below(open(root), Path::new(inner)).unwrap();
    let walk = Walk { hidden, depth: usize::MAX, limits, cancel: &cancel };
    let report = walk.run(start, &mut |found| {
        seen.push(found.path.to_str().unwrap().to_owned());
        Flow::Go
    });
    (seen, report)
}

fn walk(root: &Path, inner: &str) -> Vec<String> {
    walk_with(root, inner, Limits::default(), false).0
}

#[test]
fn names_come_in_order_and_hidden_ones_do_not() {
    let root = tree(&["b", "a/z", "a/b/c", ".hidden", ".git/config", "c/"]);
    assert_eq!(walk(root.path(), ""), ["a", "a/b", "a/b/c", "a/z", "b", "c"]);
    let (all, _) = walk_with(root.path(), "", Limits::default(), true);
    assert_eq!(all, [".hidden", "a", "a/b", "a/b/c", "a/z", "b", "c"]);
}

#[test]
fn ignore_files_are_obeyed_also_above_the_start_and_without_a_repository() {
    let root = tree(&[
        ".gitignore=*.log\n/target\nsub/deep/secret\n",
        "a.log",
        "a.txt",
        "target/x",
        "sub/.gitignore=!keep.log\n",
        "sub/keep.log",
        "sub/b.log",
        "sub/target/y",
        "sub/deep/secret",
        "sub/deep/c.log",
        "sub/deep/open",
    ]);
    let seen = walk(root.path(), "");
    assert_eq!(
        seen,
        ["a.txt", "sub", "sub/deep", "sub/deep/open", "sub/keep.log", "sub/target", "sub/target/y"]
    );
    assert_eq!(walk(root.path(), "sub/deep"), ["open"]);
    assert_eq!(walk(root.path(), "target"), ["x"], "what is named outright is searched");
}

#[test]
fn a_plain_ignore_file_beats_gitignore_and_a_nested_repository_has_its_own_rules() {
    let root = tree(&[
        ".gitignore=x\ny\n",
        ".ignore=!x\n",
        ".git/info/exclude=z\n",
        "x",
        "y",
        "z",
        "inner/.git/HEAD",
        "inner/y",
        "inner/z",
    ]);
    assert_eq!(walk(root.path(), ""), ["inner", "inner/y", "inner/z", "x"]);
}

#[test]
fn what_an_ignore_file_asks_for_is_shown_though_hidden() {
    let root = tree(&[".gitignore=!.github\n", ".github/ci", ".github/.other", ".env", "a"]);
    assert_eq!(walk(root.path(), ""), [".github", ".github/ci", "a"]);
}

#[test]
fn the_ignore_file_of_ripgrep_counts_most() {
    let root = tree(&[".ignore=x\n!y\n", ".rgignore=!x\ny\n", "sub/.ignore=x\n", "x", "y", "sub/x", "sub/y"]);
    assert_eq!(walk(root.path(), ""), ["sub", "sub/x", "x"]);
}

#[test]
fn links_are_not_followed_and_hostile_ignore_files_are_harmless() {
    let root = tree(&["a/b", "piped/c", "linked/d"]);
    std::os::unix::fs::symlink("/", root.path().join("out")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", root.path().join("linked/.gitignore")).unwrap();
    let pipe = root.path().join("piped/.gitignore");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    assert_eq!(walk(root.path(), ""), ["a", "a/b", "linked", "linked/d", "out", "piped", "piped/c"]);
    assert!(Start::below(open(root.path()), Path::new("out/etc")).is_err());
}

#[test]
fn a_walk_ends_at_its_limits() {
    let root = tree(&["a/1", "a/2", "b/1", "c/1"]);
    let few = Limits { entries: 4, ..Limits::default() };
    let (seen, report) = walk_with(root.path(), "", few, false);
    assert_eq!(report.outcome, Outcome::Entries);
    assert!(seen.len() <= 4, "{seen:?}");
    assert!(report.shortfall(&few).contains("stopped after 4 entries"));

    let none = Limits { time: Duration::ZERO, ..Limits::default() };
    assert_eq!(walk_with(root.path(), "", none, false).1.outcome, Outcome::Time);
}

#[test]
fn a_cancelled_walk_visits_nothing_more() {
    let root = tree(&["a", "b", "c"]);
    let cancel = CancellationToken::new();
    let mut seen = 0;
    let walk = Walk { hidden: false, depth: usize::MAX, limits: Limits::default(), cancel: &cancel };
    let start = Start::below(open(root.path()), Path::new("")).unwrap();
    let report = walk.run(start, &mut |_| {
        seen += 1;
        cancel.cancel();
        Flow::Go
    });
    assert_eq!((seen, report.outcome), (1, Outcome::Cancelled));
}

#[test]
fn a_tree_deeper_than_the_limit_is_told() {
    let root = tempfile::tempdir().unwrap();
    fs_err::create_dir_all(root.path().join("d/".repeat(DEPTH + 5))).unwrap();
    let (seen, report) = walk_with(root.path(), "", Limits::default(), false);
    assert_eq!((seen.len(), report.unreadable), (DEPTH, 1));
}
