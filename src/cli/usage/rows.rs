//! `playhouse usage rows`: rows of the ledger, one by one.

use clap::{Args, ValueEnum};
use playhouse_protocol::{Day, ModelRef, SessionId};
use playhouse_server::RowSearch;
use serde_json::Value;

use super::quoted;
use crate::cli::{Failure, print, say};
use crate::client::Client;

/// Rows that are asked for at once.
const PAGE: usize = 1_000;

/// Which rows, and how they are printed.
#[derive(Debug, Args)]
pub(super) struct RowArguments {
    /// Only from this day (UTC) on: YYYY-MM-DD
    #[arg(long, value_name = "DAY")]
    from: Option<Day>,
    /// Only before this day
    #[arg(long, value_name = "DAY")]
    to: Option<Day>,
    /// Only this tenant's
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Only those of this session
    #[arg(long, value_name = "SESSION")]
    session: Option<SessionId>,
    /// Only those of this provider
    #[arg(long, value_name = "PROVIDER")]
    provider: Option<String>,
    /// Only those of this model
    #[arg(long, value_name = "PROVIDER/MODEL")]
    model: Option<ModelRef>,
    /// Only those with this label
    #[arg(long, value_name = "NAME=VALUE")]
    label: Option<String>,
    /// Only those of prompts that came with the key of this id
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// How to print them
    #[arg(long, value_enum, default_value_t = RowFormat::Ndjson)]
    format: RowFormat,
}

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RowFormat {
    /// One a line, as JSON
    Ndjson,
    /// With a line of names
    Csv,
}

/// Prints rows page by page.
pub(super) async fn rows(client: &Client, arguments: RowArguments) -> Result<(), Failure> {
    let RowArguments { from, to, tenant, session, provider, model, label, key, format } = arguments;
    let mut search = RowSearch {
        from: from.map(|day| day.to_string()),
        to: to.map(|day| day.to_string()),
        session,
        provider,
        model,
        label,
        key,
        limit: Some(PAGE),
        ..RowSearch::default()
    };
    if format == RowFormat::Csv {
        print(&(COLUMNS.map(|(name, _)| name).join(",") + "\n"))?;
    }
    let mut archived_before = None;
    loop {
        let page = client.usage_rows(tenant.as_deref(), &search).await?;
        let lines = page["rows"].as_array().into_iter().flatten().map(|row| match format {
            RowFormat::Ndjson => format!("{row}\n"),
            RowFormat::Csv => csv(row),
        });
        print(&lines.collect::<String>())?;
        archived_before = page["archived_before"].as_u64().or(archived_before);
        match page["next"].as_str() {
            Some(next) => search.after = Some(next.to_owned()),
            None => break,
        }
    }
    if let Some(before) = archived_before {
        let day = Day::of(playhouse_protocol::Timestamp::from_millis(before));
        say(&format!(
            "rows from before {day} were archived: what `playhouse usage archive` wrote to files is not in this list"
        ));
    }
    Ok(())
}

/// Names of columns, and where their values stand in a row.
const COLUMNS: [(&str, &str); 39] = [
    ("id", "/id"),
    ("started", "/started"),
    ("ended", "/ended"),
    ("tenant", "/tenant"),
    ("workspace", "/workspace"),
    ("session", "/session"),
    ("root", "/root"),
    ("parent_step", "/parent_step"),
    ("turn", "/turn"),
    ("step", "/step"),
    ("step_number", "/step_number"),
    ("attempt", "/attempt"),
    ("attempt_number", "/attempt_number"),
    ("agent", "/agent"),
    ("purpose", "/purpose"),
    ("provider", "/provider"),
    ("model", "/model"),
    ("answered_by", "/answered_by"),
    ("tier", "/tier"),
    ("input", "/tokens/input"),
    ("cache_read", "/tokens/cache_read"),
    ("cache_write_5m", "/tokens/cache_write_5m"),
    ("cache_write_30m", "/tokens/cache_write_30m"),
    ("cache_write_1h", "/tokens/cache_write_1h"),
    ("cache_write_12h", "/tokens/cache_write_12h"),
    ("output", "/tokens/output"),
    ("reasoning", "/tokens/reasoning"),
    ("quality", "/quality"),
    ("cost", "/cost"),
    ("currency", "/currency"),
    ("provider_cost", "/provider_cost"),
    ("assumed", "/assumed"),
    ("served", "/served"),
    ("labels", "/labels"),
    ("key", "/key/id"),
    ("key_name", "/key/name"),
    ("corrects", "/corrects"),
    ("late", "/late"),
    ("calls", "/calls"),
];

/// A row as a line. Lists and labels are JSON in a cell; what is absent is empty.
fn csv(row: &Value) -> String {
    let cell = |(_, place): (&str, &str)| match row.pointer(place) {
        None | Some(Value::Null) if place.starts_with("/tokens/") => "0".to_owned(),
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => quoted(text),
        Some(value) => quoted(&value.to_string()),
    };
    COLUMNS.map(cell).join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_has_the_cells_of_its_names() {
        let row = json!({
            "id": "row_1", "tenant": "a,b", "tokens": {"input": 7}, "cost": "0.021", "currency": "USD",
            "labels": {"customer": "c-42"}, "key": {"id": "key_1", "name": "ci"}, "ended": 5,
        });
        let line = csv(&row);
        assert!(line.starts_with("row_1,,5,\"a,b\",,"), "{line}");
        let tail = ",,0.021,USD,,,,\"{\"\"customer\"\":\"\"c-42\"\"}\",key_1,ci,,,\n";
        assert!(line.contains(",7,0,0,0,0,0,0,0") && line.ends_with(tail), "{line}");
    }
}
