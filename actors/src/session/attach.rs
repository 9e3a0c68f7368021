//! What is attached to a prompt: files that somebody gave, and paths of the workspace that it names.
//!
//! Here for all who send prompts, so that they need not agree on it. Files are told by their content; text and documents
//! stay as they are, images are made to fit what models take, and what no model reads is refused with the reason. A path that
//! is named is read by the tool `read`, as far as the rules let the prompt's agent read it without asking: a text is nobody's
//! consent. What cannot be attached stays text, and the model may ask for it.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use playhouse_policy::{Verdict, Zone};
use playhouse_protocol::message::{Attachment, BlobRef, CallInput, ToolSwitches};
use playhouse_protocol::{CommandError, PathMention, Prompt};
use playhouse_tools::media::{self, Given, MediaError};
use playhouse_tools::{CallContext, ToolError, runner};
use playhouse_workspace::{Resolved, door};
use ractor::ActorRef;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::SessionState;
use crate::base::spawn;
use crate::call::host::SessionHost;
use crate::context::EngineContext;
use crate::mailbox::{ReplyPort, SessionMessage};
use crate::mentions::{Meant, mentions};

/// The tool that reads what is named.
const READ: &str = "read";
/// The longest of what stands in the place of lines that is told, in characters.
const LONGEST_LINES: usize = 40;
/// The most paths that are attached to one prompt.
const MOST_PATHS: usize = 20;
/// The most text in all files that somebody gives with one prompt, in bytes.
const ALL_TEXT: usize = 1024 * 1024;

/// Whether there is anything to be looked at before the prompt is admitted.
pub(super) fn attaches(prompt: &Prompt) -> bool {
    let names = || said(prompt).any(|text| text.contains('@'));
    !prompt.files.is_empty() || !prompt.paths.is_empty() || (!prompt.plain && names())
}

/// What somebody wrote in a prompt.
fn said(prompt: &Prompt) -> impl Iterator<Item = &str> {
    let more = prompt.texts.iter().filter(|text| text.is_said()).map(|text| text.text.as_str());
    std::iter::once(prompt.text.as_str()).chain(more)
}

impl SessionState {
    /// Attaches what is to be attached, beside the session, and comes back with [`SessionMessage::Attached`]. Whoever sent
    /// the prompt waits meanwhile, and keeps the session in memory.
    pub(super) fn attach(&self, myself: &ActorRef<SessionMessage>, prompt: Prompt, port: ReplyPort) {
        let checked = self.check(&prompt).and_then(|choice| Ok((choice.agent, self.place()?.clone())));
        let (agent, place) = match checked {
            Ok(checked) => checked,
            Err(error) => {
                // A caller that went away needs no answer.
                drop(port.send(Err(error)));
                return;
            }
        };
        let host = Arc::new(SessionHost {
            session_id: self.id,
            call: self.ids.next(),
            agent: Some(agent),
            tools: ToolSwitches::new(),
            handed: None,
            giver: None,
            delegate: OnceLock::new(),
            cancel: CancellationToken::new(),
            judge: Arc::clone(&self.judge),
            catalogue: self.catalogue(),
            todos: self.todos.clone(),
            rules: self.rules.clone(),
            session: myself.clone(),
            own: None,
            observers: Vec::new(),
        });
        let context = self.context(&place, &host, Arc::new(()));
        let desk = Desk { shared: Arc::clone(&self.shared), tenant: Arc::clone(&self.tenant), host, context };
        let (myself, child) = (myself.clone(), self.shared.children.enter());
        spawn(async move {
            let attached = Box::pin(desk.attach(prompt)).await;
            // A session that is gone has told its callers that nothing was accepted.
            drop(myself.send_message(SessionMessage::Attached(Box::new(attached), port)));
            drop(child);
        });
    }
}

/// Where one prompt's files are made ready.
struct Desk {
    shared: Arc<EngineContext>,
    tenant: Arc<str>,
    host: Arc<SessionHost>,
    context: CallContext,
}

impl Desk {
    async fn attach(&self, mut prompt: Prompt) -> Result<Prompt, CommandError> {
        let mut text = 0;
        let mut files = Vec::with_capacity(prompt.files.len());
        for file in std::mem::take(&mut prompt.files) {
            let file = self.given(file).await?;
            if file.is_text() {
                text += usize::try_from(file.blob.size).unwrap_or(usize::MAX);
            }
            if text > ALL_TEXT {
                return Err(CommandError::Invalid(format!(
                    "the attached texts have more than {ALL_TEXT} bytes: name their paths in the prompt and let the agent read what it needs"
                )));
            }
            files.push(file);
        }
        let mut seen = HashSet::new();
        for path in std::mem::take(&mut prompt.paths) {
            self.named(vec![Meant::Path(Box::new(path))], &mut seen, &mut files).await?;
        }
        if !prompt.plain {
            for candidates in said(&prompt).flat_map(mentions) {
                self.named(candidates, &mut seen, &mut files).await?;
            }
        }
        Ok(Prompt { files, ..prompt })
    }

    /// A file that somebody gave, as models are sent it.
    async fn given(&self, file: Attachment) -> Result<Attachment, CommandError> {
        let wrong = |why: &dyn std::fmt::Display| {
            CommandError::Invalid(format!("cannot attach \"{}\": {why}", file.filename.escape_debug()))
        };
        if file.blob.size > media::LARGEST_SOURCE {
            let (size, most) = (file.blob.size, media::LARGEST_SOURCE);
            return Err(wrong(&format!("it has {size} bytes, more than {most}")));
        }
        let (blobs, tenant, blob) =
            (Arc::clone(&self.shared.store.blobs), Arc::clone(&self.tenant), file.blob.clone());
        let fitted = self.context.pool.run(move || {
            let content = Bytes::from(blobs.get(&tenant, &blob).map_err(Unfit::Lost)?);
            match media::given(content).map_err(Unfit::Media)? {
                Given::Text(_) => Ok((None, blob)),
                Given::Media(fitted) if fitted.scaled.is_none() => Ok((Some(fitted.kind), blob)),
                Given::Media(fitted) => {
                    let blob = blobs.put(&tenant, &fitted.content).map_err(Unfit::Lost)?;
                    Ok((Some(fitted.kind), blob))
                }
            }
        });
        let (kind, blob) = match fitted.await {
            Ok(fitted) => fitted,
            Err(Unfit::Lost(error)) => return Err(error.into()),
            Err(Unfit::Media(error)) => return Err(wrong(&format!("it {error}"))),
        };
        let mime = match kind {
            Some(kind) => kind.mime().to_owned(),
            // Which text it is, is not told by content.
            None if file.mime.starts_with("text/") => file.mime,
            None => "text/plain".to_owned(),
        };
        Ok(Attachment { mime, blob, ..file })
    }

    /// Attaches the first of `candidates` that there is, once, if it may be read.
    async fn named(
        &self,
        candidates: Vec<Meant>,
        seen: &mut HashSet<PathBuf>,
        files: &mut Vec<Attachment>,
    ) -> Result<(), CommandError> {
        if seen.len() >= MOST_PATHS {
            return Ok(());
        }
        let workspace = Arc::clone(&self.context.workspace);
        let find = move || {
            candidates.into_iter().find_map(|meant| {
                let (mention, no_lines) = match meant {
                    Meant::Path(mention) => (*mention, None),
                    Meant::NoLines { path, lines } => {
                        (PathMention { path, ..PathMention::default() }, Some(lines))
                    }
                };
                let resolved = workspace.resolve(&mention.path).ok()?;
                let is_inside = matches!(resolved.zone, Zone::Workspace | Zone::Guarded);
                let kind = door::facts(&resolved).ok().filter(|_| is_inside)??.kind;
                Some((mention, no_lines, resolved, kind == door::Kind::Directory))
            })
        };
        let Some((mention, no_lines, resolved, is_directory)) = self.context.pool.run(find).await else {
            return Ok(());
        };
        if !seen.insert(resolved.path.clone()) {
            return Ok(());
        }
        let Some(mut read) = self.read(&mention, &resolved).await else { return Ok(()) };
        if let Some(lines) = no_lines {
            let lines: String = lines.chars().take(LONGEST_LINES).collect();
            let lines = lines.escape_debug();
            read = Err(ToolError::Invalid(format!(
                "\"#{lines}\" names no lines: write the first and the last as in `#10-20`, counted from 1"
            )));
        }
        let (text, images) = read.unwrap_or_else(|why| (format!("[not shown: {why}]"), Vec::new()));
        // Several pages or pictures of one file have one name, and ids of their own but the first.
        let mut part = mention.part;
        let mut add = |mime: String, filename: String, blob: BlobRef| {
            let (part, source) = (part.take(), mention.source.clone());
            let file = Attachment::new(mime, filename, blob);
            files.push(Attachment { mentioned: true, part, source, ..file });
        };
        let shown = resolved.shown;
        if images.is_empty() {
            let (mime, name) = match is_directory {
                true => (Attachment::DIRECTORY, format!("{}/", shown.trim_end_matches('/'))),
                false => ("text/plain", shown),
            };
            add(mime.to_owned(), name, self.store(text.into()).await?);
        } else {
            for (mime, content) in images {
                add(mime, shown.clone(), self.store(content).await?);
            }
        }
        Ok(())
    }

    /// What the tool says of a path, and images and documents, or why it shows nothing; `None` where it may not be read unasked.
    async fn read(&self, mention: &PathMention, resolved: &Resolved) -> Option<Result<Shown, ToolError>> {
        let tool = Arc::clone(self.shared.tools.native().find(READ).ok()?);
        let mut input =
            Map::from_iter([("filePath".to_owned(), Value::from(resolved.path.to_string_lossy()))]);
        if let Some(first) = mention.first {
            input.insert("offset".to_owned(), first.into());
        }
        if let Some(last) = mention.last {
            let lines = last.saturating_sub(mention.first.unwrap_or(1)).saturating_add(1);
            input.insert("limit".to_owned(), lines.into());
        }
        let context = &self.context;
        let prepared = runner::prepare_with(&tool, &CallInput::Object(input), context).await.ok()?;
        if self.host.verdict(tool.as_ref(), &prepared, false) != Verdict::Allow {
            return None;
        }
        let shown = runner::execute(&tool, prepared, context).await.map(|output| {
            let images = output.attachments.into_iter().map(|file| (file.mime, file.content));
            (output.output, images.collect())
        });
        Some(shown)
    }

    async fn store(&self, content: Bytes) -> Result<BlobRef, CommandError> {
        let (shared, tenant) = (Arc::clone(&self.shared), Arc::clone(&self.tenant));
        self.shared.pool.run(move || shared.put_blob(&tenant, &content)).await
    }
}

/// What is read of a path: text, and images and documents with their media types.
type Shown = (String, Vec<(String, Bytes)>);

/// Why a file that was given is not attached.
enum Unfit {
    Lost(playhouse_store::StoreError),
    Media(MediaError),
}
