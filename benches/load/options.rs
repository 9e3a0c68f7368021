//! What to measure, and how.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;

use crate::Result;
use crate::report::Report;
use crate::scenarios::Scenario;
use crate::target::Wire;

/// How long a scenario may take, beside the time that is told.
const LONGEST: Duration = Duration::from_secs(600);
/// Descriptors that are asked for, as far as the system gives them.
const DESCRIPTORS: u64 = 1 << 20;

/// Measures the engine under load.
#[derive(Parser)]
pub(crate) struct Options {
    /// What to measure; everything without it, with the sizes of the goals.
    #[arg(value_enum)]
    scenarios: Vec<Scenario>,
    /// So many sessions, in place of the scenario's own sizes.
    #[arg(long, value_name = "COUNT", value_parser = count)]
    pub(crate) sessions: Option<usize>,
    /// Tokens a second of each session that is paced.
    #[arg(long, value_name = "TOKENS", default_value_t = 50.0, value_parser = rate)]
    pub(crate) rate: f64,
    /// Steps of `deep`, 10 at least.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000, value_parser = steps)]
    pub(crate) steps: usize,
    /// For how many seconds `mixed` goes on.
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: u64,
    /// How the engine is spoken to; with a peer both speak the v1 wire.
    #[arg(long, value_enum)]
    wire: Option<Wire>,
    /// Do the same work with another server, and tell the ratio.
    #[arg(long, value_name = "NAME", value_parser = ["opencode"])]
    pub(crate) peer: Option<String>,
    /// The peer's version, as npm knows it.
    #[arg(long, value_name = "VERSION", default_value = "1")]
    pub(crate) peer_version: String,
    /// A server that runs already, whose provider `bench` is the model at `--model-port`: `http://HOST:PORT`.
    #[arg(long, value_name = "URL", requires = "model_port")]
    pub(crate) server: Option<String>,
    /// The id of its process, so that its numbers can be read.
    #[arg(long, value_name = "PID", requires = "server")]
    pub(crate) pid: Option<u32>,
    /// Where its sessions work.
    #[arg(long, value_name = "DIR", requires = "server")]
    pub(crate) workspace: Option<PathBuf>,
    /// Where the scripted model listens.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) model_port: u16,
    /// Threads of the scripted model.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = count)]
    pub(crate) model_threads: usize,
    /// The engine asks the scripted model over TLS, by HTTP/2. The bare forwarder does not, and only `deep` has a goal for it.
    #[arg(long, conflicts_with_all = ["server", "peer"])]
    pub(crate) tls: bool,
    /// The engine's program, in place of the one that was built with this one: to compare two builds.
    #[arg(long, value_name = "FILE")]
    pub(crate) program: Option<PathBuf>,
    /// Threads that carry the server's sessions; what it decides itself without it.
    #[arg(long, value_name = "COUNT", value_parser = count)]
    pub(crate) threads: Option<usize>,
    /// Runs the server below a profiler: `--under "valgrind --tool=callgrind"`. It is asked to end when a run is over.
    #[arg(long, value_name = "COMMAND", value_parser = words)]
    pub(crate) under: Option<Words>,
    /// Where data directories are made, on the disk that is meant; among the temporary files without it.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// More configuration of the engine, as TOML.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Write the numbers to this file too, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the table to this file too.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Said by `cargo bench`: measure in earnest.
    #[arg(long, hide = true)]
    pub(crate) bench: bool,
}

/// A command line.
#[derive(Clone, Debug)]
pub(crate) struct Words(pub(crate) Vec<String>);

fn words(text: &str) -> std::result::Result<Words, String> {
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    if words.is_empty() { Err("name a program".to_owned()) } else { Ok(Words(words)) }
}

fn at_least(least: usize, text: &str) -> std::result::Result<usize, String> {
    let count = text.parse().map_err(|_| "a whole number is wanted".to_owned())?;
    if count < least { Err(format!("at least {least}, or nothing is measured")) } else { Ok(count) }
}

fn count(text: &str) -> std::result::Result<usize, String> {
    at_least(1, text)
}

/// The beginning of a session and its end are compared.
fn steps(text: &str) -> std::result::Result<usize, String> {
    at_least(10, text)
}

fn rate(text: &str) -> std::result::Result<f64, String> {
    let is_rate = |rate: &f64| (0.1..=100_000.0).contains(rate);
    text.parse().ok().filter(is_rate).ok_or_else(|| "a number from 0.1 to 100000 is wanted".to_owned())
}

impl Options {
    /// Makes room for many sockets, and looks whether what is named can be run and written: before anything is measured.
    pub(crate) fn prepare(&self) -> Result<()> {
        if let Some(program) = &self.program
            && !fs_err::metadata(program)?.is_file()
        {
            return Err(format!("{} is no program", program.display()).into());
        }
        for file in [&self.json, &self.markdown].into_iter().flatten() {
            fs_err::OpenOptions::new().create(true).append(true).open(file)?;
        }
        let limit = getrlimit(Resource::Nofile);
        let wanted = limit.maximum.unwrap_or(DESCRIPTORS).min(DESCRIPTORS);
        if limit.current.is_some_and(|current| current < wanted) {
            setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })?;
        }
        Ok(())
    }

    /// The scenarios, with their sizes.
    pub(crate) fn runs(&self) -> Vec<(Scenario, usize)> {
        let scenarios = match self.scenarios.as_slice() {
            [] => <Scenario as clap::ValueEnum>::value_variants(),
            scenarios => scenarios,
        };
        let sizes = |scenario: &Scenario| match (self.sessions, self.bench) {
            (Some(sessions), _) => vec![sessions],
            (None, true) => scenario.sizes(self.peer.is_some()).to_vec(),
            (None, false) => vec![3],
        };
        let runs = |scenario: &Scenario| {
            sizes(scenario).into_iter().map(|size| (*scenario, size)).collect::<Vec<_>>()
        };
        scenarios.iter().flat_map(runs).collect()
    }

    /// The wire of the engine.
    pub(crate) fn wire(&self) -> Wire {
        let usual = if self.peer.is_some() { Wire::V1 } else { Wire::Native };
        self.wire.unwrap_or(usual)
    }

    /// `count`, or what is left of it in a short run.
    pub(crate) fn of(&self, count: usize) -> usize {
        if self.bench { count } else { (count / 50).clamp(1, 20) }
    }

    /// How long a scenario may take at most.
    pub(crate) fn most(&self) -> Duration {
        LONGEST + Duration::from_secs(self.seconds)
    }

    /// A folder that goes away by itself.
    pub(crate) fn folder(&self) -> Result<TempDir> {
        Ok(match &self.dir {
            Some(folder) => tempfile::tempdir_in(folder)?,
            None => tempfile::tempdir()?,
        })
    }

    /// Writes what was measured so far to where it is wanted.
    pub(crate) fn write(&self, report: &Report) -> Result<()> {
        if let Some(file) = &self.json {
            fs_err::write(file, report.json()?)?;
        }
        if let Some(file) = &self.markdown {
            fs_err::write(file, report.markdown())?;
        }
        Ok(())
    }
}
