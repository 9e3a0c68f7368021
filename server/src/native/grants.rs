//! What people allowed for always.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use playhouse_protocol::consent::Grant;
use playhouse_protocol::{ConsentId, PermissionRule, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;

use super::extract::Ids;
use crate::app::App;
use crate::principal::Principal;
use crate::problem::Problem;

/// Something that was allowed for always.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct GrantView {
    id: String,
    workspace: String,
    rule: PermissionRule,
    given: Timestamp,
    consent: ConsentId,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Grants {
    grants: Vec<GrantView>,
}

/// Those of workspaces that the key may use.
async fn reached(app: &App, principal: &Principal) -> Result<Vec<Grant>, Problem> {
    let mut grants = app.engine().grants(principal.whose()).await?;
    grants.retain(|grant| app.reaches(principal, &grant.workspace));
    Ok(grants)
}

/// `GET /v1/grants`
pub(crate) async fn list(State(app): State<App>, principal: Principal) -> Result<Json<Grants>, Problem> {
    let grants = reached(&app, &principal).await?;
    let view = |grant: Grant| {
        let Grant { id, workspace, rule, given, consent, tenant: _ } = grant;
        GrantView { id, workspace, rule, given, consent }
    };
    Ok(Json(Grants { grants: grants.into_iter().map(view).collect() }))
}

/// `DELETE /v1/grants/{grant}`
pub(crate) async fn revoke(
    State(app): State<App>,
    principal: Principal,
    Ids(id): Ids<String>,
) -> Result<StatusCode, Problem> {
    let grants = reached(&app, &principal).await?;
    if !grants.iter().any(|grant| grant.id == id) {
        return Err(Problem::not_found("nothing is allowed for always under this name"));
    }
    app.engine().revoke(principal.whose(), &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
