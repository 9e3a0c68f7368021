//! A ledger for tests: rows of several sessions, mixed as they would be, and a feed of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_billing::export::{FeedItem, TurnEnd};
use playhouse_exporters::Feed;
use playhouse_protocol::ledger::{CostByClass, Purpose, RowId, Tier};
use playhouse_protocol::usage::{Prices, Quality, Tokens};
use playhouse_protocol::{IdGenerator, LedgerRow, MessageId, SessionId, Timestamp};
use playhouse_store::StoreError;
use tokio::sync::watch;

use crate::server::Dice;

/// The time of the first row.
const START: u64 = 1_800_000_000_000;

/// A feed in memory that can grow.
#[derive(Clone)]
pub(crate) struct TestFeed {
    items: Arc<Mutex<BTreeMap<u64, FeedItem>>>,
    end: Arc<watch::Sender<u64>>,
}

impl TestFeed {
    pub(crate) fn new(items: Vec<FeedItem>) -> Self {
        let feed = Self { items: Arc::default(), end: Arc::new(watch::Sender::new(0)) };
        feed.grow(items);
        feed
    }

    pub(crate) fn grow(&self, items: Vec<FeedItem>) {
        let mut all = self.items.lock().unwrap();
        let next = all.last_key_value().map_or(1, |(number, _)| number + 1);
        all.extend((next..).zip(items));
        let end = all.last_key_value().map_or(0, |(number, _)| *number);
        drop(all);
        self.end.send_replace(end);
    }
}

impl Feed for TestFeed {
    fn after(&self, number: u64, limit: usize) -> Result<Vec<(u64, FeedItem)>, StoreError> {
        let items = self.items.lock().unwrap();
        Ok(items.range(number + 1..).take(limit).map(|(number, item)| (*number, item.clone())).collect())
    }

    fn end(&self) -> u64 {
        *self.end.borrow()
    }

    fn grown(&self, number: u64) -> BoxFuture<'static, ()> {
        let mut end = self.end.subscribe();
        async move {
            // It ends with an error when the feed is gone, and then nothing comes any more.
            if end.wait_for(|end| *end > number).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        .boxed()
    }
}

/// The rows of a feed.
pub(crate) fn rows(items: &[FeedItem]) -> Vec<LedgerRow> {
    let rows = items.iter().filter_map(|item| match item {
        FeedItem::Row(row) => Some((**row).clone()),
        FeedItem::TurnEnded(_) | FeedItem::Closed(_) => None,
    });
    rows.collect()
}

/// A ledger of `count` rows in several sessions, with the ends of their turns.
pub(crate) fn ledger(seed: u64, count: u64) -> Vec<FeedItem> {
    let mut dice = Dice::new(seed);
    let mut ids = {
        let mut dice = dice.clone();
        IdGenerator::new(move |bytes| bytes.iter_mut().for_each(|byte| *byte = dice.roll(256) as u8))
    };
    let mut open: BTreeMap<u64, (SessionId, MessageId)> = BTreeMap::new();
    let mut items = Vec::new();
    for number in 0..count {
        let at = Timestamp::from_millis(START + number * 7);
        let lane = dice.roll(6);
        let (session, turn) = *open.entry(lane).or_insert_with(|| (ids.next(at), ids.next(at)));
        items.push(FeedItem::Row(Box::new(row(&mut dice, &mut ids, number, session, turn))));
        if dice.roll(4) == 0 {
            open.remove(&lane);
            items.push(ended(session, turn, at));
        }
    }
    let at = Timestamp::from_millis(START + count * 7);
    items.extend(open.into_values().map(|(session, turn)| ended(session, turn, at)));
    items
}

fn ended(session: SessionId, turn: MessageId, at: Timestamp) -> FeedItem {
    FeedItem::TurnEnded(TurnEnd { tenant: tenant(session), session, turn, at })
}

fn tenant(session: SessionId) -> String {
    ["acme", "zoë & co"][usize::from(session.as_str().ends_with(|c: char| c.is_ascii_digit()))].to_owned()
}

fn row(
    dice: &mut Dice,
    ids: &mut IdGenerator,
    number: u64,
    session: SessionId,
    turn: MessageId,
) -> LedgerRow {
    let at = Timestamp::from_millis(START + number * 7);
    let attempt = ids.next(at);
    let price = |text: &str| text.parse().ok();
    let is_priced = dice.roll(5) > 0;
    let prices = if is_priced {
        Prices { input: price("0.0375"), output: price("15"), cache_read: price("0.3"), ..Prices::default() }
    } else {
        Prices::default()
    };
    let tokens = Tokens {
        input: 1 + dice.roll(100_000),
        cache_read: dice.roll(2) * dice.roll(100_000),
        output: dice.roll(10_000),
        reasoning: dice.roll(2) * dice.roll(10_000),
        ..Tokens::default()
    };
    let is_small = dice.roll(2) == 0;
    LedgerRow {
        labels: std::collections::BTreeMap::new(),
        key: None,
        id: RowId::of(attempt),
        tenant: tenant(session),
        workspace: "/home/ada/a \"quoted\" place".to_owned(),
        session,
        root: session,
        parent_step: (dice.roll(3) == 0).then(|| ids.next(at)),
        turn,
        step: ids.next(at),
        step_number: 1,
        attempt,
        attempt_number: 1,
        agent: "build".to_owned(),
        purpose: [Purpose::Turn, Purpose::Title, Purpose::Subagent][dice.roll(3) as usize],
        provider: "anthropic".to_owned(),
        model: if is_small { "haiku" } else { "opus" }.to_owned(),
        answered_by: (dice.roll(2) == 0).then(|| "opus-2026".to_owned()),
        tokens,
        calls: Vec::new(),
        quality: [Quality::Reported, Quality::Estimated][dice.roll(2) as usize],
        raw: (dice.roll(2) == 0).then(|| serde_json::json!({ "input_tokens": tokens.input })),
        catalogue: is_priced.then(|| "2026-11-01".to_owned()),
        prices,
        costs: CostByClass::new(&prices, &tokens),
        cost: prices.cost(&tokens),
        assumed: Vec::new(),
        served: Vec::new(),
        provider_cost: None,
        tier: if is_small { Tier::Light } else { Tier::Pro },
        started: Timestamp::from_millis(START + number * 7 - 5),
        ended: at,
        corrects: None,
        late: false,
    }
}
