//! A clock that jumps, either way, changes no order and lets no request expire: time limits are deadlines that somebody else counts.

use playhouse_policy::Verdict;
use playhouse_protocol::consent::ConsentAnswer;
use playhouse_protocol::record::Effect;
use playhouse_protocol::{Message, WhenBusy};
use playhouse_session::Session;

use crate::harness::{Harness, ask};

const YEAR: u64 = 365 * 24 * 3_600_000;

/// What happens in two turns with a request, a crash and a queued prompt. The clock stands elsewhere at each step.
fn story(clock: impl Fn(u64, u64) -> u64) -> (Vec<String>, Harness) {
    let (mut h, mut told, mut step) = (Harness::new(), Vec::new(), 0);
    type Step = fn(&mut Harness) -> Vec<String>;
    let steps: [Step; 12] = [
        |h| h.prompt("one"),
        |h| h.answer("", &["bash", "read"]),
        |h| h.judged("bash", Effect::Workspace, ask(&["make"])),
        |h| h.prompt_with("two", WhenBusy::Queue, None),
        // The process ends while people are asked: the request has all its time again.
        |h| h.crash(),
        |h| h.consent(ConsentAnswer::Once),
        |h| h.judged("bash", Effect::Workspace, ask(&["make"])),
        |h| h.done("bash"),
        |h| h.judged("read", Effect::None, Verdict::Allow),
        |h| h.done("read"),
        |h| h.answer("One is done.", &[]),
        |h| h.answer("Two is done.", &[]),
    ];
    for act in steps {
        step += 1;
        h.clock = clock(step, h.clock);
        told.push(act(&mut h).join("; "));
    }
    (told, h)
}

#[test]
fn a_clock_that_jumps_changes_no_order_and_expires_no_request() {
    let (expected, steady) = story(|_, now| now + 1_000);
    assert!(expected[2].contains("arm Consent in 60000 ms"), "{expected:?}");
    assert!(expected[4].contains("arm Consent in 60000 ms"), "{expected:?}");
    type Clock = fn(u64, u64) -> u64;
    let clocks: [(&str, Clock); 4] = [
        ("stands still", |_, _| 1_000),
        ("went back by years", |step, _| 40 * YEAR - step * YEAR),
        ("jumps on by years", |step, _| step * YEAR),
        ("jumps to and fro", |step, _| (step * 7 % 5) * 20 * YEAR),
    ];
    for (what, clock) in clocks {
        let (told, jumping) = story(clock);
        assert_eq!(told, expected, "a clock that {what}");
        let kinds = |h: &Harness| h.log.iter().map(|entry| entry.record.kind()).collect::<Vec<_>>();
        assert_eq!(kinds(&jumping), kinds(&steady), "a clock that {what}");
        assert!(jumping.log.is_sorted_by_key(|entry| (entry.seq, entry.at)), "a clock that {what}");
        let messages = |h: &Harness| {
            let session = Session::replay(&h.log).unwrap();
            let parts = |message: &Message| match message {
                Message::User(user) => (true, user.parts.len()),
                Message::Assistant(assistant) => (false, assistant.parts.len()),
            };
            session.messages.iter().map(parts).collect::<Vec<_>>()
        };
        assert_eq!(messages(&jumping), messages(&steady), "a clock that {what}");
    }
}
