//! How far the arguments of a call have come: whether their JSON text is whole.

/// The state of a JSON object or list whose text comes in pieces. Looks at brackets and strings only: whether the text is
/// valid is for its reader to say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Extent {
    /// Objects and lists that are open.
    depth: u32,
    /// Whether the text ended within a string.
    in_string: bool,
    /// Whether it ended behind a backslash of a string.
    escaped: bool,
    /// Whether anything but white space came.
    begun: bool,
    /// Whether an object or a list came.
    opened: bool,
}

impl Extent {
    /// Takes the next piece of the text.
    pub(crate) fn push(&mut self, piece: &str) {
        for byte in piece.bytes() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => {
                    self.opened = true;
                    self.depth = self.depth.saturating_add(1);
                }
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            self.begun = self.begun || !byte.is_ascii_whitespace();
        }
    }

    /// Whether anything but white space came.
    pub(crate) fn is_begun(&self) -> bool {
        self.begun
    }

    /// Whether nothing is open: also true of a text that has not begun, as a call without arguments has none.
    pub(crate) fn is_whole(&self) -> bool {
        self.depth == 0 && !self.in_string
    }

    /// Whether an object or a list came, all of it.
    pub(crate) fn is_closed(&self) -> bool {
        self.opened && self.is_whole()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_whole_when_all_that_was_opened_is_closed() {
        for (text, whole) in [
            ("", true),
            (" ", true),
            ("{}", true),
            (r#"{"a":"}"#, false),
            (r#"{"a":"}"}"#, true),
            (r#"{"a":"\"}"}"#, true),
            (r#"{"a":"\\"}"#, true),
            (r#"{"a":[1,{"b":2}]"#, false),
            (r#"{"a":[1,{"b":2}]} "#, true),
            ("\"te", false),
            ("7", true),
        ] {
            let mut extent = Extent::default();
            // However it is cut.
            text.chars().for_each(|letter| extent.push(&letter.to_string()));
            assert_eq!((extent.is_whole(), extent.is_begun()), (whole, !text.trim().is_empty()), "{text}");
            assert_eq!(extent.is_closed(), whole && text.contains('{'), "{text}");
        }
    }
}
