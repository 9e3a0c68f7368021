//! The search through a tree, file by file.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use grep_matcher::LineTerminator;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkFinish, SinkMatch};
use playhouse_workspace::door::{self, Kind};
use playhouse_workspace::{Resolved, Workspace};
use tokio_util::sync::CancellationToken;

use crate::files::document::cut_characters;
use crate::files::pattern::Patterns;
use crate::files::sweep::{Work, sweep};
use crate::files::walk::{Flow, Found, Limits, Walk};
use crate::files::{self, directory, shown_below};
use crate::host::Showing;
use crate::tool::ToolError;

/// Lines that are shown.
pub(super) const SHOWN: usize = 100;

/// Lines of one file that are counted when there is no room to show them.
const COUNTED: usize = 1_000;

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
    /// How many more lines there are at least; none when all are shown.
    pub(super) more: usize,
    /// Files that were searched.
    pub(super) searched: usize,
    /// Files that could not be.
    pub(super) unsearchable: usize,
    /// Files that rules do not let be shown without asking.
    pub(super) withheld: usize,
    /// What may be missing for another reason; empty when nothing is.
    pub(super) shortfall: String,
}

impl Search {
    /// Searches the file or the tree.
    pub(super) fn run(
        &self,
        workspace: &Workspace,
        showing: &Showing,
        cancel: &CancellationToken,
    ) -> Result<Tally, ToolError> {
        let hunt = Hunt {
            search: self,
            showing,
            watch: Watch { cancel, deadline: Instant::now() + self.limits.time },
            lines: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        };
        let mut tally = Tally::default();
        if files::existing(workspace, &self.place)?.kind != Kind::Directory {
            let file = door::open_read(&self.place)?;
            let mut batch = Batch::default();
            hunt.search(&mut hunt.hand(), &mut batch, file, &|| self.place.shown.clone());
            tally.add(batch);
        } else {
            let start = files::start(workspace, &self.place)?;
            let hidden = self.include.as_ref().is_some_and(Patterns::names_hidden);
            let walk = Walk { hidden, depth: usize::MAX, limits: self.limits, cancel };
            let (report, _) = sweep(&walk, start, &hunt, &mut |batch| tally.add(batch));
            tally.shortfall = report.shortfall(&self.limits);
        }
        if cancel.is_cancelled() {
            return Err(files::cancelled());
        }
        Ok(tally)
    }
}

impl Tally {
    /// Adds what comes next in the order of paths. Stops when there is more than can be shown.
    fn add(&mut self, batch: Batch) -> Flow {
        self.searched += batch.searched;
        self.unsearchable += batch.unsearchable;
        self.withheld += batch.withheld;
        for file in batch.found {
            self.add_file(&file);
            if self.more > 0 {
                return Flow::Stop;
            }
        }
        Flow::Go
    }

    fn add_file(&mut self, file: &FileLines) {
        let mut shown = 0;
        for line in file.text.split_inclusive('\n') {
            if self.matches == SHOWN || self.text.len() >= BYTES {
                break;
            }
            if shown == 0 {
                let gap = if self.files > 0 { "\n" } else { "" };
                let _ = writeln!(self.text, "{gap}{}", file.path);
                self.files += 1;
            }
            self.text.push_str(line);
            self.matches += 1;
            shown += 1;
        }
        self.more = file.count - shown;
    }
}

/// What was found in some files.
#[derive(Debug, Default)]
struct Batch {
    found: Vec<FileLines>,
    searched: usize,
    unsearchable: usize,
    withheld: usize,
}

/// What was found in a file.
#[derive(Debug)]
struct FileLines {
    /// As it is shown.
    path: String,
    text: String,
    count: usize,
}

/// A search that runs.
struct Hunt<'a> {
    search: &'a Search,
    showing: &'a Showing,
    watch: Watch<'a>,
    /// Lines that were found so far, anywhere.
    lines: AtomicUsize,
    /// Their bytes.
    bytes: AtomicUsize,
}

impl Work for Hunt<'_> {
    type Hand = Searcher;
    type Batch = Batch;

    fn hand(&self) -> Searcher {
        searcher()
    }

    fn visit(&self, searcher: &mut Searcher, batch: &mut Batch, found: &Found<'_>) {
        if found.kind != directory::Kind::File || !self.includes(found.path) {
            return;
        }
        if !self.showing.allows(&shown_below(&self.search.place, found.path)) {
            batch.withheld += 1;
            return;
        }
        match found.parent.open(found.name) {
            Ok(file) => self.search(searcher, batch, file, &|| shown_below(&self.search.place, found.path)),
            Err(_) => batch.unsearchable += 1,
        }
    }

    fn has_enough(&self) -> bool {
        self.lines.load(Ordering::Relaxed) > SHOWN || self.bytes.load(Ordering::Relaxed) > 2 * BYTES
    }
}

impl Hunt<'_> {
    fn includes(&self, path: &Path) -> bool {
        self.search.include.as_ref().is_none_or(|include| include.matches(path))
    }

    fn search(&self, searcher: &mut Searcher, batch: &mut Batch, file: File, path: &dyn Fn() -> String) {
        let mut lines = Lines::default();
        let result =
            searcher.search_reader(&self.search.matcher, Watched { file, watch: &self.watch }, &mut lines);
        if result.is_err() && !self.watch.is_over() {
            batch.unsearchable += 1;
        } else if !lines.is_binary {
            batch.searched += 1;
        }
        if lines.is_binary || lines.count == 0 {
            return;
        }
        self.lines.fetch_add(lines.count, Ordering::Relaxed);
        self.bytes.fetch_add(lines.text.len(), Ordering::Relaxed);
        batch.found.push(FileLines { path: path(), text: lines.text, count: lines.count });
    }
}

/// Searches lines of text, one file after the other.
pub(super) fn searcher() -> Searcher {
    SearcherBuilder::new()
        .line_terminator(LineTerminator::crlf())
        .line_number(true)
        .binary_detection(BinaryDetection::quit(0))
        .memory_map(MmapChoice::never())
        .heap_limit(Some(LONGEST))
        .build()
}

/// When a search must end.
pub(super) struct Watch<'a> {
    pub(super) cancel: &'a CancellationToken,
    pub(super) deadline: Instant,
}

impl Watch<'_> {
    fn is_over(&self) -> bool {
        self.cancel.is_cancelled() || Instant::now() >= self.deadline
    }
}

/// A file that cannot be read further when the search must end.
pub(super) struct Watched<'a> {
    pub(super) file: File,
    pub(super) watch: &'a Watch<'a>,
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
    /// Those that may be shown.
    text: String,
    /// All of them, up to a point.
    count: usize,
    is_binary: bool,
}

impl Sink for Lines {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        self.count += 1;
        if self.count <= SHOWN && self.text.len() < BYTES {
            let bytes = found.bytes().trim_ascii_end();
            let line = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * LINE + 4)]);
            let (shown, cut) = cut_characters(&line, LINE);
            let number = found.line_number().unwrap_or_default();
            let _ = writeln!(self.text, "{number}\t{shown}{}", if cut { "… (line cut)" } else { "" });
        }
        Ok(self.count < SHOWN + COUNTED)
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
