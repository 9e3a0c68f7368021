//! Rules of real providers: requests that they refuse, and reasoning that must come back to them as it was.
//!
//! The rules of a model depend on its name alone ([`table`]). A request is checked in two steps: its parameters
//! ([`openai`], [`anthropic`], [`gemini`], [`compatible`]), then the reasoning in its conversation ([`walk`]) against the
//! seals that the mock signed it with ([`seal`]).

mod anthropic;
mod canonical;
mod compatible;
mod gemini;
mod history;
mod memory;
mod model;
mod openai;
mod reasoning;
mod refusal;
mod report;
mod seal;
mod sign;
mod table;
mod walk;

use parking_lot::Mutex;
use serde_json::Value;

use self::memory::Answers;
pub(crate) use self::refusal::Refusal;
use self::report::Tally;
pub use self::report::{RuleCounts, RuleNote, RulesReport};
use self::table::Profile;
use crate::wire::Dialect;

/// Rules of real providers, which a mock enforces by the names of its models. See [the crate's page](crate#rules).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Whether Claude's thinking that is bound to another conversation is dropped in place of being refused, for every
    /// request. Without it a request decides by `thinking.block_binding`.
    pub drop_stale_thinking: bool,
    /// Parameters that models without rules of their own refuse: names at the top of a request or in a tool, and
    /// `cache_control` anywhere in it.
    pub refused_fields: Vec<String>,
    /// How such a refusal names the parameter.
    pub refusal_shape: RefusalShape,
}

/// How a refusal names the parameter that it is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RefusalShape {
    /// As `param` of an error with the code `unsupported_parameter`, and in the message. Formats without `param` have
    /// the message only.
    #[default]
    Param,
    /// As a path before the message: `messages.0.content.0.cache_control: Extra inputs are not permitted`.
    Path,
    /// By its name in a sentence.
    Prose,
}

impl std::str::FromStr for RefusalShape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "param" => Ok(Self::Param),
            "path" => Ok(Self::Path),
            "prose" => Ok(Self::Prose),
            _ => Err("use param, path or prose".to_owned()),
        }
    }
}

/// A request, as far as rules look at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// Its wire format.
    pub(crate) dialect: Dialect,
    /// Its model.
    pub(crate) model: &'a str,
    /// The values of its `anthropic-beta` headers.
    pub(crate) betas: &'a str,
    /// Its body.
    pub(crate) body: &'a [u8],
}

/// A request that no rule refused.
#[derive(Debug)]
pub(crate) struct Passed {
    /// The rules of its model.
    profile: Profile,
    dialect: Dialect,
    /// The hash of its conversation, to which reasoning of the answer is bound.
    end: u64,
    /// Whether the answer's reasoning has no text.
    is_quiet: bool,
    /// The blocks of reasoning that were dropped, as the answer lists them.
    pub(crate) transformations: Vec<Value>,
}

/// The rules at work: checks requests, signs reasoning, and counts.
#[derive(Debug)]
pub(crate) struct Enforcer {
    rules: Rules,
    answers: Mutex<Answers>,
    tally: Mutex<Tally>,
}

impl Enforcer {
    /// Enforces `rules`.
    pub(crate) fn new(rules: Rules) -> Self {
        Self { rules, answers: Mutex::default(), tally: Mutex::default() }
    }

    /// Returns the counts so far.
    pub(crate) fn report(&self) -> RulesReport {
        self.tally.lock().report()
    }

    /// Checks a request. Returns `Ok(None)` where it has no refused field and its model has no rules.
    pub(crate) fn check(&self, asked: Request<'_>) -> (RuleNote, Result<Option<Passed>, Refusal>) {
        let mut note = RuleNote::default();
        let checked = self.check_all(asked, &mut note);
        if let Err(refusal) = &checked {
            note.refused = Some(refusal.message.clone());
            self.tally.lock().refused(asked.model, &refusal.message);
        }
        (note, checked)
    }

    fn check_all(&self, asked: Request<'_>, note: &mut RuleNote) -> Result<Option<Passed>, Refusal> {
        // The wire has read it before.
        let request: Value = serde_json::from_slice(asked.body).unwrap_or_default();
        let Some(profile) = profile_of(asked) else {
            compatible::check_fields(&self.rules, asked.model, &request)?;
            return Ok(None);
        };
        match profile {
            Profile::OpenAi(rules) => openai::check(rules, asked.dialect, asked.model, &request)?,
            Profile::Claude(rules) => anthropic::check(rules, asked.betas, &request)?,
            Profile::Gemini(rules) => gemini::check(rules, &request)?,
            Profile::Compatible(rules) => compatible::check(rules, asked.model, &request)?,
        }
        self.check_reasoning(asked, profile, &request, note).map(Some)
    }
}

/// The rules of the request's model, where they are for its wire format.
fn profile_of(asked: Request<'_>) -> Option<Profile> {
    let profile = Profile::of(asked.model)?;
    let is_for = match profile {
        Profile::OpenAi(_) => matches!(asked.dialect, Dialect::OpenaiChat | Dialect::OpenaiResponses),
        Profile::Claude(_) => asked.dialect == Dialect::Anthropic,
        Profile::Gemini(_) => asked.dialect == Dialect::Gemini,
        Profile::Compatible(_) => asked.dialect == Dialect::OpenaiChat,
    };
    is_for.then_some(profile)
}
