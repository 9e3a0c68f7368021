//! Rules files: what a project, its users, or an operator want every session to know.

use std::collections::HashSet;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use crate::PromptError;
use crate::inside::{Content, read_inside, read_trusted};
use crate::system::one_line;
use crate::template::Template;

/// The most bytes of one rules file that a model is shown.
pub const MAX_BYTES: usize = 32 * 1024;
/// The most bytes of all rules files in a system prompt.
pub const MAX_ALL_BYTES: usize = 96 * 1024;

/// Names under which a folder keeps its rules; the first one that exists counts.
pub const NAMES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];

/// How many folders deep below the workspace rules are looked for.
const DEEPEST: usize = 32;

const VARIABLES: [&str; 4] = ["file", "below", "text", "cut"];

// The text is part of the program and tests read it.
static TEMPLATE: LazyLock<Template> = LazyLock::new(|| {
    let text = include_str!("../../../prompts/rules.md");
    Template::parse("rules.md", text, &VARIABLES).expect("rules.md is well formed")
});

/// A rules file as a model is shown it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesFile {
    /// Its name for the model: from the workspace on for one of the workspace or of the folders above it. Where those lie that
    /// the operator keeps elsewhere is not told.
    pub file: String,
    /// The folder for whose files it holds, relative; `None` where it holds for all.
    pub below: Option<String>,
    /// Its text, at most [`MAX_BYTES`] bytes, without blank lines around it.
    pub text: String,
    /// The size of the whole file in bytes, where the text is only its beginning.
    pub cut: Option<u64>,
    /// Whether it lies outside of the workspace, where sessions do not read by themselves.
    pub elsewhere: bool,
    /// Which file it is, whatever its name: no model is shown one twice.
    identity: (u64, u64),
}

impl RulesFile {
    /// The rules of the workspace `root`: `AGENTS.md`, or `CLAUDE.md` where there is none. `None` without either.
    ///
    /// # Errors
    /// The file exists and is not a readable regular file inside of the workspace.
    pub fn of_workspace(root: &Path) -> Result<Option<Self>, PromptError> {
        Self::in_folder(root, Path::new(""))
    }

    /// The rules of the folders above the workspace `root`, up to `top`, which is above it; the highest ones first. `top` is
    /// as a workspace to them: no link leads out of it. Those that cannot be used are left out, with why.
    pub fn above(root: &Path, top: &Path) -> (Vec<Self>, Vec<PromptError>) {
        let (mut found, mut problems) = (Vec::new(), Vec::new());
        let Ok(way) = root.strip_prefix(top) else { return (found, problems) };
        let mut folder = PathBuf::new();
        let deepest = way.components().count();
        for (depth, step) in way.components().enumerate() {
            match Self::in_folder(top, &folder) {
                Ok(rules) => found.extend(rules.map(|rules| {
                    let name = Path::new(&rules.file).file_name().unwrap_or_default().to_string_lossy();
                    let file = format!("{}{name}", "../".repeat(deepest - depth));
                    Self { file, elsewhere: true, ..rules }
                })),
                Err(error) => problems.push(error),
            }
            folder.push(step);
        }
        (found, problems)
    }

    /// The rules of the folders between the workspace `root` and the file or folder `path`, which is relative and without
    /// links; the highest ones first. Those that cannot be used are left out, with why: nobody named them.
    pub fn below(root: &Path, path: &Path) -> (Vec<Self>, Vec<PromptError>) {
        let (mut found, mut problems) = (Vec::new(), Vec::new());
        let mut folder = PathBuf::new();
        for step in path.components().take(DEEPEST) {
            let Component::Normal(name) = step else { break };
            folder.push(name);
            // What is no folder has nothing in it.
            if !root.join(&folder).is_dir() {
                break;
            }
            match Self::in_folder(root, &folder) {
                Ok(rules) => found.extend(rules.map(|rules| {
                    let below = Some(folder.to_string_lossy().into_owned());
                    Self { below, ..rules }
                })),
                Err(error) => problems.push(error),
            }
        }
        (found, problems)
    }

    /// The rules that a user keeps in `folder` for all workspaces.
    ///
    /// # Errors
    /// The file exists and is not a readable regular file.
    pub fn of_user(folder: &Path) -> Result<Option<Self>, PromptError> {
        for name in NAMES {
            let path = folder.join(name);
            match read_trusted(&path, MAX_BYTES as u64) {
                Ok(content) => return Self::of_operator(&path, content).map(Some),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(unreadable(&path, &error)),
            }
        }
        Ok(None)
    }

    /// The rules in `folder`, relative to `root`.
    fn in_folder(root: &Path, folder: &Path) -> Result<Option<Self>, PromptError> {
        for name in NAMES {
            if let Some(rules) = Self::inside(root, &folder.join(name))? {
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
        let file = root.join(relative);
        content.map(|content| Self::new(&relative.to_string_lossy(), &file, content)).transpose()
    }

    /// A file that an operator named.
    ///
    /// # Errors
    /// It does not exist, or is not a readable regular file.
    pub fn trusted(path: &Path) -> Result<Self, PromptError> {
        let content = read_trusted(path, MAX_BYTES as u64).map_err(|error| unreadable(path, &error))?;
        Self::of_operator(path, content)
    }

    /// Where the operator keeps it is nobody else's business.
    fn of_operator(path: &Path, content: Content) -> Result<Self, PromptError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let rules = Self::new(&format!("the operator's {name}"), path, content)?;
        Ok(Self { elsewhere: true, ..rules })
    }

    /// `shown` is what models know the file `path` by.
    fn new(shown: &str, path: &Path, content: Content) -> Result<Self, PromptError> {
        let Content { bytes, size, identity, .. } = content;
        let is_cut = size > bytes.len() as u64;
        let text = if is_cut { beginning(&bytes, bytes.len()) } else { &bytes };
        let text = match std::str::from_utf8(text) {
            Ok(text) => text,
            // One long line was cut within a character.
            Err(error) if is_cut && error.error_len().is_none() => {
                std::str::from_utf8(&text[..error.valid_up_to()]).unwrap_or_default()
            }
            Err(error) => {
                let line = 1 + text[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
                let message = "cannot be used as a rules file: this line is not UTF-8";
                return Err(PromptError::at(&path.to_string_lossy(), line, message));
            }
        };
        Ok(Self {
            file: shown.to_owned(),
            below: None,
            // Some editors begin a file with a mark.
            text: text.trim_start_matches('\u{feff}').trim().to_owned(),
            cut: is_cut.then_some(size),
            elsewhere: false,
            identity,
        })
    }

    /// All of these once, in their order, as far as there is room for them: [`MAX_ALL_BYTES`]. Of one that does not fit the
    /// beginning is left, which may be nothing.
    pub fn once(rules: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let (mut known, mut left) = (HashSet::new(), MAX_ALL_BYTES);
        let is_empty = |rules: &Self| rules.text.is_empty() && rules.cut.is_none();
        let new = rules.into_iter().filter(|rules| !is_empty(rules) && known.insert(rules.identity));
        let fitted = new.map(|mut rules| {
            if rules.text.len() > left {
                let size = rules.text.len() as u64;
                rules.cut = rules.cut.or(Some(size));
                rules.text =
                    String::from_utf8_lossy(beginning(rules.text.as_bytes(), left)).trim_end().to_owned();
            }
            left = left.saturating_sub(rules.text.len());
            rules
        });
        fitted.collect()
    }

    /// What a model reads of it.
    pub fn render(&self) -> String {
        let below = self.below.as_deref().map(one_line).unwrap_or_default();
        TEMPLATE.render(&[&one_line(&self.file), &below, &self.text, &self.note()]).trim_end().to_owned()
    }

    /// The sentence that tells a model what is missing; empty where nothing is.
    fn note(&self) -> String {
        self.cut.map_or_else(String::new, |size| {
            let shown = self.text.len();
            let cut = format!("Cut here: these are the first {shown} of {size} bytes.");
            match self.elsewhere {
                true => cut,
                false => format!("{cut} Read {} if you need the rest.", one_line(&self.file)),
            }
        })
    }

    #[cfg(test)]
    pub(crate) fn of_text(file: &str, text: &str) -> Self {
        let identity = (0, file.len() as u64);
        Self {
            file: file.to_owned(),
            below: None,
            text: text.to_owned(),
            cut: None,
            elsewhere: false,
            identity,
        }
    }
}

/// At most `most` bytes: whole lines only, and with them whole characters, unless it is one long line.
fn beginning(text: &[u8], most: usize) -> &[u8] {
    let text = &text[..most.min(text.len())];
    let whole = text.iter().rposition(|byte| *byte == b'\n');
    whole.map_or(text, |end| &text[..end])
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
        assert_eq!((rules.file.as_str(), rules.text.as_str(), rules.cut), ("AGENTS.md", "agents", None));
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
    fn one_long_line_is_cut_between_characters_and_other_bytes_than_text_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("AGENTS.md");
        let rules = || RulesFile::of_workspace(root.path()).map(|rules| rules.unwrap());
        fs_err::write(&file, format!("x{}", "ü".repeat(MAX_BYTES))).unwrap();
        let cut = rules().unwrap();
        assert_eq!((cut.cut, cut.text.len()), (Some(2 * MAX_BYTES as u64 + 1), MAX_BYTES - 1));
        assert!(cut.text.ends_with('ü'));
        fs_err::write(&file, "\u{feff}Use tabs.\r\n").unwrap();
        assert_eq!(rules().unwrap().text, "Use tabs.");
        for (bytes, line) in [(b"a\n\xffb".as_slice(), 2), (b"a\n\nb\xc3", 3)] {
            fs_err::write(&file, bytes).unwrap();
            let refused = rules().unwrap_err().to_string();
            assert!(
                refused.ends_with(&format!(
                    "AGENTS.md:{line}: cannot be used as a rules file: this line is not UTF-8"
                )),
                "{refused}"
            );
            assert_eq!(RulesFile::trusted(&file).unwrap_err().to_string(), refused);
        }
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

    fn texts(rules: &[RulesFile]) -> Vec<(&str, &str)> {
        rules.iter().map(|rules| (rules.file.as_str(), rules.text.as_str())).collect()
    }

    #[test]
    fn rules_are_found_upwards_and_no_link_leads_out() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap().join("top");
        let root = top.join("apps/web");
        fs_err::create_dir_all(&root).unwrap();
        fs_err::write(folder.path().join("AGENTS.md"), "not ours").unwrap();
        fs_err::write(top.join("CLAUDE.md"), "of all").unwrap();
        fs_err::write(top.join("apps/AGENTS.md"), "of apps").unwrap();
        fs_err::write(root.join("AGENTS.md"), "of web").unwrap();
        let (rules, problems) = RulesFile::above(&root, &top);
        assert_eq!(texts(&rules), [("../../CLAUDE.md", "of all"), ("../AGENTS.md", "of apps")]);
        assert!(problems.is_empty());
        assert_eq!(RulesFile::above(&top, &top), (Vec::new(), Vec::new()));
        fs_err::remove_file(top.join("apps/AGENTS.md")).unwrap();
        symlink(folder.path().join("AGENTS.md"), top.join("apps/AGENTS.md")).unwrap();
        let (rules, problems) = RulesFile::above(&root, &top);
        assert_eq!(rules.len(), 1);
        assert!(problems[0].to_string().ends_with("it leads outside of the workspace"), "{problems:?}");
    }

    #[test]
    fn rules_of_subdirectories_are_found_on_the_way_down() {
        let root = tempfile::tempdir().unwrap();
        fs_err::create_dir_all(root.path().join("docs/deep/er")).unwrap();
        for file in ["AGENTS.md", "docs/CLAUDE.md", "docs/deep/er/AGENTS.md"] {
            fs_err::write(root.path().join(file), file).unwrap();
        }
        fs_err::write(root.path().join("docs/deep/x.md"), "x").unwrap();
        let below = |path: &str| {
            let (rules, problems) = RulesFile::below(root.path(), Path::new(path));
            assert!(problems.is_empty());
            rules.into_iter().map(|rules| (rules.file, rules.below.unwrap())).collect::<Vec<_>>()
        };
        let found = |file: &str, below: &str| (file.to_owned(), below.to_owned());
        assert_eq!(below("x.md"), []);
        assert_eq!(below("docs/deep/x.md"), [found("docs/CLAUDE.md", "docs")]);
        assert_eq!(
            below("docs/deep/er"),
            [found("docs/CLAUDE.md", "docs"), found("docs/deep/er/AGENTS.md", "docs/deep/er")]
        );
        assert_eq!(below("../docs/deep/er"), []);
        let (rules, _) = RulesFile::below(root.path(), Path::new("docs"));
        assert!(rules[0].render().contains("docs/CLAUDE.md. Follow them for everything below docs/; where"));
    }

    #[test]
    fn a_file_is_shown_once_whatever_it_is_called_and_all_have_bounded_room() {
        let root = tempfile::tempdir().unwrap();
        let line = "a rule that is kept\n";
        fs_err::write(root.path().join("AGENTS.md"), line.repeat(MAX_BYTES / line.len())).unwrap();
        for name in ["b.md", "c.md", "d.md"] {
            fs_err::copy(root.path().join("AGENTS.md"), root.path().join(name)).unwrap();
        }
        symlink("AGENTS.md", root.path().join("CLAUDE.md")).unwrap();
        fs_err::write(root.path().join("empty.md"), "\n").unwrap();
        let names = ["empty.md", "AGENTS.md", "CLAUDE.md", "b.md", "c.md", "d.md", "AGENTS.md"];
        let all = names.map(|name| RulesFile::inside(root.path(), Path::new(name)).unwrap().unwrap());
        let once = RulesFile::once(all);
        let files: Vec<&str> = once.iter().map(|rules| rules.file.as_str()).collect();
        assert_eq!(files, ["AGENTS.md", "b.md", "c.md", "d.md"]);
        assert!(once.iter().map(|rules| rules.text.len()).sum::<usize>() <= MAX_ALL_BYTES);
        assert!(once[2].cut.is_none() && once[3].cut == Some(once[0].text.len() as u64));
        assert!(once[3].render().contains("Read d.md if you need the rest."));
    }

    #[test]
    fn the_users_rules_may_be_links() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(RulesFile::of_user(folder.path()), Ok(None));
        assert_eq!(RulesFile::of_user(&folder.path().join("nowhere")), Ok(None));
        fs_err::write(folder.path().join("house"), "ours").unwrap();
        symlink("house", folder.path().join("CLAUDE.md")).unwrap();
        let ours = RulesFile::of_user(folder.path()).unwrap().unwrap();
        assert_eq!(ours.text, "ours");
        // Where the operator keeps it is not told, and nobody is asked to read it there.
        fs_err::write(folder.path().join("house"), "x\n".repeat(MAX_BYTES)).unwrap();
        let cut = RulesFile::of_user(folder.path()).unwrap().unwrap().render();
        assert!(cut.starts_with("<rules file=\"the operator's CLAUDE.md\">"), "{}", &cut[..80]);
        assert!(cut.ends_with(" of 65536 bytes.]\n</rules>"), "{}", &cut[cut.len() - 80..]);
        fs_err::create_dir(folder.path().join("AGENTS.md")).unwrap();
        assert!(RulesFile::of_user(folder.path()).is_err());
    }
}
