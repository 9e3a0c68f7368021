//! What calls touch, and the judgement that holds until people can be asked.

use serde::{Deserialize, Serialize};

use crate::Verdict;

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
