//! Finds whom a message answers without keeping the message.

use memchr::memchr2;
use rmcp::model::RequestId;

/// The longest key and id that is kept, in bytes.
const LONGEST: usize = 128;

/// Reads a JSON object piece by piece and keeps its `id`, wherever it stands among the fields.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Number of open objects and arrays.
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The field whose value is read now is the id.
    at_id: bool,
    /// What was read of the key or the value of a field of the outermost object, up to one byte more than the longest.
    token: Vec<u8>,
    id: Option<RequestId>,
    /// It has a `method`: it is a request or a notification, and answers nothing.
    asks: bool,
    /// It has a `result` or an `error`.
    tells: bool,
}

impl Scan {
    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        while let Some((&byte, rest)) = bytes.split_first() {
            bytes = rest;
            if self.in_string {
                self.keep(byte);
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {
                        let plain = memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
                        bytes[..plain].iter().take(LONGEST).for_each(|&byte| self.keep(byte));
                        bytes = &bytes[plain..];
                    }
                }
                continue;
            }
            match byte {
                b'"' => {
                    self.keep(byte);
                    self.in_string = true;
                }
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.end_value();
                    self.depth = self.depth.saturating_sub(1);
                }
                b':' if self.depth == 1 => {
                    self.at_id = self.token == b"\"id\"";
                    self.asks |= self.token == b"\"method\"";
                    self.tells |= self.token == b"\"result\"" || self.token == b"\"error\"";
                    self.token.clear();
                }
                b',' => self.end_value(),
                byte if byte.is_ascii_whitespace() => {}
                byte => self.keep(byte),
            }
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.token.len() <= LONGEST {
            self.token.push(byte);
        }
    }

    fn end_value(&mut self) {
        if self.depth == 1 {
            if self.at_id && self.token.len() <= LONGEST {
                self.id = serde_json::from_slice(&self.token).ok().or_else(|| self.id.take());
            }
            self.at_id = false;
            self.token.clear();
        }
    }

    /// The request that the message answers, if it is an answer.
    pub(super) fn answers(self) -> Option<RequestId> {
        self.id.filter(|_| self.tells && !self.asks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(text: &str, step: usize) -> Option<RequestId> {
        let mut scan = Scan::default();
        text.as_bytes().chunks(step).for_each(|chunk| scan.feed(chunk));
        scan.answers()
    }

    #[test]
    fn the_id_is_found_wherever_it_stands() {
        let number = Some(RequestId::Number(7));
        let cases = [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"id":8,"x":"\",\"id\":9,"}}"#, number.clone()),
            (r#"{"result":{"a":[{"id":8}],"b":"}"}, "id" : 7 }"#, number.clone()),
            (r#"{"error":{"message":"x"},"id":"a\"b"}"#, Some(RequestId::String("a\"b".into()))),
            (r#"{"id":7,"method":"x"}"#, None),
            (r#"{"result":"method","id":7}"#, number.clone()),
            (r#"{"result":{"id":7}}"#, None),
            (r#"{"id":{"id":7},"result":1}"#, None),
            ("xxxxxx", None),
            (r#"{"id":"#, None),
            (r#"{"id":7,"level":"info"}"#, None),
            // Cut off, and the id is known.
            (r#"{"id":7,"result":{"a":[1,"#, number),
        ];
        for (text, expected) in cases {
            for step in [1, 3, 1000] {
                assert_eq!(scanned(text, step), expected, "{text} by {step}");
            }
        }
    }

    #[test]
    fn a_long_token_is_not_kept() {
        let text = format!(r#"{{"id":"{}","result":1}}"#, "x".repeat(10_000));
        let mut scan = Scan::default();
        scan.feed(text.as_bytes());
        assert!(scan.token.len() <= LONGEST + 1 && scan.answers().is_none());
    }
}
