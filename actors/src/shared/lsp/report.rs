//! What a model is told of errors after an edit.

use std::sync::Arc;

use playhouse_lsp::{Known, Problem, Severity, difference};

/// Errors of the edited files that are told.
const MOST_ERRORS: usize = 20;
/// Other files that are told.
const MOST_OTHERS: usize = 5;
/// Errors of each of them that are told.
const MOST_OF_OTHER: usize = 3;
/// What stands behind errors of which is not known whether they are of this content.
const UNVERIFIED: &str = " (unverified: the server does not say of which content it speaks)";

/// A file, with what was wrong with it before and what is now.
pub(super) struct Checked {
    /// Its path as models name it.
    pub(super) shown: String,
    /// Absent where that is not known.
    pub(super) before: Option<Arc<[Problem]>>,
    pub(super) now: Known,
}

impl Checked {
    /// The errors that are new, and those that are not; the second is `None` where that is not known. Absent where nothing is known.
    fn errors(&self) -> Option<(Vec<&Problem>, Option<Vec<&Problem>>)> {
        let Known::Found { problems, .. } = &self.now else { return None };
        let is_error = |problem: &&Problem| problem.severity == Severity::Error;
        let Some(before) = &self.before else {
            return Some((problems.iter().filter(is_error).collect(), None));
        };
        let new: Vec<&Problem> = difference(before, problems).into_iter().filter(is_error).collect();
        let is_old = |problem: &&Problem| !new.iter().any(|one| std::ptr::eq(*one, *problem));
        let old = problems.iter().filter(is_error).filter(is_old).collect();
        Some((new, Some(old)))
    }

    fn line(&self, problem: &Problem) -> String {
        let code = problem.code.as_ref().map(|code| format!(" [{code}]")).unwrap_or_default();
        let (line, column) = (problem.spot.line, problem.spot.column);
        format!("\n{}:{line}:{column}: {}{code}", self.shown, problem.message)
    }

    fn is_unverified(&self) -> bool {
        matches!(self.now, Known::Found { is_verified: false, .. })
    }

    /// The result for this file. At most `room` errors are listed.
    fn text(&self, room: &mut usize) -> String {
        let shown = &self.shown;
        let Some((new, old)) = self.errors() else {
            return format!(
                "errors in {shown}: not known yet, what comes later stands at the start of a later result"
            );
        };
        let unverified = if self.is_unverified() { UNVERIFIED } else { "" };
        let mut list = |problems: &[&Problem]| {
            let taken = problems.len().min(*room);
            *room -= taken;
            let mut text: String = problems.iter().take(taken).map(|problem| self.line(problem)).collect();
            if taken < problems.len() {
                text.push_str(&format!("\n({} more)", problems.len() - taken));
            }
            text
        };
        match (new.len(), &old) {
            (0, None) => format!("no errors in {shown}{unverified}"),
            (0, Some(old)) if old.is_empty() => format!("no errors in {shown}{unverified}"),
            (0, Some(old)) => {
                let count = counted(old.len(), "error");
                format!("no new errors in {shown}{unverified}; {count} from before:{}", list(old))
            }
            (count, None) => {
                let count = counted(count, "error");
                format!(
                    "{count} in {shown}{unverified}, of which is not known whether they are new:{}",
                    list(&new)
                )
            }
            (count, Some(old)) => {
                let count = counted(count, "new error");
                let mut text = format!("{count} in {shown}{unverified}:{}", list(&new));
                if !old.is_empty() {
                    text.push_str(&format!("\nfrom before:{}", list(old)));
                }
                text
            }
        }
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The result of an edit: of the files that it changed, and of others that have errors since then.
pub(super) fn text(server: &str, edited: &[Checked], others: &[Checked]) -> String {
    let mut room = MOST_ERRORS;
    let files = edited.iter().map(|file| format!("Language server {server}: {}", file.text(&mut room)));
    let mut text = files.collect::<Vec<_>>().join("\n");
    // Of others only what is certainly new counts.
    let broken: Vec<(&Checked, Vec<&Problem>)> = others
        .iter()
        .filter(|other| other.before.is_some())
        .filter_map(|other| Some((other, other.errors()?.0)))
        .filter(|(_, new)| !new.is_empty())
        .collect();
    if !broken.is_empty() {
        let count: usize = broken.iter().map(|(_, new)| new.len()).sum();
        let files = counted(broken.len(), "other file");
        text.push_str(&format!("\n{} in {files}:", counted(count, "new error")));
        for (file, new) in broken.iter().take(MOST_OTHERS) {
            let unverified = if file.is_unverified() { " (unverified)" } else { "" };
            for problem in new.iter().take(MOST_OF_OTHER) {
                text.push_str(&format!("{}{unverified}", file.line(problem)));
            }
            if new.len() > MOST_OF_OTHER {
                text.push_str(&format!("\n({} more in {})", new.len() - MOST_OF_OTHER, file.shown));
            }
        }
        if broken.len() > MOST_OTHERS {
            text.push_str(&format!("\n(and in {})", counted(broken.len() - MOST_OTHERS, "more file")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use playhouse_lsp::Spot;

    use super::*;

    fn problem(path: &str, line: u32, message: &str) -> Problem {
        Problem {
            path: path.into(),
            spot: Spot { line, column: 3 },
            severity: Severity::Error,
            message: message.to_owned(),
            code: Some("E1".to_owned()),
        }
    }

    fn file(shown: &str, before: Option<&[Problem]>, now: &[Problem], is_verified: bool) -> Checked {
        let now = Known::Found { problems: now.to_vec(), is_verified };
        Checked { shown: shown.to_owned(), before: before.map(Arc::from), now }
    }

    #[test]
    fn what_is_new_comes_first_and_is_counted() {
        let old = problem("a", 1, "old");
        let warning = Problem { severity: Severity::Warning, ..problem("a", 9, "warned") };
        let now = [old.clone(), problem("a", 2, "new"), warning];
        let edited = [file("a", Some(std::slice::from_ref(&old)), &now, true)];
        let others = [
            file("b", Some(&[]), &[problem("b", 7, "broken")], true),
            file("c", None, &[problem("c", 7, "maybe old")], true),
            file("d", Some(&[]), &[], true),
            file("e", Some(&[]), &[problem("e", 2, "told")], false),
        ];
        assert_eq!(
            text("x", &edited, &others),
            "Language server x: 1 new error in a:\na:2:3: new [E1]\nfrom before:\na:1:3: old [E1]\n\
             2 new errors in 2 other files:\nb:7:3: broken [E1]\ne:2:3: told [E1] (unverified)"
        );
    }

    #[test]
    fn nothing_not_yet_and_unverified_are_told_apart() {
        let told = |file: Checked| text("x", &[file], &[]);
        assert_eq!(told(file("a", Some(&[]), &[], true)), "Language server x: no errors in a");
        let one = [problem("a", 1, "old")];
        assert!(told(file("a", Some(&one), &one, true)).contains("no new errors in a; 1 error from before:"));
        assert!(told(file("a", None, &[], false)).contains("no errors in a (unverified"));
        assert!(told(file("a", None, &one, false)).contains("1 error in a (unverified"));
        let not_yet = Checked { shown: "a".to_owned(), before: None, now: Known::NotYet };
        assert!(told(not_yet).contains("not known yet"));
    }

    #[test]
    fn the_list_has_an_end() {
        let many: Vec<Problem> = (0..50).map(|line| problem("a", line, "wrong")).collect();
        let told = text("x", &[file("a", Some(&[]), &many, true), file("b", Some(&[]), &many, true)], &[]);
        assert_eq!(told.matches("wrong").count(), MOST_ERRORS);
        assert!(
            told.contains("50 new errors in a") && told.contains("(30 more)") && told.contains("(50 more)")
        );
    }
}
