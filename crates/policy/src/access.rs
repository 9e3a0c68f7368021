//! What calls touch, and what of it rules are asked about.

use playhouse_protocol::consent::{Risk, Want};

use crate::policy::Verdict;
use crate::shell;

/// Where a path lies, after its links were resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    /// In the workspace.
    Workspace,
    /// In the folder that keeps this session's long outputs.
    Output,
    /// In the workspace, and what git runs or obeys: it can be read, and never changed.
    Guarded,
    /// What belongs to the engine itself, wherever it lies: neither read nor changed.
    Hidden,
    /// Anywhere else.
    Outside,
}

/// What is done with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// Its content, or the names in it, are read.
    Read,
    /// It is created, changed or removed.
    Write,
    /// It is read, and nobody can tell whether it is written: an argument of a script. Judged as [`Write`](Self::Write), but
    /// where nothing can be written anyway.
    MayWrite,
    /// Commands run in it.
    Execute,
}

/// Whether a call does something to a file for certain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Known {
    /// It may.
    #[default]
    No,
    /// It is what the command is for: `tee FILE`. Who allowed it by a rule for commands meant that, unless a rule about files speaks.
    Purpose,
    /// It is done aside, whatever the command is for: a redirection, an output option.
    Aside,
}

/// Something that a call would touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// A path.
    Path {
        /// What is done.
        kind: AccessKind,
        /// The absolute path, links resolved.
        path: String,
        /// Where it lies.
        zone: Zone,
        /// How rules and people name it: within the workspace, the path from there.
        shown: String,
        /// Whether a command or a search does that for certain: rules about files are asked as well, as if `edit` or `read` did it.
        known: Known,
    },
    /// A command that a shell would run.
    Command(shell::Command),
    /// A word of a script that may name any path.
    Unknown {
        /// As it is written.
        text: String,
        /// Why it is not known.
        doubt: String,
        /// Whether what it names is written for certain.
        written: Known,
    },
    /// What lies in a folder is read, and not all of it is known.
    Below {
        /// How rules and people name the folder.
        shown: String,
        /// Why it is not known.
        doubt: String,
    },
    /// An address that is fetched, without credentials.
    Address(String),
    /// A text that is sent to somebody who searches.
    Query(String),
    /// Another agent, which is given work.
    Agent(String),
    /// A tool of a server that is not the engine's.
    Tool {
        /// The server.
        server: String,
        /// The tool's name there.
        tool: String,
    },
    /// A tool that the platform registered, by its name.
    HostTool(String),
}

impl AccessKind {
    /// Whether something may be changed.
    pub fn may_write(self) -> bool {
        matches!(self, Self::Write | Self::MayWrite)
    }
}

impl Access {
    /// An access of `kind` to `path`, which lies in `zone` and has no other name.
    pub fn path(kind: AccessKind, path: impl Into<String>, zone: Zone) -> Self {
        let path = path.into();
        Self::Path { kind, shown: path.clone(), path, zone, known: Known::No }
    }

    /// The same under the name that rules and people use.
    #[must_use]
    pub fn shown(self, shown: impl Into<String>) -> Self {
        match self {
            Self::Path { kind, path, zone, known, .. } => {
                Self::Path { kind, path, zone, shown: shown.into(), known }
            }
            other => other,
        }
    }

    /// The same, done by a command for certain or not.
    #[must_use]
    pub fn known(self, known: Known) -> Self {
        match self {
            Self::Path { kind, path, zone, shown, .. } => Self::Path { kind, path, zone, shown, known },
            other => other,
        }
    }
}

/// The permission of paths outside the workspace.
pub const EXTERNAL_DIRECTORY: &str = "external_directory";
/// The permission of changes to files.
pub(crate) const EDIT: &str = "edit";
/// The permission of commands.
pub(crate) const BASH: &str = "bash";
/// The permission of looks into files.
pub(crate) const READ: &str = "read";
/// The permission of calls that go round in circles.
pub const DOOM_LOOP: &str = "doom_loop";

/// What a call of a tool wants: `permission` is the tool's, `accesses` what it would touch.
///
/// # Errors
/// What may never be done, whatever rules say, as a verdict.
pub fn wants(permission: &str, risk: Risk, accesses: &[Access]) -> Result<Vec<Want>, Verdict> {
    let mut wants = Vec::new();
    let mut own = false;
    // Of a command, rules judge the text; paths count only where they leave the workspace.
    let has_commands = accesses.iter().any(|access| matches!(access, Access::Command(_)));
    for access in accesses {
        if let Some(want) = effect(access) {
            push(&mut wants, want);
        }
        match access {
            // Walls hold what may be written there: what is not known to write is let run, the scripts of a skill above all.
            Access::Path { kind: AccessKind::Read | AccessKind::MayWrite, zone: Zone::Output, .. } => {
                own = true
            }
            Access::Path { kind: AccessKind::Execute, zone: Zone::Output, .. } => {}
            Access::Path { kind: AccessKind::Write, zone: Zone::Output, path, .. } => {
                let reason = format!("{path} is in the folder of saved outputs, which can only be read");
                return Err(Verdict::Deny { reason });
            }
            Access::Path { zone: Zone::Hidden, path, .. } => {
                let reason = format!("{path} belongs to the engine, and no call may touch it");
                return Err(Verdict::Deny { reason });
            }
            Access::Path { kind, zone: Zone::Guarded, shown, .. } if kind.may_write() && !has_commands => {
                let reason = format!(
                    "{shown} is what git obeys when it runs, and no call may change it: ask the user to"
                );
                return Err(Verdict::Deny { reason });
            }
            Access::Path { kind, zone: Zone::Guarded, shown, .. } if kind.may_write() => {
                push(&mut wants, Want { in_person: true, ..Want::new(permission, shown, risk) });
            }
            Access::Path { kind, zone, path, shown, .. } => {
                if !has_commands {
                    own = true;
                    // One that is usually allowed, and is asked for since a rule says so, is a case of its own.
                    let always =
                        if risk == Risk::Safe { literal(shown.clone()) } else { vec!["*".to_owned()] };
                    push(&mut wants, Want::new(permission, shown, risk).always(always));
                }
                if *zone == Zone::Outside {
                    push(&mut wants, outside(*kind, path));
                }
            }
            Access::Command(command) => {
                own = true;
                let want = Want::new(permission, &command.text, risk).always(command.always.iter());
                push(&mut wants, Want { doubt: command.doubt.clone(), ..want });
            }
            Access::Unknown { text, doubt, .. } => {
                let want = Want::new(EXTERNAL_DIRECTORY, text, Risk::Dangerous);
                push(&mut wants, Want { doubt: Some(doubt.clone()), ..want });
            }
            Access::Below { shown, doubt } => {
                let want = Want::new(READ, shown, Risk::Safe);
                push(&mut wants, Want { doubt: Some(doubt.clone()), ..want });
            }
            Access::Query(query) => {
                own = true;
                push(&mut wants, Want::new(permission, query, risk).always(["*"]));
            }
            Access::Agent(name) | Access::HostTool(name) => {
                own = true;
                push(&mut wants, Want::new(permission, name, risk).always(literal(name.clone())));
            }
            Access::Tool { server, tool } => {
                own = true;
                let subject = format!("{server}/{tool}");
                push(&mut wants, Want::new(permission, &subject, risk).always(literal(subject.clone())));
            }
            Access::Address(address) => {
                own = true;
                let want = Want::new(permission, address, risk);
                let origins = origin(address).map(|origin| literal(origin.to_owned())).unwrap_or_default();
                push(&mut wants, want.always(origins.iter().map(|origin| format!("{origin}/*"))));
            }
        }
    }
    if !own {
        wants.insert(0, Want::new(permission, "*", risk).always(["*"]));
    }
    Ok(wants)
}

/// What a call wants of rules about files, for what it does to one for certain.
fn effect(access: &Access) -> Option<Want> {
    match access {
        Access::Path { zone: Zone::Output | Zone::Hidden, .. } => None,
        Access::Path { kind: AccessKind::Write, shown, known, .. } => {
            Some(Want::new(EDIT, shown, risk(*known)?).always(literal(shown.clone())))
        }
        Access::Path { kind: AccessKind::Read, shown, known: Known::Purpose | Known::Aside, .. } => {
            Some(Want::new(READ, shown, Risk::Safe).always(literal(shown.clone())))
        }
        Access::Unknown { text, doubt, written } => {
            Some(Want { doubt: Some(doubt.clone()), ..Want::new(EDIT, text, risk(*written)?) })
        }
        _ => None,
    }
}

/// What holds of a file that a command writes, where no rule about files speaks.
fn risk(written: Known) -> Option<Risk> {
    match written {
        Known::No => None,
        Known::Purpose => Some(Risk::Safe),
        Known::Aside => Some(Risk::Dangerous),
    }
}

/// What a call that closes a loop wants beside the rest.
pub fn loop_want(tool: &str) -> Want {
    Want::new(DOOM_LOOP, tool, Risk::Dangerous).always([tool])
}

fn push(wants: &mut Vec<Want>, want: Want) {
    if !wants.contains(&want) {
        wants.push(want);
    }
}

/// A path outside the workspace: remembered by its directory where it is read. That it is written is never remembered:
/// a person says so each time, or a rule that is about this.
fn outside(kind: AccessKind, path: &str) -> Want {
    let named = kind.may_write();
    let always = if named { Vec::new() } else { around(path) };
    Want { named, ..Want::new(EXTERNAL_DIRECTORY, path, Risk::Dangerous).always(always) }
}

/// The pattern that is this text and nothing else; none where a pattern would be more than that.
fn literal(text: String) -> Vec<String> {
    if text.contains(['*', '?']) { Vec::new() } else { vec![text] }
}

/// What is remembered of a path outside: what lies in its directory, unless that is so much that few would mean it. Then
/// only the path, and what lies below it.
fn around(path: &str) -> Vec<String> {
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    // The name of the file itself counts only where it would be part of a pattern.
    let is_literal = |text: &str| !text.contains(['*', '?']);
    let parts: Vec<&str> = directory.split('/').skip(1).collect();
    match parts.as_slice() {
        [] if path.trim_matches('/').is_empty() => Vec::new(),
        [] | [_] | ["home" | "Users", _] if is_literal(path) => vec![path.to_owned(), format!("{path}/*")],
        [] | [_] | ["home" | "Users", _] => Vec::new(),
        _ if is_literal(directory) => vec![format!("{directory}/*")],
        _ => Vec::new(),
    }
}

/// `https://example.org` of `https://example.org/a?b`.
fn origin(address: &str) -> Option<&str> {
    let host = address.find("://")? + 3;
    let end = address[host..].find(['/', '?', '#']).map_or(address.len(), |at| host + at);
    Some(&address[..end])
}

#[cfg(test)]
mod tests;
