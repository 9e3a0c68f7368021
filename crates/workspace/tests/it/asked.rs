//! What git is asked about a workspace, also one that wants to run programs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use playhouse_workspace::repository::{Change, Repository, Shows, Since, Status};

/// Everything may be told of.
/// Whatever waits for a pipe waits longer.
const PATIENCE: Duration = Duration::from_secs(300);
pub(crate) const ALL: Shows<'static> = &|_| true;

/// A directory with repositories in it.
pub(crate) struct Site {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) worktree: PathBuf,
}

fn try_git(folder: &Path, arguments: &[&str]) -> Output {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "protocol.file.allow=always"]);
    git.args(arguments).current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null");
    git.output().expect("git is needed: apt install git")
}

pub(crate) fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = try_git(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn commit(folder: &Path, message: &str) {
    git(folder, &["add", "--all"]);
    git(folder, &["commit", "--quiet", "--message", message]);
}

impl Site {
    /// An empty repository.
    pub(crate) fn new(kind: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let worktree = folder.path().canonicalize().unwrap().join("work");
        fs_err::create_dir(&worktree).unwrap();
        let site = Self { folder, worktree };
        git(&site.worktree, &[&["init", "--quiet", "--initial-branch=main"], kind].concat());
        site
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.worktree.join(path);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
    }

    pub(crate) fn repository(&self) -> Option<Repository> {
        // A machine at its limits takes long, and nothing is wrong with that.
        Some(Repository::open(&self.worktree, &[], &|_| false)?.patient(PATIENCE))
    }

    pub(crate) async fn changes(&self, since: Since) -> Vec<Change> {
        self.repository().unwrap().changes(&self.worktree, since, Some(3), ALL).await.unwrap()
    }

    /// Path, status, and lines that came and went.
    pub(crate) async fn told(&self, since: Since) -> Vec<(String, Status, u64, u64)> {
        let changes = self.changes(since).await.into_iter();
        changes.map(|change| (change.path, change.status, change.added, change.removed)).collect()
    }
}

pub(crate) fn row(path: &str, status: Status, added: u64, removed: u64) -> (String, Status, u64, u64) {
    (path.to_owned(), status, added, removed)
}

#[tokio::test]
async fn changes_are_told_with_what_git_does_not_know_yet() {
    let site = Site::new(&[]);
    for (path, text) in
        [("a.txt", "one\ntwo\n"), ("gone.txt", "x\n"), ("same.txt", "s\n"), ("in/deep.txt", "1\n")]
    {
        site.write(path, text);
    }
    site.write(".gitignore", "*.log\n");
    commit(&site.worktree, "one");
    assert!(site.changes(Since::Head).await.is_empty());
    site.write("a.txt", "one\n2\nthree\n");
    site.write("in/deep.txt", "2\n");
    site.write("new \"file\".txt", "n\n");
    site.write("x.log", "ignored\n");
    site.write("excluded", "x\n");
    site.write(".git/info/exclude", "excluded\n");
    fs_err::remove_file(site.worktree.join("gone.txt")).unwrap();
    // Other repositories in it are not looked into.
    git(&site.worktree, &["init", "--quiet", "nested"]);
    site.write("nested/file", "x\n");
    git(&site.worktree, &["add", "in/deep.txt"]);
    let before = state(&site.worktree.join(".git"));
    let expected = [
        row("a.txt", Status::Modified, 2, 1),
        row("gone.txt", Status::Deleted, 0, 1),
        row("in/deep.txt", Status::Modified, 1, 1),
        row("new \"file\".txt", Status::Added, 1, 0),
    ];
    assert_eq!(site.told(Since::Head).await, expected);
    let changes = site.changes(Since::Head).await;
    let patch = changes[0].patch.as_deref().unwrap();
    assert!(
        patch.starts_with("diff --git a/a.txt b/a.txt\n") && patch.ends_with("-two\n+2\n+three\n"),
        "{patch}"
    );
    assert!(changes[3].patch.as_deref().unwrap().ends_with("+n\n"), "{changes:?}");
    // Of a directory, what lies in it, named from there on.
    let repository = site.repository().unwrap();
    let inner = repository.changes(&site.worktree.join("in"), Since::Head, None, ALL).await.unwrap();
    assert_eq!((inner.len(), inner[0].path.as_str(), &inner[0].patch), (1, "deep.txt", &None));
    // One patch of all makes of the commit what is there now.
    let patch = repository.patch(&site.worktree, ALL).await.unwrap();
    assert_eq!(state(&site.worktree.join(".git")), before, "nothing was written into the repository");
    let other = site.folder.path().join("other");
    git(site.folder.path(), &["clone", "--quiet", "work", "other"]);
    fs_err::write(other.join("patch"), patch).unwrap();
    git(&other, &["apply", "patch"]);
    assert_eq!(fs_err::read_to_string(other.join("a.txt")).unwrap(), "one\n2\nthree\n");
    assert!(other.join("new \"file\".txt").exists() && !other.join("gone.txt").exists());
}

#[tokio::test]
async fn what_is_not_to_be_shown_is_not_told() {
    let site = Site::new(&[]);
    site.write("known.txt", "one\n");
    commit(&site.worktree, "one");
    site.write("keys/secret", "secret\n");
    site.write("open.txt", "open\n");
    let repository = site.repository().unwrap();
    let shows = |path: &Path| !path.starts_with(site.worktree.join("keys"));
    let changes = repository.changes(&site.worktree, Since::Head, Some(3), &shows).await.unwrap();
    assert_eq!((changes.len(), changes[0].path.as_str()), (1, "open.txt"));
    let patch = String::from_utf8(repository.patch(&site.worktree, &shows).await.unwrap()).unwrap();
    assert!(patch.contains("open.txt") && !patch.contains("secret"), "{patch}");
    git(&site.worktree, &["add", "keys"]);
    assert_eq!(repository.changes(&site.worktree, Since::Head, None, &shows).await.unwrap().len(), 1);
    assert!(
        repository.patch(&site.worktree, &shows).await.unwrap_err().to_string().contains("not to be shown")
    );
}

/// Every file below a folder, with its content.
fn state(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut next = vec![folder.to_owned()];
    while let Some(folder) = next.pop() {
        for entry in fs_err::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                next.push(path)
            } else {
                found.push((path.clone(), fs_err::read(path).unwrap()))
            }
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn a_branch_is_compared_with_where_it_began() {
    let site = Site::new(&[]);
    site.write("a.txt", "one\n");
    commit(&site.worktree, "one");
    assert!(site.changes(Since::Branch).await.is_empty(), "it is the default branch");
    git(&site.worktree, &["checkout", "--quiet", "-b", "feature/x"]);
    site.write("b.txt", "b\n");
    commit(&site.worktree, "two");
    git(&site.worktree, &["checkout", "--quiet", "main"]);
    site.write("later.txt", "later\n");
    commit(&site.worktree, "three");
    git(&site.worktree, &["checkout", "--quiet", "feature/x"]);
    git(&site.worktree, &["pack-refs", "--all"]);
    site.write("c.txt", "c\n");
    let repository = site.repository().unwrap();
    assert_eq!(
        (repository.branch().as_deref(), repository.default_branch().as_deref()),
        (Some("feature/x"), Some("main"))
    );
    assert_eq!(
        site.told(Since::Branch).await,
        [row("b.txt", Status::Added, 1, 0), row("c.txt", Status::Added, 1, 0)]
    );
    assert_eq!(site.told(Since::Head).await, [row("c.txt", Status::Added, 1, 0)]);
    // Nothing in common, and no default branch at all.
    git(&site.worktree, &["checkout", "--quiet", "--orphan", "alone"]);
    commit(&site.worktree, "alone");
    assert!(site.changes(Since::Branch).await.is_empty());
    git(&site.worktree, &["branch", "--quiet", "-D", "main"]);
    assert!(site.changes(Since::Branch).await.is_empty());
}

#[tokio::test]
async fn repositories_without_a_commit_and_with_long_hashes_are_read() {
    for kind in [&[][..], &["--object-format=sha256"]] {
        let site = Site::new(kind);
        assert!(site.changes(Since::Head).await.is_empty());
        site.write("a.txt", "a\n");
        git(&site.worktree, &["add", "a.txt"]);
        site.write("b.txt", "b\n");
        let both = [row("a.txt", Status::Added, 1, 0), row("b.txt", Status::Added, 1, 0)];
        assert_eq!(site.told(Since::Head).await, both, "{kind:?}");
        assert!(site.changes(Since::Branch).await.is_empty());
        commit(&site.worktree, "one");
        site.write("b.txt", "other\n");
        assert_eq!(site.told(Since::Head).await, [row("b.txt", Status::Modified, 1, 1)], "{kind:?}");
    }
}

#[tokio::test]
async fn odd_changes_are_told() {
    let site = Site::new(&[]);
    for path in ["linked", "both.txt", "mode.sh", "binary"] {
        site.write(path, "one\n");
    }
    commit(&site.worktree, "one");
    git(&site.worktree, &["checkout", "--quiet", "-b", "other"]);
    site.write("both.txt", "other\n");
    commit(&site.worktree, "other");
    git(&site.worktree, &["checkout", "--quiet", "main"]);
    site.write("both.txt", "main\n");
    commit(&site.worktree, "main");
    assert!(!try_git(&site.worktree, &["merge", "--quiet", "other"]).status.success(), "there is a conflict");
    fs_err::remove_file(site.worktree.join("linked")).unwrap();
    fs_err::os::unix::fs::symlink("mode.sh", site.worktree.join("linked")).unwrap();
    let mode = site.worktree.join("mode.sh");
    fs_err::set_permissions(&mode, std::fs::Permissions::from_mode(0o755)).unwrap();
    fs_err::write(site.worktree.join("binary"), [0, 1, 2]).unwrap();
    let told = site.told(Since::Head).await;
    let paths: Vec<&str> = told.iter().map(|(path, ..)| path.as_str()).collect();
    assert_eq!(paths, ["binary", "both.txt", "linked", "mode.sh"]);
    assert!(told.iter().all(|(_, status, ..)| *status == Status::Modified), "{told:?}");
    assert_eq!(told[0], row("binary", Status::Modified, 0, 0));
    let changes = site.changes(Since::Head).await;
    let patch = |index: usize| changes[index].patch.clone().unwrap();
    assert!(patch(1).contains("<<<<<<<"), "{}", patch(1));
    assert!(patch(2).contains("deleted file") && patch(2).contains("new file mode 120000"), "{}", patch(2));
    assert!(patch(3).contains("new mode 100755"), "{}", patch(3));
}

#[tokio::test]
async fn worktrees_and_objects_elsewhere_count_where_that_is_allowed() {
    let site = Site::new(&[]);
    site.write("a.txt", "one\n");
    commit(&site.worktree, "one");
    let top = site.folder.path().canonicalize().unwrap();
    let (linked, shared) = (top.join("linked"), top.join("shared"));
    git(&site.worktree, &["worktree", "add", "--quiet", "-b", "side", linked.to_str().unwrap()]);
    git(&top, &["clone", "--quiet", "--shared", "work", "shared"]);
    for worktree in [&linked, &shared] {
        fs_err::write(worktree.join("a.txt"), "two\n").unwrap();
        assert_eq!(Repository::open(worktree, &[], &|_| false), None, "{worktree:?}");
        let hides = |path: &Path| path.starts_with(&site.worktree);
        assert_eq!(Repository::open(worktree, std::slice::from_ref(&top), &hides), None, "{worktree:?}");
        let allowed = Repository::open(worktree, std::slice::from_ref(&top), &|_| false).unwrap();
        let changes = allowed.changes(worktree, Since::Head, None, ALL).await.unwrap();
        assert_eq!((changes.len(), changes[0].path.as_str()), (1, "a.txt"), "{worktree:?}");
    }
    // A file `.git` that names a repository which knows nothing of it.
    let liar = top.join("liar");
    fs_err::create_dir(&liar).unwrap();
    fs_err::write(liar.join(".git"), format!("gitdir: {}\n", site.worktree.join(".git").display())).unwrap();
    assert_eq!(Repository::open(&liar, &[top], &|_| false), None);
    assert_eq!(Repository::open(&liar.join("nowhere"), &[], &|_| false), None);
}

/// Makes a program that leaves a mark and otherwise hands through what it reads.
fn trap(folder: &Path, name: &str) -> String {
    let program = folder.join(format!("{name}.sh"));
    let mark = folder.join("marks").join(name);
    // Whoever would fetch something waits for an answer.
    let then = if name == "fetch" { "exit 1" } else { "cat" };
    fs_err::write(&program, format!("#!/bin/sh\n: > '{}'\n{then}\n", mark.display())).unwrap();
    fs_err::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program.to_str().unwrap().to_owned()
}

fn marks(folder: &Path) -> Vec<String> {
    let entries = fs_err::read_dir(folder.join("marks")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn no_program_that_a_repository_names_is_run() {
    let site = Site::new(&[]);
    let top = site.folder.path().canonicalize().unwrap();
    fs_err::create_dir_all(top.join("marks")).unwrap();
    site.write("a.txt", "one\n");
    site.write("b.bin", "one\n");
    // A submodule has a configuration of its own.
    git(&top, &["init", "--quiet", "--initial-branch=main", "inner"]);
    fs_err::write(top.join("inner/file"), "x\n").unwrap();
    commit(&top.join("inner"), "inner");
    git(&site.worktree, &["submodule", "--quiet", "add", "../inner", "sub"]);
    site.write(
        ".gitattributes",
        "*.txt filter=evil diff=evil\n*.bin diff=command\n*.lib filter=server\nsub diff=evil\n",
    );
    site.write("c.lib", "one\n");
    commit(&site.worktree, "one");
    let set = |folder: &Path, name: &str, value: &str| drop(git(folder, &["config", name, value]));
    let work = site.worktree.as_path();
    for (name, key) in [
        ("fsmonitor", "core.fsmonitor"),
        ("clean", "filter.evil.clean"),
        ("smudge", "filter.evil.smudge"),
        ("process", "filter.server.process"),
        ("textconv", "diff.evil.textconv"),
        ("command", "diff.command.command"),
        ("external", "diff.external"),
        ("pager", "core.pager"),
        ("pager-diff", "pager.diff"),
        ("editor", "core.editor"),
        ("ssh", "core.sshCommand"),
        ("credential", "credential.helper"),
        ("diff-filter", "interactive.diffFilter"),
        ("alternates", "core.alternateRefsCommand"),
        ("merge", "merge.evil.driver"),
    ] {
        set(work, key, &trap(&top, name));
    }
    set(work, "filter.evil.required", "true");
    set(work, "diff.submodule", "diff");
    set(&work.join("sub"), "core.fsmonitor", &trap(&top, "sub-fsmonitor"));
    // What is missing is fetched from a place that is a program.
    set(work, "extensions.partialClone", "origin");
    set(work, "remote.origin.promisor", "true");
    set(work, "remote.origin.url", &format!("ext::{}", trap(&top, "fetch")));
    set(work, "protocol.ext.allow", "always");
    // And what a file says that the configuration names.
    let included = top.join("included");
    fs_err::write(&included, format!("[core]\n\tgitProxy = {}\n", trap(&top, "proxy"))).unwrap();
    set(work, "include.path", included.to_str().unwrap());
    for hook in
        ["post-index-change", "pre-commit", "post-checkout", "reference-transaction", "fsmonitor-watchman"]
    {
        let program = trap(&top, hook);
        fs_err::copy(program, work.join(".git/hooks").join(hook)).unwrap();
    }
    site.write("a.txt", "two\n");
    site.write("b.bin", "two\n");
    site.write("c.lib", "two\n");
    site.write("new.txt", "new\n");
    fs_err::write(work.join("sub/file"), "changed\n").unwrap();

    let repository = site.repository().unwrap();
    let changes = repository.changes(work, Since::Head, Some(3), ALL).await.unwrap();
    let paths: Vec<&str> = changes.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(paths, ["a.txt", "b.bin", "c.lib", "new.txt"], "{changes:?}");
    assert!(changes.iter().all(|change| change.patch.is_some()));
    assert!(!repository.patch(work, ALL).await.unwrap().is_empty());
    assert_eq!(marks(&top), Vec::<String>::new(), "nothing ran");
    git(work, &["update-ref", "refs/heads/other", "HEAD"]);
    // A hook of the one above, which git was asked for without care.
    assert_eq!(marks(&top), ["reference-transaction"]);
    fs_err::remove_file(top.join("marks/reference-transaction")).unwrap();
    fs_err::write(work.join(".git/HEAD"), "ref: refs/heads/other\n").unwrap();
    assert_eq!(repository.changes(work, Since::Branch, Some(3), ALL).await.unwrap().len(), 4);
    assert_eq!(marks(&top), Vec::<String>::new(), "nothing ran");

    // The traps are good: whoever asks git without this care runs them.
    for arguments in [&["status"][..], &["diff", "HEAD"], &["-c", "diff.external=", "diff", "--text"]] {
        try_git(work, arguments);
    }
    let ran = marks(&top);
    for name in ["clean", "external", "fsmonitor", "sub-fsmonitor"] {
        assert!(ran.iter().any(|mark| mark == name), "{name} is no trap: {ran:?}");
    }
}

#[tokio::test]
async fn missing_objects_are_an_error_and_are_not_fetched() {
    let site = Site::new(&[]);
    let top = site.folder.path().canonicalize().unwrap();
    fs_err::create_dir_all(top.join("marks")).unwrap();
    site.write("a.txt", "one\n");
    commit(&site.worktree, "one");
    let object = git(&site.worktree, &["rev-parse", "HEAD:a.txt"]);
    let object = object.trim();
    let file = site.worktree.join(".git/objects").join(&object[..2]).join(&object[2..]);
    fs_err::remove_file(file).unwrap();
    let fetch = format!("ext::{}", trap(&top, "fetch"));
    for (key, value) in [
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", fetch.as_str()),
        ("protocol.ext.allow", "always"),
    ] {
        git(&site.worktree, &["config", key, value]);
    }
    site.write("a.txt", "two\n");
    let asked = site.repository().unwrap().changes(&site.worktree, Since::Head, Some(3), ALL).await;
    assert!(asked.unwrap_err().to_string().starts_with("the repository cannot be read: "));
    assert_eq!(marks(&top), Vec::<String>::new());
    try_git(&site.worktree, &["diff", "HEAD"]);
    assert_eq!(marks(&top), ["fetch"], "it is a trap");
}

#[tokio::test]
async fn what_cannot_be_read_is_said() {
    let site = Site::new(&[]);
    site.write("a.txt", "one\n");
    commit(&site.worktree, "one");
    site.write(".git/index", "no index at all");
    let repository = site.repository().unwrap();
    let error = repository.changes(&site.worktree, Since::Head, None, ALL).await.unwrap_err();
    assert!(error.to_string().contains("index"), "{error}");
    site.write(".git/HEAD", "ref: refs/heads/.invalid\n");
    let error = repository.changes(&site.worktree, Since::Head, None, ALL).await.unwrap_err();
    assert!(error.to_string().contains("not read"), "{error}");
}
