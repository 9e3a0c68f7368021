//! What git is asked about a workspace whose owner wants to see more than that, or wants to hold others up.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use fs_err::os::unix::fs::symlink;
use playhouse_workspace::repository::{Change, Repository, RepositoryError, Since, Status, is_kept};
use rustix::fs::{CWD, FileType, Mode, RenameFlags};

use crate::asked::{ALL, Site, commit, git, row};

/// What nobody may see.
const SECRET: &str = "another customer's content";

/// A repository, and one of somebody else.
struct Neighbours {
    site: Site,
    /// The other worktree.
    theirs: PathBuf,
    /// The commit that is checked out there.
    their_commit: String,
}

impl Neighbours {
    fn new() -> Self {
        let site = Site::new(&[]);
        let theirs = site.folder.path().canonicalize().unwrap().join("theirs");
        fs_err::create_dir(&theirs).unwrap();
        git(&theirs, &["init", "--quiet", "--initial-branch=main"]);
        fs_err::create_dir(theirs.join("in")).unwrap();
        for path in ["a.txt", "in/b.txt"] {
            site.write(path, "mine\n");
            fs_err::write(theirs.join(path), format!("{SECRET}\n")).unwrap();
        }
        commit(&site.worktree, "mine");
        commit(&theirs, "theirs");
        let their_commit = git(&theirs, &["rev-parse", "HEAD"]).trim().to_owned();
        Self { site, theirs, their_commit }
    }

    fn own(&self, path: &str) -> PathBuf {
        self.site.worktree.join(path)
    }

    /// All that is told.
    async fn told(&self) -> Result<String, RepositoryError> {
        let Some(repository) = self.site.repository() else { return Ok("no repository".to_owned()) };
        let worktree = &self.site.worktree;
        let changes: Vec<Change> = repository.changes(worktree, Since::Head, Some(3), ALL).await?;
        let patch = repository.patch(worktree, ALL).await?;
        Ok(format!("{changes:?}{}{:?}", String::from_utf8_lossy(&patch), repository.branch()))
    }

    /// The same, where nothing of the others' may be in it, nor in the error.
    async fn told_of_itself(&self, what: &str) -> Option<String> {
        let told = self.told().await;
        let said = told.as_ref().map_or_else(ToString::to_string, Clone::clone);
        assert!(!said.contains(SECRET), "{what}: {said}");
        assert!(!matches!(told, Err(RepositoryError::TooSlow)), "{what}: it waited");
        told.ok()
    }
}

fn pipe(path: &Path) {
    let _ = fs_err::remove_file(path);
    rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

#[tokio::test]
async fn links_among_the_objects_lead_nowhere() {
    for packed in [false, true] {
        let both = Neighbours::new();
        if packed {
            git(&both.theirs, &["gc", "--quiet"]);
        }
        let (objects, others) = (both.own(".git/objects"), both.theirs.join(".git/objects"));
        for entry in fs_err::read_dir(&others).unwrap() {
            let name = entry.unwrap().file_name();
            let _ = fs_err::remove_dir_all(objects.join(&name));
            symlink(others.join(&name), objects.join(&name)).unwrap();
        }
        fs_err::write(both.own(".git/HEAD"), &both.their_commit).unwrap();
        fs_err::remove_file(both.own(".git/index")).unwrap();
        assert_eq!(both.told_of_itself("folders").await, None, "the commit is not there");
        // Each file of them, in folders of its own.
        for folder in fs_err::read_dir(&others).unwrap() {
            let folder = folder.unwrap();
            let own = objects.join(folder.file_name());
            fs_err::remove_file(&own).unwrap();
            fs_err::create_dir(&own).unwrap();
            for entry in fs_err::read_dir(folder.path()).unwrap() {
                let path = entry.unwrap().path();
                symlink(&path, own.join(path.file_name().unwrap())).unwrap();
            }
        }
        assert_eq!(both.told_of_itself("files").await, None, "the commit is not there");
        // It is not for want of the commit that nothing is told.
        fs_err::remove_dir_all(&objects).unwrap();
        fs_err::rename(&others, &objects).unwrap();
        assert!(both.told().await.unwrap().contains(SECRET));
    }
}

#[tokio::test]
async fn links_in_the_place_of_what_git_has_lead_nowhere() {
    for name in ["objects", "index", "HEAD", "refs", "packed-refs", "info", "refs/heads/main", "refs/heads"] {
        let both = Neighbours::new();
        git(&both.theirs, &["pack-refs", "--all"]);
        let (place, other) = (both.own(".git").join(name), both.theirs.join(".git").join(name));
        let _ = fs_err::remove_dir_all(&place).or_else(|_| fs_err::remove_file(&place));
        symlink(other, place).unwrap();
        both.told_of_itself(name).await;
    }
    let both = Neighbours::new();
    fs_err::remove_dir_all(both.own(".git")).unwrap();
    symlink(both.theirs.join(".git"), both.own(".git")).unwrap();
    assert!(both.site.repository().is_none());
    assert!(!is_kept(&both.site.worktree, &|path| path.starts_with(&both.site.worktree)));
    assert!(is_kept(&both.site.worktree, &|_| true));
}

/// `shows` is asked after the worktree was looked at, and before files are compared.
#[tokio::test]
async fn what_is_put_in_the_place_of_a_worktree_meanwhile_is_not_told() {
    let both = Neighbours::new();
    for (place, other) in [("", ""), ("in", "in"), ("a.txt", "a.txt"), (".git/objects", ".git/objects")] {
        let (place, other) = (both.own(place), both.theirs.join(other));
        // `join("")` ends in a slash.
        let place: PathBuf = place.components().collect();
        let aside = both.site.folder.path().join("aside");
        both.site.write("new.txt", "n\n");
        both.site.write("a.txt", "other\n");
        both.site.write("in/b.txt", "other\n");
        let done = AtomicBool::new(false);
        let exchanges = |_: &Path| {
            if !done.swap(true, Ordering::SeqCst) {
                fs_err::rename(&place, &aside).unwrap();
                symlink(&other, &place).unwrap();
            }
            true
        };
        let repository = both.site.repository().unwrap();
        let changes = repository.changes(&both.site.worktree, Since::Head, Some(3), &exchanges).await;
        let said = format!("{changes:?}");
        assert!(done.load(Ordering::SeqCst) && !said.contains(SECRET), "{}: {said}", place.display());
        fs_err::remove_file(&place).unwrap();
        fs_err::rename(&aside, &place).unwrap();
        assert!(changes.is_ok(), "{said}");
    }
}

/// One who changes a directory and a link that leads out for each other, as fast as can be.
#[tokio::test(flavor = "multi_thread")]
async fn a_worktree_that_changes_places_with_a_link_tells_nothing_of_others() {
    let both = Neighbours::new();
    both.site.write("a.txt", "other\n");
    let top = both.site.folder.path().to_owned();
    symlink(&both.theirs, top.join("link")).unwrap();
    symlink(both.theirs.join("a.txt"), both.own("file-link")).unwrap();
    symlink(both.theirs.join("in"), both.own("folder-link")).unwrap();
    let over = AtomicBool::new(false);
    let hold = |path: &Path| fs_err::File::open(path).unwrap().into_parts().0;
    let (above, work, ended) = (hold(&top), hold(&both.site.worktree), &over);
    fn exchange<'a>(
        folder: &'a std::fs::File,
        one: &'a str,
        other: &'a str,
        ended: &'a AtomicBool,
    ) -> impl FnOnce() + Send + 'a {
        move || {
            while !ended.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(folder, one, folder, other, RenameFlags::EXCHANGE).unwrap();
                std::thread::yield_now();
            }
        }
    }
    let repository = both.site.repository().unwrap();
    let runtime = tokio::runtime::Handle::current();
    let answered = std::thread::scope(|scope| {
        scope.spawn(exchange(&above, "work", "link", ended));
        scope.spawn(exchange(&work, "a.txt", "file-link", ended));
        scope.spawn(exchange(&work, "in", "folder-link", ended));
        let asks = scope.spawn(|| {
            let mut answered = 0;
            for _ in 0..60 {
                let asked = repository.changes(&both.site.worktree, Since::Head, Some(3), ALL);
                let said = match runtime.block_on(asked) {
                    Ok(changes) => format!("{changes:?}"),
                    Err(error) => error.to_string(),
                };
                // Links are told as what they say.
                if said.contains(SECRET) {
                    return Err(said);
                }
                answered += 1;
            }
            Ok(answered)
        });
        let answered = asks.join().unwrap();
        over.store(true, Ordering::Relaxed);
        answered
    });
    assert_eq!(answered, Ok(60));
}

#[tokio::test]
async fn pipes_hold_nobody_up() {
    for name in [
        ".gitignore",
        ".gitattributes",
        "in/.gitignore",
        "in/.gitattributes",
        "a.txt",
        "new",
        ".git/HEAD",
        ".git/index",
        ".git/config",
        ".git/packed-refs",
        ".git/shallow",
        ".git/commondir",
        ".git/refs/heads/main",
        ".git/info/exclude",
        ".git/info/attributes",
        ".git/objects/info/alternates",
        ".git/objects/pack/pack-1.idx",
        ".git/objects/pack/multi-pack-index",
        ".git/objects/info/commit-graph",
    ] {
        let both = Neighbours::new();
        both.site.write("in/b.txt", "other\n");
        fs_err::create_dir_all(both.own(name).parent().unwrap()).unwrap();
        pipe(&both.own(name));
        let told = both.told_of_itself(name).await;
        if name.contains(".gita") || name.contains(".gitig") || name.ends_with("exclude") || name == "new" {
            assert!(told.is_some_and(|told| told.contains("in/b.txt")), "{name}");
        }
    }
    let both = Neighbours::new();
    let object = git(&both.site.worktree, &["rev-parse", "HEAD"]);
    pipe(&both.own(".git/objects").join(&object[..2]).join(object[2..].trim()));
    assert_eq!(both.told_of_itself("an object").await, None);
    let both = Neighbours::new();
    fs_err::remove_dir_all(both.own(".git")).unwrap();
    pipe(&both.own(".git"));
    assert!(both.site.repository().is_none() && !is_kept(&both.site.worktree, &|_| true));
}

/// Lines that are not always the same.
fn lines(count: usize, seed: usize) -> String {
    (0..count).map(|line| format!("{} of {}\n", line, (line * 7 + seed) % (11 + line % 5))).collect()
}

/// What git itself says of all that was and was not added.
fn said_by_git(site: &Site) -> String {
    git(&site.worktree, &["add", "--intent-to-add", "--all"]);
    git(&site.worktree, &["-c", "core.attributesFile=/dev/null", "diff", "--binary", "--no-renames", "HEAD"])
}

#[tokio::test]
async fn packed_repositories_of_both_kinds_are_told_as_git_tells_them() {
    for kind in [&[][..], &["--object-format=sha256"]] {
        let site = Site::new(kind);
        for version in 0..12 {
            site.write("long.txt", &lines(3_000, version));
            site.write(&format!("in/deep/{}.txt", version % 4), &lines(20, version));
            fs_err::write(site.worktree.join("binary"), [vec![0, 255], vec![version as u8; 9_000]].concat())
                .unwrap();
            commit(&site.worktree, &format!("version {version}"));
        }
        for packing in [
            &["-c", "repack.useDeltaBaseOffset=false", "repack", "-adfq"][..],
            &["gc", "--quiet", "--aggressive"],
        ] {
            git(&site.worktree, packing);
            site.write("long.txt", &(lines(3_000, 11) + "more\n"));
            site.write("in/deep/1.txt", "short");
            site.write("in/new/x.txt", "one\r\ntwo\r\n");
            site.write("empty", "");
            fs_err::write(site.worktree.join("binary"), [0, 1, 2, 3]).unwrap();
            let _ = fs_err::remove_file(site.worktree.join("in/deep/2.txt"));
            let patch = site.repository().unwrap().patch(&site.worktree, ALL).await.unwrap();
            assert_eq!(String::from_utf8(patch).unwrap(), said_by_git(&site), "{kind:?} {packing:?}");
        }
    }
}

#[tokio::test]
async fn what_is_ignored_and_how_files_are_compared_is_as_git_has_it() {
    let site = Site::new(&[]);
    site.write(".gitignore", "*.log\n!keep.log\n/top\nbuild/\n# no rule\n\\#file\nin/**/x\n");
    site.write("in/.gitignore", "!a.log\n*.tmp\n");
    site.write(".gitattributes", "*.dos text eol=crlf\n*.bin -diff\n");
    site.write("in/.gitattributes", "*.txt -diff\n");
    site.write("kept.dos", "one\r\ntwo\r\n");
    site.write("touched.dos", "one\r\n");
    site.write("some.bin", "one\n");
    site.write("in/some.txt", "one\n");
    site.write("build.txt", "one\n");
    commit(&site.worktree, "one");
    site.write("build/tracked", "one\n");
    git(&site.worktree, &["add", "--force", "build/tracked"]);
    commit(&site.worktree, "two");
    for path in [
        "a.log",
        "keep.log",
        "in/a.log",
        "in/b.log",
        "in/c.tmp",
        "top",
        "in/top",
        "build/other",
        "#file",
        "in/deep/er/x",
        "in/deep/x",
        "x",
        "in/deep/y",
        "deep/build/z",
        "empty/deep/w",
    ] {
        site.write(path, "new\n");
    }
    // The same, written again; and the same but for how lines end.
    site.write("kept.dos", "one\r\ntwo\r\n");
    site.write("touched.dos", "one\n");
    site.write("some.bin", "two\n");
    site.write("in/some.txt", "two\n");
    site.write("build/tracked", "two\n");
    git(&site.worktree, &["rm", "--quiet", "--cached", "build.txt"]);
    symlink("a.log", site.worktree.join("link")).unwrap();
    symlink("../nowhere", site.worktree.join("in/.other")).unwrap();
    let patch = site.repository().unwrap().patch(&site.worktree, ALL).await.unwrap();
    assert_eq!(String::from_utf8(patch).unwrap(), said_by_git(&site));
}

#[tokio::test]
async fn large_files_are_told_without_their_lines() {
    let site = Site::new(&[]);
    let large = |byte: u8| String::from_utf8([vec![0], vec![byte; 6 * 1024 * 1024]].concat()).unwrap();
    site.write("grown.txt", "small\n");
    site.write("other.txt", &large(b'a'));
    site.write("same.txt", &large(b's'));
    commit(&site.worktree, "one");
    site.write("grown.txt", &large(b'g'));
    site.write("other.txt", &large(b'b'));
    site.write("same.txt", &large(b's'));
    let rows = ["grown.txt", "other.txt"].map(|path| row(path, Status::Modified, 0, 0));
    assert_eq!(site.told(Since::Head).await, rows);
    let patch = site.repository().unwrap().patch(&site.worktree, ALL).await.unwrap();
    assert_eq!(String::from_utf8(patch).unwrap(), said_by_git(&site));
}

#[tokio::test]
async fn branches_that_met_again_are_compared_with_the_last_place_where_they_did() {
    let site = Site::new(&[]);
    site.write("a.txt", "one\n");
    commit(&site.worktree, "one");
    git(&site.worktree, &["checkout", "--quiet", "-b", "side"]);
    site.write("b.txt", "b\n");
    commit(&site.worktree, "side");
    git(&site.worktree, &["checkout", "--quiet", "main"]);
    site.write("c.txt", "c\n");
    commit(&site.worktree, "main");
    git(&site.worktree, &["checkout", "--quiet", "side"]);
    git(&site.worktree, &["merge", "--quiet", "--no-edit", "main"]);
    site.write("d.txt", "d\n");
    let added = |path: &str| row(path, Status::Added, 1, 0);
    assert_eq!(site.told(Since::Branch).await, [added("b.txt"), added("d.txt")]);
    // Of a clone without the beginning, as much as is there.
    let top = site.folder.path().canonicalize().unwrap();
    let address = format!("file://{}", site.worktree.display());
    git(&top, &["clone", "--quiet", "--depth=1", "--no-single-branch", &address, "shallow"]);
    let shallow = top.join("shallow");
    git(&shallow, &["branch", "--quiet", "--force", "main", "origin/main"]);
    fs_err::write(shallow.join("d.txt"), "d\n").unwrap();
    let repository = Repository::open(&shallow, &[], &|_| false).unwrap();
    assert!(repository.changes(&shallow, Since::Branch, None, ALL).await.unwrap().is_empty());
    assert_eq!(repository.changes(&shallow, Since::Head, None, ALL).await.unwrap().len(), 1);
}
