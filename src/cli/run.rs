//! `playhouse run`: one turn in a directory.

mod focus;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use playhouse_actors::Published;
use playhouse_mcp::declared_in;
use playhouse_protocol::event::Provisional;
use playhouse_protocol::operator::{LOCAL_TENANT, ListSessions};
use playhouse_protocol::output::WantedOutput;
use playhouse_protocol::record::{TurnEnded, TurnOutcome};
use playhouse_protocol::summary::SessionState;
use playhouse_protocol::{
    Command, CommandError, EventBody, IdGenerator, MessageId, ModelRef, NewSession, Prompt, Record, Seq,
    SessionId, SessionSummary, TemplateCommand, WhenBusy,
};
use playhouse_server::OperatorError;
use playhouse_tools::schema::CheckedSchema;

use super::asker::{Asker, Present, Reply, Then};
use super::attach;
use super::interrupt::{Interrupt, abort};
use super::reach::{Events, Reach, or_start};
use super::render::{Format, Renderer};
use super::{CommandResult, Common, Exit, Failure, WallsArguments, say};
use crate::clock::now;
use crate::config::Settings;
use crate::templates;
use focus::{Focus, Look};

/// The tenant of everything that runs from the command line.
pub(super) const TENANT: &str = LOCAL_TENANT;

/// Options of `playhouse run`.
#[derive(Debug, Args)]
pub(super) struct RunArguments {
    /// The prompt, or a command with its arguments as `/NAME ARGUMENTS`; `-` reads it from standard input
    prompt: String,
    /// The model, as PROVIDER/MODEL
    #[arg(short, long, value_name = "PROVIDER/MODEL")]
    model: Option<String>,
    /// The directory to work in [default: the current one]
    #[arg(short = 'C', long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// The agent
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Go on with this session
    #[arg(short, long, value_name = "SESSION", conflicts_with = "continue_last")]
    session: Option<String>,
    /// Go on with the last session of the directory
    #[arg(short = 'c', long = "continue")]
    continue_last: bool,
    /// If that session is at work, let its running turn read the prompt between two steps
    #[arg(long, conflicts_with = "fork")]
    steer: bool,
    /// Leave that session as it is, and go on with a fork of it
    #[arg(long)]
    fork: bool,
    /// Fork all that can be read, where the log of that session is damaged
    #[arg(long, requires = "fork")]
    readable: bool,
    /// How to show what happens
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    format: OutputFormat,
    /// The most steps of the turn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    steps: Option<u32>,
    /// Ask for an answer that fits the JSON Schema in this file; it is printed at the end
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,
    /// Attach a file: text, an image or a PDF (may be repeated); `@PATH` in the prompt attaches one of the directory
    #[arg(short, long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Agree to whatever asks for consent, but for what needs a person, as a change outside of the directory
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    walls: WallsArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    /// Text as it streams on standard output, tool calls and totals on standard error
    Text,
    /// One protocol event a line
    Json,
    /// Text with a tag in it wherever a tool call begins or ends
    Tags,
}

pub(super) async fn run(common: &Common, arguments: RunArguments) -> CommandResult {
    let model = match &arguments.model {
        Some(text) => Some(text.parse::<ModelRef>().map_err(|error| Failure::usage(error.to_string()))?),
        None => None,
    };
    let wanted = match &arguments.session {
        Some(text) => Some(SessionId::parse(text).map_err(|error| Failure::usage(error.to_string()))?),
        None => None,
    };
    if arguments.steer && wanted.is_none() && !arguments.continue_last {
        return Err(Failure::usage("--steer needs a session that is at work: name it with -s, or use -c"));
    }
    if arguments.fork && wanted.is_none() && !arguments.continue_last {
        return Err(Failure::usage("there is nothing to fork: --fork goes with -s SESSION or -c"));
    }
    let directory = directory(arguments.directory.as_deref())?;
    let text = prompt_text(&arguments.prompt)?;
    let files = attach::read(&arguments.files)?;
    let output = arguments.schema.as_deref().map(wanted_output).transpose()?;
    let template = template(common, &directory, &text)?;
    let held = or_start(common, arguments.walls).await?;
    let reach = held.reach();
    let format = match arguments.format {
        OutputFormat::Text => Format::text(&std::io::stderr()),
        OutputFormat::Json => Format::Json,
        OutputFormat::Tags => Format::Tags,
    };
    let present = Present::here(arguments.format == OutputFormat::Text, arguments.yes);
    let mut asker = Asker::new(present);
    let mut renderer = Renderer::new(format).leave_requests(asker.shows());
    let old = match (wanted, arguments.continue_last) {
        (Some(id), _) => Some(existing(reach, id, &directory).await?),
        (None, true) => Some(last(reach, &directory).await?),
        (None, false) => None,
    };
    let interrupt = Interrupt::watch(reach.clone());
    let is_new = old.is_none() || arguments.fork;
    let (session, after) = match old {
        Some(old) if arguments.fork => {
            let fork = reach.fork(old.id, arguments.readable).await?;
            (fork, reach.summary(fork).await?.head)
        }
        Some(old) => {
            if old.state == SessionState::Busy {
                // What was cut off goes on first; its calls were named before.
                renderer.remember(&reach.read(old.id).await?.entries);
            }
            (old.id, old.head)
        }
        None => {
            let new = NewSession {
                agent: arguments.agent.clone(),
                model: model.clone(),
                ..new_session(&directory)?
            };
            (reach.create(new).await?, Seq::START)
        }
    };
    let files = attach::store(reach, TENANT, files).await?;
    let prompt = Prompt {
        files,
        agent: arguments.agent,
        model,
        steps: arguments.steps,
        unattended: present.nobody(),
        output: output.map(Box::new),
        when_busy: if arguments.steer { WhenBusy::Steer } else { WhenBusy::Queue },
        ..Prompt::default()
    };
    let work = match template {
        Some((name, arguments)) => Work { prompt, template: Some((name, arguments)) },
        None => Work { prompt: Prompt { text, ..prompt }, template: None },
    };
    let ended = turn(reach, session, after, work, &interrupt, &mut renderer, &mut asker).await;
    if is_new && ended.is_err() && (interrupt.came_early() || is_untouched(reach, session).await) {
        // Nothing was asked in it. Where it cannot be removed, it is one without messages.
        drop(reach.delete(session).await);
    }
    renderer.close()?;
    let stopped = held.close().await;
    let ended = ended?;
    if !stopped.stragglers.is_empty() {
        return Err(Failure::failed(format!("did not stop in time: {}", stopped.stragglers.join(", "))));
    }
    Ok(exit_of(&ended))
}

/// The answer that a file with a JSON Schema describes.
fn wanted_output(path: &Path) -> Result<WantedOutput, Failure> {
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("{} is no JSON Schema: {error}", path.display()))
    };
    // It says itself which file it is.
    let text = fs_err::read_to_string(path).map_err(|error| Failure::usage(error.to_string()))?;
    let schema = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
    CheckedSchema::new(&schema).map_err(|error| wrong(&error))?;
    Ok(WantedOutput { schema })
}

/// The input of a turn.
pub(super) struct Work {
    pub(super) prompt: Prompt,
    /// A command that makes the prompt's text, and its arguments.
    pub(super) template: Option<(String, String)>,
}

impl Work {
    /// The command for the engine. `message` becomes the id of the prompt.
    fn command(self, message: MessageId) -> Command {
        let prompt = Prompt { message: Some(message), ..self.prompt };
        match self.template {
            Some((name, arguments)) => {
                Command::Template(Box::new(TemplateCommand { name, arguments, prompt }))
            }
            None => Command::Prompt(prompt),
        }
    }
}

/// Runs a turn and shows it. An engine in this process goes on with what was cut off before, and that is shown too; turns
/// that an engine in another process runs in the same session are those of others.
pub(super) async fn turn(
    reach: &Reach,
    session: SessionId,
    after: Seq,
    work: Work,
    interrupt: &Interrupt,
    renderer: &mut Renderer,
    asker: &mut Asker,
) -> Result<TurnEnded, Failure> {
    let mut events = reach.events(session, after).await?;
    // A command's shell blocks may wait for what is asked already. Of a plain prompt nothing is answered before it is accepted.
    let asks_first = after > Seq::START && work.template.is_some();
    if asks_first {
        ask_what_waits(reach, session, renderer, asker).await?;
    }
    if interrupt.came_early() {
        return Err(Failure {
            exit: Exit::Aborted,
            message: "stopped before the prompt was sent".to_owned(),
        });
    }
    let prompt = new_message()?;
    let mut focus = Focus::new(reach.process().is_some(), prompt);
    let steers = work.template.is_none() && work.prompt.when_busy == WhenBusy::Steer;
    match begin(reach, session, work, &mut focus, &mut events, interrupt, renderer, asker).await {
        // What ran for the prompt was aborted, and the prompt was not sent.
        Err(failure) if interrupt.came() => return Err(Failure { exit: Exit::Aborted, ..failure }),
        begun => begun?,
    }
    interrupt.turn(session, prompt);
    if interrupt.came() {
        // It came between two turns, or for one that had ended.
        abort(reach, session, prompt).await;
    }
    if after > Seq::START && !asks_first {
        ask_what_waits(reach, session, renderer, asker).await?;
    }
    let ended = watch(reach, session, &mut focus, steers, &mut events, interrupt, renderer, asker).await;
    match ended {
        Ok(ended) => Ok(ended),
        Err(Broken::Off(reason)) => Err(cut_off(session, &reason)),
        Err(Broken::Failed(failure)) => {
            // Nobody would see what comes of the turn, and it would go on to cost.
            abort(reach, session, focus.turn()).await;
            Err(failure)
        }
    }
}

/// Asks what was asked before, and waits.
async fn ask_what_waits(
    reach: &Reach,
    session: SessionId,
    renderer: &mut Renderer,
    asker: &mut Asker,
) -> Result<(), Failure> {
    let snapshot = reach.outline(session).await?;
    let consents = snapshot.consents.into_iter().map(Record::ConsentAsked);
    let questions = snapshot.questions.into_iter().map(Record::QuestionAsked);
    for record in consents.chain(questions) {
        renderer.request(None, &record)?;
        follow(reach, session, renderer, asker, |asker| asker.recorded(None, &record)).await?;
    }
    Ok(())
}

/// Sends what begins a turn, and shows what runs for it first.
#[allow(clippy::too_many_arguments, reason = "the parts of one turn, borrowed apart from each other")]
async fn begin(
    reach: &Reach,
    session: SessionId,
    work: Work,
    focus: &mut Focus,
    events: &mut Events,
    interrupt: &Interrupt,
    renderer: &mut Renderer,
    asker: &mut Asker,
) -> Result<(), Failure> {
    // For a plain prompt nothing runs before it is accepted.
    let mut open = work.template.is_some();
    let sending = reach.accepted(session, work.command(focus.turn()));
    tokio::pin!(sending);
    loop {
        let event = tokio::select! {
            biased;
            accepted = &mut sending => return Ok(accepted.map(drop)?),
            event = events.next(), if open => event?,
            line = asker.line(), if asker.is_asking() => {
                follow(reach, session, renderer, asker, |asker| asker.typed(line.as_deref())).await?;
                continue;
            }
        };
        let Some(event) = event else {
            open = false;
            continue;
        };
        let body = &event.event().body;
        show(focus.look(body), false, &event, renderer)?;
        let Some((from, record)) = told(body) else { continue };
        if let Record::PromptAdmitted(prompt) = record {
            // What comes from the own prompt on is for whoever shows the turn.
            open = prompt.message != focus.turn();
            if focus.is_block(prompt.message) {
                interrupt.turn(session, prompt.message);
            }
        }
        follow(reach, session, renderer, asker, |asker| asker.recorded(from, record)).await?;
    }
}

/// The record of an event, and the session below that it is of.
fn told(body: &EventBody) -> Option<(Option<SessionId>, &Record)> {
    match body {
        EventBody::Durable(record) => Some((None, record)),
        EventBody::Provisional(Provisional::DescendantRequest { session, record }) => {
            Some((Some(*session), record))
        }
        EventBody::Provisional(_) => None,
    }
}

fn show(look: Look, steers: bool, event: &Published, renderer: &mut Renderer) -> Result<(), Failure> {
    match look {
        Look::Shown => renderer.show(event)?,
        Look::Hidden => {}
        Look::AnotherFirst if steers => say("the turn that runs reads the prompt after its step"),
        Look::AnotherFirst => say("another turn of this session goes on first"),
    }
    Ok(())
}

/// The id of a prompt that this process sends.
fn new_message() -> Result<MessageId, Failure> {
    let mut random = [0; 64];
    getrandom::fill(&mut random)
        .map_err(|error| Failure::failed(format!("the system gives no random bytes: {error}")))?;
    let mut random = random.into_iter().cycle();
    Ok(IdGenerator::new(move |bytes| bytes.fill_with(|| random.next().unwrap_or_default())).next(now()))
}

/// Why a turn was not seen to its end.
enum Broken {
    /// The engine went away, and goes on with the turn when there is one again.
    Off(String),
    /// It cannot be shown, or asked about.
    Failed(Failure),
}

impl<E: Into<Failure>> From<E> for Broken {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Shows a turn until it ends, and asks what it asks. `steers`: whether its prompt goes to a turn that runs.
#[allow(clippy::too_many_arguments, reason = "the parts of one turn, borrowed apart from each other")]
async fn watch(
    reach: &Reach,
    session: SessionId,
    focus: &mut Focus,
    steers: bool,
    events: &mut Events,
    interrupt: &Interrupt,
    renderer: &mut Renderer,
    asker: &mut Asker,
) -> Result<TurnEnded, Broken> {
    // Work in the background that the turn began, by the prompts that will tell of its end.
    let mut begun: Vec<MessageId> = Vec::new();
    loop {
        let event = tokio::select! {
            biased;
            event = events.next() => match event {
                Err(OperatorError::Gone(reason)) => return Err(Broken::Off(reason)),
                event => event?,
            },
            line = asker.line(), if asker.is_asking() => {
                follow(reach, session, renderer, asker, |asker| asker.typed(line.as_deref())).await?;
                continue;
            }
        };
        let Some(event) = event else { break };
        let body = &event.event().body;
        show(focus.look(body), steers, &event, renderer)?;
        let Some((from, record)) = told(body) else { continue };
        follow(reach, session, renderer, asker, |asker| asker.recorded(from, record)).await?;
        match record {
            Record::AttemptStarted(started) if started.steered.contains(&focus.turn()) => {
                focus.joins(started.turn);
                interrupt.turn(session, started.turn);
            }
            Record::CallIntended(intended) => {
                begun.extend(intended.delegate.and_then(|delegate| delegate.report));
            }
            Record::PromptAdmitted(prompt) => begun.retain(|report| *report != prompt.message),
            Record::TurnEnded(ended) if ended.turn == focus.turn() => {
                renderer.finish(session, ended)?;
                if !begun.is_empty() && ended.outcome != TurnOutcome::Aborted {
                    let count = begun.len();
                    say(&format!(
                        "{count} of its tasks go on in the background: `playhouse sessions list --all` shows them"
                    ));
                }
                return Ok(ended.clone());
            }
            _ => {}
        }
    }
    Err(Broken::Off("the engine stopped".to_owned()))
}

/// The engine went away in the middle of a turn.
fn cut_off(session: SessionId, reason: &str) -> Failure {
    Failure::failed(format!(
        "{reason} before the turn ended. What was done is kept: go on with `playhouse run -s {session} PROMPT`, which \
         finishes that turn first"
    ))
}

/// Does what follows from something that happened to the requests.
pub(super) async fn follow(
    reach: &Reach,
    session: SessionId,
    renderer: &mut Renderer,
    asker: &mut Asker,
    happened: impl FnOnce(&mut Asker) -> Then,
) -> Result<(), Failure> {
    let mut then = happened(asker);
    loop {
        match then {
            Then::Nothing => return Ok(()),
            Then::Prompt(lines, text) => {
                renderer.lines(&lines)?;
                renderer.prompt(&text)?;
                return Ok(());
            }
            Then::Send(from, reply) => match answer(reach, from.unwrap_or(session), &reply).await {
                Ok(()) => return Ok(()),
                Err(OperatorError::Refused(CommandError::Invalid(problem))) => {
                    let again = match &reply {
                        Reply::Consent(consent, _) => asker.refused(*consent, &problem),
                        Reply::Questions(..) => None,
                    };
                    then = again.ok_or(CommandError::Invalid(problem))?;
                }
                Err(error) => return Err(error.into()),
            },
        }
    }
}

/// Answers a request, unless it is settled already.
pub(super) async fn answer(reach: &Reach, session: SessionId, reply: &Reply) -> Result<(), OperatorError> {
    let command = match reply.clone() {
        Reply::Consent(consent, answer) => Command::Answer { consent, answer },
        Reply::Questions(question, answers) => Command::AnswerQuestion { question, answers },
    };
    match reach.command(session, command).await.map(drop) {
        // Its end is in the log, and is shown when that is read.
        Err(OperatorError::Refused(
            CommandError::ConsentSettled { .. }
            | CommandError::QuestionSettled { .. }
            | CommandError::NoSuchConsent(_)
            | CommandError::NoSuchQuestion(_),
        )) => Ok(()),
        other => other,
    }
}

pub(super) fn exit_of(ended: &TurnEnded) -> Exit {
    match ended.outcome {
        TurnOutcome::Completed => Exit::Completed,
        TurnOutcome::Aborted => Exit::Aborted,
        TurnOutcome::MaxSteps => Exit::MaxSteps,
        TurnOutcome::Failed => Exit::Failed,
    }
}

/// Whether nothing was ever asked in a session.
async fn is_untouched(reach: &Reach, session: SessionId) -> bool {
    let made = Seq::START.next();
    reach.summary(session).await.is_ok_and(|summary| summary.head == made)
}

/// The command template that a prompt names, `/NAME ARGUMENTS`, if there is one of that name; and what follows it.
fn template(common: &Common, directory: &Path, text: &str) -> Result<Option<(String, String)>, Failure> {
    let Some(typed) = text.trim().strip_prefix('/') else { return Ok(None) };
    let (name, arguments) = typed.split_once(char::is_whitespace).unwrap_or((typed, ""));
    let settings = common.settings()?;
    let commands = templates::read(&settings, directory);
    if !commands.knows(name) && is_prompt_of_server(&settings, directory, name) {
        return Ok(Some((name.to_owned(), arguments.trim().to_owned())));
    }
    if !commands.knows(name) {
        // Many a prompt begins with a path.
        return Ok(None);
    }
    // The engine says the same, but not in which file of the operator's.
    let local = settings.agents_in(directory, &|_| Ok(()));
    let agents = local.as_ref().unwrap_or(&settings.agents);
    templates::check(&commands, agents, &settings, name)
        .map_err(|fault| Failure::usage(fault.to_string()))?;
    Ok(Some((name.to_owned(), arguments.trim().to_owned())))
}

/// Whether a name is `SERVER:PROMPT` of a server of tools that is declared. Which prompts it has, it says itself.
fn is_prompt_of_server(settings: &Settings, directory: &Path, name: &str) -> bool {
    let Some((server, _)) = name.split_once(':') else { return false };
    let of_workspace = || declared_in(directory).unwrap_or_default().iter().any(|(name, _)| name == server);
    settings.mcp.contains_key(server) || of_workspace()
}

fn prompt_text(argument: &str) -> Result<String, Failure> {
    let mut text = argument.to_owned();
    if argument == "-" {
        text.clear();
        std::io::stdin().read_to_string(&mut text).map_err(|error| {
            Failure::usage(format!("cannot read the prompt from standard input: {error}"))
        })?;
    }
    if text.trim().is_empty() {
        return Err(Failure::usage("the prompt is empty: say what is to be done"));
    }
    Ok(text)
}

/// The directory to work in, absolute with links resolved.
pub(super) fn directory(wanted: Option<&Path>) -> Result<PathBuf, Failure> {
    let path = wanted.unwrap_or(Path::new("."));
    let found = fs_err::canonicalize(path)
        .map_err(|error| Failure::usage(format!("cannot work in {}: {error}", path.display())))?;
    if !found.is_dir() {
        return Err(Failure::usage(format!("cannot work in {}: it is not a directory", path.display())));
    }
    Ok(found)
}

/// A session in `directory`, with nothing chosen.
pub(super) fn new_session(directory: &Path) -> Result<NewSession, Failure> {
    Ok(NewSession::new(TENANT, text_of(directory)?))
}

pub(super) fn text_of(path: &Path) -> Result<String, Failure> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Failure::usage(format!("cannot work in {}: its path is not UTF-8", path.display())))
}

async fn existing(reach: &Reach, id: SessionId, directory: &Path) -> Result<SessionSummary, Failure> {
    let summary = reach.summary(id).await?;
    if summary.tenant != TENANT {
        // What belongs to another tenant is not there, for whoever acts as this one.
        return Err(CommandError::NotFound(id).into());
    }
    if Path::new(&summary.workspace) != directory {
        return Err(Failure::usage(format!(
            "session {id} works in {}, not in {}: name its directory with -C",
            summary.workspace,
            directory.display()
        )));
    }
    Ok(summary)
}

async fn last(reach: &Reach, directory: &Path) -> Result<SessionSummary, Failure> {
    let workspace = text_of(directory)?;
    let mut newest: Option<SessionSummary> = None;
    let mut after = None;
    loop {
        let query = ListSessions {
            tenant: Some(TENANT.to_owned()),
            workspace: Some(workspace.clone()),
            after,
            limit: 500,
            roots: true,
        };
        let page = reach.list(query).await?;
        for summary in page.sessions {
            if newest.as_ref().is_none_or(|newest| summary.updated > newest.updated) {
                newest = Some(summary);
            }
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    newest.ok_or_else(|| {
        let message = format!("there is no session in {workspace} to go on with: leave out -c to begin one");
        Failure::usage(message)
    })
}
