//! What running calls ask the people behind the session, and how each request ends once.

use playhouse_protocol::id::{PartId, QuestionId};
use playhouse_protocol::question::{Question, QuestionAnswer, QuestionAsked};
use playhouse_protocol::{CommandError, Record, Reply};

use super::{LiveCall, Machine};
use crate::effect::{Deadline, Effect, Stamp, Ticket};
use crate::fold::{FoldError, OpenQuestion};

impl Machine {
    /// A running call asks. One that runs again after a restart is given the answer to what it had asked before, or
    /// goes on waiting for it. Other questions than those that were answered are a new request.
    pub(super) fn on_ask(
        &mut self,
        call: PartId,
        questions: Vec<Question>,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        if self.live.calls.get(&call) != Some(&LiveCall::Running) {
            return Ok(());
        }
        if self.live.abort.is_some() {
            self.effects.push(Effect::TellAnswer(call, QuestionAnswer::Withdrawn));
            return Ok(());
        }
        let before =
            self.session.calls().iter().find(|open| open.id == call).and_then(|open| open.question.clone());
        let question = match before {
            Some(OpenQuestion { answer: Some(answer), questions: before, .. }) if before == questions => {
                self.effects.push(Effect::TellAnswer(call, answer));
                return Ok(());
            }
            Some(OpenQuestion { id, answer: None, .. }) => id,
            _ => {
                let question = stamp.ids.next(stamp.now);
                self.append(Record::QuestionAsked(QuestionAsked { question, call, questions }), stamp.now)?;
                question
            }
        };
        self.effects.push(Effect::Arm(Deadline::Question { question }, self.asking_wait_ms));
        Ok(())
    }

    pub(super) fn on_question_answered(
        &mut self,
        ticket: Ticket,
        question: QuestionId,
        answers: Option<Vec<Vec<String>>>,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let Some((call, open)) = self.unanswered(question) else {
            let error = match self.session.settled_question(question) {
                Some(answer) => CommandError::QuestionSettled { question, answer: answer.clone() },
                None => CommandError::NoSuchQuestion(question),
            };
            self.reply(ticket, Err(error));
            return Ok(());
        };
        if self.live.abort.is_some() {
            // It is withdrawn as soon as its call has ended.
            let answer = QuestionAnswer::Withdrawn;
            self.reply(ticket, Err(CommandError::QuestionSettled { question, answer }));
            return Ok(());
        }
        let answer = match answers {
            None => QuestionAnswer::Rejected,
            Some(answers) => match misfit(&open.questions, &answers) {
                Some(misfit) => {
                    self.reply(ticket, Err(CommandError::Invalid(misfit)));
                    return Ok(());
                }
                None => QuestionAnswer::Answered { answers },
            },
        };
        self.settle_question(call, question, answer, stamp)?;
        self.reply(ticket, Ok(Reply::Done));
        Ok(())
    }

    pub(super) fn on_question_overdue(
        &mut self,
        question: QuestionId,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        match self.unanswered(question) {
            Some((call, _)) => self.settle_question(call, question, QuestionAnswer::TimedOut, stamp),
            None => Ok(()),
        }
    }

    /// A call that is settled asks no more.
    pub(super) fn withdraw_question(&mut self, call: PartId, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        let open =
            self.session.calls().iter().find(|open| open.id == call).and_then(|open| open.question.as_ref());
        match open {
            Some(OpenQuestion { id, answer: None, .. }) => {
                let (question, answer) = (*id, QuestionAnswer::Withdrawn);
                self.append(Record::QuestionSettled { question, answer }, stamp.now)
            }
            _ => Ok(()),
        }
    }

    fn settle_question(
        &mut self,
        call: PartId,
        question: QuestionId,
        answer: QuestionAnswer,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        self.append(Record::QuestionSettled { question, answer: answer.clone() }, stamp.now)?;
        self.effects.push(Effect::TellAnswer(call, answer));
        Ok(())
    }

    fn unanswered(&self, question: QuestionId) -> Option<(PartId, OpenQuestion)> {
        self.session.calls().iter().find_map(|call| {
            let open = call.question.as_ref().filter(|open| open.id == question && open.answer.is_none())?;
            Some((call.id, open.clone()))
        })
    }
}

/// What is wrong with the answers to these questions.
fn misfit(questions: &[Question], answers: &[Vec<String>]) -> Option<String> {
    if questions.len() != answers.len() {
        return Some(format!(
            "there are {} questions and {} answers: give one list for each question, in their order, an empty one to leave a question out",
            questions.len(),
            answers.len()
        ));
    }
    questions.iter().zip(answers).enumerate().find_map(|(index, (question, chosen))| {
        let number = index + 1;
        if chosen.len() > 1 && !question.multiple {
            return Some(format!("question {number} takes one answer, and {} were given", chosen.len()));
        }
        let is_option = |label: &&String| question.options.iter().any(|option| option.label == **label);
        let other = chosen.iter().find(|label| !question.custom && !is_option(label))?;
        let labels: Vec<&str> = question.options.iter().map(|option| option.label.as_str()).collect();
        Some(format!(
            "question {number} takes one of its options only ({}), not \"{other}\"",
            labels.join(", ")
        ))
    })
}
