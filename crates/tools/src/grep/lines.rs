//! Matching lines with all that is known of them: for programs, which show them in a way of their own.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use grep_matcher::Matcher as _;
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink, SinkFinish, SinkMatch};
use playhouse_workspace::Workspace;
use tokio_util::sync::CancellationToken;

use super::compile;
use super::search::{Watch, Watched, searcher};
use crate::files::sweep::{Work, sweep};
use crate::files::walk::{Flow, Found, Limits, Walk};
use crate::files::{self, directory};
use crate::tool::ToolError;

/// Bytes of a line that are told.
const LINE: usize = 2_000;
/// Matches within a line that are told.
const MATCHES: usize = 100;

/// A line that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLine {
    /// The file, from the workspace on.
    pub path: String,
    /// The line with its end, of a long one the beginning.
    pub text: String,
    /// Its number; the first one is 1.
    pub number: u64,
    /// Bytes of the file before it.
    pub offset: u64,
    /// Where the matches are in `text`: from this byte, to before that one. Those behind what is told of it are left out.
    pub matches: Vec<(usize, usize)>,
}

/// The first lines in the workspace that match `pattern`, at most `most` of them, in the order of paths. What is ignored is left
/// out, as are files that are no text; names that begin with a dot are looked at, but for `.git`. After `time` it is what was
/// found until then. Blocks.
///
/// # Errors
/// The pattern is no usable regular expression, or the workspace cannot be read, or the search was cancelled.
pub fn find_lines(
    workspace: &Workspace,
    pattern: &str,
    most: usize,
    time: Duration,
    cancel: &CancellationToken,
) -> Result<Vec<FoundLine>, ToolError> {
    let matcher = compile(pattern)?;
    let place = workspace.resolve(".").map_err(|error| ToolError::Failed(error.to_string()))?;
    let start = files::start(workspace, &place)?;
    let limits = Limits { time, ..Limits::default() };
    let walk = Walk { hidden: true, depth: usize::MAX, limits, cancel };
    let watch = Watch { cancel, deadline: Instant::now() + time };
    let gather = Gather { matcher, watch, most, found: AtomicUsize::new(0) };
    let mut lines = Vec::new();
    sweep(&walk, start, &gather, &mut |batch: Vec<FoundLine>| {
        lines.extend(batch);
        if lines.len() < most { Flow::Go } else { Flow::Stop }
    });
    if cancel.is_cancelled() {
        return Err(files::cancelled());
    }
    lines.truncate(most);
    Ok(lines)
}

/// A search that runs.
struct Gather<'a> {
    matcher: RegexMatcher,
    watch: Watch<'a>,
    most: usize,
    /// Lines that were found so far, anywhere.
    found: AtomicUsize,
}

impl Work for Gather<'_> {
    type Hand = Searcher;
    type Batch = Vec<FoundLine>;

    fn hand(&self) -> Searcher {
        searcher()
    }

    fn visit(&self, searcher: &mut Searcher, batch: &mut Vec<FoundLine>, found: &Found<'_>) {
        if found.kind != directory::Kind::File {
            return;
        }
        let Ok(file) = found.parent.open(found.name) else { return };
        let lines = self.search(searcher, file, &found.path.to_string_lossy());
        self.found.fetch_add(lines.len(), Ordering::Relaxed);
        batch.extend(lines);
    }

    fn has_enough(&self) -> bool {
        self.found.load(Ordering::Relaxed) >= self.most
    }
}

impl Gather<'_> {
    fn search(&self, searcher: &mut Searcher, file: File, path: &str) -> Vec<FoundLine> {
        let mut lines =
            Lines { matcher: &self.matcher, path, most: self.most, found: Vec::new(), is_binary: false };
        // A file that cannot be read to its end is told up to there.
        let _ = searcher.search_reader(&self.matcher, Watched { file, watch: &self.watch }, &mut lines);
        if lines.is_binary { Vec::new() } else { lines.found }
    }
}

/// The matching lines of one file.
struct Lines<'a> {
    matcher: &'a RegexMatcher,
    path: &'a str,
    most: usize,
    found: Vec<FoundLine>,
    is_binary: bool,
}

impl Sink for Lines<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        let line = found.bytes();
        let line = match std::str::from_utf8(&line[..line.len().min(LINE)]) {
            // A character that was cut through.
            Err(error) if line.len() > LINE && error.error_len().is_none() => &line[..error.valid_up_to()],
            _ => &line[..line.len().min(LINE)],
        };
        let mut matches = Vec::new();
        self.matcher
            .find_iter(line, |place| {
                matches.push((place.start(), place.end()));
                matches.len() < MATCHES
            })
            .map_err(io::Error::other)?;
        self.found.push(FoundLine {
            path: self.path.to_owned(),
            text: String::from_utf8_lossy(line).into_owned(),
            number: found.line_number().unwrap_or_default(),
            offset: found.absolute_byte_offset(),
            matches,
        });
        Ok(self.found.len() < self.most)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_with_their_places() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &[u8]| {
            let path = folder.path().join(path);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(path, text).unwrap();
        };
        write("a/one.txt", "first\nné foo and foo\r\n".as_bytes());
        write("b.txt", b"foo\n");
        write(".hidden", b"foo");
        write("binary", b"foo\0foo\n");
        write("skipped.log", b"foo\n");
        write(".ignore", b"*.log\n");
        write(".git/config", b"foo\n");
        write("keys/secret", b"foo\n");
        let long = format!("{}é foo\n", "x".repeat(LINE - 1));
        write("long.txt", long.as_bytes());
        let opened = Workspace::open(folder.path(), folder.path().with_extension("outputs")).unwrap();
        let workspace = opened.hiding(vec![folder.path().join("keys")]);
        let find = |pattern: &str, most| {
            find_lines(&workspace, pattern, most, Duration::from_secs(20), &CancellationToken::new())
        };
        let lines = find("fo+", 100).unwrap();
        let paths: Vec<&str> = lines.iter().map(|line| line.path.as_str()).collect();
        assert_eq!(paths, [".hidden", "a/one.txt", "b.txt", "long.txt"]);
        let line = &lines[1];
        assert_eq!((line.number, line.offset, line.text.as_str()), (2, 6, "né foo and foo\r\n"));
        assert_eq!(line.matches, [(4, 7), (12, 15)]);
        assert_eq!(
            (lines[3].text.len(), lines[3].matches.len()),
            (LINE - 1, 0),
            "it is cut before the match"
        );
        assert_eq!(find("foo", 2).unwrap(), lines[..2]);
        assert!(find("(", 1).unwrap_err().to_string().contains("regular expression"));
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        assert!(find_lines(&workspace, "foo", 9, Duration::from_secs(20), &cancelled).is_err());
        assert!(
            find_lines(&workspace, "foo", 9, Duration::ZERO, &CancellationToken::new()).unwrap().is_empty()
        );
    }
}
