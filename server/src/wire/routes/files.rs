//! The files of a directory.

use std::io::Read as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use axum::Json;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ignore::WalkBuilder;
use serde::Deserialize;

use crate::app::App;
use crate::native::sessions::blocking;
use crate::problem::{Kind, Problem};
use crate::wire::asked::Asked;
use crate::wire::failure::Named;
use crate::wire::place::Place;
use crate::wire::shapes::{FileContent, FileNode};

/// The largest file that is shown, in bytes.
const LARGEST: u64 = 5 * 1024 * 1024;
/// The most entries of a directory that are listed.
const MOST_ENTRIES: usize = 10_000;
/// The most files that are looked at for a search.
const MOST_WALKED: usize = 100_000;
/// What a search finds, where it says no limit, and at most.
const USUAL_FOUND: usize = 100;
const MOST_FOUND: usize = 1_000;

#[derive(Deserialize)]
struct PathSearch {
    path: String,
}

/// What `written` (from the directory on) is, links resolved; it lies in the directory and below a root. Blocks.
fn inside(app: &App, place: &Place, written: &str) -> Result<PathBuf, Problem> {
    let shown = || written.chars().take(200).collect::<String>().escape_debug().to_string();
    let missing = || Problem::invalid(format!("there is no \"{}\" in the directory", shown()));
    let relative = Path::new(written);
    // Clients name what is in the directory also by its whole path.
    let relative = relative.strip_prefix(&*place.directory).unwrap_or(relative);
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if !relative.components().all(plain) {
        return Err(missing());
    }
    let resolved =
        fs_err::canonicalize(Path::new(&*place.directory).join(relative)).map_err(|_| missing())?;
    if !resolved.starts_with(&*place.directory) || !app.roots().hold(&resolved) {
        return Err(missing());
    }
    Ok(resolved)
}

/// Does `work` on what the query's `path` is.
async fn at_path<T: Send + 'static>(
    asked: &Asked,
    work: impl FnOnce(&Place, &Path) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Named> {
    let PathSearch { path } = asked.query()?;
    let (place, app): (Arc<Place>, App) = (asked.place().await?, asked.app.clone());
    Ok(blocking(move || work(&place, &inside(&app, &place, &path)?)).await??)
}

/// `GET /file`: what a directory holds, directories first.
pub(crate) async fn list(asked: Asked) -> Result<Json<Vec<FileNode>>, Named> {
    Ok(Json(at_path(&asked, entries).await?))
}

fn entries(place: &Place, folder: &Path) -> Result<Vec<FileNode>, Problem> {
    let failed = |error: std::io::Error| Problem::invalid(error.to_string());
    let mut walk = WalkBuilder::new(folder);
    walk.max_depth(Some(1)).hidden(false).follow_links(false);
    // What the walk leaves out is ignored.
    let kept: Vec<PathBuf> = walk.build().flatten().map(ignore::DirEntry::into_path).collect();
    let mut nodes = Vec::new();
    for entry in fs_err::read_dir(folder).map_err(failed)?.flatten().take(MOST_ENTRIES) {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else { continue };
        let relative = path.strip_prefix(&*place.directory).unwrap_or(&path);
        nodes.push(FileNode {
            name: entry.file_name().to_string_lossy().into_owned(),
            path: relative.to_string_lossy().into_owned(),
            absolute: path.to_string_lossy().into_owned(),
            kind: if kind.is_dir() { "directory" } else { "file" },
            ignored: !kept.contains(&path),
        });
    }
    nodes.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    Ok(nodes)
}

/// `GET /file/content`
pub(crate) async fn content(asked: Asked) -> Result<Json<FileContent>, Named> {
    Ok(Json(at_path(&asked, |_, path| read(path)).await?))
}

fn read(path: &Path) -> Result<FileContent, Problem> {
    let failed = |error: std::io::Error| Problem::invalid(error.to_string());
    if !fs_err::metadata(path).map_err(failed)?.is_file() {
        return Err(Problem::invalid("it is no file"));
    }
    let mut bytes = Vec::new();
    fs_err::File::open(path).map_err(failed)?.take(LARGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LARGEST {
        return Err(Problem::new(Kind::TooLarge, format!("the file is larger than {LARGEST} bytes")));
    }
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
                mime: Some(mime(path).to_owned()),
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
    let place = asked.place().await?;
    let (files, folders) = match kind.as_deref() {
        Some("file") => (true, false),
        Some("directory") => (false, true),
        _ => (true, dirs.as_deref() != Some("false")),
    };
    let limit = limit.map_or(USUAL_FOUND, |limit| limit.clamp(1.0, MOST_FOUND as f64) as usize);
    let search = move || search(Path::new(&*place.directory), &query, files, folders, limit);
    Ok(Json(blocking(search).await?))
}

fn search(directory: &Path, query: &str, files: bool, folders: bool, limit: usize) -> Vec<String> {
    let query = query.to_lowercase();
    let mut found = Vec::new();
    for entry in WalkBuilder::new(directory).follow_links(false).build().flatten().take(MOST_WALKED) {
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        let Ok(relative) = entry.path().strip_prefix(directory) else { continue };
        if relative.as_os_str().is_empty() || !(if is_folder { folders } else { files }) {
            continue;
        }
        let mut path = relative.to_string_lossy().into_owned();
        if is_folder {
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
        let folder = tempfile::tempdir().unwrap();
        for path in ["src/main.rs", "src/domain/lib.rs", "main/other.txt", "target/main.o", "m-a-i-n.md"] {
            let path = folder.path().join(path);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(path, "x").unwrap();
        }
        fs_err::write(folder.path().join(".ignore"), "target\n").unwrap();
        let find = |query: &str, files, folders| search(folder.path(), query, files, folders, 3);
        assert_eq!(find("main", true, true), ["main/", "src/main.rs", "src/domain/"]);
        assert_eq!(find("MAIN", true, false), ["src/main.rs", "main/other.txt", "src/domain/lib.rs"]);
        assert_eq!(find("m-n", true, true), ["m-a-i-n.md"]);
        assert!(find("nothing-like-it", true, true).is_empty());
    }

    #[test]
    fn what_is_no_text_is_shown_in_base64() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.PNG");
        fs_err::write(&path, [0u8, 255, 1]).unwrap();
        let shown = read(&path).unwrap();
        assert_eq!(
            (shown.kind, shown.content.as_str(), shown.mime.as_deref()),
            ("binary", "AP8B", Some("image/png"))
        );
        fs_err::write(&path, "né\n").unwrap();
        assert_eq!(read(&path).unwrap().content, "né\n");
        assert!(read(folder.path()).is_err());
    }
}
