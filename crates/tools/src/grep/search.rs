//! The search through a tree, file by file.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Instant;

use grep_matcher::LineTerminator;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkFinish, SinkMatch};
use playhouse_workspace::door::{self, Kind};
use playhouse_workspace::{Resolved, Workspace};
use tokio_util::sync::CancellationToken;

use crate::files;
use crate::files::document::cut_characters;
use crate::files::pattern::Patterns;
use crate::files::walk::{Flow, Limits, Outcome, Walk};
use crate::files::{directory, shown_below};
use crate::tool::ToolError;

/// Lines that are shown.
const SHOWN: usize = 100;

/// Characters of a line that are shown.
const LINE: usize = 500;

/// Bytes of the result, below the cap on all outputs.
const BYTES: usize = 45 * 1024;

/// The longest line that is searched, in bytes: a line has to be in memory as a whole.
const LONGEST: usize = 16 * 1024 * 1024;

/// What is searched for, and where.
pub(super) struct Search {
    pub(super) place: Resolved,
    pub(super) matcher: RegexMatcher,
    pub(super) include: Option<Patterns>,
    pub(super) limits: Limits,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Each file's path, its lines below, an empty line between files.
    pub(super) text: String,
    /// Lines that are shown.
    pub(super) matches: usize,
    /// Files that they are in.
    pub(super) files: usize,
    /// Whether there are more lines.
    pub(super) more: bool,
    /// Files that were searched.
    pub(super) searched: usize,
    /// Files that could not be.
    pub(super) unsearchable: usize,
    /// What may be missing for another reason; empty when nothing is.
    pub(super) shortfall: String,
}

impl Search {
    /// Searches the file or the tree.
    pub(super) fn run(&self, workspace: &Workspace, cancel: &CancellationToken) -> Result<Tally, ToolError> {
        let watch = Watch { cancel, deadline: Instant::now() + self.limits.time };
        let mut searcher = SearcherBuilder::new()
            .line_terminator(LineTerminator::crlf())
            .line_number(true)
            .binary_detection(BinaryDetection::quit(0))
            .memory_map(MmapChoice::never())
            .heap_limit(Some(LONGEST))
            .build();
        let mut tally = Tally::default();
        if door::facts(&self.place)?.is_none_or(|facts| facts.kind != Kind::Directory) {
            let file = door::open_read(&self.place)?;
            self.search(&mut searcher, file, &self.place.shown, &mut tally, &watch);
        } else {
            self.walk(workspace, &mut searcher, &mut tally, &watch)?;
        }
        if cancel.is_cancelled() {
            return Err(files::cancelled());
        }
        Ok(tally)
    }

    fn walk(
        &self,
        workspace: &Workspace,
        searcher: &mut Searcher,
        tally: &mut Tally,
        watch: &Watch<'_>,
    ) -> Result<(), ToolError> {
        let start = files::start(workspace, &self.place)?;
        let hidden = self.include.as_ref().is_some_and(Patterns::names_hidden);
        let walk = Walk { hidden, depth: usize::MAX, limits: self.limits, cancel: watch.cancel };
        let mut report = walk.run(start, &mut |found| {
            if found.kind != directory::Kind::File || !self.includes(found.path) {
                return Flow::Go;
            }
            let shown = shown_below(&self.place, found.path);
            match found.parent.open(found.name) {
                Ok(file) => self.search(searcher, file, &shown, tally, watch),
                Err(_) => tally.unsearchable += 1,
            }
            if tally.more || watch.is_over() { Flow::Stop } else { Flow::Go }
        });
        if report.outcome == Outcome::Stopped && !tally.more {
            report.outcome = Outcome::Time;
        }
        tally.shortfall = report.shortfall(&self.limits);
        Ok(())
    }

    fn includes(&self, path: &Path) -> bool {
        self.include.as_ref().is_none_or(|include| include.matches(path))
    }

    fn search(&self, searcher: &mut Searcher, file: File, shown: &str, tally: &mut Tally, watch: &Watch<'_>) {
        let mut lines = Lines {
            room: BYTES.saturating_sub(tally.text.len()),
            left: SHOWN - tally.matches,
            ..Lines::default()
        };
        let result = searcher.search_reader(&self.matcher, Watched { file, watch }, &mut lines);
        if result.is_err() && !watch.is_over() {
            tally.unsearchable += 1;
        } else if !lines.is_binary {
            tally.searched += 1;
        }
        if lines.is_binary || (lines.count == 0 && !lines.more) {
            return;
        }
        tally.more = lines.more;
        if lines.count == 0 {
            return;
        }
        if tally.files > 0 {
            tally.text.push('\n');
        }
        let _ = write!(tally.text, "{shown}\n{}", lines.text);
        tally.matches += lines.count;
        tally.files += 1;
    }
}

/// When a search must end.
struct Watch<'a> {
    cancel: &'a CancellationToken,
    deadline: Instant,
}

impl Watch<'_> {
    fn is_over(&self) -> bool {
        self.cancel.is_cancelled() || Instant::now() >= self.deadline
    }
}

/// A file that cannot be read further when the search must end.
struct Watched<'a> {
    file: File,
    watch: &'a Watch<'a>,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.watch.is_over() {
            return Err(io::Error::other("the search is over"));
        }
        self.file.read(buffer)
    }
}

/// The matching lines of one file.
#[derive(Debug, Default)]
struct Lines {
    text: String,
    count: usize,
    /// Lines that may still be shown.
    left: usize,
    /// Bytes that may still be used.
    room: usize,
    more: bool,
    is_binary: bool,
}

impl Sink for Lines {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        if self.count == self.left || self.text.len() >= self.room {
            self.more = true;
            return Ok(false);
        }
        let bytes = found.bytes().trim_ascii_end();
        let line = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * LINE + 4)]);
        let (shown, cut) = cut_characters(&line, LINE);
        let number = found.line_number().unwrap_or_default();
        let _ = writeln!(self.text, "{number}\t{shown}{}", if cut { "… (line cut)" } else { "" });
        self.count += 1;
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> io::Result<bool> {
        self.is_binary = true;
        Ok(false)
    }

    fn finish(&mut self, _: &Searcher, finish: &SinkFinish) -> io::Result<()> {
        self.is_binary |= finish.binary_byte_offset().is_some();
        Ok(())
    }
}
