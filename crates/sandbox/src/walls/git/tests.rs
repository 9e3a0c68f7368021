use super::super::arrange::{What, around};
use super::*;

struct Place {
    _folder: tempfile::TempDir,
    root: PathBuf,
    workspace: PathBuf,
}

fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let root = fs_err::canonicalize(folder.path()).unwrap();
    let workspace = root.join("ws");
    fs_err::create_dir(&workspace).unwrap();
    Place { _folder: folder, root, workspace }
}

fn write(file: &Path, text: &str) {
    fs_err::create_dir_all(file.parent().unwrap()).unwrap();
    fs_err::write(file, text).unwrap();
}

impl Guards {
    /// Whether a path cannot be changed.
    fn holds(&self, path: &Path) -> bool {
        // Of two at one place the later counts.
        let mut mounts = self.mounts.clone();
        mounts.reverse();
        let place = around(&mounts, path).map(|mount| mount.place.clone());
        let counts = mounts.iter().find(|mount| Some(&mount.place) == place.as_ref());
        self.whole || counts.is_some_and(|mount| matches!(mount.what, What::Read(_)))
    }
}

impl Place {
    fn guards(&self) -> Guards {
        self.git().guards(&self.workspace).unwrap()
    }

    fn git(&self) -> Git {
        Git::of(&self.workspace, &[self.root.join("allowed")])
    }

    fn unseen(&self) -> String {
        match self.git() {
            Git::Unseen { reason } => reason,
            other => panic!("{other:?}"),
        }
    }

    /// Makes the workspace a worktree whose repository lies in a folder.
    fn worktree(&self, repository: &Path) -> PathBuf {
        let own = repository.join("worktrees/x");
        write(&own.join("commondir"), "../..\n");
        write(&own.join("gitdir"), &format!("{}\n", self.workspace.join(".git").display()));
        write(&repository.join("HEAD"), "ref: refs/heads/main\n");
        write(&self.workspace.join(".git"), &format!("gitdir: {}\n", own.display()));
        own
    }
}

#[test]
fn without_a_repository_there_is_nothing_to_guard() {
    let place = place();
    assert!(place.guards().mounts.is_empty());
    assert!(!place.workspace.join(".git").exists());
}

#[test]
fn what_is_missing_is_made_and_held() {
    let place = place();
    let git = place.workspace.join(".git");
    fs_err::create_dir(&git).unwrap();
    let guards = place.guards();
    assert!(guards.holds(&git.join("hooks/pre-commit")) && guards.holds(&git.join("config")));
    assert!(!guards.holds(&git.join("index")) && !guards.holds(&git.join("config.worktree")));
    assert_eq!(guards.absent, [git.join("commondir")]);
    assert!(git.join("hooks").is_dir() && git.join("config").is_file());
    write(&git.join("config"), "[extensions]\n\tworktreeConfig = true\n");
    assert!(place.guards().holds(&git.join("config.worktree")));
}

#[test]
fn links_make_everything_read_only() {
    for (name, target) in [("hooks", "../common/hooks"), ("config", "/etc/passwd"), ("commondir", "x")] {
        let place = place();
        let git = place.workspace.join(".git");
        fs_err::create_dir_all(place.workspace.join("common/hooks")).unwrap();
        fs_err::create_dir(&git).unwrap();
        fs_err::os::unix::fs::symlink(target, git.join(name)).unwrap();
        let guards = place.guards();
        assert!(guards.holds(&git.join("index")), "{name}");
        assert_eq!(guards.holds(&place.workspace.join("common/hooks")), name == "hooks");
        assert!(guards.mounts.iter().all(|mount| mount.place.starts_with(&place.workspace)));
    }
    let place = place();
    fs_err::os::unix::fs::symlink("elsewhere", place.workspace.join(".git")).unwrap();
    assert!(place.guards().whole);
}

#[test]
fn submodules_are_guarded_by_whatever_name() {
    let place = place();
    let modules = place.workspace.join(".git/modules");
    write(&modules.join("a/HEAD"), "");
    write(&modules.join("libs/b/HEAD"), "");
    write(&modules.join("libs/b/modules/c/config"), "");
    let guards = place.guards();
    for module in ["a", "libs/b", "libs/b/modules/c"] {
        let module = modules.join(module);
        assert!(guards.holds(&module.join("hooks/x")) && guards.holds(&module.join("config")), "{module:?}");
        assert!(!guards.holds(&module.join("index")), "{module:?}");
    }
    fs_err::os::unix::fs::symlink("a", modules.join("link")).unwrap();
    assert!(place.guards().holds(&modules.join("a/index")));
}

#[test]
fn too_many_submodules_are_read_only() {
    let place = place();
    let modules = place.workspace.join(".git/modules");
    (0..60).for_each(|number| write(&modules.join(format!("{number}/HEAD")), ""));
    let guards = place.guards();
    assert!(guards.holds(&modules.join("7/index")) && guards.mounts.len() < 10);
}

#[test]
fn a_worktree_is_seen_below_the_operators_roots_only() {
    let place = place();
    let allowed = place.root.join("allowed/repo/.git");
    let own = place.worktree(&allowed);
    let guards = place.guards();
    for held in ["config", "hooks/x", "worktrees/x/commondir", "worktrees/x/gitdir"] {
        assert!(guards.holds(&allowed.join(held)), "{held}");
    }
    assert!(guards.holds(&place.workspace.join(".git")));
    assert!(!guards.holds(&own.join("index")) && !guards.holds(&allowed.join("objects")));
    place.worktree(&place.root.join("other/.git"));
    assert!(place.unseen().contains("outside of the operator's roots"), "{}", place.unseen());
}

#[test]
fn a_repository_that_does_not_belong_to_the_workspace_is_not_seen() {
    let place = place();
    let victim = place.root.join("allowed/victim/.git");
    write(&victim.join("config"), "[core]\n\tbare = false\n");
    write(&place.workspace.join(".git"), &format!("gitdir: {}\n", victim.display()));
    assert!(place.unseen().contains("does not say that it belongs"), "{}", place.unseen());
    // One that the workspace made up itself leads to another's as well.
    let own = place.workspace.join("fake/worktrees/x");
    write(&own.join("commondir"), &format!("{}\n", victim.display()));
    write(&own.join("gitdir"), &format!("{}\n", place.workspace.join(".git").display()));
    write(&place.workspace.join(".git"), "gitdir: fake/worktrees/x\n");
    assert!(place.unseen().contains("does not say that it belongs"), "{}", place.unseen());
    write(&place.workspace.join(".git"), "nonsense\n");
    assert!(place.unseen().contains("names no git directory"));
    write(&place.workspace.join(".git"), "gitdir: nowhere\n");
    assert!(place.unseen().contains("is not there"));
}

#[test]
fn the_git_directory_of_a_submodule_names_its_place() {
    let place = place();
    let own = place.root.join("allowed/.git/modules/sub");
    write(&own.join("config"), "[core]\n\tworktree = ../../../../ws\n");
    write(&place.workspace.join(".git"), "gitdir: ../allowed/.git/modules/sub\n");
    let guards = place.guards();
    assert!(guards.holds(&own.join("config")) && guards.holds(&own.join("hooks/x")));
    assert!(!guards.holds(&own.join("HEAD")));
}

#[test]
fn worktrees_of_others_stay_as_they_are() {
    let place = place();
    let worktrees = place.workspace.join(".git/worktrees");
    write(&worktrees.join("out/gitdir"), "/elsewhere/.git\n");
    write(&worktrees.join("out/commondir"), "../..\n");
    write(&worktrees.join("in/gitdir"), &format!("{}/in/.git\n", place.workspace.display()));
    write(&worktrees.join("in/commondir"), "../..\n");
    let guards = place.guards();
    assert!(guards.holds(&worktrees.join("out/commondir")) && guards.holds(&worktrees.join("out/gitdir")));
    assert!(!guards.holds(&worktrees.join("in/commondir")) && !guards.holds(&worktrees.join("out/index")));
}
