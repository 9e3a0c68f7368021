//! Reasoning that comes back: what is refused, dropped and counted.

use serde_json::{Value, json};

use super::canonical::hash_of;
use super::history::{History, Thought};
use super::refusal::{Refusal, given};
use super::report::{Class, RuleNote};
use super::table::{Claude, Profile};
use super::walk::{Verdict, Walker};
use super::{Enforcer, Passed, Request};

impl Enforcer {
    /// Checks the reasoning in a request whose parameters are sound.
    pub(super) fn check_reasoning(
        &self,
        asked: Request<'_>,
        profile: Profile,
        request: &Value,
        note: &mut RuleNote,
    ) -> Result<Passed, Refusal> {
        let (is_bound, binds_instructions) = match profile {
            Profile::OpenAi(rules) => (true, rules.binds_instructions),
            Profile::Claude(rules) => (rules.bound, true),
            Profile::Gemini(_) | Profile::Compatible(_) => (false, true),
        };
        let history = History::read(asked.dialect, request, binds_instructions);
        let answers = self.answers.lock();
        let walked = Walker { model: hash_of(asked.model), is_bound, answers: &answers }.walk(&history);
        drop(answers);
        let mut tally = self.tally.lock();
        let mut count = |class: Class, id: u64| {
            note.count(class);
            tally.block(asked.model, class, id);
        };
        let drops = match profile {
            Profile::Claude(_) => self.rules.drop_stale_thinking || asks_to_drop(request),
            _ => true,
        };
        let mut refusal = None;
        let mut transformations = Vec::new();
        for (thought, verdict) in &walked.verdicts {
            match *verdict {
                Verdict::Valid(id) => count(Class::Valid, id),
                Verdict::Foreign(id) => {
                    count(Class::Foreign, id);
                    transformations.extend(dropped(profile, thought, "model"));
                }
                Verdict::Stale(id) => {
                    count(Class::Stale, id);
                    transformations.extend(dropped(profile, thought, "prefix"));
                    if !drops {
                        refusal = refusal.or_else(|| Some(bound_elsewhere(thought)));
                    }
                }
                Verdict::Modified => refusal = refusal.or_else(|| Some(modified(thought))),
                Verdict::Forged => refusal = refusal.or_else(|| Some(forged(profile, thought))),
            }
        }
        walked.returned.iter().for_each(|id| count(Class::Valid, *id));
        // A block that was changed is not missing.
        let mut verdicts = walked.verdicts.iter().map(|(_, verdict)| *verdict);
        if !verdicts.any(|verdict| matches!(verdict, Verdict::Modified | Verdict::Forged)) {
            walked.missing.iter().for_each(|id| count(Class::Missing, *id));
        }
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        let is_quiet = matches!(profile, Profile::Claude(rules) if is_quiet(rules, request));
        Ok(Passed { profile, dialect: asked.dialect, end: walked.end, is_quiet, transformations })
    }
}

/// Whether a request wants stale thinking dropped. That it may say so was checked before.
fn asks_to_drop(request: &Value) -> bool {
    request["thinking"]["block_binding"]["prefix_mismatch_behavior"] == "drop_block"
}

/// Whether thinking is answered without its text.
fn is_quiet(rules: &Claude, request: &Value) -> bool {
    match given(&request["thinking"], "display") {
        Some(display) => display == "omitted",
        None => rules.quiet,
    }
}

/// An entry of `input_transformations`; `what` did not match. Other formats than these two drop silently.
fn dropped(profile: Profile, thought: &Thought<'_>, what: &str) -> Option<Value> {
    match profile {
        Profile::OpenAi(_) => Some(json!({
            "type": "reasoning",
            "id": thought.name,
            "action": "removed",
            "reason": format!("{what}_mismatch"),
        })),
        Profile::Claude(_) => Some(json!({
            "type": "thinking_dropped",
            "reason": format!("{what}_binding_mismatch"),
            "message_index": thought.message,
            "content_index": thought.content,
        })),
        Profile::Gemini(_) | Profile::Compatible(_) => None,
    }
}

fn place(thought: &Thought<'_>) -> String {
    format!("messages.{}.content.{}", thought.message, thought.content)
}

fn bound_elsewhere(thought: &Thought<'_>) -> Refusal {
    let (place, name) = (place(thought), thought.name);
    Refusal::new(format!(
        "{place}: Invalid `signature` in `{name}` block. The block is bound to a different conversation."
    ))
}

fn modified(thought: &Thought<'_>) -> Refusal {
    Refusal::new(format!(
        "{}: `thinking` or `redacted_thinking` blocks cannot be modified. These blocks must remain as they were in the \
         original response.",
        place(thought)
    ))
}

fn forged(profile: Profile, thought: &Thought<'_>) -> Refusal {
    let name = thought.name;
    match profile {
        Profile::OpenAi(_) => {
            let message = format!("The encrypted content for item {name} could not be verified.");
            Refusal { code: Some("invalid_encrypted_content"), ..Refusal::new(message) }
        }
        Profile::Gemini(_) => Refusal::new("Corrupted thought signature."),
        Profile::Claude(_) | Profile::Compatible(_) => {
            let field = if name == "redacted_thinking" { "data" } else { "signature" };
            Refusal::new(format!("{}: Invalid `{field}` in `{name}` block", place(thought)))
        }
    }
}
