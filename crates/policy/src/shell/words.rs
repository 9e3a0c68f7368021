//! Words as a shell reads them.

use tree_sitter::Node;

/// The doubt about a word that arithmetic is put into.
pub(super) const ARITHMETIC: &str = "arithmetic";
/// The doubt about a word that stands for the names that it matches.
pub(super) const PATTERN: &str = "a pattern of file names";
/// The doubt about a word that stands for several.
pub(super) const BRACES: &str = "braces";

/// A word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// Without quotes. What the shell would put in is left as it is written.
    pub(super) text: String,
    /// Why the command may get something else.
    pub(super) doubt: Option<&'static str>,
}

impl Word {
    fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), doubt: None }
    }

    fn doubtful(text: &str, why: &'static str) -> Self {
        Self { text: text.to_owned(), doubt: Some(why) }
    }
}

/// The word that `node` is.
pub(super) fn word(node: Node<'_>, source: &str) -> Word {
    let text = &source[node.byte_range()];
    match node.kind() {
        "command_name" => match node.child(0) {
            Some(child) if node.child_count() == 1 => word(child, source),
            _ => Word::doubtful(text, "a name that is put together"),
        },
        "word" | "number" | "extglob_pattern" | "regex" | "variable_name" | "test_operator" => bare(text),
        "raw_string" => match text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')) {
            Some(inner) => Word::plain(inner),
            None => Word::doubtful(text, "an open quote"),
        },
        "string" => quoted(node, text),
        "concatenation" => concatenation(node, source),
        "simple_expansion" | "expansion" => Word::doubtful(text, "a variable"),
        "command_substitution" | "process_substitution" => Word::doubtful(text, "the output of a command"),
        "arithmetic_expansion" => Word::doubtful(text, ARITHMETIC),
        "ansi_c_string" | "translated_string" => Word::doubtful(text, "a string with escapes"),
        _ => Word::doubtful(text, "a construct that is not understood"),
    }
}

/// A word without quotes: a backslash takes the meaning from what follows.
fn bare(text: &str) -> Word {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    let mut doubt = None;
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some('\n') => {}
                Some(escaped) => plain.push(escaped),
                None => doubt = Some("a backslash at the end"),
            },
            '*' | '?' | '[' => {
                doubt = Some(PATTERN);
                plain.push(character);
            }
            '$' | '`' => {
                doubt = Some("a variable");
                plain.push(character);
            }
            _ => plain.push(character),
        }
    }
    if plain.contains('{') && (plain.contains(',') || plain.contains("..")) {
        doubt = doubt.or(Some(BRACES));
    }
    Word { text: plain, doubt }
}

fn quoted(node: Node<'_>, text: &str) -> Word {
    let Some(inner) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else {
        return Word::doubtful(text, "an open quote");
    };
    let mut cursor = node.walk();
    if node.named_children(&mut cursor).any(|child| child.kind() != "string_content") {
        return Word::doubtful(inner, "a variable or the output of a command");
    }
    let mut plain = String::with_capacity(inner.len());
    let mut characters = inner.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.peek() {
                Some('"' | '\\' | '$' | '`') => plain.extend(characters.next()),
                Some('\n') => drop(characters.next()),
                _ => plain.push('\\'),
            },
            // A lone one means nothing; another would be a node of its own, so it is better not trusted.
            '$' if !matches!(characters.peek(), None | Some(' ')) => {
                return Word::doubtful(inner, "a variable");
            }
            '`' => return Word::doubtful(inner, "the output of a command"),
            _ => plain.push(character),
        }
    }
    Word::plain(plain)
}

fn concatenation(node: Node<'_>, source: &str) -> Word {
    let mut cursor = node.walk();
    let (mut joined, mut doubt, mut end) = (String::new(), None, node.start_byte());
    for child in node.children(&mut cursor) {
        if child.start_byte() != end {
            doubt = doubt.or(Some("a word that is put together"));
        }
        end = child.end_byte();
        let part = word(child, source);
        doubt = doubt.or(part.doubt);
        joined.push_str(&part.text);
    }
    if end != node.end_byte() {
        doubt = doubt.or(Some("a word that is put together"));
    }
    let raw = &source[node.byte_range()];
    if raw.contains('{') && (raw.contains(',') || raw.contains("..")) {
        doubt = doubt.or(Some(BRACES));
    }
    Word { text: joined, doubt }
}
