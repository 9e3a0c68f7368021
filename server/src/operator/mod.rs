//! The operator's own commands, as clients of the engine that has their data directory open.
//!
//! They ask with [`OperatorRequest`]s, which are what the handles do in process, at one place on the Unix socket; nobody
//! else finds that place. Events come as the streams that all clients read. [`OperatorClient`] is the other end.

mod answer;
mod api;
mod client;
mod events;
mod idle;

use std::sync::Arc;

use axum::extract::{FromRequest as _, Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use futures::future::BoxFuture;
use playhouse_actors::try_blocking;
use playhouse_protocol::operator::{
    BillingRequest, EngineFacts, OperatorReply, OperatorRequest, ScriptedCall,
};
use playhouse_protocol::{Command, CommandError, ModelRef};
use playhouse_store::Upkeep;
use tower_http::limit::RequestBodyLimitLayer;

use crate::app::App;
use crate::connection::Carrier;
use crate::native::extract::Body;
use crate::principal::Principal;
use crate::problem::Problem;

pub use answer::{Operator, answer_store};
pub(crate) use api::{ask, events};
pub use client::{DirectClient, OperatorClient, OperatorError};
pub use events::OperatorEvents;
pub(crate) use idle::idle;

/// Where the requests go.
const PATH: &str = "/operator";

/// The most bytes of a request: a script of calls or a prompt that is as long as any may be, as JSON writes it.
const LARGEST: usize = 64 * 1024 * 1024;

/// What the server cannot know or do by itself for the operator's commands.
pub trait Operations: Send + Sync {
    /// What the engine is; whether it makes way and whether it is ending is filled in by the server.
    fn engine(&self) -> EngineFacts;

    /// Makes a model of the provider `mock` that makes these calls, one a step.
    ///
    /// # Errors
    /// There is no such tool.
    fn script(&self, calls: &[ScriptedCall]) -> Result<ModelRef, CommandError>;

    /// Does what is asked about the sinks of the ledger.
    ///
    /// # Errors
    /// There is no such sink, or the store failed.
    fn billing(&self, request: BillingRequest) -> BoxFuture<'_, Result<OperatorReply, CommandError>>;

    /// What keeps the store in order.
    fn upkeep(&self) -> Arc<dyn Upkeep>;

    /// By name of each sink, the number of the ledger's feed up to which it needs it no more.
    ///
    /// # Errors
    /// The store failed.
    fn exported(&self) -> BoxFuture<'_, Result<Vec<(String, u64)>, CommandError>>;

    /// Tells the recorder of metrics what the engine does not know. It is about to be asked.
    fn observe(&self);
}

/// The route. Nobody but the operator gets so far that the body is read.
pub(crate) fn router() -> Router<App> {
    Router::new().route(PATH, post(operate)).layer(RequestBodyLimitLayer::new(LARGEST))
}

async fn operate(
    State(app): State<App>,
    carrier: Option<Extension<Carrier>>,
    principal: Principal,
    request: Request,
) -> Response {
    let is_operator = carrier.is_some_and(|Extension(carrier)| carrier == Carrier::Unix);
    let operator = app.operator().filter(|_| is_operator && principal.key.is_none()).cloned();
    let Some(operator) = operator else {
        return Problem::not_found(format!("there is nothing at \"{PATH}\"")).into_response();
    };
    let Body(request) = match Body::<OperatorRequest>::from_request(request, &app).await {
        Ok(body) => body,
        Err(problem) => return problem.into_response(),
    };
    app.note_operator();
    let reply = Box::pin(answer(&app, &operator, request)).await.unwrap_or_else(OperatorReply::Failed);
    // A whole log may be in it: making its JSON is work for a thread of its own.
    match try_blocking(move || Json(reply).into_response()).await {
        Ok(response) => response,
        Err(error) => Problem::from(error).into_response(),
    }
}

/// Does what is asked, as a server does that may be ending.
async fn answer(
    app: &App,
    operator: &Operator,
    request: OperatorRequest,
) -> Result<OperatorReply, CommandError> {
    let is_work = match &request {
        OperatorRequest::Create(_) | OperatorRequest::Resume(_) => true,
        OperatorRequest::Command { command, .. } => matches!(command, Command::Prompt(_)),
        _ => false,
    };
    if is_work && app.is_draining() {
        return Err(CommandError::NotAccepted("the engine is stopping: try again when it is back".into()));
    }
    match request {
        OperatorRequest::Leave if app.options().leaves => {
            app.leaving().notify_one();
            return Ok(OperatorReply::Done);
        }
        OperatorRequest::Stay => {
            // The connection is needed until this is answered, and whoever goes away takes the request along.
            app.closing().cancelled().await;
            return Ok(OperatorReply::Done);
        }
        _ => {}
    }
    let mut reply = operator.answer(request).await?;
    match &mut reply {
        OperatorReply::Engine(facts) => {
            facts.background = app.options().leaves;
            facts.ending = app.is_draining();
        }
        // Whoever makes a key wants those without one kept out from now on, not from the next start on.
        OperatorReply::KeyMade { .. } => {
            app.need_key(true);
            learn_keys(app).await;
        }
        OperatorReply::KeyRevoked(_) => learn_keys(app).await,
        _ => {}
    }
    Ok(reply)
}

/// Keys are others than they were.
async fn learn_keys(app: &App) {
    let learning = app.clone();
    match try_blocking(move || learning.learn_keys()).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => {
            tracing::error!(%error, "the keys could not be read: tenants are kept to their workspaces")
        }
        Err(error) => tracing::error!(%error, "the keys could not be read"),
    }
}
