//! The files of a directory.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use playhouse_actors::{FoundLine, FoundPath, Listed, Outlook, Reach};
use serde::Deserialize;

use crate::native::sessions::blocking;
use crate::problem::{Kind, Problem};
use crate::wire::asked::Asked;
use crate::wire::failure::Named;
use crate::wire::place::Place;
use crate::wire::shapes::{FileContent, FileNode, FoundText, Submatch, Text};

/// The largest file that is shown, in bytes.
const LARGEST: u64 = 5 * 1024 * 1024;
/// The most entries of a directory that are listed.
const MOST_ENTRIES: usize = 10_000;
/// The most files that are looked at for a search.
const MOST_WALKED: usize = 100_000;
/// What a search finds, where it says no limit, and at most.
const USUAL_FOUND: usize = 100;
const MOST_FOUND: usize = 1_000;
/// What a search for text finds at most, and how long it looks.
const MOST_LINES: usize = 100;
const LONGEST_SEARCH: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
struct PathSearch {
    path: String,
}

/// The directory that is asked about, to be looked at.
pub(super) async fn outlook(asked: &Asked) -> Result<(Arc<Place>, Outlook), Problem> {
    let (place, app) = (asked.place().await?, asked.app.clone());
    let directory = Arc::clone(&place.directory);
    let outlook = blocking(move || app.engine().look(Path::new(&*directory))).await??;
    Ok((place, outlook))
}

/// What `written` (from the directory on) is, links resolved; it lies in the directory. Blocks.
fn inside(outlook: &Outlook, written: &str) -> Result<PathBuf, Problem> {
    outlook.place(written).ok_or_else(|| {
        let shown = written.chars().take(200).collect::<String>();
        Problem::invalid(format!("there is no \"{}\" in the directory", shown.escape_debug()))
    })
}

/// Does `work` on the query's `path`.
async fn at_path<T: Send + 'static>(
    asked: &Asked,
    work: impl FnOnce(&Outlook, &str) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Named> {
    let PathSearch { path } = asked.query()?;
    let (_, outlook) = outlook(asked).await?;
    Ok(blocking(move || work(&outlook, &path)).await??)
}

/// `GET /file`: what a directory holds, directories first.
pub(crate) async fn list(asked: Asked) -> Result<Json<Vec<FileNode>>, Named> {
    let begin =
        |outlook: &Outlook, path: &str| inside(outlook, path).map(|_| (outlook.clone(), path.to_owned()));
    let (outlook, path) = at_path(&asked, begin).await?;
    let reach = Reach { hidden: true, depth: 1, most: MOST_WALKED, time: LONGEST_SEARCH };
    let kept = asked.app.engine().find_paths(outlook.clone(), path.clone(), reach).await?;
    let kept = kept.into_iter().map(|found| found.path).collect();
    Ok(Json(blocking(move || entries(&outlook, &path, &kept)).await??))
}

/// What the directory at `written` holds. All that is not among `kept`, from that directory on, is ignored.
fn entries(outlook: &Outlook, written: &str, kept: &HashSet<PathBuf>) -> Result<Vec<FileNode>, Problem> {
    inside(outlook, written)?;
    let mut nodes = Vec::new();
    for Listed { path, is_directory } in outlook.list(written, MOST_ENTRIES).map_err(Problem::invalid)? {
        let name = path.file_name().unwrap_or_default();
        let relative = path.strip_prefix(outlook.directory()).unwrap_or(&path);
        nodes.push(FileNode {
            name: name.to_string_lossy().into_owned(),
            path: relative.to_string_lossy().into_owned(),
            absolute: path.to_string_lossy().into_owned(),
            kind: if is_directory { "directory" } else { "file" },
            // No walk comes to it, and nothing says that it is ignored.
            ignored: name != ".git" && !kept.contains(Path::new(name)),
        });
    }
    nodes.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    Ok(nodes)
}

/// `GET /file/content`
pub(crate) async fn content(asked: Asked) -> Result<Json<FileContent>, Named> {
    Ok(Json(at_path(&asked, read).await?))
}

fn read(outlook: &Outlook, path: &str) -> Result<FileContent, Problem> {
    inside(outlook, path)?;
    let bytes = outlook.read(path, LARGEST).map_err(Problem::invalid)?;
    let too_large = || Problem::new(Kind::TooLarge, format!("the file is larger than {LARGEST} bytes"));
    let bytes = bytes.ok_or_else(too_large)?;
    let text = String::from_utf8(bytes).map_err(|error| error.into_bytes());
    Ok(match text {
        Ok(text) if !text.contains('\0') => {
            FileContent { kind: "text", content: text, encoding: None, mime: None }
        }
        bytes => {
            let bytes = bytes.map_or_else(|bytes| bytes, String::into_bytes);
            FileContent {
                kind: "binary",
                content: STANDARD.encode(bytes),
                encoding: Some("base64"),
                mime: Some(mime(Path::new(path)).to_owned()),
            }
        }
    })
}

/// What a file that is no text probably is.
fn mime(path: &Path) -> &'static str {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    match extension.as_deref() {
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("gif") => "image/gif",
        Some("webp") => "image/webp",
        Some("pdf") => "application/pdf",
        _ => "application/octet-stream",
    }
}

#[derive(Deserialize)]
struct TextSearch {
    pattern: String,
}

/// `GET /find`: the first lines that match a regular expression, in the order of paths.
pub(crate) async fn find_text(asked: Asked) -> Result<Json<Vec<FoundText>>, Named> {
    let TextSearch { pattern } = asked.query()?;
    let (_, outlook) = outlook(&asked).await?;
    let found = asked.app.engine().find_lines(outlook, pattern, MOST_LINES, LONGEST_SEARCH).await?;
    Ok(Json(found.into_iter().map(found_text).collect()))
}

fn found_text(line: FoundLine) -> FoundText {
    let submatch = |(start, end): &(usize, usize)| Submatch {
        found: Text { text: line.text.get(*start..*end).unwrap_or_default().to_owned() },
        start: *start,
        end: *end,
    };
    FoundText {
        submatches: line.matches.iter().map(submatch).collect(),
        path: Text { text: line.path },
        lines: Text { text: line.text },
        line_number: line.number,
        absolute_offset: line.offset,
    }
}

#[derive(Deserialize)]
struct FindSearch {
    query: String,
    dirs: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    limit: Option<f64>,
}

/// `GET /find/file`: paths that hold the letters of the query in their order, the best first.
pub(crate) async fn find(asked: Asked) -> Result<Json<Vec<String>>, Named> {
    let FindSearch { query, dirs, kind, limit } = asked.query()?;
    let (_, outlook) = outlook(&asked).await?;
    let (files, folders) = match kind.as_deref() {
        Some("file") => (true, false),
        Some("directory") => (false, true),
        _ => (true, dirs.as_deref() != Some("false")),
    };
    let limit = limit.map_or(USUAL_FOUND, |limit| limit.clamp(1.0, MOST_FOUND as f64) as usize);
    let reach = Reach { hidden: false, depth: usize::MAX, most: MOST_WALKED, time: LONGEST_SEARCH };
    let paths = asked.app.engine().find_paths(outlook, String::new(), reach).await?;
    Ok(Json(blocking(move || best(paths, &query, files, folders, limit)).await?))
}

/// The paths that fit a query best.
fn best(paths: Vec<FoundPath>, query: &str, files: bool, folders: bool, limit: usize) -> Vec<String> {
    let query = query.to_lowercase();
    let mut found = Vec::new();
    for FoundPath { path, is_directory } in paths {
        if !(if is_directory { folders } else { files }) {
            continue;
        }
        let mut path = path.to_string_lossy().into_owned();
        if is_directory {
            path.push('/');
        }
        if let Some(rank) = rank(&path.to_lowercase(), &query) {
            found.push((rank, path.len(), path));
        }
    }
    found.sort();
    found.truncate(limit);
    found.into_iter().map(|(.., path)| path).collect()
}

/// How well a path fits a query, both in lower case: the smaller the better.
fn rank(path: &str, query: &str) -> Option<u8> {
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or(path);
    if name.starts_with(query) {
        return Some(0);
    }
    if name.contains(query) {
        return Some(1);
    }
    if path.contains(query) {
        return Some(2);
    }
    let mut letters = path.chars();
    query.chars().all(|wanted| letters.any(|letter| letter == wanted)).then_some(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_before_paths_and_letters_in_order_count() {
        let ranks = ["main.rs", "src/domain.rs", "main/other.txt", "m-a-i-n.md", "nothing"]
            .map(|path| rank(path, "main"));
        assert_eq!(ranks, [Some(0), Some(1), Some(2), Some(3), None]);
    }
}
