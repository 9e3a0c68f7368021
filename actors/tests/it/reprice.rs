//! Rows that are priced anew, and the budgets that they count in.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mock_llm::{Model, Script, UsageOverride, text};
use playhouse_billing::budget::{Budgets, Limits, Per, TenantBudget};
use playhouse_protocol::ledger::{
    ArchiveQuery, CostByClass, RepriceReport, RepriceRequest, RowQuery, UsageQuery, UsageSum,
};
use playhouse_protocol::limit::Amount;
use playhouse_protocol::record::TurnOutcome;
use playhouse_protocol::usage::Tokens;
use playhouse_protocol::{CommandError, Cost, Day, ErrorCode, LedgerRow, ModelRef, Prompt};
use playhouse_store::Store;
use tempfile::TempDir;

use crate::support::Stage;

/// A model that uses 1,500 tokens of input and 500 of output in each turn: $0.004 at the usual prices.
fn script() -> Script {
    let usage = UsageOverride { input: Some(1_500), output: Some(500), ..UsageOverride::default() };
    let model = || Model { cycle: true, ..Model::new().step(text("Done.").usage(usage)) };
    Script::new().model("dear", model()).model("m", model()).model("priceless", model())
}

fn dollars(text: &str) -> Cost {
    Cost(text.parse().unwrap())
}

async fn stage(max: &str) -> Stage {
    let limits = Limits { cost: Some(dollars(max)), tokens: None };
    stage_with(Budgets { tenant: TenantBudget { limits, per: Per::Ever }, ..Budgets::default() }).await
}

async fn stage_with(budgets: Budgets) -> Stage {
    stage_in(Store::memory().unwrap(), Arc::new(tempfile::tempdir().unwrap()), budgets).await
}

/// Another engine on what one stored.
async fn stage_on(stage: &Stage, budgets: Budgets) -> Stage {
    stage.engine.shutdown().await;
    stage_in(stage.store.clone(), Arc::clone(&stage.folder), budgets).await
}

async fn stage_in(store: Store, folder: Arc<TempDir>, budgets: Budgets) -> Stage {
    let stage = Stage::with(store, folder, script(), |options| options.budgets = budgets).await;
    stage.directory.window.store(2_000, Ordering::SeqCst);
    stage
}

fn request(model: &str) -> RepriceRequest {
    let models = vec![ModelRef::new("mock", model)];
    RepriceRequest { from: Day(0), to: Day(1_000_000), models, dry_run: false }
}

async fn used(stage: &Stage) -> UsageSum {
    let page = stage.engine.usage_by(UsageQuery::default()).await.unwrap();
    page.groups.first().map(|group| group.sum).unwrap_or_default()
}

fn difference(report: &RepriceReport) -> Option<String> {
    report.difference.get("USD").map(|cost| cost.0.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_change_of_prices_is_corrected_once_and_counts_in_budgets() {
    let stage = stage("0.05").await;
    let session = stage.session("dear").await;
    let other = stage.session("m").await;
    for session in [&session, &other] {
        session.run(Prompt::text("go")).await.unwrap();
    }
    assert_eq!(used(&stage).await.totals.cost, dollars("0.008"));
    stage.directory.dearness.store(3, Ordering::SeqCst);
    let dry = stage.engine.reprice(RepriceRequest { dry_run: true, ..request("dear") }).await.unwrap();
    assert_eq!((dry.looked_at, dry.corrected, difference(&dry)), (1, 1, Some("0.008".to_owned())));
    assert_eq!(used(&stage).await.totals.cost, dollars("0.008"));
    let report = stage.engine.reprice(request("dear")).await.unwrap();
    assert_eq!(report, RepriceReport { dry_run: false, ..dry });
    let again = stage.engine.reprice(request("dear")).await.unwrap();
    assert_eq!((again.looked_at, again.corrected, difference(&again)), (1, 0, None));
    let totals = used(&stage).await.totals;
    assert_eq!((totals.cost, totals.attempts, totals.tokens.output), (dollars("0.016"), 2, 1_000));
    let tree = stage.engine.tree_usage(session.id()).await.unwrap();
    assert_eq!((tree.sum.totals.attempts, tree.sum.totals.cost), (1, dollars("0.012")));
    assert_eq!(stage.engine.spent_today("local").await.unwrap().0, Some(dollars("0.016")));
    let limits = stage.engine.budgets("local").await.unwrap();
    assert_eq!(limits[0].used, Some(Amount::Usd(dollars("0.016"))));
    // The session is in memory, and its budget is followed: $0.036 is left, and a step may need $0.035.
    stage.directory.dearness.store(15, Ordering::SeqCst);
    assert_eq!(difference(&stage.engine.reprice(request("dear")).await.unwrap()), Some("0.048".to_owned()));
    let ended = other.run(Prompt::text("go")).await.unwrap().ended;
    let error = ended.error.unwrap_or_else(|| panic!("it was covered: {:?}", ended.outcome));
    assert_eq!(error.code, ErrorCode::Budget);
    assert_eq!(error.limit.unwrap().used, Some(Amount::Usd(dollars("0.064"))));
    // And back again.
    stage.directory.dearness.store(1, Ordering::SeqCst);
    assert_eq!(difference(&stage.engine.reprice(request("dear")).await.unwrap()), Some("-0.056".to_owned()));
    let ended = other.run(Prompt::text("go")).await.unwrap().ended;
    assert_eq!(ended.outcome, TurnOutcome::Completed, "{ended:?}");
    assert_eq!(used(&stage).await.totals.cost, dollars("0.012"));
    let rows = stage.engine.rows(RowQuery::default()).await.unwrap().rows;
    let corrections: Vec<_> = rows.iter().filter(|row| row.corrects.is_some()).collect();
    assert_eq!(corrections.len(), 3);
    let corrected = rows.iter().find(|row| row.model == "dear" && row.corrects.is_none()).unwrap();
    assert!(corrections.iter().all(|row| row.corrects.as_ref() == Some(&corrected.id)));
}

/// Archives all rows that are there.
async fn archive(stage: &Stage) {
    loop {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let there = stage.engine.rows(RowQuery::default()).await.unwrap().rows.len();
        let before = stage.engine.used_today("local").await.unwrap().1;
        let query = ArchiveQuery { before, up_to: None, after: 0, limit: 0 };
        let page = stage.engine.archivable(query).await.unwrap();
        if page.rows.len() == there {
            stage.engine.archive(before, page.numbers).await.unwrap();
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lower_price_reaches_the_budget_of_a_session_and_what_is_told_of_it_also_when_rows_are_archived() {
    let limits = Limits { cost: Some(dollars("0.05")), tokens: None };
    let budgets = Budgets { session: limits, ..Budgets::default() };
    let stage = stage_with(budgets).await;
    stage.directory.dearness.store(6, Ordering::SeqCst);
    let session = stage.session("dear").await;
    session.run(Prompt::text("go")).await.unwrap();
    // $0.024 is used, and a step may need $0.045.
    let error = session.run(Prompt::text("go")).await.unwrap().ended.error.expect("it is refused");
    assert_eq!(error.limit.unwrap().used, Some(Amount::Usd(dollars("0.024"))));
    stage.directory.dearness.store(1, Ordering::SeqCst);
    assert_eq!(difference(&stage.engine.reprice(request("dear")).await.unwrap()), Some("-0.02".to_owned()));
    stage.directory.dearness.store(6, Ordering::SeqCst);
    // $0.004 is used.
    let ended = session.run(Prompt::text("go")).await.unwrap().ended;
    assert_eq!(ended.outcome, TurnOutcome::Completed, "{ended:?}");
    stage.directory.dearness.store(1, Ordering::SeqCst);
    stage.engine.reprice(request("dear")).await.unwrap();
    archive(&stage).await;
    let tree = stage.engine.tree_usage(session.id()).await.unwrap();
    assert!(tree.archived_before.is_some());
    assert_eq!((tree.own.totals.attempts, tree.own.totals.cost), (2, dollars("0.008")));
    assert_eq!(tree.models["mock/dear"].totals.cost, dollars("0.008"));
    // An engine that begins now reads what was spent from sums: $0.042 is left.
    let limits = Limits { cost: Some(dollars("0.053")), tokens: None };
    let again = stage_on(&stage, Budgets { session: limits, ..Budgets::default() }).await;
    again.directory.dearness.store(6, Ordering::SeqCst);
    let session = again.engine.session(session.id()).await.unwrap();
    let ended = session.run(Prompt::text("go")).await.unwrap().ended;
    assert_eq!(ended.outcome, TurnOutcome::Completed, "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_was_priced_later_locks_no_budget_when_it_is_archived() {
    let stage = stage_with(Budgets::default()).await;
    stage.directory.dearness.store(0, Ordering::SeqCst);
    let session = stage.session("dear").await;
    session.run(Prompt::text("go")).await.unwrap();
    stage.directory.dearness.store(1, Ordering::SeqCst);
    assert_eq!(stage.engine.reprice(request("dear")).await.unwrap().corrected, 1);
    archive(&stage).await;
    assert_eq!((used(&stage).await.totals.unpriced, used(&stage).await.totals.cost), (0, dollars("0.004")));
    assert_eq!(stage.engine.spent_today("local").await.unwrap().0, Some(dollars("0.004")));
    let limits = Limits { cost: Some(dollars("1")), tokens: None };
    let tenant = TenantBudget { limits, per: Per::Ever };
    let again = stage_on(&stage, Budgets { session: limits, tenant, ..Budgets::default() }).await;
    let session = again.engine.session(session.id()).await.unwrap();
    let ended = session.run(Prompt::text("go")).await.unwrap().ended;
    assert_eq!(ended.outcome, TurnOutcome::Completed, "{ended:?}");
    // One that nobody priced stays one of unknown cost.
    let free = stage_on(&again, Budgets::default()).await;
    free.session("priceless").await.run(Prompt::text("go")).await.unwrap();
    archive(&free).await;
    assert_eq!(used(&free).await.totals.unpriced, 1);
    assert_eq!(free.engine.spent_today("local").await.unwrap().0, None);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: scripts/slow runs it"]
async fn more_corrections_than_are_held_at_once_are_all_taken_into_account() {
    let stage = stage_with(Budgets::default()).await;
    let session = stage.session("dear").await;
    for _ in 0..4 {
        session.run(Prompt::text("go")).await.unwrap();
    }
    let rows = stage.engine.rows(RowQuery::default()).await.unwrap().rows;
    let none = Some(Cost::ZERO);
    for first in 0..10 {
        let numbers = first * 251 + 1..(first + 1) * 251 + 1;
        let corrections = rows.iter().flat_map(|row| {
            numbers.clone().map(|number| LedgerRow {
                id: row.id.correction(number),
                tokens: Tokens::default(),
                cost: Some(dollars("0.001")),
                costs: CostByClass { output: Some(dollars("0.001")), input: none, ..row.costs },
                corrects: Some(row.id.clone()),
                ..row.clone()
            })
        });
        stage.store.ledger.correct(corrections.collect()).unwrap();
    }
    let report = stage.engine.reprice(request("dear")).await.unwrap();
    assert_eq!((report.looked_at, report.corrected, difference(&report)), (4, 4, Some("-10.04".to_owned())));
    assert_eq!(used(&stage).await.totals.cost, dollars("0.016"));
    assert_eq!(stage.engine.reprice(request("dear")).await.unwrap().corrected, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_priced_anew_is_said() {
    let stage = stage("1000").await;
    let session = stage.session("dear").await;
    session.run(Prompt::text("go")).await.unwrap();
    let before = loop {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        let before = stage.engine.used_today("local").await.unwrap().1;
        let query = ArchiveQuery { before, up_to: None, after: 0, limit: 0 };
        let page = stage.engine.archivable(query).await.unwrap();
        if page.rows.len() == 1 {
            stage.engine.archive(before, page.numbers).await.unwrap();
            break before;
        }
    };
    session.run(Prompt::text("go")).await.unwrap();
    stage.directory.dearness.store(2, Ordering::SeqCst);
    for _ in 0..2 {
        let report = stage.engine.reprice(request("dear")).await.unwrap();
        assert_eq!((report.looked_at, report.archived), (1, 1), "{before}: {report:?}");
    }
    assert_eq!(used(&stage).await.totals.cost, dollars("0.012"));
    // A period without rows has nothing to correct.
    let long_ago = RepriceRequest { from: Day(0), to: Day(5), ..request("dear") };
    assert_eq!(stage.engine.reprice(long_ago).await.unwrap(), RepriceReport::default());
    for (wrong, said) in [
        (RepriceRequest { from: Day(5), to: Day(5), ..request("dear") }, "is not before `to`"),
        (RepriceRequest { models: Vec::new(), ..request("dear") }, "`models` is empty"),
        (request("dera"), "no row of the ledger is of model \"mock/dera\""),
        (request("dera"), "did you mean \"mock/dear\""),
    ] {
        match stage.engine.reprice(wrong).await.unwrap_err() {
            CommandError::Invalid(reason) => {
                assert!(reason.contains(said), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_without_a_price_stays_as_it_is() {
    let stage =
        Stage::with(Store::memory().unwrap(), Arc::new(tempfile::tempdir().unwrap()), script(), |_| {}).await;
    stage.session("priceless").await.run(Prompt::text("go")).await.unwrap();
    let report = stage.engine.reprice(request("priceless")).await.unwrap();
    assert_eq!((report.looked_at, report.corrected, report.unpriced), (1, 0, 1));
    assert_eq!(used(&stage).await.totals.unpriced, 1);
}
