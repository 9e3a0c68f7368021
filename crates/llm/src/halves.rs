//! Characters outside of the basic plane that a server cut in two: JSON writes them as two escapes, a high and a low half,
//! and some servers end one event behind the first and begin the next with the second.

use std::borrow::Cow;

/// What stands for half a character whose other half does not come.
const LOST: &str = "\\ufffd";

/// The high half that the last text ended with.
#[derive(Debug, Default)]
pub(crate) struct Halves {
    held: Option<u16>,
}

impl Halves {
    /// The data of an event with whole characters only:
    ///
    /// - A high half at the end of a string is taken out and kept.
    /// - A low half at the beginning of a string is put behind the high half that is kept. All strings of one event begin
    ///   with the same one, as servers repeat a text in several fields.
    /// - Any other half becomes U+FFFD.
    pub(crate) fn mend<'a>(&mut self, data: &'a str) -> Cow<'a, str> {
        let bytes = data.as_bytes();
        let Some(first) = memchr::memchr(b'\\', bytes) else { return Cow::Borrowed(data) };
        let (mut mended, mut copied, mut at) = (String::new(), 0, first);
        let (mut next, mut used) = (None, false);
        while let Some(found) = memchr::memchr(b'\\', bytes.get(at..).unwrap_or_default()) {
            at += found;
            let Some(half) = half_at(bytes, at) else {
                // The escaped character may be a backslash itself.
                at += 2;
                continue;
            };
            let end = at + 6;
            let instead = match half {
                0xd800..0xdc00 if half_at(bytes, end).is_some_and(|low| low >= 0xdc00) => {
                    at = end + 6;
                    continue;
                }
                0xd800..0xdc00 if bytes.get(end) == Some(&b'"') => {
                    next = Some(half);
                    String::new()
                }
                0xdc00.. => match self.held.filter(|_| at > 0 && bytes[at - 1] == b'"') {
                    Some(high) => {
                        used = true;
                        format!("\\u{high:04x}\\u{half:04x}")
                    }
                    None => LOST.to_owned(),
                },
                _ => LOST.to_owned(),
            };
            mended.push_str(&data[copied..at]);
            mended.push_str(&instead);
            (copied, at) = (end, end);
        }
        if used || next.is_some() {
            self.held = next;
        }
        if copied == 0 {
            return Cow::Borrowed(data);
        }
        mended.push_str(&data[copied..]);
        Cow::Owned(mended)
    }
}

/// The half of a character that is escaped at this place.
fn half_at(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    let code = u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    (0xd800..0xe000).contains(&code).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_in_neighbouring_events_become_one_character() {
        for (events, whole) in [
            (vec![r#"["a\ud83c"]"#, r#"["\udfadb"]"#], vec![r#"["a"]"#, r#"["\ud83c\udfadb"]"#]),
            (vec![r#"["\uD83C"]"#, "[7]", r#"["\uDFAD"]"#], vec![r#"[""]"#, "[7]", r#"["\ud83c\udfad"]"#]),
            // The same text in two fields, and another half at its end.
            (
                vec![r#"["\ud83c","\ud83c"]"#, r#"["\udfad\ud83d","\udfad\ud83d"]"#, r#"["\ude00"]"#],
                vec![r#"["",""]"#, r#"["\ud83c\udfad","\ud83c\udfad"]"#, r#"["\ud83d\ude00"]"#],
            ),
            // Escapes that are none of these.
            (vec![r#"["\ud83c\udfad \\ud83c \"\n\u00e9"]"#], vec![r#"["\ud83c\udfad \\ud83c \"\n\u00e9"]"#]),
            // Halves without another one.
            (vec![r#"["\ud83c x"]"#, r#"["\udfad"]"#], vec![r#"["\ufffd x"]"#, r#"["\ufffd"]"#]),
            (vec![r#"["x\udfad"]"#, r#"["\ud83c\ud83c"]"#], vec![r#"["x\ufffd"]"#, r#"["\ufffd"]"#]),
            (vec![r#"["\ud8"#, r#"\"#, r"\u"], vec![r#"["\ud8"#, r#"\"#, r"\u"]),
        ] {
            let mut halves = Halves::default();
            let mended: Vec<_> = events.iter().map(|event| halves.mend(event)).collect();
            assert_eq!(mended, whole);
        }
    }
}
