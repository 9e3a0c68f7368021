use super::*;
use crate::testing::DOT;

#[tokio::test]
async fn a_file_is_shown_with_numbers_and_pages() {
    let house = House::with(&["a.txt=one\n\tindented\n\nlast", "empty="]);
    insta::assert_snapshot!(house.good("read", json!({"filePath": "a.txt"})).await, @r"
    1	one
    2		indented
    3	
    4	last
    ");
    insta::assert_snapshot!(house.good("read", json!({"filePath": "a.txt", "limit": 2})).await, @r"
    1	one
    2		indented
    (lines 1-2 of 4; read on with offset 3)
    ");
    insta::assert_snapshot!(house.good("read", json!({"filePath": "a.txt", "offset": 3, "limit": "9"})).await, @r"
    3	
    4	last
    (lines 3-4 of 4, the end of the file)
    ");
    insta::assert_snapshot!(house.good("read", json!({"filePath": "empty"})).await, @"(empty is empty)");
    insta::assert_snapshot!(house.bad("read", json!({"filePath": "a.txt", "offset": 9})).await, @"offset 9 is past the end of a.txt, which has 4 lines");
    insta::assert_snapshot!(house.bad("read", json!({"filePath": "a.txt", "limit": 0})).await, @"limit is 0: ask for at least 1 line");
}

#[tokio::test]
async fn two_thousand_lines_are_a_page() {
    let house = House::with(&[]);
    let lines: String = (1..=4_500).map(|number| format!("{number}\n")).collect();
    house.put("long", lines.as_bytes());
    let first = house.good("read", json!({"filePath": "long"})).await;
    assert!(
        first.ends_with("\n2000\t2000\n(lines 1-2000 of 4500; read on with offset 2001)"),
        "{}",
        &first[first.len() - 200..]
    );
    let second = house.good("read", json!({"filePath": "long", "offset": 2001, "limit": 5000})).await;
    assert!(second.starts_with("2001\t2001\n") && second.ends_with("offset 4001)"));
    assert!(!first.contains("left out") && !second.contains("left out"), "not capped a second time");
}

#[tokio::test]
async fn a_page_has_at_most_fifty_kilobytes() {
    let house = House::with(&[]);
    house.put("wide", format!("{}\n", "x".repeat(1_500)).repeat(100).as_bytes());
    let page = house.good("read", json!({"filePath": "wide"})).await;
    assert!(page.len() < 50 * 1024 && page.len() > 45 * 1024, "{}", page.len());
    assert!(page.ends_with("(lines 1-33 of 100; read on with offset 34)"), "{}", &page[page.len() - 100..]);
}

#[tokio::test]
async fn a_directory_is_a_listing() {
    let house = House::with(&["src/main.rs=", "src/lib/", "src/.hidden=", "none/"]);
    std::os::unix::fs::symlink("main.rs", house.path("src/link")).unwrap();
    insta::assert_snapshot!(house.good("read", json!({"filePath": "src"})).await, @r"
    .hidden
    lib/
    link@
    main.rs
    ");
    insta::assert_snapshot!(house.good("read", json!({"filePath": "src", "offset": 2, "limit": 2})).await, @r"
    lib/
    link@
    (entries 2-3 of 4; read on with offset 4)
    ");
    insta::assert_snapshot!(house.good("read", json!({"filePath": "none"})).await, @"(none is an empty directory)");
    assert!(house.bad("read", json!({"filePath": "src", "offset": 9})).await.contains("past the end"));
}

#[tokio::test]
async fn a_missing_file_suggests_its_neighbours() {
    let house = House::with(&["src/config.toml=", "src/main.rs=", "src/Main.java=", "src/mainly/"]);
    insta::assert_snapshot!(house.bad("read", json!({"filePath": "src/main.py"})).await, @"src/main.py does not exist. Did you mean src/Main.java, src/main.rs, src/mainly/?");
    insta::assert_snapshot!(house.bad("read", json!({"filePath": "src/zzz"})).await, @"src/zzz does not exist: list src to see what does, or find the file with glob (**/zzz)");
    insta::assert_snapshot!(house.bad("read", json!({"filePath": "lib/main.rs"})).await, @"lib/main.rs does not exist, and neither does the directory lib: find the file with glob (**/main.rs)");
}

#[tokio::test]
async fn images_and_documents_are_attached() {
    let house = House::with(&[]);
    house.put("doc.pdf", &crate::media::document_of(1));
    house.put("a.png", DOT);
    let image = house.call("read", json!({"filePath": "a.png"})).await.unwrap();
    assert_eq!(image.output, "a.png (image/png, 67 bytes) is attached");
    assert_eq!(image.attachments.len(), 1);
    assert_eq!(
        (image.attachments[0].mime.as_str(), image.attachments[0].filename.as_str()),
        ("image/png", "a.png")
    );
    assert_eq!(&image.attachments[0].content[..], DOT);
    let document = house.call("read", json!({"filePath": "doc.pdf"})).await.unwrap();
    assert_eq!(document.attachments[0].mime, "application/pdf");

    house.put("half.png", &DOT[..40]);
    let half = house.bad("read", json!({"filePath": "half.png"})).await;
    assert!(
        half.starts_with("half.png is damaged or not whole (image/png), and cannot be shown: "),
        "{half}"
    );
    let mut large = b"%PDF-1.7".to_vec();
    large.resize(5_000_001, 1);
    house.put("large.pdf", &large);
    insta::assert_snapshot!(house.bad("read", json!({"filePath": "large.pdf"})).await, @"large.pdf has 5.0 MB (application/pdf), and at most 5.0 MB can be shown: make a smaller copy");
}

#[tokio::test]
async fn binary_files_are_refused_by_content_and_old_encodings_are_shown() {
    let house = House::with(&[]);
    house.put("a.txt", b"looks like text\0but is not");
    house.put("latin", b"gr\xfc\xdfe aus dem letzten Jahrhundert\n");
    insta::assert_snapshot!(house.bad("read", json!({"filePath": "a.txt"})).await, @"a.txt is a binary file (26 bytes). read shows text, images (PNG, JPEG, GIF, WebP) and PDF; look into others with bash (file, strings, xxd | head), and convert other encodings than UTF-8 and UTF-16 with iconv");
    insta::assert_snapshot!(house.good("read", json!({"filePath": "latin"})).await, @r"
    1	gr��e aus dem letzten Jahrhundert
    (the file is not UTF-8: what could not be read is shown as �, and edit can only match text without it)
    ");
}

#[tokio::test]
async fn a_long_line_is_cut() {
    let house = House::with(&[]);
    house.put("min.js", format!("{}\nnext\n", "x".repeat(3_000)).as_bytes());
    let page = house.call("read", json!({"filePath": "min.js"})).await.unwrap();
    assert_eq!(page.output.trim_end(), format!("1\t{}… (line cut)\n2\tnext", "x".repeat(2_000)));
    assert_eq!(page.metadata["linesCut"], 1);
}

#[tokio::test]
async fn a_large_file_is_read_as_far_as_it_is_shown() {
    let house = House::with(&[]);
    // Ten gigabytes, of which the file system stores a few lines.
    let path = house.path("log");
    house.put("log", "a line of a log\n".repeat(1_000).as_bytes());
    fs_err::OpenOptions::new().write(true).open(&path).unwrap().set_len(10_000_000_000).unwrap();
    let page = house.call("read", json!({"filePath": "log", "limit": 2})).await.unwrap();
    insta::assert_snapshot!(page.output, @r"
    1	a line of a log
    2	a line of a log
    (lines 1-2 of a file of 10.0 GB; read on with offset 3)
    ");
    // The last line is gigabytes of nothing, and nobody looks for its end.
    let end = house.good("read", json!({"filePath": "log", "offset": 1000})).await;
    assert!(end.contains("line 1001 is over 1 MB long"), "{}", &end[end.len() - 200..]);

    // Where a line begins is only known to who counts, and that has an end, too.
    insta::assert_snapshot!(house.bad("read", json!({"filePath": "log", "offset": 1_002, "limit": 9})).await, @"log (10.0 GB) has only 1000 lines in its first 250.0 MB, and line 1002 is not looked for further on: use bash (sed -n '1002,1010p', tail) for it");

    let sparse = fs_err::File::create(house.path("sparse")).unwrap();
    sparse.set_len(10_000_000_000).unwrap();
    assert!(house.bad("read", json!({"filePath": "sparse"})).await.contains("binary file (10.0 GB)"));
    assert!(
        house.bad("read", json!({"filePath": "sparse", "offset": 9_999_999})).await.contains("binary file")
    );
    let found = house.good("grep", json!({"pattern": "line of", "path": "sparse"})).await;
    assert!(found.starts_with("no line matches"), "{found}");
}

#[tokio::test]
async fn a_saved_output_can_be_read_and_searched_but_not_changed() {
    let house = House::with(&[]);
    let outputs = house.folder.path().join("outputs");
    fs_err::create_dir(&outputs).unwrap();
    fs_err::write(outputs.join("call.txt"), "saved\n").unwrap();
    let path = outputs.join("call.txt");
    assert_eq!(house.good("read", json!({"filePath": path})).await, "1\tsaved\n");
    assert!(house.good("grep", json!({"pattern": "sav", "path": path})).await.contains("1\tsaved"));
    let refused = house.bad("write", json!({"filePath": path, "content": "x"})).await;
    assert!(refused.contains("can only be read"), "{refused}");
}
