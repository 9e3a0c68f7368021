//! Providers that ask for less: retries and waits that clients are told of.

use mock_llm::{Fault, Model, Script, text};
use playhouse_protocol::event::Provisional;
use playhouse_protocol::record::TurnOutcome;
use playhouse_protocol::{ErrorCode, EventBody, Prompt};

use crate::support::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_told_of_a_retry() {
    let step = text("All is well.").fault(Fault::status(503)).fail_first(1);
    let stage = Stage::new(Script::new().model("m", Model::new().step(step))).await;
    let session = stage.session("m").await;
    let mut events = session.events(None).await.unwrap();
    let ended = session.run(Prompt::text("go")).await.unwrap().ended;
    assert_eq!(ended.outcome, TurnOutcome::Completed);
    assert_eq!(ended.totals.attempts, 1, "a refused request used nothing");
    let retry = loop {
        let event = events.next().await.unwrap().unwrap();
        if let EventBody::Provisional(Provisional::StepRetry { attempt_number, error, .. }) =
            &event.event().body
        {
            break (*attempt_number, error.code);
        }
    };
    assert_eq!(retry, (2, ErrorCode::ProviderUnavailable));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_wants_a_long_pause_fails_the_turn_and_says_when_to_come_back() {
    let step = text("never").fault(Fault::retry_after(429, 3_600));
    let stage = Stage::new(Script::new().model("m", Model::new().step(step))).await;
    let ended = stage.session("m").await.run(Prompt::text("go")).await.unwrap().ended;
    assert_eq!(ended.outcome, TurnOutcome::Failed);
    let error = ended.error.unwrap();
    assert_eq!(error.code, ErrorCode::RateLimited);
    assert!(error.message.contains("come back in 3600 s"), "{error}");
    assert!(stage.directory.limiter.try_acquire(1).is_none(), "all sessions with this key wait");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waits_for_its_turn_says_so_and_can_be_aborted() {
    let stage = Stage::new(Script::new()).await;
    let held: Vec<_> = std::iter::from_fn(|| stage.directory.limiter.try_acquire(1)).collect();
    let (first, second) = (stage.session("echo").await, stage.session("echo").await);
    let mut events = first.events(None).await.unwrap();
    first.prompt(Prompt::text("one")).await.unwrap();
    loop {
        let event = events.next().await.unwrap().unwrap();
        if let EventBody::Provisional(Provisional::AttemptWaiting { reason, .. }) = &event.event().body {
            assert!(reason.contains("mock"), "{reason}");
            break;
        }
    }
    assert_eq!(first.abort().await.unwrap(), 1);
    assert_eq!(stage.directory.mock.journal().count(), 0, "nothing was sent");
    let snapshot = first.snapshot().await.unwrap();
    assert_eq!(snapshot.summary.totals().attempts, 0, "and nothing is billed");
    drop(held);
    assert_eq!(second.run(Prompt::text("two")).await.unwrap().ended.outcome, TurnOutcome::Completed);
}
