//! Documents: whether a provider can read one, as far as bytes tell. None is opened here: what a document says of itself can keep
//! a reader busy for ever, or use up its stack. Packed objects are unpacked to find pages, up to a bound.

use std::io::Read as _;

use bytes::Bytes;
use flate2::read::ZlibDecoder;
use memchr::memmem;

use super::{Kind, MOST_PAGES, MediaError, Sendable};

/// The bytes at the end among which the end has to stand, as readers look for it.
const END: usize = 1024;

/// So many bytes of packed objects are looked at, unpacked. The objects of ten thousand pages have less.
const MOST_UNPACKED: u64 = 16 << 20;

pub(super) fn fit(content: Bytes) -> Result<Sendable, MediaError> {
    let kind = Kind::Pdf;
    let end = &content[content.len().saturating_sub(END)..];
    if memmem::rfind(end, b"%%EOF").is_none() || memmem::rfind(end, b"startxref").is_none() {
        return Err(MediaError::Broken { mime: kind.mime(), reason: "its end is missing".to_owned() });
    }
    if is_encrypted(&content) {
        return Err(MediaError::Encrypted { mime: kind.mime() });
    }
    let pages = pages(&content) + packed_pages(&content);
    if pages > MOST_PAGES {
        return Err(MediaError::Pages { mime: kind.mime(), pages });
    }
    Ok(Sendable { kind, content, scaled: None })
}

/// Whether a trailer names an encryption: the entry with a reference, or with the encryption itself. Trailers are never packed.
fn is_encrypted(content: &[u8]) -> bool {
    behind(content, b"/Encrypt").any(|rest| {
        let is_reference = || {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            digits > 0 && rest[digits..].trim_ascii_start().first().is_some_and(u8::is_ascii_digit)
        };
        rest.starts_with(b"<<") || is_reference()
    })
}

/// The pages in streams of objects (PDF 1.5), of which the first [`MOST_UNPACKED`] bytes are looked at. What cannot be unpacked
/// counts for nothing.
fn packed_pages(content: &[u8]) -> usize {
    let mut room = MOST_UNPACKED;
    let mut found = 0;
    for rest in behind(content, b"/Type").filter(|rest| rest.starts_with(b"/ObjStm")) {
        let Some(place) = memmem::find(rest, b"stream") else { break };
        let data = &rest[place + b"stream".len()..];
        let data = data.strip_prefix(b"\r").unwrap_or(data);
        let data = data.strip_prefix(b"\n").unwrap_or(data);
        let mut objects = Vec::new();
        // An error at its end leaves what came before.
        let _ = ZlibDecoder::new(data).take(room).read_to_end(&mut objects);
        room = room.saturating_sub(objects.len() as u64);
        found += pages(&objects);
        if room == 0 {
            break;
        }
    }
    found
}

/// The pages that stand in these bytes as they are.
fn pages(content: &[u8]) -> usize {
    let is_page = |rest: &&[u8]| {
        rest.strip_prefix(b"/Page")
            .is_some_and(|rest| rest.first().is_none_or(|byte| !byte.is_ascii_alphanumeric()))
    };
    behind(content, b"/Type").filter(is_page).count()
}

/// What stands behind each `name`, without spaces before it.
fn behind<'a>(content: &'a [u8], name: &'static [u8]) -> impl Iterator<Item = &'a [u8]> {
    memmem::find_iter(content, name).map(move |place| content[place + name.len()..].trim_ascii_start())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;

    use super::*;
    use crate::media::document_of;

    fn refusal(content: &[u8]) -> String {
        fit(Bytes::copy_from_slice(content)).unwrap_err().to_string()
    }

    #[test]
    fn a_document_is_shown_when_it_is_whole_open_and_short_enough() {
        for pages in [1, 2, MOST_PAGES] {
            let content = Bytes::from(document_of(pages));
            assert_eq!(fit(content.clone()).unwrap().content, content);
        }
        insta::assert_snapshot!(refusal(&document_of(MOST_PAGES + 1)), @"has 101 pages (application/pdf), and at most 100 can be shown: make a copy with fewer pages, or take its text");
        let whole = document_of(3);
        for place in [8, whole.len() / 2, whole.len() - 8] {
            assert_eq!(
                refusal(&whole[..place]),
                "is damaged or not whole (application/pdf), and cannot be shown: its end is missing"
            );
        }
    }

    /// The document with all of its objects in one stream, as PDF 1.5 packs them.
    fn packed(pages: usize, unpacked: &[u8]) -> Vec<u8> {
        let mut objects = "<</Type/Page/Parent 2 0 R>> ".repeat(pages).into_bytes();
        objects.extend_from_slice(unpacked);
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&objects).unwrap();
        let mut file = b"%PDF-1.5\n9 0 obj\n<</Type /ObjStm /Filter/FlateDecode>>\nstream\r\n".to_vec();
        file.extend(encoder.finish().unwrap());
        file.extend_from_slice(b"\nendstream\nendobj\nstartxref\n0\n%%EOF\n");
        file
    }

    #[test]
    fn pages_that_are_packed_count_as_far_as_they_are_looked_at() {
        assert!(fit(packed(MOST_PAGES, b"").into()).is_ok());
        let said = refusal(&packed(MOST_PAGES + 1, b""));
        assert!(said.starts_with("has 101 pages"), "{said}");
        let bomb = vec![b' '; usize::try_from(MOST_UNPACKED).unwrap() * 4];
        let said = refusal(&packed(MOST_PAGES + 1, &bomb));
        assert!(said.starts_with("has 101 pages"), "{said}");
        let mut damaged = packed(MOST_PAGES + 1, b"");
        let place = memmem::find(&damaged, b"stream\r\n").unwrap() + 8;
        damaged[place] = 0;
        assert!(fit(damaged.into()).is_ok(), "what cannot be unpacked counts for nothing");
    }

    #[test]
    fn one_that_is_encrypted_is_not_shown() {
        let whole = String::from_utf8(document_of(1)).unwrap();
        for entry in ["/Encrypt 9 0 R", "/Encrypt<</Filter/Standard/V 1>>"] {
            let locked = whole.replace("trailer\n<<", &format!("trailer\n<<{entry}"));
            insta::allow_duplicates! {
                insta::assert_snapshot!(refusal(locked.as_bytes()), @"is encrypted (application/pdf), and cannot be shown: make a copy without a password");
            }
        }
        let said = whole.replace("%%EOF", "% /Encrypted 9 is a word, /Encrypt 9 too\n%%EOF");
        assert!(fit(Bytes::from(said)).is_ok());
    }

    #[test]
    fn what_would_keep_a_reader_busy_is_looked_at_as_fast_as_anything_else() {
        let deep = "[".repeat(1_000_000);
        let whole = String::from_utf8(document_of(1)).unwrap();
        let nested = whole.replace("/MediaBox", &format!("/A{deep}/MediaBox"));
        assert!(fit(Bytes::from(nested)).is_ok());
        let many = whole.replace("trailer", &format!("{}\ntrailer", "/Type /Pages ".repeat(100_000)));
        assert!(fit(Bytes::from(many)).is_ok());
    }
}
