//! One queue for all requests.

use playhouse_protocol::consent::{Risk, Want};
use playhouse_protocol::id::PartId;
use playhouse_protocol::question::{Question, QuestionOption};

use super::*;

const TERMINAL: Present = Present { terminal: true, yes: false };
const NOBODY: Present = Present { terminal: false, yes: false };

pub(super) fn question(labels: &[&str], multiple: bool, custom: bool) -> Question {
    let option = |label: &&str| QuestionOption { label: (*label).to_owned(), description: String::new() };
    Question {
        question: "Which?".to_owned(),
        header: "Which".to_owned(),
        options: labels.iter().map(option).collect(),
        multiple,
        custom,
    }
}

fn call() -> PartId {
    PartId::parse("prt_000000000001Part1234567890").unwrap()
}

fn request(number: u64, questions: Vec<Question>) -> QuestionAsked {
    let question = QuestionId::parse(&format!("que_{number:012x}Ques1234567890")).unwrap();
    QuestionAsked { question, call: call(), questions }
}

pub(super) fn consent(number: u64, preview: &str) -> ConsentAsked {
    ConsentAsked {
        consent: ConsentId::parse(&format!("per_{number:012x}Cons1234567890")).unwrap(),
        call: Some(call()),
        tool: "bash".to_owned(),
        risk: Risk::Dangerous,
        reason: "no rule allows it".to_owned(),
        preview: preview.to_owned(),
        diff: false,
        wants: vec![Want::new("bash", preview, Risk::Dangerous).always([preview])],
        walls: None,
    }
}

pub(super) fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn ask(asker: &mut Asker, asked: &QuestionAsked) -> Then {
    asker.recorded(None, &Record::QuestionAsked(asked.clone()))
}

fn ask_consent(asker: &mut Asker, asked: &ConsentAsked) -> Then {
    asker.recorded(None, &Record::ConsentAsked(asked.clone()))
}

fn send(asked: &QuestionAsked, answers: Answers) -> Then {
    Then::Send(None, Reply::Questions(asked.question, answers))
}

fn agree(asked: &ConsentAsked, answer: ConsentAnswer) -> Then {
    Then::Send(None, Reply::Consent(asked.consent, answer))
}

fn end(asker: &mut Asker, asked: &QuestionAsked) -> Then {
    asker.settled(RequestId::Question(asked.question))
}

#[test]
fn questions_are_asked_one_after_the_other() {
    let mut asker = Asker::new(TERMINAL);
    let two = request(1, vec![question(&["Red"], false, false), question(&[], false, true)]);
    let Then::Prompt(lines, prompt) = ask(&mut asker, &two) else { panic!("it asks") };
    assert_eq!(lines[0].text, "? Which: Which?");
    assert_eq!(prompt, "Which (a number; empty for no answer): ");
    assert_eq!(ask(&mut asker, &two), Then::Nothing, "it came before");
    let other = request(2, vec![question(&["Red"], true, true)]);
    assert_eq!(ask(&mut asker, &other), Then::Nothing, "it waits");
    let Then::Prompt(lines, _) = asker.typed(Some("blue")) else { panic!("it asks again") };
    assert_eq!(lines[0].text, "type one number from 1 to 1");
    let Then::Prompt(..) = asker.typed(Some("1")) else { panic!("it asks the second") };
    let answers = Some(vec![texts(&["Red"]), texts(&["why not"])]);
    assert_eq!(asker.typed(Some("why not")), send(&two, answers));
    assert!(!asker.is_asking(), "it waits for the session");
    let Then::Prompt(_, prompt) = end(&mut asker, &two) else { panic!("it goes on") };
    assert!(prompt.contains("numbers, as 1,3, or your own words"), "{prompt}");
    assert_eq!(asker.typed(Some("")), send(&other, None), "nothing is answered");
    assert_eq!(end(&mut asker, &other), Then::Nothing);
    assert!(!asker.is_asking());
}

#[test]
fn consents_and_questions_are_one_queue() {
    let mut asker = Asker::new(TERMINAL);
    let (first, second) = (consent(1, "make"), consent(2, "make install"));
    let between = request(1, vec![question(&["Red"], false, false)]);
    let Then::Prompt(_, prompt) = ask_consent(&mut asker, &first) else { panic!("it asks") };
    assert!(prompt.starts_with("y once, a always"), "{prompt}");
    assert_eq!(ask(&mut asker, &between), Then::Nothing);
    assert_eq!(ask_consent(&mut asker, &second), Then::Nothing);
    assert_eq!(asker.typed(Some("a")), agree(&first, ConsentAnswer::Always));
    assert_eq!(asker.typed(Some("y")), Then::Nothing, "it is answered once");
    let Then::Prompt(lines, _) = asker.settled(RequestId::Consent(first.consent)) else { panic!("the next") };
    assert_eq!(lines[0].text, "? Which: Which?");
    let Then::Send(..) = asker.typed(Some("1")) else { panic!("it is answered") };
    let Then::Prompt(lines, _) = end(&mut asker, &between) else { panic!("the last") };
    assert!(lines.iter().any(|line| line.text == "  │ make install"), "{lines:?}");
    let Then::Prompt(_, prompt) = asker.typed(Some("m")) else { panic!("a message is wanted") };
    assert_eq!(prompt, consent::MESSAGE_PROMPT);
    let message = Some("not now".to_owned());
    assert_eq!(asker.typed(Some(" not now ")), agree(&second, ConsentAnswer::Decline { message }));
}

#[test]
fn a_request_that_somebody_else_ended_is_asked_no_more() {
    let mut asker = Asker::new(TERMINAL);
    let first = request(1, vec![question(&["a"], false, true); 2]);
    let second = request(2, vec![question(&["b"], false, true)]);
    let third = consent(3, "make");
    ask(&mut asker, &first);
    ask(&mut asker, &second);
    ask_consent(&mut asker, &third);
    asker.typed(Some("1"));
    let Then::Prompt(..) = end(&mut asker, &first) else { panic!("the second") };
    assert_eq!(asker.settled(RequestId::Consent(third.consent)), Then::Nothing);
    assert_eq!(asker.typed(Some("1")), send(&second, Some(vec![texts(&["b"])])));
    assert_eq!(end(&mut asker, &second), Then::Nothing, "nothing is left");
}

#[test]
fn an_answer_that_is_not_taken_is_asked_for_again() {
    let mut asker = Asker::new(TERMINAL);
    let asked = consent(1, "make");
    ask_consent(&mut asker, &asked);
    asker.typed(Some("a"));
    let Some(Then::Prompt(lines, _)) = asker.refused(asked.consent, "no") else { panic!("it asks again") };
    assert_eq!(lines[0].text, "no");
    assert_eq!(asker.typed(Some("y")), agree(&asked, ConsentAnswer::Once));
    assert_eq!(asker.refused(consent(2, "x").consent, "no"), None);
}

#[test]
fn nobody_is_asked_without_a_terminal_or_after_the_end_of_the_input() {
    let mut asker = Asker::new(NOBODY);
    let first = request(1, vec![question(&["a"], false, true)]);
    assert_eq!(ask(&mut asker, &first), send(&first, None));
    let make = consent(1, "make");
    assert_eq!(ask_consent(&mut asker, &make), agree(&make, consent::nobody(&make)));
    assert!(!asker.is_asking());
    let mut asker = Asker::new(TERMINAL);
    let second = consent(2, "make");
    ask(&mut asker, &first);
    ask_consent(&mut asker, &second);
    assert_eq!(asker.typed(None), send(&first, None));
    assert!(!asker.is_asking(), "nothing is read any more");
    assert_eq!(end(&mut asker, &first), agree(&second, consent::nobody(&second)));
    let third = request(3, vec![question(&["a"], false, true)]);
    assert_eq!(ask(&mut asker, &third), send(&third, None));
}

#[test]
fn who_agreed_beforehand_is_asked_questions_only() {
    let mut asker = Asker::new(Present { terminal: true, yes: true });
    let make = consent(1, "make");
    assert_eq!(ask_consent(&mut asker, &make), agree(&make, ConsentAnswer::Once));
    let asked = request(1, vec![question(&["a"], false, true)]);
    let Then::Prompt(..) = ask(&mut asker, &asked) else { panic!("it asks") };
}

#[test]
fn requests_of_sub_sessions_are_answered_there() {
    let mut asker = Asker::new(TERMINAL);
    let from = Some(SessionId::parse("ses_000000000001Sess1234567890").unwrap());
    let asked = consent(1, "make");
    let then = asker.recorded(from, &Record::ConsentAsked(asked.clone()));
    let Then::Prompt(lines, _) = then else { panic!("it asks") };
    assert!(lines[0].text.contains("sub-session ses_"), "{lines:?}");
    let reply = Reply::Consent(asked.consent, ConsentAnswer::Decline { message: None });
    assert_eq!(asker.typed(Some("n")), Then::Send(from, reply));
}
