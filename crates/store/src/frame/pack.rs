//! Packing: LZ4 blocks that may refer to a dictionary of what records look like.
//!
//! Most of a small record is what every record of its kind has. The dictionary is a part of the stored form: what was packed
//! with it can be read with no other, so it never changes. A better one would be a new number in the frame.
//!
//! Packing looks for the longest repetition rather than for the nearest (the usual encoders of LZ4 are made for speed, and
//! find a third less in records); unpacking is as fast as ever.

use std::sync::OnceLock;

use lz4_flex::block::decompress_into_with_dict;

/// What records look like, and what texts have often. What every step writes comes last: it is found first.
const DICTIONARY: &[u8] = include_bytes!("dictionary.txt");

/// A repetition is at least so long.
const LEAST: usize = 4;
/// How far back it may be.
const FARTHEST: usize = u16::MAX as usize;
/// So much at the end of a block is never repeated, and no repetition begins in the last [`NEAR_END`] bytes.
const END: usize = 5;
const NEAR_END: usize = 12;
/// The highest number that half of a token says; higher ones go on behind it.
const IN_TOKEN: usize = 15;

/// How many places with the same beginning are looked at for the longest repetition: of much only a few.
const LOOKS: usize = 8;
const LOOKS_IN_MUCH: usize = 4;
const MUCH: usize = 8 * 1024;
/// After so many places without a repetition in a row every second one is passed over, then every third, and so on.
const PATIENCE: u32 = 6;

const HASH_BITS: u32 = 13;
/// Stands for no place.
const NOWHERE: u32 = u32::MAX;

/// Where each four bytes stood last, and before that.
#[derive(Clone)]
struct Places {
    last: Vec<u32>,
    before: Vec<u32>,
}

impl Places {
    /// Those of the dictionary.
    fn of_dictionary() -> &'static Self {
        static PLACES: OnceLock<Places> = OnceLock::new();
        PLACES.get_or_init(|| {
            let mut places = Self { last: vec![NOWHERE; 1 << HASH_BITS], before: Vec::new() };
            (0..=DICTIONARY.len() - LEAST).for_each(|at| places.add(DICTIONARY, at));
            places
        })
    }

    fn hash(text: &[u8], at: usize) -> Option<usize> {
        let four = u32::from_le_bytes(*text.get(at..)?.first_chunk()?);
        Some((four.wrapping_mul(0x9e37_79b1) >> (u32::BITS - HASH_BITS)) as usize)
    }

    /// Adds a place, behind all that were added.
    fn add(&mut self, text: &[u8], at: usize) {
        let Some(hash) = Self::hash(text, at) else { return };
        self.before.resize(at, NOWHERE);
        let place = u32::try_from(at).unwrap_or(NOWHERE);
        self.before.push(std::mem::replace(&mut self.last[hash], place));
    }

    /// The longest repetition at `at` of what stood before, which ends before `end`: its length and how far back it is.
    fn longest(&self, text: &[u8], at: usize, end: usize, looks: usize) -> (usize, usize) {
        let mut best = (0, 0);
        let Some(hash) = Self::hash(text, at) else { return best };
        let mut place = self.last[hash];
        for _ in 0..looks {
            let Some(from) = usize::try_from(place).ok().filter(|from| *from < at && at - from <= FARTHEST)
            else {
                break;
            };
            // One that is longer has this byte too.
            if text.get(from + best.0) == text.get(at + best.0) {
                let length =
                    text[from..].iter().zip(&text[at..end]).take_while(|(one, other)| one == other).count();
                if length > best.0 {
                    best = (length, at - from);
                }
            }
            place = self.before.get(from).copied().unwrap_or(NOWHERE);
        }
        best
    }
}

/// Appends the packed form of `content`, and says whether it is shorter; if not, nothing is appended.
pub(super) fn pack(content: &[u8], into: &mut Vec<u8>) -> bool {
    let start = into.len();
    let text = [DICTIONARY, content].concat();
    let mut places = Places::of_dictionary().clone();
    let looks = if content.len() > MUCH { LOOKS_IN_MUCH } else { LOOKS };
    let end = text.len().saturating_sub(END);
    let last = text.len().saturating_sub(NEAR_END);
    let (mut written, mut at, mut misses) = (DICTIONARY.len(), DICTIONARY.len(), 0_usize);
    while at <= last {
        let mut found = places.longest(&text, at, end, looks);
        places.add(&text, at);
        if found.0 < LEAST {
            misses += 1;
            at += 1 + (misses >> PATIENCE);
            continue;
        }
        misses = 0;
        // What begins a byte later may be longer.
        while at < last {
            let later = places.longest(&text, at + 1, end, looks);
            if later.0 <= found.0 + 1 {
                break;
            }
            (at, found) = (at + 1, later);
            places.add(&text, at);
        }
        push_sequence(into, &text[written..at], Some(found));
        written = at + found.0;
        (at + 1..written).for_each(|at| places.add(&text, at));
        at = written;
        if into.len() - start >= content.len() {
            break;
        }
    }
    push_sequence(into, &text[written..], None);
    let is_shorter = into.len() - start < content.len();
    if !is_shorter {
        into.truncate(start);
    }
    is_shorter
}

/// Appends bytes as they are, and a repetition (its length, and how far back it is).
fn push_sequence(into: &mut Vec<u8>, literals: &[u8], repetition: Option<(usize, usize)>) {
    let more = repetition.map_or(0, |(length, _)| length - LEAST);
    let token = literals.len().min(IN_TOKEN) << 4 | more.min(IN_TOKEN);
    into.extend(u8::try_from(token));
    push_rest(into, literals.len());
    into.extend(literals);
    if let Some((_, back)) = repetition {
        into.extend(u16::try_from(back).unwrap_or_default().to_le_bytes());
        push_rest(into, more);
    }
}

/// Appends what a token does not say of a number.
fn push_rest(into: &mut Vec<u8>, number: usize) {
    let Some(mut rest) = number.checked_sub(IN_TOKEN) else { return };
    while rest >= usize::from(u8::MAX) {
        into.push(u8::MAX);
        rest -= usize::from(u8::MAX);
    }
    into.extend(u8::try_from(rest));
}

/// The content that has this packed form and length, in `into`, of which the rest means nothing.
///
/// # Errors
/// What is wrong with it, where it is not the packed form of so many bytes.
pub(super) fn unpack<'a>(packed: &[u8], length: usize, into: &'a mut Vec<u8>) -> Result<&'a [u8], String> {
    if into.len() < length {
        into.resize(length, 0);
    }
    let content = &mut into[..length];
    match decompress_into_with_dict(packed, content, DICTIONARY) {
        Ok(found) if found == length => Ok(content),
        Ok(found) => Err(format!("it has {found} bytes, not {length}")),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes of which some repeat, near and far, and some are those of the dictionary.
    fn contents() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200),
            proptest::collection::vec(97_u8..100, 0..60),
            (0..DICTIONARY.len(), 0_usize..400).prop_map(|(from, length)| {
                DICTIONARY[from..DICTIONARY.len().min(from + length)].to_vec()
            }),
            (any::<u8>(), 0_usize..3_000).prop_map(|(byte, length)| vec![byte; length]),
        ];
        (proptest::collection::vec(piece, 0..12), 1_usize..4)
            .prop_map(|(pieces, copies)| pieces.concat().repeat(copies))
    }

    proptest! {
        #[test]
        fn what_was_packed_is_unpacked(content in contents()) {
            let mut packed = b"before".to_vec();
            let is_shorter = pack(&content, &mut packed);
            prop_assert!(packed.starts_with(b"before") && packed.len() <= 6 + content.len());
            if is_shorter {
                let mut unpacked = Vec::new();
                prop_assert_eq!(unpack(&packed[6..], content.len(), &mut unpacked), Ok(&content[..]));
            } else {
                prop_assert_eq!(packed.len(), 6);
            }
        }

        #[test]
        fn nonsense_gives_an_error_or_some_bytes(packed in proptest::collection::vec(any::<u8>(), 0..300), length in 0_usize..5_000) {
            if let Ok(content) = unpack(&packed, length, &mut Vec::new()) {
                prop_assert_eq!(content.len(), length);
            }
        }
    }

    #[test]
    fn much_that_repeats_from_afar_is_unpacked() {
        let mut content: Vec<u8> =
            (0_u32..30_000).flat_map(|number| number.wrapping_mul(0x9e37_79b1).to_le_bytes()).collect();
        content.extend_from_within(..90_000);
        let mut packed = Vec::new();
        if pack(&content, &mut packed) {
            assert_eq!(unpack(&packed, content.len(), &mut Vec::new()), Ok(&content[..]));
        }
    }

    #[test]
    fn a_record_is_a_few_bytes_behind_the_dictionary() {
        let record = br#"{"type":"turn.started","data":{"turn":"msg_0123456789abABCDEFGHIJKLMN"}}"#;
        let mut packed = Vec::new();
        assert!(pack(record, &mut packed));
        assert!(packed.len() < 42, "{}", packed.len());
    }
}
