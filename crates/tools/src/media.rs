//! Images and documents that models are shown: told by their first bytes, checked to the end, and made to fit.
//!
//! A file that a provider refuses would stand in every later request of its session, which could then never go on. So what
//! is attached was decoded here, has at most [`SIDE`] pixels a side, and is at most [`LARGEST_IMAGE`] bytes long. Images that
//! are larger are scaled down; what is no whole image is refused. Documents were opened here: they are not encrypted, and have
//! at most [`MOST_PAGES`] pages.

mod document;
mod image;

use bytes::Bytes;
use thiserror::Error;

use crate::files::size;

/// The most pixels of an image's side.
pub const SIDE: u32 = 2_000;
/// The longest image that is sent, in bytes: 5 MB in base64, as it travels.
pub const LARGEST_IMAGE: usize = 3_750_000;
/// The longest image that is read, to be scaled down, in bytes.
pub const LARGEST_SOURCE: u64 = 32_000_000;
/// The longest document, in bytes.
pub const LARGEST_DOCUMENT: u64 = 5_000_000;
/// The most pages of a document.
pub const MOST_PAGES: usize = 100;
/// The longest text that is attached to a prompt, in bytes: about 50,000 tokens.
pub const LONGEST_TEXT: usize = 200 * 1024;
/// The most pixels that are decoded.
pub const MOST_PIXELS: u64 = 50_000_000;

/// What models can be shown beside text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An image.
    Png,
    /// An image.
    Jpeg,
    /// An image, of which models see the first frame.
    Gif,
    /// An image.
    Webp,
    /// A document.
    Pdf,
}

impl Kind {
    /// The kind of a file that begins with `head`, whatever it is called.
    ///
    /// ```
    /// use playhouse_tools::media::Kind;
    /// assert_eq!(Kind::of(b"%PDF-1.7"), Some(Kind::Pdf));
    /// assert_eq!(Kind::of(b"<svg>"), None);
    /// ```
    pub fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Self::Png),
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Self::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::Webp),
            [b'%', b'P', b'D', b'F', b'-', ..] => Some(Self::Pdf),
            _ => None,
        }
    }

    /// The media type.
    pub const fn mime(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
            Self::Pdf => "application/pdf",
        }
    }

    /// The most bytes of a file of this kind that are worth reading.
    pub const fn most(self) -> u64 {
        match self {
            Self::Pdf => LARGEST_DOCUMENT,
            _ => LARGEST_SOURCE,
        }
    }
}

/// A file as models are sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sendable {
    /// What it is now: scaling may change the format.
    pub kind: Kind,
    /// The content.
    pub content: Bytes,
    /// How large an image was, and is, where it was written anew: width and height in pixels.
    pub scaled: Option<[(u32, u32); 2]>,
}

impl Sendable {
    /// What was done to an image, in words that follow its name; empty where nothing was.
    pub fn note(&self) -> String {
        match self.scaled {
            Some([(width, height), (new_width, new_height)])
                if (width, height) != (new_width, new_height) =>
            {
                format!(", scaled from {width} x {height} to {new_width} x {new_height} pixels")
            }
            _ => String::new(),
        }
    }
}

/// Why a file cannot be shown. The text follows the file's name, or "it".
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MediaError {
    /// It is too long.
    #[error("has {} ({mime}), and at most {} can be shown: make a smaller copy", size(*bytes), size(*most))]
    Long {
        /// Its media type.
        mime: &'static str,
        /// Its length in bytes.
        bytes: u64,
        /// The most bytes.
        most: u64,
    },
    /// It has too many pixels.
    #[error(
        "has {width} x {height} pixels ({mime}), and at most {} million can be shown: make a smaller copy",
        MOST_PIXELS / 1_000_000
    )]
    Pixels {
        /// Its media type.
        mime: &'static str,
        /// Pixels of a row.
        width: u32,
        /// Rows.
        height: u32,
    },
    /// It has too many pages.
    #[error(
        "has {pages} pages ({mime}), and at most {MOST_PAGES} can be shown: make a copy with fewer pages, or take its text"
    )]
    Pages {
        /// Its media type.
        mime: &'static str,
        /// Its pages.
        pages: usize,
    },
    /// It can be read with a password only.
    #[error("is encrypted ({mime}), and cannot be shown: make a copy without a password")]
    Encrypted {
        /// Its media type.
        mime: &'static str,
    },
    /// It is damaged, or only its beginning is there.
    #[error("is damaged or not whole ({mime}), and cannot be shown: {reason}")]
    Broken {
        /// Its media type.
        mime: &'static str,
        /// What the decoder says.
        reason: String,
    },
    /// It is nothing that is attached.
    #[error("is neither text (UTF-8) nor a PNG, JPEG, GIF, WebP or PDF file")]
    Unknown,
    /// It is a text that is too long for a prompt.
    #[error(
        "is a text of {0} bytes, more than {LONGEST_TEXT}: name its path in the prompt and let the agent read what it needs"
    )]
    Text(usize),
}

impl MediaError {
    /// A file of this kind of `bytes`, if that is too long.
    pub fn long(kind: Kind, bytes: u64) -> Option<Self> {
        let most = kind.most();
        (bytes > most).then_some(Self::Long { mime: kind.mime(), bytes, most })
    }
}

/// What somebody attaches to a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// A text, to be read in place.
    Text(Bytes),
    /// An image or a document.
    Media(Sendable),
}

/// Tells by its content what somebody attaches to a prompt, and makes it fit. Blocks for up to some seconds.
///
/// # Errors
/// It cannot be shown.
///
/// ```
/// use bytes::Bytes;
/// use playhouse_tools::media::{Given, MediaError, given};
/// assert_eq!(given(Bytes::from("# Notes")), Ok(Given::Text(Bytes::from("# Notes"))));
/// assert_eq!(given(Bytes::from_static(b"\0\xff")), Err(MediaError::Unknown));
/// ```
pub fn given(content: Bytes) -> Result<Given, MediaError> {
    if let Some(kind) = Kind::of(&content) {
        return fit(kind, content).map(Given::Media);
    }
    if content.contains(&0) || std::str::from_utf8(&content).is_err() {
        return Err(MediaError::Unknown);
    }
    if content.len() > LONGEST_TEXT {
        return Err(MediaError::Text(content.len()));
    }
    Ok(Given::Text(content))
}

/// Makes an image or a document fit. Blocks for up to some seconds.
///
/// # Errors
/// It is too long, has too many pixels or pages, is encrypted, or is not whole.
pub fn fit(kind: Kind, content: Bytes) -> Result<Sendable, MediaError> {
    if let Some(error) = MediaError::long(kind, content.len() as u64) {
        return Err(error);
    }
    match kind {
        Kind::Pdf => document::fit(content),
        _ => image::fit(kind, content),
    }
}

/// A document of so many empty pages.
#[cfg(test)]
pub(crate) fn document_of(pages: usize) -> Vec<u8> {
    use std::fmt::Write as _;
    let kids: String = (0..pages).map(|page| format!("{} 0 R ", page + 3)).collect();
    let mut objects = vec![
        "<</Type/Catalog/Pages 2 0 R>>".to_owned(),
        format!("<</Type/Pages/Kids[{kids}]/Count {pages}>>"),
    ];
    objects.extend((0..pages).map(|_| "<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>".to_owned()));
    let mut text = "%PDF-1.7\n".to_owned();
    let mut table = format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
    for (number, object) in objects.iter().enumerate() {
        let _ = writeln!(table, "{:010} 00000 n ", text.len());
        let _ = writeln!(text, "{} 0 obj\n{object}\nendobj", number + 1);
    }
    let (size, begin) = (objects.len() + 1, text.len());
    let _ = write!(text, "{table}trailer\n<</Root 1 0 R/Size {size}>>\nstartxref\n{begin}\n%%EOF\n");
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::Kind;

    #[test]
    fn media_are_told_by_content() {
        for (head, kind) in [
            (b"\x89PNG\r\n\x1a\n....".as_slice(), Some(Kind::Png)),
            (b"\xff\xd8\xff\xe0", Some(Kind::Jpeg)),
            (b"GIF89a", Some(Kind::Gif)),
            (b"RIFF\x01\x02\x03\x04WEBPVP8 ", Some(Kind::Webp)),
            (b"%PDF-1.7", Some(Kind::Pdf)),
            (b"RIFF\x01\x02\x03\x04WAVE", None),
            (b"<svg>", None),
            (b"", None),
        ] {
            assert_eq!(Kind::of(head), kind, "{}", head.escape_ascii());
        }
    }
}
