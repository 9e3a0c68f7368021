//! The encoding of a text file: UTF-8, or UTF-16 with a byte order mark.
//!
//! A text in UTF-16 is decoded as `grep` decodes it. Its mark becomes that of UTF-8 ([`MARK`]), so that whoever keeps that
//! one keeps the other one, too.

use std::borrow::Cow;
use std::io::{self, Read};
use std::iter;

use encoding_rs::{Decoder, DecoderResult, UTF_16BE, UTF_16LE};

#[cfg(doc)]
use super::document::MARK;
use super::document::split_mark;

/// How the bytes of a file stand for its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// UTF-8, and everything without a mark of UTF-16.
    Utf8,
    /// UTF-16, the low byte first.
    Utf16Le,
    /// UTF-16, the high byte first.
    Utf16Be,
}

impl Encoding {
    /// The encoding that the mark at the beginning of `bytes` tells.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        match bytes {
            [0xff, 0xfe, ..] => Self::Utf16Le,
            [0xfe, 0xff, ..] => Self::Utf16Be,
            _ => Self::Utf8,
        }
    }

    /// Its name for people and models.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF-8",
            Self::Utf16Le => "UTF-16LE",
            Self::Utf16Be => "UTF-16BE",
        }
    }

    fn decoder(self) -> Option<Decoder> {
        match self {
            Self::Utf8 => None,
            Self::Utf16Le => Some(UTF_16LE.new_decoder_without_bom_handling()),
            Self::Utf16Be => Some(UTF_16BE.new_decoder_without_bom_handling()),
        }
    }

    /// The text of the whole content `bytes` in UTF-8, with its mark; `None` where it is not valid UTF-16. UTF-8 is not
    /// looked at.
    pub(crate) fn decode(self, bytes: &[u8]) -> Option<Cow<'_, [u8]>> {
        let encoding = match self {
            Self::Utf8 => return Some(Cow::Borrowed(bytes)),
            Self::Utf16Le => UTF_16LE,
            Self::Utf16Be => UTF_16BE,
        };
        let text = encoding.decode_without_bom_handling_and_without_replacement(bytes)?;
        Some(Cow::Owned(text.into_owned().into_bytes()))
    }

    /// The text of `sample`, the beginning of a content. What is not valid, and a character that is cut off at the end, is
    /// replaced.
    pub(crate) fn decode_sample(self, sample: &[u8]) -> Cow<'_, [u8]> {
        let Some(mut decoder) = self.decoder() else { return Cow::Borrowed(sample) };
        let most = decoder.max_utf8_buffer_length(sample.len()).unwrap_or(0);
        let mut text = String::with_capacity(most);
        // Not the end, so that a character that is cut off is left out.
        let _ = decoder.decode_to_string(sample, &mut text, false);
        Cow::Owned(text.into_bytes())
    }

    /// `text`, which is UTF-8, in this encoding; `None` where it cannot be. UTF-16 gets its mark if the text has none.
    pub(crate) fn encode(self, text: &[u8]) -> Option<Cow<'_, [u8]>> {
        let bytes = match self {
            Self::Utf8 => return Some(Cow::Borrowed(text)),
            Self::Utf16Le => units(text)?.flat_map(u16::to_le_bytes).collect(),
            Self::Utf16Be => units(text)?.flat_map(u16::to_be_bytes).collect(),
        };
        Some(Cow::Owned(bytes))
    }
}

/// The mark and the rest of `text` in units of UTF-16.
fn units(text: &[u8]) -> Option<impl Iterator<Item = u16>> {
    let (_, body) = split_mark(text);
    Some(iter::once(0xfeff).chain(std::str::from_utf8(body).ok()?.encode_utf16()))
}

/// Reads a content as the text that it stands for, in UTF-8.
pub(crate) struct Decoded<R> {
    inner: R,
    decoder: Option<Decoder>,
    /// What was read and not decoded: from there to there.
    raw: (Box<[u8]>, usize, usize),
    over: bool,
}

impl<R: Read> Decoded<R> {
    /// The content that `inner` gives, in this encoding.
    pub(crate) fn new(inner: R, encoding: Encoding) -> Self {
        Self { inner, decoder: encoding.decoder(), raw: (vec![0; 16 * 1024].into(), 0, 0), over: false }
    }
}

impl<R: Read> Read for Decoded<R> {
    /// An error of [`io::ErrorKind::InvalidData`] is a content that is not valid. `buffer` must have room for a character.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(decoder) = &mut self.decoder else { return self.inner.read(buffer) };
        loop {
            let (raw, from, to) = &mut self.raw;
            if from == to && !self.over {
                (*from, *to) = (0, self.inner.read(raw)?);
                self.over = *to == 0;
            }
            let (result, read, written) =
                decoder.decode_to_utf8_without_replacement(&raw[*from..*to], buffer, self.over);
            *from += read;
            match result {
                DecoderResult::Malformed(..) => return Err(io::ErrorKind::InvalidData.into()),
                DecoderResult::InputEmpty if self.over => {
                    // Nothing comes any more, and a decoder that is done cannot be asked again.
                    self.decoder = None;
                    return Ok(written);
                }
                DecoderResult::InputEmpty if written == 0 => {}
                DecoderResult::OutputFull if written == 0 => return Err(io::ErrorKind::WriteZero.into()),
                DecoderResult::InputEmpty | DecoderResult::OutputFull => return Ok(written),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use proptest::prelude::*;

    use super::*;

    const BOTH: [Encoding; 2] = [Encoding::Utf16Le, Encoding::Utf16Be];

    fn read(bytes: &[u8], piece: usize) -> io::Result<Vec<u8>> {
        let encoding = Encoding::of(bytes);
        let mut text = Vec::new();
        let mut reader = Decoded::new(BufReader::with_capacity(piece, bytes), encoding);
        let mut room = [0; 9];
        loop {
            match reader.read(&mut room)? {
                0 => return Ok(text),
                read => text.extend_from_slice(&room[..read]),
            }
        }
    }

    #[test]
    fn what_is_not_valid_is_told_wherever_it_is() {
        for encoding in BOTH {
            let good = encoding.encode("a\u{1f680}b".as_bytes()).unwrap().into_owned();
            assert_eq!(Encoding::of(&good), encoding);
            // Half a unit at the end, and half a pair of units.
            for broken in [&good[..good.len() - 1], &good[..6], &[&good[..4], &good[6..]].concat()[..]] {
                assert_eq!(encoding.decode(broken), None, "{broken:x?}");
                assert_eq!(read(broken, 3).unwrap_err().kind(), io::ErrorKind::InvalidData, "{broken:x?}");
            }
            assert_eq!(encoding.decode_sample(&good[..6]), "\u{feff}a".as_bytes());
            assert_eq!(encoding.encode(b"\xfc"), None);
        }
        assert_eq!(Encoding::of(b"\xff"), Encoding::Utf8);
    }

    proptest! {
        #[test]
        fn a_text_is_the_same_in_every_encoding(text in ".{0,40}", piece in 1..9_usize, mark in any::<bool>()) {
            let body = text.trim_start_matches('\u{feff}');
            let text = format!("{}{body}", if mark { "\u{feff}" } else { "" });
            for encoding in BOTH {
                let bytes = encoding.encode(text.as_bytes()).unwrap().into_owned();
                let marked = format!("\u{feff}{body}").into_bytes();
                prop_assert_eq!(&*encoding.decode(&bytes).unwrap(), &marked[..]);
                prop_assert_eq!(read(&bytes, piece).unwrap(), marked);
            }
            prop_assert_eq!(read(body.as_bytes(), piece).unwrap(), body.as_bytes());
        }
    }
}
