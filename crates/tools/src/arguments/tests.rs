use serde::Deserialize;
use serde_json::json;

use super::*;

/// Not for models.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    /// The file.
    file_path: String,
    /// The first line.
    #[schemars(range(min = 1, max = 100))]
    first_line: Option<u32>,
    #[serde(default)]
    replace_all: bool,
    mode: Option<Mode>,
    kind: Option<Kind>,
    /// In milliseconds.
    timeout: Option<u64>,
    #[serde(default)]
    changes: Vec<Change>,
    title: Option<Change>,
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Mode {
    Whole,
    Part,
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// It goes on.
    InProgress,
    /// It is over.
    Completed,
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Change {
    line: u64,
}

fn accepted(value: Value) -> Result<Arguments, String> {
    parse("change", value.as_object().unwrap()).map_err(|error| error.to_string())
}

fn refused(value: Value) -> String {
    accepted(value).unwrap_err()
}

#[test]
fn a_schema_is_plain() {
    let schema = schema::<Arguments>();
    let text = schema.to_string();
    for noise in ["$schema", "$ref", "$defs", "uint32", "null", "Not for models"] {
        assert!(!text.contains(noise), "{noise} in {text}");
    }
    assert_eq!(schema["type"], "object");
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["required"], json!(["filePath"]));
    assert_eq!(schema["properties"]["filePath"], json!({"description": "The file.", "type": "string"}));
    assert_eq!(schema["properties"]["firstLine"]["type"], "integer");
    // A property may have the name of a keyword.
    assert_eq!(schema["properties"]["title"]["properties"]["line"]["type"], "integer");
    assert_eq!(schema["properties"]["title"]["additionalProperties"], false);
}

#[test]
fn what_models_are_told_is_shorter_and_calls_are_checked_as_before() {
    let told = told(schema::<Arguments>());
    let text = told.to_string();
    for noise in ["additionalProperties", "default", "oneOf", "const", "It goes on."] {
        assert!(!text.contains(noise), "{noise} in {text}");
    }
    assert_eq!(told["properties"]["firstLine"]["minimum"], 1);
    assert_eq!(told["properties"]["kind"], json!({"type": "string", "enum": ["in_progress", "completed"]}));
    assert_eq!(told["properties"]["title"]["required"], json!(["line"]));
    assert_eq!(short(&told), short(&schema::<Arguments>()));
    let spec = spec::<Arguments>("try", "Tries.");
    let wrong = not_an_object(&spec, r#"[{"filePath": "a", "timeout": -1}]"#).to_string();
    assert!(!wrong.contains("-1"), "a call that would be refused is no advice: {wrong}");
    assert!(refused(json!({"filePath": "a", "timeout": -1})).contains("`timeout` must be at least 0"));
    assert!(refused(json!({"filePath": "a", "more": 1})).contains("there is no `more`"));
}

#[test]
fn a_schema_has_a_short_form() {
    assert_eq!(
        short(&schema::<Arguments>()),
        "{filePath: string, firstLine?: integer, replaceAll?: boolean, mode?: \"whole\" | \"part\", \
         kind?: \"in_progress\" | \"completed\", timeout?: integer, changes?: [{line: integer}, …], title?: {line: integer}}"
    );
}

#[test]
fn what_is_meant_well_is_read() {
    let given = json!({"filePath": "a", "firstLine": "10", "replaceAll": "true", "mode": null, "changes": [{"line": 2.0}]});
    let expected = Arguments {
        file_path: "a".into(),
        first_line: Some(10),
        replace_all: true,
        mode: None,
        kind: None,
        timeout: None,
        changes: vec![Change { line: 2 }],
        title: None,
    };
    assert_eq!(accepted(given), Ok(expected));
    assert_eq!(accepted(json!({"filePath": "a", "mode": "part"})).unwrap().mode, Some(Mode::Part));
}

#[test]
fn what_does_not_fit_is_named() {
    let cases = [
        (json!({}), "`filePath` is missing"),
        (json!({"filePath": null}), "`filePath` must be a text, not null"),
        (json!({"filePath": 5}), "`filePath` must be a text, not 5"),
        (json!({"filePath": "a", "firstLine": "ten"}), "`firstLine` must be a whole number, not \"ten\""),
        (json!({"filePath": "a", "firstLine": 1.5}), "`firstLine` must be a whole number, not 1.5"),
        (json!({"filePath": "a", "firstLine": 0}), "`firstLine` must be at least 1, not 0"),
        (json!({"filePath": "a", "firstLine": "101"}), "`firstLine` must be at most 100, not 101"),
        (json!({"filePath": "a", "firstLine": 1e300}), "`firstLine` must be a whole number"),
        (json!({"filePath": "a", "mode": "half"}), "`mode` must be one of \"whole\", \"part\", not \"half\""),
        (
            json!({"filePath": "a", "kind": "pdf"}),
            "`kind` must be one of \"in_progress\", \"completed\", not \"pdf\". It takes",
        ),
        (json!({"filePath": "a", "changes": [{"line": 1}, {}]}), "`changes[1].line` is missing"),
        (json!({"filePath": "a", "changes": [{"line": 1, "lime": 1}]}), "did you mean `line`?"),
        (json!({"file_path": "a"}), "there is no `file_path`, did you mean `filePath`? It takes"),
        (json!({"filePath": "a", "frobnicate": 1}), "there is no `frobnicate`."),
        (json!({"filePath": ["x".repeat(1000)]}), "must be a text, not [\"xxx"),
    ];
    for (given, expected) in cases {
        let error = refused(given);
        assert!(error.contains(expected), "{error}");
        assert!(error.contains("It takes {filePath: string, firstLine?: integer"), "{error}");
        assert!(error.len() < 900, "{error}");
    }
}

/// The call that is proposed for these arguments.
fn proposed(given: Value) -> Option<Value> {
    let error = refused(given);
    let (_, call) = error.split_once("The nearest right call: change ")?;
    Some(serde_json::from_str(call).unwrap())
}

#[test]
fn the_nearest_right_call_is_shown() {
    let cases = [
        (json!({"file_path": "a"}), json!({"filePath": "a"})),
        (json!({"path": "a", "first_line": "3"}), json!({"filePath": "a", "firstLine": 3})),
        // Nothing is near, but one is missing and one is left over.
        (json!({"target": "a"}), json!({"filePath": "a"})),
        (json!({"filePath": "a", "frobnicate": 1}), json!({"filePath": "a"})),
        (json!({"filePath": 5, "title": null}), json!({"filePath": "5"})),
        (json!({"filePath": ["a"], "replaceAll": "yes"}), json!({"filePath": "a", "replaceAll": true})),
        (json!({"filePath": "a", "firstLine": 1.7}), json!({"filePath": "a", "firstLine": 2})),
        (json!({"filePath": "a", "firstLine": 0}), json!({"filePath": "a", "firstLine": 1})),
        (json!({"filePath": "a", "firstLine": "900"}), json!({"filePath": "a", "firstLine": 100})),
        (json!({"filePath": "a", "mode": "Part"}), json!({"filePath": "a", "mode": "part"})),
        (json!({"filePath": "a", "kind": "Done"}), json!({"filePath": "a", "kind": "completed"})),
        (json!({"filePath": "a", "timeout": "5s"}), json!({"filePath": "a", "timeout": 5000})),
        (json!({"filePath": "a", "timeout": "0.5 min"}), json!({"filePath": "a", "timeout": 30000})),
        (
            json!({"filePath": "a", "changes": {"lin": "1"}}),
            json!({"filePath": "a", "changes": [{"line": 1}]}),
        ),
        (
            json!({"filePath": "a", "changes": "[{\"line\": 1}]"}),
            json!({"filePath": "a", "changes": [{"line": 1}]}),
        ),
    ];
    for (given, expected) in cases {
        assert_eq!(proposed(given.clone()), Some(expected), "{given}");
    }
    // What cannot be known is not made up.
    for given in [
        json!({}),
        json!({"filePath": "a", "mode": "sideways"}),
        json!({"filePath": "a", "firstLine": "5s"}),
        json!({"filePath": "a", "changes": [{}]}),
    ] {
        assert_eq!(proposed(given.clone()), None, "{given}");
    }
}

#[test]
fn a_proposed_call_is_short_and_fits() {
    let call = proposed(json!({"file_path": "ü".repeat(1_000), "firstLine": 7})).unwrap();
    assert_eq!(call["filePath"], format!("{}… (and 950 more characters)", "ü".repeat(50)));
    assert!(accepted(call).is_ok());
    let many: Vec<Value> = (0..1_000).map(|line| json!({"line": line, "lime": 1})).collect();
    assert_eq!(proposed(json!({"filePath": "a", "changes": many})), None);
}

#[test]
fn text_that_is_no_object_is_refused_with_the_place() {
    let spec = spec::<Arguments>("change", " What it does.\n");
    assert_eq!(spec.description, "What it does.");
    let error = not_an_object(&spec, "{\"filePath\": ").to_string();
    assert!(
        error.contains("not valid JSON (EOF while parsing") && error.contains("filePath: string"),
        "{error}"
    );
    let error = not_an_object(&spec, "[1]").to_string();
    assert!(error.contains("must be one JSON object") && error.ends_with("arguments that fit"), "{error}");
    let error = not_an_object(&spec, r#"[{"file_path": "a"}]"#).to_string();
    assert!(error.ends_with(r#"The nearest right call: change {"filePath":"a"}"#), "{error}");
}
