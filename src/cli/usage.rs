//! `playhouse usage`: what was used and what it cost.

mod reprice;
mod rows;

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use playhouse_protocol::Day;
use playhouse_protocol::ledger::{GroupBy, Grouping, UsageLine, UsageQuery};
use serde_json::json;

use super::archive::archive;
use super::asker::visible;
use super::reach::{Reach, open};
use super::sessions::json;
use super::{CommandResult, Common, Exit, Failure, print, say};

/// Groups that are asked for at once.
const PAGE: usize = 1_000;

/// Where rows go when nobody says, in the data directory.
const FOLDER: &str = "archive";

/// Arguments of `playhouse usage`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct UsageArguments {
    #[command(subcommand)]
    command: Option<UsageCommand>,
    #[command(flatten)]
    sums: SumArguments,
}

#[derive(Debug, Args)]
struct SumArguments {
    /// Only from this day (UTC) on: YYYY-MM-DD
    #[arg(long, value_name = "DAY")]
    from: Option<Day>,
    /// Only before this day
    #[arg(long, value_name = "DAY")]
    to: Option<Day>,
    /// What sums are told apart by: tenant, session, model, provider, day, purpose, agent, key, label:NAME
    #[arg(long, value_name = "GROUPS", value_delimiter = ',')]
    by: Vec<Grouping>,
    /// Only this tenant's
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// How to print it
    #[arg(long, value_enum, default_value_t = UsageFormat::Table)]
    format: UsageFormat,
}

#[derive(Debug, Subcommand)]
enum UsageCommand {
    /// Print rows of the ledger, one for each request to a model that used tokens, or may have
    Rows(rows::RowArguments),
    /// Correct what rows cost: add the difference to the prices that hold now
    Reprice(reprice::RepriceArguments),
    /// Write rows to a file, one a line as JSON, and remove them from the ledger. Sums stay
    Archive {
        /// What ended before this day (UTC): YYYY-MM-DD
        #[arg(long, value_name = "DAY")]
        before: Day,
        /// The file, which must not be there yet [default: a new one in `archive` in the data directory]
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

/// How sums are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum UsageFormat {
    /// For people
    Table,
    /// One object with `rows`
    Json,
    /// With a line of names
    Csv,
}

pub(super) async fn usage(common: &Common, arguments: UsageArguments) -> CommandResult {
    if let (Some(from), Some(to)) = (arguments.sums.from, arguments.sums.to)
        && from > to
    {
        return Err(Failure::usage(format!("--from {from} is after --to {to}: nothing can be in between")));
    }
    let folder = common.data()?.join(FOLDER);
    let held = open(common).await?;
    let result = match arguments.command {
        Some(UsageCommand::Archive { before, output }) => {
            archive(held.reach(), &folder, before, output).await
        }
        Some(UsageCommand::Rows(arguments)) => rows::rows(&held.client(), arguments).await,
        Some(UsageCommand::Reprice(arguments)) => reprice::reprice(&held.client(), arguments).await,
        None => sums(held.reach(), arguments.sums).await,
    };
    held.close().await;
    result.map(|()| Exit::Completed)
}

async fn sums(reach: &Reach, arguments: SumArguments) -> Result<(), Failure> {
    let SumArguments { from, to, by, tenant, format } = arguments;
    let mut groups: Vec<Grouping> = Vec::new();
    by.into_iter().for_each(|group| {
        if !groups.contains(&group) {
            groups.push(group);
        }
    });
    // Whose a session is belongs to it, in every form.
    let tenant_group = Grouping::By(GroupBy::Tenant);
    let place = groups.iter().position(|group| *group == Grouping::By(GroupBy::Session));
    if let (Some(place), false) = (place, groups.contains(&tenant_group)) {
        groups.insert(place, tenant_group);
    }
    let is_all = from.is_none() && to.is_none();
    let (from, to) = (from.map(Day::start), to.map(Day::start));
    let (by, labels) = Grouping::split(&groups);
    let mut query = UsageQuery { tenant, from, to, by, labels, limit: PAGE, ..UsageQuery::default() };
    let mut lines: Vec<UsageLine> = Vec::new();
    loop {
        let page = reach.usage(query.clone()).await?;
        lines.extend(page.groups.into_iter().map(UsageLine::from));
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    print(&match format {
        UsageFormat::Table => table(&groups, &lines),
        UsageFormat::Json => json(&json!({ "rows": lines }))? + "\n",
        UsageFormat::Csv => csv(&groups, &lines),
    })?;
    let said = lines.iter().filter_map(|line| line.provider_says).reduce(|mut sum, says| {
        sum.cost += says.cost;
        sum.difference += says.difference;
        sum
    });
    if let (Some(said), UsageFormat::Table) = (said, format) {
        say(&format!(
            "providers say that answers cost {}; the difference to the same rows here is {}",
            said.cost, said.difference
        ));
    }
    if let (Some(tenant), true) = (&query.tenant, lines.is_empty()) {
        let when = if is_all { "" } else { " at that time" };
        say(&format!("no usage of tenant {}{when}", visible(tenant)));
    }
    Ok(())
}

/// What a line says of a group.
fn of_group(group: &Grouping, line: &UsageLine) -> String {
    let key = &line.key;
    let group = match group {
        Grouping::By(group) => group,
        label @ Grouping::Label(_) => {
            return key.labels.get(&label.to_string()).cloned().flatten().unwrap_or_default();
        }
    };
    let text = match group {
        GroupBy::Tenant => key.tenant.clone(),
        GroupBy::Session => key.session.map(|session| session.to_string()),
        GroupBy::Model => key.model.clone(),
        GroupBy::Provider => key.provider.clone(),
        GroupBy::Day => key.day.map(|day| day.to_string()),
        GroupBy::Purpose => key.purpose.map(|purpose| purpose.to_string()),
        GroupBy::Agent => key.agent.clone(),
        // Names of keys may be the same.
        GroupBy::Key => key.key.clone().flatten().map(|key| format!("{} ({})", key.name, key.id)),
    };
    text.unwrap_or_default()
}

const NUMBERS: [&str; 11] = [
    "input",
    "cache_read",
    "cache_write",
    "output",
    "reasoning",
    "cost",
    "rows",
    "estimated_rows",
    "unpriced_rows",
    "unreconciled_rows",
    "assumed_rows",
];

/// As JSON has them: money exactly.
fn numbers(line: &UsageLine) -> [String; 11] {
    [
        line.input.to_string(),
        line.cache_read.to_string(),
        line.cache_write.to_string(),
        line.output.to_string(),
        line.reasoning.to_string(),
        line.cost.0.to_string(),
        line.rows.to_string(),
        line.estimated_rows.to_string(),
        line.unpriced_rows.to_string(),
        line.unreconciled_rows.to_string(),
        line.assumed_rows.to_string(),
    ]
}

fn table(groups: &[Grouping], lines: &[UsageLine]) -> String {
    let mut rows =
        vec![names(groups).map(|name| visible(&name.to_uppercase().replace('_', " "))).collect::<Vec<_>>()];
    rows.extend(lines.iter().map(|line| {
        let mut cells = numbers(line);
        // Rounded: the exact amount is in the other forms. What is not known is none of it.
        cells[5] = line.cost.to_string() + if line.unpriced_rows > 0 { "+?" } else { "" };
        groups.iter().map(|group| visible(&of_group(group, line))).chain(cells).collect()
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..groups.len() + NUMBERS.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if column < groups.len() { format!("{cell:width$}") } else { format!("{cell:>width$}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn names(groups: &[Grouping]) -> impl Iterator<Item = String> {
    groups.iter().map(ToString::to_string).chain(NUMBERS.map(str::to_owned))
}

fn csv(groups: &[Grouping], lines: &[UsageLine]) -> String {
    let mut text = names(groups).map(|name| quoted(&name)).collect::<Vec<_>>().join(",") + "\n";
    for line in lines {
        let cells = groups.iter().map(|group| of_group(group, line)).chain(numbers(line));
        text.push_str(&cells.map(|cell| quoted(&cell)).collect::<Vec<_>>().join(","));
        text.push('\n');
    }
    text
}

/// A cell of a line. What tenants wrote does nothing in a terminal or a spreadsheet: control characters are written as JSON
/// has them, and what would be taken for a formula begins with an apostrophe.
fn quoted(cell: &str) -> String {
    let mut text = String::with_capacity(cell.len());
    if cell.starts_with(['=', '+', '-', '@']) && cell.parse::<rust_decimal::Decimal>().is_err() {
        text.push('\'');
    }
    for c in cell.chars() {
        match c {
            '\n' => text.push(c),
            c if c.is_control() => drop(write!(text, "\\u{:04x}", u32::from(c))),
            c => text.push(c),
        }
    }
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::ledger::{UsageGroup, UsageKey, UsageSum};
    use playhouse_protocol::usage::{Cost, Tokens, Totals};

    use super::*;

    fn lines() -> Vec<UsageLine> {
        let line = |agent: &str, unpriced| {
            let key = UsageKey {
                day: Some("2026-11-22".parse().unwrap()),
                agent: Some(agent.to_owned()),
                ..UsageKey::default()
            };
            let tokens = Tokens { input: 1_200, cache_write_5m: 3, cache_write_1h: 4, ..Tokens::default() };
            let cost = Cost("0.000123450".parse().unwrap());
            let totals = Totals { tokens, cost, attempts: 2, estimated: 1, unpriced };
            UsageLine::from(UsageGroup {
                key,
                sum: UsageSum { totals, unreconciled: 3, assumed: 4, ..UsageSum::default() },
            })
        };
        vec![line("build", 0), line("a \"b\", c", 1)]
    }

    #[test]
    fn what_tenants_wrote_does_nothing_in_a_terminal_or_a_spreadsheet() {
        for (cell, written) in [
            ("c-42", "c-42"),
            ("=1+1", "'=1+1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("-2+3", "'-2+3"),
            ("-0.00210", "-0.00210"),
            ("a\u{1b}[31mred", "a\\u001b[31mred"),
            ("\t=1", "\\u0009=1"),
            ("a\r\nb", "\"a\\u000d\nb\""),
            ("=\"x\",1", "\"'=\"\"x\"\",1\""),
        ] {
            assert_eq!(quoted(cell), written, "{cell:?}");
        }
    }

    #[test]
    fn sums_are_shown_as_a_table_and_as_values_with_commas() {
        let groups = [Grouping::By(GroupBy::Day), Grouping::By(GroupBy::Agent)];
        let table = table(&groups, &lines());
        let shown: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split("  ").filter(|cell| !cell.is_empty()).map(str::trim).collect())
            .collect();
        assert_eq!(shown[0][..3], ["DAY", "AGENT", "INPUT"]);
        assert_eq!(
            shown[1],
            ["2026-11-22", "build", "1200", "0", "7", "0", "0", "$0.0001", "2", "1", "0", "3", "4"]
        );
        assert!(table.contains("$0.0001+?"), "{table}");
        let csv = csv(&groups, &lines());
        let expected = "day,agent,input,cache_read,cache_write,output,reasoning,cost,rows,estimated_rows,unpriced_rows,unreconciled_rows,assumed_rows\n\
            2026-11-22,build,1200,0,7,0,0,0.00012345,2,1,0,3,4\n\
            2026-11-22,\"a \"\"b\"\", c\",1200,0,7,0,0,0.00012345,2,1,1,3,4\n";
        assert_eq!(csv, expected);
    }
}
