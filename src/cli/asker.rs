//! Questions of a session, answered by whoever sits at the terminal. Where nobody does they are refused at once, so that
//! nothing waits for them.

use std::collections::{HashSet, VecDeque};
use std::io::{BufRead as _, IsTerminal as _};

use playhouse_protocol::QuestionId;
use playhouse_protocol::question::{Question, QuestionAsked};
use tokio::sync::mpsc;

/// Lines that are read ahead.
const AHEAD: usize = 16;

/// An answer for the session; `None` when nobody will answer.
pub(super) type Answers = Option<Vec<Vec<String>>>;

/// Asks the requests with questions one after the other.
pub(super) struct Asker {
    terminal: bool,
    /// Requests that have been seen: one that is open may come twice.
    seen: HashSet<QuestionId>,
    open: VecDeque<QuestionAsked>,
    /// The answers to the first of them, so far.
    answers: Vec<Vec<String>>,
    /// What is typed.
    lines: Option<mpsc::Receiver<String>>,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Show this, and wait for a line.
    Prompt(String),
    /// Send this.
    Send(QuestionId, Answers),
    /// Nothing.
    Nothing,
}

impl Asker {
    /// Asks at the terminal if there is one, and `wanted` says so.
    pub(super) fn new(wanted: bool) -> Self {
        Self::at(wanted && std::io::stdin().is_terminal() && std::io::stderr().is_terminal())
    }

    fn at(terminal: bool) -> Self {
        Self { terminal, seen: HashSet::new(), open: VecDeque::new(), answers: Vec::new(), lines: None }
    }

    /// Whether a line is waited for.
    pub(super) fn is_asking(&self) -> bool {
        self.prompt().is_some()
    }

    /// A request came.
    pub(super) fn asked(&mut self, asked: &QuestionAsked) -> Then {
        if !self.seen.insert(asked.question) {
            return Then::Nothing;
        }
        if !self.terminal {
            return Then::Send(asked.question, None);
        }
        self.open.push_back(asked.clone());
        if self.open.len() > 1 { Then::Nothing } else { self.begin() }
    }

    /// A request is over, whoever ended it.
    pub(super) fn settled(&mut self, question: QuestionId) -> Then {
        let was_first = self.open.front().is_some_and(|open| open.question == question);
        self.open.retain(|open| open.question != question);
        if was_first { self.begin() } else { Then::Nothing }
    }

    /// Begins with the first request. What was typed before it was seen is no answer to it.
    fn begin(&mut self) -> Then {
        self.answers.clear();
        let typed = self.lines.as_ref().map_or(0, mpsc::Receiver::len);
        for _ in 0..typed {
            // Only as many as were there: who is quick must not be overheard.
            if let Some(lines) = &mut self.lines {
                drop(lines.try_recv());
            }
        }
        let Some(open) = self.open.front() else { return Then::Nothing };
        if !self.terminal {
            return Then::Send(open.question, None);
        }
        self.prompt().map_or(Then::Nothing, Then::Prompt)
    }

    /// What to ask now.
    fn prompt(&self) -> Option<String> {
        let question = self.open.front()?.questions.get(self.answers.len())?;
        let how = match (question.options.len(), question.multiple, question.custom) {
            (0, ..) => "",
            (_, false, false) => "a number; ",
            (_, false, true) => "a number, or your own words; ",
            (_, true, false) => "numbers, as 1,3; ",
            (_, true, true) => "numbers, as 1,3, or your own words; ",
        };
        Some(format!("{} ({how}empty for no answer): ", question.header))
    }

    /// The next line that is typed; `None` at the end of the input. May be dropped and called again.
    pub(super) async fn line(&mut self) -> Option<String> {
        self.lines.get_or_insert_with(read_lines).recv().await
    }

    /// A line was typed, or the input ended.
    pub(super) fn typed(&mut self, line: Option<&str>) -> Then {
        let Some(open) = self.open.front() else { return Then::Nothing };
        let id = open.question;
        let Some(line) = line else {
            // Nobody is there any more, and for what follows neither.
            self.terminal = false;
            self.answers = vec![Vec::new(); open.questions.len()];
            return Then::Send(id, None);
        };
        if let Some(question) = open.questions.get(self.answers.len()) {
            match answer(question, line) {
                Ok(chosen) => self.answers.push(chosen),
                Err(problem) => {
                    return Then::Prompt(format!("{problem}\n{}", self.prompt().unwrap_or_default()));
                }
            }
        }
        if let Some(prompt) = self.prompt() {
            return Then::Prompt(prompt);
        }
        // It stays the first one until the session says that it is settled.
        let something = self.answers.iter().any(|chosen| !chosen.is_empty());
        Then::Send(id, something.then(|| self.answers.clone()))
    }
}

/// What a line chooses. Empty for no answer.
fn answer(question: &Question, line: &str) -> Result<Vec<String>, String> {
    let line = line.trim();
    if line.is_empty() {
        return Ok(Vec::new());
    }
    let option = |text: &str| {
        let text = text.trim();
        let number = text.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let by_label =
            || question.options.iter().find(|option| option.label.to_lowercase() == text.to_lowercase());
        let found = number.and_then(|index| question.options.get(index)).or_else(by_label);
        found.map(|option| option.label.clone())
    };
    if let Some(label) = option(line) {
        return Ok(vec![label]);
    }
    let several: Option<Vec<String>> = line.split(',').map(option).collect();
    match several {
        Some(labels) if question.multiple => {
            let mut chosen: Vec<String> = Vec::new();
            for label in labels {
                if !chosen.contains(&label) {
                    chosen.push(label);
                }
            }
            Ok(chosen)
        }
        _ if question.custom => Ok(vec![line.to_owned()]),
        _ if question.multiple => Err(format!("type numbers from 1 to {}, as 1,2", question.options.len())),
        _ => Err(format!("type one number from 1 to {}", question.options.len())),
    }
}

/// Reads standard input on a thread of its own: nothing can end a read of a terminal.
fn read_lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    let read = move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    };
    // Without the thread the channel is closed, which is the end of the input.
    drop(std::thread::Builder::new().name("terminal".to_owned()).spawn(read));
    receiver
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::id::PartId;
    use playhouse_protocol::question::QuestionOption;

    use super::*;

    fn question(labels: &[&str], multiple: bool, custom: bool) -> Question {
        let option = |label: &&str| QuestionOption { label: (*label).to_owned(), description: String::new() };
        Question {
            question: "Which?".to_owned(),
            header: "Which".to_owned(),
            options: labels.iter().map(option).collect(),
            multiple,
            custom,
        }
    }

    fn request(number: u64, questions: Vec<Question>) -> QuestionAsked {
        QuestionAsked {
            question: QuestionId::parse(&format!("que_{number:012x}Ques1234567890")).unwrap(),
            call: PartId::parse("prt_000000000001Part1234567890").unwrap(),
            questions,
        }
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn lines_are_numbers_labels_or_words_of_their_own() {
        let one = question(&["Red", "Green"], false, true);
        let many = question(&["Red", "Green", "7"], true, true);
        for (question, line, chosen) in [
            (&one, "2", texts(&["Green"])),
            (&one, " red ", texts(&["Red"])),
            (&one, "1,2", texts(&["1,2"])),
            (&one, "3", texts(&["3"])),
            (&one, "0", texts(&["0"])),
            (&one, "  ", texts(&[])),
            (&many, "1,2", texts(&["Red", "Green"])),
            (&many, "green, 1, 2", texts(&["Green", "Red"])),
            (&many, "1, or not", texts(&["1, or not"])),
            (&many, "7", texts(&["7"])),
            (&question(&[], false, true), "anything", texts(&["anything"])),
        ] {
            assert_eq!(answer(question, line), Ok(chosen), "{line:?}");
        }
        let one = question(&["Red", "Green"], false, false);
        let many = question(&["Red", "Green"], true, false);
        assert_eq!(answer(&one, "blue"), Err("type one number from 1 to 2".to_owned()));
        assert_eq!(answer(&one, "1,2"), Err("type one number from 1 to 2".to_owned()));
        assert_eq!(answer(&many, "1,3"), Err("type numbers from 1 to 2, as 1,2".to_owned()));
    }

    #[test]
    fn questions_are_asked_one_after_the_other() {
        let mut asker = Asker::at(true);
        let two = request(1, vec![question(&["Red"], false, false), question(&[], false, true)]);
        let Then::Prompt(prompt) = asker.asked(&two) else { panic!("it asks") };
        assert_eq!(prompt, "Which (a number; empty for no answer): ");
        assert_eq!(asker.asked(&two), Then::Nothing, "it came before");
        let other = request(2, vec![question(&["Red"], true, true)]);
        assert_eq!(asker.asked(&other), Then::Nothing, "it waits");
        let Then::Prompt(prompt) = asker.typed(Some("blue")) else { panic!("it asks again") };
        assert!(prompt.starts_with("type one number from 1 to 1\nWhich (a number;"), "{prompt}");
        let Then::Prompt(_) = asker.typed(Some("1")) else { panic!("it asks the second") };
        let answers = Some(vec![texts(&["Red"]), texts(&["why not"])]);
        assert_eq!(asker.typed(Some("why not")), Then::Send(two.question, answers));
        assert!(!asker.is_asking(), "it waits for the session");
        let Then::Prompt(prompt) = asker.settled(two.question) else { panic!("it goes on") };
        assert!(prompt.contains("numbers, as 1,3, or your own words"), "{prompt}");
        assert_eq!(asker.typed(Some("")), Then::Send(other.question, None), "nothing is answered");
        assert_eq!(asker.settled(other.question), Then::Nothing);
        assert!(!asker.is_asking());
    }

    #[test]
    fn a_request_that_somebody_else_ended_is_asked_no_more() {
        let mut asker = Asker::at(true);
        let first = request(1, vec![question(&["a"], false, true); 2]);
        let second = request(2, vec![question(&["b"], false, true)]);
        asker.asked(&first);
        asker.asked(&second);
        asker.typed(Some("1"));
        let Then::Prompt(_) = asker.settled(first.question) else { panic!("it goes on with the second") };
        assert_eq!(asker.typed(Some("1")), Then::Send(second.question, Some(vec![texts(&["b"])])));
    }

    #[test]
    fn nobody_is_asked_without_a_terminal_or_after_the_end_of_the_input() {
        let mut asker = Asker::at(false);
        let first = request(1, vec![question(&["a"], false, true)]);
        assert_eq!(asker.asked(&first), Then::Send(first.question, None));
        assert!(!asker.is_asking());
        let mut asker = Asker::at(true);
        let second = request(2, vec![question(&["a"], false, true)]);
        asker.asked(&first);
        asker.asked(&second);
        assert_eq!(asker.typed(None), Then::Send(first.question, None));
        assert!(!asker.is_asking(), "nothing is read any more");
        assert_eq!(asker.settled(first.question), Then::Send(second.question, None));
        let third = request(3, vec![question(&["a"], false, true)]);
        assert_eq!(asker.asked(&third), Then::Send(third.question, None));
    }
}
