//! What readers see of the ledger is what was written, at every moment between a row's record and its place in lists and
//! sums, and after a crash at any of them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use playhouse_protocol::day::DAY;
use playhouse_protocol::ledger::{ArchiveQuery, GroupBy, RowQuery, UsageKey, UsageQuery, UsageSum};
use playhouse_protocol::record::{AttemptEnded, AttemptOutcome, AttemptStarted, SessionCreated};
use playhouse_protocol::usage::{Tokens, Usage};
use playhouse_protocol::{Day, Entry, ModelRef, Record, Seq, SessionId, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;

use super::tail::Tail;
use super::{archivable, keys, prepare, rows, usage};
use crate::Append;
use crate::memory::{MemoryBlobs, MemoryTable};
use crate::projection::Source;
use crate::round::{Heads, Round};
use crate::table::Table;
use crate::writer::Archive;

const BEGIN: u64 = 20_000 * DAY + DAY / 2;

fn session(number: u64) -> SessionId {
    SessionId::parse(&format!("ses_{number:012x}12345678901234")).unwrap()
}

fn tenant(session: u64) -> String {
    format!("t{}", session % 2)
}

/// What a test knows of a row: its tenant, when it ended, its number, its session, its model.
type Row = (String, u64, u64, u64, String);

/// A store without its thread.
struct World {
    table: Arc<dyn Table>,
    source: Source,
    heads: Heads,
    generation: u64,
    many: usize,
    ends: BTreeMap<u64, u64>,
    clock: u64,
    attempts: u64,
    rows: BTreeSet<Row>,
    archived: u64,
}

impl World {
    fn new(many: usize) -> Self {
        let table: Arc<dyn Table> = Arc::new(MemoryTable::default());
        let source = Self::open(&table, many, 1);
        Self {
            table,
            source,
            heads: Heads::new(),
            generation: 1,
            many,
            ends: BTreeMap::new(),
            clock: BEGIN,
            attempts: 0,
            rows: BTreeSet::new(),
            archived: 0,
        }
    }

    fn open(table: &Arc<dyn Table>, many: usize, generation: u64) -> Source {
        let blobs =
            Arc::new(MemoryBlobs::new(Arc::new(crate::in_hand::InHand::new(std::time::Duration::ZERO))));
        let mut source = Source::new(Arc::clone(table), blobs);
        source.tail = Tail::new(many);
        source.feed_end = AtomicU64::new(prepare(&source, generation).unwrap());
        source
    }

    /// Goes on with what is in the table.
    fn crash(&mut self) {
        self.generation += 1;
        self.heads = Heads::new();
        self.source = Self::open(&self.table, self.many, self.generation);
    }

    fn entries(&mut self, of: u64) -> Append {
        let model = ModelRef::new("p", format!("m{}", self.attempts % 3));
        let known = self.ends.entry(of).or_default();
        let expected = Seq(*known);
        let mut records = Vec::new();
        if *known == 0 {
            records.push(Record::SessionCreated(SessionCreated {
                title: "t".to_owned(),
                root: (of > 2).then(|| session(of % 2)),
                ..SessionCreated::new(session(of), tenant(of), "/w", "build", model.clone())
            }));
        }
        self.attempts += 1;
        let id = |kind: &str| format!("{kind}_{:012x}12345678901234", self.attempts);
        records.push(Record::AttemptStarted(AttemptStarted::new(
            id("att").parse().unwrap(),
            id("msg").parse().unwrap(),
            id("msg").parse().unwrap(),
            "build",
            model.clone(),
        )));
        records.push(Record::AttemptEnded(AttemptEnded {
            attempt: id("att").parse().unwrap(),
            outcome: AttemptOutcome::Finished,
            usage: Some(Usage {
                tokens: Tokens { input: self.attempts, ..Tokens::default() },
                ..Usage::default()
            }),
            cost: None,
            answered_by: None,
            assumed: Vec::new(),
            calls: Vec::new(),
            costs: None,
            ended: None,
            inner: Vec::new(),
        }));
        self.rows.insert((tenant(of), self.clock, self.attempts, of, model.to_string()));
        let at = Timestamp::from_millis(self.clock);
        let place = |(index, record)| Entry { seq: Seq(expected.0 + 1 + index), at, record };
        let entries: Vec<_> = (0..).zip(records).map(place).collect();
        *known += entries.len() as u64;
        Append { session: session(of), tenant: tenant(of).into(), expected, entries }
    }

    /// An attempt of each of these sessions, in one batch.
    fn write(&mut self, sessions: &[u64]) {
        let appends: Vec<_> = sessions.iter().map(|of| self.entries(*of)).collect();
        let mut round = Round::new(&self.source, &mut self.heads);
        for append in &appends {
            round.append(append).unwrap();
        }
        round.commit().unwrap();
    }

    /// Archives what ended before `before`, which a test still counts.
    fn archive(&mut self, before: u64) {
        let before = Timestamp::from_millis(before);
        let query = ArchiveQuery { before, up_to: None, after: 0, limit: 1_000 };
        let end = self.source.feed_end.load(Ordering::Relaxed);
        let page = archivable(&self.source, &query, end).unwrap();
        let mut round = Round::new(&self.source, &mut self.heads);
        let archive = Archive { before, numbers: page.numbers, priced: HashSet::new() };
        self.archived += round.archive(&archive).unwrap();
        assert_eq!(round.archive(&archive).unwrap(), 0);
        round.commit().unwrap();
    }

    fn all_rows(&self, query: RowQuery) -> Vec<Row> {
        let (mut query, mut found) = (RowQuery { limit: 3, ..query }, Vec::new());
        loop {
            let page = rows(&self.source, &query).unwrap();
            found.extend(page.rows.into_iter().map(|row| {
                let number = |text: &str| u64::from_str_radix(&text[4..16], 16).unwrap();
                let (attempt, session) = (number(row.attempt.as_str()), number(row.session.as_str()));
                (
                    row.tenant,
                    row.ended.as_millis(),
                    attempt,
                    session,
                    format!("{}/{}", row.provider, row.model),
                )
            }));
            match page.next {
                Some(next) => query.after = Some(next),
                None => return found,
            }
        }
    }

    fn check(&self) {
        // Rows are archived in the order of time.
        let mut by_time: Vec<_> = self.rows.iter().cloned().collect();
        by_time.sort_by_key(|row| (row.1, row.2));
        let mut expected = by_time.split_off(usize::try_from(self.archived).unwrap());
        expected.sort();
        assert_eq!(self.all_rows(RowQuery::default()), expected);
        for number in 0..5 {
            let root = if number > 2 { number % 2 } else { number };
            let of_session = RowQuery { session: Some(session(number)), ..RowQuery::default() };
            let mut of: Vec<_> = expected.iter().filter(|row| row.3 == number).cloned().collect();
            of.sort_by_key(|row| (row.1, row.2));
            assert_eq!(self.all_rows(of_session), of);
            let tree = RowQuery { root: Some(session(root)), ..RowQuery::default() };
            let is_in = |row: &&Row| row.3 == root || (row.3 > 2 && row.3 % 2 == root);
            assert_eq!(self.all_rows(tree).len(), expected.iter().filter(is_in).count());
        }
        for by in [vec![GroupBy::Day, GroupBy::Model], vec![GroupBy::Session, GroupBy::Day], vec![]] {
            for tenant in [None, Some("t1".to_owned())] {
                let query =
                    UsageQuery { by: by.clone(), tenant: tenant.clone(), limit: 2, ..UsageQuery::default() };
                let of = |row: &&Row| tenant.as_ref().is_none_or(|tenant| *tenant == row.0);
                assert_eq!(self.sums(query), sums(&by, self.rows.iter().filter(of)));
            }
        }
        // Rows at the edges, sums in between; what was archived is in sums only.
        if self.archived == 0 {
            let (from, to) = (BEGIN + DAY / 3, BEGIN + 3 * DAY + DAY / 3);
            let at = |time| Some(Timestamp::from_millis(time));
            let by = vec![GroupBy::Session, GroupBy::Model];
            let query = UsageQuery { from: at(from), to: at(to), by: by.clone(), ..UsageQuery::default() };
            let within = self.rows.iter().filter(|row| (from..to).contains(&row.1));
            assert_eq!(self.sums(query), sums(&by, within));
        }
    }

    fn sums(&self, query: UsageQuery) -> BTreeMap<UsageKey, UsageSum> {
        let (mut query, mut found) = (query, BTreeMap::new());
        loop {
            let page = usage(&self.source, &query).unwrap();
            found.extend(page.groups.into_iter().map(|group| (group.key, group.sum)));
            match page.next {
                Some(next) => query.after = Some(next),
                None => return found,
            }
        }
    }
}

fn sums<'a>(by: &[GroupBy], rows: impl Iterator<Item = &'a Row>) -> BTreeMap<UsageKey, UsageSum> {
    let mut found = BTreeMap::<UsageKey, UsageSum>::new();
    for (tenant, time, number, of, model) in rows {
        let mut key = UsageKey::default();
        for group in by {
            match group {
                GroupBy::Day => key.day = Some(Day(time / DAY)),
                GroupBy::Model => key.model = Some(model.clone()),
                _ => (key.tenant, key.session) = (Some(tenant.clone()), Some(session(*of))),
            }
        }
        let sum = found.entry(key).or_default();
        sum.totals.tokens.input += number;
        sum.totals.attempts += 1;
        sum.totals.unpriced += 1;
    }
    found
}

/// Something that happens to a store.
#[derive(Clone, Debug)]
enum Act {
    Write { sessions: Vec<u64>, wait: u64 },
    Archive { before: u64 },
    Crash,
}

fn acts() -> impl Strategy<Value = Act> {
    let wait = prop_oneof![Just(0), 0..100_000_u64, 0..2 * DAY];
    prop_oneof![
        9 => (vec(0..5_u64, 1..6), wait).prop_map(|(sessions, wait)| Act::Write { sessions, wait }),
        1 => (0..10 * DAY).prop_map(|before| Act::Archive { before: BEGIN + before }),
        2 => Just(Act::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    #[ignore = "slow: scripts/slow runs it"]
    fn readers_see_what_was_written_wherever_the_writer_is(acts in vec(acts(), 1..40), many in 1..80_usize) {
        let mut world = World::new(many);
        for act in &acts {
            match act {
                Act::Write { sessions, wait } => {
                    world.clock += wait;
                    world.write(sessions);
                }
                Act::Archive { before } => world.archive(*before),
                Act::Crash => world.crash(),
            }
            world.check();
        }
        world.crash();
        world.check();
    }
}

#[test]
fn settling_takes_several_batches_and_survives_a_crash_in_the_middle() {
    let mut world = World::new(100);
    let settled = |world: &World| world.table.get(keys::SETTLED_MARK).unwrap();
    let blocks = |world: &World| world.table.scan(b"i/", b"k/", 1_000).unwrap().len();
    for number in 0..100 {
        world.clock += DAY / 10;
        world.write(&[number % 5]);
    }
    // The job is made with the next batch, and is too long for it.
    assert_eq!((settled(&world), blocks(&world)), (None, 0));
    world.write(&[1]);
    assert!(blocks(&world) > 0 && settled(&world).is_none());
    world.check();
    world.crash();
    let all = settled(&world);
    assert_eq!(all, Some(world.source.feed_end.load(Ordering::Relaxed).to_be_bytes().to_vec()));
    world.check();
    // Without a crash it ends by itself.
    for number in 0..200 {
        world.clock += DAY / 100;
        world.write(&[number % 5]);
    }
    assert_ne!(settled(&world), all);
    world.check();
    assert!(world.source.tail.rows(|_| true).len() < 200, "the tail stays short");
}

#[test]
fn a_damaged_sum_is_made_again() {
    let mut world = World::new(5);
    (0..30).for_each(|number| world.write(&[number % 3]));
    let sums = world.table.scan(b"a/", b"c/", 100).unwrap();
    assert!(!sums.is_empty());
    let damaged = sums.into_iter().map(|(key, sum)| (key, Some(sum[..sum.len() / 2].to_vec())));
    world.table.apply(damaged.collect()).unwrap();
    assert!(usage(&world.source, &UsageQuery::default()).is_err());
    (0..30).for_each(|number| world.write(&[number % 3]));
    world.crash();
    world.check();
}

#[test]
fn readers_beside_the_writer_count_every_row_once() {
    let mut world = World::new(7);
    world.write(&[0, 1, 2, 3, 4]);
    let (table, source) =
        (Arc::clone(&world.table), std::mem::replace(&mut world.source, World::open(&world.table, 7, 2)));
    drop(source);
    let source = Arc::new(World::open(&table, 7, 3));
    let (done, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(5)));
    let reader = thread::spawn({
        let (source, done, written) = (Arc::clone(&source), Arc::clone(&done), Arc::clone(&written));
        move || {
            let mut looks = 0;
            while !done.load(Ordering::Acquire) || looks == 0 {
                let least = written.load(Ordering::Acquire);
                let by = vec![GroupBy::Session];
                let page = usage(&source, &UsageQuery { by, ..UsageQuery::default() }).unwrap();
                let sum: u64 = page.groups.iter().map(|group| group.sum.totals.attempts).sum();
                let found = rows(&source, &RowQuery { limit: 10_000, ..RowQuery::default() }).unwrap().rows;
                let ids: BTreeSet<_> = found.iter().map(|row| row.id.clone()).collect();
                // One batch may be between its rows and the counter.
                let most = written.load(Ordering::Acquire) + 5;
                assert!((least..=most).contains(&sum), "{least} {sum} {most}");
                assert_eq!(ids.len(), found.len(), "a row twice");
                assert!(found.len() as u64 >= least, "{} rows of {least}", found.len());
                looks += 1;
            }
            looks
        }
    });
    for _ in 0..400 {
        world.clock += 7_000;
        let appends: Vec<_> = (0..5).map(|of| world.entries(of)).collect();
        let mut round = Round::new(&source, &mut world.heads);
        for append in &appends {
            round.append(append).unwrap();
        }
        round.commit().unwrap();
        written.fetch_add(5, Ordering::AcqRel);
    }
    done.store(true, Ordering::Release);
    assert!(reader.join().unwrap() > 0);
}
