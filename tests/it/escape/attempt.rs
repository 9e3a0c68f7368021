//! The rows of the table.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// What a part of the table is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Paths,
    Shell,
    Processes,
    Secrets,
    Network,
}

impl Kind {
    pub(super) const ALL: [Self; 5] =
        [Self::Paths, Self::Shell, Self::Processes, Self::Secrets, Self::Network];

    fn file(self) -> &'static str {
        match self {
            Self::Paths => "paths.toml",
            Self::Shell => "shell.toml",
            Self::Processes => "processes.toml",
            Self::Secrets => "secrets.toml",
            Self::Network => "network.toml",
        }
    }
}

/// What holds commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// Nothing but the limits.
    Open,
    /// The best walls that this machine has.
    Walled,
    /// Those that there are without bubblewrap.
    Weaker,
}

impl Level {
    pub(super) const ALL: [Self; 3] = [Self::Open, Self::Walled, Self::Weaker];

    /// Its name for `--sandbox`.
    pub(super) fn sandbox(self) -> &'static str {
        match self {
            Self::Open => "off",
            Self::Walled | Self::Weaker => "required",
        }
    }

    /// A name for what is done at it.
    pub(super) fn mark(self) -> &'static str {
        match self {
            Self::Weaker => "weaker",
            other => other.sandbox(),
        }
    }
}

/// What is said of a call before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Allow,
    Ask,
    Deny,
    /// The tool does not take it.
    Refuse,
}

impl Verdict {
    /// As `--verdict` prints it.
    pub(super) fn of(line: &str) -> Option<Self> {
        let word = line.split(':').next().unwrap_or_default();
        match word {
            "allow" => Some(Self::Allow),
            "ask" => Some(Self::Ask),
            "deny" => Some(Self::Deny),
            "refuse" => Some(Self::Refuse),
            _ => None,
        }
    }
}

/// What an attempt is after.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Effect {
    /// This secret stands in what the engine prints.
    Reveals(String),
    /// What stands at this place is not what stood there before.
    Changes(String),
    /// The output of the call holds this.
    Says(String),
    /// A server of this machine is asked for `/{mark}`.
    Reaches,
    /// The `bystander` or the `engine` is ended or stopped.
    Harms(Harmed),
    /// A process with `{mark}` in its words is there after the engine.
    Outlives,
    /// A file is longer than so many bytes.
    Grows { path: String, over: u64 },
    /// The folder `victim` of the row's own directory is gone.
    Removes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Harmed {
    Bystander,
    Engine,
}

/// A call of a tool.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Call {
    pub(super) tool: String,
    pub(super) input: Map<String, Value>,
}

/// One row.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) name: String,
    /// The configuration under which it is made, as TOML with placeholders.
    pub(super) configuration: String,
    pub(super) call: Call,
    /// Calls before it, in the same session.
    pub(super) before: Vec<Call>,
    /// How often it is made in a row.
    pub(super) times: usize,
    /// What is taken away from the workspace first.
    pub(super) without: Vec<String>,
    pub(super) verdict: Verdict,
    pub(super) effect: Effect,
    /// Where it comes to that when all is agreed to that can be.
    pub(super) happens: Vec<Level>,
    /// Where it is tried.
    pub(super) levels: Vec<Level>,
    /// Whether it has a directory of its own, so that many can be made in one session.
    pub(super) apart: bool,
    /// Whether it needs what not every machine has, so that it is not agreed to.
    pub(super) unsure: bool,
}

/// A file of the table. What stands at its beginning holds for all rows that do not say otherwise.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    configuration: String,
    verdict: Option<Verdict>,
    #[serde(default)]
    apart: bool,
    attempt: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    configuration: Option<String>,
    tool: Option<String>,
    input: Option<Map<String, Value>>,
    /// Short for a call of `bash`.
    command: Option<String>,
    #[serde(default)]
    before: Vec<Call>,
    times: Option<usize>,
    #[serde(default)]
    without: Vec<String>,
    verdict: Option<Verdict>,
    effect: Option<Effect>,
    #[serde(default)]
    happens: Vec<Level>,
    /// Whether it happens in the weaker walls, where that is not so in the best ones, or the other way round.
    weaker: Option<bool>,
    levels: Option<Vec<Level>>,
    #[serde(default)]
    unsure: bool,
    /// For rows apart: nothing is removed, whoever agrees.
    #[serde(default)]
    harmless: bool,
}

impl Attempt {
    /// The rows of a part of the table.
    pub(super) fn all(kind: Kind) -> Vec<Self> {
        let configurations: BTreeMap<String, String> = read("configurations.toml");
        let table: Table = read(kind.file());
        let rows: Vec<Self> = table
            .attempt
            .into_iter()
            .map(|row| {
                let name = row.name.clone();
                Self::of(row, &table.configuration, table.verdict, table.apart, &configurations)
                    .unwrap_or_else(|reason| panic!("{}: {name}: {reason}", kind.file()))
            })
            .collect();
        for (at, row) in rows.iter().enumerate() {
            assert!(rows[..at].iter().all(|other| other.name != row.name), "{} is there twice", row.name);
        }
        rows
    }

    fn of(
        row: Row,
        configuration: &str,
        verdict: Option<Verdict>,
        apart: bool,
        configurations: &BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let name = row.configuration.as_deref().unwrap_or(configuration);
        let configuration =
            configurations.get(name).ok_or_else(|| format!("there is no configuration {name:?}"))?;
        let call = match (row.tool, row.input, row.command) {
            (Some(tool), Some(input), None) => Call { tool, input },
            (None, None, Some(command)) => {
                let mut input = Map::new();
                input.insert("command".into(), command.into());
                // Ends one that hangs: none takes as long.
                input.insert("timeout".into(), json!(20_000));
                Call { tool: "bash".into(), input }
            }
            _ => return Err("it has either `command`, or `tool` and `input`".into()),
        };
        let verdict = row.verdict.or(verdict).ok_or("it has no `verdict`")?;
        let stopped = matches!(verdict, Verdict::Deny | Verdict::Refuse);
        if stopped && !row.happens.is_empty() {
            return Err("what is denied cannot happen".into());
        }
        let (effect, happens) = if apart {
            let happens = if stopped || row.harmless { Vec::new() } else { Level::ALL.to_vec() };
            (Effect::Removes, happens)
        } else {
            (row.effect.ok_or("it has no `effect`")?, row.happens)
        };
        let levels = match row.levels {
            None => Level::ALL.to_vec(),
            Some(levels) if levels.contains(&Level::Walled) => [levels, vec![Level::Weaker]].concat(),
            Some(levels) => levels,
        };
        let mut happens = happens;
        happens.retain(|level| *level != Level::Weaker);
        if row.weaker.unwrap_or(happens.contains(&Level::Walled)) && levels.contains(&Level::Weaker) {
            happens.push(Level::Weaker);
        }
        if happens.iter().any(|level| !levels.contains(level)) {
            return Err("it happens at a level at which it is not tried".into());
        }
        Ok(Self {
            name: row.name,
            configuration: configuration.clone(),
            call,
            before: row.before,
            times: row.times.unwrap_or(1),
            without: row.without,
            verdict,
            effect,
            happens,
            levels,
            apart,
            unsure: row.unsure,
        })
    }

    /// Whether rules or the tool keep it from being run.
    pub(super) fn is_stopped(&self) -> bool {
        matches!(self.verdict, Verdict::Deny | Verdict::Refuse)
    }
}

fn read<T: for<'de> Deserialize<'de>>(file: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/escape").join(file);
    let text = fs_err::read_to_string(&path).unwrap();
    toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
