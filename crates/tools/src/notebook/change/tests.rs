use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// As Jupyter writes it.
const JUPYTER: &str = r##"{
 "cells": [
  {
   "cell_type": "markdown",
   "id": "intro",
   "metadata": {},
   "source": [
    "# Title\n",
    "é \u00e9 \"quoted\""
   ]
  },
  {
   "cell_type": "code",
   "execution_count": 3,
   "id": "calc",
   "metadata": {"tags": [ "x" ]},
   "outputs": [
    {
     "data": {"text/plain": ["42"]},
     "execution_count": 3,
     "metadata": {},
     "output_type": "execute_result"
    }
   ],
   "source": [
    "6 * 7"
   ]
  }
 ],
 "metadata": {
  "language_info": {"name": "python"}
 },
 "nbformat": 4,
 "nbformat_minor": 5
}
"##;

fn applied(text: &str, change: &Change) -> Result<Changed, String> {
    Notebook::of(text.as_bytes())?.apply(change)
}

fn made(text: &str, change: &Change) -> String {
    String::from_utf8(applied(text, change).unwrap().text).unwrap()
}

fn replace(cell: Name, source: &str) -> Change {
    Change::Replace { cell, source: source.into() }
}

fn insert(cell: Option<Name>, kind: CellKind, source: &str) -> Change {
    Change::Insert { cell, kind, source: source.into() }
}

fn id(id: &str) -> Name {
    Name::Id(id.into())
}

#[test]
fn a_replaced_code_cell_loses_its_outputs_and_nothing_else_changes() {
    let changed = applied(JUPYTER, &replace(id("calc"), "a = 1\nprint(\"é\\\\\")\n")).unwrap();
    assert_eq!((changed.index, changed.id.as_deref(), changed.kind.as_str()), (1, Some("calc"), "code"));
    assert!(changed.cleared);
    let text = String::from_utf8(changed.text).unwrap();
    let expected = JUPYTER
        .replacen("\"execution_count\": 3", "\"execution_count\": null", 1)
        .replace("    \"6 * 7\"\n", "    \"a = 1\\n\",\n    \"print(\\\"é\\\\\\\\\\\")\\n\"\n");
    let outputs =
        expected.find("\"outputs\": [").unwrap()..expected.find("   \"source\": [\n    \"a = 1").unwrap();
    let expected = [&expected[..outputs.start], "\"outputs\": [],\n", &expected[outputs.end..]].concat();
    assert_eq!(text, expected);
    // A second time, there is nothing to clear.
    let again = applied(&text, &replace(Name::Index(1), "")).unwrap();
    assert!(!again.cleared);
    assert!(String::from_utf8(again.text).unwrap().contains("\"source\": []\n"));
}

#[test]
fn cells_are_inserted_as_jupyter_writes_them() {
    let text = made(JUPYTER, &insert(Some(id("intro")), CellKind::Code, "x = 1\ny"));
    let start = text.find("  {\n   \"cell_type\": \"code\"").unwrap();
    let end = start + text[start..].find("  },\n").unwrap() + 5;
    let cell = &text[start..end];
    let new = cell.split("\"id\": \"").nth(1).unwrap()[..8].to_owned();
    assert!(new.bytes().all(|byte| byte.is_ascii_hexdigit()), "{new}");
    assert_eq!(
        cell.replace(&new, "ID"),
        "  {\n   \"cell_type\": \"code\",\n   \"execution_count\": null,\n   \"id\": \"ID\",\n   \"metadata\": {},\n   \"outputs\": [],\n   \"source\": [\n    \"x = 1\\n\",\n    \"y\"\n   ]\n  },\n"
    );
    // The rest is what it was.
    assert_eq!([&text[..start], &text[end..]].concat(), JUPYTER);

    let last = made(JUPYTER, &insert(Some(Name::Index(2)), CellKind::Markdown, ""));
    let cells = serde_json::from_str::<Value>(&last).unwrap()["cells"].as_array().unwrap().clone();
    assert_eq!(cells.len(), 3);
    assert_eq!(cells[2]["source"], json!([]));
    assert!(last.contains("\n  },\n  {\n   \"cell_type\": \"markdown\",\n   \"id\": "), "{last}");
    let first = made(JUPYTER, &insert(None, CellKind::Raw, "r"));
    assert!(first.starts_with("{\n \"cells\": [\n  {\n   \"cell_type\": \"raw\",\n"), "{first}");
}

#[test]
fn deleted_cells_leave_no_trace() {
    let one = made(JUPYTER, &Change::Delete { cell: id("calc") });
    assert!(one.contains("    \"é \\u00e9 \\\"quoted\\\"\"\n   ]\n  }\n ],\n \"metadata\""), "{one}");
    let none = made(&one, &Change::Delete { cell: Name::Index(0) });
    assert!(none.starts_with("{\n \"cells\": [],\n \"metadata\": {\n"), "{none}");
    let again = made(&none, &insert(None, CellKind::Markdown, "# Again"));
    assert!(again.starts_with("{\n \"cells\": [\n  {\n   \"cell_type\": \"markdown\",\n"), "{again}");
    assert!(again.contains("\n   ]\n  }\n ],\n \"metadata\""), "{again}");
    let first = made(JUPYTER, &Change::Delete { cell: Name::Index(0) });
    assert!(
        first.starts_with("{\n \"cells\": [\n  {\n   \"cell_type\": \"code\",\n   \"execution_count\": 3"),
        "{first}"
    );
}

#[test]
fn other_layouts_are_kept() {
    // In one line, without spaces, with a source that is one text.
    let compact = r#"{"cells":[{"cell_type":"code","metadata":{},"source":"a","outputs":[],"execution_count":null}],"nbformat":4,"nbformat_minor":4}"#;
    assert_eq!(made(compact, &replace(Name::Index(0), "b\nc")), compact.replace("\"a\"", "\"b\\nc\""));
    let more = made(compact, &insert(Some(Name::Index(1)), CellKind::Markdown, "x\ny"));
    assert!(
        more.contains(
            r#","execution_count":null},{"cell_type":"markdown","metadata":{},"source":["x\n","y"]}],"#
        ),
        "{more}"
    );
    // Tabs and the line endings of Windows.
    let tabs = "{\r\n\t\"nbformat\" : 4,\r\n\t\"cells\" : []\r\n}";
    let more = made(tabs, &insert(None, CellKind::Markdown, "x"));
    assert_eq!(
        more,
        "{\r\n\t\"nbformat\" : 4,\r\n\t\"cells\" : [\r\n\t\t{\r\n\t\t\t\"cell_type\" : \"markdown\",\r\n\t\t\t\"metadata\" : {},\r\n\t\t\t\"source\" : [\r\n\t\t\t\t\"x\"\r\n\t\t\t]\r\n\t\t}\r\n\t]\r\n}"
    );
    assert_eq!(made(&more, &Change::Delete { cell: Name::Index(0) }), tabs);
    // Cells in one line each.
    let lines = "{\n \"nbformat\": 4, \"nbformat_minor\": 2,\n \"cells\": [\n  {\"cell_type\": \"raw\", \"source\": [\"a\"]}\n ]\n}\n";
    assert_eq!(made(lines, &replace(Name::Index(0), "b\nc")), lines.replace("[\"a\"]", "[\"b\\n\", \"c\"]"));
}

#[test]
fn what_is_no_cell_or_no_notebook_is_refused() {
    let error = |text: &str, change: &Change| applied(text, change).unwrap_err();
    let any = Change::Delete { cell: Name::Index(0) };
    assert!(error("{", &any).contains("not valid JSON"));
    assert!(error("[]", &any).contains("no JSON object"));
    assert!(error(&"[".repeat(100_000), &any).contains("not valid JSON"));
    assert!(error("{}", &any).contains("no \"nbformat\""));
    assert!(error("{\"nbformat\": 3, \"worksheets\": []}", &any).contains("its format is 3"));
    assert!(error("{\"nbformat\": 4}", &any).contains("no \"cells\""));
    assert!(error("{\"nbformat\": 4, \"cells\": 1}", &any).contains("no array"));
    assert!(error("{\"nbformat\": 4, \"cells\": [1]}", &any).contains("no object"));
    assert_eq!(error("{\"nbformat\": 4, \"cells\": []}", &any), "it has no cell 0. It has no cells at all");
    assert_eq!(
        error(JUPYTER, &replace(id("none"), "x")),
        "it has no cell \"none\". Its cells are 0 (id intro, markdown), 1 (id calc, code)"
    );
    assert!(
        error(JUPYTER, &insert(Some(Name::Index(3)), CellKind::Raw, "")).starts_with("it has no cell 3.")
    );
    assert!(error(JUPYTER, &replace(id("calc"), "6 * 7")).contains("exactly this source already"));
    assert!(
        error(&JUPYTER.replace("intro", "calc"), &replace(id("calc"), "x")).contains("more than one cell")
    );
    assert!(
        error(&JUPYTER.replace("\"source\"", "\"sauce\""), &replace(id("calc"), "x"))
            .contains("has no \"source\"")
    );
}

/// A notebook as text: the cells, in some layout.
fn notebook() -> impl Strategy<Value = (String, usize)> {
    let source = prop_oneof![
        "[a\"\\\\\n\u{e9}]{0,8}".prop_map(Value::from),
        prop::collection::vec("[a\"\\\\\u{1F600}]{0,4}\n", 0..4).prop_map(Value::from),
    ];
    let cell = (source, any::<bool>(), any::<u32>()).prop_map(|(source, code, number)| {
        let id = format!("{number:x}");
        if code {
            json!({"cell_type": "code", "id": id, "metadata": {"}": "]"}, "source": source,
                   "outputs": [{"text": ["[{\""]}], "execution_count": number})
        } else {
            json!({"source": source, "metadata": {}, "id": id, "cell_type": "markdown"})
        }
    });
    (prop::collection::vec(cell, 0..5), any::<bool>(), any::<bool>()).prop_map(|(cells, pretty, crlf)| {
        let count = cells.len();
        let value = json!({"nbformat": 4, "cells": cells, "nbformat_minor": 5, "metadata": {"cells": [1]}});
        let text = if pretty { format!("{value:#}\n") } else { value.to_string() };
        (if crlf && pretty { text.replace('\n', "\r\n") } else { text }, count)
    })
}

proptest! {
    /// Only the cell changes: what is before it and after it in the file are the same bytes, and the notebook means
    /// what it should.
    #[test]
    fn bytes_outside_of_the_cell_stay(
        (text, count) in notebook(),
        at in any::<prop::sample::Index>(),
        source in "[a\"\\\\\n\u{e9}]{0,12}",
        what in 0..3_u8,
    ) {
        let before: Value = serde_json::from_str(&text).unwrap();
        let notebook = Notebook::of(text.as_bytes()).unwrap();
        let at = at.index(count + usize::from(what == 1 || count == 0));
        let change = match what {
            0 => replace(Name::Index(at), &source),
            1 => insert(Some(Name::Index(at)), CellKind::Code, &source),
            _ => Change::Delete { cell: Name::Index(at) },
        };
        let Ok(changed) = notebook.apply(&change) else {
            let same = before["cells"].get(at).is_none_or(|cell| joined(&cell["source"]) == source);
            prop_assert!(what != 1 && same);
            return Ok(());
        };
        let made = String::from_utf8(changed.text).unwrap();
        let after: Value = serde_json::from_str(&made).unwrap();
        let mut expected = before.clone();
        let cells = expected["cells"].as_array_mut().unwrap();
        match what {
            0 => {
                let cell = &mut cells[at];
                prop_assert_eq!(joined(&after["cells"][at]["source"]), source);
                cell["source"] = after["cells"][at]["source"].clone();
                if cell["cell_type"] == "code" {
                    (cell["outputs"], cell["execution_count"]) = (json!([]), Value::Null);
                }
                let span = &notebook.cells[at].span;
                prop_assert_eq!(&made[..span.start], &text[..span.start]);
                prop_assert!(made.ends_with(&text[span.end..]));
            }
            1 => {
                prop_assert_eq!(joined(&after["cells"][at]["source"]), source);
                cells.insert(at, after["cells"][at].clone());
                // Taking it out again gives the same bytes, unless the array was written without cells in some other way.
                let back = applied(&made, &Change::Delete { cell: Name::Index(at) }).unwrap();
                prop_assert_eq!(String::from_utf8(back.text).unwrap(), text);
            }
            _ => {
                cells.remove(at);
                let span = &notebook.cells[at].span;
                let start = made.bytes().zip(text.bytes()).take_while(|(new, old)| new == old).count();
                let end = made.bytes().rev().zip(text.bytes().rev()).take_while(|(new, old)| new == old).count();
                let least = if at == 0 { notebook.array.start } else { notebook.cells[at - 1].span.end };
                prop_assert!(start + 1 >= least);
                let next = notebook.cells.get(at + 1).map_or(notebook.array.end - 1, |next| next.span.start);
                prop_assert!(end >= text.len() - next, "{span:?}");
            }
        }
        prop_assert_eq!(after, expected);
    }

    #[test]
    fn any_text_is_a_notebook_or_refused(text in "(\\{|\\}|\\[|\\]|\"cells\"|\"nbformat\"|\"source\"|4|:|,|\"\\\\\"){0,20}") {
        if let Ok(notebook) = Notebook::of(text.as_bytes()) {
            let _ = notebook.apply(&Change::Delete { cell: Name::Index(0) });
        }
    }
}

fn joined(source: &Value) -> String {
    match source {
        Value::String(text) => text.clone(),
        other => other.as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect(),
    }
}
