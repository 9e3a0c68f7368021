//! `playhouse usage`: what was used and what it cost, and writing old rows of the ledger away.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use playhouse_protocol::Day;
use playhouse_protocol::ledger::{ArchiveQuery, GroupBy, UsageLine, UsageQuery};
use serde_json::json;

use super::asker::visible;
use super::reach::{Reach, open};
use super::sessions::json;
use super::{CommandResult, Common, Exit, Failure, print, say};

/// Groups and rows that are asked for at once.
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
    /// What sums are told apart by: tenant, session, model, provider, day, purpose, agent
    #[arg(long, value_name = "GROUPS", value_delimiter = ',')]
    by: Vec<GroupBy>,
    /// Only this tenant's
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// How to print it
    #[arg(long, value_enum, default_value_t = UsageFormat::Table)]
    format: UsageFormat,
}

#[derive(Debug, Subcommand)]
enum UsageCommand {
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
    let held = open(common).await?;
    let result = match arguments.command {
        Some(UsageCommand::Archive { before, output }) => {
            let file = match output {
                Some(path) => Archive::at(path),
                None => Archive::below(&common.data()?.join(FOLDER), before),
            };
            match file {
                Ok(file) => archive(held.reach(), before, file).await,
                Err(failure) => Err(failure),
            }
        }
        None => sums(held.reach(), arguments.sums).await,
    };
    held.close().await;
    result.map(|()| Exit::Completed)
}

async fn sums(reach: &Reach, arguments: SumArguments) -> Result<(), Failure> {
    let SumArguments { from, to, by, tenant, format } = arguments;
    let mut groups: Vec<GroupBy> = Vec::new();
    by.into_iter().for_each(|group| {
        if !groups.contains(&group) {
            groups.push(group);
        }
    });
    let (from, to) = (from.map(Day::start), to.map(Day::start));
    let mut query = UsageQuery { tenant, from, to, by: groups.clone(), after: None, limit: PAGE };
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
    Ok(())
}

/// What a line says of a group.
fn of_group(group: GroupBy, line: &UsageLine) -> String {
    let key = &line.key;
    let text = match group {
        GroupBy::Tenant => key.tenant.clone(),
        GroupBy::Session => key.session.map(|session| session.to_string()),
        GroupBy::Model => key.model.clone(),
        GroupBy::Provider => key.provider.clone(),
        GroupBy::Day => key.day.map(|day| day.to_string()),
        GroupBy::Purpose => key.purpose.map(|purpose| purpose.to_string()),
        GroupBy::Agent => key.agent.clone(),
    };
    text.unwrap_or_default()
}

const NUMBERS: [&str; 9] = [
    "input",
    "cache_read",
    "cache_write",
    "output",
    "reasoning",
    "cost",
    "rows",
    "estimated_rows",
    "unpriced_rows",
];

fn numbers(line: &UsageLine) -> [String; 9] {
    [
        line.input.to_string(),
        line.cache_read.to_string(),
        line.cache_write.to_string(),
        line.output.to_string(),
        line.reasoning.to_string(),
        line.cost.0.normalize().to_string(),
        line.rows.to_string(),
        line.estimated_rows.to_string(),
        line.unpriced_rows.to_string(),
    ]
}

fn table(groups: &[GroupBy], lines: &[UsageLine]) -> String {
    let mut rows = vec![names(groups).map(|name| name.to_uppercase().replace('_', " ")).collect::<Vec<_>>()];
    rows.extend(lines.iter().map(|line| {
        let mut cells = numbers(line);
        // Rounded: the exact amount is in the other forms. What is not known is none of it.
        cells[5] = line.cost.to_string() + if line.unpriced_rows > 0 { "+?" } else { "" };
        groups.iter().map(|group| visible(&of_group(*group, line))).chain(cells).collect()
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

fn names(groups: &[GroupBy]) -> impl Iterator<Item = &'static str> {
    groups.iter().map(|group| group.name()).chain(NUMBERS)
}

fn csv(groups: &[GroupBy], lines: &[UsageLine]) -> String {
    let mut text = names(groups).collect::<Vec<_>>().join(",") + "\n";
    for line in lines {
        let cells = groups.iter().map(|group| of_group(*group, line)).chain(numbers(line));
        text.push_str(&cells.map(|cell| quoted(&cell)).collect::<Vec<_>>().join(","));
        text.push('\n');
    }
    text
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

/// A file of rows that left the ledger. It is made when there is something to write.
#[derive(Debug)]
struct Archive {
    path: PathBuf,
    file: Option<fs::File>,
}

impl Archive {
    fn at(path: PathBuf) -> Result<Self, Failure> {
        if path.try_exists()? {
            let path = path.display();
            return Err(Failure::usage(format!("{path} is there already: name a new file with --output")));
        }
        Ok(Self { path, file: None })
    }

    /// A name in this folder that is not taken.
    fn below(folder: &Path, before: Day) -> Result<Self, Failure> {
        fs::create_dir_all(folder)?;
        for number in 1_u64.. {
            let more = if number == 1 { String::new() } else { format!("-{number}") };
            let path = folder.join(format!("usage-before-{before}{more}.jsonl"));
            if !path.try_exists()? {
                return Ok(Self { path, file: None });
            }
        }
        Err(Failure::failed(format!("{} is full", folder.display())))
    }

    /// Adds lines. They are on the disk on return.
    fn add(&mut self, lines: &str) -> std::io::Result<()> {
        if let Some(file) = &mut self.file {
            file.write_all(lines.as_bytes())?;
            return file.sync_data();
        }
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&self.path)?;
        file.write_all(lines.as_bytes())?;
        file.sync_all()?;
        // So that its name is there too after a loss of power.
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        self.file = Some(file);
        Ok(())
    }
}

/// Rows leave the ledger when they are in the file. Of a command that is cut off in between, the last page of rows stands in
/// both; rows have ids.
async fn archive(reach: &Reach, before: Day, mut file: Archive) -> Result<(), Failure> {
    let mut query = ArchiveQuery { before: before.start(), up_to: None, after: 0, limit: PAGE };
    let (mut written, mut kept, mut behind) = (0, 0, Vec::new());
    loop {
        let page = reach.archivable(query.clone()).await?;
        let mut lines = String::new();
        for row in &page.rows {
            lines += &json(row)?;
            lines.push('\n');
        }
        if !lines.is_empty() {
            file.add(&lines)?;
        }
        if !page.numbers.is_empty() {
            written += reach.archive(query.before, page.numbers).await?;
        }
        kept += page.kept;
        if page.kept > 0 {
            behind = page.behind;
        }
        match page.next {
            Some(next) => query.after = next,
            None => break,
        }
    }
    let rows = |count| if count == 1 { "1 row".to_owned() } else { format!("{count} rows") };
    if file.file.is_some() {
        print(&format!("{}\n", file.path.display()))?;
    }
    say(&format!("wrote {} away", rows(written)));
    if kept > 0 {
        let (rows, behind) = (rows(kept), behind.join(", "));
        say(&format!("left {rows} that not every sink has yet: see `playhouse billing status` for {behind}"));
    }
    Ok(())
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
            let cost = Cost("0.00012345".parse().unwrap());
            let totals = Totals { tokens, cost, attempts: 2, estimated: 1, unpriced };
            UsageLine::from(UsageGroup { key, sum: UsageSum { totals, unreconciled: 0 } })
        };
        vec![line("build", 0), line("a \"b\", c", 1)]
    }

    #[test]
    fn sums_are_shown_as_a_table_and_as_values_with_commas() {
        let groups = [GroupBy::Day, GroupBy::Agent];
        let table = table(&groups, &lines());
        let shown: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split("  ").filter(|cell| !cell.is_empty()).map(str::trim).collect())
            .collect();
        assert_eq!(shown[0][..3], ["DAY", "AGENT", "INPUT"]);
        assert_eq!(shown[1], ["2026-11-22", "build", "1200", "0", "7", "0", "0", "$0.0001", "2", "1", "0"]);
        assert!(table.contains("$0.0001+?"), "{table}");
        let csv = csv(&groups, &lines());
        let expected = "day,agent,input,cache_read,cache_write,output,reasoning,cost,rows,estimated_rows,unpriced_rows\n\
            2026-11-22,build,1200,0,7,0,0,0.00012345,2,1,0\n\
            2026-11-22,\"a \"\"b\"\", c\",1200,0,7,0,0,0.00012345,2,1,1\n";
        assert_eq!(csv, expected);
    }
}
