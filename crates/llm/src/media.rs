//! Attachments: images and documents as they are carried, text in place, and the note that stands where something cannot be.

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
    /// The text of a file under its name; or, where it cannot be sent, what the model is told instead.
    Text(String),
}

pub(crate) const PDF: &str = "application/pdf";

/// How the text of a file stands among the texts of a prompt.
const FILE: &str = include_str!("../../../prompts/file.md");
/// The most of a file's text that is shown, in bytes. What is attached today has less.
const LONGEST_TEXT: usize = 1024 * 1024;

/// Loads `file`, where it is of a kind that dialects carry and the model reads.
pub(crate) fn load<'a>(file: &'a Attachment, context: &Context<'_>) -> Media<'a> {
    let note = |why: &str| Media::Text(note(file, why));
    if file.is_text() {
        return Media::Text(text(file, context));
    }
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
        None => note(UNREADABLE),
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

/// What a model reads of a text file.
fn text(file: &Attachment, context: &Context<'_>) -> String {
    let Some(content) = (context.blobs)(&file.blob) else { return note(file, UNREADABLE) };
    let text = String::from_utf8_lossy(&content[..content.len().min(LONGEST_TEXT)]);
    let text = if is_blank(&text) { "(empty)" } else { text.trim_end_matches('\n') };
    let cut = match content.len() > LONGEST_TEXT {
        true => format!("\n[cut here: these are the first {LONGEST_TEXT} of {} bytes]", content.len()),
        false => String::new(),
    };
    let filename = &file.filename;
    // The name first: what a file holds is never read as a template.
    let (head, tail) = FILE.trim_end().split_once("{{text}}").unwrap_or((FILE, ""));
    format!("{}{text}{cut}{tail}", head.replacen("{{name}}", filename, 1))
}

/// Why a file is not shown whose blob is missing.
const UNREADABLE: &str = "its content could not be loaded";

/// Why a file is not shown that the model or its dialect does not take.
pub(crate) const WRONG_TYPE: &str = "the model cannot be sent files of this type";

/// What the model reads instead of a file.
pub(crate) fn note(file: &Attachment, why: &str) -> String {
    let Attachment { filename, mime, blob, .. } = file;
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
