//! `read`: lines of a file, the names in a directory, an image or a PDF.

mod listing;
mod media;
mod page;
mod rules;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufReader, Cursor, ErrorKind, Read as _};

use playhouse_policy::AccessKind;
use playhouse_workspace::door::{self, DoorError, Kind};
use playhouse_workspace::{Reader, Resolved, Workspace, hash, would_wait, would_wait_for};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Map;
use tokio_util::sync::CancellationToken;

use crate::files::document::{self, Content};
use crate::files::encoding::{Decoded, Encoding};
use crate::files::{self, neighbours, seen};
use crate::media::Kind as MediaKind;
use crate::tool::{CallContext, Risk, ToolError, ToolOutput};
use crate::typed::{Ready, TypedTool};
use page::{End, Page};

/// Lines that are shown, unless the call asks for fewer.
const LIMIT: u64 = 2_000;

/// Room behind a whole file: where there is less, its end is looked for with several small reads.
const SPARE: usize = 64;

/// The arguments of `read`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Arguments {
    file_path: String,
    #[serde(default)]
    offset: Option<u64>,
    #[serde(default)]
    limit: Option<u64>,
}

/// The tool.
#[derive(Debug, Default)]
pub struct Read;

/// What a call reads.
#[derive(Clone, Debug)]
pub struct Task {
    place: Resolved,
    offset: u64,
    limit: u64,
}

impl TypedTool for Read {
    const NAME: &'static str = "read";
    const DESCRIPTION: &'static str = include_str!("../../../prompts/tools/read.md");
    const RISK: Risk = Risk::Safe;
    const IS_BRIEF: bool = true;
    type Arguments = Arguments;
    type Task = Task;

    async fn prepare(&self, arguments: Arguments, context: &CallContext) -> Result<Ready<Task>, ToolError> {
        let limit = arguments.limit.unwrap_or(LIMIT).min(LIMIT);
        if limit == 0 {
            return Err(ToolError::Invalid("limit is 0: ask for at least 1 line".into()));
        }
        // Counting from 0 is a common slip, and what is meant is clear.
        let offset = arguments.offset.unwrap_or(1).max(1);
        let place = files::resolve(context, &arguments.file_path).await?;
        Ok(Ready::looking(
            vec![place.access(AccessKind::Read)],
            place.shown.clone(),
            Task { place, offset, limit },
        ))
    }

    async fn execute(&self, task: Task, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let (workspace, cancel) = (context.workspace.clone(), context.cancel.clone());
        let place = task.place.clone();
        let mut output = files::brief(context, move || task.run(&workspace, &cancel)).await?;
        rules::add(&place, &mut output, context).await;
        Ok(output)
    }
}

impl Task {
    fn run(&self, workspace: &Workspace, cancel: &CancellationToken) -> Result<ToolOutput, ToolError> {
        match door::find(&self.place)? {
            Some(found) if found.kind() != Kind::Directory => {
                // The door says what is wrong with everything that is not a file.
                self.read(&found.open_read()?, cancel)
            }
            // Not at once.
            _ if would_wait() => Err(files::cancelled()),
            Some(_) => listing::list(&self.place, self.offset, self.limit, cancel),
            None => Err(ToolError::Failed(neighbours::missing(workspace, &self.place))),
        }
    }

    fn read(&self, file: &File, cancel: &CancellationToken) -> Result<ToolOutput, ToolError> {
        let failed = |source| ToolError::from(DoorError::Io { path: self.place.shown.clone(), source });
        let metadata = file.metadata().map_err(failed)?;
        if would_wait_for(metadata.len()) {
            return Err(files::cancelled());
        }
        let is_small = metadata.len() <= seen::WHOLE;
        let room = if is_small { metadata.len() } else { document::SAMPLE as u64 };
        let mut head = Vec::with_capacity(usize::try_from(room).unwrap_or_default() + SPARE);
        let mut content = Reader(file);
        content.by_ref().take(document::SAMPLE as u64).read_to_end(&mut head).map_err(failed)?;
        if let Some(kind) = MediaKind::of(&head) {
            // Images are made smaller.
            if would_wait() {
                return Err(files::cancelled());
            }
            return media::attach(&self.place, kind, head, file, metadata.len());
        }
        let encoding = Encoding::of(&head);
        if document::classify(&encoding.decode_sample(&head)) == Content::Binary {
            return Err(ToolError::Failed(format!(
                "{} is a binary file ({}). read shows text, images (PNG, JPEG, GIF, WebP) and PDF; look into others with bash (file, strings, xxd | head), and convert other encodings than UTF-8 and UTF-16 with iconv",
                self.place.shown,
                files::size(metadata.len())
            )));
        }
        let broken = || seen::broken(&self.place, encoding);
        let is_cancelled = || cancel.is_cancelled();
        let mut total = None;
        let (content, page) = if is_small {
            if head.len() >= document::SAMPLE {
                content.take(seen::WHOLE).read_to_end(&mut head).map_err(failed)?;
            }
            let content = hash(&head);
            let text = match encoding {
                Encoding::Utf8 => head,
                _ => encoding.decode(&head).ok_or_else(broken)?.into_owned(),
            };
            total = Some(document::line_count(&text) as u64);
            (content, page::page(Cursor::new(text), self.offset, self.limit, &is_cancelled))
        } else {
            let whole = Decoded::new(Cursor::new(head).chain(file), encoding);
            let whole = BufReader::with_capacity(64 * 1024, whole);
            (seen::fingerprint(&metadata), page::page(whole, self.offset, self.limit, &is_cancelled))
        };
        let page = page.map_err(|error| match error.kind() {
            ErrorKind::InvalidData => broken(),
            _ => failed(error),
        })?;
        let mut output = self.output(page, total, metadata.len())?;
        if encoding != Encoding::Utf8 {
            let gap = if output.output.ends_with('\n') { "" } else { "\n" };
            let name = encoding.name();
            let _ = write!(output.output, "{gap}(the file is {name}, and stays so when it is changed)");
        }
        output.seen.push((self.place.path.clone(), content));
        Ok(output)
    }

    fn output(&self, page: Page, total: Option<u64>, bytes: u64) -> Result<ToolOutput, ToolError> {
        let shown = &self.place.shown;
        let last = self.offset + page.lines.saturating_sub(1);
        let of = total.map_or_else(|| format!("a file of {}", files::size(bytes)), |lines| lines.to_string());
        let next = last + 1;
        let note = match page.end {
            End::Cancelled => return Err(files::cancelled()),
            End::TooFar { lines } => {
                return Err(ToolError::Failed(format!(
                    "{shown} ({}) has only {lines} lines in its first {}, and line {} is not looked for further on: use bash (sed -n '{},{}p', tail) for it",
                    files::size(bytes),
                    files::size(page::FAR),
                    self.offset,
                    self.offset,
                    self.offset.saturating_add(self.limit - 1)
                )));
            }
            End::File { lines: 0 } if self.offset == 1 => format!("({shown} is empty)"),
            End::File { lines } if page.lines == 0 => {
                return Err(ToolError::Failed(format!(
                    "offset {} is past the end of {shown}, which has {}",
                    self.offset,
                    files::counted(usize::try_from(lines).unwrap_or(usize::MAX), "line")
                )));
            }
            End::File { .. } if self.offset == 1 => String::new(),
            End::File { lines } => format!("(lines {}-{last} of {lines}, the end of the file)", self.offset),
            End::Lines | End::Bytes => {
                format!("(lines {}-{last} of {of}; read on with offset {next})", self.offset)
            }
            End::LongLine => format!(
                "(lines {}-{last} of {of}; line {last} is over 1 MB long and was not read to its end: use bash (cut -c, head -c) for it)",
                self.offset
            ),
        };
        let mut output = page.text;
        if page.lossy {
            output.push_str("(the file is not UTF-8: what could not be read is shown as \u{fffd}, and edit can only match text without it)\n");
        }
        output.push_str(&note);
        let mut metadata = Map::new();
        metadata.insert("filePath".into(), self.place.path.to_string_lossy().into());
        metadata.insert("lines".into(), page.lines.into());
        metadata.insert("linesCut".into(), page.cut.into());
        metadata.insert("complete".into(), matches!(page.end, End::File { .. }).into());
        Ok(ToolOutput { title: shown.clone(), output, metadata, ..ToolOutput::default() })
    }
}
