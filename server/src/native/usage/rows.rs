//! Rows of the ledger, one by one.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use playhouse_protocol::ledger::{CURRENCY, CostByClass, Purpose, RowId, RowPage, RowPlace, RowQuery, Tier};
use playhouse_protocol::usage::{Prices, Quality, Tokens};
use playhouse_protocol::{
    AttemptId, Cost, KeyRef, Labels, LedgerRow, MessageId, ModelRef, SessionId, Timestamp,
};
#[cfg(test)]
use schemars::SchemaGenerator;
use schemars::{JsonSchema, Schema, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::sealed::{opened, sealed};
use super::{decoded, encoded, invalid, time};
use crate::app::App;
use crate::native::extract::Search;
#[cfg(test)]
use crate::native::openapi::operation::Operation;
use crate::principal::Principal;
#[cfg(test)]
use crate::problem::Kind;
use crate::problem::Problem;

/// Rows of a page that names no limit, and the most of any.
const USUAL_PAGE: usize = 100;
const LARGEST_PAGE: usize = 1_000;
/// So many pages are read at most for one whose rows a key may not read.
const MOST_PAGES: usize = 20;

/// Which rows of the ledger are wanted.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RowSearch {
    /// Only what ended at this time or later: a day (UTC), or milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Only what ended before this time, which is not before `from`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Only those of this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Only those of the sessions of this tree, named by the session at its top.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<SessionId>,
    /// Only those of this turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<MessageId>,
    /// Only those of this provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Only those of this model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// Only those with this label: NAME=VALUE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Only those of prompts that came with the key of this id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `next` of the page before, with the same filters. That of a key with directories of its own holds until the server is
    /// started anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// At most so many.
    #[schemars(range(min = 1, max = LARGEST_PAGE), extend("default" = USUAL_PAGE))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

impl RowSearch {
    fn query(self, principal: &Principal) -> Result<RowQuery, Problem> {
        let limit = self.limit.unwrap_or(USUAL_PAGE);
        if !(1..=LARGEST_PAGE).contains(&limit) {
            return Err(Problem::invalid(format!("`limit` must be from 1 to {LARGEST_PAGE}")));
        }
        let label = self.label.as_deref().map(|label| match label.split_once('=') {
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => Err(Problem::invalid("`label` is not NAME=VALUE, as in `label=customer=c-42`")),
        });
        let query = RowQuery {
            tenant: principal.whose().map(str::to_owned),
            session: self.session,
            root: self.root,
            turn: self.turn,
            from: self.from.as_deref().map(time).transpose()?,
            to: self.to.as_deref().map(time).transpose()?,
            provider: self.provider,
            model: self.model,
            label: label.transpose()?,
            key: self.key,
            after: self.after.as_deref().map(|after| place(after, principal)).transpose()?,
            limit,
        };
        query.check().map_err(invalid)?;
        Ok(query)
    }
}

/// A page of rows of the ledger.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct LedgerRows {
    /// In the order of tenant, time and id. May be fewer than the limit, also where `next` is there.
    rows: Vec<LedgerRowView>,
    /// Where the next page begins: for `after`. Absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// Rows that ended before this time were archived to files: such ones are missing here. Absent where none can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    archived_before: Option<Timestamp>,
}

/// A row of the ledger: a request to a model that used tokens, or may have.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct LedgerRowView {
    /// Its id, the same wherever the row is sent.
    id: String,
    /// Who pays.
    tenant: String,
    /// The directory that the session works in.
    workspace: String,
    /// The session.
    session: SessionId,
    /// The session at the top of its tree.
    root: SessionId,
    /// The step whose call started the session, for a sub-session.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_step: Option<MessageId>,
    /// The turn.
    turn: MessageId,
    /// The step.
    step: MessageId,
    /// Number of the step within its turn, from 1.
    step_number: u32,
    /// The attempt, whose id went out as the header `x-playhouse-attempt`.
    #[schemars(with = "String")]
    attempt: AttemptId,
    /// Number of the attempt within its step, from 1.
    attempt_number: u32,
    /// The agent.
    agent: String,
    /// What it was for.
    #[schemars(schema_with = "purpose_schema")]
    purpose: Purpose,
    /// The provider.
    provider: String,
    /// The model that was asked.
    model: String,
    /// The model that says it answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    answered_by: Option<String>,
    /// Token counts, each token in one of them.
    tokens: Tokens,
    /// The counts of each call, where the answer had several of this model: each was priced by its own size.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    calls: Vec<Tokens>,
    /// How far they can be trusted.
    #[schemars(schema_with = "quality_schema")]
    quality: Quality,
    /// The provider's own usage object, as it came. For the operator only.
    #[serde(skip_serializing_if = "Option::is_none")]
    raw: Option<Value>,
    /// The version of the catalogue that the prices are from; absent for prices that the operator wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    catalogue: Option<String>,
    /// The prices that held, in US dollars per million tokens. For the operator only.
    #[serde(skip_serializing_if = "Option::is_none")]
    prices: Option<Prices>,
    /// What each class of tokens cost, where that is known.
    costs: BTreeMap<&'static str, Cost>,
    /// What it cost; absent where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<Cost>,
    /// The currency of all money.
    currency: &'static str,
    /// What had no price or no factor, so that one was assumed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    assumed: Vec<String>,
    /// How the answer says that it was served, where that is not the usual way: tier, speed, region.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    served: Vec<String>,
    /// What the provider says that the answer cost. For the operator only.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider_cost: Option<Cost>,
    /// How the platform charges for the model.
    #[schemars(schema_with = "tier_schema")]
    tier: Tier,
    /// The session's labels when the request left, in the tenant's own words.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    labels: Labels,
    /// The key of the prompt that began the turn; absent where the operator sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<KeyRef>,
    /// When the request left.
    started: Timestamp,
    /// When it ended: the time of the row.
    ended: Timestamp,
    /// The row that this one corrects: what it says is to be added to that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    corrects: Option<RowId>,
    /// Whether it came after sinks were told that the ledger is closed up to a later time than `ended`. Absent where not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    late: bool,
}

fn purpose_schema(_: &mut schemars::SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": Purpose::ALL.map(Purpose::name)})
}

fn quality_schema(_: &mut schemars::SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": [Quality::Reported, Quality::Estimated, Quality::Unreconciled]})
}

fn tier_schema(_: &mut schemars::SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": [Tier::Light.name(), Tier::Pro.name()]})
}

impl LedgerRowView {
    /// The row as the operator reads it, or a tenant: what providers say and take is the operator's.
    fn new(row: LedgerRow, reads_all: bool) -> Self {
        let CostByClass {
            input,
            cache_read,
            cache_write_5m,
            cache_write_30m,
            cache_write_1h,
            cache_write_12h,
            output,
            reasoning,
        } = row.costs;
        let costs = [
            ("input", input),
            ("cache_read", cache_read),
            ("cache_write_5m", cache_write_5m),
            ("cache_write_30m", cache_write_30m),
            ("cache_write_1h", cache_write_1h),
            ("cache_write_12h", cache_write_12h),
            ("output", output),
            ("reasoning", reasoning),
        ];
        let known = costs.into_iter().filter_map(|(class, cost)| Some((class, cost?.normalized())));
        Self {
            id: row.id.0,
            tenant: row.tenant,
            workspace: row.workspace,
            session: row.session,
            root: row.root,
            parent_step: row.parent_step,
            turn: row.turn,
            step: row.step,
            step_number: row.step_number,
            attempt: row.attempt,
            attempt_number: row.attempt_number,
            agent: row.agent,
            purpose: row.purpose,
            provider: row.provider,
            model: row.model,
            answered_by: row.answered_by,
            tokens: row.tokens,
            calls: row.calls,
            quality: row.quality,
            raw: row.raw.filter(|_| reads_all),
            catalogue: row.catalogue,
            prices: reads_all.then_some(row.prices),
            costs: known.collect(),
            cost: row.cost.map(Cost::normalized),
            currency: CURRENCY,
            assumed: row.assumed,
            served: row.served,
            provider_cost: row.provider_cost.filter(|_| reads_all),
            tier: row.tier,
            labels: row.labels,
            key: row.key,
            started: row.started,
            ended: row.ended,
            corrects: row.corrects,
            late: row.late,
        }
    }
}

/// The place of a page as `principal` has it: a key with directories of its own learns nothing of rows that are not in them.
fn text(place: &RowPlace, principal: &Principal) -> Result<String, Problem> {
    if principal.roots.is_some() { sealed(place, principal) } else { encoded(place) }
}

fn place(text: &str, principal: &Principal) -> Result<RowPlace, Problem> {
    if principal.roots.is_some() { opened(text, principal) } else { decoded(text) }
}

/// As [`rows`] is described.
#[cfg(test)]
pub(crate) const ROWS: Operation = Operation {
    method: "get",
    path: "/v1/usage/rows",
    id: "listUsageRows",
    summary: "Rows of the ledger. A tenant reads its own, without prices and what the provider says; a key that is limited to directories those of the sessions in these; on the Unix socket the operator reads all.",
    ids: &[],
    query: Some(RowSearch::json_schema),
    body: None,
    answer: (200, "It worked.", Some(SchemaGenerator::subschema_for::<LedgerRows>)),
    problems: &[(Kind::Forbidden, "It is another tenant's.")],
};

/// `GET /v1/usage/rows`
pub(crate) async fn rows(
    State(app): State<App>,
    principal: Principal,
    Search(search): Search<RowSearch>,
) -> Result<Json<LedgerRows>, Problem> {
    let mut query = search.query(&principal)?;
    let (from, wanted) = (query.from, query.limit);
    let mut found = RowPage::default();
    for _ in 0..MOST_PAGES {
        query.limit = wanted - found.rows.len();
        let RowPage { rows, next } = app.engine().rows(query.clone()).await?;
        // As many were passed over as one request may look at.
        let is_cut = rows.len() < query.limit;
        let is_own = |row: &LedgerRow| principal.roots.is_none() || app.reaches(&principal, &row.workspace);
        found.rows.extend(rows.into_iter().filter(is_own));
        found.next = next;
        if found.rows.len() >= wanted || found.next.is_none() || is_cut {
            break;
        }
        query.after.clone_from(&found.next);
    }
    let archived = app.engine().archived_before().await?;
    let reads_all = principal.reads_all();
    Ok(Json(LedgerRows {
        rows: found.rows.into_iter().map(|row| LedgerRowView::new(row, reads_all)).collect(),
        next: found.next.as_ref().map(|next| text(next, &principal)).transpose()?,
        archived_before: archived.filter(|archived| from.is_none_or(|from| from < *archived)),
    }))
}
