//! Making a session: what it is made of is checked first.

use std::path::{Component, Path};
use std::sync::Arc;

use playhouse_protocol::consent::PermissionRule;
use playhouse_protocol::record::SessionCreated;
use playhouse_protocol::summary::{SessionState, UNTITLED};
use playhouse_protocol::{
    CommandError, Entry, Event, EventBody, EventId, MessageId, Metric, NewSession, Prompt, Record, Seq,
    SessionId, WallsAllowed,
};
use playhouse_store::{Append, Done, Log};
use playhouse_tools::{MCP_PREFIX, ToolScope};
use playhouse_workspace::Workspace;
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use crate::api::engine::Engine;
use crate::api::handle::SessionHandle;
use crate::base::now;
use crate::bounds::OUT_OF_BOUNDS;
use crate::context::EngineContext;
use crate::events::hub::Owner;
use crate::events::published::Published;
use crate::events::ring::record_bytes;
use crate::measure;
use crate::space::payer;
use crate::wake::{Above, DEEPEST, ancestors};

/// About how much memory the event of a new session takes beside its record.
const CREATED_BYTES: usize = 512;
/// The most rules of one session.
const MOST_RULES: usize = 200;
/// The longest permission and the longest pattern of a rule, in bytes.
const LONGEST_PATTERN: usize = 1_024;
/// The most directories that the walls of one session let through, for each of reading and writing.
const MOST_DIRECTORIES: usize = 64;
/// The most that clients may keep with a session, in bytes of JSON; and how deep it may be nested.
const MOST_METADATA: usize = 16 * 1_024;
const DEEPEST_METADATA: usize = 16;
/// The most JSON that clients may keep with one prompt, in bytes.
const MOST_KEPT: usize = 64 * 1_024;
/// The longest text that system prompts of a session end with, in bytes.
const MOST_SYSTEM: usize = 32 * 1_024;
/// The longest path of one of them, in bytes.
const LONGEST_PATH: usize = 4_096;

impl Engine {
    /// Makes a session. On return it is durable.
    ///
    /// # Errors
    /// A directory, agent, model or parent that does not exist; rules or walls that cannot be; a store that failed.
    pub async fn create(&self, new: NewSession) -> Result<SessionHandle, CommandError> {
        // Clients do not say which step they started it for.
        self.create_as(self.ids.next(), new, None).await
    }

    /// Makes a session with this id, for a call of this step of its parent. On return it is durable.
    ///
    /// # Errors
    /// As [`Self::create`] has them; and there is a session of this id.
    pub(crate) async fn create_as(
        &self,
        id: SessionId,
        new: NewSession,
        parent_step: Option<MessageId>,
    ) -> Result<SessionHandle, CommandError> {
        let NewSession {
            tenant,
            workspace,
            title,
            agent,
            model,
            parent,
            permissions,
            unattended,
            walls,
            mut tools,
            system,
            metadata,
        } = new;
        if let Some(parent) = parent {
            let log = Arc::clone(&self.shared.store.log);
            let above = self.shared.pool.run(move || tools_in(&*log, parent)).await?;
            tools = within(tools, above);
        }
        check_metadata(&metadata)?;
        check_system(system.as_deref())?;
        check_rules(&permissions)?;
        if let Some(walls) = &walls {
            check_walls(walls)?;
        }
        self.shared.space.allows(&tenant)?;
        self.shared.storage.note_tenant(payer(&tenant));
        let output = self.shared.outputs.join(id.as_str());
        let (shared, of) = (Arc::clone(&self.shared), tenant.clone());
        let find_root = move || parent.map(|parent| check_parent(&shared, parent, &of)).transpose();
        let look_again = find_root.clone();
        let shared = Arc::clone(&self.shared);
        let of = tenant.clone();
        let names_tools = tools.is_some();
        let open = move || {
            let root = find_root()?;
            let workspace = Workspace::open(workspace.as_ref(), output)
                .map_err(|error| CommandError::Invalid(error.to_string()))?;
            if !shared.bounds.hold_workspace(&of, workspace.root()) {
                let path = workspace.root().display();
                return Err(CommandError::Invalid(format!("the workspace {path} {OUT_OF_BOUNDS}")));
            }
            let scope =
                ToolScope { tenant: of.as_str().into(), workspace: workspace.root().into(), session: id };
            if names_tools {
                shared.tools.load(&scope);
            }
            let defaults = shared.directory.defaults(workspace.root()).map_err(CommandError::Invalid)?;
            let directory = Arc::clone(&shared.directory).local(workspace.root());
            Ok::<_, CommandError>((
                workspace,
                scope,
                defaults,
                root,
                directory.map_err(CommandError::Invalid)?,
            ))
        };
        let (workspace, scope, defaults, root, directory) = self.shared.pool.run(open).await?;
        self.check_tools(&scope, tools.as_deref())?;
        let choice =
            directory.choose(agent.as_deref(), model.as_ref(), defaults.0.as_deref(), defaults.1.as_ref())?;
        let created = SessionCreated {
            title: title.unwrap_or_else(|| UNTITLED.to_owned()),
            parent,
            root,
            parent_step,
            permissions,
            unattended,
            walls,
            tools,
            system,
            metadata,
            ..SessionCreated::new(
                id,
                tenant.clone(),
                workspace.root().to_string_lossy().into_owned(),
                choice.agent,
                choice.model,
            )
        };
        let owner = Owner { tenant: tenant.as_str().into(), workspace: created.workspace.as_str().into() };
        let entry = Entry { seq: Seq::START.next(), at: now(), record: Record::SessionCreated(created) };
        let append =
            Append { session: id, tenant: tenant.into(), expected: Seq::START, entries: vec![entry] };
        let session = self.begin(owner, append, |log, append, done| log.append(append, done)).await?;
        if parent.is_some()
            && let Err(gone @ CommandError::NotFound(_)) = self.shared.pool.run(look_again).await
        {
            // Whoever removes the one above may have looked for those below before this one was there.
            self.delete(id).await?;
            return Err(gone);
        }
        Ok(session)
    }

    /// Whether the tools of an allowlist exist.
    fn check_tools(&self, scope: &ToolScope, tools: Option<&[String]>) -> Result<(), CommandError> {
        let Some(tools) = tools else { return Ok(()) };
        let named = self.shared.tools.catalogue(scope, Some(tools));
        // A server that has such a tool may not have answered yet.
        let is_missing = |name: &&String| !name.starts_with(MCP_PREFIX) && named.get(name).is_none();
        let Some(missing) = tools.iter().find(is_missing) else { return Ok(()) };
        let found = self.shared.tools.catalogue(scope, None).find(missing).map(drop);
        found.map_err(|error| CommandError::Invalid(error.to_string()))
    }

    /// Writes the first records of a new session, and tells them.
    pub(crate) async fn begin(
        &self,
        owner: Owner,
        append: Append,
        write: impl FnOnce(&dyn Log, Append, Done),
    ) -> Result<SessionHandle, CommandError> {
        let (id, generation) = (append.session, self.shared.generation);
        let told = append.entries.iter().map(|entry| {
            let body = EventBody::Durable(Arc::new(entry.record.clone()));
            let event =
                Event { id: EventId::durable(entry.seq), generation, session: id, at: entry.at, body };
            (Published::new(event), CREATED_BYTES + record_bytes(&entry.record))
        });
        let told: Vec<_> = told.collect();
        let (done, flushed) = oneshot::channel();
        let done: Done = Box::new(move |result| {
            // A caller that went away leaves a session without prompts behind.
            drop(done.send(result));
        });
        write(&*self.shared.store.log, append, done);
        match flushed.await {
            Ok(Ok(_)) => {
                measure::happened(Metric::SessionsCreated);
                // It has no ring before it wakes.
                self.shared.hub.outlet(id, owner).write(told);
                Ok(self.handle(id))
            }
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(CommandError::Store("the store is closed".into())),
        }
    }
}

/// Whether rules can be those of a session.
pub(crate) fn check_rules(rules: &[PermissionRule]) -> Result<(), CommandError> {
    if rules.len() > MOST_RULES {
        return Err(CommandError::Invalid(format!(
            "{} rules are too many for a session: at most {MOST_RULES}, use patterns with `*`",
            rules.len()
        )));
    }
    for (number, rule) in (1..).zip(rules) {
        for (what, text) in [("permission", &rule.permission), ("pattern", &rule.pattern)] {
            let wrong = match text.len() {
                0 => "is empty: write `*` for all".to_owned(),
                1..=LONGEST_PATTERN => continue,
                _ => format!("is too long: at most {LONGEST_PATTERN} bytes"),
            };
            return Err(CommandError::Invalid(format!("the {what} of rule {number} {wrong}")));
        }
    }
    Ok(())
}

/// Whether system prompts may end with this.
fn check_system(system: Option<&str>) -> Result<(), CommandError> {
    match system.map_or(0, str::len) {
        0..=MOST_SYSTEM => Ok(()),
        bytes => Err(CommandError::Invalid(format!(
            "`system` has {bytes} bytes, and a session's part of the system prompt at most {MOST_SYSTEM}: put the rest into a file of rules"
        ))),
    }
}

/// Whether clients may keep this with a session.
pub(crate) fn check_metadata(metadata: &Map<String, Value>) -> Result<(), CommandError> {
    if metadata.values().any(|value| !is_shallow(value, DEEPEST_METADATA)) {
        return Err(CommandError::Invalid(format!(
            "the metadata is nested too deep: at most {DEEPEST_METADATA} levels"
        )));
    }
    let bytes = serde_json::to_string(metadata).map_or(usize::MAX, |written| written.len());
    if bytes > MOST_METADATA {
        return Err(CommandError::Invalid(format!(
            "the metadata has {bytes} bytes of JSON, and a session keeps at most {MOST_METADATA}: keep it elsewhere, and its name here"
        )));
    }
    Ok(())
}

/// Whether clients may keep this with a prompt: the metadata of its texts, and where its files come from.
pub(crate) fn check_kept(prompt: &Prompt) -> Result<(), CommandError> {
    let marks = prompt.texts.iter().filter_map(|text| text.marks.as_deref());
    let sources =
        prompt.files.iter().map(|file| &file.source).chain(prompt.paths.iter().map(|path| &path.source));
    let mut bytes = 0;
    let mut count = |value: &Value| {
        bytes += serde_json::to_string(value).map_or(usize::MAX / 2, |written| written.len());
        is_shallow(value, DEEPEST_METADATA)
    };
    let metadata: Vec<&Map<String, Value>> = marks.map(|marks| &marks.metadata).collect();
    let values = metadata.iter().flat_map(|map| map.values());
    if !values.chain(sources.flatten().map(|source| &**source)).all(&mut count) {
        return Err(CommandError::Invalid(format!(
            "the metadata of a text or the source of a file is nested too deep: at most {DEEPEST_METADATA} levels"
        )));
    }
    bytes += metadata.iter().flat_map(|map| map.keys()).map(String::len).sum::<usize>();
    if bytes > MOST_KEPT {
        return Err(CommandError::Invalid(format!(
            "the metadata of its texts and the sources of its files have {bytes} bytes of JSON, and a prompt keeps at most {MOST_KEPT}: keep them elsewhere, and their names here"
        )));
    }
    Ok(())
}

fn is_shallow(value: &Value, levels: usize) -> bool {
    let below = |value: &Value| levels > 1 && is_shallow(value, levels - 1);
    match value {
        Value::Array(values) => values.iter().all(below),
        Value::Object(object) => object.values().all(below),
        _ => true,
    }
}

/// Whether a session can want its walls to let this through. What the operator lets through is looked at when it wakes.
fn check_walls(walls: &WallsAllowed) -> Result<(), CommandError> {
    for (what, directories) in [("read", &walls.read), ("write", &walls.write)] {
        if directories.len() > MOST_DIRECTORIES {
            return Err(CommandError::Invalid(format!(
                "walls let at most {MOST_DIRECTORIES} directories through to {what}"
            )));
        }
        for directory in directories {
            let path = Path::new(directory);
            let is_plain = path.is_absolute()
                && directory.len() <= LONGEST_PATH
                && !directory.contains('\0')
                && path.components().all(|part| part != Component::ParentDir);
            if !is_plain {
                let shown: String = directory.chars().take(200).collect();
                return Err(CommandError::Invalid(format!(
                    "\"{}\" cannot be a directory to {what}: name it by its absolute path, without `..`",
                    shown.escape_debug()
                )));
            }
        }
    }
    Ok(())
}

/// Whether a session of `tenant` can be one below `parent`; the session at the top of both. Blocks.
fn check_parent(shared: &EngineContext, parent: SessionId, tenant: &str) -> Result<SessionId, CommandError> {
    let log = &*shared.store.log;
    let summary = log.summary(parent)?;
    // Another tenant's sessions are none that there are.
    let summary = summary
        .filter(|summary| summary.tenant == tenant && summary.state != SessionState::Deleted)
        .ok_or(CommandError::NotFound(parent))?;
    let above = match summary.parent {
        Some(next) => ancestors(log, next)?,
        None => Above::default(),
    };
    if above.is_removed {
        return Err(CommandError::NotFound(parent));
    }
    let above = above.sessions.len();
    if above + 1 > DEEPEST {
        return Err(CommandError::Invalid(format!(
            "session {parent} is {above} deep already: sub-sessions go at most {DEEPEST} deep"
        )));
    }
    Ok(summary.root.unwrap_or(parent))
}

/// The only tools that there are in a session; `None` for all. Blocks.
fn tools_in(log: &dyn Log, session: SessionId) -> Result<Option<Vec<String>>, CommandError> {
    let first = log.read(session, Seq::START, 1)?.entries.into_iter().next();
    Ok(first.and_then(|first| match first.record {
        Record::SessionCreated(created) => created.tools,
        _ => None,
    }))
}

/// The allowlist of a session: its own `tools`, without those that its parent does not have.
fn within(tools: Option<Vec<String>>, above: Option<Vec<String>>) -> Option<Vec<String>> {
    match (tools, above) {
        (Some(mut tools), Some(above)) => {
            tools.retain(|name| above.contains(name));
            Some(tools)
        }
        (tools, above) => tools.or(above),
    }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::consent::Action;

    use super::*;

    fn rule(permission: &str, pattern: &str) -> PermissionRule {
        PermissionRule { permission: permission.into(), pattern: pattern.into(), action: Action::Ask }
    }

    #[test]
    fn rules_that_cannot_be_are_named() {
        assert_eq!(check_rules(&[rule("bash", "*"), rule("*", "git *")]), Ok(()));
        let long = "x".repeat(LONGEST_PATTERN + 1);
        for (rules, said) in [
            (vec![rule("bash", "*"), rule("bash", "")], "the pattern of rule 2 is empty"),
            (vec![rule("", "*")], "the permission of rule 1 is empty"),
            (vec![rule("bash", &long)], "is too long"),
            (vec![rule("bash", "*"); MOST_RULES + 1], "at most 200"),
        ] {
            let error = check_rules(&rules).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn walls_are_named_by_plain_absolute_paths() {
        let walls = |path: &str| WallsAllowed { read: vec![path.into()], ..WallsAllowed::default() };
        assert_eq!(check_walls(&walls("/opt/sdk")), Ok(()));
        for path in ["", "sdk", "/opt/../etc", "/opt/sdk/..", "/a\0b", &format!("/{}", "x".repeat(5_000))] {
            assert!(check_walls(&walls(path)).is_err(), "{path}");
        }
        let many = WallsAllowed { write: vec!["/a".into(); 65], ..WallsAllowed::default() };
        assert!(check_walls(&many).is_err());
    }
}
