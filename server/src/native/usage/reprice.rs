//! Rows of the ledger, priced anew.

use axum::Json;
use axum::extract::State;
use playhouse_protocol::ledger::{RepriceReport, RepriceRequest};
#[cfg(test)]
use schemars::SchemaGenerator;

use crate::app::App;
use crate::native::extract::Body;
#[cfg(test)]
use crate::native::openapi::operation::Operation;
use crate::principal::Operator;
#[cfg(test)]
use crate::problem::Kind;
use crate::problem::Problem;

/// As [`reprice`] is described.
#[cfg(test)]
pub(crate) const REPRICE: Operation = Operation {
    method: "post",
    path: "/v1/usage/reprice",
    id: "repriceUsage",
    summary: "Add corrections for rows that cost something else at the prices that hold now. On the Unix socket only, for the operator. Repeating it adds nothing.",
    ids: &[],
    query: None,
    body: Some(SchemaGenerator::subschema_for::<RepriceRequest>),
    answer: (200, "It was done, or shown.", Some(SchemaGenerator::subschema_for::<RepriceReport>)),
    problems: &[
        (Kind::Invalid, "No day is in between, or no row is of such a model."),
        (Kind::Forbidden, "It is not the operator who asks on the Unix socket."),
    ],
};

/// `POST /v1/usage/reprice`
pub(crate) async fn reprice(
    State(app): State<App>,
    Operator: Operator,
    Body(request): Body<RepriceRequest>,
) -> Result<Json<RepriceReport>, Problem> {
    Ok(Json(app.engine().reprice(request).await?))
}
