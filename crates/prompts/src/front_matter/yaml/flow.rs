//! Values in one line, and those within brackets over several.

use serde_json::{Map, Number, Value};

/// The key of a line of a map, and what stands behind it.
pub(super) fn key(text: &str) -> Option<(String, &str)> {
    if text.starts_with(['"', '\'']) {
        let mut scan = Scan { rest: text };
        let key = scan.quoted().ok()?;
        let rest = scan.rest.trim_start().strip_prefix(':')?;
        return (rest.is_empty() || rest.starts_with(' ')).then(|| (key, rest.trim_start()));
    }
    if text.starts_with(['[', '{', '#', '&', '*', '!', '|', '>', '%', '@', '`']) {
        return None;
    }
    let text = uncommented(text);
    let (key, rest) = match text.find(": ") {
        Some(end) => (&text[..end], text[end + 1..].trim_start()),
        None => (text.strip_suffix(':')?, ""),
    };
    let key = key.trim_end();
    (!key.is_empty()).then(|| (key.to_owned(), rest))
}

/// `text` without a comment at its end, unless it begins with a quote or a bracket.
pub(super) fn uncommented(text: &str) -> &str {
    text.find(" #").filter(|_| !text.contains(['"', '\''])).map_or(text, |end| &text[..end]).trim_end()
}

/// The value of a scalar without quotes.
pub(super) fn typed(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

fn number(text: &str) -> Option<Number> {
    let is_of_number = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-');
    if !text.bytes().all(is_of_number) || !text.bytes().any(|byte| byte.is_ascii_digit()) {
        return None;
    }
    if let Ok(whole) = text.parse::<i64>() {
        return Some(whole.into());
    }
    if let Ok(whole) = text.parse::<u64>() {
        return Some(whole.into());
    }
    // Rust reads no more than YAML here, but for a text that begins with an `e`.
    if text.starts_with(['e', 'E']) {
        return None;
    }
    Number::from_f64(text.parse().ok()?)
}

/// The value that `text` is, of at most `deepest` maps and lists within each other.
pub(super) fn whole(text: &str, deepest: usize) -> Result<Value, String> {
    let mut scan = Scan { rest: text };
    let value = scan.value(deepest)?;
    scan.skip();
    match scan.rest {
        "" => Ok(value),
        rest => Err(format!("`{}` follows the value", shortened(rest))),
    }
}

fn shortened(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(30).collect()
}

/// How many brackets are open, over the lines of a value.
#[derive(Default)]
pub(super) struct Open {
    brackets: usize,
    quote: Option<char>,
}

impl Open {
    /// Reads on; whether any is open then.
    pub(super) fn read(&mut self, line: &str) -> bool {
        let mut before = ' ';
        let mut characters = line.chars();
        while let Some(character) = characters.next() {
            match (self.quote, character) {
                (Some('"'), '\\') => drop(characters.next()),
                (Some(quote), character) if quote == character => self.quote = None,
                (Some(_), _) => {}
                (None, '#') if before.is_whitespace() => break,
                (None, '"' | '\'') if !before.is_alphanumeric() => self.quote = Some(character),
                (None, '[' | '{') => self.brackets += 1,
                (None, ']' | '}') => self.brackets = self.brackets.saturating_sub(1),
                (None, _) => {}
            }
            before = character;
        }
        self.brackets > 0
    }
}

struct Scan<'a> {
    rest: &'a str,
}

impl<'a> Scan<'a> {
    /// Goes over what separates values, comments among it.
    fn skip(&mut self) {
        loop {
            let rest = self.rest.trim_start();
            let is_comment = rest.starts_with('#') && rest.len() < self.rest.len();
            self.rest = rest;
            if !is_comment {
                return;
            }
            self.rest = rest.find('\n').map_or("", |end| &rest[end..]);
        }
    }

    fn takes(&mut self, character: char) -> bool {
        self.skip();
        let after = self.rest.strip_prefix(character);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    fn value(&mut self, deepest: usize) -> Result<Value, String> {
        self.skip();
        match self.rest.chars().next() {
            Some('[' | '{') if deepest == 0 => Err("values stand in each other too deep".to_owned()),
            Some('[') => self.list(deepest - 1),
            Some('{') => self.map(deepest - 1),
            Some('"' | '\'') => self.quoted().map(Value::String),
            Some('&' | '*' | '!') => {
                Err("anchors, aliases and tags are not read: write the value here".to_owned())
            }
            _ => Ok(typed(self.plain())),
        }
    }

    fn list(&mut self, deepest: usize) -> Result<Value, String> {
        self.takes('[');
        let mut items = Vec::new();
        loop {
            if self.takes(']') {
                return Ok(Value::Array(items));
            }
            self.something("list", ']')?;
            items.push(self.value(deepest)?);
            if !self.takes(',') && !self.rest.starts_with(']') {
                return Err("this list has no `]` at its end".to_owned());
            }
        }
    }

    fn map(&mut self, deepest: usize) -> Result<Value, String> {
        self.takes('{');
        let mut members = Map::new();
        loop {
            if self.takes('}') {
                return Ok(Value::Object(members));
            }
            self.something("map", '}')?;
            let key = match self.rest.starts_with(['"', '\'']) {
                true => self.quoted()?,
                false => self.plain().to_owned(),
            };
            let value = match self.takes(':') {
                true => self.value(deepest)?,
                false => Value::Null,
            };
            if members.contains_key(&key) {
                return Err(format!("`{}` is set twice in this map", shortened(&key)));
            }
            members.insert(key, value);
            if !self.takes(',') && !self.rest.starts_with('}') {
                return Err("this map has no `}` at its end".to_owned());
            }
        }
    }

    /// Whether an entry can begin here.
    fn something(&mut self, of: &str, end: char) -> Result<(), String> {
        match self.rest.chars().next() {
            None => Err(format!("this {of} has no `{end}` at its end")),
            Some(',' | ']' | '}' | ':') => {
                Err(format!("`{}` cannot begin an entry of this {of}", shortened(self.rest)))
            }
            Some(_) => Ok(()),
        }
    }

    /// A text without quotes.
    fn plain(&mut self) -> &'a str {
        let bytes = self.rest.as_bytes();
        let ends = |index: usize| match bytes[index] {
            b',' | b'[' | b']' | b'{' | b'}' | b'\n' => true,
            b':' => bytes.get(index + 1).is_none_or(|next| matches!(next, b' ' | b'\n' | b',' | b']' | b'}')),
            b'#' => index > 0 && bytes[index - 1] == b' ',
            _ => false,
        };
        let end = (0..bytes.len()).find(|index| ends(*index)).unwrap_or(bytes.len());
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        text.trim()
    }

    /// A text in quotes.
    fn quoted(&mut self) -> Result<String, String> {
        let mut characters = self.rest.chars();
        let quote = characters.next().unwrap_or('"');
        let mut text = String::new();
        while let Some(character) = characters.next() {
            match character {
                '\n' => break,
                '\\' if quote == '"' => text.push(escaped(&mut characters)?),
                '\'' if quote == '\'' && characters.as_str().starts_with('\'') => {
                    characters.next();
                    text.push('\'');
                }
                character if character == quote => {
                    self.rest = characters.as_str();
                    return Ok(text);
                }
                character => text.push(character),
            }
        }
        Err(format!("this text begins with {quote} and has no {quote} at its end"))
    }
}

/// The character that is written behind a `\`.
fn escaped(characters: &mut std::str::Chars<'_>) -> Result<char, String> {
    let written = characters.next();
    let digits = match written {
        Some('n') => return Ok('\n'),
        Some('t') => return Ok('\t'),
        Some('r') => return Ok('\r'),
        Some(same @ ('"' | '\\' | '/' | ' ')) => return Ok(same),
        Some('x') => 2,
        Some('u') => 4,
        Some('U') => 8,
        _ => 0,
    };
    let code: String = characters.take(digits).collect();
    let character = u32::from_str_radix(&code, 16).ok().and_then(char::from_u32);
    let written = written.map(String::from).unwrap_or_default();
    character.ok_or_else(|| format!("`\\{written}{code}` stands for no character: write `\\\\` for a `\\`"))
}
