//! Budgets of turns, sessions and tenants. A step here may need 3,000 tokens ($0.007), and uses 2,000 ($0.004).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mock_llm::{Fault, Model, Script, Step, UsageOverride, call, text};
use playhouse_actors::{EngineOptions, SessionHandle, Subscription};
use playhouse_billing::budget::{Budgets, Limits, Per, TenantBudget};
use playhouse_protocol::event::Provisional;
use playhouse_protocol::ledger::{RowQuery, UsageQuery, UsageSum};
use playhouse_protocol::limit::{Amount, LimitScope, LimitUnit};
use playhouse_protocol::message::CallOutcome;
use playhouse_protocol::record::{AttemptOutcome, TurnEnded, TurnOutcome};
use playhouse_protocol::{Cost, ErrorCode, EventBody, ModelRef, NewSession, Prompt, Record, Seq};
use playhouse_store::Store;
use serde_json::json;

use crate::support::{Stage, until};

const SESSIONS: usize = 1_000;

/// A step that uses 2,000 tokens.
fn dear(step: Step) -> Step {
    step.usage(UsageOverride { input: Some(1_500), output: Some(500), ..UsageOverride::default() })
}

/// A model that says the same in each turn.
fn plain() -> Script {
    Script::new().model("m", Model { cycle: true, ..Model::new().step(dear(text("Done."))) })
}

fn dollars(text: &str) -> Cost {
    Cost(text.parse().unwrap())
}

fn money(text: &str) -> Limits {
    Limits { cost: Some(dollars(text)), tokens: None }
}

fn tokens(count: u64) -> Limits {
    Limits { tokens: Some(count), cost: None }
}

fn of_tenant(limits: Limits) -> Budgets {
    Budgets { tenant: TenantBudget { limits, per: Per::Ever }, ..Budgets::default() }
}

async fn stage(script: Script, budgets: Budgets) -> Stage {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    small(Stage::with(Store::memory().unwrap(), folder, script, with(budgets)).await)
}

/// With models whose requests can cost little: what may be used is reserved by their windows.
fn small(stage: Stage) -> Stage {
    stage.directory.window.store(2_000, Ordering::SeqCst);
    stage
}

fn with(budgets: Budgets) -> impl FnOnce(&mut EngineOptions) {
    |options| options.budgets = budgets
}

/// Another engine on what the first one stored.
async fn again(stage: &Stage, script: Script, budgets: Budgets) -> Stage {
    small(Stage::with(stage.store.clone(), Arc::clone(&stage.folder), script, with(budgets)).await)
}

async fn run(session: &SessionHandle) -> TurnEnded {
    session.run(Prompt::text("go")).await.unwrap().ended
}

/// The message of a turn that no budget covered.
fn refusal(ended: &TurnEnded) -> String {
    let error = ended.error.clone().unwrap_or_else(|| panic!("it was covered: {ended:?}"));
    assert_eq!((ended.outcome, error.code), (TurnOutcome::Failed, ErrorCode::Budget), "{error}");
    error.message
}

async fn used(stage: &Stage) -> UsageSum {
    let page = stage.engine.usage_by(UsageQuery::default()).await.unwrap();
    page.groups.first().map(|group| group.sum).unwrap_or_default()
}

/// Waits until the session says that it waits for a budget.
async fn waits(events: &mut Subscription) -> String {
    let wait = async {
        loop {
            let event = events.next().await.unwrap().unwrap();
            if let EventBody::Provisional(Provisional::AttemptWaiting { reason, .. }) = &event.event().body {
                return reason.clone();
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.expect("it waits")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: scripts/slow runs it"]
async fn a_thousand_sessions_together_stay_within_the_budget_of_their_tenant() {
    let stage = Arc::new(stage(plain(), of_tenant(money("1"))).await);
    let mut tasks = Vec::new();
    for _ in 0..SESSIONS {
        let stage = Arc::clone(&stage);
        tasks.push(tokio::spawn(async move { run(&stage.session("m").await).await }));
    }
    let (mut completed, mut refused) = (0, 0);
    for task in tasks {
        let ended = tokio::time::timeout(Duration::from_secs(120), task).await.expect("it ends").unwrap();
        match ended.outcome {
            TurnOutcome::Completed => completed += 1,
            _ => {
                let message = refusal(&ended);
                assert!(message.starts_with("the tenant's budget of $1 does not cover"), "{message}");
                refused += 1;
            }
        }
    }
    // As long as $0.007 are left somebody goes on, however few could begin at once.
    assert_eq!((completed, refused), (249, SESSIONS - 249));
    assert_eq!(stage.directory.mock.journal().count(), 249, "what is refused is not sent");
    let sum = used(&stage).await.totals;
    assert_eq!((sum.cost, sum.attempts), (dollars("0.996"), 249));
    assert_eq!(stage.engine.shutdown().await.stragglers, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_ends_between_steps_when_its_budget_is_used_up() {
    let steps = |model: Model| {
        (0..5).fold(model, |model, _| model.step(dear(call("probe", json!({"mode": "quick"})))))
    };
    let script = Script::new().model("m", Model { cycle: true, ..steps(Model::new()) });
    let stage = stage(script, Budgets { turn: tokens(5_000), ..Budgets::default() }).await;
    let session = stage.session("m").await;
    let ended = run(&session).await;
    assert_eq!(
        refusal(&ended),
        "the turn's budget of 5000 tokens does not cover the next step: 4000 are used, and the step may need 3000; \
         go on with a new prompt"
    );
    let limit = ended.error.as_ref().unwrap().limit.as_ref().unwrap();
    assert_eq!((limit.scope, limit.unit, limit.renews_at), (LimitScope::Turn, LimitUnit::Tokens, None));
    let count = Amount::Count;
    assert_eq!((limit.max, limit.used, limit.needed), (count(5_000), Some(count(4_000)), Some(count(3_000))));
    assert_eq!((ended.steps, ended.totals.attempts), (3, 2));
    let records = stage.records(&session).await;
    let calls = records.iter().filter_map(|record| match record {
        Record::CallSettled { result, .. } => Some(result.outcome),
        _ => None,
    });
    assert_eq!(calls.collect::<Vec<_>>(), [CallOutcome::Done; 2], "no call was cut off");
    let last = records.iter().rev().find_map(|record| match record {
        Record::AttemptEnded(ended) => Some(ended),
        _ => None,
    });
    assert!(matches!(last.unwrap().outcome, AttemptOutcome::Failed { .. }) && last.unwrap().usage.is_none());
    let rows =
        stage.engine.rows(RowQuery { session: Some(session.id()), ..RowQuery::default() }).await.unwrap();
    assert_eq!(rows.rows.len(), 2, "nothing was sent, so there is no row");
    let next = run(&session).await;
    assert_eq!((next.outcome, next.totals.attempts), (TurnOutcome::Failed, 2), "the next turn has its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_pays_for_those_below_it_also_after_a_restart() {
    let budgets = Budgets { session: tokens(5_000), ..Budgets::default() };
    let first = stage(plain(), budgets.clone()).await;
    let top = first.session("m").await;
    let below = NewSession { parent: Some(top.id()), ..first.new_session("m") };
    let below = first.engine.create(below).await.unwrap();
    assert_eq!(run(&top).await.outcome, TurnOutcome::Completed);
    assert_eq!(run(&below).await.outcome, TurnOutcome::Completed);
    for session in [&top, &below] {
        let message = refusal(&run(session).await);
        assert!(message.starts_with("the session's budget of 5000 tokens does not cover"), "{message}");
    }
    assert_eq!(run(&first.session("m").await).await.outcome, TurnOutcome::Completed, "another has its own");
    first.engine.shutdown().await;
    let second = again(&first, plain(), budgets).await;
    for id in [below.id(), top.id()] {
        let message = refusal(&run(&second.engine.session(id).await.unwrap()).await);
        assert!(message.contains("4000 are used"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_tenant_has_its_own_budget_and_what_was_spent_before_counts() {
    let budgets = Budgets {
        tenants: BTreeMap::from([
            ("rich".to_owned(), TenantBudget { limits: money("0.02"), per: Per::Month }),
            ("free".to_owned(), TenantBudget::default()),
        ]),
        ..of_tenant(money("0.01"))
    };
    let new = |stage: &Stage, tenant: &str| NewSession { tenant: tenant.into(), ..stage.new_session("m") };
    let mut left = BTreeMap::from([("local", 1), ("rich", 4), ("free", 9)]);
    let mut stage = stage(plain(), budgets.clone()).await;
    for (tenant, fit) in &mut left {
        let session = stage.engine.create(new(&stage, tenant)).await.unwrap();
        run(&session).await;
        *fit -= 1;
    }
    stage.engine.shutdown().await;
    stage = again(&stage, plain(), budgets).await;
    for (tenant, fit) in left {
        for _ in 0..fit {
            let session = stage.engine.create(new(&stage, tenant)).await.unwrap();
            assert_eq!(run(&session).await.outcome, TurnOutcome::Completed, "{tenant}");
        }
        let session = stage.engine.create(new(&stage, tenant)).await.unwrap();
        let ended = run(&session).await;
        match tenant {
            "free" => assert_eq!(ended.outcome, TurnOutcome::Completed),
            "rich" => {
                assert!(refusal(&ended).contains("budget of $0.02 a month does not cover"), "{ended:?}")
            }
            _ => {
                assert!(refusal(&ended).contains("$0.004 is used, and the step may need $0.007"), "{ended:?}")
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_was_lost_counts_before_the_next_one_is_reserved() {
    let slow = Script::new().model("m", Model::new().step(text("slow").delay(Duration::from_secs(60))));
    // Not even the estimate of what was lost has room beside a step.
    let budgets = of_tenant(tokens(3_001));
    let first = stage(slow, budgets.clone()).await;
    let session = first.session("m").await;
    let mut events = session.events(None).await.unwrap();
    session.prompt(Prompt::text("go")).await.unwrap();
    until(&mut events, |record| matches!(record, Record::AttemptStarted(_))).await;
    // The request is sent, so this engine writes nothing more until the answer comes, in a minute.
    first.directory.mock.journal().wait_until(|entries| !entries.is_empty()).await;
    // The other engine ends the attempt that this one leaves open, as after `kill -9`.
    let second = again(&first, plain(), budgets).await;
    let mut events =
        second.engine.session(session.id()).await.unwrap().events(Some(Seq::START)).await.unwrap();
    let ended = until(&mut events, |record| matches!(record, Record::TurnEnded(_))).await;
    let Record::TurnEnded(ended) = ended else { unreachable!() };
    let message = refusal(&ended);
    let lost = used(&second).await.totals.tokens.total();
    assert!(lost > 1 && message.contains(&format!("{lost} are used")), "{lost}: {message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_turn_used_without_a_price_counts_after_a_restart() {
    let first_step = dear(call("probe", json!({"mode": "quick"})));
    let model = Model::new().step(first_step).step(text("slow").delay(Duration::from_secs(60)));
    let first = stage(Script::new().model("dear", model), Budgets::default()).await;
    first.directory.dearness.store(0, Ordering::SeqCst);
    let session = first.session("dear").await;
    let mut events = session.events(None).await.unwrap();
    session.prompt(Prompt::text("go")).await.unwrap();
    until(&mut events, |record| matches!(record, Record::AttemptEnded(_))).await;
    until(&mut events, |record| matches!(record, Record::AttemptStarted(_))).await;
    // As after `kill -9`: both attempts of the turn have no cost, and a step may need $0.007 now.
    let budgets = Budgets { turn: money("0.02"), ..Budgets::default() };
    let script = Script::new().model("dear", Model::new().step(dear(text("Done."))));
    let second = again(&first, script, budgets).await;
    let mut events =
        second.engine.session(session.id()).await.unwrap().events(Some(Seq::START)).await.unwrap();
    let ended = until(&mut events, |record| matches!(record, Record::TurnEnded(_))).await;
    let Record::TurnEnded(ended) = ended else { unreachable!() };
    let message = refusal(&ended);
    assert!(message.contains("$0.015 is used, and the step may need $0.0075"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_waits_says_so_can_be_aborted_and_goes_on_when_there_is_room() {
    let script = plain().model("slow", Model::new().step(text("slow").delay(Duration::from_secs(60))));
    let stage = stage(script, of_tenant(tokens(5_000))).await;
    let (slow, one, two) = (stage.session("slow").await, stage.session("m").await, stage.session("m").await);
    slow.prompt(Prompt::text("go")).await.unwrap();
    let journal = stage.directory.mock.journal();
    let sent = async {
        while journal.count() < 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), sent).await.expect("it is sent");
    let mut events = [one.events(None).await.unwrap(), two.events(None).await.unwrap()];
    one.prompt(Prompt::text("go")).await.unwrap();
    let reason = waits(&mut events[0]).await;
    assert_eq!(
        reason,
        "the tenant's budget of 5000 tokens is reserved: this step goes on when enough of 1 other step is over"
    );
    two.prompt(Prompt::text("go")).await.unwrap();
    assert!(waits(&mut events[1]).await.contains("2 other steps"));
    assert_eq!(one.abort().await.unwrap(), 1);
    let records = stage.records(&one).await;
    let ended = records.iter().find_map(|record| match record {
        Record::AttemptEnded(ended) => Some(ended),
        _ => None,
    });
    let ended = ended.unwrap();
    assert_eq!((&ended.outcome, &ended.usage), (&AttemptOutcome::Aborted, &None));
    assert_eq!(journal.count(), 1, "those that wait send nothing");
    assert_eq!(slow.abort().await.unwrap(), 1);
    let Record::TurnEnded(ended) =
        until(&mut events[1], |record| matches!(record, Record::TurnEnded(_))).await
    else {
        unreachable!()
    };
    assert_eq!(ended.outcome, TurnOutcome::Completed);
    assert!(refusal(&run(&two).await).contains("does not cover"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_attempt_frees_what_it_reserved_and_its_next_one_is_reserved_anew() {
    let step = dear(text("Done.")).fault(Fault::status(503)).fail_first(1);
    let script = Script::new().model("m", Model::new().step(step));
    let stage = stage(script, of_tenant(tokens(3_000))).await;
    let session = stage.session("m").await;
    let ended = run(&session).await;
    assert_eq!((ended.outcome, ended.totals.attempts), (TurnOutcome::Completed, 1));
    assert!(refusal(&run(&session).await).contains("2000 are used"));
    assert_eq!(stage.directory.mock.journal().count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_without_a_price_needs_one_for_a_budget_of_money_only() {
    let script = Script::new().model("priceless", Model::new());
    let budgets = Budgets { turn: tokens(50_000), ..of_tenant(money("1000")) };
    let of_money = stage(script.clone(), budgets).await;
    let message = refusal(&run(&of_money.session("priceless").await).await);
    assert_eq!(
        message,
        "the tenant's budget of $1000 needs to know what a step may cost, and the model has no price"
    );
    assert_eq!(of_money.directory.mock.journal().count(), 0);
    let of_tokens = stage(script, of_tenant(tokens(50_000))).await;
    assert_eq!(run(&of_tokens.session("priceless").await).await.outcome, TurnOutcome::Completed);
    of_tokens.engine.shutdown().await;
    // What it cost is not known: a budget of money that is set now does not take that for nothing.
    let later = again(&of_tokens, plain(), of_tenant(money("1000"))).await;
    let message = refusal(&run(&later.session("m").await).await);
    assert!(message.contains("is not known, since mock/priceless was used and has no price"), "{message}");
    let limits = later.engine.budgets("local").await.unwrap();
    assert_eq!(
        limits.iter().map(|limit| (limit.unit, limit.used)).collect::<Vec<_>>(),
        [(LimitUnit::Usd, None)]
    );
    assert_eq!(later.engine.spent_today("local").await.unwrap().0, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_deleted_while_it_waits_or_runs_frees_its_place() {
    let script = plain().model("slow", Model::new().step(text("slow").delay(Duration::from_secs(60))));
    let stage = stage(script, of_tenant(tokens(5_000))).await;
    let (slow, one, two) = (stage.session("slow").await, stage.session("m").await, stage.session("m").await);
    slow.prompt(Prompt::text("go")).await.unwrap();
    let mut events = [one.events(None).await.unwrap(), two.events(None).await.unwrap()];
    let journal = stage.directory.mock.journal();
    let sent = async {
        while journal.count() < 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), sent).await.expect("it is sent");
    one.prompt(Prompt::text("go")).await.unwrap();
    waits(&mut events[0]).await;
    two.prompt(Prompt::text("go")).await.unwrap();
    waits(&mut events[1]).await;
    stage.engine.delete(one.id()).await.unwrap();
    stage.engine.delete(slow.id()).await.unwrap();
    let ended = until(&mut events[1], |record| matches!(record, Record::TurnEnded(_))).await;
    let Record::TurnEnded(ended) = ended else { unreachable!() };
    assert_eq!(ended.outcome, TurnOutcome::Completed);
    let model = Some(ModelRef::new("mock", "m"));
    let last = stage.engine.create(NewSession { model, ..stage.new_session("m") }).await.unwrap();
    assert!(refusal(&run(&last).await).contains("does not cover"), "what was deleted is still paid for");
}
