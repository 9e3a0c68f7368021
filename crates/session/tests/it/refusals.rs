//! Refusals that a history causes and whose words do not say so.

use playhouse_protocol::chat::{ChatMessage, UserPart};
use playhouse_protocol::error::ProviderWords;
use playhouse_protocol::message::{Attachment, BlobRef, CallOutcome, Part};
use playhouse_protocol::record::Effect;
use playhouse_protocol::{ErrorCode, ErrorInfo, ModelRef, WhenBusy};
use playhouse_session::{AttemptReport, CallReport, FailedAttempt, Input};

use crate::harness::{Harness, TestFacts, changed, model};

/// The request under way is refused with this status, in these words.
fn refuse(h: &mut Harness, status: u16, words: &str) -> Vec<String> {
    let AttemptReport::Failed(failed) = h.failed(ErrorCode::BadRequest, "") else { unreachable!() };
    let said = ProviderWords { message: words.into(), parameter: String::new() };
    let error =
        ErrorInfo { message: words.into(), said: Some(Box::new(said)), ..failed.error.with_status(status) };
    let attempt = *h.attempts.last().unwrap();
    h.on(Input::Attempt(attempt, AttemptReport::Failed(FailedAttempt { error, parts: Vec::new(), ..failed })))
}

/// A step of one call with an output of so many bytes.
fn step(h: &mut Harness, bytes: usize) -> Vec<String> {
    h.answer("I look.", &["read"]);
    h.prepared("read", Effect::None);
    let call = h.call("read");
    h.on(Input::Call(call, CallReport::text(CallOutcome::Done, "o".repeat(bytes))))
}

fn ends(lines: &[String], failed: bool) -> bool {
    lines.iter().any(|line| line.contains("turn.ended")) == failed
}

#[test]
fn a_request_that_is_clearly_larger_than_any_that_was_accepted_is_made_again_with_less() {
    let mut h = Harness::new();
    h.silent = true;
    h.prompt("go");
    for _ in 0..5 {
        step(&mut h, 10_000);
    }
    let lines = refuse(&mut h, 400, "no");
    assert!(
        lines[0].contains("context.cleared(5, 0 shortened)") || lines[0].contains("context.cleared(4"),
        "{lines:?}"
    );
    assert!(ends(&lines, false), "{lines:?}");
    // Once until there is an answer.
    assert!(ends(&refuse(&mut h, 400, "no"), true));
}

#[test]
fn a_refusal_that_is_not_about_size_is_told_at_once() {
    let mut h = Harness::new();
    h.silent = true;
    h.prompt("go");
    // What is small fits every model.
    step(&mut h, 10_000);
    assert!(ends(&refuse(&mut h, 400, "no"), true));
    h.prompt("go");
    for _ in 0..5 {
        step(&mut h, 10_000);
    }
    // One that is about as large was accepted.
    step(&mut h, 100);
    h.answer("I look.", &["read"]);
    h.prepared("read", Effect::None);
    let call = h.call("read");
    h.on(Input::Call(call, CallReport::text(CallOutcome::Done, "small")));
    assert!(ends(&refuse(&mut h, 400, "unknown field"), true));
    // Another status says what it is.
    h.prompt("again");
    assert!(ends(&refuse(&mut h, 404, "unknown field"), true));
}

#[test]
fn what_is_refused_in_the_next_turn_too_is_made_shorter() {
    let mut h = Harness::new();
    h.silent = true;
    h.prompt("go");
    for _ in 0..30 {
        step(&mut h, 2_000);
    }
    assert!(ends(&refuse(&mut h, 400, "no"), true), "hardly larger than the one before");
    h.prompt("what is it?");
    let lines = refuse(&mut h, 400, "no");
    assert!(lines[0].contains("context.c") && ends(&lines, false), "{lines:?}");
    assert!(h.answer("It is fine.", &[])[0].contains("turn.ended"));
    // Where it was refused once, it is known what that means.
    h.prompt("more");
    let lines = (0..30).find_map(|_| {
        step(&mut h, 2_000);
        let bytes: usize = texts(&h).iter().map(String::len).sum();
        (bytes > 58_000).then(|| refuse(&mut h, 400, "no"))
    });
    let lines = lines.expect("it becomes as large again");
    assert!(lines[0].contains("context.c") && ends(&lines, false), "{lines:?}");
}

/// The texts that the model reads.
fn texts(h: &Harness) -> Vec<String> {
    let session = h.machine.session();
    let mut out = Vec::new();
    session.read(0..session.messages.len(), &model(), &mut out);
    out.into_iter()
        .flat_map(|message| match message {
            ChatMessage::User { parts } => parts
                .into_iter()
                .map(|part| match part {
                    UserPart::Text { text } => text,
                    UserPart::File(file) => format!("file {}", file.filename),
                })
                .collect::<Vec<_>>(),
            ChatMessage::Results { results } => results
                .into_iter()
                .map(|result| format!("{} and {} files", result.output, result.attachments.len()))
                .collect(),
            ChatMessage::Assistant { .. } => Vec::new(),
        })
        .collect()
}

fn image(name: &str) -> Attachment {
    Attachment::new("image/png", name, BlobRef { hash: "0".repeat(64), size: 5 })
}

fn prompt_with_image(h: &mut Harness, name: &str) {
    let mut prompt = h.new_prompt("look", WhenBusy::Queue, None);
    let id = h.ids.next(playhouse_protocol::Timestamp::from_millis(h.clock));
    prompt.prompt.parts.push(Part::File { id, file: image(name) });
    let ticket = h.ticket();
    h.on(Input::Prompt(ticket, prompt));
}

#[test]
fn a_file_that_was_refused_is_a_note_in_later_requests() {
    let mut h = Harness::new();
    h.silent = true;
    prompt_with_image(&mut h, "good.png");
    h.answer("I see.", &[]);
    prompt_with_image(&mut h, "bad.png");
    let lines = refuse(&mut h, 400, "Could not process image");
    assert!(ends(&lines, false), "{lines:?}");
    let read = texts(&h);
    let note = "[bad.png (image/png) was attached here. The provider of the model refused the request with it, so it is not shown.]";
    assert_eq!(read, ["look", "file good.png", "look", note]);
    // It is not sent again, so that a second refusal is about something else.
    assert!(ends(&refuse(&mut h, 400, "Could not process image"), true));
    h.crash();
    assert_eq!(texts(&h), read);
}

#[test]
fn a_file_is_left_out_where_every_turn_fails_with_the_same_words() {
    let mut h = Harness::new();
    h.silent = true;
    prompt_with_image(&mut h, "bad.png");
    assert!(ends(&refuse(&mut h, 400, "invalid request"), true), "it may be about anything");
    assert!(texts(&h).contains(&"file bad.png".to_owned()));
    h.prompt("what is it?");
    assert!(ends(&refuse(&mut h, 400, "invalid request"), false));
    assert!(!texts(&h).contains(&"file bad.png".to_owned()));
}

#[test]
fn a_model_that_accepted_nothing_yet_is_not_taken_to_lack_room() {
    let mut h = Harness::new();
    h.silent = true;
    h.prompt(&"x".repeat(60_000));
    assert!(ends(&refuse(&mut h, 400, "Unknown value"), true));
    h.prompt("again");
    assert!(ends(&refuse(&mut h, 400, "Unknown value"), true));
    assert!(texts(&h)[0].len() == 60_000);
}

#[test]
fn room_is_made_for_a_model_that_accepted_nothing_where_much_of_its_window_is_used() {
    let mut h = Harness::new();
    h.silent = true;
    h.facts = TestFacts { room: Some(100_000), ..TestFacts::default() };
    h.prompt("go");
    for _ in 0..30 {
        step(&mut h, 10_000);
    }
    h.answer("It is fine.", &[]);
    // 75,000 tokens, which the window has, and the server has not.
    let ask_other = |h: &mut Harness| {
        let prompt = h.new_prompt("more", WhenBusy::Queue, None);
        let prompt = changed(prompt, |prompt| prompt.model = ModelRef::new("mock", "other"));
        let ticket = h.ticket();
        h.on(Input::Prompt(ticket, prompt));
    };
    ask_other(&mut h);
    let lines = refuse(&mut h, 400, "Eingabe zu gross");
    assert!(lines[0].contains("context.c") && ends(&lines, false), "{lines:?}");
    // Once in a turn, and in the next one where the same comes back.
    assert!(ends(&refuse(&mut h, 400, "Eingabe zu gross"), true));
    ask_other(&mut h);
    let lines = refuse(&mut h, 400, "Eingabe zu gross");
    assert!(lines[0].contains("context.c") && ends(&lines, false), "{lines:?}");
    assert!(h.answer("It is fine.", &[])[0].contains("turn.ended"));
}

#[test]
fn a_refusal_of_any_request_ends_after_few_attempts() {
    let mut h = Harness::new();
    h.silent = true;
    h.facts = TestFacts { room: Some(100_000), ..TestFacts::default() };
    h.prompt(&"x".repeat(300_000));
    let turns = (0..8).map(|_| {
        let attempts = (0..4).find(|_| ends(&refuse(&mut h, 400, "Unknown value"), true));
        h.prompt("again");
        attempts.expect("it ends")
    });
    assert!(turns.collect::<Vec<_>>().iter().sum::<i32>() <= 3);
}

#[test]
fn another_model_is_shown_what_one_refused() {
    let mut h = Harness::new();
    h.silent = true;
    prompt_with_image(&mut h, "a.png");
    refuse(&mut h, 400, "no image input");
    let mut out = Vec::new();
    let session = h.machine.session();
    let other = playhouse_protocol::ModelRef::new("mock", "other");
    session.read(0..session.messages.len(), &other, &mut out);
    assert!(format!("{out:?}").contains("File("), "{out:?}");
    assert!(!texts(&h).contains(&"file a.png".to_owned()));
}

#[test]
fn words_that_only_look_like_files_leave_none_out() {
    for words in ["read our documentation", "no such inference profile", "immediately"] {
        let mut h = Harness::new();
        h.silent = true;
        prompt_with_image(&mut h, "a.png");
        assert!(ends(&refuse(&mut h, 400, words), true), "{words}");
    }
}

#[test]
fn files_of_results_are_left_out_likewise() {
    let mut h = Harness::new();
    h.silent = true;
    h.prompt("go");
    h.answer("I look.", &["read"]);
    h.prepared("read", Effect::None);
    let call = h.call("read");
    let mut report = CallReport::text(CallOutcome::Done, "an image");
    report.attachments.push(image("a.png"));
    h.on(Input::Call(call, report));
    assert!(ends(&refuse(&mut h, 422, "unsupported media type"), false));
    let read = texts(&h);
    assert!(read.iter().any(|text| text.contains("a.png") && text.ends_with("and 0 files")), "{read:?}");
}
