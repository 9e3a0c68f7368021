use proptest::prelude::*;

use super::*;

fn problem(schema: &Value, arguments: Value) -> String {
    let Value::Object(arguments) = arguments else { panic!("{arguments}") };
    ArgumentCheck::new(schema).check(&arguments).err().unwrap_or_default()
}

#[test]
fn arguments_that_do_not_fit_are_told_by_their_place() {
    let schema = json!({
        "$defs": {"Pair": {"type": "object", "properties": {"left": {"type": "integer"}}, "required": ["left"]}},
        "type": "object",
        "properties": {"pair": {"$ref": "#/$defs/Pair"}},
        "required": ["pair"],
    });
    assert_eq!(problem(&schema, json!({"pair": {"left": 5}})), "");
    assert_eq!(
        problem(&schema, json!({"pair": {"left": "x"}})),
        r#"pair.left: "x" is not of type "integer""#
    );
    assert_eq!(problem(&schema, json!({})), r#""pair" is a required property"#);
}

#[test]
fn a_schema_that_cannot_be_compiled_refuses_nothing() {
    for schema in [
        json!(true),
        json!({"type": "string"}),
        json!(null),
        json!({"$ref": "https://example.com/x"}),
        json!({"type": "objekt"}),
        json!({"properties": {"a": {"pattern": "(?<=a)b"}}}),
    ] {
        assert_eq!(problem(&schema, json!({"a": 1})), "", "{schema}");
    }
}

#[test]
fn only_objects_are_schemas_of_arguments() {
    assert!(usable(&json!({})).is_ok() && usable(&Value::Null).is_ok());
    assert_eq!(usable(&json!("a text")).unwrap_err(), "its inputSchema is a string, and must be an object");
    assert!(usable(&json!([])).is_err() && usable(&json!(true)).is_err());
}

#[test]
fn references_are_put_in_place() {
    let schema = json!({
        "$schema": "x", "$id": "y",
        "definitions": {"a/b": {"type": "string"}, "list": {"type": "array", "items": {"$ref": "#/definitions/a~1b"}}},
        "type": "object",
        "properties": {
            "one": {"$ref": "#/definitions/list", "description": "d", "x-odd": {"$ref": "kept"}},
            "two": {"anyOf": [{"$ref": "#/definitions/a%7E1b"}, {"type": "null"}]},
            "far": {"$ref": "http://127.0.0.1:9/never.json", "title": "t"},
            "$ref": {"type": "string"},
            "definitions": {"enum": [{"$ref": "#"}]},
        },
    });
    let expected = json!({
        "type": "object",
        "properties": {
            "one": {"type": "array", "items": {"type": "string"}, "description": "d", "x-odd": {"$ref": "kept"}},
            "two": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "far": {"title": "t"},
            "$ref": {"type": "string"},
            "definitions": {"enum": [{"$ref": "#"}]},
        },
    });
    assert_eq!(shown(&schema), expected);
}

#[test]
fn recursive_references_end() {
    let schema = json!({
        "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}, "root": {"$ref": "#"}}}},
        "properties": {"node": {"$ref": "#/$defs/Node"}},
    });
    let node = json!({"type": "object", "properties": {"next": {}, "root": {}}});
    assert_eq!(shown(&schema), json!({"type": "object", "properties": {"node": node}}));
    let itself = json!({"$ref": "#", "allOf": [{"$ref": "#"}, {"$ref": "#"}]});
    assert_eq!(shown(&itself), json!({"type": "object"}));
    assert_eq!(problem(&itself, json!({"a": 1})), "");
}

#[test]
fn references_that_multiply_are_bounded() {
    let mut definitions = Map::new();
    for number in 0..30 {
        let next = json!({"$ref": format!("#/$defs/{}", number + 1)});
        definitions.insert(number.to_string(), json!({"properties": {"a": next, "b": next, "c": next}}));
    }
    let schema = json!({"$defs": definitions, "properties": {"x": {"$ref": "#/$defs/0"}}});
    assert_eq!(shown(&schema)["type"], "object");
}

#[test]
fn a_union_at_the_top_becomes_one_object() {
    let schema = json!({
        "anyOf": [
            {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a"]},
            {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
            {"type": "string"},
        ],
    });
    let b = json!({"anyOf": [{"type": "integer"}, {"type": "string"}]});
    assert_eq!(shown(&schema), json!({"type": "object", "properties": {"a": {"type": "string"}, "b": b}}));
    assert_eq!(
        alternatives(&schema).unwrap(),
        "Arguments take one of these forms: {a (required), b} or {a, b}"
    );
    // What all of several schemas require is required.
    let schema = json!({"required": ["x"], "allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"oneOf": [{"properties": {"b": {}}, "required": ["b"]}]}]});
    assert_eq!(
        shown(&schema),
        json!({"type": "object", "required": ["x", "a"], "properties": {"a": {}, "b": {}}})
    );
    assert_eq!(alternatives(&schema), None);
}

#[test]
fn odd_schemas_become_objects() {
    let large = json!({"description": "x".repeat(LARGEST_SHOWN)});
    for schema in
        [large, json!({"type": "array"}), json!({"type": 1}), json!([]), json!({"not": {}, "enum": [1]})]
    {
        assert_eq!(shown(&schema), json!({"type": "object"}));
    }
    let mut deep = json!({});
    for _ in 0..100 {
        deep = json!({"properties": {"a": deep}});
    }
    assert!(shown(&deep).to_string().len() < 1_000);
    let schema = json!({"$schema": "x", "type": ["object", "null"], "properties": {}});
    assert_eq!(shown(&schema).to_string(), r#"{"type":"object","properties":{}}"#);
    let broken = json!({"properties": {"a": {"type": "objekt", "required": true, "items": true}, "b": true}, "required": [1]});
    assert_eq!(shown(&broken), json!({"type": "object", "properties": {"a": {"items": {}}, "b": {}}}));
}

fn any_json() -> impl Strategy<Value = Value> {
    let keyword = prop::sample::select(vec![
        "type",
        "properties",
        "required",
        "items",
        "anyOf",
        "allOf",
        "$ref",
        "$defs",
        "enum",
        "a",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..3).prop_map(Value::from),
        prop::sample::select(vec!["object", "string", "#", "#/properties/a", "#/$defs/a", "a"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(keyword.clone(), inner, 0..4).prop_map(|fields| {
                fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>().into()
            }),
        ]
    })
}

proptest! {
    #[test]
    fn every_schema_is_shown_as_an_object_and_checks_end(schema in any_json(), value in any_json()) {
        let shown = shown(&schema);
        prop_assert_eq!(&shown["type"], "object");
        prop_assert!(["anyOf", "oneOf", "allOf", "$ref", "$defs"].iter().all(|keyword| shown.get(keyword).is_none()));
        let arguments = [("a".to_owned(), value)].into_iter().collect();
        drop(ArgumentCheck::new(&schema).check(&arguments));
        drop(alternatives(&schema));
    }
}
