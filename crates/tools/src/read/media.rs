//! Images and documents.

use std::fs::File;
use std::io::Read as _;

use playhouse_workspace::door::DoorError;
use playhouse_workspace::{Resolved, hash};
use serde_json::Map;

use crate::files;
use crate::media::{self, Kind, MediaError};
use crate::tool::{NewAttachment, ToolError, ToolOutput};

/// Gives the file, of which `head` was read already, to the model, as it takes it.
pub(super) fn attach(
    place: &Resolved,
    kind: Kind,
    head: Vec<u8>,
    file: &File,
    length: u64,
) -> Result<ToolOutput, ToolError> {
    let failed = |error: MediaError| ToolError::Failed(format!("{} {error}", place.shown));
    if let Some(error) = MediaError::long(kind, length) {
        return Err(failed(error));
    }
    let mut content = head;
    // It may grow while it is read.
    let rest = file.take(kind.most() + 1).read_to_end(&mut content);
    rest.map_err(|source| DoorError::Io { path: place.shown.clone(), source })?;
    let seen = vec![(place.path.clone(), hash(&content))];
    let sent = media::fit(kind, content.into()).map_err(failed)?;
    let filename =
        place.path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let mime = sent.kind.mime();
    let mut metadata = Map::new();
    metadata.insert("filePath".into(), place.path.to_string_lossy().into());
    metadata.insert("mime".into(), mime.into());
    let (size, note) = (files::size(sent.content.len() as u64), sent.note());
    Ok(ToolOutput {
        title: place.shown.clone(),
        output: format!("{} ({mime}, {size}{note}) is attached", place.shown),
        metadata,
        attachments: vec![NewAttachment { mime: mime.to_owned(), filename, content: sent.content }],
        seen,
        ..ToolOutput::default()
    })
}
