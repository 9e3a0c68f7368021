//! Prompts of servers, which people run like command templates.

use std::collections::HashSet;
use std::sync::Arc;

use playhouse_mcp::{CallResult, ListedPrompt, MessageOfPrompt, PromptArgument};
use playhouse_protocol::template::{TemplateFacts, TemplateOwner};
use playhouse_tools::ToolScope;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::caller::SessionCaller;
use super::{McpServers, McpState, ServerKey};

/// What separates a server from its prompt in the name of a command: no name of a template has it.
const SEPARATOR: char = ':';

/// A prompt of a server, for one session.
pub(crate) struct ServerPrompt {
    /// Its name as a command: `server:prompt`.
    command: String,
    listed: ListedPrompt,
    caller: SessionCaller,
}

impl McpServers {
    /// The prompts of the servers that `scope` may use, as far as their lists are known. Servers of which nothing is known are asked.
    pub(crate) fn prompts(&self, scope: &ToolScope) -> Vec<ServerPrompt> {
        let inner = &self.0;
        let disabled = inner.disabled.lock().clone();
        let mut taken = HashSet::new();
        let usable = inner.declared.of(scope);
        let mut prompts = Vec::new();
        for declared in usable.iter().filter(|declared| !disabled.contains(&declared.hash)) {
            let key = ServerKey::new(declared, scope);
            let Some(seen) = inner.known.of_key(&key) else {
                inner.ask(key, scope.session);
                continue;
            };
            for listed in &seen.listing.prompts {
                let command = format!("{}{SEPARATOR}{}", declared.entry.name, plain(&listed.name));
                if taken.insert(command.clone()) {
                    let servers = Arc::downgrade(inner);
                    let caller = SessionCaller { servers, key: key.clone(), session: scope.session };
                    prompts.push(ServerPrompt { command, listed: listed.clone(), caller });
                }
            }
        }
        prompts
    }
}

impl McpServers {
    /// Why a server that is declared has no prompt of this name, with what to do: a text for users. `None` if there is no such
    /// server.
    pub(crate) fn without_prompt(&self, scope: &ToolScope, command: &str) -> Option<String> {
        let (server, _) = command.split_once(SEPARATOR)?;
        let all = self.status(Some(&scope.tenant), Some(&scope.workspace));
        let status = all.into_iter().find(|status| status.name == server)?;
        let state = match status.state {
            McpState::Connected | McpState::Stopped if status.tools.is_some() => {
                "the server has no prompt of this name: GET /v1/commands lists those that it has".to_owned()
            }
            McpState::Connected | McpState::Stopped | McpState::Starting => {
                "the server is being asked for its prompts: try again in a few seconds".to_owned()
            }
            McpState::Failed(why) => format!("the server failed: {why}"),
            McpState::Disabled => "the server is switched off: connect it first".to_owned(),
            McpState::Asks => {
                "people must agree to the server first: send a prompt, and answer what is asked".to_owned()
            }
            McpState::Refused(why) | McpState::NeedsLogin(why) | McpState::NeedsRegistration(why) => {
                why.to_string()
            }
        };
        Some(format!("/{command}: {state}"))
    }
}

impl ServerPrompt {
    /// Whether `name` could be one.
    pub(crate) fn may_be(name: &str) -> bool {
        name.contains(SEPARATOR)
    }

    pub(crate) fn command(&self) -> &str {
        &self.command
    }

    /// How many words that are typed behind its name it takes.
    pub(crate) fn most_words(&self) -> usize {
        self.listed.arguments.len()
    }

    /// It as lists of commands have it.
    pub(crate) fn facts(&self) -> TemplateFacts {
        let ListedPrompt { title, description, arguments, .. } = &self.listed;
        let names = arguments.iter().map(|PromptArgument { name, required, .. }| match required {
            true => name.clone(),
            false => format!("[{name}]"),
        });
        let names: Vec<String> = names.collect();
        let takes = if names.is_empty() { String::new() } else { format!(", with {}", names.join(" ")) };
        TemplateFacts {
            name: self.command.clone(),
            description: description.clone().or_else(|| title.clone()),
            agent: None,
            model: None,
            subtask: false,
            template: format!("The prompt {} of a server of tools{takes}", self.listed.name),
            hints: (1..=arguments.len()).map(|number| format!("${number}")).collect(),
            owner: TemplateOwner::Server,
        }
    }

    /// What the server makes of it with these words, in the order of its arguments. Files may be among it.
    ///
    /// # Errors
    /// An argument is missing, or the server did not give it: a text for users.
    pub(crate) async fn get(&self, words: Vec<String>) -> Result<CallResult, String> {
        let named = |error: String| format!("/{}: {error}", self.command);
        let arguments = self.arguments(words).map_err(named)?;
        let never = CancellationToken::new();
        let messages = self.caller.prompt(&self.listed.name, arguments, &never).await;
        let messages = messages.map_err(|error| named(error.to_string()))?;
        let is_only = messages.len() == 1;
        let mut content = Vec::new();
        for MessageOfPrompt { role, content: said } in messages {
            // One message is the prompt itself.
            if !is_only && role != "user" {
                content.push(playhouse_mcp::result::Content::Text(format!("{role}:")));
            }
            content.push(said);
        }
        Ok(CallResult { content, structured: None, is_error: false })
    }

    fn arguments(&self, words: Vec<String>) -> Result<Map<String, Value>, String> {
        let declared = &self.listed.arguments;
        if declared.is_empty() && !words.is_empty() {
            return Err("it takes no arguments".to_owned());
        }
        let mut arguments = Map::new();
        let mut words = words.into_iter();
        for PromptArgument { name, required, .. } in declared {
            match words.next() {
                Some(word) => drop(arguments.insert(name.clone(), word.into())),
                None if *required => return Err(format!("its argument \"{name}\" is missing")),
                None => {}
            }
        }
        Ok(arguments)
    }
}

/// A name without what would end the name of a command.
fn plain(name: &str) -> String {
    let is_plain = |sign: &char| sign.is_alphanumeric() || matches!(sign, '-' | '_' | '.');
    name.chars().take(64).map(|sign| if is_plain(&sign) { sign } else { '_' }).collect()
}
