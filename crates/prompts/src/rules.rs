//! Rules files: what a project, or an operator, wants every session to know.

use std::io;
use std::path::Path;

use crate::PromptError;
use crate::inside::{Content, read_inside, read_trusted};

/// The most bytes of one rules file that a model is shown.
pub const MAX_BYTES: usize = 32 * 1024;

/// Names under which a workspace keeps its rules; the first one that exists counts.
const NAMES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];

/// A rules file as a model is shown it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesFile {
    /// Its name for the model: relative for a file of the workspace.
    pub file: String,
    /// Its text, at most [`MAX_BYTES`] bytes, without blank lines around it.
    pub text: String,
    /// The size of the whole file in bytes, where the text is only its beginning.
    pub cut: Option<u64>,
}

impl RulesFile {
    /// The rules of the workspace `root`: `AGENTS.md`, or `CLAUDE.md` where there is none. `None` without either.
    ///
    /// # Errors
    /// The file exists and is not a readable regular file inside of the workspace.
    pub fn of_workspace(root: &Path) -> Result<Option<Self>, PromptError> {
        for name in NAMES {
            if let Some(rules) = Self::inside(root, Path::new(name))? {
                return Ok(Some(rules));
            }
        }
        Ok(None)
    }

    /// The file `relative` of the workspace `root`; `None` when it does not exist.
    ///
    /// # Errors
    /// It leads outside of the workspace, or is not a readable regular file.
    pub fn inside(root: &Path, relative: &Path) -> Result<Option<Self>, PromptError> {
        let content = read_inside(root, relative, MAX_BYTES as u64)
            .map_err(|error| unreadable(&root.join(relative), &error))?;
        Ok(content.map(|content| Self::new(&relative.to_string_lossy(), content)))
    }

    /// A file that an operator named.
    ///
    /// # Errors
    /// It does not exist, or is not a readable regular file.
    pub fn trusted(path: &Path) -> Result<Self, PromptError> {
        let content = read_trusted(path, MAX_BYTES as u64).map_err(|error| unreadable(path, &error))?;
        Ok(Self::new(&path.to_string_lossy(), content))
    }

    fn new(file: &str, content: Content) -> Self {
        let cut = (content.size > content.bytes.len() as u64).then_some(content.size);
        let mut text = content.bytes.as_slice();
        if cut.is_some() {
            // Whole lines only, and with them whole characters, unless the file is one long line.
            if let Some(end) = text.iter().rposition(|byte| *byte == b'\n') {
                text = &text[..end];
            }
        }
        Self { file: file.to_owned(), text: String::from_utf8_lossy(text).trim().to_owned(), cut }
    }

    /// The sentence that tells a model what is missing; empty where nothing is.
    pub(crate) fn note(&self) -> String {
        self.cut.map_or_else(String::new, |size| {
            let shown = self.text.len();
            format!(
                "Cut here: these are the first {shown} of {size} bytes. Read {} if you need the rest.",
                self.file
            )
        })
    }
}

fn unreadable(path: &Path, error: &io::Error) -> PromptError {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        _ => error.to_string(),
    };
    PromptError::whole(path.display(), format!("cannot be used as a rules file: {reason}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn agents_md_counts_before_claude_md() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(RulesFile::of_workspace(root.path()), Ok(None));
        fs_err::write(root.path().join("CLAUDE.md"), "claude").unwrap();
        assert_eq!(RulesFile::of_workspace(root.path()).unwrap().unwrap().text, "claude");
        fs_err::write(root.path().join("AGENTS.md"), "\nagents\n\n").unwrap();
        let rules = RulesFile::of_workspace(root.path()).unwrap().unwrap();
        assert_eq!(rules, RulesFile { file: "AGENTS.md".to_owned(), text: "agents".to_owned(), cut: None });
    }

    #[test]
    fn a_long_file_is_cut_at_a_line_with_a_note() {
        let root = tempfile::tempdir().unwrap();
        let line = format!("{}ü\n", "x".repeat(997));
        fs_err::write(root.path().join("AGENTS.md"), line.repeat(50)).unwrap();
        let rules = RulesFile::of_workspace(root.path()).unwrap().unwrap();
        assert_eq!((rules.cut, rules.text.len()), (Some(50_000), 31_999));
        assert_eq!(
            rules.note(),
            "Cut here: these are the first 31999 of 50000 bytes. Read AGENTS.md if you need the rest."
        );
    }

    #[test]
    fn one_long_line_and_foreign_bytes_do_no_harm() {
        let root = tempfile::tempdir().unwrap();
        fs_err::write(root.path().join("AGENTS.md"), "ü".repeat(MAX_BYTES)).unwrap();
        let rules = RulesFile::of_workspace(root.path()).unwrap().unwrap();
        assert_eq!((rules.cut, rules.text.len()), (Some(2 * MAX_BYTES as u64), MAX_BYTES));
        fs_err::write(root.path().join("AGENTS.md"), b"a\xffb").unwrap();
        assert_eq!(RulesFile::of_workspace(root.path()).unwrap().unwrap().text, "a\u{fffd}b");
    }

    #[test]
    fn a_workspace_cannot_show_the_model_a_file_from_outside() {
        let outside = tempfile::tempdir().unwrap();
        fs_err::write(outside.path().join("key"), "secret").unwrap();
        let root = tempfile::tempdir().unwrap();
        symlink(outside.path().join("key"), root.path().join("AGENTS.md")).unwrap();
        let error = RulesFile::of_workspace(root.path()).unwrap_err().to_string();
        assert!(
            error.ends_with("AGENTS.md: cannot be used as a rules file: it leads outside of the workspace")
        );
        // An operator may name any file.
        assert_eq!(RulesFile::trusted(&root.path().join("AGENTS.md")).unwrap().text, "secret");
    }

    #[test]
    fn a_file_that_an_operator_named_must_exist() {
        let error = RulesFile::trusted(Path::new("/nowhere/rules.md")).unwrap_err().to_string();
        assert_eq!(error, "/nowhere/rules.md: cannot be used as a rules file: there is no such file");
    }
}
