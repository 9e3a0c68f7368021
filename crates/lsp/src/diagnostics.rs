//! What a server finds wrong with files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::position::{Encoding, Position, Spot};

/// The longest message that is kept.
const LONGEST_MESSAGE: usize = 500;
/// The longest code that is kept.
const LONGEST_CODE: usize = 100;
/// The most problems of a file that are kept.
pub(crate) const MOST_PROBLEMS: usize = 200;

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

/// A problem as a server tells it, in its own units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    start: Position,
    severity: Severity,
    message: String,
    code: Option<String>,
}

impl Told {
    /// All of a list, the worst first and at most [`MOST_PROBLEMS`]. `None` where one of them cannot be read: then nothing is
    /// known, as it may be the only one.
    pub(crate) fn all(items: &Value) -> Option<Vec<Self>> {
        let mut all: Vec<Self> = items.as_array()?.iter().map(Self::read).collect::<Option<_>>()?;
        all.sort_by_key(|told| (told.severity, told.start.line, told.start.character));
        all.truncate(MOST_PROBLEMS);
        Some(all)
    }

    fn read(item: &Value) -> Option<Self> {
        let start = serde_json::from_value(item.get("range")?.get("start")?.clone()).ok()?;
        let message = item.get("message")?;
        let message = message.as_str().or_else(|| message.get("value")?.as_str())?;
        let message: String = message.chars().take(LONGEST_MESSAGE).collect();
        let words: Vec<&str> = message.split_whitespace().collect();
        Some(Self {
            start,
            severity: match item.get("severity").and_then(Value::as_u64) {
                None | Some(1) => Severity::Error,
                Some(2) => Severity::Warning,
                Some(_) => Severity::Hint,
            },
            message: words.join(" "),
            code: item.get("code").and_then(|code| match code {
                Value::String(code) => Some(code.chars().take(LONGEST_CODE).collect()),
                Value::Number(code) => Some(code.to_string()),
                _ => None,
            }),
        })
    }

    /// The same for people; `lines` are those of the file.
    pub(crate) fn problem(self, path: &Path, lines: &[&str], encoding: Encoding) -> Problem {
        let Self { start, severity, message, code } = self;
        let line = usize::try_from(start.line).ok().and_then(|line| lines.get(line).copied());
        Problem { path: path.to_owned(), spot: Spot::heard(start, line, encoding), severity, message, code }
    }
}

impl Problem {
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
    use serde_json::json;

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
    fn the_worst_are_kept_and_what_cannot_be_read_is_not_nothing() {
        let item = |line: i64, severity: u64| {
            json!({"range": {"start": {"line": line, "character": 0}, "end": {"line": line, "character": 1}},
                "severity": severity, "message": "x", "code": 2_147_483_648_u64})
        };
        let mut items = vec![item(1, 4); MOST_PROBLEMS];
        items.push(item(2, 1));
        let all = Told::all(&json!(items)).unwrap();
        assert_eq!((all.len(), all[0].severity, all[0].start.line), (MOST_PROBLEMS, Severity::Error, 2));
        assert_eq!(all[0].code.as_deref(), Some("2147483648"));
        assert_eq!(Told::all(&json!([item(1, 1), item(-1, 1)])), None);
        assert_eq!(Told::all(&json!([{"message": "x"}])), None);
        assert_eq!(Told::all(&json!(null)), None);
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
