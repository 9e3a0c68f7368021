//! Rows for tests of this module.

use playhouse_protocol::ledger::{CostByClass, Purpose, RowId, Tier};
use playhouse_protocol::usage::{Prices, Quality, Tokens};
use playhouse_protocol::{IdGenerator, LedgerRow, Timestamp};

use super::{Cursor, Entry, Item, Place, Shape};

/// The time of the first row.
pub(crate) const START: u64 = 1_800_000_000_000;

/// A row, always the same for the same number; rows with the same `turn` are of one turn.
pub(crate) fn row(number: u64, turn: u8, model: &str) -> LedgerRow {
    let at = |offset: u64| Timestamp::from_millis(START + offset);
    let mut of_turn = IdGenerator::new(move |bytes| bytes.fill(turn));
    let mut own = IdGenerator::new(|bytes| bytes.fill(9));
    let (session, turn) = (of_turn.next(at(0)), of_turn.next(at(0)));
    let attempt = own.next(at(number));
    let price = |text: &str| text.parse().ok();
    let prices =
        Prices { input: price("3"), output: price("15"), cache_read: price("0.3"), ..Prices::default() };
    let tokens = Tokens { input: 100 + number, cache_read: 10, output: 7, reasoning: 3, ..Tokens::default() };
    LedgerRow {
        id: RowId::of(attempt),
        tenant: "acme".to_owned(),
        workspace: "/home/ada".to_owned(),
        session,
        root: session,
        parent_step: None,
        turn,
        step: own.next(at(number)),
        step_number: 1,
        attempt,
        attempt_number: 1,
        agent: "build".to_owned(),
        purpose: Purpose::Turn,
        provider: "anthropic".to_owned(),
        model: model.to_owned(),
        answered_by: None,
        tokens,
        calls: Vec::new(),
        quality: Quality::Reported,
        raw: Some(serde_json::json!({ "input_tokens": 1 })),
        catalogue: Some("2026-11-01".to_owned()),
        prices,
        costs: CostByClass::new(&prices, &tokens),
        cost: prices.cost(&tokens),
        assumed: Vec::new(),
        served: Vec::new(),
        provider_cost: None,
        tier: Tier::Pro,
        labels: playhouse_protocol::Labels::new(),
        key: None,
        started: at(number * 10),
        ended: at(number * 10 + 5),
        corrects: None,
        late: false,
    }
}

/// A row on its way.
pub(crate) fn item(shape: &dyn Shape, number: u64, row: LedgerRow) -> Item {
    let entry = Entry::Row(Box::new(row));
    let encoded = shape.encode(&entry);
    Item { place: Place { number, part: 0 }, cursor: Cursor::at(number), entry, encoded }
}
