//! Language servers.

use std::path::Path;

use axum::Json;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::native::lsp::{LspStanding, views};
use crate::wire::asked::Asked;
use crate::wire::failure::Named;

#[derive(Deserialize)]
struct SymbolSearch {
    query: String,
}

/// `GET /lsp`: those that run or failed.
pub(crate) async fn status(asked: Asked) -> Result<Json<Vec<Value>>, Named> {
    let place = asked.place().await?;
    let views = views(&asked.app, &asked.principal, Some(place.directory.to_string())).await?;
    let known = views.into_iter().filter_map(|view| {
        let status = match view.status {
            LspStanding::Connected => "connected",
            LspStanding::Failed => "error",
            LspStanding::Starting | LspStanding::Stopped => return None,
        };
        Some(json!({"id": view.name, "name": view.name, "root": view.root, "status": status}))
    });
    Ok(Json(known.collect()))
}

/// `GET /find/symbol`
pub(crate) async fn symbols(asked: Asked) -> Result<Json<Vec<Value>>, Named> {
    let SymbolSearch { query } = asked.query()?;
    let place = asked.place().await?;
    let Some(servers) = asked.app.engine().lsp() else { return Ok(Json(Vec::new())) };
    let found = servers.symbols(&asked.principal.tenant, Path::new(&*place.directory), &query).await;
    let symbol = |symbol: playhouse_actors::LspSymbol| {
        let at = |(line, character): (u32, u32)| json!({"line": line, "character": character});
        let range = json!({"start": at(symbol.start), "end": at(symbol.end)});
        json!({"name": symbol.name, "kind": symbol.kind, "location": {"uri": symbol.uri, "range": range}})
    };
    Ok(Json(found.into_iter().map(symbol).collect()))
}
