//! Requests of a session and of its sub-sessions, for consent and with questions, answered by whoever sits at the
//! terminal: one after the other. Where nobody does they are answered at once, so that nothing waits for them.

mod consent;
mod lines;
mod question;

use std::collections::{HashSet, VecDeque};
use std::io::IsTerminal as _;

use playhouse_protocol::question::QuestionAsked;
use playhouse_protocol::record::{ConsentAnswer, ConsentAsked};
use playhouse_protocol::{ConsentId, QuestionId, Record, SessionId};
use tokio::sync::mpsc;

pub(super) use consent::{needs_a_person, shown as consent_shown};
pub(super) use lines::{Line, Style, visible};
pub(super) use question::shown as questions_shown;

use consent::Choice;

/// Answers to questions; `None` when nobody will answer.
pub(super) type Answers = Option<Vec<Vec<String>>>;

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Present {
    /// Somebody sits at the terminal.
    pub(super) terminal: bool,
    /// Whoever started the command agreed beforehand to what does not need a person.
    pub(super) yes: bool,
}

impl Present {
    /// Whoever is at the terminal, if there is one and `wanted` says so.
    pub(super) fn here(wanted: bool, yes: bool) -> Self {
        let terminal = wanted && std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        Self { terminal, yes }
    }

    /// Nobody answers requests for consent.
    pub(super) fn nobody(self) -> bool {
        !self.terminal && !self.yes
    }
}

/// Asks the requests one after the other.
pub(super) struct Asker {
    present: Present,
    /// Requests that have been seen: one that is open may come twice.
    seen: HashSet<RequestId>,
    open: VecDeque<Open>,
    /// How far the first of them is.
    progress: Progress,
    /// What is typed.
    lines: Option<mpsc::Receiver<String>>,
}

/// A request.
#[derive(Clone, Debug, PartialEq)]
enum Request {
    /// For consent.
    Consent(ConsentAsked),
    /// With questions.
    Questions(QuestionAsked),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RequestId {
    Consent(ConsentId),
    Question(QuestionId),
}

/// A request that waits, with the sub-session that it comes from.
#[derive(Clone, Debug, PartialEq)]
struct Open {
    from: Option<SessionId>,
    request: Request,
}

/// How far the asking of a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Progress {
    /// The answers so far to its questions.
    Answers(Vec<Vec<String>>),
    /// Whether the call may run.
    Choosing,
    /// What the model shall read of it that it may not.
    Message,
    /// It is answered; it stays the first one until the session says that it is settled.
    Sent,
}

/// An answer for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Consent(ConsentId, ConsentAnswer),
    Questions(QuestionId, Answers),
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub(super) enum Then {
    /// Show these lines, then this, and wait for a line.
    Prompt(Vec<Line>, String),
    /// Send this, to this sub-session or else to the session itself.
    Send(Option<SessionId>, Reply),
    /// Nothing.
    Nothing,
}

impl Request {
    fn id(&self) -> RequestId {
        match self {
            Self::Consent(asked) => RequestId::Consent(asked.consent),
            Self::Questions(asked) => RequestId::Question(asked.question),
        }
    }

    fn begin(&self) -> Progress {
        match self {
            Self::Consent(_) => Progress::Choosing,
            Self::Questions(_) => Progress::Answers(Vec::new()),
        }
    }
}

impl Asker {
    pub(super) fn new(present: Present) -> Self {
        Self { present, seen: HashSet::new(), open: VecDeque::new(), progress: Progress::Sent, lines: None }
    }

    /// Whether requests are shown here before they are answered.
    pub(super) fn shows(&self) -> bool {
        self.present.terminal
    }

    /// Whether a line is waited for.
    pub(super) fn is_asking(&self) -> bool {
        self.present.terminal && self.prompt().is_some()
    }

    /// Something happened in the session, or in the sub-session `from`.
    pub(super) fn recorded(&mut self, from: Option<SessionId>, record: &Record) -> Then {
        match record {
            Record::ConsentAsked(asked) => self.asked(from, Request::Consent(asked.clone())),
            Record::QuestionAsked(asked) => self.asked(from, Request::Questions(asked.clone())),
            Record::ConsentSettled { consent, .. } => self.settled(RequestId::Consent(*consent)),
            Record::QuestionSettled { question, .. } => self.settled(RequestId::Question(*question)),
            _ => Then::Nothing,
        }
    }

    /// A request came.
    fn asked(&mut self, from: Option<SessionId>, request: Request) -> Then {
        if !self.seen.insert(request.id()) {
            return Then::Nothing;
        }
        if let (Request::Consent(asked), true) = (&request, self.present.yes) {
            return Then::Send(from, Reply::Consent(asked.consent, consent::beforehand(asked)));
        }
        if !self.present.terminal {
            return nobody(from, &request);
        }
        self.open.push_back(Open { from, request });
        if self.open.len() > 1 { Then::Nothing } else { self.begin() }
    }

    /// A request is over, whoever ended it.
    fn settled(&mut self, id: RequestId) -> Then {
        let was_first = self.open.front().is_some_and(|open| open.request.id() == id);
        self.open.retain(|open| open.request.id() != id);
        if was_first { self.begin() } else { Then::Nothing }
    }

    /// Begins with the first request. What was typed before it was seen is no answer to it.
    fn begin(&mut self) -> Then {
        let typed = self.lines.as_ref().map_or(0, mpsc::Receiver::len);
        for _ in 0..typed {
            // Only as many as were there: who is quick must not be overheard.
            if let Some(lines) = &mut self.lines {
                drop(lines.try_recv());
            }
        }
        let Some(open) = self.open.front() else { return Then::Nothing };
        if !self.present.terminal {
            let then = nobody(open.from, &open.request);
            self.progress = Progress::Sent;
            return then;
        }
        self.progress = open.request.begin();
        let lines = match &open.request {
            Request::Consent(asked) => consent::shown(asked, open.from, false),
            Request::Questions(asked) => question::shown(asked, open.from),
        };
        self.prompt_after(lines)
    }

    fn prompt_after(&self, lines: Vec<Line>) -> Then {
        self.prompt().map_or(Then::Nothing, |prompt| Then::Prompt(lines, prompt))
    }

    /// What to ask now.
    fn prompt(&self) -> Option<String> {
        match (&self.open.front()?.request, &self.progress) {
            (Request::Consent(asked), Progress::Choosing) => Some(consent::prompt(asked)),
            (Request::Consent(_), Progress::Message) => Some(consent::MESSAGE_PROMPT.to_owned()),
            (Request::Questions(asked), Progress::Answers(answers)) => {
                Some(question::prompt(asked.questions.get(answers.len())?))
            }
            _ => None,
        }
    }

    /// The next line that is typed; `None` at the end of the input. May be dropped and called again.
    pub(super) async fn line(&mut self) -> Option<String> {
        self.lines.get_or_insert_with(lines::read_lines).recv().await
    }

    /// A line was typed, or the input ended.
    pub(super) fn typed(&mut self, line: Option<&str>) -> Then {
        let Some(Open { from, request }) = self.open.front().cloned() else { return Then::Nothing };
        let Some(line) = line else {
            // Nobody is there any more, and for what follows neither.
            self.present.terminal = false;
            self.progress = Progress::Sent;
            return nobody(from, &request);
        };
        match request {
            Request::Consent(asked) => self.consent_typed(from, &asked, line),
            Request::Questions(asked) => self.answer_typed(from, &asked, line),
        }
    }

    fn consent_typed(&mut self, from: Option<SessionId>, asked: &ConsentAsked, line: &str) -> Then {
        let choice = match self.progress {
            Progress::Choosing => consent::choice(asked, line),
            Progress::Message => {
                let message = Some(line.trim().to_owned()).filter(|message| !message.is_empty());
                Choice::Answer(ConsentAnswer::Decline { message })
            }
            _ => return Then::Nothing,
        };
        match choice {
            Choice::Answer(answer) => {
                self.progress = Progress::Sent;
                Then::Send(from, Reply::Consent(asked.consent, answer))
            }
            Choice::Message => {
                self.progress = Progress::Message;
                self.prompt_after(Vec::new())
            }
            Choice::All => self.prompt_after(consent::shown(asked, from, true)),
            Choice::Again(problem) => self.prompt_after(vec![Line::new(Style::Plain, problem)]),
        }
    }

    fn answer_typed(&mut self, from: Option<SessionId>, asked: &QuestionAsked, line: &str) -> Then {
        let Progress::Answers(answers) = &mut self.progress else { return Then::Nothing };
        if let Some(question) = asked.questions.get(answers.len()) {
            match question::answer(question, line) {
                Ok(chosen) => answers.push(chosen),
                Err(problem) => return self.prompt_after(vec![Line::new(Style::Plain, problem)]),
            }
        }
        if self.prompt().is_some() {
            return self.prompt_after(Vec::new());
        }
        let Progress::Answers(answers) = std::mem::replace(&mut self.progress, Progress::Sent) else {
            return Then::Nothing;
        };
        let something = answers.iter().any(|chosen| !chosen.is_empty());
        Then::Send(from, Reply::Questions(asked.question, something.then_some(answers)))
    }

    /// The session did not take the answer to a request for consent: asks again, if somebody can be.
    pub(super) fn refused(&mut self, consent: ConsentId, problem: &str) -> Option<Then> {
        let first = self.open.front()?;
        if !self.present.terminal || first.request.id() != RequestId::Consent(consent) {
            return None;
        }
        self.progress = Progress::Choosing;
        Some(self.prompt_after(vec![Line::new(Style::Warning, problem)]))
    }
}

/// Where a request comes from, for people.
fn place(from: Option<SessionId>) -> String {
    from.map_or_else(String::new, |session| format!(" (sub-session {session})"))
}

/// What is answered where nobody is.
fn nobody(from: Option<SessionId>, request: &Request) -> Then {
    let reply = match request {
        Request::Consent(asked) => Reply::Consent(asked.consent, consent::nobody(asked)),
        Request::Questions(asked) => Reply::Questions(asked.question, None),
    };
    Then::Send(from, reply)
}

#[cfg(test)]
mod tests;
