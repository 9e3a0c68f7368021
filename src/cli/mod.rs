//! The command line.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | completed |
//! | 1 | failed |
//! | 2 | bad usage or configuration |
//! | 3 | aborted |
//! | 4 | the step limit was reached |
//! | 130 | ended by a second Ctrl-C |
//! | 143 | ended by SIGTERM |

mod agents;
mod archive;
mod asker;
mod attach;
mod billing;
mod commands;
mod config;
mod conformance;
mod consents;
mod demo;
mod doctor;
mod interrupt;
mod keys;
mod leftovers;
mod mcp;
mod models;
mod prompt;
mod reach;
#[cfg(test)]
mod reference_test;
mod render;
mod run;
mod serve;
mod sessions;
mod store;
mod tool;
mod tools;
mod usage;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use playhouse_protocol::nearest::did_you_mean;
use playhouse_protocol::{CommandError, Sandbox};
use playhouse_sandbox::process::keep_memory_private;
#[cfg(target_os = "linux")]
use playhouse_sandbox::walls::{CONFINE, confined, set_confiner};
use playhouse_store::StoreError;
use tracing_subscriber::EnvFilter;

use crate::config::{ConfigError, Settings};
use crate::house::{House, HouseBuilder, HouseError};
use crate::logging::{self, Format};

/// The same table, for `--help`.
const EXIT_CODES: &str = "\
Exit codes:
  0    completed
  1    failed
  2    bad usage or configuration
  3    aborted
  4    the step limit was reached
  130  ended by a second Ctrl-C (143: by SIGTERM)";

/// The same for the server, which signals end in good order.
const SERVE_EXIT_CODES: &str = "\
Exit codes:
  0    ended by Ctrl-C, SIGTERM or SIGHUP; a second one hurries
  1    failed
  2    bad usage or configuration, or an address that cannot be listened on";

/// Runs AI coding-agent sessions.
#[derive(Debug, Parser)]
#[command(name = "playhouse", version, about, disable_help_subcommand = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
struct Common {
    /// The configuration file [default: $PLAYHOUSE_CONFIG, else config.toml in the user's configuration directory]
    #[arg(long, global = true, value_name = "FILE", display_order = 900)]
    config: Option<PathBuf>,
    /// Where sessions are kept [default: $PLAYHOUSE_DATA, else playhouse/ in the user's data directory]
    #[arg(long, global = true, value_name = "DIR", display_order = 901)]
    data: Option<PathBuf>,
    /// Open the data directory in this process, and go through no other that has it open
    #[arg(long, global = true, display_order = 902)]
    in_process: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show a whole coding turn, without a key and without a network
    Demo(demo::DemoArguments),
    /// Run one turn in a directory
    #[command(after_help = EXIT_CODES)]
    Run(run::RunArguments),
    /// Serve any number of clients over HTTP
    #[command(after_help = SERVE_EXIT_CODES)]
    Serve(serve::ServeArguments),
    /// Make, list or withdraw the keys of the server's clients
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Run one tool call by hand, or a script of them
    #[command(after_help = tool::EXIT_CODES, override_usage = tool::USAGE)]
    Tool(tool::ToolArguments),
    /// List the tools, with risk and parameters
    Tools(tools::ToolsArguments),
    /// List the agents, with tools and where each comes from
    Agents(agents::AgentsArguments),
    /// List the command templates, which `run` runs as "/NAME ARGUMENTS"
    Commands(commands::CommandsArguments),
    /// Print what a session would tell its model: the system prompt and the tools
    Prompt(prompt::PromptArguments),
    /// Show what the configuration sets, and what the models that it names cost
    Config(config::ConfigArguments),
    /// List the models that are known, with limits and prices
    Models(models::ModelsArguments),
    /// List, show, export or delete sessions
    #[command(subcommand)]
    Sessions(sessions::SessionsCommand),
    /// List, add or test servers of tools (MCP)
    #[command(subcommand)]
    Mcp(mcp::McpCommand),
    /// Be the client that the official conformance suite of MCP tests
    #[command(hide = true, name = "mcp-conformance")]
    McpConformance(conformance::ConformanceArguments),
    /// List or withdraw what was allowed for always
    #[command(subcommand)]
    Consents(consents::ConsentsCommand),
    /// Sum up what was used and what it cost, or write old rows of the ledger away
    Usage(usage::UsageArguments),
    /// Show how far the ledger is exported, and what sinks refused, or send that once more
    #[command(subcommand)]
    Billing(billing::BillingCommand),
    /// Look for damage in the data directory, or give back the space of what was removed
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Say what is in force on this machine, and what to do about what is not
    #[command(after_help = doctor::EXIT_CODES)]
    Doctor(doctor::DoctorArguments),
}

impl Command {
    /// Whether it runs until a signal ends it in good order.
    fn is_server(&self) -> bool {
        matches!(self, Self::Serve(_))
    }

    /// How many threads run its tasks. Two take about as much processor time for a token as one, and where hundreds of sessions end
    /// steps one alone is what all of them wait for.
    fn threads(&self) -> usize {
        let asked = match self {
            Self::Serve(arguments) => arguments.threads,
            _ => None,
        };
        let usual = || std::thread::available_parallelism().map_or(1, |count| count.get().min(4));
        asked.map_or_else(usual, usize::from)
    }

    /// Whether it is a server that a command started in the background.
    fn is_background(&self) -> bool {
        matches!(self, Self::Serve(arguments) if arguments.background)
    }
}

/// What holds the commands of this run.
#[derive(Clone, Copy, Debug, Args)]
struct WallsArguments {
    /// Whether commands run inside walls: required, best-effort or off [default: as configured]
    #[arg(long, value_name = "LEVEL", value_parser = sandbox)]
    sandbox: Option<Sandbox>,
    /// Let commands reach the network
    #[arg(long)]
    network: bool,
}

impl WallsArguments {
    /// A house in which this holds.
    fn house(self, settings: Settings) -> HouseBuilder {
        let mut builder = House::builder(settings).salvages(true);
        if let Some(sandbox) = self.sandbox {
            builder = builder.sandbox(sandbox);
        }
        if self.network {
            builder = builder.network(true);
        }
        builder
    }
}

fn sandbox(text: &str) -> Result<Sandbox, String> {
    Sandbox::ALL.into_iter().find(|level| level.name() == text).ok_or_else(|| {
        let names = Sandbox::ALL.map(Sandbox::name);
        format!("there are {}{}", names.join(", "), did_you_mean(text, names))
    })
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    Completed,
    Failed,
    Usage,
    Aborted,
    MaxSteps,
    /// A signal ended it; its number.
    Signal(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Completed => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Aborted => 3,
            Exit::MaxSteps => 4,
            // As shells have it.
            Exit::Signal(number) => 128 + number,
        })
    }
}

/// Why a command ended early, and with which code.
#[derive(Debug)]
struct Failure {
    exit: Exit,
    message: String,
}

type CommandResult = Result<Exit, Failure>;

impl Failure {
    fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, message: message.into() }
    }

    fn failed(message: impl Into<String>) -> Self {
        Self { exit: Exit::Failed, message: message.into() }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<HouseError> for Failure {
    fn from(error: HouseError) -> Self {
        match error {
            // That passes: what starts an engine again when it failed should.
            HouseError::Disk { .. } => Self::failed(error.to_string()),
            error => Self::usage(error.to_string()),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        // The same holds here.
        match error.suspension() {
            Some(reason) => HouseError::Disk { reason, error }.into(),
            None => Self::usage(error.to_string()),
        }
    }
}

impl From<CommandError> for Failure {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Invalid(_)
            | CommandError::Unusable(_)
            | CommandError::NotFound(_)
            | CommandError::NotFoundSince { .. }
            | CommandError::Lost { .. }
            | CommandError::NoSuchTurn { .. } => Self::usage(error.to_string()),
            _ => Self::failed(error.to_string()),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::failed(error.to_string())
    }
}

/// What the program does when its engine has opened its store.
static OPENED: OnceLock<fn()> = OnceLock::new();

/// An engine of this process has opened its store.
fn opened() {
    if let Some(opened) = OPENED.get() {
        opened();
    }
}

/// Runs the command line of this process. When it has started an engine, it calls `opened`: from there on little is read at once.
pub fn main(opened: fn()) -> ExitCode {
    OPENED.get_or_init(|| opened);
    #[cfg(target_os = "linux")]
    if let Some(exit) = confine() {
        return exit;
    }
    // Where it cannot be, `doctor` says so.
    drop(keep_memory_private());
    let cli = Cli::parse();
    match Format::of(variable(logging::FORMAT).as_deref()) {
        Ok(format) => {
            let background = cli.command.is_background();
            let writer = move || {
                if background {
                    reach::keep_log_short();
                }
                std::io::stderr()
            };
            logging::start(filter(&cli.command), format, writer);
        }
        Err(message) => {
            drop(writeln!(std::io::stderr(), "error: {message}"));
            return Exit::Usage.into();
        }
    }
    match execute(cli) {
        Ok(exit) => exit.into(),
        Err(Failure { exit, message }) => {
            // A closed standard error leaves the exit code to say it.
            say(&format!("error: {message}"));
            exit.into()
        }
    }
}

/// What is logged: as the command line says, else as the environment says, else what is usual.
fn filter(command: &Command) -> EnvFilter {
    let (asked, usual) = match command {
        Command::Serve(arguments) => (arguments.log_level, serve::LogLevel::Info.directives()),
        _ => (None, "off"),
    };
    match asked {
        Some(level) => EnvFilter::new(level.directives()),
        None => EnvFilter::try_from_env("PLAYHOUSE_LOG").unwrap_or_else(|_| EnvFilter::new(usual)),
    }
}

/// Becomes the command that this process was started to hold; in every other process, names this program as the one that
/// can be started so.
#[cfg(target_os = "linux")]
fn confine() -> Option<ExitCode> {
    /// As shells have it for a command that could not be run.
    const NOT_RUN: u8 = 126;
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == CONFINE) {
        let Err(error) = confined(arguments);
        drop(writeln!(std::io::stderr(), "error: {error}"));
        return Some(ExitCode::from(NOT_RUN));
    }
    if let Ok(program) = std::env::current_exe() {
        set_confiner(program);
    }
    None
}

/// Threads for work that blocks. What wants more at once waits its turn.
const BLOCKING: usize = 32;

/// How long such a thread waits for work before it ends. They are woken in turn: with a longer time those of a burst stay for ever
/// where there is any work, and what they hold with them.
const BLOCKING_WAIT: Duration = Duration::from_secs(1);

/// How long a process that a signal ends waits for work that blocks.
const LAST_WAIT: Duration = Duration::from_millis(200);

fn execute(cli: Cli) -> CommandResult {
    let Cli { common, command } = cli;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(command.threads()).max_blocking_threads(BLOCKING).thread_keep_alive(BLOCKING_WAIT);
    let runtime = runtime.enable_all().build()?;
    let ends_itself = command.is_server();
    let result = runtime.block_on(async {
        let work = async {
            match command {
                Command::Demo(arguments) => Box::pin(demo::demo(arguments)).await,
                Command::Run(arguments) => Box::pin(run::run(&common, arguments)).await,
                Command::Serve(arguments) => Box::pin(serve::serve(&common, arguments)).await,
                Command::Keys(command) => Box::pin(keys::keys(&common, command)).await,
                Command::Tool(arguments) => Box::pin(tool::tool(&common, arguments)).await,
                Command::Tools(arguments) => tools::tools(&common, &arguments),
                Command::Agents(arguments) => agents::agents(&common, &arguments),
                Command::Commands(arguments) => Box::pin(commands::commands(&common, &arguments)).await,
                Command::Prompt(arguments) => prompt::prompt(&common, arguments),
                Command::Config(arguments) => config::config(&common, &arguments),
                Command::Models(arguments) => Box::pin(models::models(&common, arguments)).await,
                Command::Sessions(command) => Box::pin(sessions::sessions(&common, command)).await,
                Command::Mcp(command) => Box::pin(mcp::mcp(&common, command)).await,
                Command::McpConformance(arguments) => Box::pin(conformance::conformance(arguments)).await,
                Command::Consents(command) => Box::pin(consents::consents(&common, command)).await,
                Command::Usage(arguments) => Box::pin(usage::usage(&common, arguments)).await,
                Command::Billing(command) => Box::pin(billing::billing(&common, command)).await,
                Command::Store(command) => Box::pin(store::store(&common, command)).await,
                Command::Doctor(arguments) => Box::pin(doctor::doctor(&common, arguments)).await,
            }
        };
        tokio::select! {
            result = Box::pin(work) => match result {
                Ok(exit) => Ok(interrupt::terminated().filter(|_| !ends_itself).map_or(exit, Exit::Signal)),
                Err(failure) => Err(failure),
            },
            number = interrupt::end(), if !ends_itself => Ok(Exit::Signal(number)),
        }
    });
    if matches!(result, Ok(Exit::Signal(_))) {
        // Drops what runs, which kills its commands.
        runtime.shutdown_timeout(LAST_WAIT);
        return result;
    }
    // Reading standard input may block for ever; nothing that matters is left to wait for.
    runtime.shutdown_background();
    result
}

impl Common {
    fn settings(&self) -> Result<Settings, Failure> {
        Ok(Settings::load(self.config.as_deref(), &variable)?)
    }

    /// The settings of a command that keeps nothing. What others keep in the data directory stays hidden from it.
    fn settings_apart(&self) -> Result<Settings, Failure> {
        let mut settings = self.settings()?;
        if let Ok(data) = self.data() {
            settings.own.push(std::path::absolute(data)?);
        }
        Ok(settings)
    }

    /// The configuration file that somebody named: `--config`, `$PLAYHOUSE_CONFIG`.
    fn config_file(&self) -> Option<PathBuf> {
        let set = || variable("PLAYHOUSE_CONFIG").filter(|value| !value.is_empty()).map(PathBuf::from);
        self.config.clone().or_else(set)
    }

    /// The data directory: `--data`, `$PLAYHOUSE_DATA`, `$XDG_DATA_HOME/playhouse`, `~/.local/share/playhouse`.
    fn data(&self) -> Result<PathBuf, Failure> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        self.data
            .clone()
            .or_else(|| set("PLAYHOUSE_DATA"))
            .or_else(|| set("XDG_DATA_HOME").map(|folder| folder.join("playhouse")))
            .or_else(|| set("HOME").map(|home| home.join(".local/share/playhouse")))
            .ok_or_else(|| Failure::usage("there is no home directory: name a data directory with --data"))
    }
}

/// A variable of this process's environment.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Says something to people. A closed standard error is no reason to fail.
fn say(text: &str) {
    drop(writeln!(std::io::stderr(), "{text}"));
}

/// Writes to standard output; a reader that went away (`| head`) is no error.
fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
