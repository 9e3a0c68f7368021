//! What stands in place of what is left out. The texts are files.

use playhouse_protocol::message::Attachment;

/// In place of an output.
const CLEARED: &str = include_str!("../../../../prompts/context/cleared.md");
/// Behind the beginning of an output.
const SHORTENED: &str = include_str!("../../../../prompts/context/shortened.md");
/// In place of a file that a provider refused.
const REFUSED: &str = include_str!("../../../../prompts/context/refused.md");
/// Around a summary.
const SUMMARY: &str = include_str!("../../../../prompts/context/summary.md");
/// In place of messages that nothing summarizes.
const CUT: &str = include_str!("../../../../prompts/context/cut.md");
/// Around the beginning of a prompt.
const EXCERPT: &str = include_str!("../../../../prompts/context/excerpt.md");
/// Around what holds whatever a summary says.
const STANDING: &str = include_str!("../../../../prompts/context/standing.md");
/// Around a conversation that is to be summarized.
const CONVERSATION: &str = include_str!("../../../../prompts/context/conversation.md");
/// Around a turn that is to be summarized.
const TURN: &str = include_str!("../../../../prompts/context/turn.md");

pub(super) fn cleared(bytes: usize) -> String {
    CLEARED.trim_end().replacen("{{bytes}}", &bytes.to_string(), 1)
}

pub(crate) fn refused(file: &Attachment) -> String {
    let text = REFUSED.trim_end().replacen("{{mime}}", &file.mime, 1);
    text.replacen("{{name}}", &file.filename, 1)
}

/// The beginning of an output, and that it is one.
pub(super) fn shortened(output: &str, most: u64) -> String {
    let kept = cut(output, most);
    let end = SHORTENED.trim_end().replacen("{{kept}}", &kept.len().to_string(), 1);
    format!("{kept}\n{}", end.replacen("{{bytes}}", &output.len().to_string(), 1))
}

pub(super) fn summary(text: &str) -> String {
    SUMMARY.trim_end().replacen("{{text}}", text, 1)
}

pub(super) fn standing(text: &str) -> String {
    STANDING.trim_end().replacen("{{text}}", text, 1)
}

pub(super) fn left_out(count: usize) -> String {
    CUT.trim_end().replacen("{{count}}", &count.to_string(), 1)
}

pub(super) fn excerpt(text: &str) -> String {
    EXCERPT.trim_end().replacen("{{text}}", text, 1)
}

pub(super) fn turn(text: &str) -> String {
    TURN.trim_end().replacen("{{text}}", text, 1)
}

pub(super) fn conversation(text: &str) -> String {
    CONVERSATION.trim_end().replacen("{{text}}", text, 1)
}

/// The first bytes of a text, at most so many, whole characters.
pub(crate) fn cut(text: &str, most: u64) -> &str {
    let mut end = usize::try_from(most).unwrap_or(usize::MAX).min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The last bytes of a text, at most so many, whole characters.
pub(super) fn cut_front(text: &str, most: u64) -> &str {
    let mut begin = text.len().saturating_sub(usize::try_from(most).unwrap_or(usize::MAX));
    while !text.is_char_boundary(begin) {
        begin += 1;
    }
    &text[begin..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_place_of_an_output_is_short_and_says_what_was_there() {
        let line = cleared(123_456_789);
        assert!((line.len() as u64) < super::super::LINE_BYTES, "{line}");
        assert!(line.starts_with("output cleared: the 123456789 bytes"), "{line}");
        let text = shortened(&"é".repeat(100), 7);
        assert!(text.starts_with("ééé\n\noutput shortened: only the first 6 of 200 bytes"), "{text}");
        assert!((text.len() as u64) < 7 + super::super::LINE_BYTES, "{text}");
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!((cut("aé", 2), cut("aé", 3), cut("aé", 99)), ("a", "aé", "aé"));
        assert_eq!((cut_front("éa", 2), cut_front("éa", 3), cut_front("éa", 0)), ("a", "éa", ""));
    }
}
