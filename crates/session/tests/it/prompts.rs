//! Prompts that are no questions to a model: notes, commands that people run by hand, and what holds for one turn only.

use playhouse_policy::Verdict;
use playhouse_protocol::WhenBusy;
use playhouse_protocol::chat::{AssistantPart, ChatMessage, UserPart};
use playhouse_protocol::message::{CallOutcome, Message};
use playhouse_protocol::record::{Effect, Record};
use playhouse_session::{CallReport, Input, NewPrompt, Session, chat};

use crate::harness::{Harness, ask, changed, model};

/// What a model reads of the session.
fn conversation(h: &Harness) -> Vec<ChatMessage> {
    let mut messages = Vec::new();
    for message in &h.machine.session().messages {
        chat::translate(message, &model(), &mut messages);
    }
    messages
}

/// What the user says in it, in order.
fn said(h: &Harness) -> Vec<String> {
    let parts = conversation(h).into_iter().flat_map(|message| match message {
        ChatMessage::User { parts } => parts,
        _ => Vec::new(),
    });
    let texts = parts.filter_map(|part| match part {
        UserPart::Text { text } => Some(text),
        UserPart::File(_) => None,
    });
    texts.collect()
}

#[test]
fn a_command_that_a_person_runs_is_a_turn_without_a_model() {
    let mut h = Harness::new();
    assert_eq!(
        h.command("make"),
        [
            "append prompt.admitted, turn.started(make), call.proposed(bash), step.finished(stop)",
            "reply accepted",
            "prepare bash",
        ]
    );
    assert_eq!(
        h.prepared("bash", Effect::Workspace),
        ["append call.intended(bash)", "execute bash after flush"]
    );
    assert_eq!(h.done("bash"), ["append call.settled(bash done), turn.ended(make completed)"]);
    assert!(h.attempts.is_empty() && h.machine.session().is_idle());
    let Some(Record::TurnEnded(ended)) = h.log.last().map(|entry| &entry.record) else { panic!("ended") };
    assert_eq!((ended.steps, ended.totals.attempts), (1, 0));
    assert_eq!(h.machine.session().summary.turns, 1);
    // The model reads it with the next prompt.
    assert_eq!(h.prompt("why does it fail?").last().unwrap(), "start attempt of 3 messages");
    let read = conversation(&h);
    assert!(matches!(&read[1], ChatMessage::Assistant { parts }
        if matches!(&parts[..], [AssistantPart::Call { name, input, .. }]
            if name == "bash" && input["command"] == "make")));
    assert!(matches!(&read[2], ChatMessage::Results { results } if results[0].output == "bash did it"));
    assert_eq!(Session::replay(&h.log).unwrap(), *h.machine.session());
}

#[test]
fn who_types_a_command_agrees_to_it_and_what_is_denied_stays_denied() {
    let mut h = Harness::new();
    h.command("rm -r out");
    let lines = h.judged("bash", Effect::Workspace, ask(&["rm -r out"]));
    assert_eq!(lines, ["append call.intended(bash)", "execute bash after flush"]);
    h.done("bash");
    h.command("rm -r /");
    let denied = Verdict::Deny { reason: "the operator denies it".into() };
    assert_eq!(
        h.judged("bash", Effect::Workspace, denied),
        ["append call.settled(bash declined), turn.ended(rm -r / completed)", "kill bash"]
    );
    assert!(h.output().contains("the operator denies it"));
    // The model is asked about its own calls as before.
    h.prompt("go on");
    h.answer("", &["bash"]);
    let lines = h.judged("bash", Effect::Workspace, ask(&["rm -r out"]));
    assert!(lines[0].contains("consent.asked"), "{lines:?}");
}

#[test]
fn a_busy_session_takes_no_command_and_a_busy_command_takes_prompts() {
    let mut h = Harness::new();
    h.prompt("one");
    assert_eq!(h.command("make"), ["refuse: session is busy"]);
    h.answer("done", &[]);
    h.command("make");
    assert_eq!(h.command("make again"), ["refuse: session is busy"]);
    h.prepared("bash", Effect::Workspace);
    // There is no step that could read it: it gets a turn of its own.
    h.prompt_with("two", WhenBusy::Steer, None);
    assert_eq!(
        h.done("bash"),
        [
            "append call.settled(bash done), turn.ended(make completed), turn.started(two), attempt.started(1.1)",
            "start attempt of 5 messages",
        ]
    );
}

#[test]
fn a_command_is_aborted_like_any_call_and_interrupted_by_a_crash() {
    let mut h = Harness::new();
    h.command("sleep 100");
    h.prepared("bash", Effect::Workspace);
    assert_eq!(h.abort(), ["cancel bash", "arm AbortGrace in 1000 ms"]);
    let call = h.call("bash");
    assert_eq!(
        h.on(Input::Call(call, CallReport::text(CallOutcome::Cancelled, "cancelled"))),
        ["append call.settled(bash cancelled), turn.ended(sleep 100 aborted)", "reply aborted 1"]
    );
    h.command("make");
    h.prepared("bash", Effect::Workspace);
    assert_eq!(h.crash(), ["append call.settled(bash interrupted), turn.ended(make completed)"]);
    // One that had not begun runs: it was acknowledged.
    h.command("make");
    assert_eq!(h.crash(), ["prepare bash"]);
}

#[test]
fn the_same_command_again_is_run_once() {
    let mut h = Harness::new();
    let command = h.new_command("make");
    let (first, second) = (h.ticket(), h.ticket());
    h.on(Input::Prompt(first, command.clone()));
    assert_eq!(h.on(Input::Prompt(second, command)), ["reply accepted before"]);
}

#[test]
fn a_note_is_kept_and_read_with_the_next_prompt() {
    let mut h = Harness::new();
    let note = h.new_prompt("mind the gap", WhenBusy::Queue, None);
    let note = changed(note, |note| note.kind = playhouse_protocol::PromptKind::Note);
    let ticket = h.ticket();
    assert_eq!(h.on(Input::Prompt(ticket, note.clone())), ["append prompt.admitted", "reply accepted"]);
    assert_eq!(h.on(Input::Prompt(ticket, note)), ["reply accepted before"]);
    assert!(h.machine.session().is_idle());
    assert_eq!(h.machine.session().summary.open_turns, 0);
    assert!(h.crash().is_empty(), "nothing is left to do");
    assert_eq!(
        h.prompt("go"),
        [
            "append prompt.admitted, turn.started(go), attempt.started(1.1)",
            "reply accepted",
            "start attempt of 2 messages",
        ]
    );
    assert_eq!(said(&h), ["mind the gap", "go"]);
}

#[test]
fn a_note_for_a_busy_session_is_read_by_the_next_step_or_after_the_turn() {
    let mut h = Harness::new();
    h.prompt("one");
    h.note("aside", WhenBusy::Steer);
    h.note("for later", WhenBusy::Queue);
    h.prompt("two");
    h.note("and this", WhenBusy::Steer);
    h.answer("", &["read"]);
    h.prepared("read", Effect::None);
    assert_eq!(
        h.done("read"),
        [
            "append call.settled(read done), attempt.started(2.1 with aside+and this)",
            "start attempt of 4 messages",
        ]
    );
    h.note("too late", WhenBusy::Steer);
    // No step is taken for a note.
    assert_eq!(
        h.answer("done", &[]),
        [
            "append attempt.ended(finished), step.finished(stop), turn.ended(one completed), \
             turn.started(two), attempt.started(1.1 with too late)",
            "start attempt of 8 messages",
        ]
    );
    assert_eq!(said(&h), ["one", "aside", "and this", "for later", "two", "too late"]);
    assert_eq!(h.machine.session().summary.open_turns, 1);
}

#[test]
fn an_abort_leaves_notes_where_they_are() {
    let mut h = Harness::new();
    h.prompt("one");
    h.prompt("two");
    h.note("kept", WhenBusy::Queue);
    h.abort();
    let lines = h.fail(playhouse_protocol::ErrorCode::Internal, "");
    assert_eq!(lines.last().unwrap(), "reply aborted 2");
    let session = h.machine.session();
    assert!(session.is_idle());
    let withdrawn: Vec<bool> = session
        .messages
        .iter()
        .filter_map(|message| match message {
            Message::User(message) => Some(message.withdrawn),
            Message::Assistant(_) => None,
        })
        .collect();
    assert_eq!(withdrawn, [false, true, false], "one, two, and the note");
    assert_eq!(said(&h), ["one", "kept"]);
}

#[test]
fn what_a_prompt_turns_off_is_off_for_its_turn() {
    let mut h = Harness::new();
    let off = |prompt: NewPrompt, tools: &[(&str, bool)]| {
        let tools = tools.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect();
        changed(prompt, |prompt| prompt.tools = tools)
    };
    let (first, ticket) = (h.new_prompt("one", WhenBusy::Queue, None), h.ticket());
    h.on(Input::Prompt(ticket, off(first, &[("bash", false), ("read", true)])));
    let turn = |h: &Harness| h.machine.session().turn.clone().unwrap();
    assert!(turn(&h).turns_off("bash") && !turn(&h).turns_off("read") && !turn(&h).turns_off("write"));
    // One that steers it adds what it turns off, and turns nothing on.
    let (aside, ticket) = (h.new_prompt("aside", WhenBusy::Steer, None), h.ticket());
    h.on(Input::Prompt(ticket, off(aside, &[("write", false), ("bash", true)])));
    h.answer("", &["read"]);
    h.prepared("read", Effect::None);
    h.done("read");
    assert!(turn(&h).turns_off("bash") && turn(&h).turns_off("write"));
    h.answer("done", &[]);
    let (all, ticket) = (h.new_prompt("two", WhenBusy::Queue, None), h.ticket());
    h.on(Input::Prompt(ticket, off(all, &[("*", false), ("read", true)])));
    assert!(turn(&h).turns_off("bash") && !turn(&h).turns_off("read"));
    h.answer("done", &[]);
    h.prompt("three");
    assert!(!turn(&h).turns_off("bash"));
    assert_eq!(Session::replay(&h.log).unwrap(), *h.machine.session());
}

#[test]
fn what_holds_for_a_turn_stays_where_it_was_said() {
    let mut h = Harness::new();
    let (prompt, ticket) = (h.new_prompt("one", WhenBusy::Queue, None), h.ticket());
    h.on(Input::Prompt(ticket, changed(prompt, |prompt| prompt.system = Some("in verse".into()))));
    let before = conversation(&h);
    h.answer("roses", &[]);
    h.prompt("two");
    let after = conversation(&h);
    assert_eq!(after[..before.len()], before[..], "requests grow, they do not change");
    assert!(said(&h)[1].contains("in verse") && said(&h).len() == 3);
}

#[test]
fn a_fork_is_cut_before_a_note_and_ends_a_command() {
    let mut h = Harness::new();
    h.prompt("one");
    h.answer("done", &[]);
    h.note("kept", WhenBusy::Queue);
    let note = h.machine.session().messages.last().unwrap().id();
    h.fork(Some(note));
    assert_eq!(said(&h), ["one"]);
    h.command("make");
    h.prepared("bash", Effect::Workspace);
    h.fork(None);
    assert!(h.machine.session().is_idle());
    assert!(h.output().contains("effects unknown"), "{}", h.output());
}
