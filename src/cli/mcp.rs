//! `playhouse mcp`: servers of tools (MCP), and this engine as one.

mod auth;
mod serve;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use playhouse_mcp::names::check_name;
use playhouse_server::{McpPlace, McpSearch, McpServerList, McpServerView, McpStanding};

use super::asker::visible;
use super::reach::open;
use super::render::Shape;
use super::run::directory;
use super::{CommandResult, Common, Exit, Failure, WallsArguments, print, say};
use crate::config::Settings;

/// The subcommands of `playhouse mcp`.
#[derive(Debug, Subcommand)]
pub(super) enum McpCommand {
    /// List the servers, and how they stand
    List {
        /// The directory whose own servers are listed as well [default: the current one]
        #[arg(short = 'C', long, value_name = "DIR")]
        directory: Option<PathBuf>,
        /// How to print it
        #[arg(long, value_enum, default_value_t = Shape::Table)]
        format: Shape,
    },
    /// Add a server to the configuration: its command follows behind `--`
    Add {
        /// Its name: the names of its tools begin with `mcp_NAME_`
        name: String,
        /// A variable of its environment (may be repeated); prefer `{ env = "VARIABLE" }` in the file for secrets
        #[arg(long, value_name = "NAME=VALUE")]
        env: Vec<String>,
        /// The command
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
    /// Log in to a server behind an address: prints the address to open in a browser, and waits for it
    Auth {
        /// Its name
        name: String,
    },
    /// Forget the login at a server
    Logout {
        /// Its name
        name: String,
    },
    /// Start a server, and list its tools, which later sessions are shown from the beginning
    Test {
        /// Its name
        name: String,
        /// The directory that it is started for [default: the current one]
        #[arg(short = 'C', long, value_name = "DIR")]
        directory: Option<PathBuf>,
        /// How to print it
        #[arg(long, value_enum, default_value_t = Shape::Table)]
        format: Shape,
    },
    /// Serve this engine's sessions as tools to an MCP client, on standard input and output
    ///
    /// For other agents, which begin sessions and give them tasks: session_create, session_prompt, session_status and
    /// session_abort. It ends with its input, and aborts the turns that its client waited for.
    Serve {
        /// Where sessions work that name no directory [default: the current one]
        #[arg(short = 'C', long, value_name = "DIR")]
        directory: Option<PathBuf>,
        /// Native tools to offer as well, such as read,grep,glob,bash [default: none]
        ///
        /// Their calls run in a session of the client, under the rules and within the walls of its agent.
        #[arg(long, value_name = "NAMES", value_delimiter = ',')]
        tools: Vec<String>,
        #[command(flatten)]
        walls: WallsArguments,
    },
}

pub(super) async fn mcp(common: &Common, command: McpCommand) -> CommandResult {
    match command {
        McpCommand::List { directory: of, format } => {
            let workspace = Some(directory(of.as_deref())?.to_string_lossy().into_owned());
            let held = open(common).await?;
            let listed = held.client().mcp_servers(&McpSearch { workspace }).await;
            held.close().await;
            list(&listed?, format)?;
            Ok(Exit::Completed)
        }
        McpCommand::Add { name, env, command } => add(common, &name, &env, &command),
        McpCommand::Auth { name } => auth::auth(common, &name).await,
        McpCommand::Logout { name } => auth::logout(common, &name).await,
        McpCommand::Test { name, directory: of, format } => {
            check_name(&name).map_err(Failure::usage)?;
            let workspace = directory(of.as_deref())?.to_string_lossy().into_owned();
            let held = open(common).await?;
            let place = McpPlace { workspace };
            let tested = held.client().connect_mcp_server(&name, &place).await;
            held.close().await;
            test(&tested?, format)
        }
        McpCommand::Serve { directory: of, tools, walls } => {
            serve::serve(common, of.as_deref(), &tools, walls).await
        }
    }
}

fn list(listed: &McpServerList, format: Shape) -> Result<(), Failure> {
    match format {
        Shape::Json => print(&document(listed)?)?,
        Shape::Ndjson => {
            for server in &listed.servers {
                print(&format!("{}\n", line(server)?))?;
            }
        }
        Shape::Table => {
            if listed.servers.is_empty() {
                say("no servers of tools are configured: `playhouse mcp add NAME -- COMMAND` adds one");
            }
            for server in &listed.servers {
                print(&row(server))?;
            }
        }
    }
    Ok(())
}

fn row(server: &McpServerView) -> String {
    let McpServerView { name, command, status, error, tools, refused, .. } = server;
    let tools = tools
        .as_ref()
        .map_or_else(|| "tools not known yet".to_owned(), |tools| format!("{} tools", tools.len()));
    let mut row = format!(
        "{name:<16} {:<12} {tools:<20} {}\n",
        standing(*status),
        visible(command.as_deref().unwrap_or_default())
    );
    if let Some(error) = error {
        row.push_str(&format!("  {}\n", visible(error)));
    }
    for tool in refused {
        row.push_str(&format!("  set aside: {}: {}\n", visible(&tool.name), visible(&tool.reason)));
    }
    row
}

fn standing(status: McpStanding) -> &'static str {
    match status {
        McpStanding::Connected => "connected",
        McpStanding::Starting => "starting",
        McpStanding::Failed => "failed",
        McpStanding::Disabled => "disabled",
        McpStanding::Stopped => "stopped",
        McpStanding::Asks => "asks",
        McpStanding::Refused => "refused",
        McpStanding::NeedsAuth => "needs_auth",
        McpStanding::NeedsClientRegistration => "needs_client_registration",
    }
}

fn test(server: &McpServerView, format: Shape) -> CommandResult {
    match format {
        Shape::Json => print(&document(server)?)?,
        Shape::Ndjson => print(&format!("{}\n", line(server)?))?,
        Shape::Table => {
            print(&row(&McpServerView { error: None, ..server.clone() }))?;
            for tool in server.tools.iter().flatten() {
                print(&format!("  {}\n", visible(tool)))?;
            }
        }
    }
    match &server.error {
        None => Ok(Exit::Completed),
        Some(error) => Err(Failure::failed(error.clone())),
    }
}

/// Appends a server to the configuration file. What is there stays as it is.
fn add(common: &Common, name: &str, env: &[String], command: &[String]) -> CommandResult {
    let place = Settings::place(common.config.as_deref(), &super::variable);
    let is_there = place.as_ref().is_some_and(|file| file.exists());
    if is_there && common.settings()?.mcp.contains_key(name) {
        return Err(Failure::usage(format!(
            "there is a server \"{name}\" already: change it in the configuration"
        )));
    }
    check_name(name).map_err(Failure::usage)?;
    let file = Settings::place(common.config.as_deref(), &super::variable).ok_or_else(|| {
        Failure::usage("there is no place for a configuration file: name one with --config")
    })?;
    let [program, args @ ..] = command else { return Err(Failure::usage("the command is missing")) };
    let mut table = toml::Table::new();
    table.insert("command".to_owned(), program.clone().into());
    if !args.is_empty() {
        table.insert("args".to_owned(), args.to_vec().into());
    }
    let mut variables = toml::Table::new();
    for pair in env {
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("--env \"{pair}\" is not NAME=VALUE")))?;
        variables.insert(name.to_owned(), value.into());
    }
    if !variables.is_empty() {
        table.insert("env".to_owned(), variables.into());
    }
    let section = toml::Table::from_iter([(
        "mcp".to_owned(),
        toml::Table::from_iter([(name.to_owned(), table.into())]).into(),
    )]);
    let section = toml::to_string(&section).map_err(|error| Failure::failed(error.to_string()))?;
    let before = match fs_err::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error.into()),
    };
    let gap = match before.is_empty() {
        true => "",
        false if before.ends_with('\n') => "\n",
        false => "\n\n",
    };
    let folder = file.parent().unwrap_or(Path::new("."));
    fs_err::create_dir_all(folder)?;
    let mut new = tempfile::Builder::new().suffix(".toml").tempfile_in(folder)?;
    new.write_all(format!("{before}{gap}{section}").as_bytes())?;
    // Read as it will be, before it takes the place of the other.
    Settings::load(Some(new.path()), &super::variable)?;
    if let Ok(known) = fs_err::metadata(&file) {
        fs_err::set_permissions(new.path(), known.permissions())?;
    }
    // A link stays one.
    let target = fs_err::canonicalize(&file).unwrap_or_else(|_| file.clone());
    new.persist(target).map_err(|error| error.error)?;
    say(&format!(
        "added to {}; `playhouse mcp test {name}` starts it. An engine that runs has it when it is started again",
        file.display()
    ));
    Ok(Exit::Completed)
}

fn document(value: &impl serde::Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::failed(error.to_string()))?;
    Ok(text + "\n")
}

fn line(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::failed(error.to_string()))
}
