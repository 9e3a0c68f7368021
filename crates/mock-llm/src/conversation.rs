//! Where a conversation stands, read from the request alone.

use std::borrow::Cow;

use thiserror::Error;

/// A message, as far as it matters for the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// The user asks for something.
    Prompt,
    /// Results of tool calls.
    Results,
    /// The model answered.
    Answer,
    /// Something else: instructions, images that belong to results.
    Other,
}

/// A message that was read, with the calls it makes or the results it brings.
#[derive(Debug)]
pub(crate) struct Heard<'a> {
    /// What it is.
    pub(crate) said: Said,
    /// Ids of the calls that an answer makes.
    pub(crate) calls: Vec<Cow<'a, str>>,
    /// Ids of the calls whose results it brings.
    pub(crate) results: Vec<Cow<'a, str>>,
}

impl Heard<'_> {
    /// A message without calls or results.
    pub(crate) fn plain(said: Said) -> Self {
        Self { said, calls: Vec::new(), results: Vec::new() }
    }
}

/// A call without its result, or a result without its call. Messages are counted from 0.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum Unmatched<'a> {
    /// A result that no call asked for.
    #[error("messages.{at}: no call before it has the id \"{id}\" of this result")]
    NoCall {
        /// The message.
        at: usize,
        /// The call.
        id: &'a str,
    },
    /// A message that comes before a result.
    #[error("messages.{at}: the result of call \"{id}\" must come before this message")]
    TooEarly {
        /// The message.
        at: usize,
        /// The call.
        id: &'a str,
    },
    /// A call without a result.
    #[error("messages: the result of call \"{id}\" is missing")]
    Missing {
        /// The call.
        id: &'a str,
    },
}

/// Refuses what providers refuse: a call whose result does not follow, and a result that no call asked for.
pub(crate) fn check_results<'a>(heard: &'a [Heard<'_>]) -> Result<(), Unmatched<'a>> {
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in heard.iter().enumerate() {
        for id in &message.results {
            match open.iter().position(|call| call == id) {
                Some(found) => drop(open.swap_remove(found)),
                None => return Err(Unmatched::NoCall { at, id }),
            }
        }
        if message.said != Said::Results {
            if let Some(id) = open.first() {
                return Err(Unmatched::TooEarly { at, id });
            }
            open.extend(message.calls.iter().map(|id| &**id));
        }
    }
    open.first().map_or(Ok(()), |id| Err(Unmatched::Missing { id }))
}

/// Whether the model may call tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MayCall {
    /// It may.
    Yes,
    /// It is shown tools and told not to use them.
    Forbidden,
    /// It is shown none.
    NoTools,
}

/// The next answer's place in the script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Prompts before the one that is being answered.
    pub(crate) turn: usize,
    /// Answers since that prompt.
    pub(crate) step: usize,
}

/// The place of the answer that follows `said`. The rules are on the crate's page.
pub(crate) fn place(said: &[Said], may_call: MayCall) -> Place {
    let mut said = said;
    if let [rest @ .., Said::Answer] = said {
        said = rest;
    } else if let [rest @ .., before, Said::Prompt] = said {
        let reminder = match may_call {
            MayCall::Yes => false,
            MayCall::Forbidden => matches!(before, Said::Results | Said::Prompt | Said::Other),
            MayCall::NoTools => *before == Said::Results,
        };
        if reminder && (*before != Said::Other || has_prompt(rest)) {
            said = &said[..said.len() - 1];
        }
    }
    let prompts = said.iter().filter(|message| **message == Said::Prompt).count();
    let step = said
        .iter()
        .rev()
        .take_while(|message| **message != Said::Prompt)
        .filter(|message| **message == Said::Answer)
        .count();
    Place { turn: prompts.saturating_sub(1), step }
}

fn has_prompt(said: &[Said]) -> bool {
    said.contains(&Said::Prompt)
}

#[cfg(test)]
mod tests {
    use super::Said::{Answer as A, Other as O, Prompt as P, Results as R};
    use super::*;

    #[track_caller]
    fn check(said: &[Said], may_call: MayCall, turn: usize, step: usize) {
        assert_eq!(place(said, may_call), Place { turn, step }, "{said:?} {may_call:?}");
    }

    #[test]
    fn prompts_are_turns_and_answers_are_steps() {
        use MayCall::Yes;
        check(&[], Yes, 0, 0);
        check(&[P], Yes, 0, 0);
        check(&[O, P, A, R], Yes, 0, 1);
        check(&[P, A, R, R, O, A, R], Yes, 0, 2);
        check(&[P, A, R, A, P], Yes, 1, 0);
        check(&[P, A, R, A, P, A, R], Yes, 1, 1);
        // Aborted before an answer, and steered between two steps: both prompts count.
        check(&[P, P], Yes, 1, 0);
        check(&[P, A, R, P], Yes, 1, 0);
    }

    #[test]
    fn every_call_has_one_result() {
        let calls = |ids: &[&'static str]| Heard {
            calls: ids.iter().map(|id| (*id).into()).collect(),
            ..Heard::plain(A)
        };
        let results = |ids: &[&'static str]| Heard {
            results: ids.iter().map(|id| (*id).into()).collect(),
            ..Heard::plain(R)
        };
        let check = |heard: Vec<Heard<'_>>| check_results(&heard).map_err(|unmatched| unmatched.to_string());
        assert_eq!(
            check(vec![Heard::plain(P), calls(&["a", "b"]), results(&["b"]), results(&["a"])]),
            Ok(())
        );
        assert_eq!(check(vec![calls(&["a"]), results(&["a"]), calls(&["a"]), results(&["a"])]), Ok(()));
        let missing = check(vec![calls(&["a", "b"]), results(&["a"])]).unwrap_err();
        assert!(missing.contains("\"b\" is missing"), "{missing}");
        let late = check(vec![calls(&["a"]), Heard::plain(P), results(&["a"])]).unwrap_err();
        assert!(late.contains("messages.1") && late.contains("before this message"), "{late}");
        let twice = check(vec![calls(&["a"]), results(&["a"]), results(&["a"])]).unwrap_err();
        assert!(twice.contains("messages.2") && twice.contains("no call before it"), "{twice}");
    }

    #[test]
    fn a_prefill_is_not_an_answer_yet() {
        check(&[P, A, R, A], MayCall::Forbidden, 0, 1);
        check(&[P, A, R, A], MayCall::Yes, 0, 1);
    }

    #[test]
    fn a_reminder_is_not_a_prompt() {
        check(&[P, A, R, P], MayCall::Forbidden, 0, 1);
        check(&[P, A, R, O, P], MayCall::Forbidden, 0, 1);
        check(&[P, P], MayCall::Forbidden, 0, 0);
        check(&[O, P], MayCall::Forbidden, 0, 0);
        check(&[P, A, P], MayCall::Forbidden, 1, 0);
        check(&[P, A, R, P], MayCall::NoTools, 0, 1);
        check(&[P, P], MayCall::NoTools, 1, 0);
    }
}
