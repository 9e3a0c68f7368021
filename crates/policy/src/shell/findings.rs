//! What an analysis has found so far, and how much it may still do.

use super::effects::Effect;
use super::folders::FolderUse;
use super::paths::{self, PathUse};
use super::words::Word;
use super::{Command, MOST_COMMANDS, MOST_PATHS, Script, shortened};
use crate::{AccessKind, Known};

/// How much text may be gone through in all, in bytes: what stands in strings of strings is gone through again, and a
/// script could make that happen without end.
const EFFORT: usize = 128 * 1024;
/// The most directories in which a script may be at the same time.
const MOST_BASES: usize = 16;
/// The longest of them, in bytes.
const LONGEST_BASE: usize = 4096;
/// The most words of which it is told that they may be any path.
const MOST_UNKNOWN: usize = 20;
/// What every step costs beside the text that it goes through.
const STEP: usize = 32;

/// What was found, and the state of one analysis.
#[derive(Default)]
pub(super) struct Findings {
    script: Script,
    spent: usize,
    /// How often parsers have looked up whether to go on.
    pub(super) looks: u32,
    /// Where the script may have gone, beside the directory where it began.
    bases: Vec<String>,
    /// Files that it writes and files that it runs, by their last names.
    written: Vec<String>,
    run: Vec<String>,
    /// Files that programs obey which it runs, whether they are there or not.
    obeyed: Vec<String>,
    /// Whether it writes files whose names are not known.
    writes_any: bool,
    /// Whether it may turn on `dotglob` or `nocaseglob`.
    loose_patterns: bool,
    unknown: usize,
}

impl Findings {
    /// All that was found.
    pub(super) fn finish(mut self) -> Script {
        let mut run = self.run.iter();
        if let Some(file) = run.find(|file| self.writes_any || self.written.contains(file)).cloned() {
            self.doubt(&file, "it runs a file that the script itself writes");
        } else if let Some(file) = self.obeyed.iter().find(|file| self.written.contains(file)).cloned() {
            self.doubt(&file, "a program obeys a file that the script itself writes");
        }
        let is_loose = self.loose_patterns;
        self.script.folders.iter_mut().filter(|used| used.matched).for_each(|used| used.loose = is_loose);
        self.script
    }

    /// Whether there is nothing more to look for, since the script is in doubt as a whole.
    pub(super) fn is_full(&self) -> bool {
        self.script.commands.len() > MOST_COMMANDS || self.spent > EFFORT
    }

    /// Takes the effort that going through so many bytes is; false when there is none left.
    pub(super) fn spend(&mut self, bytes: usize) -> bool {
        if self.is_full() {
            return false;
        }
        self.spent += bytes + STEP;
        if self.spent > EFFORT {
            self.doubt("…", "it takes too long to be analysed");
        }
        self.spent <= EFFORT
    }

    /// Adds a command, once.
    pub(super) fn command(&mut self, command: Command) {
        if !self.script.commands.contains(&command) {
            self.script.commands.push(command);
        }
    }

    /// Adds what is not understood.
    pub(super) fn doubt(&mut self, text: &str, why: &str) {
        self.command(Command { text: shortened(text), doubt: Some(why.to_owned()), always: Vec::new() });
    }

    /// Adds a path that is named, with what may be done with it.
    pub(super) fn path(&mut self, text: &str, kind: AccessKind) {
        self.named(PathUse { kind, ..named(text) }, None);
    }

    /// Adds a path with what is done with it for certain. It may be below `base`, which is written as it is.
    pub(super) fn effect(&mut self, effect: &Effect<'_>, base: Option<&str>) {
        let into = effect.into.iter().map(|&name| name.to_owned()).collect();
        let (kind, known, if_there) = (effect.kind, effect.known, effect.if_there);
        self.named(PathUse { kind, known, into, if_there, ..named(effect.path) }, base);
    }

    /// Adds a command that reads folders, which may lie below `base`.
    pub(super) fn reads_folders(&mut self, folder: FolderUse, base: Option<&str>) {
        let bases = self.bases.iter().cloned().chain(base.map(str::to_owned)).collect();
        let folder = FolderUse { bases, ..folder };
        if self.script.folders.len() < MOST_PATHS && !self.script.folders.contains(&folder) {
            self.script.folders.push(folder);
        }
    }

    /// Records that a command may do more than read.
    pub(super) fn may_write(&mut self) {
        self.script.may_write = true;
    }

    /// Adds a word that names something which is written for certain, and may be any path.
    pub(super) fn written_somewhere(&mut self, text: &str, known: Known, why: &str) {
        self.push(PathUse { kind: AccessKind::Write, known, ..any_path(shortened(text), why) });
    }

    fn named(&mut self, path: PathUse, base: Option<&str>) {
        if !paths::is_nowhere(&path.text) {
            let placed = self.placed(path, base);
            self.push(placed);
        }
    }

    /// A path with where the script may be when it names it.
    fn placed(&self, path: PathUse, base: Option<&str>) -> PathUse {
        let text = path.text.as_str();
        // Other names of the same place.
        let home = ["$HOME", "${HOME}"].iter().find_map(|name| text.strip_prefix(name));
        let home =
            home.filter(|rest| rest.is_empty() || rest.starts_with('/')).map(|rest| format!("~{rest}"));
        let text = home.as_deref().unwrap_or(text);
        let is_relative = !text.starts_with(['/', '~']);
        let mut bases = if is_relative { self.bases.clone() } else { Vec::new() };
        if let (true, Some(base)) = (is_relative, base) {
            let below: Vec<String> = bases.iter().map(|first| format!("{first}/{base}")).collect();
            bases.extend(below);
            bases.push(base.to_owned());
        }
        PathUse { text: text.to_owned(), bases, ..path }
    }

    /// Adds a word that may be any path.
    pub(super) fn unknown(&mut self, text: &str, why: &str) {
        if self.unknown < MOST_UNKNOWN {
            self.unknown += 1;
            self.push(any_path(shortened(text), why));
        }
    }

    fn push(&mut self, path: PathUse) {
        let is_same = |other: &&mut PathUse| {
            (&other.text, &other.bases, other.kind, other.if_there, &other.doubt)
                == (&path.text, &path.bases, path.kind, path.if_there, &path.doubt)
        };
        if let Some(other) = self.script.paths.iter_mut().find(is_same) {
            other.known = other.known.max(path.known);
            other.into.extend(path.into);
            return;
        }
        if self.script.paths.len() > MOST_PATHS {
            return;
        }
        if self.script.paths.len() == MOST_PATHS {
            self.script.paths.push(any_path("…".into(), "too many paths"));
            return self.doubt("…", "too many paths");
        }
        self.script.paths.push(path);
    }

    /// Adds the paths that a word names, or may name. `kind` says what is done with them.
    pub(super) fn argument(&mut self, word: &Word, kind: AccessKind) {
        for path in paths::in_argument(word) {
            self.path(path, kind);
        }
        if let Some(doubt) = paths::unknown(word) {
            self.unknown(&word.text, doubt);
        }
    }

    /// The script goes to `directory`, if it comes to that: from where it began, or from anywhere it went since.
    pub(super) fn enter(&mut self, directory: &str) {
        let mut more = vec![directory.to_owned()];
        if !directory.starts_with(['/', '~']) {
            more.extend(self.bases.iter().map(|base| format!("{base}/{directory}")));
        }
        more.retain(|base| !self.bases.contains(base));
        let is_too_much = self.bases.len() + more.len() > MOST_BASES;
        if is_too_much || more.iter().any(|base| base.len() > LONGEST_BASE) {
            self.lost(directory);
        } else {
            self.bases.extend(more);
        }
    }

    /// The script goes nobody knows where.
    pub(super) fn lost(&mut self, text: &str) {
        const WHY: &str = "a directory that is not known";
        self.doubt(text, WHY);
        self.unknown(text, WHY);
    }

    /// Records that the script may turn on `dotglob` or `nocaseglob`.
    pub(super) fn loosens_patterns(&mut self) {
        self.loose_patterns = true;
    }

    /// The script makes this file.
    pub(super) fn writes_file(&mut self, path: &str) {
        note(&mut self.written, path);
    }

    /// The script makes files, and nobody knows which.
    pub(super) fn writes_any_file(&mut self) {
        self.writes_any = true;
    }

    /// The script runs this file.
    pub(super) fn runs_file(&mut self, path: &str) {
        note(&mut self.run, path);
    }

    /// The script has this file run, if it is there.
    pub(super) fn obeys_file(&mut self, path: &str) {
        note(&mut self.obeyed, path);
    }
}

/// A path of which nothing more is known.
fn named(text: &str) -> PathUse {
    PathUse {
        text: text.to_owned(),
        bases: Vec::new(),
        kind: AccessKind::MayWrite,
        known: Known::No,
        into: Vec::new(),
        if_there: false,
        doubt: None,
    }
}

fn any_path(text: String, why: &str) -> PathUse {
    PathUse { doubt: Some(why.to_owned()), ..named(&text) }
}

fn note(files: &mut Vec<String>, path: &str) {
    let name = path.rsplit('/').next().unwrap_or_default();
    if !name.is_empty() && files.len() < MOST_PATHS && !files.iter().any(|file| file == name) {
        files.push(name.to_owned());
    }
}
