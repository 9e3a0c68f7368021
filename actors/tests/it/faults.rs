//! All that goes wrong on a provider's wire, in each dialect, over real sockets: what the user and the log see.

use std::collections::BTreeSet;

use mock_llm::{
    Cut, Defect, Fault, Framing, LineEnd, Model, Moment, Rejection, RetryAfter, Script, Step, call, text,
};
use playhouse_protocol::message::{CallOutcome, Message, Part};
use playhouse_protocol::record::{AttemptOutcome, Record, TurnEnded, TurnOutcome};
use playhouse_protocol::usage::Quality;
use playhouse_protocol::{ErrorCode, Prompt, SessionId};
use serde_json::json;

use crate::support::Stage;

const DIALECTS: [&str; 4] = ["anthropic", "openai-chat", "openai-responses", "gemini"];
const TEXT: &str = "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.";

/// What a turn of one faulty step left behind.
struct Seen {
    ended: TurnEnded,
    records: Vec<Record>,
    messages: Vec<Message>,
    requests: u64,
    /// Times that the probe ran.
    executed: u32,
    session: SessionId,
}

/// Runs a turn: the first answer is `step`, what follows is a closing text.
async fn run(dialect: &str, step: Step) -> Seen {
    let stage = Stage::new(Script::new().model("m", Model::new().step(step).closing("The end."))).await;
    let session = stage.session_with(dialect, "m").await;
    let ended = session.run(Prompt::text("go")).await.unwrap().ended;
    Seen {
        ended,
        records: stage.records(&session).await,
        messages: session.snapshot().await.unwrap().messages,
        requests: stage.directory.mock.journal().count(),
        executed: stage.probe.executed.load(std::sync::atomic::Ordering::SeqCst),
        session: session.id(),
    }
}

impl Seen {
    fn error(&self) -> (ErrorCode, &str) {
        let error = self.ended.error.as_ref().expect("the turn failed");
        (error.code, &error.message)
    }

    fn texts(&self) -> Vec<&str> {
        let parts = self.messages.iter().flat_map(|message| match message {
            Message::Assistant(message) => message.parts.as_slice(),
            Message::User(_) => &[],
        });
        parts
            .filter_map(|part| match part {
                Part::Text { text, .. } => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }

    fn results(&self) -> Vec<CallOutcome> {
        let settled = self.records.iter().filter_map(|record| match record {
            Record::CallSettled { result, .. } => Some(result.outcome),
            _ => None,
        });
        settled.collect()
    }

    /// The qualities of the usage of the attempts that used something.
    fn qualities(&self) -> Vec<Quality> {
        let ended = self.records.iter().filter_map(|record| match record {
            Record::AttemptEnded(ended) => ended.usage.as_ref().map(|usage| usage.quality),
            _ => None,
        });
        ended.collect()
    }

    fn failed_attempts(&self) -> usize {
        let failed = |record: &&Record| matches!(record, Record::AttemptEnded(ended) if matches!(ended.outcome, AttemptOutcome::Failed { .. }));
        self.records.iter().filter(failed).count()
    }

    /// One attempt is one request, and one record that it ended.
    fn check_attempts(&self) {
        let started =
            self.records.iter().filter(|record| matches!(record, Record::AttemptStarted(_))).count();
        let ended = self.records.iter().filter(|record| matches!(record, Record::AttemptEnded(_))).count();
        assert_eq!((started as u64, ended), (self.requests, started), "{}", self.session);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_provider_refuses_is_not_asked_again_and_says_what_to_do() {
    for dialect in DIALECTS {
        for rejection in Rejection::ALL {
            let seen = run(dialect, text("never").fault(Fault::Rejected(rejection))).await;
            let place = format!("{dialect}, {rejection:?}");
            seen.check_attempts();
            assert_eq!(seen.ended.outcome, TurnOutcome::Failed, "{place}");
            let (code, message) = seen.error();
            let (expected, requests): (&[ErrorCode], u64) = match rejection {
                Rejection::ContextOverflow => (&[ErrorCode::ContextOverflow], 1),
                Rejection::QuotaUsedUp => (&[ErrorCode::QuotaExceeded], 1),
                Rejection::RateLimited => (&[ErrorCode::RateLimited], 2),
                Rejection::Overloaded => (&[ErrorCode::RateLimited, ErrorCode::ProviderUnavailable], 2),
                Rejection::BadKey | Rejection::Forbidden => (&[ErrorCode::Authentication], 1),
                Rejection::NoSuchModel => (&[ErrorCode::UnknownModel], 1),
                Rejection::TooLarge => (&[ErrorCode::BadRequest, ErrorCode::ContextOverflow], 1),
                Rejection::ContentFilter => (&[ErrorCode::ContentFilter], 1),
            };
            assert!(expected.contains(&code), "{place}: {code:?} {message}");
            // A provider that says when to come back is not asked before, and longer than the test's policy allows.
            let told = message.contains("come back in");
            assert!(seen.requests == requests || told, "{place}: {} requests: {message}", seen.requests);
            assert!(message.contains(dialect), "{place} names the provider: {message}");
            // Gemini reads a prompt that it then filters, and says what that used.
            let read = dialect == "gemini" && rejection == Rejection::ContentFilter;
            let billed: &[Quality] = if read { &[Quality::Reported] } else { &[] };
            assert_eq!(seen.qualities(), billed, "{place}: what used nothing is not billed");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_pass_is_tried_again() {
    for dialect in DIALECTS {
        for status in [500, 502, 503, 504, 529, 429] {
            let seen =
                run(dialect, text(TEXT).fault(Fault::come_back(status, RetryAfter::Ms(2))).fail_first(1))
                    .await;
            let place = format!("{dialect}, {status}");
            seen.check_attempts();
            assert_eq!(seen.ended.outcome, TurnOutcome::Completed, "{place}");
            assert_eq!((seen.requests, seen.failed_attempts()), (2, 1), "{place}");
            assert_eq!(seen.texts(), [TEXT], "{place}");
            assert_eq!(seen.qualities(), [Quality::Reported], "{place}: only the second is billed");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_form_of_retry_after_is_read() {
    for dialect in DIALECTS {
        for form in [RetryAfter::Seconds(120), RetryAfter::DateIn(120), RetryAfter::Ms(120_000)] {
            let seen = run(dialect, text("never").fault(Fault::come_back(429, form))).await;
            let (code, message) = seen.error();
            assert_eq!((code, seen.requests), (ErrorCode::RateLimited, 1), "{dialect}, {form:?}: {message}");
            let said = ["come back in 120 s", "come back in 119 s"];
            assert!(said.iter().any(|said| message.contains(said)), "{dialect}, {form:?}: {message}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_answer_is_made_again_and_nothing_of_it_runs() {
    let moments = [Moment::FirstToken, Moment::InText, Moment::InArguments, Moment::FinalEvent];
    for dialect in DIALECTS {
        for moment in moments {
            for how in [Cut::Eof, Cut::Reset] {
                let step = || text(TEXT).call("probe", json!({"mode": "once", "pad": "x".repeat(200)}));
                let seen = run(dialect, step().fault(Fault::cut(moment, how)).fail_first(1)).await;
                let place = format!("{dialect}, {moment:?}, {how:?}");
                seen.check_attempts();
                assert_eq!(seen.ended.outcome, TurnOutcome::Completed, "{place}");
                assert_eq!((seen.requests, seen.failed_attempts()), (3, 1), "{place}");
                assert_eq!(seen.executed, 1, "{place}: the call of the cut answer did not run");
                assert_eq!(seen.texts(), [TEXT, "The end."], "{place}");
                let expected = [Quality::Estimated, Quality::Reported, Quality::Reported];
                assert_eq!(seen.qualities(), expected, "{place}: the cut one is billed as an estimate");
                // And where it is cut every time, it never passes for an answer.
                let seen = run(dialect, step().fault(Fault::cut(moment, how))).await;
                assert_eq!(seen.ended.outcome, TurnOutcome::Failed, "{place}");
                assert_eq!(seen.executed, 0, "{place}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_in_the_stream_is_an_error() {
    for dialect in DIALECTS {
        for moment in [Moment::FirstToken, Moment::InText, Moment::FinalEvent] {
            let seen = run(dialect, text(TEXT).fault(Fault::error_event(moment, "we are on fire"))).await;
            let place = format!("{dialect}, {moment:?}");
            assert_eq!(seen.ended.outcome, TurnOutcome::Failed, "{place}");
            assert!(seen.error().1.contains("on fire"), "{place}: {}", seen.error().1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_answer_is_repaired_or_refused() {
    for dialect in DIALECTS {
        for defect in Defect::ALL {
            let step = text(TEXT)
                .call("probe", json!({"mode": "free-a"}))
                .call("probe", json!({"mode": "free-b"}))
                .fault(Fault::Broken(defect));
            let seen = run(dialect, step).await;
            let place = format!("{dialect}, {defect:?}: {:?}", seen.ended);
            seen.check_attempts();
            match defect {
                Defect::MalformedJson => {
                    assert_eq!(seen.error().0, ErrorCode::BadAnswer, "{place}");
                    assert_eq!(seen.executed, 0, "{place}");
                }
                Defect::NoUsage => {
                    assert_eq!(seen.ended.outcome, TurnOutcome::Completed, "{place}");
                    assert_eq!(seen.qualities(), [Quality::Estimated, Quality::Reported], "{place}");
                }
                Defect::DuplicateBlocks | Defect::OutOfOrder => {
                    let refused = seen.ended.outcome == TurnOutcome::Failed;
                    assert!(!refused || seen.error().0 == ErrorCode::BadAnswer, "{place}");
                    assert!(refused || !seen.results().is_empty(), "{place}");
                }
                Defect::SameCallId => {
                    assert_eq!(seen.ended.outcome, TurnOutcome::Completed, "{place}");
                    assert_eq!(seen.results(), [CallOutcome::Done; 2], "{place}");
                    let ids: BTreeSet<&str> = seen
                        .records
                        .iter()
                        .filter_map(|record| match record {
                            Record::CallProposed(proposed) => Some(proposed.call_id.as_str()),
                            _ => None,
                        })
                        .collect();
                    assert_eq!(ids.len(), 2, "{place}");
                }
                Defect::ArgumentsNotAnObject => {
                    assert_eq!(seen.ended.outcome, TurnOutcome::Completed, "{place}");
                    assert_eq!(seen.results(), [CallOutcome::Failed; 2], "{place}");
                    assert_eq!(seen.executed, 0, "{place}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_content_and_a_page_are_no_answers() {
    for dialect in DIALECTS {
        let seen = run(dialect, text("x").fault(Fault::Empty)).await;
        assert_eq!(seen.error().0, ErrorCode::EmptyAnswer, "{dialect}");
        let page = "<html><body>Welcome to the hotel</body></html>";
        let seen = run(dialect, text("x").fault(Fault::Html(page.into()))).await;
        assert_eq!(seen.error().0, ErrorCode::BadAnswer, "{dialect}");
        assert!(seen.error().1.contains("hotel"), "{dialect}: {}", seen.error().1);
        let seen = run(dialect, text("x").fault(Fault::redirect("http://127.0.0.1:9/elsewhere"))).await;
        assert_eq!(seen.ended.outcome, TurnOutcome::Failed, "{dialect}");
        assert!(seen.error().1.contains("127.0.0.1:9"), "{dialect} names the place: {}", seen.error().1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn however_the_bytes_come_the_answer_is_the_same() {
    let plain = Framing::default();
    let framings = [
        Framing::split(1),
        Framing::split(3),
        Framing::split(1000),
        Framing::line_end(LineEnd::Crlf),
        Framing { bom: true, comments: true, ..plain },
        Framing { multi_line: true, no_space: true, ..plain },
        Framing { gzip: true, ..plain },
        Framing { gzip: true, split: Some(5), line_end: Some(LineEnd::Crlf), ..plain },
        Framing { never_ends: true, ..plain },
    ];
    for dialect in DIALECTS {
        for framing in framings {
            let step = text(TEXT).call("probe", json!({"mode": "free", "text": TEXT})).framing(framing);
            let seen = run(dialect, step).await;
            let place = format!("{dialect}, {framing:?}: {:?}", seen.ended.error);
            assert_eq!(seen.ended.outcome, TurnOutcome::Completed, "{place}");
            assert_eq!(seen.texts(), [TEXT, "The end."], "{place}");
            assert_eq!((seen.requests, seen.executed), (2, 1), "{place}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_event_of_eight_megabytes_is_read() {
    let long = "ä".repeat(4 << 20);
    for dialect in DIALECTS {
        let seen = run(dialect, call("probe", json!({"mode": "free", "text": long}))).await;
        assert_eq!(seen.ended.outcome, TurnOutcome::Completed, "{dialect}: {:?}", seen.ended.error);
        assert_eq!(seen.results(), [CallOutcome::Done], "{dialect}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_named() {
    for dialect in DIALECTS {
        let stage = Stage::new(Script::new()).await;
        let session = stage.session_with(dialect, "m").await;
        let server = stage.directory.server.lock().unwrap().take().unwrap();
        let address = server.address().to_string();
        server.shutdown().await;
        let ended = session.run(Prompt::text("go")).await.unwrap().ended;
        let error = ended.error.unwrap();
        assert_eq!(error.code, ErrorCode::Connection, "{dialect}: {error}");
        assert!(error.message.contains(&address), "{dialect}: {error}");
        assert_eq!(ended.totals.attempts, 0, "{dialect}: nothing was used");
    }
}
