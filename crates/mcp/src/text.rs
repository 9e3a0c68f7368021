//! Texts of servers, cut, and digits.

/// The beginning of a text: `most` bytes at most, whole characters, with `…` where something is left out.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    format!("{}…", &text[..end])
}

/// A text on one line, cut.
pub(crate) fn line(text: &str, most: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    cut(&words.join(" "), most)
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_stay_whole() {
        assert_eq!((cut("abc", 3), cut("abcd", 3)), ("abc".to_owned(), "abc…".to_owned()));
        assert_eq!(cut("aäb", 2), "a…");
        assert_eq!(line(" a\n b\t", 10), "a b");
        assert_eq!(hex(&[0, 0x1f, 0xff]), "001fff");
    }
}
