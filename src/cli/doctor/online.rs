//! What providers say now of the models that the configuration names.

use playhouse_protocol::{Day, ModelRef};

use super::{Finding, Status};
use crate::cli::models::online::{self, Told};
use crate::clock;
use crate::config::Settings;

/// A finding for each provider that was asked, and one for each named model of which it says something else.
pub(super) async fn online(settings: &Settings) -> Vec<Finding> {
    let today = Day::of(clock::now());
    let answers = online::ask(settings, today).await;
    if answers.is_empty() {
        let finding =
            Finding::new("online", Status::Missing, "there is no key of OpenAI or Anthropic: none was asked");
        return vec![finding.advice("set OPENAI_API_KEY or ANTHROPIC_API_KEY")];
    }
    answers.into_iter().flat_map(|told| of_provider(settings, told, today)).collect()
}

fn of_provider(settings: &Settings, Told { provider, listing }: Told, today: Day) -> Vec<Finding> {
    let listing = match listing {
        Ok(listing) => listing,
        Err(error) => {
            let finding = Finding::new("online", Status::Missing, format!("{provider}: {error}"));
            return vec![finding.advice("check its address, its key, and the network")];
        }
    };
    let mut findings =
        vec![Finding::new("online", Status::Ok, format!("{provider} lists {} models", listing.len()))];
    let known = settings.catalogue.now().without_configured();
    let named: Vec<ModelRef> =
        settings.named_models().into_keys().filter(|model| model.provider == provider).collect();
    for model in named.iter().filter(|model| !listing.has(&model.model)) {
        let finding = Finding::new("online", Status::Weak, format!("{provider} does not list {model}"));
        findings.push(finding.advice("it may be an alias; else name another model in the configuration"));
    }
    let told = known.clone().told(&provider, listing);
    for model in named {
        let (Some(known), Some(told)) = (known.find(&model), told.find(&model)) else { continue };
        let (known, told) = (known.facts, told.facts);
        let mut differences = Vec::new();
        if known.context != told.context {
            differences.push(format!("a window of {} tokens, not {}", told.context, known.context));
        }
        if known.output != told.output {
            differences.push(format!("{} tokens of output, not {}", told.output, known.output));
        }
        if known.reasoning_form != told.reasoning_form || known.rules != told.rules {
            differences.push("another form of reasoning".to_owned());
        }
        if known.modalities != told.modalities {
            differences.push("other attachments".to_owned());
        }
        if let Some(on) = told.ends.filter(|_| known.ends != told.ends) {
            differences.push(format!("{} {on}", if on <= today { "ended" } else { "ends" }));
        }
        if !differences.is_empty() {
            let finding =
                Finding::new("online", Status::Weak, format!("{model}: {}", differences.join("; ")));
            findings.push(finding.advice("run `playhouse models update --online` to take that over"));
        }
    }
    findings
}
