//! Questions that a model asks the people behind a session, and the session's list of things to do.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{PartId, QuestionId};

/// The most questions that are asked at once.
pub const MOST_QUESTIONS: usize = 4;
/// The longest header of a question, in characters.
pub const LONGEST_HEADER: usize = 30;

/// One question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The question.
    pub question: String,
    /// What it is about, in a few words: at most [`LONGEST_HEADER`] characters.
    pub header: String,
    /// Answers to choose from.
    pub options: Vec<QuestionOption>,
    /// Whether several may be chosen.
    #[serde(default)]
    pub multiple: bool,
    /// Whether an answer in one's own words is welcome.
    #[serde(default = "yes")]
    pub custom: bool,
}

fn yes() -> bool {
    true
}

/// An answer to choose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionOption {
    /// One to five words.
    pub label: String,
    /// What choosing it means.
    pub description: String,
}

/// See [`Record::QuestionAsked`](crate::Record::QuestionAsked).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionAsked {
    /// The request.
    pub question: QuestionId,
    /// The call that waits.
    pub call: PartId,
    /// One to [`MOST_QUESTIONS`] questions.
    pub questions: Vec<Question>,
}

/// How a request with questions ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum QuestionAnswer {
    /// Somebody answered: for each question, in order, the labels that were chosen or the words that were written. An
    /// empty list is a question that was left out.
    Answered {
        /// One list for each question.
        answers: Vec<Vec<String>>,
    },
    /// Somebody said that they will not answer.
    Rejected,
    /// Nobody answered in time.
    TimedOut,
    /// The turn was aborted, or the call ended, before anyone answered.
    Withdrawn,
}

impl fmt::Display for QuestionAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Answered { .. } => "it was answered",
            Self::Rejected => "it was rejected",
            Self::TimedOut => "nobody answered in time",
            Self::Withdrawn => "the turn was aborted, or the call ended",
        })
    }
}

/// How far a thing to do is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// It is not begun.
    Pending,
    /// It is under way.
    InProgress,
    /// It is done.
    Completed,
    /// It is not needed any more.
    Cancelled,
}

/// How much a thing to do matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TodoPriority {
    /// First.
    High,
    /// Next.
    Medium,
    /// Last.
    Low,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Todo {
    /// What is to be done.
    pub content: String,
    /// How far it is.
    pub status: TodoStatus,
    /// How much it matters.
    pub priority: TodoPriority,
}
