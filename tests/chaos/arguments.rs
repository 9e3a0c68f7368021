//! The arguments: its own, and those that `cargo test` gives to every test program.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// How it is run.
#[derive(Debug)]
pub(crate) struct Arguments {
    /// For how long the server is killed.
    pub(crate) duration: Duration,
    pub(crate) seed: u64,
    /// Sessions at once.
    pub(crate) sessions: usize,
    /// What a new data directory gets.
    pub(crate) store: Option<String>,
    /// The server's program; absent for the one that was built with this.
    pub(crate) binary: Option<std::path::PathBuf>,
    /// Whether writes of the store fail, too.
    pub(crate) write_errors: bool,
    /// Whether the data is kept when all is well, too.
    pub(crate) keep: bool,
    /// The only fail points that are used, by the beginning of their names; all where it is empty.
    pub(crate) points: Vec<String>,
    /// Nothing is killed: it is looked at what the server holds.
    pub(crate) soak: bool,
}

/// What is wanted of this program.
pub(crate) enum Wanted {
    Run(Arguments),
    /// Only that this is said.
    Nothing(&'static str),
}

const HELP: &str = "chaos: kills a server again and again, and checks that nothing is lost

    --duration TIME   for how long it is killed: 20s (default), 5m, 1h
    --seed NUMBER     what is done; without one a seed is made up and printed
    --sessions COUNT  sessions at once (default 200)
    --soak            kill nothing, and look at what the server holds: by default for 10m, with 1000 sessions
    --store BACKEND   what keeps the data, as `store` in the configuration
    --binary PATH     the server, a debug build or one with the feature failpoints (default: the one of this build)
    --no-write-errors let no write of the store fail
    --keep            keep the data when all is well, too
    --point NAME      use only fail points that begin so (may be repeated)
";

/// What `cargo test` may pass on, with a value.
const WITH_VALUE: [&str; 6] = ["--skip", "--test-threads", "--format", "--color", "--logfile", "-Z"];

/// And without one.
const WITHOUT_VALUE: [&str; 9] = [
    "--nocapture",
    "--no-capture",
    "--show-output",
    "--quiet",
    "-q",
    "--exact",
    "--include-ignored",
    "--report-time",
    "-Zunstable-options",
];

impl Arguments {
    pub(crate) fn read(mut given: impl Iterator<Item = String>) -> Result<Wanted, String> {
        let mut arguments = Self {
            duration: Duration::ZERO,
            seed: RandomState::new().hash_one(std::process::id()) % 1_000_000,
            sessions: 0,
            store: None,
            keep: false,
            write_errors: true,
            binary: None,
            points: Vec::new(),
            soak: false,
        };
        let (mut wanted, mut sessions, mut filters) = (None, None, Vec::new());
        while let Some(argument) = given.next() {
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name.to_owned(), Some(value.to_owned())),
                _ => (argument, None),
            };
            let mut value = || value.clone().or_else(|| given.next()).ok_or(format!("{name} needs a value"));
            match name.as_str() {
                "--duration" => wanted = Some(duration(&value()?)?),
                "--seed" => arguments.seed = number(&name, &value()?)?,
                "--sessions" => sessions = Some(number(&name, &value()?)?),
                "--soak" => arguments.soak = true,
                "--store" => arguments.store = Some(value()?),
                "--binary" => {
                    let path = value()?;
                    let there = fs_err::canonicalize(&path).map_err(|error| error.to_string())?;
                    arguments.binary = Some(there);
                }
                "--no-write-errors" => arguments.write_errors = false,
                "--keep" => arguments.keep = true,
                "--point" => arguments.points.push(value()?),
                "--help" | "-h" => return Ok(Wanted::Nothing(HELP)),
                "--list" => return Ok(Wanted::Nothing("chaos: test\n")),
                "--ignored" => return Ok(Wanted::Nothing("")),
                other if WITH_VALUE.contains(&other) => drop(value()?),
                other if WITHOUT_VALUE.contains(&other) => {}
                other if other.starts_with('-') => {
                    return Err(format!("there is no option {other}\n\n{HELP}"));
                }
                filter => filters.push(filter.to_owned()),
            }
        }
        let (usual, many) = if arguments.soak { (600, 1_000) } else { (20, 200) };
        arguments.duration = wanted.unwrap_or(Duration::from_secs(usual));
        arguments.sessions = sessions.unwrap_or(many);
        if filters.is_empty() || filters.iter().any(|filter| "chaos".contains(filter.as_str())) {
            Ok(Wanted::Run(arguments))
        } else {
            Ok(Wanted::Nothing(""))
        }
    }
}

fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{name} is \"{text}\", expected a whole number"))
}

fn duration(text: &str) -> Result<Duration, String> {
    let units = [("s", 1), ("m", 60), ("h", 3_600)];
    let time = units.iter().find_map(|(unit, seconds)| {
        let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(Duration::from_secs(count * seconds))
    });
    time.ok_or_else(|| format!("--duration is \"{text}\": write a number and s, m or h, as in 60s"))
}
