//! Signs the reasoning of an answer, and remembers it.

use super::canonical::hash_of;
use super::memory::{Block, key};
use super::seal::Seal;
use super::table::Profile;
use super::walk::after;
use super::{Enforcer, Passed};
use crate::plan::Plan;
use crate::tokens::Source;
use crate::wire::{About, Dialect, PartKind};

impl Enforcer {
    /// Signs the reasoning in `plan`, in place of the script's signatures.
    pub(crate) fn sign(&self, passed: &Passed, about: &About, plan: &mut Plan) {
        if matches!(passed.profile, Profile::Gemini(rules) if rules.signatures) {
            sign_first_call(plan);
        }
        let model = hash_of(about.model.as_str());
        let mut prefix = passed.end;
        let mut blocks = Vec::new();
        for (kind, source) in &mut plan.parts {
            let text = match kind {
                PartKind::Redacted { data } => data.clone(),
                PartKind::Reasoning { .. } => {
                    if passed.is_quiet {
                        *source = Source::text("", 1);
                    }
                    text_of(source.clone())
                }
                _ => continue,
            };
            let seal = Seal { model, text: hash_of(text.as_str()), prefix };
            prefix = after(prefix, seal.id());
            match kind {
                // Chat Completions has no place for it.
                PartKind::Redacted { .. } if passed.dialect == Dialect::OpenaiChat => continue,
                PartKind::Redacted { data } => *data = seal.to_string(),
                _ => *kind = PartKind::Reasoning { signature: Some(seal.to_string()) },
            }
            blocks.push(Block { id: seal.id(), text: seal.text });
        }
        let is_told = passed.dialect != Dialect::OpenaiResponses || about.wants.encrypted_reasoning;
        if blocks.is_empty() || !is_told {
            return;
        }
        if let Some(key) = answer_key(model, passed, plan) {
            self.answers.lock().put(key, blocks);
        }
    }
}

/// The key of what `plan` says.
fn answer_key(model: u64, passed: &Passed, plan: &Plan) -> Option<u64> {
    let has_ids = passed.dialect != Dialect::Gemini;
    let calls: Vec<&str> = plan
        .parts
        .iter()
        .filter_map(|(kind, _)| match kind {
            PartKind::Call { id, .. } if has_ids => Some(id.as_str()),
            PartKind::Call { name, .. } => Some(name.as_str()),
            _ => None,
        })
        .collect();
    let mut text = String::new();
    if calls.is_empty() {
        let texts = plan.parts.iter().filter(|(kind, _)| matches!(kind, PartKind::Text | PartKind::Refusal));
        texts.for_each(|(_, source)| text.push_str(&text_of(source.clone())));
    }
    key(model, passed.end, calls, &text)
}

/// Puts a signature before the first call, unless reasoning stands before it.
fn sign_first_call(plan: &mut Plan) {
    let first = plan.parts.iter().position(|(kind, _)| kind.is_call() || kind.is_reasoning());
    if let Some(first) = first.filter(|first| plan.parts[*first].0.is_call()) {
        let kind = PartKind::Redacted { data: String::new() };
        plan.parts.insert(first, (kind, Source::text("", 1)));
    }
}

fn text_of(mut source: Source) -> String {
    let mut text = String::new();
    while let Some(token) = source.next_token() {
        text.push_str(token);
    }
    text
}
