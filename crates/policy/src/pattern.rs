//! Patterns of rules.

use std::fmt;

/// A pattern: `*` is any text (`/` and spaces too), `?` is one character, everything else is itself. A ` *` at the end
/// may be left out: `git status *` also matches `git status`.
///
/// ```
/// use playhouse_policy::Pattern;
///
/// let pattern = Pattern::new("git status *");
/// assert!(pattern.matches("git status") && pattern.matches("git status --short"));
/// assert!(!pattern.matches("git statusx"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pattern(Box<str>);

impl Pattern {
    /// The pattern that `text` is.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The pattern that matches `subject` and nothing else, or, where that holds `*` or `?`, a little more.
    pub fn literal(subject: &str) -> Self {
        Self::new(subject)
    }

    /// The same with `~` or `$HOME` at its beginning replaced by `home`.
    #[must_use]
    pub fn expanded(&self, home: &str) -> Self {
        let rest = ["~", "$HOME", "${HOME}"].iter().find_map(|name| self.0.strip_prefix(name));
        match rest {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                Self::new(format!("{}{rest}", home.trim_end_matches('/')))
            }
            _ => self.clone(),
        }
    }

    /// Whether it matches everything.
    pub fn is_universal(&self) -> bool {
        !self.0.is_empty() && self.0.bytes().all(|byte| byte == b'*')
    }

    /// Whether it matches the whole of `subject`. Takes time in the product of both lengths at worst.
    pub fn matches(&self, subject: &str) -> bool {
        let optional = self.0.strip_suffix(" *").is_some_and(|stem| wildcard(stem, subject));
        optional || wildcard(&self.0, subject)
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Goes back to the last `*` only, since an earlier one could not do better.
fn wildcard(pattern: &str, subject: &str) -> bool {
    let (pattern, subject) = (pattern.as_bytes(), subject.as_bytes());
    let (mut at, mut on) = (0, 0);
    let mut last: Option<(usize, usize)> = None;
    while on < subject.len() {
        match pattern.get(at) {
            Some(b'*') => {
                last = Some((at + 1, on));
                at += 1;
            }
            Some(b'?') => {
                at += 1;
                on += character(subject, on);
            }
            Some(byte) if *byte == subject[on] => {
                at += 1;
                on += 1;
            }
            _ => match &mut last {
                Some((after, from)) => {
                    *from += character(subject, *from);
                    (at, on) = (*after, *from);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Bytes of the character that begins at `at`.
fn character(text: &[u8], at: usize) -> usize {
    1 + text[at + 1..].iter().take_while(|byte| **byte & 0xc0 == 0x80).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_matches() {
        for (pattern, subject) in [
            ("*", ""),
            ("*", "a/b c"),
            ("src/*", "src/a/b.rs"),
            ("*.env", "deep/.env"),
            ("git * main", "git push origin main"),
            ("git status *", "git status"),
            ("a?c", "aäc"),
            ("a*b*c", "a-b-b-c"),
            ("", ""),
        ] {
            assert!(Pattern::new(pattern).matches(subject), "{pattern} {subject}");
        }
        for (pattern, subject) in [
            ("", "a"),
            ("src/*", "src"),
            ("a?c", "ac"),
            ("git status *", "git statu"),
            ("*.env", ".envx"),
            ("a*b", "a-b-c"),
            ("rm", "rm -rf"),
        ] {
            assert!(!Pattern::new(pattern).matches(subject), "{pattern} {subject}");
        }
    }

    #[test]
    fn the_home_directory_is_put_in_at_the_beginning_only() {
        let expanded = |text: &str| Pattern::new(text).expanded("/home/ada/").as_str().to_owned();
        assert_eq!(expanded("~/src/*"), "/home/ada/src/*");
        assert_eq!(expanded("$HOME"), "/home/ada");
        assert_eq!(expanded("${HOME}/x"), "/home/ada/x");
        for same in ["~ada/x", "a~/x", "$HOMER", "*"] {
            assert_eq!(expanded(same), same);
        }
    }

    /// The definition, as slow as it is plain.
    fn naive(pattern: &[char], subject: &[char]) -> bool {
        match pattern.split_first() {
            None => subject.is_empty(),
            Some(('*', rest)) => (0..=subject.len()).any(|from| naive(rest, &subject[from..])),
            Some((first, rest)) => subject
                .split_first()
                .is_some_and(|(head, tail)| (*first == '?' || first == head) && naive(rest, tail)),
        }
    }

    proptest! {
        #[test]
        fn it_is_what_the_definition_says(pattern in "[abä*? ]{0,8}", subject in "[abä ]{0,10}") {
            let characters = |text: &str| text.chars().collect::<Vec<char>>();
            let stem = pattern.strip_suffix(" *");
            let expected = naive(&characters(&pattern), &characters(&subject))
                || stem.is_some_and(|stem| naive(&characters(stem), &characters(&subject)));
            prop_assert_eq!(Pattern::new(pattern).matches(&subject), expected);
        }
    }
}
