//! What sessions in a directory begin with: their agent, their model, and the small model beside it.

use std::path::Path;

use playhouse_billing::budget::{Budgets, Limits};
use playhouse_prompts::{Agent, Agents};
use playhouse_protocol::{Day, ModelRef};
use playhouse_tools::Registry;

use super::{Finding, Status};
use crate::cli::{models, variable};
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
    findings.push(limits(settings));
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
        Ok(()) => Finding::new(check, Status::Ok, format!("{model}{}", prices(settings, model))),
        Err(error @ (ConfigError::MissingKey { .. } | ConfigError::MissingHeader { .. })) => {
            Finding::new(check, Status::Missing, format!("{model}: {error}"))
                .advice("nothing is asked of it until that is there")
        }
        Err(error) => Finding::new(check, Status::Wrong, error.to_string())
            .advice("name one of those that `playhouse models` lists"),
    }
}

/// What a model costs, where that stands, and which prices it lacks.
fn prices(settings: &Settings, model: &ModelRef) -> String {
    if model.provider == mock::PROVIDER {
        return String::new();
    }
    let catalogue = settings.catalogue.now();
    let Some(known) = catalogue.find(model) else { return String::new() };
    let prices = &known.facts.prices;
    let usual = models::usual_prices(prices, catalogue.source(model));
    usual.into_iter().chain(models::price_gaps(prices)).map(|part| format!("; {part}")).collect()
}

/// The limits of turns, sessions and tenants, with the keys that set them: refusals name the limit only.
fn limits(settings: &Settings) -> Finding {
    let Budgets { turn, session, tenant, tenants } = settings.budgets.budgets();
    let of_budget = |key: String, limits: Limits| {
        let cost = limits.cost.map(|cost| format!("{key}.cost = {}", cost.0.normalize()));
        let tokens = limits.tokens.map(|tokens| format!("{key}.tokens = {tokens}"));
        cost.into_iter().chain(tokens)
    };
    let all = [("turn", turn), ("session", session), ("tenant", tenant.limits)];
    let all = all.into_iter().flat_map(|(of, limits)| of_budget(format!("budgets.{of}"), limits));
    let single =
        tenants.into_iter().flat_map(|(name, of)| of_budget(format!("budgets.tenants.{name}"), of.limits));
    let of_server = &settings.server.limits;
    let counts = [
        ("sessions", of_server.sessions),
        ("running_turns", of_server.running_turns),
        ("subscribers", of_server.subscribers),
        ("tokens_per_minute", of_server.tokens_per_minute),
    ];
    let counts =
        counts.into_iter().filter_map(|(name, most)| Some(format!("server.limits.{name} = {}", most?)));
    let spend = of_server.spend_per_day.map(|most| format!("server.limits.spend_per_day = {most}"));
    let storage = &settings.engine.storage;
    let storage = [
        ("tools.keep_outputs_mb", storage.outputs),
        ("server.limits.storage_mb", storage.tenant),
        ("snapshots.keep_mb", storage.undo),
    ];
    let storage = storage.into_iter().filter_map(|(key, most)| Some(format!("{key} = {}", most? >> 20)));
    let told: Vec<String> = all.chain(single).chain(counts).chain(spend).chain(storage).collect();
    Finding::new("quotas", Status::Ok, if told.is_empty() { "none".to_owned() } else { told.join(", ") })
}

/// Whether a request to this model could be made, as far as that is known without one.
fn usable(settings: &Settings, model: &ModelRef) -> Result<(), ConfigError> {
    if model.provider == mock::PROVIDER {
        return Ok(());
    }
    settings.resolve_model(model, &variable).map(drop)
}
