//! May this call run? A pure judgement of what a call says that it would touch.
//!
//! A tool resolves its paths (links included) before it asks, so that a judgement needs no file system. What is inside
//! the workspace is allowed, and so is reading the session's own output folder; everything else is denied.
//!
//! ```
//! use playhouse_policy::{Access, AccessKind, Verdict, Zone, judge};
//!
//! let inside = Access::path(AccessKind::Write, "/repo/a.txt", Zone::Workspace);
//! assert_eq!(judge(&[inside]), Verdict::Allow);
//! let outside = Access::path(AccessKind::Read, "/etc/passwd", Zone::Outside);
//! assert!(matches!(judge(&[outside]), Verdict::Deny { .. }));
//! ```

use serde::{Deserialize, Serialize};

/// Where a path lies, after its links were resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Zone {
    /// In the workspace.
    Workspace,
    /// In the folder that keeps this session's long outputs.
    Output,
    /// Anywhere else.
    Outside,
}

/// What is done with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessKind {
    /// Its content, or the names in it, are read.
    Read,
    /// It is created, changed or removed.
    Write,
    /// Commands run in it.
    Execute,
}

/// Something that a call would touch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// What is done.
    pub kind: AccessKind,
    /// The absolute path, links resolved.
    pub path: String,
    /// Where it lies.
    pub zone: Zone,
}

impl Access {
    /// An access of `kind` to `path`, which lies in `zone`.
    pub fn path(kind: AccessKind, path: impl Into<String>, zone: Zone) -> Self {
        Self { kind, path: path.into(), zone }
    }
}

/// What a judgement says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// The call may run.
    Allow,
    /// A person must agree first.
    Ask {
        /// Why.
        reason: String,
    },
    /// The call may not run.
    Deny {
        /// Why, for the model.
        reason: String,
    },
}

/// Judges a call by everything that it would touch: the strictest judgement counts.
pub fn judge(accesses: &[Access]) -> Verdict {
    accesses.iter().find_map(refusal).map_or(Verdict::Allow, |reason| Verdict::Deny { reason })
}

fn refusal(access: &Access) -> Option<String> {
    match (access.zone, access.kind) {
        (Zone::Workspace, _) | (Zone::Output, AccessKind::Read) => None,
        (Zone::Output, _) => {
            Some(format!("{} is in the folder of saved outputs, which can only be read", access.path))
        }
        (Zone::Outside, _) => Some(format!(
            "{} is outside the workspace. Only paths inside the workspace can be used; links are followed before this is checked",
            access.path
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_access_denies_the_call() {
        let good = Access::path(AccessKind::Read, "/repo/a", Zone::Workspace);
        let bad = Access::path(AccessKind::Write, "/data/output/x", Zone::Output);
        assert_eq!(judge(&[]), Verdict::Allow);
        assert_eq!(judge(std::slice::from_ref(&good)), Verdict::Allow);
        let Verdict::Deny { reason } = judge(&[good, bad]) else { panic!("must be denied") };
        assert!(reason.contains("/data/output/x"), "{reason}");
    }

    #[test]
    fn saved_outputs_can_be_read_but_no_command_may_run_there() {
        let access = |kind| Access::path(kind, "/data/output/x", Zone::Output);
        assert_eq!(judge(&[access(AccessKind::Read)]), Verdict::Allow);
        assert!(matches!(judge(&[access(AccessKind::Execute)]), Verdict::Deny { .. }));
        let outside = Access::path(AccessKind::Execute, "/", Zone::Outside);
        assert!(matches!(judge(&[outside]), Verdict::Deny { .. }));
    }
}
