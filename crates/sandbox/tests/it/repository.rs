//! Repositories: git works, and what it obeys stays as it is.

use std::path::Path;
use std::process::Command;

use playhouse_sandbox::process::run;
use tokio_util::sync::CancellationToken;

use crate::house::{House, Watch, quoted};

const AUTHOR: &str = "-c user.name=a -c user.email=a@example.com";

fn git(folder: &Path, arguments: &[&str]) {
    let author = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "protocol.file.allow=always"];
    let mut git = Command::new("git");
    git.args(author).args(arguments).current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null");
    let output = git.output().expect("git is needed: apt install git");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn repository(folder: &Path) {
    fs_err::create_dir_all(folder).unwrap();
    git(folder, &["init", "--quiet", "--initial-branch=main"]);
    fs_err::write(folder.join("file"), "one\n").unwrap();
    git(folder, &["add", "file"]);
    git(folder, &["commit", "--quiet", "--message=one"]);
}

/// Whatever is tried, no hook and no setting appears.
async fn is_guarded(house: &House, git: &str) {
    let folder = house.spec.workspace.join(git);
    let state = || {
        let names = |name: &str| {
            let entries = fs_err::read_dir(folder.join(name)).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name()).collect::<std::collections::BTreeSet<_>>()
        };
        (fs_err::read(folder.join("config")).unwrap_or_default(), names("hooks"))
    };
    // What is missing is made by the first command.
    house.done("true").await;
    let before = state();
    for attempt in [
        format!("echo x > {git}/hooks/pre-commit"),
        format!("echo x >> {git}/config"),
        format!("rm -f {git}/config && echo x > {git}/config"),
        format!("mv {git}/config aside && echo x > {git}/config"),
        format!("mv {git}/hooks aside && mkdir {git}/hooks && echo x > {git}/hooks/post-commit"),
        format!("ln -sfn /tmp {git}/hooks && echo x > {git}/hooks/post-commit && ls {git}/hooks/post-commit"),
        format!("mv {git} aside && mkdir -p {git}/hooks && echo x > {git}/hooks/post-commit"),
        format!("git --git-dir={git} config core.fsmonitor evil"),
        format!("chmod u+w {git}/config && echo x >> {git}/config"),
        format!("truncate -s 0 {git}/config"),
        format!("ln {git}/config twice && echo x >> twice"),
        format!("cp /etc/passwd {git}/config"),
    ] {
        let (_, output) = house.run(&attempt).await;
        assert_eq!(state(), before, "{attempt}: {output}");
    }
}

#[tokio::test]
async fn git_works_in_a_repository() {
    let house = House::new();
    repository(&house.spec.workspace);
    house.done("echo two >> file && git status --short && git diff --stat && git add -A").await;
    house.done(&format!("git {AUTHOR} commit --quiet --message=two && git checkout --quiet -b side")).await;
    house.done(&format!("git {AUTHOR} commit --quiet --allow-empty --message=three && git merge main")).await;
    assert_eq!(house.done("git rev-list --count HEAD").await, "3\n");
    git(&house.spec.workspace, &["fsck"]);
    is_guarded(&house, ".git").await;
}

#[tokio::test]
async fn a_repository_can_be_made_and_is_guarded_from_then_on() {
    let house = House::new();
    house
        .done(&format!(
            "git init --quiet && echo x > file && git add file && git {AUTHOR} commit --quiet -m x"
        ))
        .await;
    is_guarded(&house, ".git").await;
}

#[tokio::test]
async fn what_is_missing_stays_empty() {
    let house = House::new();
    repository(&house.spec.workspace);
    for missing in ["hooks", "config"] {
        let path = house.spec.workspace.join(".git").join(missing);
        if path.is_dir() { fs_err::remove_dir_all(path).unwrap() } else { fs_err::remove_file(path).unwrap() }
    }
    is_guarded(&house, ".git").await;
    assert_eq!(house.read(".git/config"), "");
    let other = House::new();
    fs_err::create_dir(other.spec.workspace.join(".git")).unwrap();
    is_guarded(&other, ".git").await;
}

#[tokio::test]
async fn links_are_not_followed() {
    let house = House::new();
    repository(&house.spec.workspace);
    let hooks = house.spec.workspace.join(".git/hooks");
    fs_err::remove_dir_all(&hooks).unwrap();
    // To a place outside: it is neither seen nor made writable.
    fs_err::os::unix::fs::symlink(house.root.join("other"), &hooks).unwrap();
    house.fails("cat .git/hooks/secret").await;
    house.fails("echo x > .git/hooks/made").await;
    house.fails("rm .git/hooks").await;
    assert!(!house.root.join("other/made").exists());
    // Within: what it leads to is guarded as well.
    fs_err::remove_file(&hooks).unwrap();
    fs_err::create_dir_all(house.spec.workspace.join("tools/hooks")).unwrap();
    fs_err::os::unix::fs::symlink("../tools/hooks", &hooks).unwrap();
    for attempt in [
        "echo x > .git/hooks/made",
        "echo x > tools/hooks/made",
        "mv tools/hooks aside",
        "mv tools aside",
        "rm .git/hooks",
        "ln -sfn /tmp .git/hooks",
    ] {
        house.fails(attempt).await;
    }
    assert_eq!(fs_err::read_dir(house.spec.workspace.join("tools/hooks")).unwrap().count(), 0);
    house.done("git log --oneline && echo x > tools/other").await;
}

#[tokio::test]
async fn a_repository_behind_a_link_makes_the_workspace_read_only() {
    let house = House::new();
    repository(&house.spec.workspace.join("real"));
    fs_err::os::unix::fs::symlink("real/.git", house.spec.workspace.join(".git")).unwrap();
    house.fails("rm .git").await;
    house.fails("echo x > real/.git/hooks/made").await;
    house.fails("echo x > made").await;
    house.done("git log --oneline && echo x > ~/note").await;
}

#[tokio::test]
async fn a_link_that_appears_while_the_view_is_built_wins_nothing() {
    let house = House::new();
    let walls = house.walls();
    // It runs since before there was a repository, so nothing holds it off.
    let swapping = "mkdir -p .git/real /tmp/seen; echo ready; while true; do \
        mkdir .git/hooks 2>/dev/null; rmdir .git/hooks; ln -s /tmp/seen .git/hooks; rm .git/hooks; done";
    let mut watch = Watch::default();
    let (cancel, ready, spec) =
        (CancellationToken::new(), watch.ready.clone(), house.command(&walls, swapping));
    let (cancelled, running) =
        (cancel.clone(), tokio::spawn(async move { run(&spec, &cancel, &mut watch).await }));
    ready.cancelled().await;
    for _ in 0..60 {
        // The link may come between what is looked at and what is written: then another folder is changed.
        house.run_in(&walls, "[ -d .git/hooks ] && [ ! -L .git/hooks ] && echo x > .git/hooks/made").await;
    }
    cancelled.cancel();
    running.await.unwrap().unwrap();
    // A file in the folder itself would have kept it from being removed.
    let hooks = house.spec.workspace.join(".git/hooks");
    let is_folder = fs_err::symlink_metadata(&hooks).is_ok_and(|facts| facts.is_dir());
    assert!(!is_folder || !hooks.join("made").exists());
}

#[tokio::test]
async fn nothing_tells_git_to_look_elsewhere() {
    let house = House::new();
    repository(&house.spec.workspace);
    house.write("evil/config", "[core]\n\tfsmonitor = touch /tmp/evil\n");
    house.run("echo ../evil > .git/commondir").await;
    assert!(!house.spec.workspace.join(".git/commondir").exists());
    git(&house.spec.workspace, &["status"]);
}

#[tokio::test]
async fn a_worktree_works_where_its_repository_is_allowed() {
    let mut house = House::new();
    let main = house.root.join("repositories/main");
    repository(&main);
    fs_err::remove_dir(&house.spec.workspace).unwrap();
    git(&main, &["worktree", "add", "--quiet", house.spec.workspace.to_str().unwrap(), "-b", "side"]);
    // Not allowed: not there, and what holds says so.
    house.fails("git status").await;
    let detail = house.walls().in_force().unwrap().detail.clone();
    assert!(detail.contains("git does not work") && detail.contains("[walls] roots"), "{detail}");
    house.fails(&format!("ls {}", quoted(&main))).await;
    house.spec.roots = vec![house.root.join("repositories")];
    house
        .done(&format!("git status && echo two > file && git {AUTHOR} commit --quiet -am two && git log"))
        .await;
    let repository = main.join(".git");
    for attempt in [
        format!("echo x > {}/hooks/made", quoted(&repository)),
        format!("echo x >> {}/config", quoted(&repository)),
        format!("echo x > {}/worktrees/workspace/commondir", quoted(&repository)),
        "echo 'gitdir: /tmp' > .git".to_owned(),
        "rm .git".to_owned(),
        "mv .git aside".to_owned(),
    ] {
        house.fails(&attempt).await;
    }
    // The files of the main worktree are not seen.
    house.fails(&format!("cat {}/file", quoted(&main))).await;
    git(&main, &["fsck"]);
    git(&house.spec.workspace, &["status"]);
}

#[tokio::test]
async fn submodules_are_guarded_within_and_as_a_workspace() {
    let mut house = House::new();
    let library = house.root.join("library");
    repository(&library);
    repository(&house.spec.workspace);
    let whole = house.spec.workspace.clone();
    git(&whole, &["submodule", "--quiet", "add", library.to_str().unwrap(), "libs/sub"]);
    git(&whole, &["commit", "--quiet", "--message=sub"]);
    is_guarded(&house, ".git/modules/libs/sub").await;
    house
        .done(&format!("cd libs/sub && echo two > file && git {AUTHOR} commit --quiet -am two && git status"))
        .await;
    // The submodule on its own.
    house.spec.workspace = whole.join("libs/sub");
    house.fails("git status").await;
    house.spec.roots = vec![whole.clone()];
    house.done(&format!("echo three > file && git {AUTHOR} commit --quiet -am three && git status")).await;
    let module = quoted(&whole.join(".git/modules/libs/sub"));
    house.fails(&format!("echo x > {module}/hooks/made")).await;
    house.fails(&format!("echo x >> {module}/config")).await;
    house.fails("echo x > .git").await;
    house.fails(&format!("ls {}", quoted(&whole.join("file")))).await;
}

#[tokio::test]
async fn a_workspace_cannot_name_the_repository_of_another() {
    let mut house = House::new();
    let victim = house.root.join("repositories/victim");
    repository(&victim);
    house.spec.roots = vec![house.root.join("repositories")];
    house.write(".git", &format!("gitdir: {}\n", victim.join(".git").display()));
    house.fails("git status").await;
    house.fails(&format!("ls {}", quoted(&victim))).await;
    assert!(house.walls().in_force().unwrap().detail.contains("does not say that it belongs"));
}
