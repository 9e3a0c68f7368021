//! Cutting text where it does least harm.

/// The beginning of `text`: at most `bytes` and `lines`, whole lines unless they are very long, whole characters always.
pub(super) fn beginning(text: &[u8], bytes: usize, lines: usize) -> &[u8] {
    let text = match memchr::memchr_iter(b'\n', text).nth(lines.saturating_sub(1)) {
        Some(end) => &text[..=end],
        None => text,
    };
    if text.len() <= bytes {
        return text;
    }
    let fitting = &text[..bytes];
    match memchr::memrchr(b'\n', fitting) {
        Some(newline) if newline >= bytes / 2 => &text[..=newline],
        _ => &text[..character_boundary(text, bytes)],
    }
}

/// The end of `text`, in the same way.
pub(crate) fn end(text: &[u8], bytes: usize, lines: usize) -> &[u8] {
    let without_last = text.strip_suffix(b"\n").unwrap_or(text);
    let text = match memchr::memrchr_iter(b'\n', without_last).nth(lines.saturating_sub(1)) {
        Some(before) => &text[before + 1..],
        None => text,
    };
    if text.len() <= bytes {
        return text;
    }
    let start = text.len() - bytes;
    match memchr::memchr(b'\n', &text[start..]) {
        Some(newline) if newline < bytes / 2 => &text[start + newline + 1..],
        _ => &text[next_character_boundary(text, start)..],
    }
}

const fn continues_character(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// The last place up to `at` where a character begins. Bytes that are no text are cut anywhere.
fn character_boundary(text: &[u8], at: usize) -> usize {
    let near = at.saturating_sub(3)..=at;
    near.rev().find(|place| text.get(*place).is_none_or(|byte| !continues_character(*byte))).unwrap_or(at)
}

fn next_character_boundary(text: &[u8], at: usize) -> usize {
    let near = at..=at + 3;
    near.into_iter()
        .find(|place| text.get(*place).is_none_or(|byte| !continues_character(*byte)))
        .unwrap_or(at)
}

/// Bytes as text. Each run of bytes that are no text, and of control characters, becomes one `�`.
pub(crate) fn clean(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut after_mark = false;
    let mut push = |text: &mut String, character: Option<char>| match character {
        Some(character) => {
            text.push(character);
            after_mark = false;
        }
        None if after_mark => {}
        None => {
            text.push(char::REPLACEMENT_CHARACTER);
            after_mark = true;
        }
    };
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            push(&mut text, is_text(character).then_some(character));
        }
        if !chunk.invalid().is_empty() {
            push(&mut text, None);
        }
    }
    text
}

/// Escape is kept: colours are told by it.
fn is_text(character: char) -> bool {
    !character.is_control() || matches!(character, '\n' | '\r' | '\t' | '\x1b')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_are_kept() {
        let text = b"one\ntwo\nthree\nfour\n";
        assert_eq!(beginning(text, 100, 2), b"one\ntwo\n");
        assert_eq!(beginning(text, 10, 100), b"one\ntwo\n");
        assert_eq!(beginning(text, 100, 100), text);
        assert_eq!(end(text, 100, 2), b"three\nfour\n");
        assert_eq!(end(text, 13, 100), b"three\nfour\n");
        assert_eq!(end(b"a\nb", 100, 1), b"b");
        assert_eq!(end(text, 100, 100), text);
    }

    #[test]
    fn a_very_long_line_is_cut_between_characters() {
        let text = "x\n".to_owned() + &"é".repeat(50) + "\ny";
        assert_eq!(beginning(text.as_bytes(), 21, 100), ("x\n".to_owned() + &"é".repeat(9)).as_bytes());
        assert_eq!(end(text.as_bytes(), 21, 100), ("é".repeat(9) + "\ny").as_bytes());
        assert_eq!(beginning(&[0x80; 10], 5, 1), [0x80; 5]);
        assert_eq!(end(&[0x80; 10], 5, 1), [0x80; 5]);
    }

    #[test]
    fn what_is_no_text_is_marked() {
        assert_eq!(clean(b"a\tb\r\n\x1b[1m"), "a\tb\r\n\x1b[1m");
        assert_eq!(clean(b"a\0\0\0b\xff\xfe\0c\x07"), "a�b�c�");
        assert_eq!(clean("é�".as_bytes()), "é�");
    }

    proptest::proptest! {
        #[test]
        fn parts_are_parts_and_never_too_long(text: String, bytes in 0_usize..40, lines in 1_usize..5) {
            let (first, last) = (beginning(text.as_bytes(), bytes, lines), end(text.as_bytes(), bytes, lines));
            assert!(text.as_bytes().starts_with(first) && text.as_bytes().ends_with(last));
            for part in [first, last] {
                assert!(part.len() <= bytes);
                let part = std::str::from_utf8(part).unwrap();
                assert!(part.lines().count() <= lines);
            }
        }
    }
}
