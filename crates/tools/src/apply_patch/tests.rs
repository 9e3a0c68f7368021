use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::{Registry, Tool as _, Typed, runner, testing};

/// A workspace, and a session that has read all files in it.
struct House {
    folder: tempfile::TempDir,
    context: CallContext,
    registry: Registry,
}

impl House {
    fn with(entries: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("repo");
        fs_err::create_dir(&root).unwrap();
        let context = testing::context(&root, &folder.path().join("outputs")).unwrap();
        let house = Self { folder, context, registry: Registry::native() };
        for (name, content) in entries {
            house.put(name, content);
            house
                .context
                .files
                .remember(house.place(name).path, playhouse_workspace::hash(content.as_bytes()));
        }
        house
    }

    fn place(&self, name: &str) -> Resolved {
        self.context.workspace.resolve(name).unwrap()
    }

    fn put(&self, name: &str, content: &str) {
        let path = self.path(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, content).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("repo").join(name)
    }

    fn set_mode(&self, name: &str, mode: u32) {
        fs_err::set_permissions(self.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn mode(&self, name: &str) -> u32 {
        fs_err::metadata(self.path(name)).unwrap().mode() & 0o7777
    }

    /// Every file and directory, with its content and its mode.
    fn tree(&self) -> Vec<(String, u32, String)> {
        let mut entries = Vec::new();
        gather(&self.path(""), "", &mut entries);
        entries.sort();
        entries
    }

    async fn patch(&self, body: &str) -> Result<ToolOutput, ToolError> {
        testing::call(&self.registry, "apply_patch", &json!({"patchText": whole(body)}), &self.context).await
    }

    async fn good(&self, body: &str) -> ToolOutput {
        self.patch(body).await.unwrap()
    }

    /// The error of a patch that must not change anything.
    async fn bad(&self, body: &str) -> String {
        let before = self.tree();
        let error = self.patch(body).await.unwrap_err().to_string();
        assert_eq!(self.tree(), before, "{error}");
        error
    }

    /// The error of a patch that is planned, and carried out after `meanwhile`.
    fn interrupted(&self, body: &str, meanwhile: impl FnOnce()) -> String {
        let task = Task::read(&whole(body), &self.context.workspace).unwrap();
        let planned = task.plan(Some(&self.context.files), &self.context.cancel).unwrap();
        meanwhile();
        commit::commit(PATCH, &planned, &self.context.files, &Keeping::of(&self.context))
            .unwrap_err()
            .to_string()
    }
}

fn gather(directory: &Path, prefix: &str, entries: &mut Vec<(String, u32, String)>) {
    for entry in fs_err::read_dir(directory).unwrap().map(Result::unwrap) {
        let name = format!("{prefix}{}", entry.file_name().into_string().unwrap());
        let mode = entry.metadata().unwrap().mode() & 0o7777;
        if entry.file_type().unwrap().is_symlink() {
            let target = fs_err::read_link(entry.path()).unwrap();
            entries.push((name, 0, target.into_os_string().into_string().unwrap()));
        } else if entry.file_type().unwrap().is_dir() {
            gather(&entry.path(), &format!("{name}/"), entries);
            entries.push((format!("{name}/"), mode, String::new()));
        } else {
            entries.push((name, mode, fs_err::read_to_string(entry.path()).unwrap()));
        }
    }
}

fn whole(body: &str) -> String {
    format!("*** Begin Patch\n{body}\n*** End Patch\n")
}

#[tokio::test]
async fn all_that_a_patch_can_do_is_done_and_told() {
    let house = House::with(&[("src/a.rs", "one\ntwo\n"), ("old", "x\n"), ("run", "1\n2\n")]);
    house.set_mode("run", 0o755);
    let patch = "*** Add File: new/deep.txt\n+hello\n*** Update File: src/a.rs\n@@\n one\n-two\n+2\n*** Delete File: old\n*** Update File: run\n*** Move to: bin/run\n@@\n-1\n+one";
    let done = house.good(patch).await;
    insta::assert_snapshot!(done.output, @r"
    applied the patch to 4 files (+3 -3)
    add new/deep.txt (+1 -0)
    update src/a.rs (+1 -1)
    delete old (+0 -1)
    move run -> bin/run (+1 -1)
    --- a/src/a.rs
    +++ b/src/a.rs
    @@ -1,2 +1,2 @@
     one
    -two
    +2
    --- a/run
    +++ b/bin/run
    @@ -1,2 +1,2 @@
    -1
    +one
     2
    ");
    assert_eq!(done.title, "4 files");
    let root = house.place(".").path;
    let file = |path: &str| root.join(path).to_str().unwrap().to_owned();
    assert_eq!(
        done.metadata["files"],
        json!([
            {"type": "add", "relativePath": "new/deep.txt", "filePath": file("new/deep.txt"),
             "patch": "--- /dev/null\n+++ b/new/deep.txt\n@@ -0,0 +1 @@\n+hello\n", "additions": 1, "deletions": 0},
            {"type": "update", "relativePath": "src/a.rs", "filePath": file("src/a.rs"),
             "patch": "--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n", "additions": 1, "deletions": 1},
            {"type": "delete", "relativePath": "old", "filePath": file("old"),
             "patch": "--- a/old\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", "additions": 0, "deletions": 1},
            {"type": "move", "relativePath": "bin/run", "filePath": file("run"), "movePath": file("bin/run"),
             "patch": "--- a/run\n+++ b/bin/run\n@@ -1,2 +1,2 @@\n-1\n+one\n 2\n", "additions": 1, "deletions": 1},
        ])
    );
    assert_eq!(house.mode("bin/run"), 0o755);
    let names: Vec<_> = house.tree().into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["bin/", "bin/run", "new/", "new/deep.txt", "src/", "src/a.rs"]);

    // What the session wrote, it has seen; what it removed, it knows no more.
    house.good("*** Update File: bin/run\n@@\n-one\n+1\n*** Update File: new/deep.txt\n@@\n+you").await;
    house.put("old", "x\n");
    assert!(house.bad("*** Delete File: old").await.contains("has not been read in this session"));
}

#[tokio::test]
async fn files_must_have_been_read_and_not_changed_since() {
    let house = House::with(&[("seen", "1\n")]);
    house.put("unseen", "1\n");
    for patch in [
        "*** Update File: unseen\n@@\n-1",
        "*** Delete File: unseen",
        "*** Update File: unseen\n*** Move to: x",
    ] {
        assert_eq!(
            house.bad(patch).await,
            "the patch was not applied, and no file was changed.\nunseen exists and has not been read in this session: read it first, then change it"
        );
    }
    house.put("seen", "1\n2\n");
    for patch in ["*** Update File: seen\n@@\n-1", "*** Delete File: seen"] {
        assert!(house.bad(patch).await.contains("seen changed since it was last read"));
    }
    testing::call(&house.registry, "read", &json!({"filePath": "seen"}), &house.context).await.unwrap();
    house.good("*** Update File: seen\n@@\n-1").await;
}

#[tokio::test]
async fn every_file_is_checked_before_any_changes_and_all_trouble_is_told() {
    let house = House::with(&[("a", "1\n"), ("b", "1\n"), ("c/d", "1\n")]);
    let patch = "*** Update File: a\n@@\n-1\n+2\n*** Add File: b\n+x\n*** Update File: c/d\n@@\n-7\n*** Delete File: none\n*** Add File: c\n+x\n*** Add File: n\n+x\n*** Add File: n/m\n+x";
    insta::assert_snapshot!(house.bad(patch).await, @r#"
    the patch was not applied, and no file was changed.
    n/m would be below a file that the patch makes
    b exists already: change it with "*** Update File:"
    c/d: hunk 1 (line 9 of the patch) does not fit: this line is not in the file:
    7
    Nothing in the file is like it: read the file again
    none does not exist: check the path with list or glob
    c is a directory, not a file
    "#);
    let same = house.bad("*** Update File: a\n@@\n-1\n+1").await;
    assert!(same.contains("it changes nothing"), "{same}");
    let target = house.bad("*** Update File: a\n*** Move to: b").await;
    assert!(target.contains("b exists already: delete it first"), "{target}");
}

#[tokio::test]
async fn a_file_may_be_updated_twice_and_named_twice_in_no_other_way() {
    let house = House::with(&[("a", "1\n2\n3\n"), ("b", "x\n")]);
    house
        .good("*** Update File: a\n@@\n-3\n+three\n*** Update File: ./a\n@@\n-1\n+one\n@@\n-three\n+3")
        .await;
    assert_eq!(fs_err::read_to_string(house.path("a")).unwrap(), "one\n2\n3\n");
    for patch in [
        "*** Delete File: a\n*** Add File: a\n+x",
        "*** Update File: a\n@@\n-2\n*** Delete File: a",
        "*** Update File: a\n*** Move to: c\n*** Update File: c\n@@\n-2",
        "*** Update File: a\n*** Move to: c\n*** Add File: c\n+x",
        "*** Update File: a\n@@\n-2\n*** Update File: a\n*** Move to: c",
        "*** Update File: a\n*** Move to: b\n*** Delete File: b",
    ] {
        let error = house.bad(patch).await;
        assert!(
            error.contains(" twice: put all that happens to a file into one section"),
            "{patch}: {error}"
        );
    }
    // A file that is moved to where it is.
    house.good("*** Update File: b\n*** Move to: ./b\n@@\n-x\n+y").await;
    assert_eq!(fs_err::read_to_string(house.path("b")).unwrap(), "y\n");
}

#[tokio::test]
async fn paths_are_judged_and_lead_where_links_lead() {
    let house = House::with(&[("real/a", "1\n")]);
    fs_err::os::unix::fs::symlink("real", house.path("link")).unwrap();
    fs_err::os::unix::fs::symlink("/etc", house.path("out")).unwrap();
    let prepare = async |body: &str| {
        let input = json!({"patchText": whole(body)});
        Typed::new(ApplyPatch).prepare(input.as_object().unwrap(), &house.context).await.unwrap()
    };
    let prepared = prepare("*** Update File: link/a\n*** Move to: ../b\n@@\n-1").await;
    let (inside, outside) = (house.place("real/a"), house.place("../b"));
    assert_eq!(
        (inside.shown.as_str(), inside.zone, outside.zone),
        ("real/a", Zone::Workspace, Zone::Outside)
    );
    assert_eq!(prepared.accesses, [inside.access(AccessKind::Write), outside.access(AccessKind::Write)]);
    assert!(
        prepared.preview.starts_with("*** Begin Patch\n*** Update File: link/a\n"),
        "{}",
        prepared.preview
    );
    for patch in ["*** Add File: out/new\n+x", "*** Add File: ../new\n+x"] {
        assert!(house.bad(patch).await.contains("outside the workspace"));
    }
    assert!(house.bad("*** Add File: dir/\n+x").await.contains("names a directory"));
    assert!(house.bad("*** Add File: real/a/b\n+x").await.contains("is a file, so nothing can be below it"));
    house.good("*** Update File: link/a\n@@\n-1\n+2").await;
    assert_eq!(fs_err::read_to_string(house.path("real/a")).unwrap(), "2\n");
}

#[tokio::test]
async fn nothing_is_deleted_or_moved_through_a_link() {
    let house = House::with(&[("dir/a", "1\n")]);
    fs_err::os::unix::fs::symlink("a", house.path("dir/la")).unwrap();
    fs_err::os::unix::fs::symlink("dir", house.path("ld")).unwrap();
    let expected = "is a link to dir/a: a patch neither deletes nor moves links, nor files through them. Name dir/a itself, or use bash (rm, mv) for the link";
    for path in ["dir/la", "./ld/la", "ld/../dir/la"] {
        assert_eq!(house.bad(&format!("*** Delete File: {path}")).await, format!("{path} {expected}"));
        let moved = format!("*** Update File: {path}\n*** Move to: b\n@@\n-1\n+2");
        assert_eq!(house.bad(&moved).await, format!("{path} {expected}"));
    }
    // The file itself, below a directory that is reached by a link, and an update.
    house.good("*** Update File: dir/la\n@@\n-1\n+2").await;
    house.good("*** Update File: ld/a\n*** Move to: b").await;
    assert_eq!(fs_err::read_to_string(house.path("b")).unwrap(), "2\n");
}

#[tokio::test]
async fn another_place_where_a_hunk_fits_is_told() {
    let house = House::with(&[("a", "fn a:\n  x\nfn b:\n  x\nfn c:\n  x\n")]);
    let note = async |body: &str| {
        let done = house.good(&format!("*** Update File: a\n{body}")).await;
        let notes = done.output.lines().filter(|line| line.starts_with("note: "));
        notes.collect::<Vec<_>>().join("\n")
    };
    assert_eq!(
        note("@@\n-  x\n+  y").await,
        "note: hunk 1 of a went to line 2, and fits at line 4 as well: check that the first of these places was meant"
    );
    // What says which place is meant, and what takes all of them.
    assert_eq!(note("@@ fn b:\n-  x\n+  1").await, "");
    assert_eq!(note("@@\n fn a:\n-  y\n+  x\n@@\n fn b:\n-  1\n+  x").await, "");
    assert_eq!(note("@@\n-  x\n+  y\n@@\n-  x\n+  y\n@@\n-  x\n+  y").await, "");
}

#[tokio::test]
async fn a_person_sees_the_whole_diff_before_and_nothing_is_done_yet() {
    let house = House::with(&[("a", "1\n"), ("b", "2\n")]);
    let before = house.tree();
    let input = json!({"patchText": whole("*** Add File: n\n+x\n*** Update File: a\n@@\n-1\n+2\n*** Update File: b\n*** Move to: c")});
    let prepared = Typed::new(ApplyPatch).prepare(input.as_object().unwrap(), &house.context).await.unwrap();
    insta::assert_snapshot!(prepared.preview, @r"
    --- /dev/null
    +++ b/n
    @@ -0,0 +1 @@
    +x
    --- a/a
    +++ b/a
    @@ -1 +1 @@
    -1
    +2
    move b -> c (+0 -0)
    ");
    assert_eq!((prepared.title.as_str(), house.tree()), ("3 files", before));
}

#[tokio::test]
async fn a_failure_half_way_puts_every_file_back() {
    let house = House::with(&[("a", "1\n"), ("gone", "g\n"), ("moved", "m\n"), ("last", "l\n")]);
    house.set_mode("gone", 0o4750);
    house.set_mode("a", 0o640);
    let inode = fs_err::metadata(house.path("gone")).unwrap().ino();
    let first = "*** Delete File: gone\n*** Update File: a\n@@\n-1\n+2\n*** Add File: x/y/z\n+new\n*** Update File: moved\n*** Move to: x/moved\n@@\n-m\n+n\n";

    // The last file may not be written.
    house.set_mode("last", 0o444);
    let error = house.bad(&format!("{first}*** Update File: last\n@@\n-l")).await;
    assert_eq!(
        error,
        "the patch was not applied: last is read-only: its permissions allow nobody, or not this user, to write it. Every file is as it was before"
    );
    house.bad(&format!("*** Delete File: last\n{first}")).await;
    house.set_mode("last", 0o644);

    // It changed after it was looked at.
    let before = house.tree();
    let error =
        house.interrupted(&format!("{first}*** Update File: last\n@@\n-l"), || house.put("last", "other\n"));
    assert!(error.starts_with("the patch was not applied: last changed meanwhile: read it again"), "{error}");
    assert!(error.ends_with("Every file is as it was before"), "{error}");
    house.put("last", "l\n");
    assert_eq!(house.tree(), before);

    // Something else came to its place, or to the place of a new file.
    let error = house.interrupted(&format!("{first}*** Update File: last\n@@\n-l"), || {
        fs_err::remove_file(house.path("last")).unwrap();
        fs_err::create_dir(house.path("last")).unwrap();
    });
    assert!(error.contains("last is a directory, not a file. Every file is as it was before"), "{error}");
    fs_err::remove_dir(house.path("last")).unwrap();
    house.put("last", "l\n");
    assert_eq!(house.tree(), before);
    let error = house.interrupted(&format!("{first}*** Add File: free\n+x"), || house.put("free", "taken\n"));
    assert!(error.contains("free exists already. Every file is as it was before"), "{error}");
    fs_err::remove_file(house.path("free")).unwrap();
    assert_eq!(house.tree(), before);
    assert_eq!(fs_err::metadata(house.path("gone")).unwrap().ino(), inode);

    // The session still knows the files as they are.
    house.good(&format!("{first}*** Update File: last\n@@\n-l\n+L")).await;
    let names: Vec<_> = house.tree().into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["a", "last", "x/", "x/moved", "x/y/", "x/y/z"]);
}

#[tokio::test]
async fn a_link_that_was_put_into_the_way_is_not_followed() {
    let house = House::with(&[("a", "1\n")]);
    fs_err::create_dir(house.path("elsewhere")).unwrap();
    let error = house.interrupted("*** Update File: a\n@@\n-1\n+2\n*** Add File: n/m\n+x", || {
        fs_err::os::unix::fs::symlink("elsewhere", house.path("n")).unwrap();
    });
    assert!(error.contains("n/m was replaced while the call ran"), "{error}");
    assert!(error.ends_with("Every file is as it was before"), "{error}");
    assert_eq!(fs_err::read_to_string(house.path("a")).unwrap(), "1\n");
    assert!(fs_err::read_dir(house.path("elsewhere")).unwrap().next().is_none());
}

#[tokio::test]
async fn loose_hunks_are_told() {
    let house = House::with(&[("a", "  x\ny \n")]);
    let done = house.good("*** Update File: a\n@@\n x\n-y\n+z").await;
    assert!(
        done.output.contains("\nnote: hunk 1 of a was found at line 1 only without regard to indentation\n"),
        "{}",
        done.output
    );
    assert_eq!(fs_err::read_to_string(house.path("a")).unwrap(), "  x\nz\n");
}

#[tokio::test]
async fn what_is_not_for_patches_is_refused() {
    let house = House::with(&[("bytes", "a\0b\n")]);
    let error = house.bad("*** Update File: bytes\n@@\n-a").await;
    assert!(error.contains("bytes is a binary file, which a patch does not change"), "{error}");
    let many: Vec<String> = (0..=SECTIONS).map(|number| format!("*** Add File: {number}\n+x")).collect();
    assert!(house.bad(&many.join("\n")).await.contains("the patch has 501 sections, and may have 500"));
    let long = format!("*** Add File: a\n+{}", "x".repeat(LONGEST));
    assert!(house.bad(&long).await.contains("patchText has 4.0 MB"));
    for input in [json!({}), json!({"patchText": 1.5}), json!({"patchText": "x", "more": 1})] {
        let error = testing::call(&house.registry, "apply_patch", &input, &house.context).await.unwrap_err();
        assert!(error.to_string().contains("It takes {patchText: string}"), "{error}");
    }
}

#[tokio::test]
async fn a_cancelled_call_changes_nothing() {
    let house = House::with(&[("a", "1\n")]);
    let before = house.tree();
    let input = playhouse_protocol::message::CallInput::from_model(&Value::to_string(
        &json!({"patchText": whole("*** Update File: a\n@@\n-1\n+2\n*** Add File: b\n+x")}),
    ));
    let (tool, prepared) =
        runner::prepare(&house.registry, "apply_patch", &input, &house.context).await.unwrap();
    // While it waits for the second of its files.
    let guard = house.context.locks.lock(&[house.place("b").path]).await;
    let mut running = std::pin::pin!(runner::execute(&tool, prepared, &house.context));
    assert!(futures::poll!(&mut running).is_pending());
    house.context.cancel.cancel();
    assert_eq!(running.await.unwrap_err(), ToolError::Cancelled(String::new()));
    drop(guard);
    assert_eq!(house.tree(), before);

    // While it looks for the places of its hunks.
    let task = Task::read(&whole("*** Update File: a\n@@\n-1\n+2"), &house.context.workspace).unwrap();
    let stopped =
        task.run(&house.context.files, &Keeping::of(&house.context), &house.context.cancel).unwrap_err();
    assert_eq!(stopped, ToolError::Cancelled(String::new()));
    assert_eq!(house.tree(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patches_of_the_same_files_take_turns() {
    let house = House::with(&[("a", "start\n"), ("b", "start\n")]);
    let calls = (0..20).map(|number| {
        let (first, second) = if number % 2 == 0 { ("a", "b") } else { ("b", "a") };
        let body = format!(
            "*** Update File: {first}\n@@ start\n+{number}\n*** Update File: {second}\n@@ start\n+{number}"
        );
        async { house.good(&{ body }).await }
    });
    futures::future::join_all(calls).await;
    let lines = |name: &str| fs_err::read_to_string(house.path(name)).unwrap().lines().count();
    assert_eq!((lines("a"), lines("b")), (21, 21));
}
