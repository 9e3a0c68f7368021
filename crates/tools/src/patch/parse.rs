//! Reading a patch.

use super::{Action, Hunk, Line, Patch, Section, Sign};

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const ADD: &str = "*** Add File:";
const DELETE: &str = "*** Delete File:";
/// How a section begins that updates a file.
pub(crate) const UPDATE: &str = "*** Update File:";
/// How the line begins that says where such a file is moved to.
pub(crate) const MOVE: &str = "*** Move to:";
const END_OF_FILE: &str = "*** End of File";

/// Characters of a line that an error shows.
const SHOWN: usize = 120;

/// Reads a patch. White space and a here-document or a code fence around it do not matter.
///
/// # Errors
/// What is wrong, in which line, and what should stand there.
pub(crate) fn parse(text: &str) -> Result<Patch, String> {
    let mut reader = Reader::of(text)?;
    let mut sections = Vec::new();
    loop {
        let Some((number, line)) = reader.next() else {
            return Err(format!(
                "the patch has no \"{END}\" line, so it may have been cut off: write it again"
            ));
        };
        let header = line.trim();
        if header.is_empty() {
            continue;
        }
        if header == END {
            break;
        }
        sections.push(reader.section(number, header)?);
    }
    reader.end()?;
    if sections.is_empty() {
        return Err(format!(
            "the patch is empty: between \"{BEGIN}\" and \"{END}\" it needs sections such as \"{UPDATE} path\""
        ));
    }
    Ok(Patch { sections })
}

/// The lines of a patch, and how far it was read.
struct Reader<'a> {
    lines: Vec<&'a str>,
    /// Lines that were read.
    at: usize,
    /// What is wrapped around the patch ends with these lines.
    closing: Vec<&'a str>,
}

impl<'a> Reader<'a> {
    /// After the line that begins the patch.
    fn of(text: &'a str) -> Result<Self, String> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut reader = Self { lines: text.split('\n').collect(), at: 0, closing: Vec::new() };
        while let Some((number, line)) = reader.next() {
            let content = line.trim();
            if content == BEGIN {
                // Written with the line endings of Windows throughout: they belong to the patch, not to the files.
                if line.ends_with('\r') {
                    for line in &mut reader.lines {
                        *line = line.strip_suffix('\r').unwrap_or(line);
                    }
                }
                return Ok(reader);
            }
            match wrapper(content) {
                Some(closing) => reader.closing.push(closing),
                None if content.is_empty() => {}
                None => return Err(misplaced(number, line, &format!("a patch begins with \"{BEGIN}\""))),
            }
        }
        Err(format!("there is no patch: it begins with a line \"{BEGIN}\" and ends with a line \"{END}\""))
    }

    fn next(&mut self) -> Option<(usize, &'a str)> {
        let line = self.peek()?;
        self.at += 1;
        Some((self.at, line))
    }

    fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.at).copied()
    }

    /// Nothing may follow but what closes the wrapping.
    fn end(&mut self) -> Result<(), String> {
        while let Some((number, line)) = self.next() {
            let content = line.trim();
            if self.closing.last() == Some(&content) {
                self.closing.pop();
            } else if !content.is_empty() {
                return Err(misplaced(number, line, &format!("nothing may follow \"{END}\"")));
            }
        }
        Ok(())
    }

    fn section(&mut self, number: usize, header: &str) -> Result<Section, String> {
        let path = |path: &str| match path.trim() {
            "" => Err(format!("line {number} of the patch names no file: write the path after \"{header}\"")),
            path => Ok(path.to_owned()),
        };
        if let Some(name) = header.strip_prefix(ADD) {
            return Ok(Section { path: path(name)?, action: Action::Add(self.content()?) });
        }
        if let Some(name) = header.strip_prefix(DELETE) {
            return Ok(Section { path: path(name)?, action: Action::Delete });
        }
        if let Some(name) = header.strip_prefix(UPDATE) {
            let name = path(name)?;
            let to = match self.peek().and_then(|line| line.trim().strip_prefix(MOVE)) {
                Some(target) => {
                    self.at += 1;
                    Some(path(target)?)
                }
                None => None,
            };
            let hunks = self.hunks()?;
            if hunks.is_empty() && to.is_none() {
                return Err(format!(
                    "the section \"{UPDATE} {name}\" (line {number} of the patch) has no hunk: write \"@@\", and lines that begin with \" \", \"-\" or \"+\""
                ));
            }
            return Ok(Section { path: name, action: Action::Update { hunks, to } });
        }
        let sections =
            format!("\"{ADD} path\", \"{DELETE} path\", \"{UPDATE} path\" or \"{END}\" must stand here");
        Err(misplaced(number, header, &sections))
    }

    /// The content of an added file.
    fn content(&mut self) -> Result<String, String> {
        let mut content = String::new();
        let mut empty = 0;
        let mut ended = true;
        while let Some(line) = self.peek() {
            if let Some(text) = line.strip_prefix('+') {
                // Between lines with a sign, an empty one is a line that lost its sign.
                content.extend(std::iter::repeat_n('\n', empty));
                content.push_str(text);
                content.push('\n');
                (empty, ended) = (0, true);
            } else if line.trim().is_empty() {
                empty += 1;
            } else if is_no_newline(line) {
                ended = false;
            } else if line.trim_end() != END_OF_FILE {
                if line.trim_start().starts_with("***") {
                    break;
                }
                return Err(misplaced(self.at + 1, line, "each line of an added file begins with \"+\""));
            }
            self.at += 1;
        }
        if !ended {
            content.pop();
        }
        Ok(content)
    }

    /// The hunks of an updated file.
    fn hunks(&mut self) -> Result<Vec<Hunk>, String> {
        let mut hunks = Hunks::default();
        while let Some(line) = self.peek() {
            let number = self.at + 1;
            if let Some(context) = line.strip_prefix("@@") {
                hunks.context(number, context)?;
            } else if line.trim_end() == END_OF_FILE {
                hunks.end_of_file(number, line)?;
            } else if line.starts_with("***") {
                break;
            } else if is_no_newline(line) {
                hunks.no_newline();
            } else if let Some(line) = signed(line) {
                hunks.line(number, line)?;
            } else if line.trim().is_empty() {
                hunks.unsigned_line();
            } else {
                let rule = "each line of a hunk begins with \" \" (stays), \"-\" (goes) or \"+\" (is new)";
                return Err(misplaced(number, line, rule));
            }
            self.at += 1;
        }
        hunks.close()?;
        Ok(hunks.done)
    }
}

/// Hunks as they are read.
#[derive(Default)]
struct Hunks {
    done: Vec<Hunk>,
    open: Option<Hunk>,
    /// Lines without a sign at the end of the open one.
    unsigned: usize,
}

impl Hunks {
    fn context(&mut self, number: usize, context: &str) -> Result<(), String> {
        self.drop_unsigned();
        if self.open.as_ref().is_some_and(|hunk| !hunk.lines.is_empty()) {
            self.close()?;
        }
        let hunk = self.open.get_or_insert_with(|| Hunk { number, ..Hunk::default() });
        hunk.contexts.extend(context_of(context).map(str::to_owned));
        Ok(())
    }

    fn line(&mut self, number: usize, line: Line) -> Result<(), String> {
        if self.open.is_none() && self.done.last().is_some_and(|last| last.at_end) {
            let rule = format!("after \"{END_OF_FILE}\" a hunk begins with \"@@\"");
            return Err(misplaced(number, &line.text, &rule));
        }
        self.unsigned = 0;
        self.open.get_or_insert_with(|| Hunk { number, ..Hunk::default() }).lines.push(line);
        Ok(())
    }

    /// An empty line is one of the file, unless it turns out to end the hunk.
    fn unsigned_line(&mut self) {
        if let Some(hunk) = &mut self.open {
            hunk.lines.push(Line { sign: Sign::Kept, text: String::new() });
            self.unsigned += 1;
        }
    }

    fn drop_unsigned(&mut self) {
        if let Some(hunk) = &mut self.open {
            hunk.lines.truncate(hunk.lines.len() - self.unsigned);
        }
        self.unsigned = 0;
    }

    fn no_newline(&mut self) {
        let Some(hunk) = &mut self.open else { return };
        hunk.ending = match hunk.lines.last().map(|line| line.sign) {
            Some(Sign::Removed) => Some(true),
            Some(Sign::Kept | Sign::Added) => Some(false),
            None => hunk.ending,
        };
    }

    fn end_of_file(&mut self, number: usize, line: &str) -> Result<(), String> {
        // Here, empty lines before it may well be the last ones of the file.
        self.unsigned = 0;
        match &mut self.open {
            Some(hunk) => hunk.at_end = true,
            None => return Err(misplaced(number, line, "it stands after the lines of a hunk")),
        }
        self.close()
    }

    fn close(&mut self) -> Result<(), String> {
        self.drop_unsigned();
        let Some(hunk) = self.open.take() else { return Ok(()) };
        if hunk.lines.is_empty() {
            return Err(format!(
                "the hunk in line {} of the patch is empty: lines that begin with \" \", \"-\" or \"+\" must follow its \"@@\"",
                hunk.number
            ));
        }
        self.done.push(hunk);
        Ok(())
    }
}

fn signed(line: &str) -> Option<Line> {
    let sign = match line.as_bytes().first()? {
        b' ' => Sign::Kept,
        b'-' => Sign::Removed,
        b'+' => Sign::Added,
        _ => return None,
    };
    Some(Line { sign, text: line[1..].to_owned() })
}

/// What diffs write where a file does not end in a line ending.
fn is_no_newline(line: &str) -> bool {
    line.starts_with("\\ No newline")
}

/// The line of the file that follows `@@`, if there is one. Line numbers, as diffs have them there, say nothing that can
/// be relied on.
fn context_of(written: &str) -> Option<&str> {
    let written = written.trim_end();
    let written = written.strip_prefix(' ').unwrap_or(written);
    if is_span(written) {
        return None;
    }
    let written = written.strip_suffix("@@").map_or(written, str::trim_end);
    (!written.trim().is_empty()).then_some(written)
}

/// `-1,2 +3,4 @@`, and whatever follows it.
fn is_span(written: &str) -> bool {
    let numbers = |text: &str, sign: char| {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.strip_prefix(sign).is_some_and(|text| text.split(',').take(3).all(digits))
    };
    let mut words = written.split_ascii_whitespace();
    let mut word = || words.next().unwrap_or_default();
    numbers(word(), '-') && numbers(word(), '+') && matches!(word(), "@@" | "")
}

/// The line that ends what `line` begins: a here-document, or a code fence.
fn wrapper(line: &str) -> Option<&str> {
    if line.starts_with("```") {
        return Some("```");
    }
    let word = line.strip_prefix("apply_patch").unwrap_or(line).trim_start().strip_prefix("<<")?;
    let word = word.strip_prefix('-').unwrap_or(word).trim();
    let bare = ['\'', '"'].into_iter().find_map(|quote| word.strip_prefix(quote)?.strip_suffix(quote));
    let bare = bare.unwrap_or(word);
    (!bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
        .then_some(bare)
}

fn misplaced(number: usize, line: &str, rule: &str) -> String {
    let line = line.trim_end();
    let (shown, cut) = crate::files::document::cut_characters(line, SHOWN);
    let dots = if cut { "…" } else { "" };
    format!("line {number} of the patch, \"{shown}{dots}\", does not fit: {rule}")
}
