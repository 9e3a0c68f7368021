//! The head of a Markdown file: a small form that is a subset of YAML.
//!
//! ```text
//! ---
//! # a comment
//! name: atlas
//! description: "finds: and explains"
//! tools: [read, grep]
//! rules:
//!   - one
//!   - "two"
//! permission:
//!   edit: deny
//!   bash: { "*": ask, "git *": allow }
//! ---
//! The text begins here.
//! ```
//!
//! A line is `key: value`, where a value is the rest of the line (a pair of quotes around it is taken off, nothing is
//! escaped), or a list: `[a, b]`, or one `- item` for each line after a `key:` without value; or a map: `{a: x, b: y}`, or
//! one indented `key: value` for each line after a `key:` without value. The keys of maps may be quoted too, and their
//! values may be maps. A comment is a line of its own. A key may occur once.

mod inline;
pub mod yaml;

use crate::PromptError;

/// So many maps may stand in each other.
const DEEPEST: usize = 2;

/// A head, and where the text begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document<'a> {
    /// The fields in their order.
    pub fields: Vec<Field<'a>>,
    /// Everything after the head, without blank lines around it.
    pub body: &'a str,
}

/// One key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The key.
    pub key: &'a str,
    /// Its line, from 1.
    pub line: usize,
    /// The value.
    pub value: FieldValue<'a>,
}

/// What a field holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValue<'a> {
    /// The rest of its line; empty for a key without anything.
    Text(&'a str),
    /// A list.
    List(Vec<&'a str>),
    /// Keys with values of their own, in their order.
    Map(Vec<Field<'a>>),
}

/// Reads a file that begins with a head. `file` is for messages.
///
/// # Errors
/// Names file and line of what is not of the form, and says what is.
///
/// ```
/// use playhouse_prompts::front_matter::{FieldValue, parse};
/// let document = parse("a.md", "---\ntools: [read, grep]\n---\n\nHello.\n").unwrap();
/// assert_eq!(document.fields[0].value, FieldValue::List(vec!["read", "grep"]));
/// assert_eq!(document.body, "Hello.");
/// ```
pub fn parse<'a>(file: &str, text: &'a str) -> Result<Document<'a>, PromptError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut position = 0;
    let mut head = Head::default();
    for (index, whole) in text.split_inclusive('\n').enumerate() {
        position += whole.len();
        let number = index + 1;
        let line = whole.trim_end();
        match (index, line) {
            (0, "---") => {}
            (0, _) => {
                return Err(PromptError::at(
                    file,
                    1,
                    "the first line must be `---`: the file begins with a head",
                ));
            }
            (_, "---") => return Ok(Document { fields: head.fields, body: text[position..].trim() }),
            _ => head.read(number, line).map_err(|message| PromptError::at(file, number, message))?,
        }
    }
    let message =
        if position == 0 { "the file is empty" } else { "the head that begins here has no closing `---`" };
    Err(PromptError::at(file, 1, message))
}

/// Where the lines of a head are put.
#[derive(Default)]
struct Head<'a> {
    fields: Vec<Field<'a>>,
    /// How far the lines of each map are indented that is not at its end, the outermost first.
    indents: Vec<usize>,
}

impl<'a> Head<'a> {
    fn read(&mut self, number: usize, line: &'a str) -> Result<(), String> {
        let trimmed = line.trim_start();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            return Ok(());
        }
        if let Some(item) = trimmed.strip_prefix("- ") {
            return self.item(inline::closed(item)?);
        }
        let indent = line.len() - trimmed.len();
        if indent == 0 {
            self.indents.clear();
            let Some((key, value)) = line.split_once(':') else {
                return Err("expected `key: value`, `- item`, a comment or `---`".to_owned());
            };
            let value = inline::value(value, number, 0)?;
            return push(&mut self.fields, Field { key: key.trim_end(), line: number, value });
        }
        if line.starts_with('\t') {
            return Err("this line is indented with a tab: use spaces".to_owned());
        }
        let Some((key, value)) = inline::entry(trimmed) else {
            return Err(
                "an indented line must be an item of a list, `- item`, or of a map, `key: value`".to_owned()
            );
        };
        let map = self.map(indent)?;
        let depth = self.indents.len();
        let value = inline::value(value, number, depth)?;
        push(self.open(map), Field { key, line: number, value })
    }

    /// The map around a line that is indented by `indent`, as the number of maps that are around it. One begins with the
    /// first line that is indented more than the key before it.
    fn map(&mut self, indent: usize) -> Result<usize, String> {
        let known = self.indents.iter().take_while(|known| **known <= indent).count();
        self.indents.truncate(known);
        if self.indents.last() == Some(&indent) {
            return Ok(known);
        }
        let last = self.open(known).last_mut().map(|field| &mut field.value);
        let Some(value @ FieldValue::Text("")) = last else {
            return Err("this line is indented, and belongs to no `key:` without value before it".to_owned());
        };
        if known == DEEPEST {
            return Err(too_deep());
        }
        *value = FieldValue::Map(Vec::new());
        self.indents.push(indent);
        Ok(known + 1)
    }

    /// The fields of the innermost of `depth` maps.
    fn open(&mut self, depth: usize) -> &mut Vec<Field<'a>> {
        let mut fields = &mut self.fields;
        for _ in 0..depth {
            match fields.last_mut() {
                Some(Field { value: FieldValue::Map(inner), .. }) => fields = inner,
                _ => unreachable!("a map that is open is the last value around it"),
            }
        }
        fields
    }

    fn item(&mut self, item: &'a str) -> Result<(), String> {
        let depth = self.indents.len();
        match self.open(depth).last_mut().map(|field| &mut field.value) {
            Some(value @ FieldValue::Text("")) => *value = FieldValue::List(vec![item]),
            Some(FieldValue::List(items)) => items.push(item),
            _ => return Err("an item needs a `key:` without value in a line before it".to_owned()),
        }
        Ok(())
    }
}

/// Adds a field whose key there is not yet.
fn push<'a>(fields: &mut Vec<Field<'a>>, field: Field<'a>) -> Result<(), String> {
    if let Some(earlier) = fields.iter().find(|earlier| earlier.key == field.key) {
        return Err(format!("`{}` is set twice: first in line {}", field.key, earlier.line));
    }
    fields.push(field);
    Ok(())
}

fn too_deep() -> String {
    format!("maps stand in each other more than {DEEPEST} deep")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse("a.md", text).unwrap_err().to_string()
    }

    #[test]
    fn both_forms_of_lists_quotes_and_comments_are_read() {
        let text = "\u{feff}---\r\n# c\r\na: \"x: y\"\r\n\r\nb:\r\n  - 'one'\r\n- two\r\nc: []\r\nd:\r\n---\r\n\r\n body \r\n";
        let document = parse("a.md", text).unwrap();
        let field = |key, line, value| Field { key, line, value };
        assert_eq!(
            document.fields,
            [
                field("a", 3, FieldValue::Text("x: y")),
                field("b", 5, FieldValue::List(vec!["one", "two"])),
                field("c", 8, FieldValue::List(vec![])),
                field("d", 9, FieldValue::Text("")),
            ]
        );
        assert_eq!(document.body, "body");
    }

    #[test]
    fn both_forms_of_maps_are_read_in_order() {
        let block = "---\np:\n  \"*\": ask\n\n  # c\n  web: deny\n  bash:\n      http://a/*: allow\n      \
                     'a: b}': \"deny\"\n  l:\n  - one\n  z: {}\nq: 1\n---";
        let inline = "---\np: { \"*\": ask, web: deny, bash: {http://a/*: allow, 'a: b}': \"deny\" } , z: {},}\nq: 1\n---";
        // Without lines.
        fn plain(fields: &[Field<'_>]) -> String {
            let one = |field: &Field<'_>| match &field.value {
                FieldValue::Text(text) => format!("{}={text}", field.key),
                FieldValue::List(items) => format!("{}=[{}]", field.key, items.join("|")),
                FieldValue::Map(fields) => format!("{}={{{}}}", field.key, plain(fields)),
            };
            fields.iter().map(one).collect::<Vec<_>>().join("; ")
        }
        let document = parse("a.md", block).unwrap();
        let bash = "bash={http://a/*=allow; a: b}=deny}";
        assert_eq!(plain(&document.fields), format!("p={{*=ask; web=deny; {bash}; l=[one]; z={{}}}}; q=1"));
        let FieldValue::Map(entries) = &document.fields[0].value else { panic!("a map") };
        assert_eq!(entries.iter().map(|entry| entry.line).collect::<Vec<_>>(), [3, 6, 7, 10, 12]);
        let document = parse("a.md", inline).unwrap();
        assert_eq!(plain(&document.fields), format!("p={{*=ask; web=deny; {bash}; z={{}}}}; q=1"));
    }

    #[test]
    fn no_order_of_lines_breaks_it() {
        let lines = ["a:", "b: 1", "  c:", "  d: 1", "    e:", "      f: 1", "- x", "   g: {h: {}}"];
        let count = lines.len();
        for case in 0..count.pow(5) {
            let chosen: Vec<&str> = (0..5).map(|place| lines[case / count.pow(place) % count]).collect();
            if let Ok(document) = parse("a.md", &format!("---\n{}\n---\nrest", chosen.join("\n"))) {
                assert!(!document.fields.is_empty() && document.body == "rest", "{chosen:?}");
            }
        }
    }

    #[test]
    fn a_rule_in_the_text_is_text() {
        assert_eq!(parse("a.md", "---\n---\none\n---\ntwo").unwrap().body, "one\n---\ntwo");
    }

    #[test]
    fn every_mistake_names_its_line() {
        assert_eq!(error(""), "a.md:1: the file is empty");
        assert_eq!(error("name: x\n"), "a.md:1: the first line must be `---`: the file begins with a head");
        assert_eq!(error("---\nname: x\n"), "a.md:1: the head that begins here has no closing `---`");
        assert_eq!(error("---\nname x\n---"), "a.md:2: expected `key: value`, `- item`, a comment or `---`");
        assert_eq!(error("---\na: 1\nb: 2\na: 3\n---"), "a.md:4: `a` is set twice: first in line 2");
        assert_eq!(
            error("---\na: 1\n- x\n---"),
            "a.md:3: an item needs a `key:` without value in a line before it"
        );
        assert_eq!(error("---\na: [x\n---"), "a.md:2: this list has no `]` at the end of its line");
        assert_eq!(error("---\na: [x,,y]\n---"), "a.md:2: this list has an empty item");
        for (head, expected) in [
            ("a:\n  b", "3: an indented line must be an item of a list, `- item`, or of a map, `key: value`"),
            (
                "a:\n  b:1",
                "3: an indented line must be an item of a list, `- item`, or of a map, `key: value`",
            ),
            ("a: 1\n  b: 1", "3: this line is indented, and belongs to no `key:` without value before it"),
            ("  b: 1", "2: this line is indented, and belongs to no `key:` without value before it"),
            (
                "a:\n    b: 1\n  c: 2",
                "4: this line is indented, and belongs to no `key:` without value before it",
            ),
            (
                "a:\n  b: 1\n    c: 2",
                "4: this line is indented, and belongs to no `key:` without value before it",
            ),
            ("a:\n\tb: 1", "3: this line is indented with a tab: use spaces"),
            ("a:\n  b: 1\n  \"b\": 2", "4: `b` is set twice: first in line 3"),
            ("a:\n  b:\n    c:\n      d: 1", "5: maps stand in each other more than 2 deep"),
            ("a: {b: {c: {d: 1}}}", "2: maps stand in each other more than 2 deep"),
            ("a: {b: 1, b: 2}", "2: `b` is set twice: first in line 2"),
            ("a: {b: 1", "2: this map has no `}` at its end"),
            ("a: {b: 1,", "2: expected `key: value` in this map, and a `}` at its end"),
            ("a: {b}", "2: expected `key: value` in this map, and a `}` at its end"),
            ("a: {b: \"1\" 2}", "2: this map has no `}` at its end"),
            ("a: {b: 1} 2", "2: something follows the `}` of this map"),
            ("a: \"x", "2: this text begins with \" and has no \" at its end"),
            ("a: 'x\nb: y'", "2: this text begins with ' and has no ' at its end"),
            ("a: [x, \"y]", "2: this text begins with \" and has no \" at its end"),
            ("a: ['x', y\"]", "2: the item `y\"` ends with a quote, and does not begin with it"),
            ("a: {b: \"x}", "2: this text begins with \" and has no \" at its end"),
            ("a: {'b *: x}", "2: expected `key: value` in this map, and a `}` at its end"),
            (
                "a:\n  'b *: c",
                "3: an indented line must be an item of a list, `- item`, or of a map, `key: value`",
            ),
            ("a:\n- \"", "3: this text begins with \" and has no \" at its end"),
            ("a:\n  b: \"x", "3: this text begins with \" and has no \" at its end"),
            ("a: {}\n- x", "3: an item needs a `key:` without value in a line before it"),
        ] {
            assert_eq!(error(&format!("---\n{head}\n---")), format!("a.md:{expected}"), "{head}");
        }
    }
}
