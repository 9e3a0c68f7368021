//! From rows to reports: adds up what each turn used of each model until the turn is over.
//!
//! No sum is stored. What is saved is the place in the feed before which no row is of an open turn, and the place up to which
//! reports are settled; after a restart the feed is read from the first on, and makes the same sums and the same ids.
//!
//! The feed owes the end of every turn that has a row: after its last row, and once more after rows that come later
//! (titles). Corrections are money only and make no report. So what is kept is bounded by the turns that are under way.

use std::collections::BTreeMap;

use playhouse_protocol::ledger::{RowId, Tier};
use playhouse_protocol::{LedgerRow, MessageId, SessionId};

use super::report::TurnReport;
use super::signature::fingerprint;
use super::{Cursor, FeedItem, Place, TurnEnd};

/// A turn. Clients may choose the ids of their prompts, so it is known by its session as well.
type Key = (SessionId, MessageId);

/// The turns that are under way.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    open: BTreeMap<Key, Open>,
    /// Their keys by the number of their first row.
    by_age: BTreeMap<u64, Key>,
    /// Reports from entries up to this number were settled before the restart.
    settled: u64,
}

#[derive(Clone, Debug)]
struct Open {
    first: u64,
    tenant: String,
    models: BTreeMap<(String, String, Tier), Sum>,
}

#[derive(Clone, Debug)]
struct Sum {
    /// Makes the id: rows that come after a report are of another one.
    first_row: RowId,
    tokens: u64,
}

/// A report that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Where it comes from.
    pub place: Place,
    /// What may be saved when it and all before it are settled.
    pub cursor: Cursor,
    /// The report.
    pub report: TurnReport,
}

impl Turns {
    /// No turns, to read the feed after `cursor`.
    pub fn after(cursor: Cursor) -> Self {
        Self { settled: cursor.settled, ..Self::default() }
    }

    /// How many are open.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// What may be saved when the feed was read up to `position`, and all that was due is settled.
    pub fn cursor(&self, position: u64) -> Cursor {
        let after = self.by_age.first_key_value().map_or(position, |(first, _)| first.saturating_sub(1));
        Cursor { after, settled: position.max(self.settled) }
    }

    /// Takes the next entry of the feed, and gives the reports that are due.
    pub fn push(&mut self, number: u64, item: &FeedItem) -> Vec<Due> {
        match item {
            FeedItem::Row(row) => {
                self.add(number, row);
                Vec::new()
            }
            FeedItem::TurnEnded(end) => self.close(end, number),
            FeedItem::Closed(_) => Vec::new(),
        }
    }

    fn add(&mut self, number: u64, row: &LedgerRow) {
        // A correction has no tokens to report.
        if row.corrects.is_some() {
            return;
        }
        let key = (row.session, row.turn);
        let open = self.open.entry(key).or_insert_with(|| {
            self.by_age.insert(number, key);
            Open { first: number, tenant: row.tenant.clone(), models: BTreeMap::new() }
        });
        let sum = open
            .models
            .entry((row.provider.clone(), row.model.clone(), row.tier))
            .or_insert_with(|| Sum { first_row: row.id.clone(), tokens: 0 });
        sum.tokens = sum.tokens.saturating_add(row.tokens.total());
    }

    fn close(&mut self, end: &TurnEnd, number: u64) -> Vec<Due> {
        let key = (end.session, end.turn);
        let before = Cursor { settled: number.saturating_sub(1), ..self.cursor(number) };
        let Some(open) = self.open.remove(&key) else { return Vec::new() };
        self.by_age.remove(&open.first);
        if number <= self.settled {
            // Its first rows may lie before the place from which the feed was read again.
            return Vec::new();
        }
        let after = self.cursor(number);
        let last = open.models.len().saturating_sub(1);
        let due = open.models.into_iter().enumerate().map(|(index, ((provider, model, tier), sum))| Due {
            place: Place { number, part: u32::try_from(index).unwrap_or(u32::MAX) },
            // Only with the last of them is the turn done with.
            cursor: if index == last { after } else { before },
            report: TurnReport {
                id: id(key, &provider, &model, tier, &sum.first_row),
                tenant: open.tenant.clone(),
                session: key.0,
                turn: key.1,
                model_id: format!("{provider}/{model}"),
                tier,
                raw_tokens: sum.tokens,
                at: end.at,
            },
        });
        due.collect()
    }
}

fn id((session, turn): Key, provider: &str, model: &str, tier: Tier, first: &RowId) -> String {
    let parts = [session.as_str(), turn.as_str(), provider, model, tier.name(), &first.0];
    format!("rep_{}", fingerprint(&parts.map(str::as_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::samples::row;

    fn ended(row: &LedgerRow) -> FeedItem {
        let tenant = row.tenant.clone();
        FeedItem::TurnEnded(TurnEnd { tenant, session: row.session, turn: row.turn, at: row.ended })
    }

    fn rows(of: &[(u64, u8, &str)]) -> Vec<LedgerRow> {
        of.iter().map(|(number, turn, model)| row(*number, *turn, model)).collect()
    }

    #[test]
    fn a_turn_makes_one_report_for_each_model_when_it_is_over() {
        let rows = rows(&[(1, 1, "a"), (2, 1, "b"), (3, 1, "a"), (4, 2, "a")]);
        let mut turns = Turns::default();
        for (index, row) in rows.iter().enumerate() {
            assert!(turns.push(index as u64 + 1, &FeedItem::Row(Box::new(row.clone()))).is_empty());
        }
        assert_eq!(turns.cursor(4), Cursor { after: 0, settled: 4 });
        let due = turns.push(5, &ended(&rows[0]));
        let told: Vec<_> = due.iter().map(|due| (&*due.report.model_id, due.report.raw_tokens)).collect();
        assert_eq!(told, [("anthropic/a", 121 + 123), ("anthropic/b", 122)]);
        let cursors: Vec<Cursor> = due.iter().map(|due| due.cursor).collect();
        let open = "the second turn is open";
        assert_eq!(cursors, [Cursor { after: 0, settled: 4 }, Cursor { after: 3, settled: 5 }], "{open}");
        assert_eq!(due[1].place, Place { number: 5, part: 1 });
        assert_ne!(due[0].report.id, due[1].report.id);
        let last = turns.push(6, &ended(&rows[3]));
        assert_eq!((last.len(), last[0].cursor), (1, Cursor::at(6)));
        assert_eq!(turns.open(), 0);
    }

    #[test]
    fn what_comes_after_the_end_has_a_report_of_its_own() {
        let rows = rows(&[(1, 1, "a"), (2, 1, "a")]);
        let mut turns = Turns::default();
        let mut ids = Vec::new();
        for (number, row) in (1..).step_by(2).zip(&rows) {
            turns.push(number, &FeedItem::Row(Box::new(row.clone())));
            ids.extend(turns.push(number + 1, &ended(row)).into_iter().map(|due| due.report.id));
        }
        assert_eq!(ids.len(), 2);
        assert_ne!(ids[0], ids[1]);
        let correction = LedgerRow { corrects: Some(rows[0].id.clone()), ..rows[1].clone() };
        turns.push(8, &FeedItem::Row(Box::new(correction)));
        assert_eq!(turns.open(), 0, "a correction is owed no end");
        assert!(turns.push(9, &ended(&rows[0])).is_empty(), "nothing was used");
    }

    proptest::proptest! {
        /// Reading again from any place that was saved makes what was due after it, and nothing else.
        #[test]
        fn a_restart_makes_the_same_reports(script in proptest::collection::vec((0_u8..5, 0_u8..4), 1..60)) {
            let feed: Vec<(u64, FeedItem)> = (1..).zip(&script).map(|(number, (turn, kind))| {
                let row = row(number, *turn, if *kind == 1 { "a" } else { "b" });
                (number, if *kind == 0 { ended(&row) } else { FeedItem::Row(Box::new(row)) })
            }).collect();
            let mut turns = Turns::default();
            let mut all = Vec::new();
            let mut saved = vec![Cursor::default()];
            for (number, item) in &feed {
                let due = turns.push(*number, item);
                for cursor in due.iter().map(|due| due.cursor).chain([turns.cursor(*number)]) {
                    let last = saved.last().unwrap();
                    proptest::prop_assert!(last.after <= cursor.after && last.settled <= cursor.settled);
                    saved.push(cursor);
                }
                all.extend(due);
            }
            for from in saved {
                let mut again = Turns::after(from);
                let mut made = Vec::new();
                for (number, item) in feed.iter().filter(|(number, _)| *number > from.after) {
                    made.extend(again.push(*number, item));
                }
                let expected: Vec<Due> =
                    all.iter().filter(|due| due.place.number > from.settled).cloned().collect();
                proptest::prop_assert_eq!(made, expected);
            }
        }
    }
}
