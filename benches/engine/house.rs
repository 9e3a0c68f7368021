//! Engines that are measured: with a data directory, a workspace with one small file, and a model in another process.

use std::path::Path;

use playhouse::House;
use playhouse::SessionHandle;
use playhouse::config::Settings;
use playhouse::protocol::event::Provisional;
use playhouse::protocol::record::{StepPart, TurnOutcome};
use playhouse::protocol::{Accepted, EventBody, NewSession, Prompt, Record};
use tempfile::TempDir;

use crate::Result;
use crate::model::{COMMANDS, EDITS, EDITS_ASKED, FILE, MCP, NATIVE, PACED, SWEEP, Server, WALK};

/// A folder for everything that a measurement needs.
pub(crate) struct Place {
    folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        fs_err::create_dir_all(folder.path().join("workspace"))?;
        let line = "A line of a small file, such as models read all day.\n";
        fs_err::write(folder.path().join("workspace").join(FILE), line.repeat(10))?;
        Ok(Self { folder })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// An engine on this place's data directory, whose models `server` runs, in the `dialect`.
    pub(crate) async fn start(&self, server: &Server, dialect: &str) -> Result<House> {
        self.start_with(server, dialect, "").await
    }

    /// The same, with more configuration.
    pub(crate) async fn start_with(&self, server: &Server, dialect: &str, more: &str) -> Result<House> {
        let settings = self.settings(server, dialect, more)?;
        Ok(House::builder(settings).data(self.folder.path().join("data")).start().await?)
    }

    /// The settings of such an engine.
    pub(crate) fn settings(&self, server: &Server, dialect: &str, more: &str) -> Result<Settings> {
        let mut config =
            format!("{more}\n[providers.bench]\ndialect = \"{dialect}\"\nbase_url = \"{}/v1\"\n", server.url);
        let models = [WALK, PACED, "tokens-20000", MCP, NATIVE, EDITS, EDITS_ASKED, COMMANDS, SWEEP];
        for model in models {
            config += &format!("[providers.bench.models.\"{model}\"]\ncontext = 10000000\noutput = 100000\n");
        }
        let file = self.folder.path().join("config.toml");
        fs_err::write(&file, config)?;
        Ok(Settings::load(Some(&file), &|_| None)?)
    }

    /// A new session with one of the server's models.
    pub(crate) async fn session(&self, house: &House, model: &str) -> Result<SessionHandle> {
        let new = NewSession {
            model: Some(format!("bench/{model}").parse()?),
            unattended: true,
            ..NewSession::new("bench", self.folder.path().join("workspace").to_string_lossy().into_owned())
        };
        Ok(house.engine().create(new).await?)
    }
}

/// Runs a turn, reads all its events as a subscriber does, and returns when it is over. What was streamed must be what the
/// log says, so that no measurement is of half the work.
pub(crate) async fn run(session: &SessionHandle) -> Result<()> {
    let mut events = session.events(None).await?;
    // No agent's limit shall end it.
    let prompt = Prompt { steps: Some(u32::MAX), ..Prompt::text("Go.") };
    let Accepted { turn, .. } = session.prompt(prompt).await?;
    let mut streamed = 0;
    while let Some(event) = events.next().await? {
        match &event.event().body {
            EventBody::Provisional(Provisional::PartDelta { text, .. }) => streamed += text.len(),
            EventBody::Provisional(Provisional::Resync { .. }) => {
                return Err("the subscriber fell behind".into());
            }
            EventBody::Provisional(_) => {}
            EventBody::Durable(record) => match record.as_ref() {
                Record::CallProposed(call) => {
                    streamed = streamed.saturating_sub(call.input.to_value().to_string().len());
                }
                Record::StepFinished(step) => {
                    let finished: usize = step.parts.iter().map(text_length).sum();
                    if finished != streamed {
                        return Err(format!("{streamed} bytes were streamed of {finished}").into());
                    }
                    streamed = 0;
                }
                Record::TurnEnded(ended) if ended.turn == turn => {
                    return match ended.outcome {
                        TurnOutcome::Completed => Ok(()),
                        outcome => Err(format!("the turn ended {outcome}: {:?}", ended.error).into()),
                    };
                }
                _ => {}
            },
        }
    }
    Err("the session went away".into())
}

fn text_length(part: &StepPart) -> usize {
    match part {
        StepPart::Text { text, .. } | StepPart::Reasoning { text, .. } => text.len(),
        StepPart::Call { .. } => 0,
    }
}
