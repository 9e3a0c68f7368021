//! Routes whose handlers have one type.
//!
//! axum compiles its layers once for each type of handler, and every function is a type of its own. With more than a hundred
//! operations that was a fifth of what this crate took to compile.

use std::pin::Pin;
use std::sync::Arc;

use axum::extract::Request;
use axum::handler::Handler;
use axum::response::Response;
use axum::routing::{self, MethodFilter, MethodRouter};

use crate::app::App;

/// What axum makes of a function that handles requests.
type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Any handler.
#[derive(Clone)]
struct AnyHandler(Arc<dyn Fn(Request, App) -> Answering + Send + Sync>);

impl Handler<(), App> for AnyHandler {
    type Future = Answering;

    fn call(self, request: Request, app: App) -> Answering {
        (self.0)(request, app)
    }
}

fn on<T: 'static>(
    method: MethodFilter,
    handler: impl Handler<T, App, Future = Answering>,
) -> MethodRouter<App> {
    let call = move |request, app| handler.clone().call(request, app);
    routing::on(method, AnyHandler(Arc::new(call)))
}

/// As [`axum::routing::get`].
pub(crate) fn get<T: 'static>(handler: impl Handler<T, App, Future = Answering>) -> MethodRouter<App> {
    on(MethodFilter::GET, handler)
}

/// As [`axum::routing::post`].
pub(crate) fn post<T: 'static>(handler: impl Handler<T, App, Future = Answering>) -> MethodRouter<App> {
    on(MethodFilter::POST, handler)
}

/// As [`axum::routing::patch`].
pub(crate) fn patch<T: 'static>(handler: impl Handler<T, App, Future = Answering>) -> MethodRouter<App> {
    on(MethodFilter::PATCH, handler)
}

/// As [`axum::routing::delete`].
pub(crate) fn delete<T: 'static>(handler: impl Handler<T, App, Future = Answering>) -> MethodRouter<App> {
    on(MethodFilter::DELETE, handler)
}
