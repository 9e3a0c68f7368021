//! Ids that are made from other ids, so that whoever makes them twice makes the same.

use playhouse_protocol::{MessageId, PartId};

/// Characters before the random part of an id: prefix, `_`, 12 digits of time.
const HEAD: usize = 16;
/// Characters of the random part.
const RANDOM: usize = 14;
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The id of the part with which a step begins. It sorts before those of all other parts of the message, since they were
/// made after the message's own id, by the same maker.
pub(crate) fn step_start(message: MessageId) -> PartId {
    part(&message.as_str()[4..HEAD], &message.as_str()[HEAD..])
}

/// The id of the part with which a step ends. It sorts after those of all other parts.
pub(crate) fn step_finish(message: MessageId, last: PartId) -> PartId {
    let bits = u64::from_str_radix(&last.as_str()[4..HEAD], 16).unwrap_or_default();
    let next = (bits + 1) & ((1 << 48) - 1);
    part(&format!("{next:012x}"), &message.as_str()[HEAD..])
}

/// The id of a message that sorts directly behind this one.
pub(crate) fn behind(message: MessageId) -> MessageId {
    let bits = u64::from_str_radix(&message.as_str()[4..HEAD], 16).unwrap_or_default();
    let next = (bits + 1) & ((1 << 48) - 1);
    let text = format!("msg_{next:012x}{}", &message.as_str()[HEAD..]);
    MessageId::parse(&text).unwrap_or(message)
}

/// The id of the file with number `index` in the result of a call.
pub(crate) fn attachment(call: PartId, index: usize) -> PartId {
    let text = call.as_str();
    let number = base62(index as u128, 2);
    part(&text[4..HEAD], &format!("{}{number}", &text[HEAD..HEAD + RANDOM - 2]))
}

/// The id of the event at a place of a feed. It says no time, but ascends. `own` counts the events that a stream tells
/// beside those of the feed, and is 0 for these.
pub(crate) fn event(generation: u64, position: u64, own: u32) -> String {
    let place = u128::from(generation) << 64 | u128::from(own) << 32 | u128::from(position & 0xffff_ffff);
    format!("evt_{:012x}{}", position & ((1 << 48) - 1), base62(place, RANDOM))
}

/// Parses what can only have the form of an id; the call of some message stands in for what cannot be.
fn part(time: &str, random: &str) -> PartId {
    let text = format!("prt_{time}{random}");
    PartId::parse(&text).unwrap_or_else(|_| fallback())
}

fn fallback() -> PartId {
    use playhouse_protocol::{IdGenerator, Timestamp};
    IdGenerator::new(|bytes| bytes.fill(0)).next(Timestamp::default())
}

/// The last `length` digits of a number.
fn base62(mut number: u128, length: usize) -> String {
    let mut digits = vec![b'0'; length];
    for digit in digits.iter_mut().rev() {
        *digit = BASE62[(number % 62) as usize];
        number /= 62;
    }
    String::from_utf8(digits).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::{IdGenerator, Timestamp};

    use super::*;

    #[test]
    fn a_step_begins_before_its_parts_and_ends_after_them() {
        let mut ids = IdGenerator::new(|bytes| bytes.fill(250));
        let now = Timestamp::from_millis(1_800_000_000_000);
        let message: MessageId = ids.next(now);
        let (first, last): (PartId, PartId) = (ids.next(now), ids.next(now));
        assert!(step_start(message) < first && last < step_finish(message, last));
        assert_eq!(step_start(message), step_start(message));
        let next: MessageId = ids.next(now);
        assert_ne!(step_start(message), step_start(next));
        // A step without parts.
        assert!(step_start(message) < step_finish(message, step_start(message)));
    }

    #[test]
    fn what_stands_behind_a_message_sorts_so() {
        let message: MessageId = IdGenerator::new(|bytes| bytes.fill(9)).next(Timestamp::from_millis(5));
        assert!(message < behind(message));
        assert_eq!(behind(message), behind(message));
    }

    #[test]
    fn files_and_events_have_ids_of_their_own() {
        let mut ids = IdGenerator::new(|bytes| bytes.fill(3));
        let call: PartId = ids.next(Timestamp::from_millis(5));
        let files: Vec<PartId> = (0..100).map(|index| attachment(call, index)).collect();
        assert!(files.is_sorted() && files.windows(2).all(|pair| pair[0] != pair[1]));
        let known = event(7, 3, 0);
        assert_eq!(known.len(), 30);
        assert!(known < event(7, 4, 0));
        assert_ne!(known, event(8, 3, 0));
        assert_ne!(known, event(7, 3, 1));
    }
}
