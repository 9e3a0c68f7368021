//! What a prompt's text names with `@`: paths, as people write them.
//!
//! `@src/main.rs`, `@"my notes.md"`, `@src/main.rs#10-20`. Whether there is such a path is for others to say: an address of
//! mail, a handle or a decorator in code that was pasted look like it, and stay what they are. So a mention is a list of what
//! may be meant, the likeliest first.

use playhouse_protocol::PathMention;

/// So many mentions of a text are looked at.
const MOST: usize = 200;
/// So many signs at the end of one may belong to the sentence around it.
const MOST_TRIMMED: usize = 8;
/// The longest that is looked at, in bytes, as the longest path.
const LONGEST: usize = 4_096;

/// What a mention may mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meant {
    /// This path, and of it these lines.
    Path(Box<PathMention>),
    /// This path, with something behind a `#` that names no lines.
    NoLines {
        /// The path.
        path: String,
        /// What stands behind the `#`.
        lines: String,
    },
}

/// The mentions in `text`, in its order.
pub(crate) fn mentions(text: &str) -> Vec<Vec<Meant>> {
    let mut found = Vec::new();
    let mut rest = text;
    let mut before = None;
    while let Some(at) = rest.find('@').filter(|_| found.len() < MOST) {
        let last = rest[..at].chars().next_back().or(before);
        before = Some('@');
        rest = &rest[at + 1..];
        if last.is_some_and(continues) {
            continue;
        }
        let candidates = match rest.strip_prefix('"') {
            Some(quoted) => {
                let path = quoted.split_once('"').map_or("", |(path, _)| path);
                with_no_lines(plain(path), path)
            }
            None => candidates(&rest[..rest.find(ends).unwrap_or(rest.len())]),
        };
        if !candidates.is_empty() {
            found.push(candidates);
        }
    }
    found
}

/// Whether an `@` behind `character` goes on with what stands before it, as in an address of mail.
fn continues(character: char) -> bool {
    character.is_alphanumeric() || "._-+/\\@".contains(character)
}

/// Whether a path that is not quoted ends before `character`.
fn ends(character: char) -> bool {
    character.is_whitespace() || character.is_control() || "\"`<>|@".contains(character)
}

/// What `word` may mean: all of it, or all but the signs at its end that belong to the sentence.
fn candidates(word: &str) -> Vec<Meant> {
    let mut candidates = Vec::new();
    let mut word = word;
    for _ in 0..=MOST_TRIMMED {
        candidates.extend(plain(word));
        let Some(shorter) = word.strip_suffix(|last: char| ".,;:!?)]}'*".contains(last)) else { break };
        word = shorter;
    }
    with_no_lines(candidates, word)
}

/// The candidates, and where none of them names lines, what `word` says in the place of some.
fn with_no_lines(candidates: Vec<PathMention>, word: &str) -> Vec<Meant> {
    let has_lines = candidates.iter().any(|candidate| candidate.first.is_some());
    let split =
        word.rsplit_once('#').filter(|(path, _)| !has_lines && !path.is_empty() && !candidates.is_empty());
    let no_lines =
        split.map(|(path, lines)| Meant::NoLines { path: path.to_owned(), lines: lines.to_owned() });
    candidates.into_iter().map(|path| Meant::Path(Box::new(path))).chain(no_lines).collect()
}

/// A path as it is written, and without the lines that it ends with.
fn plain(path: &str) -> Vec<PathMention> {
    if path.is_empty() || path.len() > LONGEST || path.contains(['\n', '\0']) {
        return Vec::new();
    }
    let whole = PathMention { path: path.to_owned(), ..PathMention::default() };
    std::iter::once(whole).chain(with_lines(path)).collect()
}

/// `PATH#FIRST-LAST`, with or without an `L` before the numbers.
fn with_lines(path: &str) -> Option<PathMention> {
    let number = |text: &str| -> Option<u64> {
        let digits = text.strip_prefix('L').unwrap_or(text);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|number| is_number && *number > 0)
    };
    let (path, lines) = path.rsplit_once('#')?;
    let (first, last) = match lines.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(lines)?, number(lines)?),
    };
    (!path.is_empty() && first <= last).then(|| PathMention {
        path: path.to_owned(),
        first: Some(first),
        last: Some(last),
        ..PathMention::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mentions, each as the paths that may be meant.
    fn found(text: &str) -> Vec<String> {
        let one = |meant: &Meant| match meant {
            Meant::Path(mention) => match (mention.first, mention.last) {
                (Some(first), Some(last)) => format!("{} {first}..{last}", mention.path),
                _ => mention.path.clone(),
            },
            Meant::NoLines { path, lines } => format!("{path} but {lines}"),
        };
        let mention = |candidates: &Vec<Meant>| candidates.iter().map(one).collect::<Vec<_>>().join(" or ");
        mentions(text).iter().map(mention).collect()
    }

    #[test]
    fn paths_are_found_as_people_write_them() {
        for (text, expected) in [
            ("@a", &["a"][..]),
            ("look at @src/main.rs and @docs/", &["src/main.rs", "docs/"]),
            ("(see @a.md).", &["a.md). or a.md) or a.md"]),
            ("what of @a.rs, or @b?!", &["a.rs, or a.rs", "b?! or b? or b"]),
            ("@\"my notes.md\" now", &["my notes.md"]),
            ("@a.rs#10-20.", &["a.rs#10-20. or a.rs#10-20 or a.rs 10..20"]),
            ("@a.rs#L7", &["a.rs#L7 or a.rs 7..7"]),
            ("@\"b c#1-2\"", &["b c#1-2 or b c 1..2"]),
            ("@a.rs#x.", &["a.rs#x. or a.rs#x or a.rs but x"]),
            ("@#x @a#", &["#x", "a# or a but "]),
            ("@/abs/path\n@../up", &["/abs/path", "../up"]),
            ("@größe.txt", &["größe.txt"]),
        ] {
            assert_eq!(found(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_none_is_none() {
        for text in
            ["", "@", "@ a", "ada@example.org", "x/@y", "a-@b", "@\"", "@\"open", "@\"\"", "\\@a", "@@"]
        {
            assert_eq!(found(text), Vec::<String>::new(), "{text}");
        }
        assert_eq!(
            found("@a#9-2 @b#0 @c#x @d#+1"),
            ["a#9-2 or a but 9-2", "b#0 or b but 0", "c#x or c but x", "d#+1 or d but +1"]
        );
        let many = "@a ".repeat(1_000);
        assert_eq!(found(&many).len(), MOST);
        assert_eq!(found(&format!("@{}", "x".repeat(5_000))), Vec::<String>::new());
    }
}
