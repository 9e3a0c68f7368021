//! What a server offers: its tools, prompts and resources.

use std::time::Duration;

use playhouse_protocol::SessionId;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::call::Bounds;
use super::{CallError, Connection, Link, reason_of};
use crate::list::{INSTRUCTIONS, ListedResource, ListedTool, Listing};
use crate::result::Content;
use crate::text::{cut, line};

/// Number of pages of a list that are read.
const PAGES: usize = 50;
/// Number of entries of a list that are kept.
const ENTRIES: usize = 1_000;
/// The longest entry, in bytes of JSON.
const ENTRY: usize = 256 * 1024;
/// Upper bound of all entries together.
const LIST: usize = 16 << 20;
/// Upper bound of a request for a page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(20);

/// The content of a resource, or a part of it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceContent {
    /// Its address.
    pub uri: String,
    /// Its media type.
    #[serde(default)]
    pub mime_type: Option<String>,
    /// It as text.
    #[serde(default)]
    pub text: Option<String>,
    /// It in base64, if it is no text.
    #[serde(default)]
    pub blob: Option<String>,
}

/// A message of a prompt.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct MessageOfPrompt {
    /// Who says it: `user` or `assistant`.
    pub role: String,
    /// What is said.
    pub content: Content,
}

impl Connection {
    /// Everything that the server offers, as far as it says that it offers it.
    ///
    /// # Errors
    /// A list cannot be had. Entries that cannot be read are left out, and named in [`Listing::refused`].
    pub async fn listing(&self) -> Result<Listing, CallError> {
        let capabilities = &self.info.capabilities;
        let mut listing = Listing {
            instructions: self.info.instructions.as_deref().map(|text| cut(text.trim(), INSTRUCTIONS)),
            has_resources: capabilities.resources.is_some(),
            ..Listing::default()
        };
        if capabilities.tools.is_some() {
            let tools = self.pages::<ListedTool>("tools/list", "tools").await?;
            (listing.tools, listing.refused) = tools;
            let only_tasks = listing.tools.iter().filter(|tool| tool.execution.needs_a_task());
            let only_tasks = only_tasks.map(|tool| tool.name.clone()).collect();
            *self.tasks.lock() = only_tasks;
            if let Link::Web(remote) = &self.link {
                remote.knows(&listing.tools);
            }
        }
        if capabilities.prompts.is_some() {
            // Tools are worth more than prompts: they are not lost for them.
            match self.pages("prompts/list", "prompts").await {
                Ok((prompts, refused)) => {
                    listing.prompts = prompts;
                    listing.refused.extend(refused);
                }
                Err(CallError::Ended(reason)) => return Err(CallError::Ended(reason)),
                Err(error) => listing.refused.push(("prompts".to_owned(), error.to_string())),
            }
        }
        Ok(listing)
    }

    /// The resources of the server. Entries that cannot be read are left out.
    ///
    /// # Errors
    /// The list cannot be had.
    pub async fn resources(&self) -> Result<Vec<ListedResource>, CallError> {
        Ok(self.pages("resources/list", "resources").await?.0)
    }

    /// Reads a resource.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub async fn read_resource(
        &self,
        uri: &str,
        session: SessionId,
        cancel: &CancellationToken,
    ) -> Result<Vec<ResourceContent>, CallError> {
        #[derive(Deserialize)]
        struct Read {
            contents: Vec<ResourceContent>,
        }
        let params = Map::from_iter([("uri".to_owned(), uri.into())]);
        let read: Read = self.ask("resources/read", params, session, cancel).await?;
        Ok(read.contents)
    }

    /// The messages of a prompt.
    ///
    /// # Errors
    /// There is none of this name, or the arguments do not fit.
    pub async fn prompt(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        session: SessionId,
        cancel: &CancellationToken,
    ) -> Result<Vec<MessageOfPrompt>, CallError> {
        #[derive(Deserialize)]
        struct Prompt {
            messages: Vec<MessageOfPrompt>,
        }
        let params =
            Map::from_iter([("name".to_owned(), name.into()), ("arguments".to_owned(), arguments.into())]);
        let prompt: Prompt = self.ask("prompts/get", params, session, cancel).await?;
        Ok(prompt.messages)
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        params: Map<String, Value>,
        session: SessionId,
        cancel: &CancellationToken,
    ) -> Result<T, CallError> {
        let _turn = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(CallError::Cancelled),
            reason = reason_of(self.ended.clone()) => return Err(CallError::Ended(reason)),
            turn = self.handler.turns.take(session) => turn,
        };
        let bounds = Bounds {
            timeout: self.timeout,
            cancel: Some(cancel),
            session: Some(session),
            asker: None,
            progress: None,
        };
        let result = self.request(method, params, &bounds).await?;
        serde_json::from_value(result).map_err(|error| CallError::Malformed(error.to_string()))
    }

    /// The entries of a list, and those that cannot be read, by name and with the reason.
    async fn pages<T: DeserializeOwned>(
        &self,
        method: &str,
        field: &str,
    ) -> Result<(Vec<T>, Vec<(String, String)>), CallError> {
        let (mut entries, mut refused) = (Vec::new(), Vec::new());
        let mut cursor: Option<String> = None;
        let mut bytes = 0;
        for _ in 0..PAGES {
            let params =
                cursor.take().map(|cursor| ("cursor".to_owned(), cursor.into())).into_iter().collect();
            let bounds =
                Bounds { timeout: PAGE_TIMEOUT, cancel: None, session: None, asker: None, progress: None };
            let mut page = self.request(method, params, &bounds).await?;
            let Some(Value::Array(listed)) = page.get_mut(field).map(Value::take) else {
                return Err(CallError::Malformed(format!("{method}: there is no list of {field}")));
            };
            for entry in listed {
                let long = entry.to_string().len();
                bytes += long;
                if entries.len() + refused.len() == ENTRIES || bytes > LIST {
                    refused.push((field.to_owned(), "the list is too long: the rest is left out".to_owned()));
                    return Ok((entries, refused));
                }
                let name = entry.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
                match serde_json::from_value(entry) {
                    _ if long > ENTRY => {
                        refused.push((line(&name, 100), format!("it has {long} bytes, and may have {ENTRY}")))
                    }
                    Ok(entry) => entries.push(entry),
                    Err(error) => refused.push((line(&name, 100), line(&error.to_string(), 200))),
                }
            }
            cursor = page
                .get("nextCursor")
                .and_then(Value::as_str)
                .filter(|next| !next.is_empty())
                .map(str::to_owned);
            if cursor.is_none() {
                return Ok((entries, refused));
            }
        }
        refused.push((field.to_owned(), format!("more than {PAGES} pages: the rest is left out")));
        Ok((entries, refused))
    }
}
