//! What sessions in a directory begin with: their agent, their model, and the small model beside it.

use std::path::Path;

use playhouse_prompts::{Agent, Agents};
use playhouse_protocol::{Day, ModelRef};
use playhouse_tools::Registry;

use super::{Finding, Status};
use crate::cli::variable;
use crate::config::{ConfigError, NOTICE, Settings, check_agent};
use crate::{clock, mock};

/// `settings` are the operator's with what the workspace `root` chose.
pub(super) fn begin(settings: &Settings, root: &Path, tools: &Registry) -> Vec<Finding> {
    let local = settings.agents_in(root, &|agent| check_agent(agent, tools));
    let agents = local.as_ref().unwrap_or(&settings.agents);
    let usual = agents.find(settings.agent.as_deref().unwrap_or(Agents::DEFAULT));
    let mut findings = vec![of_agents(settings, agents, &usual)];
    let of_agent = usual.ok().and_then(|agent| agent.model.as_ref());
    findings.push(match settings.model.as_ref().or(of_agent) {
        Some(chosen) => model("model", settings, chosen),
        None => Finding::new("model", Status::Missing, "no model is chosen")
            .advice("set `model = \"PROVIDER/MODEL\"` in the configuration, or name one with -m each time"),
    });
    findings.extend(settings.small_model.as_ref().map(|small| model("small model", settings, small)));
    findings.push(ends(settings, Day::of(clock::now())));
    findings.extend(refusals(settings));
    findings
}

/// Which models of the configuration end soon.
fn ends(settings: &Settings, today: Day) -> Finding {
    let endings = settings.endings(today);
    if endings.is_empty() {
        let detail = format!("no model of the configuration ends within {NOTICE} days, as far as is known");
        return Finding::new("lifecycle", Status::Ok, detail);
    }
    let told: Vec<String> = endings.iter().map(ToString::to_string).collect();
    Finding::new("lifecycle", Status::Weak, told.join("; "))
        .advice("name the successor in the configuration, or another one that `playhouse models` lists")
}

/// Which models will refuse what they are asked in the dialect that the configuration names.
fn refusals(settings: &Settings) -> Vec<Finding> {
    let finding = |(provider, models): (String, Vec<String>)| {
        let detail = format!("{provider}: in `openai-chat` these refuse tools: {}", models.join(", "));
        Finding::new("dialect", Status::Weak, detail).advice(format!(
            "take `dialect` out of [providers.{provider}], or choose models that are not named here"
        ))
    };
    settings.refusing_dialects().into_iter().map(finding).collect()
}

fn of_agents(settings: &Settings, agents: &Agents, usual: &Result<&Agent, String>) -> Finding {
    let usual = match usual {
        Ok(agent) => agent,
        Err(error) => {
            return Finding::new("agents", Status::Wrong, error)
                .advice("no session begins in this directory that does not name another agent");
        }
    };
    let of_model = |agent: &Agent| {
        let error = usable(settings, agent.model.as_ref()?).err()?;
        Some(format!("{}: {error}", agent.name))
    };
    let refused = agents.refused().iter().map(|refused| refused.error.to_string());
    let problems: Vec<String> = refused.chain(agents.iter().filter_map(of_model)).collect();
    if problems.is_empty() {
        let detail = format!("{}, {} is the usual one", agents.iter().count(), usual.name);
        return Finding::new("agents", Status::Ok, detail);
    }
    Finding::new("agents", Status::Weak, problems.join("; "))
        .advice("these cannot be used until that is right")
}

fn model(check: &'static str, settings: &Settings, model: &ModelRef) -> Finding {
    match usable(settings, model) {
        Ok(()) => Finding::new(check, Status::Ok, format!("{model}{}", price_gaps(settings, model))),
        Err(error @ (ConfigError::MissingKey { .. } | ConfigError::MissingHeader { .. })) => {
            Finding::new(check, Status::Missing, format!("{model}: {error}"))
                .advice("nothing is asked of it until that is there")
        }
        Err(error) => Finding::new(check, Status::Wrong, error.to_string())
            .advice("name one of those that `playhouse models` lists"),
    }
}

/// The prices that a model lacks, and what follows. Empty for one that lacks none.
fn price_gaps(settings: &Settings, model: &ModelRef) -> String {
    if model.provider == mock::PROVIDER {
        return String::new();
    }
    let catalogue = settings.catalogue.now();
    let gaps = catalogue.find(model).map(|known| known.facts.prices.gaps()).unwrap_or_default();
    match gaps.iter().any(|gap| gap == "input" || gap == "output") {
        _ if gaps.is_empty() => String::new(),
        true => format!(
            "; no price of {}: what it costs is not known, and a budget in money refuses it",
            gaps.join(", ")
        ),
        false => format!("; no price of {}: assumed from that of input", gaps.join(", ")),
    }
}

/// Whether a request to this model could be made, as far as that is known without one.
fn usable(settings: &Settings, model: &ModelRef) -> Result<(), ConfigError> {
    if model.provider == mock::PROVIDER {
        return Ok(());
    }
    settings.resolve_model(model, &variable).map(drop)
}
