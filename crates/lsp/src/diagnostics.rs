//! What a server finds wrong with files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use gen_lsp_types::{Code, Diagnostic, DiagnosticSeverity, Message};

use crate::position::{Encoding, Spot};

/// The longest message that is kept.
const LONGEST_MESSAGE: usize = 1_000;
/// The most problems of a file that are kept.
pub(crate) const MOST_PROBLEMS: usize = 1_000;

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// An error.
    Error,
    /// A warning.
    Warning,
    /// Information, or a hint.
    Hint,
}

impl Severity {
    /// As it is shown.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Hint => "hint",
        }
    }
}

/// Something that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// Where it begins.
    pub spot: Spot,
    /// How bad it is. What names no severity is an error.
    pub severity: Severity,
    /// What is wrong, on one line.
    pub message: String,
    /// Its code, where it has one.
    pub code: Option<String>,
}

impl Problem {
    /// One of a file with this text, where that is known.
    pub(crate) fn new(path: &Path, diagnostic: Diagnostic, text: Option<&str>, encoding: Encoding) -> Self {
        let start = diagnostic.range.start;
        let line = text.and_then(|text| text.split('\n').nth(usize::try_from(start.line).ok()?));
        let message = match diagnostic.message {
            Message::String(text) => text,
            Message::MarkupContent(content) => content.value,
        };
        let words: Vec<&str> = message.split_whitespace().collect();
        Self {
            path: path.to_owned(),
            spot: Spot::heard(start, line, encoding),
            severity: match diagnostic.severity {
                None | Some(DiagnosticSeverity::Error) => Severity::Error,
                Some(DiagnosticSeverity::Warning) => Severity::Warning,
                Some(_) => Severity::Hint,
            },
            message: words.join(" ").chars().take(LONGEST_MESSAGE).collect(),
            code: diagnostic.code.map(|code| match code {
                Code::Int(code) => code.to_string(),
                Code::String(code) => code.chars().take(100).collect(),
            }),
        }
    }

    /// What makes it the same after its line has moved.
    fn likeness(&self) -> (&Path, Severity, &str, Option<&str>) {
        (&self.path, self.severity, &self.message, self.code.as_deref())
    }
}

/// What is known of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing yet: the server has not said anything of this content.
    NotYet,
    /// These problems; none if there are none.
    Found {
        /// By their place.
        problems: Vec<Problem>,
        /// Whether the server said of which content it speaks. If not, it may be the one before.
        is_verified: bool,
    },
}

/// The problems of `after` that are not in `before`, whatever lines they stand on. As many of the same as there were before
/// are not new.
pub fn difference<'a>(before: &[Problem], after: &'a [Problem]) -> Vec<&'a Problem> {
    let mut known: HashMap<_, usize> = HashMap::new();
    for problem in before {
        *known.entry(problem.likeness()).or_default() += 1;
    }
    let mut new = Vec::new();
    for problem in after {
        match known.get_mut(&problem.likeness()) {
            Some(count) if *count > 0 => *count -= 1,
            _ => new.push(problem),
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(line: u32, message: &str) -> Problem {
        Problem {
            path: "a.ts".into(),
            spot: Spot { line, column: 1 },
            severity: Severity::Error,
            message: message.to_owned(),
            code: None,
        }
    }

    #[test]
    fn what_only_moved_is_not_new() {
        let before = [problem(1, "old"), problem(2, "same")];
        let after = [problem(4, "old"), problem(5, "same"), problem(6, "same"), problem(7, "new")];
        let new: Vec<u32> = difference(&before, &after).iter().map(|problem| problem.spot.line).collect();
        assert_eq!(new, [6, 7]);
        assert!(difference(&after, &before).is_empty());
    }
}
