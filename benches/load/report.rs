//! What was measured, as a table and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use crate::{Result, machine};

/// One number.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// The scenario, with its size.
    pub(crate) scenario: String,
    /// What was measured.
    pub(crate) name: String,
    /// The unit.
    pub(crate) unit: &'static str,
    /// The number; `null` where it could not be had.
    pub(crate) value: f64,
    /// What it shall not exceed; absent where nothing is demanded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) goal: Option<f64>,
    /// The peer's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) peer: Option<f64>,
}

/// Rows of one scenario.
pub(crate) struct Rows {
    scenario: String,
    pub(crate) rows: Vec<Row>,
}

impl Rows {
    pub(crate) fn of(scenario: impl Into<String>) -> Self {
        Self { scenario: scenario.into(), rows: Vec::new() }
    }

    /// A number of which nothing is demanded.
    pub(crate) fn add(&mut self, name: impl Into<String>, unit: &'static str, value: f64) {
        self.put(name, unit, value, None);
    }

    /// A number that shall not exceed `goal`.
    pub(crate) fn goal(&mut self, name: impl Into<String>, unit: &'static str, value: f64, goal: f64) {
        self.put(name, unit, value, Some(goal));
    }

    /// A number that shall not exceed `goal` where there is one.
    pub(crate) fn put(&mut self, name: impl Into<String>, unit: &'static str, value: f64, goal: Option<f64>) {
        let (scenario, name) = (self.scenario.clone(), name.into());
        self.rows.push(Row { scenario, name, unit, value, goal, peer: None });
    }
}

impl Row {
    /// Whether it is as it shall be; `None` where nothing is demanded.
    pub(crate) fn is_met(&self) -> Option<bool> {
        // What could not be measured is not met.
        self.goal.map(|goal| self.value <= goal)
    }

    fn line(&self, with_peer: bool) -> String {
        format!("| {} {}", self.scenario, self.cells(with_peer))
    }

    /// The line without its scenario.
    fn cells(&self, with_peer: bool) -> String {
        let Self { name, unit, value, goal, peer, .. } = self;
        let shown = |value: f64| format!("{} {unit}", number(value)).trim_end().to_owned();
        let (goal, verdict) = match (goal, self.is_met()) {
            (Some(goal), Some(met)) => {
                (format!("≤ {}", shown(*goal)), if met { "met" } else { "**MISSED**" })
            }
            _ => Default::default(),
        };
        let mut line = format!("| {name} | {} | {goal} | {verdict} |", shown(*value));
        if with_peer {
            let _ = match peer {
                Some(peer) => write!(line, " {} | {} |", shown(*peer), number(peer / value)),
                None => write!(line, " | |"),
            };
        }
        line
    }
}

/// The commit of the sources, as git tells it.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let folder = env!("CARGO_MANIFEST_DIR");
        let told = std::process::Command::new("git").args(["-C", folder]).args(arguments).output().ok()?;
        told.status.success().then(|| String::from_utf8_lossy(&told.stdout).trim().to_owned())
    };
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
    match git(&["rev-parse", "--short", "HEAD"]) {
        Some(commit) => format!("{commit}{}", if changed { "+" } else { "" }),
        None => "unknown".to_owned(),
    }
}

/// As many digits as matter.
fn number(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => "?".to_owned(),
        size if size >= 1000.0 || value == 0.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// Everything that was measured, and where.
#[derive(Serialize)]
pub(crate) struct Report {
    /// The version of the engine.
    version: &'static str,
    /// When, in UTC.
    at: String,
    /// The commit of the working copy, with a `+` where it was changed.
    commit: String,
    /// Processor, cores, memory and system.
    machine: String,
    /// The words after the program's name.
    arguments: Vec<String>,
    /// Who stands beside the engine.
    peer: Option<String>,
    /// The numbers, in order.
    pub(crate) rows: Vec<Row>,
}

impl Report {
    pub(crate) fn new(peer: Option<String>) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            at: jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M").to_string(),
            commit: commit(),
            machine: machine::line(),
            arguments: std::env::args().skip(1).filter(|word| word != "--bench").collect(),
            peer,
            rows: Vec::new(),
        }
    }

    /// When, what and where.
    fn about(&self) -> String {
        let Self { machine, at, commit, arguments, .. } = self;
        let command = ["cargo bench --bench load".to_owned()].into_iter();
        let words = (!arguments.is_empty()).then(|| format!("-- {}", arguments.join(" ")));
        let command = command.chain(words).collect::<Vec<_>>().join(" ");
        format!("{at} UTC, commit {commit}, `{command}`\n{machine}")
    }

    /// The columns behind the first, and the line below them.
    fn columns(&self) -> (String, &'static str) {
        match &self.peer {
            None => ("measured | value | goal | |".to_owned(), "---|---|---|---|"),
            Some(peer) => {
                (format!("measured | value | goal | | {peer} | times as much |"), "---|---|---|---|---|---|")
            }
        }
    }

    /// The machine, and the head of the table.
    pub(crate) fn head(&self) -> String {
        let (columns, line) = self.columns();
        format!("{}\n\n| scenario | {columns}\n|---|{line}", self.about())
    }

    /// The numbers of a scenario, with those of the peer that have the same names; the lines of the table.
    pub(crate) fn add(&mut self, rows: Vec<Row>, peers: &[Row]) -> Vec<String> {
        let mut lines = Vec::new();
        for mut row in rows {
            let is_same = |other: &&Row| (&other.scenario, &other.name) == (&row.scenario, &row.name);
            row.peer = peers.iter().find(is_same).map(|other| other.value);
            lines.push(row.line(self.peer.is_some()));
            self.rows.push(row);
        }
        lines
    }

    /// What was measured, with a table for each scenario, and first of all what was demanded.
    pub(crate) fn markdown(&self) -> String {
        let mut text =
            "# The server under load\n\nWritten by `cargo bench --bench load -- --markdown FILE`; \
            what is measured stands in [README.md](README.md).\n\n"
                .to_owned();
        text += &self.about().replace('\n', "  \n");
        let (columns, line) = self.columns();
        let with_peer = self.peer.is_some();
        let demanded = || self.rows.iter().filter(|row| row.goal.is_some());
        let met = demanded().filter(|row| row.is_met() == Some(true)).count();
        let _ = write!(text, "\n\n{met} of {} goals met.\n", demanded().count());
        if demanded().count() > met {
            let _ = write!(text, "\n| missed | {columns}\n|---|{line}\n");
            for row in demanded().filter(|row| row.is_met() == Some(false)) {
                text += &row.line(with_peer);
                text.push('\n');
            }
        }
        let mut last = "";
        for row in &self.rows {
            if std::mem::replace(&mut last, &row.scenario) != row.scenario {
                let _ = write!(text, "\n## {}\n\n| {columns}\n|{line}\n", row.scenario);
            }
            text += &row.cells(with_peer);
            text.push('\n');
        }
        text
    }

    pub(crate) fn json(&self) -> Result<Vec<u8>> {
        Ok(serde_json::to_vec_pretty(self)?)
    }
}
