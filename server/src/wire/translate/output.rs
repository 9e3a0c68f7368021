//! The output of a running call, of which clients of the wire see the end.
//!
//! The wire has no deltas for it: each update of the part carries all that is shown. So updates are spaced by how much was
//! written: what they cost all together is a small multiple of the output, not its square.

use playhouse_protocol::Timestamp;

/// The most bytes that are shown.
const WINDOW: usize = 8 * 1024;
/// Something new waits no longer than this to be shown, in milliseconds.
const LONGEST_WAIT: u64 = 500;

/// The end of a call's output.
#[derive(Debug, Default)]
pub(super) struct Tail {
    text: String,
    /// Bytes of output that were seen.
    seen: u64,
    /// How many of them when it was shown last, and when that was.
    shown: u64,
    shown_at: Timestamp,
}

impl Tail {
    /// Adds a piece that begins `offset` bytes into the output; says whether it is time to show the end.
    pub(super) fn add(&mut self, offset: u64, piece: &str, at: Timestamp) -> bool {
        let end = offset + piece.len() as u64;
        if end <= self.seen {
            return false;
        }
        let known = usize::try_from(self.seen.saturating_sub(offset)).unwrap_or(usize::MAX);
        self.text.push_str(piece.get(known..).unwrap_or(piece));
        self.seen = end;
        if self.text.len() > 2 * WINDOW {
            self.text.drain(..boundary(&self.text));
        }
        let new = self.seen - self.shown;
        let due = new >= WINDOW as u64 || at.millis_since(self.shown_at) >= LONGEST_WAIT;
        if due {
            self.show(at);
        }
        due
    }

    /// Whether something was written that was not shown, and waited long enough at `now`. It counts as shown then.
    pub(super) fn is_due(&mut self, now: Timestamp) -> bool {
        let due = self.seen > self.shown && now.millis_since(self.shown_at) >= LONGEST_WAIT;
        if due {
            self.show(now);
        }
        due
    }

    fn show(&mut self, at: Timestamp) {
        self.shown = self.seen;
        self.shown_at = at;
    }

    /// What is shown.
    pub(super) fn text(&self) -> &str {
        &self.text[boundary(&self.text)..]
    }
}

/// Where the last [`WINDOW`] bytes of a text begin: at a line, if there is one, and never within a character.
fn boundary(text: &str) -> usize {
    let mut from = text.len().saturating_sub(WINDOW);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    if from == 0 {
        return 0;
    }
    text[from..].find('\n').map_or(from, |line| from + line + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_grows_with_the_output_and_not_with_its_square() {
        let mut tail = Tail::default();
        let (mut sent, mut written) = (0, 0);
        for _ in 0..16_384 {
            let line = "0123456789012345678901234567890123456789012345678901234567890123\n";
            if tail.add(written, line, Timestamp::from_millis(1)) {
                sent += tail.text().len() as u64;
            }
            written += line.len() as u64;
        }
        assert!(sent <= 2 * written, "{sent} bytes for {written}");
        assert!(tail.text().len() <= WINDOW && tail.text().starts_with('0'));
    }

    #[test]
    fn pieces_count_once_and_the_last_is_shown_in_time() {
        let mut tail = Tail::default();
        let at = Timestamp::from_millis;
        assert!(tail.add(0, "é1\n", at(1_000)));
        assert!(!tail.add(0, "é1\n", at(5_000)), "it was seen");
        assert!(!tail.add(2, "1\n2\n", at(1_001)));
        assert_eq!(tail.text(), "é1\n2\n");
        assert!(!tail.is_due(at(1_400)) && tail.is_due(at(1_500)) && !tail.is_due(at(3_000)));
        tail.add(6, &"ü".repeat(20_000), at(1_501));
        assert!(tail.text().len() <= WINDOW);
    }
}
