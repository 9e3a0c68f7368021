use serde_json::json;

use super::*;

fn head(head: &str) -> Result<Value, String> {
    let text = format!("---\n{head}\n---\nbody\n");
    let document = parse("a.md", &text).map_err(|error| error.to_string())?;
    assert_eq!(document.body, "body");
    Ok(document.members.into_iter().map(|member| (member.key, member.value)).collect::<Map<_, _>>().into())
}

#[test]
fn maps_and_lists_are_read_in_both_forms() {
    let block = "a:\n  type: object # a comment\n\n  # another\n  required: [x, 'y', \"z\"]\n  properties:\n    x:\n      \
                 type: integer\n      minimum: -3\n  anyOf:\n  - type: string\n    maxLength: 1e2\n  -\n    - 1\n    - - 2\n  \
                 - plain\n  \"k: 1\": ~\nb:";
    let flow = "a: {type: object, required: [x, y, z], properties: {x: {\"type\":\"integer\", minimum: -3}}, # why\n  \
                anyOf: [{type: string, maxLength: 1e2}, [1, [2]], plain,\n],\n  'k: 1': }\nb: null";
    let wanted = json!({
        "a": {
            "type": "object",
            "required": ["x", "y", "z"],
            "properties": {"x": {"type": "integer", "minimum": -3}},
            "anyOf": [{"type": "string", "maxLength": 100.0}, [1, [2]], "plain"],
            "k: 1": null,
        },
        "b": null,
    });
    assert_eq!(head(block).unwrap(), wanted);
    assert_eq!(head(flow).unwrap(), wanted);
    assert_eq!(head(&format!("a: {}\nb:", wanted["a"])).unwrap(), wanted, "JSON is read too");
}

#[test]
fn scalars_have_their_types() {
    let of = |text: &str| head(&format!("a: {text}")).map(|mut head| head["a"].take());
    for (text, value) in [
        ("true", json!(true)),
        ("FALSE", json!(false)),
        ("yes", json!("yes")),
        ("~", json!(null)),
        ("12", json!(12)),
        ("18446744073709551615", json!(u64::MAX)),
        ("-1.5e3", json!(-1500.0)),
        ("1.2.3", json!("1.2.3")),
        ("2026-07-04", json!("2026-07-04")),
        ("e1", json!("e1")),
        ("-", json!("-")),
        ("\"12\"", json!("12")),
        ("'it''s'", json!("it's")),
        ("\"a\\n\\u00e9\\\\d\" # c", json!("a\né\\d")),
        ("http://a/b#c", json!("http://a/b#c")),
        ("^[a-z]+$", json!("^[a-z]+$")),
        ("say \"x\" # it", json!("say \"x\" # it")),
        ("one\n  two # c\n\n  three", json!("one two three")),
    ] {
        assert_eq!(of(text), Ok(value), "{text}");
    }
}

#[test]
fn blocks_are_kept_or_folded() {
    let of = |text: &str| head(&format!("a: {text}\nb: 1")).map(|mut head| head["a"].take());
    for (text, value) in [
        ("|\n  one\n    two\n\n  # three\n", "one\n  two\n\n# three\n"),
        ("|-\n  one\n  two", "one\ntwo"),
        ("|+\n  one\n\n", "one\n\n\n"),
        (">-\n  one\n  two\n\n  three", "one two\nthree"),
        (">\n  one", "one\n"),
        ("|", ""),
    ] {
        assert_eq!(of(text), Ok(json!(value)), "{text:?}");
    }
}

#[test]
fn what_is_not_read_names_its_line() {
    for (text, message) in [
        ("a: 1\na: 2", "a.md:3: `a` is set twice"),
        ("a: {x: 1, x: 2}", "a.md:2: `x` is set twice"),
        ("a\n", "a.md:2: expected `key: value`"),
        ("- a", "a.md:2: expected `key: value`"),
        ("  a: 1", "a.md:2: expected `key: value`"),
        ("a: 1\n  b: 2", "a.md:3: this line is indented"),
        ("a:\n    b: 1\n  c: 2", "a.md:4: this line is indented"),
        ("a:\n\tb: 1", "a.md:3: this line is indented with a tab"),
        ("a: [1, 2", "a.md:2: this list has no `]`"),
        ("a: {x: 1", "a.md:2: this map has no `}`"),
        ("a: [1] 2", "a.md:2: `2` follows the value"),
        ("a: [,]", "a.md:2: `,]` cannot begin"),
        ("a: \"x", "a.md:2: this text begins with \""),
        ("a: \"\\q\"", "a.md:2: `\\q` stands for no character"),
        ("a: x: y", "a.md:2: a text with `: `"),
        ("a: &x 1", "a.md:2: anchors"),
        ("a: [*x]", "a.md:2: anchors"),
        ("a: |2\n  x", "a.md:2: `|2` begins no block"),
    ] {
        let error = head(text).unwrap_err();
        assert!(error.starts_with(message), "{text:?}: {error}");
    }
    for text in ["", "x", "---\na: 1\n"] {
        assert!(parse("a.md", text).unwrap_err().to_string().contains("must begin with a head"), "{text:?}");
    }
}

#[test]
fn nothing_is_too_deep_or_breaks_it() {
    for (open, close) in [("[", "]"), ("{a: ", "}")] {
        let deep = |levels: usize| format!("a: {}{}", open.repeat(levels), close.repeat(levels));
        assert!(head(&deep(60)).is_ok());
        assert!(head(&deep(70)).is_err() && head(&deep(20_000)).is_err());
    }
    assert!(head(&format!("a:\n {}x", "- ".repeat(10_000))).is_err());
    let pieces = [
        "a:",
        "b: 1",
        "  c:",
        "  - d: 1",
        "    e: [",
        "      f: {x: ]",
        "- x",
        "'",
        "\"\\",
        "|",
        "  > ",
        "#",
        "é: é",
    ];
    let count = pieces.len();
    for case in 0..count.pow(4) {
        let chosen: Vec<&str> = (0..4).map(|place| pieces[case / count.pow(place) % count]).collect();
        drop(head(&chosen.join("\n")));
    }
}
