//! All that goes wrong on a provider's wire, in each dialect, over real sockets: what the user and the log see.

use std::collections::BTreeSet;
use std::time::Duration;

use mock_llm::{
    Cut, Defect, Fault, Framing, LineEnd, Model, Moment, Rejection, RetryAfter, Script, Step, call, refusal,
    text,
};
use playhouse_protocol::message::{CallOutcome, Message, Part};
use playhouse_protocol::record::{AttemptOutcome, Record, TurnEnded, TurnOutcome};
use playhouse_protocol::usage::Quality;
use playhouse_protocol::{AttemptId, ErrorCode, Prompt, SessionId};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::Stage;

pub(crate) const DIALECTS: [&str; 4] = ["anthropic", "openai-chat", "openai-responses", "gemini"];
const TEXT: &str = "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.";

/// What a turn of one faulty step left behind.
pub(crate) struct Seen {
    pub(crate) ended: TurnEnded,
    records: Vec<Record>,
    messages: Vec<Message>,
    requests: u64,
    /// Times that the probe ran.
    executed: u32,
    pub(crate) session: SessionId,
}

/// Runs a turn: the first answer is `step`, what follows is a closing text.
pub(crate) async fn run(dialect: &str, step: Step) -> Seen {
    run_on(&stage(step).await, dialect).await
}

pub(crate) async fn stage(step: Step) -> Stage {
    Stage::new(Script::new().model("m", Model::new().step(step).closing("The end."))).await
}

/// Runs a turn in a session of its own.
pub(crate) async fn run_on(stage: &Stage, dialect: &str) -> Seen {
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
    pub(crate) fn error(&self) -> (ErrorCode, &str) {
        let error = self.ended.error.as_ref().expect("the turn failed");
        (error.code, &error.message)
    }

    /// The id of the first attempt of the turn.
    pub(crate) fn first_attempt(&self) -> AttemptId {
        let started = self.records.iter().find_map(|record| match record {
            Record::AttemptStarted(started) => Some(started.attempt),
            _ => None,
        });
        started.expect("there was an attempt")
    }

    pub(crate) fn texts(&self) -> Vec<&str> {
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
    pub(crate) fn qualities(&self) -> Vec<Quality> {
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
                Rejection::BadKey => (&[ErrorCode::Authentication], 1),
                // OpenAI says that the model is not for this project.
                Rejection::Forbidden => (&[ErrorCode::Authentication, ErrorCode::UnknownModel], 1),
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
            // A gateway that lost patience had somebody work on it.
            let billed: &[Quality] =
                if status == 504 { &[Quality::Estimated, Quality::Reported] } else { &[Quality::Reported] };
            assert_eq!(seen.qualities(), billed, "{place}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_less_and_not_for_how_long_is_asked_again() {
    for dialect in DIALECTS {
        for status in [429, 529] {
            let seen = run(dialect, text(TEXT).fault(Fault::status(status)).fail_first(1)).await;
            let place = format!("{dialect}, {status}");
            seen.check_attempts();
            assert_eq!(seen.ended.outcome, TurnOutcome::Completed, "{place}");
            assert_eq!((seen.requests, seen.failed_attempts()), (2, 1), "{place}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_refused_as_such_is_not_sent_again() {
    for dialect in DIALECTS {
        for status in [400, 422] {
            let seen = run(dialect, text("never").fault(Fault::status(status))).await;
            seen.check_attempts();
            let (code, message) = seen.error();
            assert_eq!((code, seen.requests), (ErrorCode::BadRequest, 1), "{dialect}, {status}: {message}");
            let named = message.contains(dialect) && message.contains(&format!("for m ({status})"));
            assert!(named, "{dialect}, {status}: {message}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_refuses_is_not_asked_again() {
    for dialect in DIALECTS {
        let seen = run(dialect, refusal("I would rather not.")).await;
        seen.check_attempts();
        let (code, message) = seen.error();
        assert_eq!((code, seen.requests), (ErrorCode::ContentFilter, 1), "{dialect}: {message}");
        assert_eq!(seen.qualities(), [Quality::Reported], "{dialect}: it is billed");
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
#[ignore = "slow: scripts/slow runs it"]
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
#[ignore = "slow: scripts/slow runs it"]
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

/// Answers each connection with these bytes once something came, and then again and again with those.
async fn raw_server(head: &'static [u8], again: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = vec![0; 1 << 20];
                let mut sent = socket.read(&mut request).await.map(drop);
                if sent.is_ok() {
                    sent = socket.write_all(head).await;
                }
                // Until the client goes away.
                while sent.is_ok() && !again.is_empty() {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    sent = socket.write_all(again).await;
                }
            });
        }
    });
    format!("http://{address}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_was_sent_and_not_answered_is_billed_as_an_estimate() {
    let page = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nhi";
    for (answer, code) in [(&b""[..], ErrorCode::NoAnswer), (page, ErrorCode::BadAnswer)] {
        for dialect in DIALECTS {
            let stage = Stage::new(Script::new()).await;
            stage.directory.place.lock().unwrap().0 = raw_server(answer, b"").await;
            let seen = run_on(&stage, dialect).await;
            assert_eq!(seen.error().0, code, "{dialect}: {:?}", seen.ended.error);
            assert_eq!(seen.failed_attempts(), 2, "{dialect}");
            assert_eq!(seen.qualities(), [Quality::Estimated; 2], "{dialect}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_only_keeps_the_connection_alive_is_given_up() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    for dialect in DIALECTS {
        let stage = Stage::new(Script::new()).await;
        stage.directory.limits.lock().unwrap().attempt = Duration::from_millis(200);
        stage.directory.place.lock().unwrap().0 = raw_server(head, b"5\r\n: x\n\n\r\n").await;
        let seen = run_on(&stage, dialect).await;
        let (code, message) = seen.error();
        assert_eq!(code, ErrorCode::StreamCut, "{dialect}: {message}");
        assert!(message.contains("not whole after 0.2 s"), "{dialect}: {message}");
    }
}
