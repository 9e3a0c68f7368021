//! `playhouse usage reprice`: corrects what rows cost.

use clap::{Args, ValueEnum};
use playhouse_protocol::ledger::{RepriceReport, RepriceRequest};
use playhouse_protocol::{Day, ModelRef};

use crate::cli::sessions::json;
use crate::cli::{Failure, print};
use crate::client::Client;

/// Which rows are priced anew.
#[derive(Debug, Args)]
pub(super) struct RepriceArguments {
    /// The first day (UTC) whose rows are priced anew: YYYY-MM-DD
    #[arg(long, value_name = "DAY")]
    from: Day,
    /// The first day behind them
    #[arg(long, value_name = "DAY")]
    to: Day,
    /// A model whose rows are priced anew. May be repeated
    #[arg(long, value_name = "PROVIDER/MODEL", required = true)]
    model: Vec<ModelRef>,
    /// Only say what would be corrected
    #[arg(long)]
    dry_run: bool,
    /// How to print it
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    format: ReportFormat,
}

/// How the report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReportFormat {
    /// For people
    Text,
    /// One object
    Json,
}

/// Adds corrections, and prints what came of it.
pub(super) async fn reprice(client: &Client, arguments: RepriceArguments) -> Result<(), Failure> {
    let RepriceArguments { from, to, model, dry_run, format } = arguments;
    let report = client.reprice(&RepriceRequest { from, to, models: model, dry_run }).await?;
    print(&match format {
        ReportFormat::Text => text(&report),
        ReportFormat::Json => json(&report)? + "\n",
    })?;
    Ok(())
}

fn text(report: &RepriceReport) -> String {
    let corrected = if report.dry_run { "would be corrected" } else { "corrected" };
    let counts = [
        (report.looked_at, "looked at".to_owned()),
        (report.corrected, corrected.to_owned()),
        (report.unpriced, "left, since their model has no price".to_owned()),
        (report.archived, "archived, which are not priced anew".to_owned()),
    ];
    let mut text: String = counts
        .into_iter()
        .map(|(count, what)| format!("{count} row{} {what}\n", if count == 1 { "" } else { "s" }))
        .collect();
    for (currency, cost) in &report.difference {
        text += &format!("difference: {} {currency}\n", cost.0);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_was_left_and_the_exact_difference() {
        let difference = [("USD".to_owned(), playhouse_protocol::Cost("-0.000210".parse().unwrap()))].into();
        let report =
            RepriceReport { looked_at: 3, corrected: 1, archived: 2, difference, ..RepriceReport::default() };
        let expected = "3 rows looked at\n1 row corrected\n0 rows left, since their model has no price\n\
            2 rows archived, which are not priced anew\ndifference: -0.000210 USD\n";
        assert_eq!(text(&report), expected);
        let dry = RepriceReport { dry_run: true, ..report };
        assert!(text(&dry).contains("1 row would be corrected"));
    }
}
