//! Providers that ask for less: retries and waits that clients are told of.

use mock_llm::{Fault, Model, Moment, Script, text};
use playhouse_protocol::event::Provisional;
use playhouse_protocol::record::TurnOutcome;
use playhouse_protocol::{ErrorCode, EventBody, Prompt, Record};

use crate::support::{Stage, until};

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
        if let EventBody::Provisional(Provisional::StepRetry { attempt_number, attempts, error, .. }) =
            &event.event().body
        {
            break (*attempt_number, *attempts, error.code);
        }
    };
    assert_eq!(retry, (2, 2, ErrorCode::ProviderUnavailable));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_wants_a_long_pause_fails_the_turn_and_says_when_to_come_back() {
    let step = text("never").fault(Fault::retry_after(429, 3_600));
    let stage = Stage::new(Script::new().model("m", Model::new().step(step))).await;
    let ended = stage.session("m").await.run(Prompt::text("go")).await.unwrap().ended;
    assert_eq!(ended.outcome, TurnOutcome::Failed);
    let error = ended.error.unwrap();
    assert_eq!(error.code, ErrorCode::RateLimited);
    assert!(error.message.contains("come back in 60 minutes"), "{error}");
    let limiter = &stage.directory.limiter;
    let (cool, _) = limiter.outlook();
    assert!(cool.as_millis() <= 10, "no longer than a step would wait by this stage's policy: {cool:?}");
    let first = limiter.acquire("local", 1).await;
    assert!(limiter.try_acquire(1).is_none(), "all sessions with this key begin slowly");
    drop(first);
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

#[tokio::test(flavor = "multi_thread")]
async fn who_is_told_to_slow_down_in_the_middle_of_an_answer_slows_the_others_down() {
    let step = text("one two three").fault(Fault::error_event(Moment::InText, "Overloaded"));
    let script = Script::new().model("m", Model::new().step(step));
    let stage = Stage::new(script).await;
    let (first, second) = (stage.session("m").await, stage.session("echo").await);
    let ended = first.run(Prompt::text("one")).await.unwrap().ended;
    assert_eq!(ended.error.unwrap().code, ErrorCode::RateLimited);
    let held = stage.directory.limiter.acquire("local", 1).await;
    let mut events = second.events(None).await.unwrap();
    second.prompt(Prompt::text("two")).await.unwrap();
    loop {
        let event = events.next().await.unwrap().unwrap();
        match &event.event().body {
            EventBody::Provisional(Provisional::AttemptWaiting { .. }) => break,
            EventBody::Durable(record) => {
                assert!(!matches!(record.as_ref(), Record::TurnEnded(_)), "it waits for its turn");
            }
            EventBody::Provisional(_) => {}
        }
    }
    drop(held);
    until(&mut events, |record| matches!(record, Record::TurnEnded(_))).await;
    let (one, two) = (stage.directory.limiter.try_acquire(1), stage.directory.limiter.try_acquire(1));
    assert!(one.is_some() && two.is_some(), "an answer that ended well lets two go on at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_told_how_long_a_request_waits_at_least() {
    let stage = Stage::new(Script::new()).await;
    stage.directory.limiter.cool_down(std::time::Duration::from_secs(3_600));
    let session = stage.session("echo").await;
    let mut events = session.events(None).await.unwrap();
    session.prompt(Prompt::text("one")).await.unwrap();
    loop {
        let event = events.next().await.unwrap().unwrap();
        if let EventBody::Provisional(Provisional::AttemptWaiting { until, reason, .. }) = &event.event().body
        {
            let wait = until.expect("it is known").millis_since(event.event().at);
            assert!((3_000_000..=3_600_000).contains(&wait), "{wait}: {reason}");
            break;
        }
    }
    assert_eq!(session.abort().await.unwrap(), 1);
}
