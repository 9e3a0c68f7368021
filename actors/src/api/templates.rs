//! Command templates: what one becomes, and the commands of the shell that run for it first.
//!
//! A shell block is a turn of its own without a model, in which the tool `bash` is called as if the agent had called it: the
//! rules and people's consent hold, it stands in the log before it starts, and clients see it. Its output is then put into the
//! text, and nothing of that is read again. Where the process ends in between, the same prompt that is sent again finds what ran
//! already: the ids of the blocks follow from its own.

use std::path::Path;
use std::sync::Arc;

use playhouse_protocol::command::{Finished, MessagesQuery};
use playhouse_protocol::message::{Attachment, CallOutcome, CallResult, CallState, Message, Part};
use playhouse_protocol::template::TemplateList;
use playhouse_protocol::{
    Accepted, Command, CommandError, MessageId, Prompt, Reply, ShellBlock, ShellCommand, TemplateCommand,
    Timestamp, WhenBusy,
};
use playhouse_tools::{NewAttachment, ToolScope, ToolSource as _};
use serde_json::Value;

use crate::api::engine::{Engine, look_for_servers, nobody};
use crate::api::handle::{SessionHandle, unexpected};
use crate::base::Ids;
use crate::directory::{FilledTemplate, TemplatePiece};
use crate::mentions::{Meant, mentions};
use crate::shared::mcp::{McpServers, ServerPrompt};
use crate::wake::reopen;

/// The longest text that is typed behind the name of a template, in bytes.
const LONGEST_ARGUMENTS: usize = 100 * 1024;
/// The longest text that a server of tools makes of a prompt, in bytes, and the most files.
const LONGEST_SAID: usize = 256 * 1024;
const MOST_FILES: usize = 20;
/// The most paths that are looked for; far fewer are attached.
const MOST_PATHS: usize = 100;
/// The tool that hands work over.
const TASK: &str = "task";
/// Who is given a subtask that names no agent.
const SUBAGENT: &str = "general";
/// What the agent reads that is to hand a template over.
const SUBTASK: &str = include_str!("../../../prompts/subtask.md");

impl Engine {
    /// The command templates for sessions of `tenant` in a directory (absolute, links resolved), and behind them the prompts of
    /// the servers of tools that they may use.
    ///
    /// # Errors
    /// The directory is not to be looked at.
    pub async fn templates(&self, tenant: &str, directory: &Path) -> Result<TemplateList, CommandError> {
        let mut list = self.own_templates(directory).await?;
        if let Some(servers) = &self.shared.mcp {
            let scope = nobody(tenant, &directory.to_string_lossy());
            look_for_servers(&self.shared, &scope).await?;
            servers.ready(&scope).await;
            list.commands.extend(servers.prompts(&scope).iter().map(ServerPrompt::facts));
        }
        Ok(list)
    }

    async fn own_templates(&self, directory: &Path) -> Result<TemplateList, CommandError> {
        let (engine, directory) = (self.clone(), directory.to_owned());
        let read = move || {
            let outlook = engine.look(&directory)?;
            Ok(engine.shared.directory.templates(outlook.directory()))
        };
        self.shared.pool.run(read).await
    }
}

impl SessionHandle {
    /// Runs a command template. On return its shell blocks ran, and the prompt that it became is durable.
    ///
    /// # Errors
    /// There is no such template, a shell block did not run to its end, or why the prompt was not admitted.
    pub async fn template(&self, template: TemplateCommand) -> Result<Accepted, CommandError> {
        let prompt = Box::pin(self.filled(template)).await?;
        self.prompt(prompt).await
    }

    /// Runs a command template and waits for the end of its turn.
    ///
    /// # Errors
    /// As [`SessionHandle::template`] has them, or why the end was not seen.
    pub async fn run_template(&self, template: TemplateCommand) -> Result<Finished, CommandError> {
        let prompt = Box::pin(self.filled(template)).await?;
        self.run(prompt).await
    }

    /// The prompt that a template becomes; its shell blocks are run.
    async fn filled(&self, template: TemplateCommand) -> Result<Prompt, CommandError> {
        let TemplateCommand { name, arguments, prompt } = template;
        if !prompt.text.is_empty() {
            return Err(CommandError::Invalid(
                "a command template has its text itself: leave `text` out".into(),
            ));
        }
        if arguments.len() > LONGEST_ARGUMENTS {
            return Err(CommandError::Invalid(format!(
                "what was typed behind /{name} has more than {LONGEST_ARGUMENTS} bytes: put it into a file of the workspace and name that"
            )));
        }
        if ServerPrompt::may_be(&name)
            && let Some(said) = self.said_by_server(&name, &arguments).await?
        {
            return Ok(Prompt { plain: true, ..with(prompt, said) });
        }
        let (shared, id, of) = (Arc::clone(&self.shared), self.id(), name.clone());
        let read = move || {
            let summary = shared.store.log.summary(id)?.ok_or(CommandError::NotFound(id))?;
            let workspace = reopen(&shared, &summary).map_err(CommandError::Invalid)?;
            let filled = shared.directory.template(workspace.root(), &of, &arguments);
            let filled = filled.map_err(CommandError::Invalid)?;
            if filled.subtask {
                let directory = Arc::clone(&shared.directory).local(workspace.root());
                let agent = filled.agent.as_deref().unwrap_or(SUBAGENT);
                let takes = directory.and_then(|directory| directory.takes_tasks(agent));
                takes.map_err(|error| CommandError::Invalid(format!("/{of} is a subtask: {error}")))?;
            }
            Ok::<_, CommandError>(filled)
        };
        let filled = self.shared.pool.run(read).await?;
        if filled.subtask && self.shared.tools.native().get(TASK).is_none() {
            let text = format!("/{name} is a subtask, and there is no tool `{TASK}` to hand it over with");
            return Err(CommandError::Invalid(text));
        }
        // One that sorts before all that the session makes for it, its answers among them.
        let message = prompt.message.unwrap_or_else(|| Ids::after(Timestamp::default()).next());
        self.with_blocks(&name, filled, Prompt { message: Some(message), ..prompt }, message).await
    }

    /// The servers of tools, where there may be any, and the session's view of them. Those that can answer soon have done so.
    pub(super) async fn servers_ready(&self) -> Result<Option<(McpServers, ToolScope)>, CommandError> {
        let Some(servers) = self.shared.mcp.clone() else { return Ok(None) };
        let (shared, id) = (Arc::clone(&self.shared), self.id());
        let looked = move || {
            let summary = shared.store.log.summary(id)?.ok_or(CommandError::NotFound(id))?;
            let workspace = reopen(&shared, &summary).map_err(CommandError::Invalid)?;
            let (tenant, workspace) = (summary.tenant.into(), workspace.root().into());
            Ok::<_, CommandError>(ToolScope { tenant, workspace, session: id })
        };
        let scope = self.shared.pool.run(looked).await?;
        look_for_servers(&self.shared, &nobody(&scope.tenant, &scope.workspace.to_string_lossy())).await?;
        servers.ready(&scope).await;
        Ok(Some((servers, scope)))
    }

    /// The text and files of a prompt that a server of tools offers; `None` if no server has a prompt of this name.
    async fn said_by_server(
        &self,
        name: &str,
        arguments: &str,
    ) -> Result<Option<(String, Vec<Attachment>)>, CommandError> {
        let Some((servers, scope)) = self.servers_ready().await? else { return Ok(None) };
        let Some(prompt) = servers.prompts(&scope).into_iter().find(|prompt| prompt.command() == name) else {
            return match servers.without_prompt(&scope, name) {
                Some(why) => Err(CommandError::Invalid(why)),
                None => Ok(None),
            };
        };
        let words = self.shared.directory.words(arguments, prompt.most_words());
        let said = prompt.get(words).await.map_err(CommandError::Invalid)?;
        let shared = Arc::clone(&self.shared);
        let store = move || {
            let said = said.into_output(String::new());
            let said = said.map_err(|error| CommandError::Invalid(error.to_string()))?;
            if said.output.len() > LONGEST_SAID || said.attachments.len() > MOST_FILES {
                return Err(CommandError::Invalid(format!(
                    "the server's prompt is too large: {} bytes of text and {} files, of at most {LONGEST_SAID} and {MOST_FILES}",
                    said.output.len(),
                    said.attachments.len()
                )));
            }
            let files = said.attachments.into_iter().map(|NewAttachment { mime, filename, content }| {
                let blob = shared.put_blob(&scope.tenant, &content)?;
                Ok(Attachment { mime, filename, blob, mentioned: false, part: None, source: None })
            });
            Ok((said.output, files.collect::<Result<Vec<_>, CommandError>>()?))
        };
        self.shared.pool.run(store).await.map(Some)
    }

    async fn with_blocks(
        &self,
        name: &str,
        filled: FilledTemplate,
        prompt: Prompt,
        message: MessageId,
    ) -> Result<Prompt, CommandError> {
        let FilledTemplate { agent, model, subtask, pieces } = filled;
        let is_shell = |piece: &&TemplatePiece| matches!(piece, TemplatePiece::Shell(_));
        let mut left = pieces.iter().filter(is_shell).count() as u64;
        let has_blocks = left > 0;
        // Of a subtask, the agent that hands it over runs them.
        let own = |named: &Option<String>| if subtask { None } else { named.clone() };
        let agent_here = own(&agent).or(prompt.agent.clone());
        let model_here = if subtask { None } else { model }.or(prompt.model.clone());
        let (mut text, mut paths) = (String::new(), prompt.paths.clone());
        for piece in pieces {
            match piece {
                TemplatePiece::Text(written) => {
                    // What commands print is nobody's mention.
                    if has_blocks && !prompt.plain {
                        let found =
                            mentions(&written).into_iter().flatten().filter_map(|meant| match meant {
                                Meant::Path(mention) => Some(*mention),
                                Meant::NoLines { .. } => None,
                            });
                        let room = MOST_PATHS.saturating_sub(paths.len());
                        paths.extend(found.take(room));
                    }
                    text.push_str(&written);
                }
                TemplatePiece::Shell(command) => {
                    let block = ShellCommand {
                        message: Some(message.earlier(left)),
                        command,
                        timeout: None,
                        agent: agent_here.clone(),
                        model: model_here.clone(),
                        block: Some(ShellBlock {
                            template: name.to_owned(),
                            when_busy: match prompt.when_busy {
                                // No running turn could read it.
                                WhenBusy::Steer => WhenBusy::Queue,
                                when_busy => when_busy,
                            },
                            unattended: prompt.unattended,
                        }),
                    };
                    left -= 1;
                    text.push_str(self.output_of(name, block).await?.trim_end_matches('\n'));
                }
            }
        }
        let text = if subtask { handed_over(agent.as_deref(), text.trim()) } else { text };
        let plain = prompt.plain || has_blocks;
        Ok(Prompt { text, paths, plain, agent: agent_here, model: model_here, ..prompt })
    }

    /// Runs a shell block; what it printed.
    async fn output_of(&self, name: &str, block: ShellCommand) -> Result<String, CommandError> {
        let command = block.command.clone();
        let turn = block.message;
        self.run_shell(block).await?;
        let query = MessagesQuery { after: turn, limit: 1, ..MessagesQuery::default() };
        let page = match self.command(Command::Messages(query)).await? {
            Reply::Messages(page) => page,
            other => return Err(unexpected(&other)),
        };
        let result = page.messages.into_iter().find_map(|message| match message {
            Message::Assistant(message) if Some(message.parent) == turn => {
                message.parts.into_iter().find_map(result_of)
            }
            _ => None,
        });
        let why = match result {
            Some(CallResult { outcome: CallOutcome::Done, output, metadata, .. }) => {
                let is = |name: &str, value: &Value| metadata.get(name) == Some(value);
                if !is("timedOut", &Value::Bool(true)) {
                    // The tool tells models that there is none, which is no output of the command.
                    let is_empty = is("output", &Value::from("")) && is("exit", &Value::from(0));
                    return Ok(if is_empty { String::new() } else { output });
                }
                output
            }
            Some(CallResult { output, .. }) => output,
            None => "it was aborted before it ran".to_owned(),
        };
        let shown: String = command.chars().take(200).collect();
        let why: String = why.trim().chars().take(500).collect();
        Err(CommandError::Invalid(format!(
            "/{name} was not run: its shell block `{shown}` did not end well: {why}"
        )))
    }
}

/// The prompt with a text and more files.
fn with(prompt: Prompt, (text, files): (String, Vec<Attachment>)) -> Prompt {
    Prompt { text, files: prompt.files.iter().cloned().chain(files).collect(), ..prompt }
}

fn result_of(part: Part) -> Option<CallResult> {
    match part {
        Part::Call(call) => match call.state {
            CallState::Settled(result) => Some(result),
            _ => None,
        },
        _ => None,
    }
}

/// What the agent reads that is to hand `text` over to `agent`.
fn handed_over(agent: Option<&str>, text: &str) -> String {
    let (head, tail) = SUBTASK.trim_end().split_once("{{text}}").unwrap_or((SUBTASK, ""));
    format!("{}{text}{tail}", head.replacen("{{agent}}", agent.unwrap_or(SUBAGENT), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_over_is_not_read_as_a_template() {
        let text = handed_over(Some("explore"), "find {{agent}} and {{text}}");
        assert!(
            text.contains("`explore`") && text.ends_with("find {{agent}} and {{text}}\n</task>"),
            "{text}"
        );
        assert!(handed_over(None, "x").contains("`general`"));
    }
}
