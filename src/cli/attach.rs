//! Files that are attached to a prompt: text goes into the prompt, images and PDF along with it.

use std::path::Path;

use bytes::Bytes;
use playhouse_protocol::message::Attachment;

use super::Failure;
use super::reach::Reach;

/// Largest file that can be attached, in bytes.
const LARGEST: u64 = 5 * 1024 * 1024;
/// Largest text file, in bytes: about 50,000 tokens.
const LARGEST_TEXT: usize = 200 * 1024;

/// Reads the files that are attached to `text`.
pub(super) fn read(text: String, files: &[std::path::PathBuf]) -> Result<Vec<Piece>, Failure> {
    let mut pieces = vec![Piece::Text(text)];
    for path in files {
        pieces.push(read_file(path)?);
    }
    Ok(pieces)
}

/// A piece of a prompt.
pub(super) enum Piece {
    Text(String),
    File { mime: &'static str, filename: String, content: Bytes },
}

fn read_file(path: &Path) -> Result<Piece, Failure> {
    let shown = path.display();
    let unreadable = |error: std::io::Error| Failure::usage(format!("cannot attach: {error}"));
    let facts = fs_err::metadata(path).map_err(unreadable)?;
    if !facts.is_file() {
        return Err(Failure::usage(format!("cannot attach {shown}: it is not a file")));
    }
    if facts.len() > LARGEST {
        let size = facts.len();
        return Err(Failure::usage(format!(
            "cannot attach {shown}: it has {size} bytes, more than {LARGEST}"
        )));
    }
    let content = fs_err::read(path).map_err(unreadable)?;
    let filename = path.file_name().map_or_else(|| shown.to_string(), |name| name.to_string_lossy().into());
    if let Some(mime) = media_type(&content) {
        return Ok(Piece::File { mime, filename, content: Bytes::from(content) });
    }
    let Ok(text) = String::from_utf8(content) else {
        let message = format!(
            "cannot attach {shown}: it is neither text (UTF-8) nor a PNG, JPEG, GIF, WebP or PDF file"
        );
        return Err(Failure::usage(message));
    };
    if text.len() > LARGEST_TEXT {
        let message = format!(
            "cannot attach {shown}: its text has {} bytes, more than {LARGEST_TEXT}; name the path in the prompt and let the agent read what it needs",
            text.len()
        );
        return Err(Failure::usage(message));
    }
    Ok(Piece::Text(format!("\n\n<file name=\"{shown}\">\n{}\n</file>", text.trim_end_matches('\n'))))
}

/// The media type of what models take as attachments, by content.
fn media_type(content: &[u8]) -> Option<&'static str> {
    match content {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        [b'%', b'P', b'D', b'F', b'-', ..] => Some("application/pdf"),
        _ => None,
    }
}

/// Puts the pieces together; files are stored in the engine.
pub(super) async fn store(
    reach: &Reach,
    tenant: &str,
    pieces: Vec<Piece>,
) -> Result<(String, Vec<Attachment>), Failure> {
    let (mut text, mut files) = (String::new(), Vec::new());
    for piece in pieces {
        match piece {
            Piece::Text(more) => text.push_str(&more),
            Piece::File { mime, filename, content } => {
                let blob = reach.store_blob(tenant, content).await?;
                files.push(Attachment { mime: mime.to_owned(), filename, blob });
            }
        }
    }
    Ok((text, files))
}
