use std::os::unix::fs::symlink;

use super::*;

/// Every file tool, aimed at `path`.
fn calls(path: &str) -> [(&'static str, Value); 6] {
    [
        ("read", json!({"filePath": path})),
        ("write", json!({"filePath": path, "content": "x"})),
        ("edit", json!({"filePath": path, "oldString": "secret", "newString": "x"})),
        ("glob", json!({"pattern": "*", "path": path})),
        ("grep", json!({"pattern": "secret", "path": path})),
        ("list", json!({"path": path})),
    ]
}

#[tokio::test]
async fn nothing_outside_the_workspace_is_touched() {
    let house = House::with(&["inner/"]);
    let outside = house.folder.path().join("outside");
    fs_err::create_dir(&outside).unwrap();
    fs_err::write(outside.join("file"), "secret").unwrap();
    symlink("../outside/file", house.path("link")).unwrap();
    symlink(&outside, house.path("middle")).unwrap();
    symlink("../../outside/new", house.path("inner/dangling")).unwrap();
    let absolute = outside.join("file");
    let paths = [
        "../outside/file",
        "link",
        "middle/file",
        "middle/../outside/file",
        "inner/dangling",
        "middle",
        "..",
    ];
    for path in paths.into_iter().chain([absolute.to_str().unwrap()]) {
        for (tool, input) in calls(path) {
            let error = house.bad(tool, input).await;
            assert!(error.contains("outside the workspace"), "{tool} {path}: {error}");
            assert!(!error.contains("secret"), "{tool} {path}: {error}");
        }
    }
    assert_eq!(fs_err::read(outside.join("file")).unwrap(), b"secret");
    assert!(!outside.join("new").exists());
}

#[tokio::test]
async fn no_search_comes_to_what_is_hidden() {
    let mut house =
        House::with(&["src/own=secret\n", "keys/key=secret\n", "deep/keys/key=secret\n", "file=secret\n"]);
    let hidden = ["keys", "deep/keys", "file"].map(|name| house.path(name)).to_vec();
    house.context.workspace = Arc::new((*house.context.workspace).clone().hiding(hidden));
    for path in [".", "src/.."] {
        let listed = house.good("list", json!({"path": path})).await;
        assert!(listed.contains("own") && !listed.contains("key") && !listed.contains("file"), "{listed}");
        let found = house.good("glob", json!({"pattern": "**/*", "path": path})).await;
        assert_eq!(found, "src/own");
        let found = house.good("grep", json!({"pattern": "secret", "path": path})).await;
        assert!(found.contains("src/own") && !found.contains("key") && !found.contains("file"), "{found}");
    }
    let found = house.good("glob", json!({"pattern": "**/*", "path": "deep"})).await;
    assert!(!found.contains("key"), "{found}");
    for (tool, input) in calls("keys") {
        assert!(house.bad(tool, input).await.contains("belongs to the engine"), "{tool}");
    }
}

#[tokio::test]
async fn a_link_that_is_put_in_the_way_after_the_judgement_is_not_followed() {
    let house = House::with(&["dir/file=inside\n"]);
    let outside = house.folder.path().join("outside");
    fs_err::create_dir(&outside).unwrap();
    fs_err::write(outside.join("file"), "secret\n").unwrap();
    house.good("read", json!({"filePath": "dir/file"})).await;
    for (tool, input) in calls("dir/file").into_iter().chain(calls("dir")) {
        let input = playhouse_protocol::message::CallInput::from_model(&input.to_string());
        let (tool, prepared) =
            crate::runner::prepare(&house.registry, tool, &input, &house.context).await.unwrap();
        fs_err::rename(house.path("dir"), house.path("moved")).unwrap();
        symlink(&outside, house.path("dir")).unwrap();
        let error = crate::runner::execute(&tool, prepared, &house.context).await.unwrap_err().to_string();
        assert!(error.contains("was replaced while the call ran"), "{}: {error}", tool.spec().name);
        fs_err::remove_file(house.path("dir")).unwrap();
        fs_err::rename(house.path("moved"), house.path("dir")).unwrap();
    }
    assert_eq!(fs_err::read(outside.join("file")).unwrap(), b"secret\n");
}

#[tokio::test]
async fn pipes_are_never_waited_for() {
    let house = House::with(&["a=needle\n"]);
    let path = house.path("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    insta::assert_snapshot!(house.bad("read", json!({"filePath": "pipe"})).await, @"pipe is a pipe, not a regular file, so it is not opened");
    for (tool, input) in calls("pipe") {
        assert!(!house.bad(tool, input).await.is_empty());
    }
    let found = house.good("grep", json!({"pattern": "needle"})).await;
    assert_eq!(found, "a\n1\tneedle");
}

#[tokio::test]
async fn a_directory_is_no_file_and_a_file_no_directory() {
    let house = House::with(&["dir/file=x"]);
    for tool in ["write", "edit"] {
        let input = json!({"filePath": "dir", "content": "x", "oldString": "x", "newString": "y"});
        let mut input = input.as_object().unwrap().clone();
        let keys: &[&str] = if tool == "write" { &["oldString", "newString"] } else { &["content"] };
        keys.iter().for_each(|key| drop(input.remove(*key)));
        let error = house.bad(tool, Value::Object(input.clone())).await;
        assert_eq!(error, "dir is a directory, not a file", "{tool}");
        input.insert("filePath".into(), "dir/".into());
        assert!(house.bad(tool, Value::Object(input)).await.contains("names a directory"));
    }
    assert_eq!(
        house.bad("glob", json!({"pattern": "*", "path": "dir/file"})).await,
        "dir/file is not a directory"
    );
    assert_eq!(house.bad("list", json!({"path": "dir/file"})).await, "dir/file is not a directory");
    for (tool, input) in [
        ("list", json!({"path": "none"})),
        ("grep", json!({"path": "none", "pattern": "x"})),
        ("glob", json!({"path": "none", "pattern": "x"})),
    ] {
        let error = house.bad(tool, input).await;
        assert_eq!(
            error, "none does not exist: list . to see what does, or find the file with glob (**/none)",
            "{tool}"
        );
    }
    insta::assert_snapshot!(house.bad("write", json!({"filePath": "dir/file/below", "content": "x"})).await, @"<folder>/repo/dir/file is a file, so nothing can be below it");
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_refused() {
    let house = House::with(&[]);
    for (tool, input) in [
        ("read", json!({})),
        ("read", json!({"filePath": 7})),
        ("read", json!({"filePath": "a", "offset": -1})),
        ("write", json!({"filePath": "a"})),
        ("edit", json!({"filePath": "a", "oldString": "x"})),
        ("glob", json!({"path": "."})),
        ("list", json!({"ignore": "x", "paths": "."})),
    ] {
        let error = house.bad(tool, input.clone()).await;
        assert!(error.contains(&format!("the arguments of {tool} do not fit")), "{input}: {error}");
    }
    for path in ["", "a\0b"] {
        assert!(house.bad("read", json!({"filePath": path})).await.contains("path"));
        assert!(house.bad("write", json!({"filePath": path, "content": ""})).await.contains("path"));
    }
}

#[tokio::test]
async fn a_cancelled_call_does_nothing() {
    let house = House::with(&["a=secret\n"]);
    house.good("read", json!({"filePath": "a"})).await;
    for path in ["a", "."] {
        for (tool, input) in calls(path) {
            let mut context = house.context.clone();
            context.cancel = tokio_util::sync::CancellationToken::new();
            let input = playhouse_protocol::message::CallInput::from_model(&input.to_string());
            let (tool, prepared) =
                crate::runner::prepare(&house.registry, tool, &input, &context).await.unwrap();
            context.cancel.cancel();
            let result = crate::runner::execute(&tool, prepared, &context).await;
            assert_eq!(result, Err(ToolError::Cancelled(String::new())), "{}", tool.spec().name);
        }
    }
    assert_eq!(house.content("a"), b"secret\n");
}

#[tokio::test]
async fn a_call_that_waits_for_a_lock_is_cancelled() {
    let house = House::with(&[]);
    let path = fs_err::canonicalize(house.path("")).unwrap().join("a");
    let guard = house.context.locks.lock(&[path]).await;
    let mut context = house.context.clone();
    context.cancel = tokio_util::sync::CancellationToken::new();
    let input = json!({"filePath": "a", "content": "x"});
    let (result, ()) = tokio::join!(testing::call(&house.registry, "write", &input, &context), async {
        tokio::task::yield_now().await;
        context.cancel.cancel();
    });
    assert_eq!(result, Err(ToolError::Cancelled(String::new())));
    drop(guard);
    assert!(!house.path("a").exists());
}

#[tokio::test]
async fn a_file_that_may_not_be_written_is_left_alone() {
    let house = House::with(&["a=1"]);
    fs_err::set_permissions(house.path("a"), std::fs::Permissions::from_mode(0o444)).unwrap();
    house.good("read", json!({"filePath": "a"})).await;
    let error = house.bad("write", json!({"filePath": "a", "content": "2"})).await;
    assert!(error.contains("read-only"), "{error}");
    assert_eq!(house.content("a"), b"1");
}

#[tokio::test]
async fn a_huge_file_is_not_changed_and_not_read_into_memory() {
    let house = House::with(&[]);
    fs_err::File::create(house.path("huge")).unwrap().set_len(1_000_000_000).unwrap();
    for (tool, input) in &calls("huge")[1..3] {
        let error = house.bad(tool, input.clone()).await;
        assert_eq!(
            error,
            "huge has 1.0 GB, and files are changed up to 50.0 MB only: use bash (sed, awk, a script) for it"
        );
    }
}

#[tokio::test]
async fn a_binary_file_is_neither_edited_nor_overwritten_unseen() {
    let house = House::with(&[]);
    house.put("a.bin", b"secret\0\x01\x02");
    for (tool, input) in &calls("a.bin")[1..3] {
        let error = house.bad(tool, input.clone()).await;
        assert!(error.contains("is a binary file"), "{tool}: {error}");
    }
    assert_eq!(house.content("a.bin"), b"secret\0\x01\x02");
}
