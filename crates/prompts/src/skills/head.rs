//! The head of a skill's file. It is YAML that others write too, of which only two keys matter: so what stands at other keys
//! is not read at all, and the two are read in all forms in which texts are written.

use crate::PromptError;
use crate::agent::MOST_OF_DESCRIPTION;

/// The longest name.
const MOST_OF_NAME: usize = 64;

/// A skill's file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SkillFile<'a> {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) body: &'a str,
}

/// A key with what follows it.
struct Field<'a> {
    key: &'a str,
    line: usize,
    /// What follows the colon.
    first: &'a str,
    /// The indented lines after it.
    rest: Vec<&'a str>,
}

/// Reads a skill's file. `file` is for messages.
pub(super) fn parse<'a>(file: &str, text: &'a str) -> Result<SkillFile<'a>, PromptError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let error = |line, message: String| PromptError::at(file, line, message);
    let mut fields: Vec<Field<'a>> = Vec::new();
    let mut position = 0;
    let mut end = None;
    for (whole, number) in text.split_inclusive('\n').zip(1..) {
        position += whole.len();
        let line = whole.trim_end();
        if number == 1 {
            if line != "---" {
                return Err(error(1, "the first line must be `---`: a skill begins with a head".to_owned()));
            }
            continue;
        }
        if line == "---" {
            end = Some(position);
            break;
        }
        let is_inner = line.starts_with([' ', '\t', '-']) || line.is_empty();
        match (fields.last_mut(), line.split_once(':')) {
            _ if line.starts_with('#') => {}
            (Some(field), _) if is_inner => field.rest.push(line),
            (None, _) if line.is_empty() => {}
            (_, Some((key, first))) if !is_inner => {
                let field =
                    Field { key: key.trim_end(), line: number, first: first.trim(), rest: Vec::new() };
                fields.push(field);
            }
            _ => return Err(error(number, "expected `key: value`, or `---` after the head".to_owned())),
        }
    }
    let Some(end) = end else {
        let empty = text.trim().is_empty();
        let message =
            if empty { "the file is empty" } else { "the head that begins here has no closing `---`" };
        return Err(error(1, message.to_owned()));
    };
    let value = |key: &str, hint: &str| {
        let mut known = fields.iter().filter(|field| field.key == key);
        let Some(field) = known.next() else { return Err(error(1, format!("`{key}` is missing: {hint}"))) };
        if let Some(again) = known.next() {
            return Err(error(again.line, format!("`{key}` is set twice: first in line {}", field.line)));
        }
        match field.text() {
            Some(text) if !text.is_empty() => Ok((text, field.line)),
            Some(_) => Err(error(field.line, format!("`{key}` has no value"))),
            None => {
                Err(error(field.line, format!("the value of `{key}` is no text, or its quotes do not end")))
            }
        }
    };
    let (name, line) = value("name", "give the skill the name of its folder")?;
    if !is_name(&name) {
        let name: String = name.chars().take(MOST_OF_NAME).collect();
        let name = name.escape_debug();
        let message = format!(
            "\"{name}\" is not a name for a skill: use up to {MOST_OF_NAME} lower-case letters, digits, `-` and `_`"
        );
        return Err(error(line, message));
    }
    let (description, line) =
        value("description", "say in a sentence or two what the skill is for, and when")?;
    let length = description.chars().count();
    if length > MOST_OF_DESCRIPTION {
        let message = format!(
            "`description` has {length} characters, and {MOST_OF_DESCRIPTION} at most are read: say in a sentence or two what the skill is for, and the rest in its text"
        );
        return Err(error(line, message));
    }
    Ok(SkillFile { name, description, body: text[end..].trim() })
}

fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    !name.is_empty() && name.len() <= MOST_OF_NAME && name.chars().all(fits)
}

impl Field<'_> {
    /// Its value as one text. `None` for what is none.
    fn text(&self) -> Option<String> {
        let rest = || self.rest.iter().map(|line| line.trim());
        match self.first.chars().next() {
            // A block: its lines, kept or joined.
            Some('|') => Some(rest().collect::<Vec<_>>().join("\n").trim().to_owned()),
            Some('>') => Some(words(rest())),
            Some('[' | '{' | '&' | '*' | '!') => None,
            Some(quote @ ('"' | '\'')) => unquote(&words(std::iter::once(self.first).chain(rest())), quote),
            _ => {
                let lines = std::iter::once(self.first).chain(rest());
                Some(words(lines.map(|line| line.split_once(" #").map_or(line, |(before, _)| before))))
            }
        }
    }
}

/// Lines as one, with single spaces.
fn words<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

/// What stands between the quotes with which `text` begins. What follows them can only be a comment.
fn unquote(text: &str, quote: char) -> Option<String> {
    let mut out = String::new();
    let mut rest = text[1..].chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' if quote == '"' => out.push(match rest.next()? {
                'n' | 't' | 'r' => ' ',
                other => other,
            }),
            '\'' if quote == '\'' && rest.peek() == Some(&'\'') => {
                rest.next();
                out.push('\'');
            }
            c if c == quote => {
                let after: String = rest.collect();
                let after = after.trim();
                return (after.is_empty() || after.starts_with('#')).then_some(out);
            }
            c => out.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(written: &str) -> String {
        let text = format!(
            "---\nname: pdf\nlicense: MIT # ours\n{written}\nmetadata:\n  a: {{b: [1, 2]}}\n  description: not this\nallowed-tools: Read, Grep\n---\nbody"
        );
        parse("s.md", &text).unwrap().description
    }

    fn error(text: &str) -> String {
        parse("s.md", text).unwrap_err().to_string()
    }

    #[test]
    fn texts_are_read_in_all_forms_and_other_keys_are_let_be() {
        for written in [
            "description: Fills in: forms.",
            "description:   Fills in:\n  forms.   # a comment",
            "description: >-\n  Fills in:\n  forms.\n",
            "description: \"Fills in: forms.\" # c",
            "description: \"Fills\n  in: forms.\"",
            "description: 'Fills in: forms.'",
            "description:\n  Fills in:\n\n  forms.",
        ] {
            assert_eq!(description(written), "Fills in: forms.", "{written}");
        }
        assert_eq!(description("description: |\n  one\n  two"), "one\ntwo");
        assert_eq!(description("description: 'it''s'"), "it's");
        assert_eq!(description(r#"description: "a \"b\" \\ c""#), r#"a "b" \ c"#);
        let file =
            parse("s.md", "\u{feff}---\r\nname: a\r\ndescription: b\r\n---\r\n\r\n# Do\r\n---\r\n").unwrap();
        assert_eq!(file.body, "# Do\r\n---");
    }

    #[test]
    fn every_mistake_names_its_line() {
        for (text, expected) in [
            ("", "1: the file is empty"),
            ("# Skill", "1: the first line must be `---`: a skill begins with a head"),
            ("---\nname: a\n", "1: the head that begins here has no closing `---`"),
            ("---\ndescription: b\n---\n", "1: `name` is missing: give the skill the name of its folder"),
            (
                "---\nname: a\n---\n",
                "1: `description` is missing: say in a sentence or two what the skill is for, and when",
            ),
            ("---\nname: a\ndescription:\n---\n", "3: `description` has no value"),
            (
                "---\nname: a\ndescription: [b]\n---",
                "3: the value of `description` is no text, or its quotes do not end",
            ),
            (
                "---\nname: a\ndescription: \"b\n---",
                "3: the value of `description` is no text, or its quotes do not end",
            ),
            ("---\nname: a\nname: b\ndescription: c\n---", "3: `name` is set twice: first in line 2"),
            ("---\n\n  x: y\n---", "3: expected `key: value`, or `---` after the head"),
            ("---\nname: a\nwords\n---", "3: expected `key: value`, or `---` after the head"),
            (
                "---\nname: A b\ndescription: c\n---",
                "2: \"A b\" is not a name for a skill: use up to 64 lower-case letters, digits, `-` and `_`",
            ),
        ] {
            assert_eq!(error(text), format!("s.md:{expected}"), "{text}");
        }
    }
}
