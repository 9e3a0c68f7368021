//! Packing: LZ4 blocks that may refer to a dictionary of what records look like.
//!
//! Most of a small record is what every record of its kind has. The dictionary is a part of the stored form: what was packed
//! with it can be read with no other, so it never changes. A better one would be a new number in the frame.
//!
//! Packing looks for the longest repetition rather than for the nearest (the usual encoders of LZ4 are made for speed, and
//! find a third less in records); unpacking is as fast as ever.

use std::cell::RefCell;
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

/// For each hash of four bytes where they stand.
type Places = [u32; 1 << HASH_BITS];

/// Where each four bytes of the dictionary stand last, and before that. It is looked up once, for all that is ever packed.
struct Known {
    last: Box<Places>,
    before: Vec<u32>,
}

impl Known {
    fn get() -> &'static Self {
        static KNOWN: OnceLock<Known> = OnceLock::new();
        KNOWN.get_or_init(|| {
            let mut known =
                Self { last: Box::new([NOWHERE; 1 << HASH_BITS]), before: vec![NOWHERE; DICTIONARY.len()] };
            for at in 0..=DICTIONARY.len() - LEAST {
                let Some(hash) = hash(DICTIONARY, at) else { continue };
                known.before[at] = std::mem::replace(&mut known.last[hash], place(at));
            }
            known
        })
    }
}

/// What packing works with, kept by its thread: making it anew would cost more than to pack a small record.
struct Desk {
    known: &'static Known,
    /// The dictionary, and behind it what is packed.
    text: Vec<u8>,
    /// Where each four bytes of what is packed stood last, and `since` with it: less was left by what was packed before.
    last: Box<Places>,
    since: u32,
    /// For each place where its four bytes stood before.
    before: Vec<u32>,
}

thread_local! {
    static DESK: RefCell<Desk> = RefCell::new(Desk::new());
}

fn hash(text: &[u8], at: usize) -> Option<usize> {
    let four = u32::from_le_bytes(*text.get(at..)?.first_chunk()?);
    Some((four.wrapping_mul(0x9e37_79b1) >> (u32::BITS - HASH_BITS)) as usize)
}

/// How many bytes both begin with.
fn common(one: &[u8], other: &[u8]) -> usize {
    let eight = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let mut length = 0;
    // Eight at a time: most of what packing does is done here.
    while let (Some(one), Some(other)) = (eight(&one[length..]), eight(&other[length..])) {
        let differing = one ^ other;
        if differing != 0 {
            return length + (differing.trailing_zeros() / u8::BITS) as usize;
        }
        length += size_of::<u64>();
    }
    let rest = one[length..].iter().zip(&other[length..]);
    length + rest.take_while(|(one, other)| one == other).count()
}

fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(NOWHERE)
}

impl Desk {
    fn new() -> Self {
        let known = Known::get();
        Self {
            known,
            text: DICTIONARY.to_vec(),
            last: Box::new([0; 1 << HASH_BITS]),
            since: 1,
            before: known.before.clone(),
        }
    }

    /// Puts `content` behind the dictionary.
    fn lay(&mut self, content: &[u8]) {
        self.text.truncate(DICTIONARY.len());
        self.text.extend_from_slice(content);
        // Clearing the table is a sixth of the work for a small record, so it waits until the numbers run out.
        if self.since.checked_add(place(self.text.len())).is_none() {
            self.last.fill(0);
            self.since = 1;
        }
        // Only what was added is looked at, so what stands here from before means nothing.
        if self.before.len() < self.text.len() {
            self.before.resize(self.text.len(), NOWHERE);
        }
    }

    /// Gives back what only a large frame needs, and forgets what was packed.
    fn tidy(&mut self) {
        self.since = self.since.saturating_add(place(self.text.len()));
        self.text.truncate(DICTIONARY.len());
        self.text.shrink_to(DICTIONARY.len() + MUCH);
        self.before.truncate(DICTIONARY.len() + MUCH);
        self.before.shrink_to(DICTIONARY.len() + MUCH);
    }

    /// Adds a place; where its four bytes stood last, as far as that was added.
    fn add(&mut self, at: usize) -> u32 {
        let Some(hash) = hash(&self.text, at) else { return NOWHERE };
        let last = std::mem::replace(&mut self.last[hash], self.since + place(at));
        let before = last.checked_sub(self.since).unwrap_or_else(|| self.known.last[hash]);
        self.before[at] = before;
        before
    }

    /// The longest repetition at `at` of what stood before, which ends before `end` and is longer than `least`: its length and how
    /// far back it is. `place` is where its beginning stood last.
    fn longest(
        &self,
        at: usize,
        mut place: u32,
        end: usize,
        least: usize,
        looks: usize,
    ) -> Option<(usize, usize)> {
        let (mut best, text) = ((least, 0), self.text.as_slice());
        let ahead = text.get(at..end)?;
        // One that is longer has this byte too.
        let mut wanted = *ahead.get(least)?;
        for _ in 0..looks {
            let from = place as usize;
            if from >= at || at - from > FARTHEST {
                break;
            }
            if text[from + best.0] == wanted {
                let length = common(&text[from..], ahead);
                if length > best.0 {
                    best = (length, at - from);
                    let Some(next) = ahead.get(length) else { break };
                    wanted = *next;
                }
            }
            place = self.before[from];
        }
        (best.0 > least).then_some(best)
    }
}

/// Appends the packed form of `content`, and says whether it is shorter; if not, nothing is appended.
pub(super) fn pack(content: &[u8], into: &mut Vec<u8>) -> bool {
    DESK.with_borrow_mut(|desk| {
        desk.lay(content);
        let is_shorter = pack_on(desk, content.len(), into);
        desk.tidy();
        is_shorter
    })
}

/// The same, of the `length` bytes that lie on the desk.
fn pack_on(desk: &mut Desk, length: usize, into: &mut Vec<u8>) -> bool {
    let start = into.len();
    let looks = if length > MUCH { LOOKS_IN_MUCH } else { LOOKS };
    let end = desk.text.len().saturating_sub(END);
    let last = desk.text.len().saturating_sub(NEAR_END);
    let (mut written, mut at, mut misses) = (DICTIONARY.len(), DICTIONARY.len(), 0_usize);
    while at <= last {
        let place = desk.add(at);
        let Some(mut found) = desk.longest(at, place, end, LEAST - 1, looks) else {
            misses += 1;
            at += 1 + (misses >> PATIENCE);
            continue;
        };
        misses = 0;
        let mut added = at + 1;
        // What begins a byte later may be longer.
        while at < last {
            let place = desk.add(at + 1);
            added = at + 2;
            let Some(later) = desk.longest(at + 1, place, end, found.0 + 1, looks) else { break };
            (at, found) = (at + 1, later);
        }
        push_sequence(into, &desk.text[written..at], Some(found));
        written = at + found.0;
        for at in added..written {
            desk.add(at);
        }
        at = written;
        if into.len() - start >= length {
            break;
        }
    }
    push_sequence(into, &desk.text[written..], None);
    let is_shorter = into.len() - start < length;
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
    fn what_a_thread_packs_does_not_depend_on_what_it_packed_before() {
        let record = br#"{"type":"turn.started","data":{"turn":"msg_0123456789abABCDEFGHIJKLMN"}}"#.repeat(3);
        let packed = |desk: &mut Desk| {
            let mut packed = Vec::new();
            desk.lay(&record);
            assert!(pack_on(desk, record.len(), &mut packed));
            desk.tidy();
            packed
        };
        let mut desk = Desk::new();
        let first = packed(&mut desk);
        // The numbers run out, some places before and after that.
        for before in [0, 1, DICTIONARY.len(), DICTIONARY.len() + record.len(), 20_000, 50_000] {
            desk.since = u32::MAX - place(before);
            for _ in 0..6 {
                assert_eq!(packed(&mut desk), first, "{before} before the end");
            }
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
