//! What the caller may use, and what is left of it.

use axum::Json;
use axum::extract::State;
use playhouse_protocol::Limit;
use schemars::JsonSchema;
#[cfg(test)]
use schemars::SchemaGenerator;
use serde::Serialize;

#[cfg(test)]
use super::openapi::operation::Operation;
use crate::app::App;
use crate::principal::Principal;
use crate::problem::Problem;

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LimitList {
    /// Each limit that holds for the caller. Budgets of each turn and of each session tell their maximum
    /// only; so do all for a key with directories of its own.
    limits: Vec<Limit>,
}

/// `GET /v1/limits`
#[cfg(test)]
pub(crate) const LIST: Operation = Operation {
    method: "get",
    path: "/v1/limits",
    id: "listLimits",
    summary: "The limits that hold for the caller, what is used, what is left, and when they renew.",
    ids: &[],
    query: None,
    body: None,
    answer: (200, "It worked.", Some(SchemaGenerator::subschema_for::<LimitList>)),
    problems: &[],
};

/// `GET /v1/limits`
pub(crate) async fn list(State(app): State<App>, principal: Principal) -> Result<Json<LimitList>, Problem> {
    let mut limits = app.limits_of(&principal).await?;
    limits.extend(app.engine().budgets(&principal.tenant).await?);
    limits.extend(app.engine().storage_limit(&principal.tenant));
    // What all of the tenant uses would tell of what lies outside of the key's directories.
    if principal.roots.is_some() {
        limits.iter_mut().for_each(|limit| (limit.used, limit.left) = (None, None));
    }
    Ok(Json(LimitList { limits }))
}
