//! Documents: whether a provider can read one.

use bytes::Bytes;
use hayro_syntax::{LoadPdfError, Pdf};
use memchr::memmem;

use super::{Kind, MOST_PAGES, MediaError, Sendable};

/// The entry of a trailer that says how a document is encrypted.
const ENCRYPT: &[u8] = b"/Encrypt";

pub(super) fn fit(content: Bytes) -> Result<Sendable, MediaError> {
    let kind = Kind::Pdf;
    let broken = |reason: &str| MediaError::Broken { mime: kind.mime(), reason: reason.to_owned() };
    let pages = match Pdf::new(content.to_vec()) {
        Ok(document) => document.pages().len(),
        Err(LoadPdfError::Decryption(_)) => return Err(MediaError::Encrypted { mime: kind.mime() }),
        Err(LoadPdfError::Invalid) => return Err(broken("it has no table of its objects")),
    };
    // One that opens without a password may be encrypted all the same.
    if is_encrypted(&content) {
        return Err(MediaError::Encrypted { mime: kind.mime() });
    }
    match pages {
        0 => Err(broken("it has no page")),
        1..=MOST_PAGES => Ok(Sendable { kind, content, scaled: None }),
        _ => Err(MediaError::Pages { mime: kind.mime(), pages }),
    }
}

/// Whether a trailer names an encryption: the entry with a reference, or with the encryption itself.
fn is_encrypted(content: &[u8]) -> bool {
    memmem::find_iter(content, ENCRYPT).any(|place| {
        let behind = content[place + ENCRYPT.len()..].trim_ascii_start();
        behind.starts_with(b"<<") || behind.first().is_some_and(u8::is_ascii_digit)
    })
}

#[cfg(test)]
mod tests {
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
        insta::assert_snapshot!(refusal(&document_of(0)), @"is damaged or not whole (application/pdf), and cannot be shown: it has no page");
        insta::assert_snapshot!(refusal(b"%PDF-1.7 and so on"), @"is damaged or not whole (application/pdf), and cannot be shown: it has no table of its objects");
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
        let said = whole.replace("%%EOF", "% /Encrypted is a word\n%%EOF");
        assert!(fit(Bytes::from(said)).is_ok());
    }

    #[test]
    fn whatever_stands_in_it_nothing_panics() {
        let whole = document_of(3);
        for place in 0..whole.len() {
            let _ = fit(Bytes::copy_from_slice(&whole[..place]));
            let mut damaged = whole.clone();
            damaged[place] = b'9';
            let _ = fit(Bytes::from(damaged));
        }
    }
}
