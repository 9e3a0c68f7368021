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
//! ---
//! The text begins here.
//! ```
//!
//! A line is `key: value`, where a value is the rest of the line (a pair of quotes around it is taken off, nothing is
//! escaped), or a list: `[a, b]`, or one `- item` for each line after a `key:` without value. A comment is a line of
//! its own. A key may occur once. There is no nesting.

use crate::PromptError;

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
    let mut fields: Vec<Field<'a>> = Vec::new();
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
            (_, "---") => return Ok(Document { fields, body: text[position..].trim() }),
            _ => read_line(file, number, line, &mut fields)?,
        }
    }
    let message =
        if position == 0 { "the file is empty" } else { "the head that begins here has no closing `---`" };
    Err(PromptError::at(file, 1, message))
}

fn read_line<'a>(
    file: &str,
    number: usize,
    line: &'a str,
    fields: &mut Vec<Field<'a>>,
) -> Result<(), PromptError> {
    let trimmed = line.trim_start();
    if trimmed.is_empty() || trimmed.starts_with('#') {
        return Ok(());
    }
    if let Some(item) = trimmed.strip_prefix("- ") {
        return push_item(file, number, unquote(item), fields);
    }
    if trimmed.len() != line.len() {
        return Err(PromptError::at(file, number, "an indented line must be an item of a list: `- item`"));
    }
    let Some((key, value)) = line.split_once(':') else {
        return Err(PromptError::at(file, number, "expected `key: value`, `- item`, a comment or `---`"));
    };
    let key = key.trim_end();
    if let Some(earlier) = fields.iter().find(|field| field.key == key) {
        let message = format!("`{key}` is set twice: first in line {}", earlier.line);
        return Err(PromptError::at(file, number, message));
    }
    fields.push(Field { key, line: number, value: read_value(file, number, value.trim())? });
    Ok(())
}

fn push_item<'a>(
    file: &str,
    number: usize,
    item: &'a str,
    fields: &mut [Field<'a>],
) -> Result<(), PromptError> {
    match fields.last_mut().map(|field| &mut field.value) {
        Some(value @ FieldValue::Text("")) => *value = FieldValue::List(vec![item]),
        Some(FieldValue::List(items)) => items.push(item),
        _ => {
            return Err(PromptError::at(
                file,
                number,
                "an item needs a `key:` without value in a line before it",
            ));
        }
    }
    Ok(())
}

fn read_value<'a>(file: &str, number: usize, value: &'a str) -> Result<FieldValue<'a>, PromptError> {
    let Some(list) = value.strip_prefix('[') else {
        return Ok(FieldValue::Text(unquote(value)));
    };
    let Some(list) = list.strip_suffix(']') else {
        return Err(PromptError::at(file, number, "this list has no `]` at the end of its line"));
    };
    if list.trim().is_empty() {
        return Ok(FieldValue::List(Vec::new()));
    }
    let items: Vec<&str> = list.split(',').map(|item| unquote(item.trim())).collect();
    if items.contains(&"") {
        return Err(PromptError::at(file, number, "this list has an empty item"));
    }
    Ok(FieldValue::List(items))
}

fn unquote(text: &str) -> &str {
    let text = text.trim();
    let inner = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
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
            error("---\na:\n  b: 1\n---"),
            "a.md:3: an indented line must be an item of a list: `- item`"
        );
        assert_eq!(
            error("---\na: 1\n- x\n---"),
            "a.md:3: an item needs a `key:` without value in a line before it"
        );
        assert_eq!(error("---\na: [x\n---"), "a.md:2: this list has no `]` at the end of its line");
        assert_eq!(error("---\na: [x,,y]\n---"), "a.md:2: this list has an empty item");
    }
}
