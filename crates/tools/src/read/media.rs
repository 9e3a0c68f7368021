//! Images and documents, told by their first bytes.

use std::fs::File;
use std::io::Read as _;

use playhouse_workspace::door::DoorError;
use playhouse_workspace::{Resolved, hash};
use serde_json::Map;

use crate::files;
use crate::tool::{NewAttachment, ToolError, ToolOutput};

/// The largest attachment, in bytes.
const LARGEST: u64 = 5_000_000;

/// The media type of a file that begins with `head`, if models can be shown it.
pub(crate) fn kind(head: &[u8]) -> Option<&'static str> {
    match head {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        [b'%', b'P', b'D', b'F', b'-', ..] => Some("application/pdf"),
        _ => None,
    }
}

/// Gives the file, of which `head` was read already, to the model.
pub(super) fn attach(
    place: &Resolved,
    mime: &str,
    head: Vec<u8>,
    file: &File,
    length: u64,
) -> Result<ToolOutput, ToolError> {
    let mut content = head;
    if length <= LARGEST {
        let rest = file.take(LARGEST + 1).read_to_end(&mut content);
        rest.map_err(|source| DoorError::Io { path: place.shown.clone(), source })?;
    }
    if length.max(content.len() as u64) > LARGEST {
        return Err(ToolError::Failed(format!(
            "{} ({mime}) has {}, and at most {} can be shown: make a smaller copy with bash and read that",
            place.shown,
            files::size(length),
            files::size(LARGEST)
        )));
    }
    let seen = vec![(place.path.clone(), hash(&content))];
    let filename =
        place.path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let mut metadata = Map::new();
    metadata.insert("filePath".into(), place.path.to_string_lossy().into());
    metadata.insert("mime".into(), mime.into());
    Ok(ToolOutput {
        title: place.shown.clone(),
        output: format!("{} ({mime}, {}) is attached", place.shown, files::size(content.len() as u64)),
        metadata,
        attachments: vec![NewAttachment { mime: mime.to_owned(), filename, content: content.into() }],
        seen,
        ..ToolOutput::default()
    })
}

#[cfg(test)]
mod tests {
    use super::kind;

    #[test]
    fn media_are_told_by_content() {
        assert_eq!(kind(b"\x89PNG\r\n\x1a\n...."), Some("image/png"));
        assert_eq!(kind(b"\xff\xd8\xff\xe0"), Some("image/jpeg"));
        assert_eq!(kind(b"GIF89a"), Some("image/gif"));
        assert_eq!(kind(b"RIFF\x01\x02\x03\x04WEBPVP8 "), Some("image/webp"));
        assert_eq!(kind(b"%PDF-1.7"), Some("application/pdf"));
        assert_eq!(kind(b"RIFF\x01\x02\x03\x04WAVE"), None);
        assert_eq!(kind(b"<svg>"), None);
        assert_eq!(kind(b""), None);
    }
}
