//! Many sessions that ask at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mock_llm::{Model, Script, call, text};
use playhouse_protocol::consent::ConsentAnswer;
use playhouse_protocol::id::PartId;
use playhouse_protocol::message::CallOutcome;
use playhouse_protocol::{CommandError, Prompt, Record, Seq};
use playhouse_store::Store;
use serde_json::json;
use tokio::sync::Barrier;

use crate::consents::{asked, ended};
use crate::support::Stage;

/// Sessions that ask at once. All must ask before the first request is too old to be answered.
const SESSIONS: usize = 300;
/// Groups of sessions that want the same, so that "always" to one settles others.
const GROUPS: usize = 30;
const SEED: u64 = 0x5eed_0005;

/// What somebody does about a request.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Once,
    Always,
    Decline,
    Abort,
    /// Nobody does anything.
    Leave,
    /// An answer and an abort at the same time.
    Race,
}

/// A small generator (xorshift), so that a run can be repeated.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> Deed {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        match self.0 % 12 {
            0..=2 => Deed::Once,
            3 => Deed::Always,
            4..=5 => Deed::Decline,
            6..=7 => Deed::Abort,
            8..=9 => Deed::Leave,
            _ => Deed::Race,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: scripts/slow runs it"]
async fn many_sessions_that_ask_at_once_leave_nothing_open() {
    let script = (0..GROUPS).fold(Script::new(), |script, group| {
        let step = call("danger", json!({"to": format!("test://{group}/a")}));
        script.model(format!("m{group}"), Model::new().step(step).step(text("Done.")))
    });
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let stage = Stage::with(Store::memory().unwrap(), folder, script, |options| {
        options.limits.asking_wait = Duration::from_secs(6);
    })
    .await
    .bare();
    let stage = Arc::new(stage);
    let (mut dice, all_ask) = (Dice(SEED), Arc::new(Barrier::new(SESSIONS)));
    let mut tasks = Vec::new();
    for number in 0..SESSIONS {
        let (stage, all_ask, deed) = (Arc::clone(&stage), Arc::clone(&all_ask), dice.roll());
        tasks.push(tokio::spawn(async move {
            let session = stage.session(&format!("m{}", number % GROUPS)).await;
            let mut events = session.events(None).await.unwrap();
            session.prompt(Prompt::text("go")).await.unwrap();
            let consent = asked(&mut events).await.consent;
            all_ask.wait().await;
            let answer = |answer| session.answer(consent, answer);
            let answered = match deed {
                Deed::Once => answer(ConsentAnswer::Once).await,
                Deed::Always => answer(ConsentAnswer::Always).await,
                Deed::Decline => answer(ConsentAnswer::Decline { message: None }).await,
                Deed::Abort => session.abort().await.map(|_| ()),
                Deed::Leave => Ok(()),
                Deed::Race => {
                    let (answered, aborted) = tokio::join!(answer(ConsentAnswer::Once), session.abort());
                    aborted.unwrap();
                    answered
                }
            };
            match answered {
                Ok(()) => {}
                // Somebody else's "always", the time, or the abort was faster, and the answer says which.
                Err(CommandError::ConsentSettled { consent: of, .. }) => assert_eq!(of, consent),
                Err(error) => panic!("{deed:?}: {error}"),
            }
            // From the beginning: it may be over already.
            let mut events = session.events(Some(Seq::START)).await.unwrap();
            ended(&mut events).await;
            (session, deed)
        }));
    }
    let (mut went, mut answers) = (0, HashMap::new());
    for task in tasks {
        let (session, deed) = tokio::time::timeout(Duration::from_secs(120), task).await.unwrap().unwrap();
        let snapshot = session.snapshot().await.unwrap();
        assert!(snapshot.consents.is_empty() && snapshot.summary.open_turns == 0, "{deed:?}");
        let (mut proposed, mut open, mut results) = (Vec::new(), Vec::new(), HashMap::<PartId, u32>::new());
        for record in stage.records(&session).await {
            match record {
                Record::CallProposed(call) => proposed.push(call.call),
                Record::ConsentAsked(asked) => open.push(asked.consent),
                Record::ConsentSettled { consent, answer } => {
                    let place = open.iter().position(|open| *open == consent);
                    open.remove(place.expect("a request is settled once"));
                    *answers.entry(name(&answer)).or_insert(0) += 1;
                }
                Record::CallSettled { call, result } => {
                    *results.entry(call).or_default() += 1;
                    went += usize::from(result.outcome == CallOutcome::Done);
                }
                _ => {}
            }
        }
        assert!(open.is_empty(), "{deed:?}: {open:?} waits for ever");
        assert_eq!(proposed.len(), 1);
        assert!(proposed.iter().all(|call| results.get(call) == Some(&1)), "{deed:?}: {results:?}");
    }
    for expected in ["once", "always", "covered", "decline", "timed out", "withdrawn"] {
        assert!(answers.contains_key(expected), "the dice did not bring about \"{expected}\": {answers:?}");
    }
    assert_eq!(stage.danger.went().len(), went, "what is reported as done is what was done");
    assert_eq!(stage.engine.shutdown().await.stragglers, Vec::<String>::new());
}

fn name(answer: &ConsentAnswer) -> &'static str {
    match answer {
        ConsentAnswer::Once => "once",
        ConsentAnswer::Always => "always",
        ConsentAnswer::Covered { .. } => "covered",
        ConsentAnswer::Decline { .. } => "decline",
        ConsentAnswer::TimedOut => "timed out",
        ConsentAnswer::Unattended => "unattended",
        ConsentAnswer::Withdrawn => "withdrawn",
    }
}
