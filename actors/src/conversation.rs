//! A session's conversation in the wire format of one model: kept between steps, handed to the step actor and back.

use std::sync::Arc;

use bytes::Bytes;
use playhouse_llm::{Head, Reminder, ToolChoice, Transcript};
use playhouse_protocol::chat::{AssistantPart, ChatMessage, ToolSpec, UserPart};
use playhouse_protocol::message::BlobRef;
use playhouse_protocol::{ErrorInfo, ModelRef};
use playhouse_tools::Registry;

use crate::directory::{Profile, ProfileRequest};
use crate::judge::Judge;
use crate::shared::Shared;

/// Bytes of new messages from which serializing them is left to the pool: about a millisecond's work.
const LARGE: usize = 256 * 1024;

/// The serialized conversation of one session with one agent and model.
pub(crate) struct Conversation {
    pub(crate) agent: String,
    pub(crate) model: ModelRef,
    /// How many of the session's messages it holds.
    pub(crate) messages: usize,
    /// Made when it is first needed.
    ready: Option<Ready>,
}

struct Ready {
    profile: Arc<Profile>,
    transcript: Transcript,
}

impl Conversation {
    pub(crate) fn new(agent: String, model: ModelRef) -> Self {
        Self { agent, model, messages: 0, ready: None }
    }

    /// Adds the `new` messages, which bring it up to `messages` of the session's.
    pub(crate) async fn extend(
        &mut self,
        shared: &Arc<Shared>,
        request: ProfileRequest,
        judge: Arc<Judge>,
        new: Vec<ChatMessage>,
        messages: usize,
    ) -> Result<(), ErrorInfo> {
        let tenant = request.tenant.clone();
        // An abort drops this future while it waits for the pool, and the transcript with it: then it holds nothing.
        self.messages = 0;
        let ready = match self.ready.take() {
            Some(ready) => ready,
            None => {
                let (directory, tools) = (Arc::clone(&shared.directory), Arc::clone(&shared.tools));
                let profile = move || {
                    let mut profile = directory.profile(&request)?;
                    hide(&mut profile.head, &tools, judge.hides(&request.agent));
                    Ok(profile)
                };
                let profile = shared.pool.run(profile).await?;
                let transcript = Transcript::new(profile.endpoint.dialect, &profile.head);
                Ready { profile: Arc::new(profile), transcript }
            }
        };
        let large = new.iter().map(size).sum::<usize>() > LARGE || new.iter().any(holds_files);
        let blobs = Arc::clone(&shared.store.blobs);
        let push = move |mut ready: Ready| {
            // One at a time, and only those that the request carries. One that cannot be read is left out: the model is
            // told so in its place.
            let load = |blob: &BlobRef| match blobs.get(&tenant, blob) {
                Ok(content) => Some(Bytes::from(content)),
                Err(error) => {
                    tracing::error!(blob = %blob.hash, %error, "an attachment cannot be read");
                    None
                }
            };
            for message in &new {
                ready.transcript.push(message, &load);
            }
            ready
        };
        self.ready = Some(if large { shared.pool.run(move || push(ready)).await } else { push(ready) });
        self.messages = messages;
        Ok(())
    }

    /// The request, and the profile it is made for; `None` before [`Self::extend`].
    pub(crate) fn request(&mut self, last: bool) -> Option<(Arc<Profile>, Bytes)> {
        let ready = self.ready.as_mut()?;
        let profile = &ready.profile;
        let body = if last {
            let text = profile.max_steps.clone();
            let reminder = if profile.prefill { Reminder::Assistant(text) } else { Reminder::User(text) };
            ready.transcript.request(ToolChoice::None, Some(&reminder))
        } else {
            ready.transcript.request(ToolChoice::Auto, None)
        };
        Some((Arc::clone(profile), body))
    }
}

/// Takes those tools out of what the model is shown of which no call could ever run.
fn hide(head: &mut Head, tools: &Registry, hides: impl Fn(&str) -> bool) {
    let is_shown = |spec: &&ToolSpec| tools.get(&spec.name).is_none_or(|tool| !hides(tool.permission()));
    if !head.tools.iter().all(|spec| is_shown(&spec)) {
        head.tools = head.tools.iter().filter(is_shown).cloned().collect();
    }
}

/// About how many bytes a message will have.
fn size(message: &ChatMessage) -> usize {
    match message {
        ChatMessage::User { parts } => parts
            .iter()
            .map(|part| match part {
                UserPart::Text { text } => text.len(),
                UserPart::File(_) => 0,
            })
            .sum(),
        ChatMessage::Assistant { parts } => parts
            .iter()
            .map(|part| match part {
                AssistantPart::Text { text } | AssistantPart::Reasoning { text, .. } => text.len(),
                AssistantPart::Call { input, .. } => {
                    input.values().map(|value| value.as_str().map_or(16, str::len)).sum()
                }
            })
            .sum(),
        ChatMessage::Results { results } => results.iter().map(|result| result.output.len()).sum(),
    }
}

fn holds_files(message: &ChatMessage) -> bool {
    match message {
        ChatMessage::User { parts } => parts.iter().any(|part| matches!(part, UserPart::File(_))),
        ChatMessage::Assistant { .. } => false,
        ChatMessage::Results { results } => results.iter().any(|result| !result.attachments.is_empty()),
    }
}
