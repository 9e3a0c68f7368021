//! What holds for every book, whatever comes in which order.

use std::collections::{BTreeMap, BTreeSet};

use playhouse_protocol::IdGenerator;
use playhouse_protocol::id::AttemptId;
use playhouse_protocol::limit::Amount;
use playhouse_protocol::usage::LongContext;
use proptest::prelude::*;
use rust_decimal::Decimal;

use super::*;

fn attempts(count: usize) -> Vec<AttemptId> {
    let mut ids = IdGenerator::new(|bytes| bytes.fill(1));
    (0..count).map(|_| ids.next(Timestamp::from_millis(1))).collect()
}

fn cents(cents: u64) -> Cost {
    Cost(Decimal::new(i64::try_from(cents).unwrap(), 2))
}

fn spent(amount: u64) -> Spent {
    Spent { cost: cents(amount), tokens: amount }
}

fn worst(amount: u64) -> Worst {
    Worst { cost: Some(cents(amount)), tokens: amount }
}

fn tenant(limit: u64) -> Charge {
    Charge { account: Account::Tenant, limits: Limits { cost: Some(cents(limit)), tokens: None } }
}

fn session(number: u8) -> SessionId {
    IdGenerator::new(move |bytes| bytes.fill(number)).next(Timestamp::from_millis(u64::from(number) + 1))
}

fn known(amount: u64) -> Used {
    Used::Known(spent(amount))
}

#[test]
fn the_dearest_class_and_the_dearest_price_that_can_hold_count() {
    let price = |text: &str| Some(text.parse().unwrap());
    let usual = Prices { input: price("1"), output: price("2"), reasoning: price("3"), ..Prices::default() };
    let dear = Prices { input: price("10"), output: price("1"), ..Prices::default() };
    let list = PriceList { long: vec![LongContext { above: 1_000, prices: dear }], ..usual.into() };
    let cost = |input, output| Worst::of(&list, input, output).cost.unwrap().0;
    assert_eq!(cost(1_000, 1_000_000), "3.00125".parse().unwrap());
    assert_eq!(cost(1_001, 1_000), "0.0135125".parse().unwrap());
    assert_eq!(cost(1_001, 1_000_000), "3.00125125".parse().unwrap(), "the usual price can hold as well");
    let half = Prices { output: None, ..usual };
    assert_eq!(Worst::of(&half.into(), 0, 0).cost, None, "a price that is missing is not nothing");
    let long = PriceList { long: vec![LongContext { above: 1, prices: half }], ..usual.into() };
    assert_eq!((Worst::of(&long, 1, 1).cost.is_some(), Worst::of(&long, 2, 1).cost), (true, None));
    assert_eq!(Worst::of(&list, u64::MAX, u64::MAX).tokens, u64::MAX);
}

#[test]
fn periods_are_days_and_months() {
    let day = |text: &str| text.parse::<Day>().unwrap();
    assert_eq!(Per::Month.start(day("2026-02-28")), Some(day("2026-02-01").start()));
    assert_eq!(Per::Day.start(day("2026-02-28")), Some(day("2026-02-28").start()));
    assert_eq!(Per::Ever.start(day("2026-02-28")), None);
    assert!(Per::Month.period(day("2026-12-31")) < Per::Month.period(day("2027-01-01")));
    assert_eq!(Per::Month.period(day("2026-12-01")), Per::Month.period(day("2026-12-31")));
    assert_eq!(Per::Ever.period(day("1970-01-01")), Per::Ever.period(day("2999-01-01")));
}

#[test]
fn small_amounts_are_told_apart_from_nothing() {
    let ids = attempts(1);
    let mut book = Book::new(Per::Ever, Day(0));
    let tiny = |text: &str| Cost(text.parse().unwrap());
    book.begin(Account::Tenant, Spent { cost: tiny("0.00000012345"), tokens: 0 });
    let limits = Limits { cost: Some(tiny("0.000000200")), tokens: None };
    let charge = [Charge { account: Account::Tenant, limits }];
    let worst = Worst { cost: Some(tiny("0.000125")), tokens: 1 };
    let Answer::Refused(refusal) = book.reserve(ids[0], &charge, worst) else { panic!("it does not fit") };
    let told = refusal.to_string();
    assert!(told.contains("budget of $0.0000002 does not cover"), "{told}");
    assert!(told.contains("$0.00000012 is used, and the step may need $0.000125"), "{told}");
}

#[test]
fn a_budget_of_nothing_lets_nothing_through_but_what_is_free() {
    let ids = attempts(2);
    let free = Worst { cost: Some(Cost::ZERO), tokens: 1 };
    let mut book = Book::new(Per::Ever, Day(0));
    book.begin(Account::Tenant, Spent::default());
    assert_eq!(book.reserve(ids[0], &[tenant(0)], free), Answer::Granted);
    let none = [Charge { account: Account::Tenant, limits: Limits { cost: None, tokens: Some(0) } }];
    assert!(matches!(book.reserve(ids[1], &none, free), Answer::Refused(_)));
}

#[test]
fn what_cannot_fit_is_refused_and_says_why() {
    let ids = attempts(2);
    let mut book = Book::new(Per::Month, Day(0));
    book.begin(Account::Tenant, spent(60));
    let Answer::Refused(refusal) = book.reserve(ids[0], &[tenant(100)], worst(41)) else {
        panic!("it does not fit")
    };
    assert_eq!(
        refusal.to_string(),
        "the tenant's budget of $1 a month does not cover the next step: $0.6 is used, and the step may need $0.41; \
         wait for the next month (UTC), or ask the operator"
    );
    assert_eq!(refusal.hint(), "`cost` in [budgets.tenant] or the tenant's own section sets it");
    let usd = |text: &str| Some(Amount::Usd(Cost(text.parse().unwrap())));
    let limit = refusal.limit("2026-11-28".parse().unwrap());
    assert_eq!((Some(limit.max), limit.used, limit.needed), (usd("1"), usd("0.6"), usd("0.41")));
    assert_eq!(limit.renews_at, Some("2026-12-01".parse::<Day>().unwrap().start()));
    let unpriced = Worst { cost: None, tokens: 1 };
    let Answer::Refused(refusal) = book.reserve(ids[0], &[tenant(100)], unpriced) else {
        panic!("nobody knows what it costs")
    };
    assert_eq!(
        refusal.to_string(),
        "the tenant's budget of $1 a month needs to know what a step may cost, and the model has no price"
    );
    assert_eq!(book.reserve(ids[0], &[tenant(100)], worst(40)), Answer::Granted, "to the last cent");
    assert_eq!(book.reserve(ids[1], &[tenant(10)], worst(0)), Answer::Granted, "what is free always fits");
}

#[test]
fn the_narrowest_budget_is_told_of_first() {
    let ids = attempts(1);
    let turn: MessageId = IdGenerator::new(|bytes| bytes.fill(1)).next(Timestamp::from_millis(1));
    let tokens = |limit| Limits { tokens: Some(limit), cost: None };
    let charges = [
        Charge { account: Account::Turn(turn), limits: tokens(5) },
        Charge { account: Account::Session(session(1)), limits: tokens(4) },
        tenant(1),
    ];
    let mut book = Book::new(Per::Day, Day(0));
    let Answer::Refused(refusal) = book.reserve(ids[0], &charges, worst(6)) else { panic!("too much") };
    assert_eq!(refusal.scope, LimitScope::Turn);
    assert_eq!(refusal.hint(), "`tokens` in [budgets.turn] sets it");
    let Answer::Refused(refusal) = book.reserve(ids[0], &charges[1..], worst(6)) else { panic!("too much") };
    assert!(refusal.to_string().starts_with("the session's budget of 4 tokens does not cover"), "{refusal}");
}

#[test]
fn those_that_wait_go_on_in_order_and_nobody_passes_them() {
    let ids = attempts(4);
    let mut book = Book::new(Per::Ever, Day(0));
    assert_eq!(book.reserve(ids[0], &[tenant(100)], worst(60)), Answer::Granted);
    let Answer::Waits(wait) = book.reserve(ids[1], &[tenant(100)], worst(50)) else { panic!("it waits") };
    assert_eq!(
        wait.to_string(),
        "the tenant's budget of $1 is reserved: this step goes on when enough of 1 other step is over"
    );
    // This one would fit, but not before the other.
    let Answer::Waits(wait) = book.reserve(ids[2], &[tenant(100)], worst(10)) else { panic!("it waits") };
    assert_eq!(wait.others, 2);
    assert!(matches!(book.reserve(ids[3], &[tenant(100)], worst(70)), Answer::Waits(_)));
    let decided = book.settle(ids[0], &[], known(40), Day(0));
    // The last one can never fit any more.
    let granted: Vec<_> =
        decided.iter().map(|decision| (decision.attempt, decision.outcome.is_ok())).collect();
    assert_eq!(granted, [(ids[1], true), (ids[2], true), (ids[3], false)]);
    assert_eq!(book.settle(ids[2], &[], Used::Nothing, Day(0)), []);
    assert_eq!(book.settle(ids[1], &[], known(50), Day(0)), []);
    assert_eq!((book.spent(Account::Tenant), book.reserved()), (Some(spent(90)), Spent::default()));
    assert!(book.is_quiet());
}

#[test]
fn one_that_waits_for_its_session_holds_up_no_other_session() {
    let ids = attempts(3);
    let of = |number, limit| Charge {
        account: Account::Session(session(number)),
        limits: Limits { tokens: Some(limit), cost: None },
    };
    let mut book = Book::new(Per::Ever, Day(0));
    assert_eq!(book.reserve(ids[0], &[of(1, 10), tenant(1_000)], worst(6)), Answer::Granted);
    assert!(matches!(book.reserve(ids[1], &[of(1, 10), tenant(1_000)], worst(6)), Answer::Waits(_)));
    assert_eq!(book.reserve(ids[2], &[of(2, 10), tenant(1_000)], worst(6)), Answer::Granted);
    assert_eq!(book.withdraw(ids[1]), []);
    assert_eq!(book.waiting(), 0);
}

#[test]
fn a_new_period_begins_with_nothing_spent_and_what_is_late_belongs_to_the_old_one() {
    let ids = attempts(4);
    let mut book = Book::new(Per::Day, Day(7));
    book.begin(Account::Tenant, spent(50));
    assert_eq!(book.reserve(ids[0], &[tenant(100)], worst(30)), Answer::Granted);
    assert_eq!(book.reserve(ids[1], &[tenant(100)], worst(20)), Answer::Granted);
    assert!(matches!(book.reserve(ids[2], &[tenant(100)], worst(20)), Answer::Waits(_)));
    assert_eq!(book.roll(Day(8)), [Decision { attempt: ids[2], outcome: Ok(()) }]);
    assert_eq!(book.reserved(), spent(70), "what is reserved is still to be paid");
    book.settle(ids[0], &[], known(30), Day(7));
    assert_eq!(book.spent(Account::Tenant), Some(spent(0)));
    book.settle(ids[1], &[], known(5), Day(8));
    assert_eq!(book.roll(Day(7)), [], "days do not go back");
    assert_eq!(book.spent(Account::Tenant), Some(spent(5)));
    book.settle(ids[3], &[Account::Tenant], known(2), Day(9));
    assert_eq!(book.spent(Account::Tenant), Some(spent(2)), "an attempt for which nothing was reserved");
}

#[test]
fn what_is_not_known_of_an_attempt_counts_as_reserved() {
    let ids = attempts(2);
    let mut book = Book::new(Per::Ever, Day(0));
    for id in &ids {
        assert_eq!(book.reserve(*id, &[tenant(100)], worst(30)), Answer::Granted);
    }
    let known = Spent { cost: cents(2), tokens: 7 };
    book.settle(ids[0], &[], Used::Unpriced { known, rows: 2 }, Day(0));
    assert_eq!(book.spent(Account::Tenant), Some(Spent { cost: cents(62), tokens: 7 }));
    book.settle(ids[1], &[], Used::Unknown, Day(0));
    assert_eq!(book.spent(Account::Tenant), Some(Spent { cost: cents(92), tokens: 37 }));
}

/// Something that happens to a book.
#[derive(Clone, Debug)]
enum Step {
    /// This session wants so much.
    Reserve(u8, u64),
    /// The open one at this place ends, and used so many percent of its worst case.
    Settle(usize, u64),
    /// Whoever waits at this place does not want to any more.
    Withdraw(usize),
    NextDay,
    /// This session is over.
    Forget(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_u8..4, 0_u64..120).prop_map(|(session, worst)| Step::Reserve(session, worst)),
        6 => (any::<usize>(), 0_u64..150).prop_map(|(place, percent)| Step::Settle(place, percent)),
        1 => any::<usize>().prop_map(Step::Withdraw),
        1 => Just(Step::NextDay),
        1 => (0_u8..4).prop_map(Step::Forget),
    ]
}

/// A book beside what it should hold.
struct Model {
    book: Book,
    day: Day,
    open: BTreeMap<AttemptId, (Account, u64)>,
    waiting: BTreeMap<AttemptId, (Account, u64)>,
    /// How much more was used than reserved, by account.
    over: BTreeMap<Account, u64>,
}

const TENANT: u64 = 200;
const SESSION: u64 = 100;

impl Model {
    fn decided(&mut self, decided: Vec<Decision>) {
        for Decision { attempt, outcome } in decided {
            let waited = self.waiting.remove(&attempt).expect("only those that wait are decided on");
            if outcome.is_ok() {
                self.open.insert(attempt, waited);
            }
        }
    }

    fn settle(&mut self, attempt: AttemptId, percent: u64) {
        let (account, worst) = self.open.remove(&attempt).unwrap();
        let used = worst * percent / 100;
        for account in [account, Account::Tenant] {
            *self.over.entry(account).or_default() += used.saturating_sub(worst);
        }
        let decided = self.book.settle(attempt, &[account, Account::Tenant], known(used), self.day);
        self.decided(decided);
    }

    fn check(&self) {
        for (account, limit) in (0..4)
            .map(|number| (Account::Session(session(number)), SESSION))
            .chain([(Account::Tenant, TENANT)])
        {
            let Some(spent) = self.book.spent(account) else { continue };
            let open = self.open.values().filter(|(of, _)| account == Account::Tenant || *of == account);
            let reserved: u64 = open.map(|(_, worst)| worst).sum();
            let over = self.over.get(&account).copied().unwrap_or_default();
            assert!(spent.tokens + reserved <= limit + over, "{account:?}: {spent:?}, {reserved}, {over}");
            assert_eq!(spent.cost, cents(spent.tokens));
        }
        assert_eq!(self.book.reserved().tokens, self.open.values().map(|(_, worst)| worst).sum::<u64>());
        assert_eq!(self.book.waiting(), self.waiting.len());
        let quiet = self.open.is_empty();
        assert!(!quiet || self.waiting.is_empty(), "nobody waits for nothing");
    }
}

proptest! {
    #[test]
    fn no_budget_is_passed_by_more_than_what_was_not_foreseen_and_everybody_is_decided_on(
        steps in prop::collection::vec(step(), 1..120)
    ) {
        let ids = attempts(steps.len());
        let book = Book::new(Per::Day, Day(0));
        let mut model =
            Model { book, day: Day(0), open: BTreeMap::new(), waiting: BTreeMap::new(), over: BTreeMap::new() };
        for (step, id) in steps.iter().zip(ids) {
            match step {
                Step::Reserve(number, amount) => {
                    let account = Account::Session(session(*number));
                    let limits = Limits { tokens: Some(SESSION), cost: Some(cents(SESSION)) };
                    let charges = [Charge { account, limits }, tenant(TENANT)];
                    match model.book.reserve(id, &charges, worst(*amount)) {
                        Answer::Granted => drop(model.open.insert(id, (account, *amount))),
                        Answer::Waits(_) => drop(model.waiting.insert(id, (account, *amount))),
                        Answer::Refused(_) => {}
                    }
                }
                Step::Settle(place, percent) if !model.open.is_empty() => {
                    let id = *model.open.keys().nth(place % model.open.len()).unwrap();
                    model.settle(id, *percent);
                }
                Step::Withdraw(place) if !model.waiting.is_empty() => {
                    let id = *model.waiting.keys().nth(place % model.waiting.len()).unwrap();
                    model.waiting.remove(&id);
                    let decided = model.book.withdraw(id);
                    model.decided(decided);
                }
                Step::NextDay => {
                    model.day = model.day.next();
                    model.over.remove(&Account::Tenant);
                    let decided = model.book.roll(model.day);
                    model.decided(decided);
                }
                Step::Forget(number) => {
                    let account = Account::Session(session(*number));
                    let used = model.open.values().chain(model.waiting.values()).any(|(of, _)| *of == account);
                    model.book.forget(account);
                    assert_eq!(model.book.knows(account), used);
                    if !used {
                        model.over.remove(&account);
                    }
                }
                Step::Settle(..) | Step::Withdraw(_) => {}
            }
            model.check();
        }
        // Whatever is open ends at some time; then everybody is decided on.
        while let Some(id) = model.open.keys().next().copied() {
            model.settle(id, 100);
            model.check();
        }
        prop_assert!(model.book.is_quiet() && model.waiting.is_empty());
        let accounts: BTreeSet<Account> =
            (0..4).map(|number| Account::Session(session(number))).chain([Account::Tenant]).collect();
        accounts.iter().for_each(|account| model.book.forget(*account));
        prop_assert!(accounts.iter().all(|account| !model.book.knows(*account)), "nothing is kept");
    }
}
