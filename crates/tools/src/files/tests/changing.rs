use super::*;

#[tokio::test]
async fn a_new_file_is_created_with_its_directories() {
    let house = House::with(&[]);
    let made = house.call("write", json!({"filePath": "a/b/c.txt", "content": "one\ntwo\n"})).await.unwrap();
    assert_eq!(made.output, "created a/b/c.txt, 2 lines (+2 -0)\n");
    assert_eq!(house.content("a/b/c.txt"), b"one\ntwo\n");
    assert_eq!(made.metadata["created"], true);
    assert_eq!(made.metadata["additions"], 2);
    assert_eq!(made.metadata["diff"], "--- /dev/null\n+++ b/a/b/c.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n");
    // What the session wrote, it has seen.
    house.good("write", json!({"filePath": "a/b/c.txt", "content": "three\n"})).await;
    house.good("edit", json!({"filePath": "a/b/c.txt", "oldString": "three", "newString": "3"})).await;
    assert_eq!(house.content("a/b/c.txt"), b"3\n");
}

#[tokio::test]
async fn a_file_must_have_been_read_and_not_changed_since() {
    let house = House::with(&["a=1\n"]);
    let write = json!({"filePath": "a", "content": "2\n"});
    let edit = json!({"filePath": "a", "oldString": "1", "newString": "2"});
    for (tool, input) in [("write", &write), ("edit", &edit)] {
        assert_eq!(
            house.bad(tool, input.clone()).await,
            "a exists and has not been read in this session: read it first, then change it"
        );
    }
    house.good("read", json!({"filePath": "a"})).await;
    house.put("a", b"1 and more\n");
    for (tool, input) in [("write", &write), ("edit", &edit)] {
        assert_eq!(
            house.bad(tool, input.clone()).await,
            "a changed since it was last read: read it again, then repeat the change"
        );
    }
    house.good("read", json!({"filePath": "a", "limit": 1})).await;
    house.good("edit", edit).await;
    assert_eq!(house.content("a"), b"2 and more\n");
}

#[tokio::test]
#[ignore = "slow: scripts/slow runs it"]
async fn a_large_file_is_remembered_by_size_and_time() {
    let house = House::with(&[]);
    let mut content = "0123456789abcde\n".repeat(700_000);
    content.push_str("the end\n");
    house.put("large", content.as_bytes());
    let edit = json!({"filePath": "large", "oldString": "the end", "newString": "the very end"});
    assert!(house.bad("edit", edit.clone()).await.contains("has not been read"));
    house.good("read", json!({"filePath": "large", "limit": 1})).await;
    insta::assert_snapshot!(house.good("edit", edit.clone()).await, @r"
    edited large, line 700001 (+1 -1)
    --- a/large
    +++ b/large
    @@ -699998,4 +699998,4 @@
     0123456789abcde
     0123456789abcde
     0123456789abcde
    -the end
    +the very end
    ");
    let again = json!({"filePath": "large", "oldString": "the very end", "newString": "the end"});
    house.good("edit", again).await;
    house.put("large", format!("{content}and more\n").as_bytes());
    assert!(house.bad("edit", edit).await.contains("changed since"));
}

#[tokio::test]
#[ignore = "slow: scripts/slow runs it"]
async fn a_file_of_five_megabytes_is_edited_everywhere() {
    let house = House::with(&[]);
    house.put("five", "let value = compute(1);\n".repeat(210_000).as_bytes());
    house.good("read", json!({"filePath": "five", "limit": 1})).await;
    let edited = house
        .call(
            "edit",
            json!({"filePath": "five", "oldString": "value", "newString": "result", "replaceAll": true}),
        )
        .await
        .unwrap();
    assert_eq!(edited.metadata["replacements"], 210_000);
    assert!(
        edited
            .output
            .starts_with("edited five, 210000 places at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 209990 more")
    );
    assert!(edited.output.len() < 10_000 && edited.metadata["diff"].as_str().unwrap().len() < 40_000);
    assert_eq!(house.content("five"), "let result = compute(1);\n".repeat(210_000).as_bytes());
}

#[tokio::test]
async fn a_diff_of_many_short_lines_is_cut_only_once() {
    let house = House::with(&[]);
    house.put("a", "a\n".repeat(4_000).as_bytes());
    house.good("read", json!({"filePath": "a"})).await;
    let all = json!({"filePath": "a", "oldString": "a\n", "newString": "", "replaceAll": true});
    let edited = house.call("edit", all).await.unwrap();
    assert!(edited.output.contains("(diff cut: "), "{}", edited.output);
    assert!(edited.output.lines().count() < crate::truncate::MAX_LINES / 2 + 10);
    assert!(!edited.output.contains("the whole"), "{}", edited.output);
}

#[tokio::test]
async fn an_edit_tells_where_and_shows_the_diff() {
    let house = House::with(&["src/a.rs=fn a() {}\n\nfn b() {\n    one();\n    two();\n}\n"]);
    house.good("read", json!({"filePath": "src/a.rs"})).await;
    let edited = house
        .call("edit", json!({"filePath": "src/a.rs", "oldString": "    one();\n    two();\n", "newString": "    one();\n    1;\n    two();\n"}))
        .await
        .unwrap();
    insta::assert_snapshot!(edited.output, @r"
    edited src/a.rs, lines 4-6 (+1 -0)
    --- a/src/a.rs
    +++ b/src/a.rs
    @@ -2,5 +2,6 @@
     
     fn b() {
         one();
    +    1;
         two();
     }
    ");
    assert_eq!(edited.metadata["additions"], 1);
    assert_eq!(edited.metadata["deletions"], 0);
    assert_eq!(edited.metadata["strategy"], "exact");
    assert!(Path::new(edited.metadata["filePath"].as_str().unwrap()).ends_with("repo/src/a.rs"));
}

#[tokio::test]
async fn lines_that_a_call_keeps_keep_their_endings_in_every_tool() {
    const FILE: &[u8] = b"a1\r\na2\r\na3\na4\r\na5\n";
    const MADE: &[u8] = b"a1\r\na2\r\na3\nA4\r\nnew\r\na5\n";
    let edits = json!([{"oldString": "a3\na4", "newString": "a3\nA4"}, {"oldString": "A4\n", "newString": "A4\nnew\n"}]);
    let patch = "*** Begin Patch\n*** Update File: f\n@@\n a3\n-a4\n+A4\n+new\n a5\n*** End Patch";
    let calls = [
        ("write", json!({"filePath": "f", "content": "a1\na2\na3\nA4\nnew\na5\n"})),
        ("edit", json!({"filePath": "f", "oldString": "a3\na4\na5", "newString": "a3\nA4\nnew\na5"})),
        ("multiedit", json!({"filePath": "f", "edits": edits})),
        ("apply_patch", json!({"patchText": patch})),
    ];
    for (tool, input) in calls {
        let house = House::with(&[]);
        house.put("f", FILE);
        house.good("read", json!({"filePath": "f"})).await;
        house.good(tool, input).await;
        assert_eq!(house.content("f").escape_ascii().to_string(), MADE.escape_ascii().to_string(), "{tool}");
    }
    // A content with endings of its own is written as it is.
    let house = House::with(&[]);
    house.put("f", FILE);
    house.good("read", json!({"filePath": "f"})).await;
    house.good("write", json!({"filePath": "f", "content": "a1\na2\r\n"})).await;
    assert_eq!(house.content("f"), b"a1\na2\r\n");
}

#[tokio::test]
async fn an_edit_that_does_not_fit_is_refused_with_what_is_there() {
    let house = House::with(&["a.rs=fn add(a: u32) {\n    let x = 1;\n    let y = 1;\n}\n"]);
    house.good("read", json!({"filePath": "a.rs"})).await;
    let edit = |old: &str, new: &str| json!({"filePath": "a.rs", "oldString": old, "newString": new});
    insta::assert_snapshot!(house.bad("edit", edit("= 1;", "= 2;")).await, @r"
    oldString is in a.rs 2 times, at lines 2, 3; nothing was changed. Add lines around it to oldString until it is unique, or set replaceAll:
    2	    let x = 1;
    3	    let y = 1;
    ");
    insta::assert_snapshot!(house.bad("edit", edit("fn add(a: u64) {\n    let x = 1;", "")).await, @r"
    oldString was not found in a.rs; nothing was changed. The nearest lines are:
    1	fn add(a: u32) {
    2	    let x = 1;
    ");
    insta::assert_snapshot!(house.bad("edit", edit("2\t    let x = 1;", "x")).await, @r"
    oldString was not found in a.rs; nothing was changed. Leave out the line numbers and the tab after them, which only read adds. The nearest lines are:
    2	    let x = 1;
    ");
    insta::assert_snapshot!(house.bad("edit", edit("struct Q;", "x")).await, @"oldString was not found in a.rs; nothing was changed. Nothing in the file is like it: read the file again");
    insta::assert_snapshot!(house.bad("edit", edit("x", "x")).await, @"oldString and newString are the same, so there is nothing to change");
    insta::assert_snapshot!(house.bad("edit", edit("", "x")).await, @"oldString is empty, which creates a file, but a.rs exists: say what to replace, or replace all of it with write");
    insta::assert_snapshot!(house.bad("edit", edit("{\n", "{\r\n")).await, @"oldString and newString differ only in line endings, and a.rs keeps its own: there is nothing to change");
    insta::assert_snapshot!(house.bad("edit", json!({"filePath": "b.rs", "oldString": "x", "newString": "y"})).await, @"b.rs does not exist: check the path with list or glob, or create the file with write");
    assert_eq!(house.content("a.rs"), b"fn add(a: u32) {\n    let x = 1;\n    let y = 1;\n}\n");
}

#[tokio::test]
async fn an_empty_text_creates_a_file() {
    let house = House::with(&[]);
    let made = house.good("edit", json!({"filePath": "new/a", "oldString": "", "newString": "x\n"})).await;
    assert_eq!(made, "created new/a, 1 line (+1 -0)\n");
    assert_eq!(house.content("new/a"), b"x\n");
}

#[tokio::test]
async fn mark_endings_and_mode_are_kept() {
    let house = House::with(&[]);
    house.put("run.bat", b"\xEF\xBB\xBFone\r\ntwo\r\n");
    fs_err::set_permissions(house.path("run.bat"), std::fs::Permissions::from_mode(0o755)).unwrap();
    house.good("read", json!({"filePath": "run.bat"})).await;
    house.good("write", json!({"filePath": "run.bat", "content": "three\nfour\n"})).await;
    assert_eq!(house.content("run.bat"), b"\xEF\xBB\xBFthree\r\nfour\r\n");
    house.good("edit", json!({"filePath": "run.bat", "oldString": "three\nfour", "newString": "3\n4"})).await;
    assert_eq!(house.content("run.bat"), b"\xEF\xBB\xBF3\r\n4\r\n");
    assert_eq!(fs_err::metadata(house.path("run.bat")).unwrap().mode() & 0o777, 0o755);
    let same = house.good("write", json!({"filePath": "run.bat", "content": "3\n4\n"})).await;
    assert!(same.contains("exactly this content already"), "{same}");
}

#[tokio::test]
async fn a_person_sees_the_diff_before_and_nothing_is_done_yet() {
    let house = House::with(&["a=1\n2\n"]);
    let preview = async |tool: &str, input: Value| {
        let input = playhouse_protocol::message::CallInput::from_model(&input.to_string());
        crate::runner::prepare(&house.registry, tool, &input, &house.context).await.unwrap().1.preview
    };
    let write = preview("write", json!({"filePath": "a", "content": "1\n3\n"})).await;
    assert_eq!(write, "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n 1\n-2\n+3\n");
    let edit =
        preview("edit", json!({"filePath": "a", "oldString": "2", "newString": "3", "replaceAll": true}))
            .await;
    assert_eq!(edit, write, "what becomes of the file, not what is replaced by what");
    let edits = json!([{"oldString": "1", "newString": "x"}, {"oldString": "x", "newString": "y"}]);
    let edits = preview("multiedit", json!({"filePath": "a", "edits": edits})).await;
    assert_eq!(edits, "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n-1\n+y\n 2\n");
    // One that will fail shows what it wants, and so does one of a file that is not to be looked at yet.
    for (path, old) in [("a", "none of it"), ("/etc/passwd", "root")] {
        let wanted = json!({"filePath": path, "oldString": old, "newString": "3", "replaceAll": true});
        let edit = preview("edit", wanted).await;
        assert!(edit.contains(&format!("@@ -1 +1 @@\n-{old}\n")), "{edit}");
        assert!(edit.ends_with("(every occurrence)\n"), "{edit}");
    }
    let outside = preview("write", json!({"filePath": "/etc/passwd", "content": "x"})).await;
    assert_eq!(outside, "write 1 byte to /etc/passwd");
    assert_eq!(house.content("a"), b"1\n2\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_change_one_file_take_turns() {
    let house = House::with(&[]);
    house.good("write", json!({"filePath": "count", "content": "lines:\n"})).await;
    let calls = (0..20).map(|number| {
        house.call(
            "edit",
            json!({"filePath": "count", "oldString": "lines:\n", "newString": format!("lines:\n{number}\n")}),
        )
    });
    for result in futures::future::join_all(calls).await {
        result.unwrap();
    }
    assert_eq!(house.content("count").split(|byte| *byte == b'\n').count(), 22);
}
