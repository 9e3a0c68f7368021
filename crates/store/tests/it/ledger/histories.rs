//! The ledger is what the logs say after any history, after times without it, and after a kill.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use playhouse_protocol::{Attribution, KeyRef};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::damage::tamper;

/// Something that happens to a store. Sessions are chosen among those that are there.
#[derive(Clone, Debug)]
enum Act {
    Create { tenant: u8, parent: Option<prop::sample::Index> },
    Turn { session: prop::sample::Index },
    EndTurn { session: prop::sample::Index },
    Begin { session: prop::sample::Index, model: u8, agent: u8, purpose: u8 },
    End { session: prop::sample::Index, tokens: u32, kind: u8, wait: u32 },
    Fork { session: prop::sample::Index },
    Delete { session: prop::sample::Index },
    Reopen,
}

fn acts() -> impl Strategy<Value = Act> {
    let session = any::<prop::sample::Index>;
    prop_oneof![
        3 => (0..3_u8, proptest::option::of(session())).prop_map(|(tenant, parent)| Act::Create { tenant, parent }),
        3 => session().prop_map(|session| Act::Turn { session }),
        3 => session().prop_map(|session| Act::EndTurn { session }),
        8 => (session(), 0..3_u8, 0..2_u8, 0..5_u8)
            .prop_map(|(session, model, agent, purpose)| Act::Begin { session, model, agent, purpose }),
        8 => (session(), any::<u32>(), 0..6_u8, 0..3 * DAY as u32)
            .prop_map(|(session, tokens, kind, wait)| Act::End { session, tokens, kind, wait }),
        1 => session().prop_map(|session| Act::Fork { session }),
        1 => session().prop_map(|session| Act::Delete { session }),
        1 => Just(Act::Reopen),
    ]
}

/// What a test knows of a session.
#[derive(Clone, Default)]
struct Known {
    tenant: String,
    turn: Option<u64>,
    open: BTreeSet<u64>,
    root: u64,
}

/// What a test knows of a row: who pays, when, the attempt, the session, its root, the model, the agent, the purpose, what
/// it used.
type Row = (String, u64, u64, u64, u64, String, String, Purpose, Usage, Option<Cost>);

struct World {
    store: Store,
    sessions: BTreeMap<u64, Known>,
    begun: BTreeMap<u64, AttemptStarted>,
    expected: Vec<Row>,
    clock: u64,
    next: u64,
}

/// Some rows have labels, a key, both or none.
fn attribution(agent: u8, model: u8) -> Option<Box<Attribution>> {
    let label = (agent % 2 == 1).then(|| ("customer".to_owned(), format!("c-{model}")));
    let key = (model % 2 == 1).then(|| KeyRef { id: format!("key_{agent}"), name: "ci".to_owned() });
    Attribution { labels: label.into_iter().collect(), key }.boxed()
}

impl World {
    fn pick(&self, index: &prop::sample::Index) -> Option<u64> {
        let keys: Vec<u64> = self.sessions.keys().copied().collect();
        (!keys.is_empty()).then(|| *index.get(&keys))
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn write(&self, number: u64, record: Record) {
        write(&self.store, number, &self.sessions[&number].tenant, self.clock, vec![record]);
    }

    fn act(&mut self, act: &Act) {
        self.clock += 1;
        match act {
            Act::Create { tenant, parent } => {
                let parent = parent.as_ref().and_then(|index| self.pick(index));
                let above = parent.map(|parent| (parent, self.sessions[&parent].clone()));
                let tenant = above.as_ref().map_or(format!("t{tenant}"), |(_, above)| above.tenant.clone());
                let number = self.number();
                let root = above.as_ref().map_or(number, |(_, above)| above.root);
                let Record::SessionCreated(first) = created(session(number), &tenant, "/w") else {
                    unreachable!("it creates a session")
                };
                let record = SessionCreated {
                    parent: parent.map(session),
                    root: parent.map(|_| session(root)),
                    ..first
                };
                let known = Known { tenant, root, ..Known::default() };
                self.sessions.insert(number, known);
                self.write(number, Record::SessionCreated(record));
            }
            Act::Turn { session } => {
                let Some(of) = self.pick(session) else { return };
                let number = self.number();
                if self.sessions[&of].turn.is_none() {
                    self.sessions.get_mut(&of).unwrap().turn = Some(number);
                    self.write(of, turn(number));
                }
            }
            Act::EndTurn { session } => {
                let Some(of) = self.pick(session) else { return };
                if let Some(number) = self.sessions.get_mut(&of).unwrap().turn.take() {
                    self.write(of, ended(number));
                }
            }
            Act::Begin { session, model, agent, purpose } => {
                let Some(of) = self.pick(session) else { return };
                let number = self.number();
                let turn = self.sessions[&of].turn.unwrap_or(number);
                let Record::AttemptStarted(first) = started(number, turn) else {
                    unreachable!("it starts an attempt")
                };
                let begin = AttemptStarted {
                    model: ModelRef::new(format!("p{}", model % 2), format!("m{model}")),
                    agent: format!("agent{agent}"),
                    purpose: Purpose::ALL[usize::from(*purpose)],
                    attribution: attribution(*agent, *model),
                    ..first
                };
                self.begun.insert(number, begin.clone());
                self.sessions.get_mut(&of).unwrap().open.insert(number);
                self.write(of, Record::AttemptStarted(begin));
            }
            Act::End { session, tokens, kind, wait } => {
                let Some(of) = self.pick(session) else { return };
                let Some(number) = self.sessions.get_mut(&of).unwrap().open.pop_first() else { return };
                self.clock += u64::from(*wait);
                let outcome = match kind {
                    0 => AttemptOutcome::Lost,
                    1 => AttemptOutcome::Aborted,
                    _ => AttemptOutcome::Finished,
                };
                let quality =
                    [Quality::Reported, Quality::Estimated, Quality::Unreconciled][usize::from(kind % 3)];
                let tokens = Tokens { input: u64::from(*tokens), output: 7, ..Tokens::default() };
                let usage = (*kind != 5).then_some(Usage {
                    tokens,
                    quality,
                    raw: None,
                    inner: Vec::new(),
                    provider_cost: None,
                    served: Vec::new(),
                });
                let cost = (*kind != 4).then(|| Cost(rust_decimal::Decimal::new(i64::from(*kind) + 1, 4)));
                if let Some(usage) = &usage {
                    let (known, begin) = (&self.sessions[&of], &self.begun[&number]);
                    self.expected.push((
                        known.tenant.clone(),
                        self.clock,
                        number,
                        of,
                        known.root,
                        begin.model.to_string(),
                        begin.agent.clone(),
                        begin.purpose,
                        usage.clone(),
                        cost,
                    ));
                }
                let end = AttemptEnded {
                    attempt: attempt(number),
                    outcome,
                    usage,
                    cost,
                    answered_by: None,
                    assumed: Vec::new(),
                    calls: Vec::new(),
                    costs: None,
                    ended: None,
                    inner: Vec::new(),
                };
                self.write(of, Record::AttemptEnded(end));
            }
            Act::Fork { session } => {
                let Some(from) = self.pick(session) else { return };
                let number = self.number();
                fork(&self.store, number, from, self.sessions[&from].turn, Vec::new());
                let parent = &self.sessions[&from];
                let known = Known {
                    tenant: parent.tenant.clone(),
                    turn: parent.turn,
                    root: number,
                    ..Known::default()
                };
                self.sessions.insert(number, known);
            }
            Act::Delete { session: index } => {
                let Some(of) = self.pick(index) else { return };
                self.sessions.remove(&of);
                delete(&self.store, session(of)).unwrap();
            }
            Act::Reopen => {}
        }
    }
}

fn row_of(row: &LedgerRow) -> Row {
    let number = |text: &str| u64::from_str_radix(text.get(4..16).unwrap(), 16).unwrap();
    (
        row.tenant.clone(),
        row.ended.as_millis(),
        number(row.attempt.as_str()),
        number(row.session.as_str()),
        number(row.root.as_str()),
        format!("{}/{}", row.provider, row.model),
        row.agent.clone(),
        row.purpose,
        Usage {
            tokens: row.tokens,
            quality: row.quality,
            raw: row.raw.clone(),
            inner: Vec::new(),
            provider_cost: None,
            served: Vec::new(),
        },
        row.cost,
    )
}

fn sum_of<'a>(rows: impl IntoIterator<Item = &'a LedgerRow>, by: &[GroupBy]) -> BTreeMap<UsageKey, UsageSum> {
    let mut sums = BTreeMap::<UsageKey, UsageSum>::new();
    for row in rows {
        let mut key = UsageKey::default();
        for group in by {
            match group {
                GroupBy::Tenant => key.tenant = Some(row.tenant.clone()),
                GroupBy::Session => {
                    (key.tenant, key.session) = (Some(row.tenant.clone()), Some(row.session));
                }
                GroupBy::Model => key.model = Some(format!("{}/{}", row.provider, row.model)),
                GroupBy::Provider => key.provider = Some(row.provider.clone()),
                GroupBy::Day => key.day = Some(Day(row.ended.as_millis() / DAY)),
                GroupBy::Purpose => key.purpose = Some(row.purpose),
                GroupBy::Agent => key.agent = Some(row.agent.clone()),
                GroupBy::Key => key.key = Some(row.key.clone()),
            }
        }
        let sum = sums.entry(key).or_default();
        sum.totals.tokens += row.tokens;
        sum.totals.attempts += 1;
        sum.totals.estimated += u64::from(row.quality == Quality::Estimated);
        sum.unreconciled += u64::from(row.quality == Quality::Unreconciled);
        match row.cost {
            Some(cost) => sum.totals.cost += cost,
            None => sum.totals.unpriced += 1,
        }
    }
    sums
}

/// Every turn with a row that is over stands in the feed behind its last row.
fn check_ends(store: &Store, is_open: impl Fn(SessionId, playhouse_protocol::MessageId) -> bool) {
    let (mut waiting, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for item in feed(store) {
        match item {
            FeedItem::Row(row) => {
                assert!(seen.insert(row.id.clone()), "{} twice", row.id);
                waiting.insert((row.session, row.turn));
            }
            FeedItem::TurnEnded(end) => drop(waiting.remove(&(end.session, end.turn))),
            FeedItem::Closed(_) => {}
        }
    }
    for (session, turn) in waiting {
        assert!(is_open(session, turn), "{turn} of {session} never ends");
    }
}

fn check(world: &World, cuts: [u64; 2], by: &[GroupBy]) {
    let store = &world.store;
    let found = rows(store, RowQuery { limit: 3, ..RowQuery::default() });
    let mut expected = world.expected.clone();
    expected.sort_by(|one, other| (&one.0, one.1, one.2).cmp(&(&other.0, other.1, other.2)));
    assert_eq!(found.iter().map(row_of).collect::<Vec<_>>(), expected);
    check_ends(store, |of, turn| {
        world
            .sessions
            .iter()
            .any(|(number, known)| session(*number) == of && known.turn.map(message) == Some(turn))
    });
    let fed = feed(store).into_iter().filter(|item| matches!(item, FeedItem::Row(_))).count();
    assert_eq!(fed, expected.len());
    let (from, to) = (cuts[0].min(cuts[1]), cuts[0].max(cuts[1]));
    let at = |millis| Some(Timestamp::from_millis(millis));
    for (from, to) in [(None, None), (at(from), at(to)), (at(from), None), (None, at(to))] {
        let within = |row: &&LedgerRow| {
            from.is_none_or(|from| row.ended >= from) && to.is_none_or(|to| row.ended < to)
        };
        for tenant in [None, Some("t1".to_owned())] {
            let of_tenant = |row: &&LedgerRow| tenant.as_ref().is_none_or(|tenant| *tenant == row.tenant);
            let rows = found.iter().filter(within).filter(of_tenant);
            let query =
                UsageQuery { tenant: tenant.clone(), from, to, by: by.to_vec(), ..UsageQuery::default() };
            assert_eq!(usage(store, query), sum_of(rows.clone(), by), "{by:?} {from:?} {to:?} {tenant:?}");
            let labels = vec!["customer".to_owned()];
            let query = UsageQuery { tenant: tenant.clone(), from, to, labels, ..UsageQuery::default() };
            let mut by_label: BTreeMap<Option<&String>, UsageSum> = BTreeMap::new();
            rows.clone().for_each(|row| {
                *by_label.entry(row.labels.get("customer")).or_default() += UsageSum::of(row)
            });
            let told = usage(store, query);
            let told: BTreeMap<_, _> =
                told.iter().map(|(key, sum)| (key.labels["label:customer"].as_ref(), *sum)).collect();
            assert_eq!(told, by_label);
            let query = RowQuery { tenant: tenant.clone(), from, to, limit: 2, ..RowQuery::default() };
            let wanted = RowQuery {
                label: Some(("customer".to_owned(), "c-1".to_owned())),
                key: Some("key_1".to_owned()),
                ..query.clone()
            };
            let of_both = |row: &&LedgerRow| {
                row.labels.get("customer").is_some_and(|label| label == "c-1") && row.key.is_some()
            };
            let both: Vec<_> = rows.clone().filter(of_both).cloned().collect();
            assert_eq!(self::rows(store, wanted), both);
            assert_eq!(self::rows(store, query), rows.cloned().collect::<Vec<_>>());
        }
    }
    for number in world.sessions.keys() {
        for (query, is_wanted) in [
            (
                RowQuery { session: Some(session(*number)), ..RowQuery::default() },
                Box::new(|row: &&LedgerRow| row.session == session(*number))
                    as Box<dyn Fn(&&LedgerRow) -> bool>,
            ),
            (
                RowQuery { root: Some(session(*number)), limit: 1, ..RowQuery::default() },
                Box::new(|row: &&LedgerRow| row.root == session(*number)),
            ),
        ] {
            let mut expected: Vec<_> = found.iter().filter(is_wanted).cloned().collect();
            expected.sort_by_key(|row| (row.ended, row.id.clone()));
            assert_eq!(rows(store, query), expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::histories(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_ledger_is_what_the_logs_say(
        acts in vec(acts(), 1..60),
        cuts in [NOON - DAY..NOON + 40 * DAY, NOON - DAY..NOON + 40 * DAY],
        by in proptest::sample::subsequence(&GroupBy::ALL[..], 0..=4),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let (sessions, begun) = (BTreeMap::new(), BTreeMap::new());
        let mut world = World { store, sessions, begun, expected: Vec::new(), clock: NOON, next: 0 };
        let mut deleted = false;
        for act in &acts {
            world.act(act);
            deleted |= matches!(act, Act::Delete { .. });
            if matches!(act, Act::Reopen) {
                world.store = Store::memory().unwrap();
                world.store = Store::open(directory.path()).unwrap();
            }
        }
        check(&world, cuts, &by);
        // Without its ledger, as an older engine left it.
        world.store = Store::memory().unwrap();
        if !deleted {
            tamper(directory.path(), |database| {
                for kind in ["x/", "i/", "j/", "a/", "b/", "m/ledger", "s/"] {
                    for key in database.scan_prefix(kind).keys().map(Result::unwrap).collect::<Vec<_>>() {
                        database.remove(key).unwrap();
                    }
                }
            });
            for _ in 0..2 {
                world.store = Store::memory().unwrap();
                world.store = Store::open(directory.path()).unwrap();
                check(&world, cuts, &by);
            }
        }
    }
}

#[test]
fn a_ledger_that_was_not_kept_for_a_while_gets_what_it_lacks_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    for number in 1..=3 {
        let begin =
            vec![created(session(number), TENANT, "/w"), turn(1), started(number, 1), used(number, number)];
        write(&store, number, TENANT, NOON + number, [begin, vec![ended(1)]].concat());
    }
    delete(&store, session(3)).unwrap();
    let before = Timestamp::from_millis(NOON + 2);
    let page = store.ledger.archivable(&ArchiveQuery { before, up_to: None, after: 0, limit: 0 }).unwrap();
    assert_eq!(store.ledger.archive(before, &page.numbers).unwrap(), 1);
    let sums = usage(&store, UsageQuery::default());
    write(&store, 2, TENANT, NOON + 3 * DAY, vec![turn(2), started(9, 2), used(9, 100), ended(2)]);
    let (with_all, end) = (usage(&store, UsageQuery::default()), store.ledger.feed_end());
    assert_ne!(with_all, sums);
    drop(store);
    tamper(directory.path(), |database| {
        // As an engine leaves it that knew nothing of the ledger, and wrote the last turn.
        database.insert("k/engine/generation", "7").unwrap().expect("the generation is there");
        for number in end - 1..=end {
            database.remove([&b"x/"[..], &number.to_be_bytes()].concat()).unwrap().expect("it is there");
        }
    });
    for _ in 0..2 {
        let store = Store::open(directory.path()).unwrap();
        assert_eq!(rows(&store, RowQuery::default()).len(), 3, "one was archived, and one is in no log");
        assert_eq!(store.ledger.feed_end(), end);
        let last = store.ledger.feed(end - 2, 9).unwrap();
        assert_eq!(last.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [end - 1, end]);
        assert_eq!(usage(&store, UsageQuery::default()), with_all);
    }
}

/// The process of [`the_ledger_survives_a_kill`].
const CHILD: &str = "PLAYHOUSE_STORE_TEST_LEDGER";

/// Not a test by itself: the process that [`the_ledger_survives_a_kill`] starts and kills. It names what was acknowledged.
#[test]
fn process_that_uses_tokens() {
    let Some(data) = std::env::var_os(CHILD) else { return };
    let store = Store::open(Path::new(&data)).unwrap();
    create(&store, session(1));
    let mut stdout = std::io::stdout();
    for number in 1.. {
        let records = vec![turn(number), started(number, number), used(number, 1), ended(number)];
        write(&store, 1, TENANT, NOON + number, records);
        writeln!(stdout, "acknowledged {number}").unwrap();
    }
}

#[test]
fn the_ledger_survives_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["ledger::histories::process_that_uses_tokens", "--exact", "--nocapture"])
        .env(CHILD, directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acknowledged = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let told = line.split_once("acknowledged ").and_then(|(_, number)| number.parse::<u64>().ok());
        acknowledged = told.unwrap_or(acknowledged);
        if acknowledged == 100 {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let ends = |entry: &&Entry| matches!(entry.record, Record::AttemptEnded(_));
    let in_log = read_all(&store, session(1)).iter().filter(ends).count() as u64;
    assert!(acknowledged >= 100 && in_log >= acknowledged, "{in_log} of {acknowledged}");
    assert_eq!(rows(&store, RowQuery::default()).len() as u64, in_log);
    assert_eq!(feed(&store).len() as u64, 2 * in_log);
    let sums = usage(&store, UsageQuery::default());
    assert_eq!(sums[&UsageKey::default()].totals.attempts, in_log);
}
