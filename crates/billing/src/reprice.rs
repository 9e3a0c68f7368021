//! Corrections: what a row costs at other prices, as a row of its own with the difference.

use playhouse_protocol::ledger::CostByClass;
use playhouse_protocol::usage::{PriceList, Tokens};
use playhouse_protocol::{Cost, LedgerRow, Timestamp};

/// The corrections that a row has already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Corrections {
    count: u64,
    cost: Cost,
    costs: CostByClass,
}

impl Corrections {
    /// Counts one more.
    pub fn add(&mut self, correction: &LedgerRow) {
        self.costs = match self.count {
            0 => correction.costs,
            _ => self.costs.combined(&correction.costs, plus),
        };
        self.count += 1;
        self.cost += correction.cost.unwrap_or_default();
    }
}

/// The prices that hold now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CurrentPrices {
    /// Of the model of the row.
    pub list: PriceList,
    /// The version of the catalogue that they are from; `None` for prices that the operator wrote.
    pub catalogue: Option<String>,
}

/// What becomes of a row that is priced anew.
#[derive(Clone, Debug, PartialEq)]
pub enum Repriced {
    /// Its model has no price.
    Unpriced,
    /// It costs what it was charged, corrections included.
    Same,
    /// It costs something else.
    Corrected(Box<LedgerRow>),
}

/// Prices a row anew. The correction that follows ended at `at`, or with the row if that is later: it is in no period that
/// was over when it was made.
///
/// - A row whose cost was not known is corrected by all that it costs.
/// - Hours and ways of service count as they did for the request, and so does the size of each call inside of its answer.
pub fn reprice(row: &LedgerRow, before: &Corrections, prices: &CurrentPrices, at: Timestamp) -> Repriced {
    let list = prices.list.clone().beginning(row.started);
    let rated = list.rate_calls(&row.tokens, &row.calls, &row.served);
    let Some(cost) = rated.cost else { return Repriced::Unpriced };
    let is_priced = row.cost.is_some() || before.count > 0;
    let mut charged = row.cost.unwrap_or_default();
    charged += before.cost;
    let difference = minus(cost, charged).normalized();
    if difference == Cost::ZERO && is_priced {
        return Repriced::Same;
    }
    let none = CostByClass::new(&list.usual, &Tokens::default());
    let of_row = if row.cost.is_some() { row.costs } else { none };
    let of_corrections = if before.count > 0 { before.costs } else { none };
    let costs = CostByClass::of_calls(&list, &row.tokens, &row.calls, &row.served).combined(&of_row, minus);
    Repriced::Corrected(Box::new(LedgerRow {
        id: row.id.correction(before.count + 1),
        tokens: Tokens::default(),
        calls: Vec::new(),
        raw: None,
        catalogue: prices.catalogue.clone(),
        prices: rated.prices,
        costs: costs.combined(&of_corrections, minus),
        cost: Some(difference),
        assumed: rated.assumed,
        // Where sums compare what a provider says with the cost here, the difference counts on this side. What it says is
        // counted with the first known cost.
        provider_cost: row.provider_cost.map(|cost| if is_priced { Cost::ZERO } else { cost }),
        ended: at.max(row.ended),
        corrects: Some(row.id.clone()),
        ..row.clone()
    }))
}

fn plus(one: Cost, other: Cost) -> Cost {
    Cost(one.0.saturating_add(other.0))
}

fn minus(one: Cost, other: Cost) -> Cost {
    Cost(one.0.saturating_sub(other.0))
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::ledger::UsageSum;
    use playhouse_protocol::usage::{LongContext, Prices};
    use proptest::prelude::*;
    use rust_decimal::Decimal;

    use super::*;
    use crate::export::samples::row;

    const AT: Timestamp = Timestamp::from_millis(1_900_000_000_000);

    fn prices(input: u32, output: u32) -> CurrentPrices {
        let usual = Prices { input: Some(input.into()), output: Some(output.into()), ..Prices::default() };
        CurrentPrices { list: usual.into(), catalogue: None }
    }

    fn corrected(row: &LedgerRow, before: &Corrections, prices: &CurrentPrices) -> LedgerRow {
        match reprice(row, before, prices, AT) {
            Repriced::Corrected(correction) => *correction,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_correction_is_money_only_and_of_the_time_at_which_it_was_made() {
        let row = row(1, 1, "m");
        let correction = corrected(&row, &Corrections::default(), &prices(50, 70));
        assert_eq!((correction.tokens, correction.ended), (Tokens::default(), AT));
        assert_eq!((correction.corrects.as_ref(), &correction.id), (Some(&row.id), &row.id.correction(1)));
        assert_eq!(
            (&correction.session, &correction.turn, &correction.labels),
            (&row.session, &row.turn, &row.labels)
        );
        assert_eq!(correction.prices.input, Some(50.into()));
        let ahead = LedgerRow { ended: Timestamp::from_millis(AT.as_millis() + 5), ..row };
        assert_eq!(corrected(&ahead, &Corrections::default(), &prices(50, 70)).ended, ahead.ended);
    }

    #[test]
    fn each_call_inside_of_an_answer_is_priced_by_its_own_size() {
        let step = |factor: u32| {
            let long = prices(20 * factor, 30 * factor).list.usual;
            let long = vec![LongContext { above: 100, prices: long }];
            let list = PriceList { long, ..prices(10 * factor, 20 * factor).list };
            CurrentPrices { list, catalogue: None }
        };
        let call = |input| Tokens { input, output: 1, ..Tokens::default() };
        for calls in [vec![call(90), call(80)], vec![call(90), call(200)], vec![]] {
            let tokens = calls.iter().fold(Tokens::default(), |sum, call| sum + *call);
            let tokens = if calls.is_empty() { call(170) } else { tokens };
            let now = step(1);
            let rated = now.list.rate_calls(&tokens, &calls, &[]);
            let costs = CostByClass::of_calls(&now.list, &tokens, &calls, &[]);
            let row = LedgerRow { tokens, calls, costs, cost: rated.cost, served: vec![], ..row(1, 1, "m") };
            assert_eq!(reprice(&row, &Corrections::default(), &now, AT), Repriced::Same);
            let dearer = corrected(&row, &Corrections::default(), &step(3));
            let twice = Cost(row.cost.unwrap().0 * Decimal::TWO).normalized();
            assert_eq!((dearer.cost, dearer.calls), (Some(twice), vec![]));
            let (input, output) = (dearer.costs.input.unwrap(), dearer.costs.output.unwrap());
            assert_eq!(plus(input, output).normalized(), twice, "also by class");
        }
    }

    #[test]
    fn a_row_without_a_cost_is_corrected_once_also_by_nothing() {
        let row = LedgerRow { cost: None, provider_cost: Some(Cost(3.into())), ..row(1, 1, "m") };
        let mut before = Corrections::default();
        let free = corrected(&row, &before, &prices(0, 0));
        assert_eq!((free.cost, free.provider_cost), (Some(Cost::ZERO), Some(Cost(3.into()))));
        before.add(&free);
        assert_eq!(reprice(&row, &before, &prices(0, 0), AT), Repriced::Same);
        let dear = corrected(&row, &before, &prices(5, 5));
        assert_eq!((dear.id, dear.provider_cost), (row.id.correction(2), Some(Cost::ZERO)));
        assert_eq!(reprice(&row, &before, &CurrentPrices::default(), AT), Repriced::Unpriced);
    }

    proptest! {
        /// However often prices change, row and corrections are what it costs at the last ones, class for class, and a
        /// repetition adds nothing.
        #[test]
        fn a_row_and_its_corrections_cost_what_the_last_prices_say(
            changes in proptest::collection::vec((0..90_u32, 0..90_u32), 1..8),
            is_priced in any::<bool>(),
        ) {
            let mut row = row(1, 1, "m");
            row.costs = CostByClass::new(&row.prices, &row.tokens);
            row.cost = row.prices.cost(&row.tokens).filter(|_| is_priced);
            let (mut before, mut all) = (Corrections::default(), vec![row.clone()]);
            for (input, output) in changes {
                let now = prices(input, output);
                if let Repriced::Corrected(correction) = reprice(&row, &before, &now, AT) {
                    before.add(&correction);
                    all.push(*correction);
                }
                prop_assert_eq!(reprice(&row, &before, &now, AT), Repriced::Same);
                let (mut sum, mut by_class) = (UsageSum::default(), Cost::ZERO);
                for row in all.iter().filter(|row| row.cost.is_some()) {
                    sum += UsageSum::of(row);
                    let costs = row.costs;
                    let classes = [
                        costs.input, costs.cache_read, costs.cache_write_5m, costs.cache_write_30m,
                        costs.cache_write_1h, costs.cache_write_12h, costs.output, costs.reasoning,
                    ];
                    classes.into_iter().for_each(|cost| by_class += cost.unwrap());
                }
                let rated = now.list.rate(&row.tokens, &[]);
                prop_assert_eq!(sum.totals.cost, rated.cost.unwrap());
                prop_assert_eq!(by_class, rated.cost.unwrap());
                prop_assert_eq!(sum.totals.attempts, u64::from(is_priced));
            }
        }
    }
}
