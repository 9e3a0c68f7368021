use std::time::{Duration, SystemTime};

use super::*;

#[tokio::test]
async fn the_newest_files_come_first() {
    let house = House::with(&["src/a.rs=", "src/deep/b.rs=", "c.rs=", "d.txt=", ".hidden/e.rs="]);
    for (age, name) in ["src/deep/b.rs", "c.rs", "src/a.rs"].iter().enumerate() {
        let file = fs_err::File::options().write(true).open(house.path(name)).unwrap();
        let time = SystemTime::now() - Duration::from_secs(100 * age as u64);
        file.file().set_modified(time).unwrap();
    }
    insta::assert_snapshot!(house.good("glob", json!({"pattern": "*.rs"})).await, @r"
    src/deep/b.rs
    c.rs
    src/a.rs
    ");
    insta::assert_snapshot!(house.good("glob", json!({"pattern": "**/*.rs", "path": "src"})).await, @r"
    src/deep/b.rs
    src/a.rs
    ");
    insta::assert_snapshot!(house.good("glob", json!({"pattern": ".hidden/*"})).await, @".hidden/e.rs");
    insta::assert_snapshot!(house.good("glob", json!({"pattern": "*.py", "path": "src"})).await, @"no file matches *.py in src (hidden and ignored files are left out)");
    insta::assert_snapshot!(house.bad("glob", json!({"pattern": "src/{a"})).await, @r#"pattern "src/{a" is not a usable glob: unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?). Examples: "*.rs", "src/**/*.{ts,tsx}""#);
}

#[tokio::test]
async fn a_directory_that_is_not_there_has_neighbours() {
    let house = House::with(&["sources/a.rs=x"]);
    for (tool, input) in [
        ("list", json!({"path": "source"})),
        ("grep", json!({"path": "source", "pattern": "x"})),
        ("glob", json!({"path": "source", "pattern": "*.rs"})),
    ] {
        assert_eq!(house.bad(tool, input).await, "source does not exist. Did you mean sources/?", "{tool}");
    }
}

#[tokio::test]
async fn an_include_that_matches_nothing_says_so() {
    let house = House::with(&["a.rs=x"]);
    let error = house.bad("grep", json!({"pattern": "x", "include": "!*.rs"})).await;
    assert!(error.starts_with("include \"!*.rs\" is not a usable glob: \"!\" in front does not"), "{error}");
    assert_eq!(
        house.good("grep", json!({"pattern": "x", "include": "*.py"})).await,
        "no file was searched in .: none matches include (hidden, ignored and binary files are left out)"
    );
}

#[tokio::test]
async fn only_a_hundred_files_are_shown() {
    let house = House::with(&[]);
    for number in 0..130 {
        house.put(&format!("f{number}"), b"");
    }
    let found = house.call("glob", json!({"pattern": "f*"})).await.unwrap();
    assert_eq!(found.output.lines().count(), 101);
    assert!(found.output.ends_with("(the newest 100 of 130; 30 more: narrow the pattern to see them)"));
    assert_eq!((&found.metadata["count"], &found.metadata["truncated"]), (&json!(130), &json!(true)));
}

#[tokio::test]
async fn lines_are_found_in_the_order_of_paths() {
    let house = House::with(&[
        "b.rs=fn one() {}\nfn two() {}\n",
        "a/x.ts=let fn = 1;\r\n",
        "a/y.tsx=\n\nfn();\n",
        "z.txt=Fn\n",
        ".gitignore=ignored\n",
        "ignored/i.rs=fn\n",
    ]);
    insta::assert_snapshot!(house.good("grep", json!({"pattern": "fn"})).await, @r"
    a/x.ts
    1	let fn = 1;

    a/y.tsx
    3	fn();

    b.rs
    1	fn one() {}
    2	fn two() {}
    ");
    insta::assert_snapshot!(house.good("grep", json!({"pattern": "fn", "include": "*.{ts,tsx}"})).await, @r"
    a/x.ts
    1	let fn = 1;

    a/y.tsx
    3	fn();
    ");
    insta::assert_snapshot!(house.good("grep", json!({"pattern": "(?i)^fn$", "path": "z.txt"})).await, @r"
    z.txt
    1	Fn
    ");
    insta::assert_snapshot!(house.good("grep", json!({"pattern": "1;$", "path": "a", "include": "*.ts, *.rs"})).await, @r"
    a/x.ts
    1	let fn = 1;
    ");
    insta::assert_snapshot!(house.good("grep", json!({"pattern": "nowhere"})).await, @"no line matches in . (4 files searched; hidden, ignored and binary files are left out)");
    insta::assert_snapshot!(house.good("grep", json!({"pattern": "fn", "path": "ignored"})).await, @r"
    ignored/i.rs
    1	fn
    ");
    insta::assert_snapshot!(house.bad("grep", json!({"pattern": "fn", "include": "[a"})).await, @r#"include "[a" is not a usable glob: unclosed character class; missing ']'. Examples: "*.rs", "src/**/*.{ts,tsx}""#);
}

#[tokio::test]
async fn a_search_stops_at_a_hundred_lines() {
    let house = House::with(&[]);
    house.put("a", "hit\n".repeat(60).as_bytes());
    house.put("b", "hit\n".repeat(40).as_bytes());
    let all = house.call("grep", json!({"pattern": "hit"})).await.unwrap();
    assert!(!all.output.contains("stopped"));
    assert_eq!((&all.metadata["matches"], &all.metadata["truncated"]), (&json!(100), &json!(false)));
    house.put("c", b"hit\nhit\n");
    house.put("d", b"hit\n");
    let more = house.call("grep", json!({"pattern": "hit"})).await.unwrap();
    assert!(
        more.output.ends_with(
            "(stopped after 100 lines; at least 2 more: narrow the pattern, the path or include to see them)"
        ),
        "{}",
        more.output
    );
    assert_eq!((&more.metadata["matches"], &more.metadata["truncated"]), (&json!(100), &json!(true)));
    assert!(!more.output.contains("\nc\n"));

    house.put("a", "hit\n".repeat(5_000).as_bytes());
    let many = house.good("grep", json!({"pattern": "hit", "path": "a"})).await;
    assert!(many.contains("(stopped after 100 lines; at least 1000 more: "), "{many}");
}

#[tokio::test]
async fn long_lines_are_cut_and_binary_files_left_out() {
    let house = House::with(&[]);
    house.put("long", format!("needle{}\n", "x".repeat(600)).as_bytes());
    house.put("binary", b"needle\n\0\n");
    house.put("late", [b"needle\n".to_vec(), b"hay\n".repeat(50_000), b"\0".to_vec()].concat().as_slice());
    house.put("latin", b"needle \xfc\n");
    let found = house.good("grep", json!({"pattern": "needle"})).await;
    let long = format!("1\tneedle{}… (line cut)", "x".repeat(494));
    assert!(found.contains(&format!("long\n{long}")), "{found}");
    assert!(found.contains("latin\n1\tneedle \u{fffd}"), "{found}");
    assert!(!found.contains("binary\n") && !found.contains("late\n"), "{found}");
}

#[tokio::test]
async fn a_line_that_is_too_long_to_search_is_told() {
    let house = House::with(&["b=needle\n"]);
    house.put("a", &b"x".repeat(20_000_000));
    let found = house.good("grep", json!({"pattern": "needle"})).await;
    assert_eq!(found, "b\n1\tneedle\n(1 file could not be searched)");
}

#[tokio::test]
async fn a_directory_is_shown_as_a_tree() {
    let house = House::with(&[
        "src/main.rs=",
        "src/edit/mod.rs=",
        "Cargo.toml=",
        ".git/config=",
        ".gitignore=target\n",
        "target/debug/x=",
        "docs/a.md=",
        "empty/",
    ]);
    std::os::unix::fs::symlink("src", house.path("link")).unwrap();
    insta::assert_snapshot!(house.good("list", json!({})).await, @r"
    ./
      Cargo.toml
      docs/
        a.md
      empty/
      link@
      src/
        edit/
          mod.rs
        main.rs
    ");
    insta::assert_snapshot!(house.good("list", json!({"path": "src", "ignore": ["mod.rs"]})).await, @r"
    src/
      edit/
      main.rs
    ");
    insta::assert_snapshot!(house.good("list", json!({"ignore": ["src/", "*.md"]})).await, @r"
    ./
      Cargo.toml
      docs/
      empty/
      link@
    ");
    insta::assert_snapshot!(house.good("list", json!({"path": "empty"})).await, @r"
    empty/
    (nothing; hidden and ignored files are left out)
    ");
}

#[tokio::test]
async fn a_large_directory_does_not_hide_what_is_beside_it() {
    let house = House::with(&["z/last="]);
    for number in 0..400 {
        house.put(&format!("big/f{number:03}"), b"");
    }
    let listed = house.call("list", json!({})).await.unwrap();
    let end: Vec<&str> = listed.output.lines().rev().take(4).collect();
    assert_eq!(end, ["(list a directory to see more of it)", "    … 1 more", "  z/", "    … 202 more"]);
    assert_eq!((&listed.metadata["count"], &listed.metadata["truncated"]), (&json!(200), &json!(true)));
}
