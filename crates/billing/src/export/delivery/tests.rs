use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::export::samples::row;

const STAMP: Stamp = Stamp { at: Timestamp::from_millis(5), random: 0.5 };

fn item(number: u64) -> Item {
    let entry = Entry::Row(Box::new(row(number, 1, "m")));
    Item { place: Place { number, part: 0 }, cursor: Cursor::at(number), entry, encoded: vec![b'x'; 10] }
}

fn read(numbers: std::ops::RangeInclusive<u64>, more: bool) -> Input {
    let cursor = Cursor::at(*numbers.end());
    Input::Read { items: numbers.map(item).collect(), cursor, more }
}

/// The end of the feed, where nothing is of interest up to `number`.
fn nothing(number: u64) -> Input {
    Input::Read { items: Vec::new(), cursor: Cursor::at(number), more: false }
}

fn busy(retry_after_ms: Option<u64>) -> Input {
    Input::Answered(Answers::All(Answer::Busy { reason: "busy".to_owned(), retry_after_ms }))
}

fn refused(status: u16) -> Input {
    Input::Answered(Answers::All(Answer::Refused { status, reason: "no".to_owned() }))
}

fn accepted() -> Input {
    Input::Answered(Answers::All(Answer::Accepted))
}

fn policy() -> Policy {
    Policy { rows: 8, linger_ms: 0, ..Policy::default() }
}

/// A sink with eight entries under way.
fn sending() -> Delivery {
    let mut delivery = Delivery::new(policy(), Cursor::default());
    assert_eq!(delivery.on(Input::Started, STAMP), [Effect::Read(8)]);
    assert_eq!(delivery.on(read(1..=8, false), STAMP), [Effect::Send]);
    delivery
}

fn numbers(delivery: &Delivery) -> Vec<u64> {
    delivery.batch().iter().map(|item| item.place.number).collect()
}

#[test]
fn a_batch_that_is_accepted_is_saved_when_nothing_is_left() {
    let mut delivery = sending();
    assert_eq!(delivery.on(accepted(), STAMP), [Effect::Save(Cursor::at(8)), Effect::Idle]);
    assert_eq!(delivery.on(Input::Waited, STAMP), [Effect::Read(8)]);
    assert_eq!(delivery.on(nothing(8), STAMP), [Effect::Idle]);
}

#[test]
fn entries_that_are_of_no_interest_move_the_cursor() {
    let mut delivery = Delivery::new(policy(), Cursor::default());
    delivery.on(Input::Started, STAMP);
    assert_eq!(delivery.on(nothing(7), STAMP), [Effect::Save(Cursor::at(7)), Effect::Idle]);
}

#[test]
fn waits_grow_are_spread_and_obey_the_server() {
    let mut delivery = sending();
    let mut waits = Vec::new();
    for _ in 0..9 {
        let effects = delivery.on(busy(None), STAMP);
        let [Effect::Wait(wait)] = effects[..] else { panic!("{effects:?}") };
        waits.push(wait);
        assert_eq!(delivery.on(Input::Waited, STAMP), [Effect::Send]);
    }
    assert_eq!(waits, [375, 750, 1_500, 3_000, 6_000, 12_000, 24_000, 45_000, 45_000]);
    assert_eq!(delivery.on(busy(Some(77_000)), STAMP), [Effect::Wait(77_000)]);
    delivery.on(Input::Waited, STAMP);
    assert_eq!(delivery.on(busy(Some(u64::MAX)), STAMP), [Effect::Wait(3_600_000)], "it is asked again");
    let trouble = delivery.trouble().unwrap();
    assert_eq!((trouble.tries, trouble.misconfigured, &*trouble.reason), (11, false, "busy"));
    delivery.on(Input::Waited, STAMP);
    delivery.on(accepted(), STAMP);
    assert_eq!(delivery.trouble(), None);
}

#[test]
fn a_refused_batch_is_halved_until_the_entry_is_alone() {
    let mut delivery = sending();
    let mut sent = Vec::new();
    let mut buried = Vec::new();
    let mut effects = vec![Effect::Send];
    while effects.last() == Some(&Effect::Send) {
        let batch = numbers(&delivery);
        let answer = if batch.contains(&3) { refused(422) } else { accepted() };
        sent.push(batch);
        effects = delivery.on(answer, STAMP);
        buried.extend(effects.iter().filter_map(|effect| match effect {
            Effect::Bury(letter) => Some((letter.place.number, letter.status, letter.id.clone())),
            _ => None,
        }));
    }
    let expected: [&[u64]; 7] =
        [&[1, 2, 3, 4, 5, 6, 7, 8], &[1, 2, 3, 4], &[1, 2], &[3, 4], &[3], &[4], &[5, 6, 7, 8]];
    assert_eq!(sent, expected);
    assert_eq!(buried, [(3, 422, item(3).entry.id().to_owned())]);
    assert_eq!(effects, [Effect::Save(Cursor::at(8)), Effect::Idle]);
}

#[test]
fn a_letter_is_buried_before_the_cursor_passes_it() {
    let mut delivery = Delivery::new(policy(), Cursor::default());
    delivery.on(Input::Started, STAMP);
    delivery.on(read(1..=1, false), STAMP);
    let effects = delivery.on(refused(400), STAMP);
    assert!(
        matches!(&effects[..], [Effect::Bury(_), Effect::Save(cursor), Effect::Idle] if *cursor == Cursor::at(1))
    );
}

#[test]
fn a_batch_that_is_too_large_makes_the_next_ones_smaller() {
    let mut delivery = sending();
    delivery.on(refused(413), STAMP);
    assert_eq!(numbers(&delivery), [1, 2, 3, 4]);
    delivery.on(accepted(), STAMP);
    assert_eq!(numbers(&delivery), [5, 6, 7, 8]);
    delivery.on(accepted(), STAMP);
    delivery.on(Input::Waited, STAMP);
    delivery.on(read(9..=16, false), STAMP);
    assert_eq!(numbers(&delivery), [9, 10, 11, 12]);
}

#[test]
fn a_wrong_key_buries_nothing() {
    let mut delivery = sending();
    let answer = Answer::Misconfigured { reason: "status 401".to_owned() };
    for _ in 0..3 {
        let effects = delivery.on(Input::Answered(Answers::All(answer.clone())), STAMP);
        assert_eq!(effects, [Effect::Wait(45_000)], "always slowly, and not slower");
        assert_eq!(delivery.on(Input::Waited, STAMP), [Effect::Send]);
    }
    assert!(delivery.trouble().unwrap().misconfigured);
    assert_eq!(numbers(&delivery).len(), 8);
}

#[test]
fn a_server_that_refuses_everything_is_not_fed_the_whole_ledger() {
    let mut delivery = Delivery::new(Policy { refused_in_a_row: 3, ..policy() }, Cursor::default());
    delivery.on(Input::Started, STAMP);
    delivery.on(read(1..=8, false), STAMP);
    let mut buried = 0;
    let last = loop {
        let effects = delivery.on(refused(400), STAMP);
        buried += effects.iter().filter(|effect| matches!(effect, Effect::Bury(_))).count();
        if effects.last() != Some(&Effect::Send) {
            break effects;
        }
    };
    assert_eq!(buried, 3);
    assert_eq!(last, [Effect::Wait(45_000)]);
    assert!(delivery.trouble().unwrap().misconfigured);
    delivery.on(Input::Waited, STAMP);
    assert_eq!(numbers(&delivery), [4]);
    delivery.on(accepted(), STAMP);
    let effects = delivery.on(refused(400), STAMP);
    assert_ne!(
        effects.last(),
        Some(&Effect::Wait(45_000)),
        "one that is accepted shows that it was not everything"
    );
}

#[test]
fn a_batch_that_is_not_full_waits_once_for_more() {
    let mut delivery = Delivery::new(Policy { linger_ms: 200, ..policy() }, Cursor::default());
    delivery.on(Input::Started, STAMP);
    assert_eq!(delivery.on(read(1..=2, false), STAMP), [Effect::Wait(200)]);
    assert_eq!(delivery.on(Input::Waited, STAMP), [Effect::Read(6)]);
    assert_eq!(delivery.on(read(3..=3, false), STAMP), [Effect::Send]);
    assert_eq!(numbers(&delivery), [1, 2, 3]);
}

#[test]
fn entries_of_their_own_are_settled_one_by_one() {
    let mut delivery = Delivery::new(Policy { rows: 4, each: true, ..policy() }, Cursor::default());
    delivery.on(Input::Started, STAMP);
    assert_eq!(delivery.on(read(1..=5, false), STAMP), [Effect::Send]);
    assert_eq!(numbers(&delivery), [1, 2, 3, 4]);
    let busy = Answer::Busy { reason: "later".to_owned(), retry_after_ms: Some(9_000) };
    let refused = Answer::Refused { status: 422, reason: "no".to_owned() };
    let answers = vec![Answer::Accepted, busy, refused, Answer::Accepted];
    let effects = delivery.on(Input::Answered(Answers::Each(answers)), STAMP);
    assert!(
        matches!(&effects[..], [Effect::Bury(letter), Effect::Save(cursor), Effect::Wait(9_000)]
            if letter.place.number == 3 && *cursor == Cursor::at(1)),
        "{effects:?}"
    );
    assert_eq!(delivery.on(Input::Waited, STAMP), [Effect::Send]);
    assert_eq!(numbers(&delivery), [2, 5], "what is settled is not sent again");
    let answers = vec![Answer::Accepted, Answer::Accepted];
    delivery.on(Input::Answered(Answers::Each(answers)), STAMP);
    let effects = delivery.on(nothing(5), STAMP);
    assert_eq!(effects, [Effect::Save(Cursor::at(5)), Effect::Idle]);
}

#[test]
fn a_letter_is_read_as_it_was_written() {
    let mut delivery = Delivery::new(policy(), Cursor::default());
    delivery.on(Input::Started, STAMP);
    delivery.on(read(1..=1, false), STAMP);
    let effects = delivery.on(refused(400), STAMP);
    let Some(Effect::Bury(letter)) = effects.first() else { panic!("{effects:?}") };
    let text = serde_json::to_string(letter).unwrap();
    assert_eq!(&serde_json::from_str::<DeadLetter>(&text).unwrap(), &**letter);
}

/// A server that answers as the script says, and refuses some entries always.
struct Server {
    bad: BTreeSet<u64>,
    script: Vec<u8>,
    at: usize,
    has: BTreeMap<u64, u32>,
    /// Entries that it refused when they were alone.
    refused: BTreeSet<u64>,
    largest: usize,
}

impl Server {
    fn answer(&mut self, batch: &[u64]) -> Answer {
        self.at += 1;
        let word = self.script.get(self.at % self.script.len().max(1)).copied().unwrap_or(0);
        let reason = String::new();
        match word {
            // It takes the batch, and the answer is lost.
            1 => {
                if batch.iter().all(|number| !self.bad.contains(number)) {
                    self.take(batch);
                }
                Answer::Busy { reason, retry_after_ms: None }
            }
            2 => Answer::Busy { reason, retry_after_ms: Some(1_000) },
            3 => Answer::Misconfigured { reason },
            _ if batch.len() > self.largest => Answer::Refused { status: 413, reason },
            _ if batch.iter().any(|number| self.bad.contains(number)) => {
                if let [one] = batch {
                    self.refused.insert(*one);
                }
                Answer::Refused { status: 422, reason }
            }
            _ => {
                self.take(batch);
                Answer::Accepted
            }
        }
    }

    fn take(&mut self, batch: &[u64]) {
        for number in batch {
            *self.has.entry(*number).or_default() += 1;
        }
    }
}

proptest! {
    /// Whatever a server answers and wherever the sink is killed: each entry is with the server or among the letters, and
    /// nothing that the saved cursor has passed is missing at any time.
    #[test]
    fn every_entry_ends_with_the_server_or_among_the_letters(
        total in 1_u64..80,
        rows in 1_usize..12,
        bytes in 5_usize..120,
        bad in prop::collection::btree_set(1_u64..80, 0..8),
        script in prop::collection::vec(0_u8..6, 1..40),
        kills in prop::collection::btree_set(0_usize..150, 0..6),
        largest in 1_usize..12,
        each in any::<bool>(),
        linger_ms in 0_u64..2,
        batches_per_save in 1_u32..5,
    ) {
        // At least one word of the script lets something through.
        let script: Vec<u8> = script.into_iter().chain([0, 0]).collect();
        let mut server = Server { bad, script, at: 0, has: BTreeMap::new(), refused: BTreeSet::new(), largest };
        let mut letters = BTreeSet::new();
        let mut saved = Cursor::default();
        let policy = Policy { rows, bytes, each, linger_ms, batches_per_save, ..Policy::default() };
        let mut delivery = Delivery::new(policy.clone(), saved);
        let mut position = 0;
        let mut input = Input::Started;
        for step in 0.. {
            prop_assert!(step < 20_000, "it makes no progress");
            if kills.contains(&step) {
                delivery = Delivery::new(policy.clone(), saved);
                position = saved.after;
                input = Input::Started;
            }
            let mut effects = delivery.on(input, STAMP);
            let last = effects.pop();
            for effect in effects {
                match effect {
                    Effect::Bury(letter) => {
                        prop_assert!(server.refused.contains(&letter.place.number), "it was not refused alone");
                        letters.insert(letter.place.number);
                    }
                    Effect::Save(cursor) => {
                        prop_assert!(cursor > saved);
                        for number in saved.after + 1..=cursor.after {
                            let is_settled = server.has.contains_key(&number) || letters.contains(&number);
                            prop_assert!(is_settled, "{number} is passed by {cursor:?}");
                        }
                        saved = cursor;
                    }
                    other => prop_assert!(false, "{other:?} is not last"),
                }
            }
            input = match last {
                Some(Effect::Read(limit)) => {
                    prop_assert!(limit > 0);
                    let end = total.min(position + limit as u64);
                    let items = (position + 1..=end).map(item).collect();
                    position = end;
                    Input::Read { items, cursor: Cursor::at(end), more: end < total }
                }
                Some(Effect::Send) => {
                    let batch = numbers(&delivery);
                    prop_assert!(!batch.is_empty() && batch.len() <= rows && batch.is_sorted());
                    let size: usize = delivery.batch().iter().map(|item| item.encoded.len()).sum();
                    prop_assert!(each || batch.len() == 1 || size <= bytes);
                    Input::Answered(if each {
                        Answers::Each(batch.iter().map(|number| server.answer(&[*number])).collect())
                    } else {
                        Answers::All(server.answer(&batch))
                    })
                }
                Some(Effect::Wait(_)) => Input::Waited,
                Some(Effect::Idle) => break,
                other => return Err(TestCaseError::fail(format!("{other:?}"))),
            };
        }
        prop_assert_eq!(saved, Cursor::at(total));
        let expected: BTreeSet<u64> = (1..=total).collect();
        let held: BTreeSet<u64> = server.has.keys().copied().collect();
        prop_assert_eq!(held.union(&letters).copied().collect::<BTreeSet<_>>(), expected);
        prop_assert!(letters.is_subset(&server.bad));
        prop_assert!(held.is_disjoint(&server.bad));
    }
}
