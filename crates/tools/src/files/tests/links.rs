//! Files that are not simply replaced: with other names, attributes, and cut off in the middle.

use std::collections::BTreeMap;
use std::process::Command;

use playhouse_workspace::door;
use rustix::fs::XattrFlags;

use super::*;

/// Says to this binary that it is the process that a test started, and in which folder it works.
const CHILD: &str = "PLAYHOUSE_TEST_LINKS";

/// Calls that make `one` of `file` to `two`.
fn changes(file: &str) -> [(&'static str, Value); 4] {
    let patch = format!("*** Begin Patch\n*** Update File: {file}\n@@\n-one\n+two\n*** End Patch");
    [
        ("write", json!({"filePath": file, "content": "two\n"})),
        ("edit", json!({"filePath": file, "oldString": "one", "newString": "two"})),
        ("multiedit", json!({"filePath": file, "edits": [{"oldString": "one", "newString": "two"}]})),
        ("apply_patch", json!({"patchText": patch})),
    ]
}

#[tokio::test]
async fn other_names_in_the_workspace_change_with_the_file() {
    for (tool, input) in changes("real") {
        let house = House::with(&["real=one\n"]);
        fs_err::hard_link(house.path("real"), house.path("hard")).unwrap();
        house.good("read", json!({"filePath": "real"})).await;
        let done = house.good(tool, input).await;
        assert!(!done.contains("note"), "{done}");
        assert_eq!(house.content("hard"), b"two\n", "{tool}");
        // What was kept meanwhile is gone.
        assert!(fs_err::read_dir(house.context.workspace.output()).unwrap().next().is_none());
    }
}

#[tokio::test]
async fn other_names_outside_keep_their_content_and_this_is_told() {
    for (tool, input) in changes("real") {
        let house = House::with(&["real=one\n"]);
        let outside = house.folder.path().join("outside");
        fs_err::hard_link(house.path("real"), &outside).unwrap();
        house.good("read", json!({"filePath": "real"})).await;
        let done = house.good(tool, input).await;
        let told = "note: real is a file of its own now: another name (hard link) of it keeps the old content, since not all of them are in the workspace and may be changed\n";
        assert!(done.contains(told), "{tool}: {done}");
        assert_eq!(
            (house.content("real"), fs_err::read(outside).unwrap()),
            (b"two\n".to_vec(), b"one\n".to_vec())
        );
    }
}

#[tokio::test]
async fn a_patch_that_fails_puts_files_with_other_names_back_under_all_of_them() {
    let house = House::with(&["real=one\n", "second=one\n"]);
    fs_err::hard_link(house.path("real"), house.path("hard")).unwrap();
    for file in ["real", "second"] {
        house.good("read", json!({"filePath": file})).await;
    }
    fs_err::set_permissions(house.path("second"), std::fs::Permissions::from_mode(0o444)).unwrap();
    let patch = "*** Begin Patch\n*** Update File: real\n@@\n-one\n+two\n*** Update File: second\n@@\n-one\n+two\n*** End Patch";
    let error = house.bad("apply_patch", json!({"patchText": patch})).await;
    assert!(error.contains("read-only") && error.contains("Every file is as it was before"), "{error}");
    assert_eq!((house.content("real"), house.content("hard")), (b"one\n".to_vec(), b"one\n".to_vec()));
}

#[tokio::test]
async fn extended_attributes_stay_in_every_tool() {
    for (tool, input) in changes("real") {
        let house = House::with(&["real=one\n"]);
        let path = house.path("real");
        rustix::fs::setxattr(&path, "user.tag", b"x", XattrFlags::empty()).unwrap_or_else(|error| {
            panic!(
                "{} has no extended attributes of users ({error}): point TMPDIR to a file system that has",
                path.display()
            )
        });
        house.good("read", json!({"filePath": "real"})).await;
        house.good(tool, input).await;
        assert_eq!(house.content("real"), b"two\n", "{tool}");
        let mut value = [0; 8];
        assert_eq!(
            rustix::fs::getxattr(&path, "user.tag", &mut value).map(|length| value[..length].to_vec()),
            Ok(b"x".to_vec()),
            "{tool}"
        );
    }
}

/// Replaces much in a file with two names, in a process whose files may have 128 KB.
#[tokio::test]
async fn process_that_may_not_write_so_much() {
    let Some(folder) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    let context = testing::context(&folder.join("repo"), &folder.join("outputs")).unwrap();
    let registry = Registry::native();
    let call = |tool: &'static str, input: Value| {
        let (registry, context) = (&registry, &context);
        async move { testing::call(registry, tool, &input, context).await }
    };
    call("read", json!({"filePath": "real"})).await.unwrap();
    let edit =
        json!({"filePath": "real", "oldString": "one", "newString": "two ".repeat(20), "replaceAll": true});
    let done = call("edit", edit).await;
    panic!("it was not killed: {done:?}");
}

#[tokio::test]
async fn an_edit_that_is_killed_in_the_middle_leaves_what_the_next_start_puts_back() {
    let house = House::with(&[]);
    let old = "one\n".repeat(5_000);
    house.put("real", old.as_bytes());
    fs_err::hard_link(house.path("real"), house.path("hard")).unwrap();
    let folder = fs_err::canonicalize(house.folder.path()).unwrap();
    let ended = Command::new("sh")
        .args(["-c", "ulimit -f 256; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["files::tests::links::process_that_may_not_write_so_much", "--exact", "--nocapture"])
        .env(CHILD, &folder)
        .output()
        .unwrap();
    let signal = std::os::unix::process::ExitStatusExt::signal(&ended.status);
    assert_eq!(signal, Some(25), "{}", String::from_utf8_lossy(&ended.stdout));
    let torn = house.content("hard");
    assert!(torn.len() > old.len() && torn.starts_with(b"two two") && torn.len() < 405_000, "{}", torn.len());
    assert_eq!(fs_err::read(folder.join("outputs/call.before")).unwrap(), old.as_bytes());

    let told = door::restore(&house.context.workspace);
    let expected = format!(
        "real had a part of the new content, and its old content was put back, which is also in {0}/call.before; what it had is in {0}/call.found",
        folder.join("outputs").display()
    );
    assert_eq!(told, BTreeMap::from([("call".to_owned(), expected)]));
    assert!(house.content("hard") == old.as_bytes() && house.content("real") == old.as_bytes());
    assert_eq!(fs_err::read(folder.join("outputs/call.found")).unwrap(), torn);
}
