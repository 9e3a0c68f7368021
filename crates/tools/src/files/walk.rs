//! A walk through a directory tree, in the order of paths, that obeys ignore files and follows no link.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use playhouse_policy::Zone;
use playhouse_workspace::Workspace;
use tokio_util::sync::CancellationToken;

use super::directory::{Directory, Entries, Kind};
use super::ignored::Rules;

/// Directories inside each other that are entered. Each costs an open handle.
const DEPTH: usize = 128;

/// How much a walk may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Entries that are looked at.
    pub(crate) entries: usize,
    /// Time that it takes.
    pub(crate) time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 1_000_000, time: Duration::from_secs(20) }
    }
}

/// Where a walk begins.
#[derive(Debug)]
pub(crate) struct Start {
    /// The directory.
    pub(crate) directory: Directory,
    /// Its place, from `/`, the root of the tree that ignore files may speak about.
    place: PathBuf,
    rules: Option<Arc<Rules>>,
    hides: Option<Arc<Hides>>,
}

/// What belongs to the engine itself: no walk comes to it, wherever it begins.
#[derive(Debug)]
pub(crate) struct Hides {
    workspace: Workspace,
    /// Where the root of the tree lies.
    root: PathBuf,
}

impl Hides {
    /// For a walk through the tree at `root` that begins at `directory`; `None` where it cannot come to such a thing.
    pub(crate) fn below(workspace: &Workspace, root: &Path, directory: &Path) -> Option<Arc<Self>> {
        let may = workspace.may_hide_below(directory);
        may.then(|| Arc::new(Self { workspace: workspace.clone(), root: root.to_owned() }))
    }

    fn has(&self, place: &Path) -> bool {
        let place = self.root.join(place.strip_prefix("/").unwrap_or(place));
        self.workspace.walked(&place).is_ok_and(|resolved| resolved.zone == Zone::Hidden)
    }
}

impl Start {
    /// A walk of `directory`, with nothing above it that counts.
    pub(crate) fn at(directory: Directory) -> Self {
        Self { directory, place: PathBuf::from("/"), rules: None, hides: None }
    }

    /// The same that does not come to what is hidden.
    pub(crate) fn hiding(self, hides: Option<Arc<Hides>>) -> Self {
        Self { hides, ..self }
    }

    /// A walk of the directory at `inner`, below the open `root`. The ignore files on the way down count.
    pub(crate) fn below(root: Directory, inner: &Path) -> std::io::Result<Self> {
        let mut start = Self::at(root);
        for name in inner {
            let has = |name: &str| start.directory.facts(OsStr::new(name)).is_ok();
            start.rules = Rules::within(&start.directory, &start.place, &has, start.rules.take());
            start.directory = start.directory.child(name)?;
            start.place.push(name);
        }
        Ok(start)
    }
}

/// An entry that a walk came to.
#[derive(Debug)]
pub(crate) struct Found<'a> {
    /// From where the walk began.
    pub(crate) path: &'a Path,
    /// What it is.
    pub(crate) kind: Kind,
    /// The directory that holds it.
    pub(crate) parent: &'a Directory,
    /// Its name in there.
    pub(crate) name: &'a OsStr,
}

/// What a visitor wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Go on; into it, if it is a directory.
    Go,
    /// Go on, but not into it.
    Pass,
    /// Stop.
    Stop,
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It came to everything.
    Complete,
    /// Its visitor stopped it.
    Stopped,
    /// It reached the limit of entries.
    Entries,
    /// It reached the limit of time.
    Time,
    /// The call was cancelled.
    Cancelled,
}

/// What a walk has to tell when it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// Directories that could not be read, or lie too deep.
    pub(crate) unreadable: usize,
}

impl Report {
    /// For a model: what may be missing from the result; empty when nothing is.
    pub(crate) fn shortfall(&self, limits: &Limits) -> String {
        let advice = "the result is incomplete: search a smaller path";
        match self.outcome {
            Outcome::Entries => format!("(stopped after {} entries; {advice})", limits.entries),
            Outcome::Time => format!("(stopped after {} s; {advice})", limits.time.as_secs()),
            _ if self.unreadable > 0 => format!("({} directories could not be read)", self.unreadable),
            _ => String::new(),
        }
    }
}

/// A walk that is set up.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    /// Whether all names that begin with a dot are shown, and not only those that an ignore file asks for (`!.github`).
    /// `.git` never is.
    pub(crate) hidden: bool,
    /// How deep it goes; 1 is only what lies in the first directory.
    pub(crate) depth: usize,
    /// How much it may cost.
    pub(crate) limits: Limits,
    /// Ends it.
    pub(crate) cancel: &'a CancellationToken,
}

/// A directory that a walk came to, with what it holds.
#[derive(Debug)]
pub(super) struct Level {
    directory: Directory,
    place: PathBuf,
    rules: Option<Arc<Rules>>,
    entries: Entries,
}

/// What is done with what a walk comes to, in the order of paths: a directory comes before what it holds.
pub(super) trait Visitor {
    /// A directory that is shown.
    fn directory(&mut self, found: &Found<'_>) -> Flow;

    /// Anything else, the entry of `level` at `index`. Whether it is shown has to be found out with [`Lens::find`].
    fn other(&mut self, level: &Arc<Level>, index: usize) -> Flow;
}

/// Finds out about entries, one after the other, in memory that is used again.
#[derive(Clone, Debug)]
pub(super) struct Lens {
    hidden: bool,
    /// Bytes of a place that lead to where the walk began.
    above: usize,
    place: PathBuf,
    hides: Option<Arc<Hides>>,
}

impl Lens {
    /// The entry of `level` at `index`, if it is to be shown.
    pub(super) fn find<'a>(&'a mut self, level: &'a Level, index: usize) -> Option<Found<'a>> {
        let (name, kind) = level.entries.get(index)?;
        let is_hidden = !self.hidden && name.as_bytes().starts_with(b".");
        if name == ".git" || (is_hidden && level.rules.is_none()) {
            return None;
        }
        self.place.as_mut_os_string().clear();
        self.place.push(&level.place);
        self.place.push(name);
        if self.hides.as_ref().is_some_and(|hides| hides.has(&self.place)) {
            return None;
        }
        let ignored =
            level.rules.as_ref().and_then(|rules| rules.ignores(&self.place, kind == Kind::Directory));
        if ignored.unwrap_or(is_hidden) {
            return None;
        }
        let path = Path::new(OsStr::from_bytes(&self.place.as_os_str().as_bytes()[self.above..]));
        Some(Found { path, kind, parent: &level.directory, name })
    }

    /// The kind of the entry of `level` at `index`.
    pub(super) fn is_directory(level: &Level, index: usize) -> bool {
        level.entries.get(index).is_some_and(|(_, kind)| kind == Kind::Directory)
    }
}

impl Walk<'_> {
    /// Walks from `start` on. `visit` is called for everything that is shown: a directory comes before what it holds.
    pub(crate) fn run(&self, start: Start, visit: &mut dyn FnMut(&Found<'_>) -> Flow) -> Report {
        let lens = self.lens(&start);
        self.traverse(start, &mut Sequential { lens, visit })
    }

    /// For entries of the walk that begins at `start`.
    pub(super) fn lens(&self, start: &Start) -> Lens {
        // Between `/` and what is below it there is no other slash.
        let length = start.place.as_os_str().len();
        let above = if length > 1 { length + 1 } else { 1 };
        Lens { hidden: self.hidden, above, place: PathBuf::new(), hides: start.hides.clone() }
    }

    /// Walks from `start` on, one entry after the other.
    pub(super) fn traverse(&self, start: Start, visitor: &mut dyn Visitor) -> Report {
        let deadline = Instant::now() + self.limits.time;
        let mut report = Report { outcome: Outcome::Complete, unreadable: 0 };
        let mut left = self.limits.entries;
        let mut lens = self.lens(&start);
        // The directories that the walk is in, and how far it came in each.
        let mut levels: Vec<(Arc<Level>, usize)> = Vec::new();
        match self.enter(start.directory, start.place, start.rules, &mut left) {
            Some(level) => levels.push((level, 0)),
            None => report.unreadable += 1,
        }
        while let Some((level, next)) = levels.last_mut() {
            if self.cancel.is_cancelled() {
                report.outcome = Outcome::Cancelled;
                return report;
            }
            if Instant::now() >= deadline {
                report.outcome = Outcome::Time;
                return report;
            }
            let index = *next;
            *next += 1;
            if index >= level.entries.len() {
                levels.pop();
                continue;
            }
            let flow = if Lens::is_directory(level, index) {
                let level = level.clone();
                let Some(found) = lens.find(&level, index) else { continue };
                match visitor.directory(&found) {
                    Flow::Go if levels.len() < self.depth => {
                        match self.descend(levels.len(), &level, found.name, &mut left) {
                            Some(inner) => levels.push((inner, 0)),
                            None => report.unreadable += 1,
                        }
                        Flow::Go
                    }
                    flow => flow,
                }
            } else {
                visitor.other(level, index)
            };
            if flow == Flow::Stop {
                report.outcome = Outcome::Stopped;
                return report;
            }
        }
        if self.cancel.is_cancelled() {
            report.outcome = Outcome::Cancelled;
        } else if left == 0 {
            report.outcome = Outcome::Entries;
        }
        report
    }

    fn descend(&self, depth: usize, outer: &Level, name: &OsStr, left: &mut usize) -> Option<Arc<Level>> {
        if depth >= DEPTH {
            return None;
        }
        let directory = outer.directory.child(name).ok()?;
        self.enter(directory, outer.place.join(name), outer.rules.clone(), left)
    }

    fn enter(
        &self,
        directory: Directory,
        place: PathBuf,
        outer: Option<Arc<Rules>>,
        left: &mut usize,
    ) -> Option<Arc<Level>> {
        let (entries, more) = directory.entries(*left, &|| self.cancel.is_cancelled()).ok()?;
        *left = if more { 0 } else { *left - entries.len() };
        let rules = Rules::within(&directory, &place, &|name| entries.has(name), outer);
        Some(Arc::new(Level { directory, place, rules, entries }))
    }
}

/// Visits everything on the spot.
struct Sequential<'a> {
    lens: Lens,
    visit: &'a mut dyn FnMut(&Found<'_>) -> Flow,
}

impl Visitor for Sequential<'_> {
    fn directory(&mut self, found: &Found<'_>) -> Flow {
        (self.visit)(found)
    }

    fn other(&mut self, level: &Arc<Level>, index: usize) -> Flow {
        self.lens.find(level, index).map_or(Flow::Go, |found| (self.visit)(&found))
    }
}

#[cfg(test)]
mod tests;
