//! Attachments: what can be carried, and the note that stands where something cannot.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use playhouse_protocol::message::Attachment;

use crate::dialect::Context;
use crate::transcript::MAX_FILE_BYTES;

/// An attachment as it can be sent.
pub(crate) enum Media<'a> {
    /// A picture.
    Image {
        /// Media type.
        mime: &'static str,
        /// Base64.
        data: String,
    },
    /// A PDF document.
    Pdf {
        /// Its name.
        filename: &'a str,
        /// Base64.
        data: String,
    },
    /// It cannot be sent: what the model is told instead.
    Note(String),
}

pub(crate) const PDF: &str = "application/pdf";

/// Loads `file`, where it is of a kind that dialects carry and the model reads.
pub(crate) fn load<'a>(file: &'a Attachment, context: &Context<'_>) -> Media<'a> {
    let note = |why: &str| Media::Note(note(file, why));
    let kind = file.mime.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let image = match kind.as_str() {
        "image/png" => Some("image/png"),
        "image/jpeg" | "image/jpg" => Some("image/jpeg"),
        "image/gif" => Some("image/gif"),
        "image/webp" => Some("image/webp"),
        PDF => None,
        _ => return note(WRONG_TYPE),
    };
    let reads = context.modalities;
    match image {
        Some(_) if !reads.image => return note("this model reads no images"),
        None if !reads.pdf => return note("this model reads no PDF documents"),
        _ => {}
    }
    // Counted by what it is said to have, so that a conversation is the same whether a blob can be read or not.
    let Some(left) = context.file_room.get().checked_sub(file.blob.size) else {
        let most = MAX_FILE_BYTES / 1_000_000;
        return note(&format!(
            "all files of a conversation together may have {most} MB, and this one is beyond that"
        ));
    };
    context.file_room.set(left);
    match (context.blobs)(&file.blob) {
        None => note("its content could not be loaded"),
        Some(content) if content.is_empty() => note("it is empty"),
        Some(content) => {
            let data = STANDARD.encode(&content);
            match image {
                Some(mime) => Media::Image { mime, data },
                None => Media::Pdf { filename: &file.filename, data },
            }
        }
    }
}

/// Why a file is not shown that the model or its dialect does not take.
pub(crate) const WRONG_TYPE: &str = "the model cannot be sent files of this type";

/// What the model reads instead of a file.
pub(crate) fn note(file: &Attachment, why: &str) -> String {
    let Attachment { filename, mime, blob } = file;
    format!("[the file \"{filename}\" ({mime}, {} bytes) is not shown: {why}]", blob.size)
}

/// Whether a text says nothing. Providers refuse blank text blocks.
pub(crate) fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// What a model reads as the result of a call that said nothing.
pub(crate) fn output_or_note(output: &str) -> &str {
    if is_blank(output) { "(no output)" } else { output }
}
