//! Files that are attached to a prompt. What is attached to it in the end is the engine's to say; what it would refuse is
//! named here before there is an engine.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use playhouse_protocol::message::Attachment;
use playhouse_tools::media::{Given, LARGEST_SOURCE, given};

use super::Failure;
use super::reach::Reach;

/// A file that was read.
pub(super) struct Read {
    mime: &'static str,
    name: String,
    content: Bytes,
}

/// Reads the files that are attached.
pub(super) fn read(files: &[PathBuf]) -> Result<Vec<Read>, Failure> {
    files.iter().map(|path| read_file(path)).collect()
}

fn read_file(path: &Path) -> Result<Read, Failure> {
    let shown = path.display();
    let unreadable = |error: std::io::Error| {
        let why = match error.kind() {
            std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
            _ => error.to_string(),
        };
        Failure::usage(format!("cannot attach {shown}: {why}"))
    };
    let facts = fs_err::metadata(path).map_err(unreadable)?;
    if !facts.is_file() {
        return Err(Failure::usage(format!("cannot attach {shown}: it is not a file")));
    }
    if facts.len() > LARGEST_SOURCE {
        let size = facts.len();
        return Err(Failure::usage(format!(
            "cannot attach {shown}: it has {size} bytes, more than {LARGEST_SOURCE}"
        )));
    }
    let content = fs_err::read(path).map_err(unreadable)?;
    let fitted = given(content.into());
    match fitted.map_err(|error| Failure::usage(format!("cannot attach {shown}: it {error}")))? {
        // Where a text is from says more than its name.
        Given::Text(content) => Ok(Read { mime: "text/plain", name: shown.to_string(), content }),
        Given::Media(fitted) => {
            let name =
                path.file_name().map_or_else(|| shown.to_string(), |name| name.to_string_lossy().into());
            Ok(Read { mime: fitted.kind.mime(), name, content: fitted.content })
        }
    }
}

/// Stores them in the engine.
pub(super) async fn store(reach: &Reach, tenant: &str, files: Vec<Read>) -> Result<Vec<Attachment>, Failure> {
    let mut stored = Vec::with_capacity(files.len());
    for Read { mime, name, content } in files {
        stored.push(Attachment::new(mime, name, reach.store_blob(tenant, content).await?));
    }
    Ok(stored)
}
