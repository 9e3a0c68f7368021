//! What is kept of sessions, and what is not.

use std::collections::BTreeMap;

use playhouse_billing::budget::Per;
use playhouse_protocol::record::{AttemptOutcome, SessionCreated};
use playhouse_protocol::usage::{Tokens, Usage};
use playhouse_protocol::{Cost, IdGenerator, ModelRef, Seq, Timestamp};

use super::*;

fn id<I: playhouse_protocol::id::Id>(number: u8) -> I {
    IdGenerator::new(move |bytes| bytes.fill(number)).next(Timestamp::from_millis(1))
}

fn entry(record: Record) -> Entry {
    Entry { seq: Seq::START.next(), at: now(), record }
}

fn session(number: u8, root: Option<SessionId>) -> Session {
    let created = SessionCreated {
        title: "a title".into(),
        parent: root,
        root,
        ..SessionCreated::new(id(number), "acme", "/w", "tester", ModelRef::new("p", "m"))
    };
    Session::begin(&entry(Record::SessionCreated(created))).unwrap()
}

fn purses() -> Arc<Purses> {
    let limits = Limits { tokens: Some(100), cost: None };
    Purses::new(Budgets {
        session: limits,
        tenant: TenantBudget { limits, per: Per::Ever },
        ..Budgets::default()
    })
}

/// Reserves 60 tokens, where what was spent before is known already.
fn reserve(purse: &Purse, attempt: AttemptId) -> Answer {
    purse.with(|tenant| {
        let charges = purse.accounts().into_iter().map(|account| {
            tenant.book.begin(account, Spent::default());
            Charge { account, limits: Limits { tokens: Some(100), cost: None } }
        });
        let charges: Vec<Charge> = charges.collect();
        let answer = tenant.book.reserve(attempt, &charges, Worst { tokens: 60, cost: None });
        if answer == Answer::Granted {
            tenant.open.insert(attempt, purse.session);
        }
        answer
    })
}

fn ended(attempt: AttemptId, tokens: u64) -> Entry {
    let usage = Usage { tokens: Tokens { input: tokens, ..Tokens::default() }, ..Usage::default() };
    let ended = AttemptEnded {
        attempt,
        outcome: AttemptOutcome::Finished,
        usage: Some(usage),
        cost: Some(Cost::ZERO),
        answered_by: None,
        assumed: Vec::new(),
        calls: Vec::new(),
        costs: None,
        ended: None,
        inner: Vec::new(),
    };
    entry(Record::AttemptEnded(ended))
}

fn unpriced(attempt: AttemptId) -> Entry {
    let mut entry = ended(attempt, 20);
    if let Record::AttemptEnded(ended) = &mut entry.record {
        ended.cost = None;
    }
    entry
}

fn spent(purse: &Purse) -> (Option<u64>, Option<u64>) {
    purse.with(|tenant| {
        let tokens = |account| tenant.book.spent(account).map(|spent| spent.tokens);
        (tokens(Account::Session(purse.root)), tokens(Account::Tenant))
    })
}

#[test]
fn nothing_is_kept_of_sessions_that_left_memory() {
    let purses = purses();
    let top = session(1, None);
    let (one, two) = (purses.enter(&top, &[]).unwrap(), purses.enter(&session(2, Some(id(1))), &[]).unwrap());
    assert_eq!(reserve(&two, id(7)), Answer::Granted);
    let row = ended(id(7), 50);
    two.appended(std::slice::from_ref(&row));
    assert_eq!(two.with(|tenant| tenant.stirs[&Account::Tenant]), Stir { under_way: 1, arrived: 0 });
    two.flushed(&row);
    assert_eq!(two.with(|tenant| tenant.stirs[&Account::Tenant]), Stir { under_way: 0, arrived: 1 });
    assert_eq!(spent(&one), (Some(50), Some(50)), "the session at the top pays for those below it");
    drop(one);
    assert_eq!(spent(&two), (Some(50), Some(50)), "another session of the tree is there");
    drop(two);
    assert!(purses.tenants.lock().is_empty());
}

#[test]
fn what_a_crashed_session_reserved_is_settled_when_it_comes_back() {
    let purses = purses();
    let purse = purses.enter(&session(1, None), &[]).unwrap();
    assert_eq!(reserve(&purse, id(7)), Answer::Granted);
    drop(purse);
    assert_eq!(purses.tenants.lock()["acme"].book.reserved().tokens, 60, "its end is still to come");
    // The log says that the attempt is open: its end comes from the actor that goes on.
    let purse = purses.enter(&session(1, None), &[id(7)]).unwrap();
    assert_eq!(purse.with(|tenant| tenant.book.reserved().tokens), 60);
    purse.flushed(&ended(id(7), 20));
    assert_eq!(spent(&purse).1, Some(20));
    // The log says that it is over: nobody will tell any more what it used.
    assert_eq!(reserve(&purse, id(8)), Answer::Granted);
    drop(purse);
    let purse = purses.enter(&session(1, None), &[]).unwrap();
    assert_eq!((purse.with(|tenant| tenant.book.reserved().tokens), spent(&purse).1), (0, Some(80)));
}

#[test]
fn nothing_is_kept_of_corrections_of_sessions_that_are_not_there_and_held_accounts_are_read_again() {
    let purses = purses();
    let one = purses.enter(&session(1, None), &[]).unwrap();
    let two = purses.enter(&session(2, None), &[]).unwrap();
    assert_eq!(reserve(&two, id(7)), Answer::Granted);
    let account = Account::Session(two.root);
    drop(two);
    for _ in 0..100 {
        purses.corrected("acme");
    }
    purses.corrected("somebody");
    assert_eq!(one.with(|tenant| (tenant.stirs.len(), tenant.knows(account))), (2, false));
    // The session crashed: what it reserved holds its account, whose use is not known before it is read.
    let two = purses.enter(&session(2, None), &[id(7)]).unwrap();
    assert!(!two.with(|tenant| tenant.knows(account)));
    two.flushed(&ended(id(7), 20));
    drop(two);
    assert!(one.with(|tenant| !tenant.book.knows(account) && !tenant.stale.contains(&account)));
}

#[test]
fn a_lost_attempt_without_a_cost_has_its_accounts_read_again() {
    let purses = purses();
    let one = purses.enter(&session(1, None), &[]).unwrap();
    assert_eq!(reserve(&one, id(7)), Answer::Granted);
    let is_known = |account| one.with(|tenant| tenant.knows(account));
    // Reserved: it counts with what was reserved.
    one.flushed(&unpriced(id(7)));
    assert!(is_known(Account::Tenant));
    // Another session was lost in a crash and comes back: nothing says what its attempt cost at most.
    let two = purses.enter(&session(2, None), &[id(8)]).unwrap();
    two.flushed(&unpriced(id(8)));
    assert!(!is_known(Account::Tenant));
    assert!(is_known(Account::Session(one.root)));
}

#[test]
fn a_session_that_cannot_go_on_leaves_its_place_to_those_that_wait() {
    let purses = purses();
    let (one, two) = (purses.enter(&session(1, None), &[]), purses.enter(&session(2, None), &[]));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(reserve(&one, id(7)), Answer::Granted);
    assert!(matches!(reserve(&two, id(8)), Answer::Waits(_)));
    let (told, mut decided) = oneshot::channel();
    two.with(|tenant| tenant.told.insert(id(8), (two.session, told)));
    purses.abandon(one.session);
    assert_eq!(decided.try_recv(), Ok(Ok(())));
    assert_eq!(two.with(|tenant| tenant.reserved(two.session)), [id(8)]);
}

#[test]
fn one_that_does_not_want_to_wait_any_more_makes_room_for_the_next() {
    let purses = purses();
    let [one, two] = [1, 2].map(|number| purses.enter(&session(number, None), &[]).unwrap());
    assert_eq!(reserve(&one, id(7)), Answer::Granted);
    assert!(matches!(reserve(&two, id(8)), Answer::Waits(_)));
    drop(Waiting { purse: &two, attempt: id(8) });
    assert_eq!(two.with(|tenant| tenant.book.waiting()), 0);
}

#[test]
fn sessions_without_a_budget_have_no_purse() {
    let acme = session(1, None);
    assert!(Purses::new(Budgets::default()).enter(&acme, &[]).is_none());
    let limits = Limits { tokens: Some(1), cost: None };
    let others = BTreeMap::from([("other".to_owned(), TenantBudget { limits, per: Per::Day })]);
    assert!(Purses::new(Budgets { tenants: others, ..Budgets::default() }).enter(&acme, &[]).is_none());
    let by_turn = Purses::new(Budgets { turn: limits, ..Budgets::default() });
    let purse = by_turn.enter(&acme, &[]).unwrap();
    assert!(purse.accounts().is_empty());
    let mut by_hand = session(1, None);
    by_hand.summary.tenant = BY_HAND_TENANT.to_owned();
    assert!(by_turn.enter(&by_hand, &[]).is_none(), "nobody pays for calls by hand");
}
