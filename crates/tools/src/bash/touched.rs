//! What a command would touch, as far as that can be told before it runs.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use playhouse_policy::shell::{self, FolderUse, PathUse};
use playhouse_policy::{Access, AccessKind, Known};
use playhouse_sandbox::process::Environment;
use playhouse_workspace::{PathError, Resolved, Workspace};

use super::report::first_line;
use super::tracked::Shown;

/// The most places that are looked at. A script that names more may touch anything.
const MOST_PLACES: usize = 4_000;

/// A folder of which a command reads what lies in it.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    pub(super) place: Resolved,
    /// Whether it leaves out what is hidden or ignored.
    pub(super) visible_only: bool,
    /// The pattern of the files that it reads below the folder; absent for all.
    pub(super) pattern: Option<Pattern>,
}

impl Folder {
    /// How many levels of names it reads; absent for all.
    pub(super) fn levels(&self) -> Option<usize> {
        let Pattern { text, .. } = self.pattern.as_ref()?;
        (!text.contains("**") && !text.contains('{')).then(|| text.split('/').count())
    }
}

/// A pattern of file names, as shells have them: each part of it matches one name.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    text: String,
    /// Absent for what is written in a way of shells only: then each file counts as matched.
    glob: Option<GlobMatcher>,
    /// Whether it also matches names that begin with a dot.
    hidden: bool,
}

impl Pattern {
    /// `loose` is whether it may also match names that begin with a dot, and ignore case.
    fn of(text: &str, loose: bool) -> Self {
        let of_shells = ["[[:", "[[.", "[[=", "(", "\\"];
        let is_range = text.contains('{') && text.contains("..");
        let is_plain = !is_range && !of_shells.iter().any(|form| text.contains(form));
        let glob = GlobBuilder::new(text).literal_separator(true).case_insensitive(loose).build();
        let glob = glob.ok().filter(|_| is_plain).map(|glob| glob.compile_matcher());
        Self { text: text.to_owned(), glob, hidden: loose }
    }

    /// Whether it matches this path below its folder. Names that begin with a dot are matched by a dot only.
    pub(super) fn matches(&self, path: &Path) -> bool {
        let Some(glob) = &self.glob else { return true };
        let begins_with_dot = |name: &OsStr| name.as_encoded_bytes().starts_with(b".");
        let is_hidden =
            |(name, part): (&OsStr, &str)| begins_with_dot(name) && part.starts_with(['*', '?', '[']);
        glob.is_match(path) && (self.hidden || !path.iter().zip(self.text.split('/')).any(is_hidden))
    }
}

/// What is known of a command before it runs.
pub(super) struct Told {
    /// The directory in which it would run.
    pub(super) workdir: Resolved,
    /// All that it would touch.
    pub(super) accesses: Vec<Access>,
    /// Folders in the workspace of which it would read what lies in them.
    pub(super) folders: Vec<Folder>,
    /// Calls of git that show changes of tracked files.
    pub(super) tracked: Vec<Shown>,
    /// Whether it does nothing but read, as far as its commands are known.
    pub(super) only_reads: bool,
}

/// What `command` would do. Reads the file system.
///
/// # Errors
/// When `workdir` leads nowhere.
pub(super) fn touched(command: &str, workdir: &str, workspace: &Workspace) -> Result<Told, PathError> {
    let workdir = workspace.resolve(workdir)?;
    let script = shell::analyse(command);
    let mut touched = Touched {
        workspace,
        workdir: workdir.path.clone(),
        home: home(),
        accesses: vec![workdir.access(AccessKind::Execute)],
        seen: HashSet::new(),
        looked: 0,
    };
    if script.commands.is_empty() {
        touched.doubt(command, "nothing in it is a command");
    }
    touched.accesses.extend(script.commands.into_iter().map(Access::Command));
    for path in &script.paths {
        touched.path(path);
    }
    let (tracked, read): (Vec<FolderUse>, Vec<FolderUse>) =
        script.folders.into_iter().partition(|used| used.tracked);
    let (folders, tracked) = (touched.folders(&read), touched.tracked(&tracked));
    Ok(Told { workdir, accesses: touched.accesses, folders, tracked, only_reads: !script.may_write })
}

/// What a command gets as its HOME.
fn home() -> Option<PathBuf> {
    let environment = Environment::of_this_process();
    let home = environment.variables().find(|(name, _)| *name == "HOME").map(|(_, home)| PathBuf::from(home));
    home.filter(|home| home.is_absolute())
}

struct Touched<'a> {
    workspace: &'a Workspace,
    workdir: PathBuf,
    home: Option<PathBuf>,
    accesses: Vec<Access>,
    /// The places that are among the accesses, what is done with them, and whether that is certain.
    seen: HashSet<(PathBuf, AccessKind, Known)>,
    looked: usize,
}

impl Touched<'_> {
    fn doubt(&mut self, text: &str, why: &str) {
        let text = first_line(text);
        let doubt = Some(why.to_owned());
        self.accesses.push(Access::Command(shell::Command { text: text.clone(), doubt, always: Vec::new() }));
        self.unknown(text, why, Known::No);
    }

    fn unknown(&mut self, text: String, why: &str, written: Known) {
        self.accesses.push(Access::Unknown { text, doubt: why.to_owned(), written });
    }

    /// Adds all places where a path may lead.
    fn path(&mut self, path: &PathUse) {
        if let Some(doubt) = &path.doubt {
            return self.unknown(path.text.clone(), doubt, path.known);
        }
        let Some(places) = self.places(&path.text, &path.bases) else {
            return self.unknown(path.text.clone(), "the home directory of somebody else", path.known);
        };
        for place in places {
            self.place(path, &place);
            // What is copied into a directory is a file in it.
            if !path.into.is_empty() && place.is_dir() {
                path.into.iter().for_each(|name| self.place(path, &place.join(name)));
            }
        }
    }

    /// The folders in the workspace that commands read: what there is of their words, and where they run if there is nothing yet.
    fn folders(&self, used: &[FolderUse]) -> Vec<Folder> {
        let mut folders: Vec<Folder> = Vec::new();
        for &FolderUse { ref words, ref bases, visible_only, matched, loose, .. } in used {
            let found = |word: &str| -> Vec<Resolved> {
                let places = self.places(word, bases).unwrap_or_default();
                places.iter().filter_map(|place| self.found(place)).collect()
            };
            if matched {
                for (folder, pattern) in words.iter().map(|word| shell::split_pattern(word)) {
                    if pattern.split('/').any(|part| part == "..") {
                        let all = |place| Folder { place, visible_only, pattern: None };
                        folders.extend(found(".").into_iter().map(all));
                        continue;
                    }
                    let pattern = Pattern::of(pattern, loose);
                    let below = |place| Folder { place, visible_only, pattern: Some(pattern.clone()) };
                    folders.extend(found(folder).into_iter().map(below));
                }
                continue;
            }
            let all: Vec<Resolved> = words.iter().flat_map(|word| found(word)).collect();
            let all = if all.is_empty() { found(".") } else { all };
            folders.extend(all.into_iter().map(|place| Folder { place, visible_only, pattern: None }));
        }
        // Of those of which all is read, one look is enough.
        let key =
            |folder: &Folder| (folder.place.path.clone(), folder.pattern.is_some(), folder.visible_only);
        folders.sort_by_cached_key(key);
        folders.dedup_by(|later, first| later.place.path == first.place.path && first.pattern.is_none());
        folders
    }

    /// Where calls of git may run, and which files of the worktree they are about: all where no word is one.
    fn tracked(&self, used: &[FolderUse]) -> Vec<Shown> {
        let calls = used.iter().flat_map(|FolderUse { words, bases, .. }| {
            let all = words.iter().flat_map(|word| self.places(word, bases).unwrap_or_default());
            let within: Vec<PathBuf> =
                all.filter_map(|place| self.found(&place)).map(|found| found.path).collect();
            let places = self.places(".", bases).unwrap_or_default();
            let directories = places.into_iter().filter_map(|place| self.found(&place));
            directories.map(move |found| Shown { directory: found.path, within: within.clone() })
        });
        calls.collect()
    }

    /// What is at a place in the workspace, if anything is.
    fn found(&self, place: &Path) -> Option<Resolved> {
        let resolved = self.workspace.resolve(place.to_str()?).ok()?;
        (resolved.path.starts_with(self.workspace.root()) && resolved.path.exists()).then_some(resolved)
    }

    /// All places where `text` may lead; `None` where it is the home directory of somebody else.
    fn places(&self, text: &str, bases: &[String]) -> Option<Vec<PathBuf>> {
        let bases = bases.iter().map(|base| self.expanded(base).map(|base| self.workdir.join(base)));
        let text = self.expanded(text)?;
        bases.chain([Some(self.workdir.clone())]).map(|base| Some(base?.join(&text))).collect()
    }

    /// `text` with `~` replaced; `None` where it is the home directory of another user, or there is none.
    fn expanded(&self, text: &str) -> Option<PathBuf> {
        match text.strip_prefix('~') {
            None => Some(PathBuf::from(text)),
            Some("") => self.home.clone(),
            Some(rest) => {
                let below = rest.strip_prefix('/')?;
                Some(self.home.as_ref()?.join(below.trim_start_matches('/')))
            }
        }
    }

    fn place(&mut self, PathUse { text, kind, known, if_there, .. }: &PathUse, place: &Path) {
        if *if_there && place.symlink_metadata().is_err() {
            return;
        }
        self.looked += 1;
        if self.looked > MOST_PLACES {
            if self.looked == MOST_PLACES + 1 {
                self.doubt("…", "it names more paths than are looked at");
            }
            return;
        }
        let Some(place) = place.to_str() else {
            return self.doubt(text, "a path that is not UTF-8");
        };
        match self.workspace.resolve(place) {
            Ok(resolved) => {
                if self.seen.insert((resolved.path.clone(), *kind, *known)) {
                    self.accesses.push(resolved.access(*kind).known(*known));
                }
            }
            // The system takes no such path either, so it is none: a long message, for example.
            Err(PathError::TooLong(_) | PathError::Empty | PathError::Nul(_)) => {}
            Err(error) => self.doubt(text, &error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
