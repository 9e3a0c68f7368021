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
    /// Where it is in doubt, and quotes keep some of it from being a pattern of file names: the pattern, with `?` for
    /// these characters.
    unquoted: Option<String>,
}

impl Word {
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), doubt: None, unquoted: None }
    }

    pub(super) fn doubtful(text: &str, why: &'static str) -> Self {
        Self { doubt: Some(why), ..Self::plain(text) }
    }

    /// The pattern of file names that it is, if it is one. It matches all that a shell would put in its place, and perhaps more.
    pub(super) fn pattern(&self) -> Option<String> {
        let is_pattern = matches!(self.doubt, Some(PATTERN | BRACES)) && !self.text.contains(['$', '`']);
        let Some(pattern) = &self.unquoted else { return is_pattern.then(|| self.text.clone()) };
        is_pattern.then(|| widened(pattern))
    }
}

/// The same, where a `?` that stands for a quoted character is not in brackets: there it would be that character only.
fn widened(pattern: &str) -> String {
    let part = |part: &str| match (part.contains('['), part.starts_with('.')) {
        (false, _) => part.to_owned(),
        (true, false) => "*".to_owned(),
        (true, true) => ".*".to_owned(),
    };
    pattern.split('/').map(part).collect::<Vec<_>>().join("/")
}

/// Whether a shell gives the character a special meaning in patterns of file names or in braces.
fn is_special(character: char) -> bool {
    "*?[]{},!^-\\".contains(character)
}

/// A quoted text as a pattern: `?` in place of each special character.
fn unquoted(text: &str) -> String {
    text.chars().map(|character| if is_special(character) { '?' } else { character }).collect()
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
    let mut pattern = String::with_capacity(text.len());
    let mut characters = text.chars();
    let mut doubt = None;
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some('\n') => {}
                Some(escaped) => {
                    plain.push(escaped);
                    pattern.push(if is_special(escaped) { '?' } else { escaped });
                    continue;
                }
                None => doubt = Some("a backslash at the end"),
            },
            '*' | '?' | '[' => doubt = Some(PATTERN),
            '$' | '`' => doubt = Some("a variable"),
            _ => {}
        }
        if character != '\\' {
            plain.push(character);
            pattern.push(character);
        }
    }
    if plain.contains('{') && (plain.contains(',') || plain.contains("..")) {
        doubt = doubt.or(Some(BRACES));
    }
    let unquoted = (doubt.is_some() && pattern != plain).then_some(pattern);
    Word { text: plain, doubt, unquoted }
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
    let (mut joined, mut pattern) = (String::new(), String::new());
    let (mut doubt, mut end) = (None, node.start_byte());
    for child in node.children(&mut cursor) {
        if child.start_byte() != end {
            doubt = doubt.or(Some("a word that is put together"));
        }
        end = child.end_byte();
        let part = word(child, source);
        doubt = doubt.or(part.doubt);
        joined.push_str(&part.text);
        let is_bare = child.kind() == "word" && !source[child.byte_range()].contains('\\');
        match &part.unquoted {
            Some(part) => pattern.push_str(part),
            // Braces need not stand in one part.
            None if part.doubt.is_some() || is_bare || !child.is_named() => pattern.push_str(&part.text),
            None => pattern.push_str(&unquoted(&part.text)),
        }
    }
    if end != node.end_byte() {
        doubt = doubt.or(Some("a word that is put together"));
    }
    let raw = &source[node.byte_range()];
    if raw.contains('{') && (raw.contains(',') || raw.contains("..")) {
        doubt = doubt.or(Some(BRACES));
    }
    let unquoted = (doubt.is_some() && pattern != joined).then_some(pattern);
    Word { text: joined, doubt, unquoted }
}
