//! Blobs that somebody has in hand: stored or named a short while ago, so that no sweep takes them away although no record
//! names them yet.
//!
//! Counted on the monotonic clock: a wall clock that jumps lets go of nothing. What was stored before this process began
//! is told by the time of its file instead.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use memchr::memmem;
use parking_lot::{Mutex, MutexGuard};

use crate::keys;
use crate::table::Batch;

/// A hash, read from its digits.
pub(crate) type Digest = [u8; 32];

const DIGITS: usize = 64;

/// How a record's JSON names a blob: the beginning of a [`playhouse_protocol::message::BlobRef`]. Quotes inside of texts
/// are escaped, so that no text looks like it.
const NAME: &[u8] = b"\"hash\":\"";

/// The digest that 64 lower-case hex digits say.
pub(crate) fn digest(text: &[u8]) -> Option<Digest> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut digest = [0; 32];
    if text.len() != DIGITS {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? * 16 + digit(pair[1])?;
    }
    Some(digest)
}

/// The digits of a digest.
pub(crate) fn digits(digest: &Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The blobs that a record's JSON names, in whatever kind of record of whatever version, damaged or not.
pub(crate) fn named_in(json: &[u8]) -> impl Iterator<Item = Digest> + '_ {
    memmem::find_iter(json, NAME).filter_map(|at| digest(json.get(at + NAME.len()..)?.get(..DIGITS)?))
}

/// See the page of this module.
pub(crate) struct InHand {
    /// At least so long a blob stays in hand, and at most twice as long.
    grace: Duration,
    held: Mutex<Held>,
}

struct Held {
    young: HashSet<Digest>,
    old: HashSet<Digest>,
    /// When the young became the old.
    turned: Instant,
}

impl InHand {
    pub(crate) fn new(grace: Duration) -> Self {
        let held = Held { young: HashSet::new(), old: HashSet::new(), turned: Instant::now() };
        Self { grace, held: Mutex::new(held) }
    }

    pub(crate) fn grace(&self) -> Duration {
        self.grace
    }

    /// A blob that is about to be stored, before it is looked for: whoever removes it looks here in the same moment.
    pub(crate) fn hold(&self, digest: Digest) {
        self.held().young.insert(digest);
    }

    /// What this content, the JSON of a large record perhaps, names.
    pub(crate) fn hold_named_in(&self, content: &[u8]) {
        self.hold_all(named_in(content));
    }

    /// What the frames in a batch name, before the batch is applied: a sweep that began may have passed their places.
    pub(crate) fn hold_named_in_frames(&self, batch: &Batch) {
        let end = keys::end_of(keys::LOGS);
        let frames = batch.range(keys::LOGS.to_vec()..end);
        self.hold_all(frames.filter_map(|(_, frame)| frame.as_deref()).flat_map(named_in));
    }

    fn hold_all(&self, digests: impl Iterator<Item = Digest>) {
        let mut digests = digests.peekable();
        if digests.peek().is_some() {
            self.held().young.extend(digests);
        }
    }

    /// Does `remove` if nobody has the blob in hand, and nobody gets it meanwhile.
    pub(crate) fn unless_held<T>(&self, digest: &Digest, remove: impl FnOnce() -> T) -> Option<T> {
        let held = self.held();
        let is_held = held.young.contains(digest) || held.old.contains(digest);
        (!is_held).then(remove)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        let mut held = self.held.lock();
        let elapsed = held.turned.elapsed();
        if elapsed >= self.grace {
            let young = std::mem::take(&mut held.young);
            held.old = if elapsed >= self.grace * 2 { HashSet::new() } else { young };
            held.turned = Instant::now();
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::message::{Attachment, BlobRef};

    use super::*;
    use crate::blobs::reference;
    use crate::frame::Spilled;

    fn digest_of(content: &str) -> Digest {
        digest(reference(content.as_bytes()).hash.as_bytes()).unwrap()
    }

    #[test]
    fn every_stored_form_of_a_reference_is_found_and_no_text_is_one() {
        let blob = reference(b"a");
        let attachment = Attachment::new("a", "b", blob.clone());
        let spilled = Spilled { tenant: "acme".to_owned(), blob: reference(b"b") };
        let text = serde_json::to_string(&BlobRef { hash: "0".repeat(64), size: 1 }).unwrap();
        let json = serde_json::to_vec(&(attachment, &text, spilled)).unwrap();
        let found: Vec<Digest> = named_in(&json).collect();
        assert_eq!(found, [digest_of("a"), digest_of("b")]);
        assert_eq!(digits(&found[0]), blob.hash);
        for cut in 0..json.len() {
            assert!(named_in(&json[..cut]).count() <= 2);
        }
        for other in ["", "0", &"g".repeat(64), &"A".repeat(64), &"0".repeat(65)] {
            assert_eq!(digest(other.as_bytes()), None);
        }
    }

    #[test]
    fn a_blob_is_let_go_after_the_grace() {
        let in_hand = InHand::new(Duration::from_millis(20));
        let blob = digest_of("a");
        assert_eq!(in_hand.unless_held(&blob, || 1), Some(1));
        let held = Instant::now();
        in_hand.hold(blob);
        // However slow this machine is: it is held for the grace, and not for ever.
        while in_hand.unless_held(&blob, || ()).is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(held.elapsed() >= Duration::from_millis(20));
    }
}
