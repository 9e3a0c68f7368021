//! A session's conversation in the wire format of one model: kept between steps, handed to the step actor and back.
//!
//! It begins with the system prompt. That is made once for each agent and model of a session, and then stands in the log, from
//! which it is read when the session wakes again: nothing that it was made of changes it any more.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use playhouse_llm::{Finding, Head, Learned, SentTools, ToolChoice, Toolset, Transcript};
use playhouse_protocol::chat::{AssistantPart, ChatMessage, ToolSpec, UserPart};
use playhouse_protocol::message::{BlobRef, CallInput};
use playhouse_protocol::record::{SettledTool, ToolsSettled};
use playhouse_protocol::{ErrorCode, ErrorInfo, ModelRef, Record, Seq, SessionId};
use playhouse_session::SystemMade;
use playhouse_store::Log;
use playhouse_tools::{Registry, Tool, ToolScope};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::context::EngineContext;
use crate::directory::{Profile, ProfileRequest};
use crate::judge::Judge;

pub(crate) mod outside;

/// Bytes of new messages from which serializing them is left to the pool: about a millisecond's work.
const LARGE: usize = 256 * 1024;

/// Where what precedes a conversation stands in the log, once it is settled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    /// The system prompt.
    pub(crate) system: Option<Seq>,
    /// The tools that are shown, where one is not native, or one is left out that the agent may use.
    pub(crate) tools: Option<Seq>,
    /// Whether the log says which tools from outside are shown. If it does and [`Self::tools`] is `None`, there are none.
    pub(crate) outside: bool,
}

/// Where the tools of a session come from.
#[derive(Clone, Debug)]
pub(crate) struct Offered {
    pub(crate) scope: ToolScope,
    /// The session's allowlist.
    pub(crate) only: Option<Arc<[String]>>,
    /// The tool of a turn that wants an answer with a schema.
    pub(crate) output: Option<ToolSpec>,
}

/// The serialized conversation of one session with one agent and model.
pub(crate) struct Conversation {
    pub(crate) agent: String,
    pub(crate) model: ModelRef,
    /// The record that changed last what is read of older messages, when it was begun.
    pub(crate) revision: Seq,
    /// The tools of which those could make calls who handed the work over; `None` for all that there are.
    pub(crate) tools: Option<Vec<String>>,
    /// The tool `submit_output`, in a turn that wants an answer with a schema. It is the last in the list.
    pub(crate) output: Option<ToolSpec>,
    /// How many of the session's messages it holds.
    pub(crate) messages: usize,
    /// With how many messages the server refused the reasoning in them: it is left out when the conversation begins anew.
    refused: Option<usize>,
    /// Findings of requests since the last answer: whether they help is not known yet.
    unproved: Vec<Finding>,
    /// Made when it is first needed.
    ready: Option<Ready>,
}

struct Ready {
    profile: Arc<Profile>,
    /// Bytes of what precedes the conversation.
    preceding: u64,
    /// A hash of that, in hexadecimal digits.
    head: String,
    sent: SentTools,
    transcript: Transcript,
}

impl Conversation {
    pub(crate) fn new(agent: String, model: ModelRef, revision: Seq, tools: Option<Vec<String>>) -> Self {
        Self {
            agent,
            model,
            revision,
            tools,
            output: None,
            messages: 0,
            refused: None,
            unproved: Vec::new(),
            ready: None,
        }
    }

    /// Adds the `new` messages, which bring it up to `messages` of the session's. What is not `settled` is made, and `settles` is told
    /// of it before the request can leave.
    #[allow(clippy::too_many_arguments, reason = "what a conversation is made of comes from all sides")]
    pub(crate) async fn extend(
        &mut self,
        shared: &Arc<EngineContext>,
        request: &ProfileRequest,
        offered: &Offered,
        settled: Settled,
        settles: impl FnOnce(SystemMade),
        judge: Arc<Judge>,
        new: Vec<ChatMessage>,
        messages: usize,
    ) -> Result<(), ErrorInfo> {
        let tenant = request.tenant.clone();
        // An abort drops this future while it waits for the pool, and the transcript with it: then it holds nothing.
        self.messages = 0;
        let unreasoned = self.ready.is_none() && self.refused.is_some();
        let ready = match self.ready.take() {
            Some(ready) => ready,
            None => {
                if !settled.outside {
                    shared.tools.ready(&offered.scope).await;
                }
                let (directory, tools) = (Arc::clone(judge.directory()), Arc::clone(shared.tools.native()));
                let catalogue = shared.tools.catalogue(&offered.scope, offered.only.as_deref());
                let (log, is_native) = (Arc::clone(&shared.store.log), shared.tools.is_native());
                let (handed, mut request) = (self.tools.clone(), request.clone());
                let output = offered.output.clone();
                let named: Vec<String> = tools
                    .iter()
                    .filter_map(|tool| tool.only_for())
                    .filter(|suffix| settled.tools.is_none() && name_one(&new, suffix))
                    .map(str::to_owned)
                    .collect();
                let profile = move || {
                    let (session, agent) = (request.session, request.agent.clone());
                    request.settled =
                        settled.system.map(|seq| settled_text(&*log, session, seq)).transpose()?;
                    let shown = settled.tools.map(|seq| settled_tools(&*log, session, seq)).transpose()?;
                    request.withheld = withheld(&tools, &judge, &agent, handed.as_deref());
                    let was_shown = shown.is_some();
                    let unneeded = match &shown {
                        Some(shown) => not_among(&tools, &shown.tools),
                        None => {
                            let is_named = |suffix: &str| named.iter().any(|named| named == suffix);
                            tools.unneeded(Path::new(&request.workspace), is_named)
                        }
                    };
                    let may_be_shown =
                        |tool: &String| directory.allows(&agent, tool) && !request.withheld.contains(tool);
                    let leaves_out = !was_shown && unneeded.iter().any(may_be_shown);
                    request.withheld.extend(unneeded);
                    let mut profile = directory.profile(&request)?;
                    hide(&mut profile.head, &request.withheld);
                    let handed = handed.as_deref();
                    let searches = profile.head.rules.tool_search;
                    let (mut outside, instructions) = match shown {
                        Some(ToolsSettled { tools, instructions, .. }) => {
                            (tools.into_iter().filter(|tool| tool.spec.is_some()).collect(), instructions)
                        }
                        None if settled.outside => (Vec::new(), None),
                        None => (
                            outside::shown(&catalogue, &tools, &judge, &agent, handed, searches),
                            outside::instructions(&catalogue, &tools, &judge, &agent, handed),
                        ),
                    };
                    // The system prompt settles that there is none, but where it is older than what is read of messages.
                    let are_settled =
                        settled.outside || (outside.is_empty() && (settled.system.is_none() || is_native));
                    let settles = !was_shown && (leaves_out || !are_settled);
                    let native = profile.head.tools.iter().map(settled_tool);
                    let settled = settles.then(|| native.chain(outside.iter().cloned()).collect());
                    outside::sent(&mut outside, searches);
                    let deferred = outside::deferred(&outside);
                    if !deferred.is_empty() {
                        profile.endpoint.ask_for_tool_search();
                    }
                    let outside = outside.into_iter().filter_map(|tool| tool.spec);
                    let outside = profile.head.adjustments.tools(outside);
                    let names: Vec<String> = outside.iter().map(|spec| spec.name.clone()).collect();
                    outside::show(&mut profile.head, outside.into_iter().chain(output).collect(), deferred);
                    let sent = SentTools::of(&profile.head)
                        .without_some(&profile.head, |name| names.iter().any(|outside| outside == name));
                    Ok((profile, settled, sent, instructions))
                };
                let (mut profile, shown, sent, instructions) = shared.pool.run(profile).await?;
                let text = settled.system.is_none().then(|| profile.head.system.clone());
                profile.head.system.push_str(instructions.as_deref().unwrap_or_default());
                let read = profile.head.tools.bytes_read(profile.endpoint.dialect);
                let preceding = profile.head.system.len() as u64 + read;
                let made = SystemMade {
                    agent: self.agent.clone(),
                    model: self.model.clone(),
                    text,
                    tools: shown,
                    instructions,
                    bytes: preceding,
                };
                settles(made);
                let transcript = Transcript::new(profile.endpoint.dialect, &profile.head);
                let head = hash_of(&profile.head);
                // They stand in the transcript now, and there may be thousands of these.
                (profile.head.system, profile.head.tools) = (String::new(), Toolset::default());
                Ready { profile: Arc::new(profile), preceding, head, sent, transcript }
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
            for mut message in new {
                // Of an older version it does not say after what it was made.
                let checks = ready.profile.head.rules.prefix_check;
                let holds = |made_under: Option<&str>| {
                    made_under.map_or(!checks, |made_under| made_under == ready.head)
                };
                check_reasoning(&mut message, unreasoned, holds);
                ready.transcript.push(&message, &load);
            }
            ready
        };
        self.ready = Some(if large { shared.pool.run(move || push(ready)).await } else { push(ready) });
        self.messages = messages;
        Ok(())
    }

    /// Reads from the error of the request what holds for later requests to the model. Whether the same request may be sent again,
    /// without what was refused; otherwise the error is final. What was found on the way to a refusal that is final is taken back.
    pub(crate) fn learn(&mut self, error: &ErrorInfo, known_window: u64) -> bool {
        let Some(Ready { profile, sent, .. }) = &self.ready else { return false };
        let Profile { findings, endpoint, head, .. } = &**profile;
        if let Some(Learned { finding, is_new }) =
            findings.learn(&self.model, endpoint.dialect, head, sent, error)
        {
            self.unproved.extend(is_new.then_some(finding));
            // Its beginning has to be written anew.
            self.forget();
            return true;
        }
        if let Some(Learned { finding, is_new: true }) =
            findings.learn_window(&self.model, error, known_window)
        {
            tell(&self.model, &finding);
        }
        if error.code == ErrorCode::BadRequest {
            findings.forget(&self.model, self.unproved.drain(..));
        }
        if self.leave_out_reasoning(error) {
            tracing::warn!(model = %self.model, %error, "the server refused earlier reasoning: it is left out from here on");
            return true;
        }
        false
    }

    /// A request was answered: what was found before holds.
    pub(crate) fn answered(&mut self) {
        for finding in self.unproved.drain(..) {
            tell(&self.model, &finding);
        }
    }

    /// Has it begin anew with the next request.
    fn forget(&mut self) {
        (self.ready, self.messages) = (None, 0);
    }

    /// Has it begin anew without the reasoning in it, where that is what the server refused. `false` where the same was refused
    /// without it.
    fn leave_out_reasoning(&mut self, error: &ErrorInfo) -> bool {
        if !playhouse_llm::refuses_reasoning(error) || self.refused == Some(self.messages) {
            return false;
        }
        self.refused = Some(self.messages);
        self.forget();
        true
    }

    /// A hash of the system prompt and the tools, in hexadecimal digits; empty before [`Self::extend`].
    pub(crate) fn head(&self) -> &str {
        self.ready.as_ref().map_or("", |ready| &ready.head)
    }

    /// Bytes of the system prompt and of what the model is told of its tools; 0 before [`Self::extend`].
    pub(crate) fn preceding(&self) -> u64 {
        self.ready.as_ref().map_or(0, |ready| ready.preceding)
    }

    /// The request, and the profile it is made for; `None` before [`Self::extend`].
    pub(crate) fn request(&mut self, last: bool) -> Option<(Arc<Profile>, Bytes)> {
        let ready = self.ready.as_mut()?;
        let choice = if last { ToolChoice::None } else { ToolChoice::Auto };
        Some((Arc::clone(&ready.profile), ready.transcript.request(choice)))
    }
}

/// Says once what was found of a model.
pub(crate) fn tell(model: &ModelRef, finding: &Finding) {
    let line = finding.configuration(model);
    let configuration = line.as_deref().unwrap_or("no configuration key does the same");
    tracing::warn!(
        %model, %finding, configuration,
        "a provider refused a request: later requests to this model are made as `finding` says"
    );
}

/// The member of what goes back with reasoning that says after which system prompt and tools it was made. Dialects pass it over.
pub(crate) const MADE_UNDER: &str = "head";

/// A hash of the system prompt and the tools, the same in every run of every version.
fn hash_of(head: &Head) -> String {
    let mut hash = Sha256::new();
    hash.update(&head.system);
    for ToolSpec { name, description, parameters } in head.tools.iter() {
        for part in [name, description, &parameters.to_string()] {
            hash.update([0]);
            hash.update(part);
        }
        if head.tools.is_deferred(name) {
            hash.update([1]);
        }
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Marks reasoning that does not hold by the hash of the system prompt and the tools after which it was made. With
/// `unreasoned` its server gets nothing of it back but its text. A search of other tools is left out.
fn check_reasoning(message: &mut ChatMessage, unreasoned: bool, holds: impl Fn(Option<&str>) -> bool) {
    let ChatMessage::Assistant { parts } = message else { return };
    for part in parts {
        if let AssistantPart::Reasoning { opaque, stale, .. } = part {
            let Some(members) = &*opaque else { continue };
            let is_held = holds(members.get(MADE_UNDER).and_then(Value::as_str));
            if playhouse_llm::is_search(members) {
                opaque.take_if(|_| !is_held);
                continue;
            }
            opaque.take_if(|_| unreasoned);
            *stale |= opaque.is_some() && !is_held;
        }
    }
}

/// The system prompt that stands in the log. Blocks.
fn settled_text(log: &dyn Log, session: SessionId, seq: Seq) -> Result<String, ErrorInfo> {
    match record_at(log, session, seq).map_err(|error| unreadable("the system prompt", &error))? {
        Record::SystemSettled(settled) => Ok(settled.text),
        other => Err(unreadable("the system prompt", &format!("record {seq} is {}", other.kind()))),
    }
}

/// The tools that the log says are shown. Blocks.
fn settled_tools(log: &dyn Log, session: SessionId, seq: Seq) -> Result<ToolsSettled, ErrorInfo> {
    match record_at(log, session, seq).map_err(|error| unreadable("the tools", &error))? {
        Record::ToolsSettled(settled) => Ok(settled),
        other => Err(unreadable("the tools", &format!("record {seq} is {}", other.kind()))),
    }
}

fn record_at(log: &dyn Log, session: SessionId, seq: Seq) -> Result<Record, String> {
    let read = log.read(session, Seq(seq.0.saturating_sub(1)), 1).map_err(|error| error.to_string())?;
    let entry = read.entries.into_iter().next().filter(|entry| entry.seq == seq);
    entry.map(|entry| entry.record).ok_or_else(|| format!("record {seq} of the log is not there"))
}

fn unreadable(what: &str, error: &str) -> ErrorInfo {
    ErrorInfo::new(ErrorCode::Internal, format!("{what} of the session cannot be read: {error}"))
}

fn settled_tool(spec: &ToolSpec) -> SettledTool {
    SettledTool { name: spec.name.clone(), ..SettledTool::default() }
}

/// The tools of which no call of `agent` could ever run. `handed` are those that the agents could call who handed the work over.
fn withheld(tools: &Registry, judge: &Judge, agent: &str, handed: Option<&[String]>) -> Vec<String> {
    let (hides, too_deep) = (judge.hides(agent), judge.too_deep().is_some());
    let is_withheld = |tool: &&Arc<dyn Tool>| {
        handed.is_some_and(|tools| !tools.contains(&tool.spec().name))
            || hides(tool.permission())
            || (too_deep && hands_over(tool.as_ref()))
    };
    tools.iter().filter(is_withheld).map(|tool| tool.spec().name.clone()).collect()
}

/// The tools that are not among those that the log says are `shown`.
fn not_among(tools: &Registry, shown: &[SettledTool]) -> Vec<String> {
    let names = tools.iter().map(|tool| &tool.spec().name);
    names.filter(|name| !shown.iter().any(|tool| tool.name == **name)).cloned().collect()
}

/// Whether a prompt or the name of an attachment holds `suffix`.
fn name_one(messages: &[ChatMessage], suffix: &str) -> bool {
    let names = |part: &UserPart| match part {
        UserPart::Text { text } => text.contains(suffix),
        UserPart::File(file) => file.filename.contains(suffix),
    };
    messages.iter().any(|message| match message {
        ChatMessage::User { parts } => parts.iter().any(names),
        ChatMessage::Assistant { .. } | ChatMessage::Results { .. } => false,
    })
}

/// Takes tools out of what the model is shown, where the directory left them in.
fn hide(head: &mut Head, withheld: &[String]) {
    let is_shown = |spec: &&ToolSpec| !withheld.contains(&spec.name);
    if !head.tools.iter().all(|spec| is_shown(&spec)) {
        head.tools = head.tools.iter().filter(is_shown).cloned().collect();
    }
}

/// Whether calls of a tool hand work over to other sessions.
fn hands_over(tool: &dyn Tool) -> bool {
    tool.delegation(&CallInput::Object(serde_json::Map::new())).is_some()
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
                AssistantPart::Text { text, .. } | AssistantPart::Reasoning { text, .. } => text.len(),
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
