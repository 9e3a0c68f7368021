//! Files in UTF-16.

use super::*;

/// `text` in UTF-16 with a byte order mark.
fn utf16(text: &str, little: bool) -> Vec<u8> {
    let bytes = |unit: u16| if little { unit.to_le_bytes() } else { unit.to_be_bytes() };
    format!("\u{feff}{text}").encode_utf16().flat_map(bytes).collect()
}

#[tokio::test]
async fn utf16_is_read_changed_and_written_back_as_it_was() {
    const FILE: &str = "one = \"äöü\"\r\ntwo = \"\u{1f680}\"\r\nthree\r\n";
    let patch = "*** Begin Patch\n*** Update File: f\n@@\n one = \"äöü\"\n-two = \"\u{1f680}\"\n+2 = \"ß\"\n three\n*** End Patch";
    let edit = json!({"oldString": "two = \"\u{1f680}\"", "newString": "2 = \"ß\""});
    let calls = [
        ("write", json!({"filePath": "f", "content": "one = \"äöü\"\n2 = \"ß\"\nthree\n"})),
        ("edit", json!({"filePath": "f", "oldString": edit["oldString"], "newString": edit["newString"]})),
        ("multiedit", json!({"filePath": "f", "edits": [edit]})),
        ("apply_patch", json!({"patchText": patch})),
    ];
    for little in [true, false] {
        for (tool, input) in &calls {
            let house = House::with(&[]);
            house.put("f", &utf16(FILE, little));
            let name = if little { "UTF-16LE" } else { "UTF-16BE" };
            assert_eq!(
                house.good("read", json!({"filePath": "f"})).await,
                format!(
                    "1\tone = \"äöü\"\n2\ttwo = \"\u{1f680}\"\n3\tthree\n(the file is {name}, and stays so when it is changed)"
                )
            );
            let changed = house.call(tool, input.clone()).await.unwrap();
            let diff = changed.metadata.get("diff").unwrap_or_else(|| &changed.metadata["files"][0]["patch"]);
            let diff = diff.as_str().unwrap();
            assert!(diff.contains("-two = \"\u{1f680}\"\n+2 = \"ß\"\n"), "{tool}: {diff}");
            let made = utf16("one = \"äöü\"\r\n2 = \"ß\"\r\nthree\r\n", little);
            assert_eq!(house.content("f"), made, "{tool}");
            // What the session made, it has seen.
            house.good("edit", json!({"filePath": "f", "oldString": "three", "newString": "3"})).await;
            assert!(house.content("f").starts_with(&made[..made.len() - 14]), "{tool}");
        }
    }
}

#[tokio::test]
async fn a_patch_moves_and_deletes_utf16() {
    let house = House::with(&[]);
    house.put("f", &utf16("one\ntwo\n", true));
    house.put("g", &utf16("gone\n", false));
    for file in ["f", "g"] {
        house.good("read", json!({"filePath": file})).await;
    }
    let patch = "*** Begin Patch\n*** Update File: f\n*** Move to: h\n@@\n-two\n+2\n*** Delete File: g\n*** End Patch";
    let done = house.good("apply_patch", json!({"patchText": patch})).await;
    assert!(done.contains("move f -> h (+1 -1)") && done.contains("delete g (+0 -1)"), "{done}");
    assert_eq!(house.content("h"), utf16("one\n2\n", true));
    assert!(!house.path("g").exists() && !house.path("f").exists());
}

#[tokio::test]
async fn broken_utf16_is_refused_and_says_so() {
    let house = House::with(&[]);
    let mut content = utf16("one\ntwo\n", true);
    content.pop();
    house.put("f", &content);
    let patch = "*** Begin Patch\n*** Update File: f\n@@\n-two\n+2\n*** End Patch";
    let calls = [
        ("read", json!({"filePath": "f"})),
        ("write", json!({"filePath": "f", "content": "x"})),
        ("edit", json!({"filePath": "f", "oldString": "two", "newString": "2"})),
        ("multiedit", json!({"filePath": "f", "edits": [{"oldString": "two", "newString": "2"}]})),
        ("apply_patch", json!({"patchText": patch})),
        ("notebook_edit", json!({"filePath": "f", "cellIndex": 0, "newSource": "x"})),
    ];
    for (tool, input) in calls {
        let error = house.bad(tool, input).await;
        let told = "f begins with the byte order mark of UTF-16LE, and is not valid in it: look at it with bash (xxd | head), and convert or repair it (iconv -c) first";
        assert!(error.contains(told), "{tool}: {error}");
        assert_eq!(house.content("f"), content, "{tool}");
    }
    // The mark of UTF-32 begins with that of UTF-16.
    house.put("utf32", b"\xff\xfe\0\0a\0\0\0b\0\0\0");
    assert!(house.bad("read", json!({"filePath": "utf32"})).await.contains("binary file"));
}

#[tokio::test]
#[ignore = "slow: scripts/slow runs it"]
async fn a_large_file_in_utf16_is_read_as_far_as_it_is_shown() {
    let house = House::with(&[]);
    let mut content = utf16(&"0123456789abcde\n".repeat(400_000), false);
    house.put("f", &content);
    let page = house.good("read", json!({"filePath": "f", "offset": 300_000, "limit": 1})).await;
    assert!(
        page.starts_with("300000\t0123456789abcde\n(lines 300000-300000 of a file of 12.8 MB;"),
        "{page}"
    );
    let edit = json!({"filePath": "f", "oldString": "0123456789abcde", "newString": "0", "replaceAll": true});
    house.good("edit", edit).await;
    assert_eq!(house.content("f"), utf16(&"0\n".repeat(400_000), false));
    content.pop();
    house.put("f", &content);
    assert!(house.good("read", json!({"filePath": "f", "limit": 1})).await.starts_with("1\t01"));
    let end = house.bad("read", json!({"filePath": "f", "offset": 400_000})).await;
    assert!(end.contains("is not valid in it"), "{end}");
}
