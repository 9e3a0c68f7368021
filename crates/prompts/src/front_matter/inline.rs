//! What stands in one line: texts, lists and maps.

use super::{DEEPEST, Field, FieldValue, push};

/// The value that `text` is, in the line `line`. `depth` maps are around it.
pub(super) fn value(text: &str, line: usize, depth: usize) -> Result<FieldValue<'_>, String> {
    let text = text.trim();
    if let Some(rest) = text.strip_prefix('{') {
        let mut scan = Scan { rest, line };
        let map = scan.map(depth + 1)?;
        if !scan.rest.trim().is_empty() {
            return Err("something follows the `}` of this map".to_owned());
        }
        return Ok(FieldValue::Map(map));
    }
    let Some(list) = text.strip_prefix('[') else { return Ok(FieldValue::Text(closed(text)?)) };
    let Some(list) = list.strip_suffix(']') else {
        return Err("this list has no `]` at the end of its line".to_owned());
    };
    if list.trim().is_empty() {
        return Ok(FieldValue::List(Vec::new()));
    }
    let items: Vec<&str> = list.split(',').map(named).collect::<Result<_, _>>()?;
    if items.contains(&"") {
        return Err("this list has an empty item".to_owned());
    }
    Ok(FieldValue::List(items))
}

/// Key and rest of an entry of a map. A key that is not quoted ends before a colon with a space after it.
pub(super) fn entry(text: &str) -> Option<(&str, &str)> {
    if let Some((key, rest)) = quoted(text) {
        return Some((key, rest.trim_start().strip_prefix(':')?));
    }
    let (key, rest) = match text.find(": ") {
        Some(end) => (&text[..end], &text[end + 1..]),
        None => (text.trim_end().strip_suffix(':')?, ""),
    };
    let plain = !key.trim().is_empty() && !key.contains(['{', '}', ',', '"', '\'']);
    plain.then_some((key.trim_end(), rest))
}

/// A text without the pair of quotes around it, which must be a pair.
pub(super) fn closed(text: &str) -> Result<&str, String> {
    let open = ['"', '\'']
        .into_iter()
        .find(|quote| text.trim().strip_prefix(*quote).is_some_and(|rest| !rest.contains(*quote)));
    match open {
        Some(quote) => Err(format!("this text begins with {quote} and has no {quote} at its end")),
        None => Ok(unquote(text)),
    }
}

/// An item of a list in one line: a name, which has quotes around it or none.
fn named(text: &str) -> Result<&str, String> {
    let name = closed(text)?;
    match name.strip_suffix(['"', '\'']) {
        Some(_) => Err(format!("the item `{name}` ends with a quote, and does not begin with it")),
        None => Ok(name),
    }
}

/// Takes a pair of quotes off.
pub(super) fn unquote(text: &str) -> &str {
    let text = text.trim();
    let inner = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}

/// What stands between the quotes at the beginning of `text`, and what follows them. Nothing is escaped.
fn quoted(text: &str) -> Option<(&str, &str)> {
    ['"', '\''].into_iter().find_map(|quote| text.strip_prefix(quote)?.split_once(quote))
}

struct Scan<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Scan<'a> {
    /// The map whose `{` was taken.
    fn map(&mut self, depth: usize) -> Result<Vec<Field<'a>>, String> {
        if depth > DEEPEST {
            return Err(super::too_deep());
        }
        let mut fields = Vec::new();
        loop {
            if self.takes('}') {
                return Ok(fields);
            }
            let Some((key, rest)) = entry(self.rest) else {
                return Err("expected `key: value` in this map, and a `}` at its end".to_owned());
            };
            self.rest = rest;
            let value = if self.takes('{') {
                FieldValue::Map(self.map(depth + 1)?)
            } else {
                FieldValue::Text(self.text()?)
            };
            push(&mut fields, Field { key, line: self.line, value })?;
            if !self.takes(',') {
                return match self.takes('}') {
                    true => Ok(fields),
                    false => Err("this map has no `}` at its end".to_owned()),
                };
            }
        }
    }

    /// Whether `character` comes next; then it is taken.
    fn takes(&mut self, character: char) -> bool {
        self.rest = self.rest.trim_start();
        let after = self.rest.strip_prefix(character);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    fn text(&mut self) -> Result<&'a str, String> {
        if let Some((text, rest)) = quoted(self.rest) {
            self.rest = rest;
            return Ok(text);
        }
        let (text, rest) = self.rest.split_at(self.rest.find([',', '}']).unwrap_or(self.rest.len()));
        self.rest = rest;
        closed(text.trim_end())
    }
}
