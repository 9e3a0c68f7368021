//! Places at which tests make the store fail, by name. Debug builds have them, so that tests run what `cargo build` made; a release
//! has them with the feature `failpoints` only, which `scripts/soak` turns on.
//!
//! The environment variable [`VARIABLE`] says what happens where, as in `append.applied=kill@37,flush.done=error@5`: at the
//! 37th time that this process comes to the first point it is killed, and the 5th time at the second one is an I/O error.
//! The actions:
//!
//! | action | what happens |
//! |---|---|
//! | `kill` | the process gets SIGKILL: nothing more of it runs |
//! | `error` | the point returns an I/O error |
//! | `panic` | the point panics |

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The environment variable that says what happens where.
pub const VARIABLE: &str = "PLAYHOUSE_FAIL";

macro_rules! points {
    ($($(#[$doc:meta])* $constant:ident = $name:literal;)*) => {
        $($(#[$doc])* pub(crate) const $constant: &str = $name;)*

        /// The names of all points.
        pub const POINTS: &[&str] = &[$($name,)*];
    };
}

points! {
    /// A round is staged, and nothing of it is written.
    APPEND_STAGED = "append.staged";
    /// A round is in the table, and not flushed.
    APPEND_APPLIED = "append.applied";
    /// A round is durable, and nobody was told.
    FLUSH_DONE = "flush.done";
    /// An entry of the journal is durable, and the table does not know.
    JOURNAL_WRITTEN = "journal.written";
    /// A file of the journal is longer, durably, and its layout does not say so.
    JOURNAL_GROWN = "journal.grown";
    /// The journal goes on in its other file.
    JOURNAL_TURNED = "journal.turned";
    /// A piece of the journal is with the backend, and not flushed.
    SETTLE_PIECE = "settle.piece";
    /// What was old of the journal is durable in the backend, and in memory as well.
    SETTLED = "settle.done";
    /// A fork is checked, and not staged.
    FORK_CHECKED = "fork.checked";
    /// A deletion is worked out, and not staged.
    DELETE_CHECKED = "delete.checked";
    /// A blob is written beside its place, and not synced.
    BLOB_WRITTEN = "blob.written";
    /// A blob is synced beside its place.
    BLOB_SYNCED = "blob.synced";
    /// A blob has its name, which is not durable.
    BLOB_RENAMED = "blob.renamed";
    /// A blob is durable, and no record names it.
    BLOB_DONE = "blob.done";
    /// Blobs that no record names are found, and not removed.
    SWEEP_MARKED = "sweep.marked";
    /// One of them is removed.
    SWEEP_REMOVED = "sweep.removed";
    /// A compaction has made its fresh table.
    REWRITE_BEGUN = "rewrite.begun";
    /// A compaction has copied a slice.
    REWRITE_COPIED = "rewrite.copied";
    /// A batch is in the old table, and not in the part that is copied.
    REWRITE_BETWEEN = "rewrite.between";
    /// The fresh table is whole and flushed, and nothing points at it.
    REWRITE_FLUSHED = "rewrite.flushed";
    /// The pointer is written beside its place.
    REWRITE_POINTER_WRITTEN = "rewrite.pointer_written";
    /// The pointer has its place, which is not durable.
    REWRITE_POINTER_RENAMED = "rewrite.pointer_renamed";
    /// The old table does not count any more, and is still there.
    REWRITE_EXCHANGED = "rewrite.exchanged";
    /// A salvage has copied what can be read, and not kept the old database.
    SALVAGE_COPIED = "salvage.copied";
    /// The old database is kept, and counts.
    SALVAGE_KEPT = "salvage.kept";
    /// The fresh one counts, and the time of the salvage is not beside it.
    SALVAGE_POINTED = "salvage.pointed";
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Kill,
    Error,
    Panic,
}

/// What happens at a point, at which time.
#[derive(Debug)]
struct Rule {
    point: &'static str,
    action: Action,
    at: u64,
    came: AtomicU64,
}

impl Rule {
    fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=').and_then(|(point, rest)| Some((point, rest.split_once('@')?)));
        let (point, (action, at)) = parts
            .ok_or_else(|| format!("\"{text}\" is not POINT=ACTION@TIME, as in {APPEND_APPLIED}=kill@37"))?;
        let known = POINTS.iter().find(|known| **known == point);
        let action = match action {
            "kill" => Action::Kill,
            "error" => Action::Error,
            "panic" => Action::Panic,
            other => return Err(format!("\"{other}\" is no action: write kill, error or panic")),
        };
        Ok(Self {
            point: known.ok_or_else(|| format!("there is no point \"{point}\": {}", POINTS.join(", ")))?,
            action,
            at: at
                .parse()
                .ok()
                .filter(|at| *at > 0)
                .ok_or_else(|| format!("\"{at}\" is no number from 1"))?,
            came: AtomicU64::new(0),
        })
    }
}

/// What happens where.
#[derive(Debug, Default)]
struct Plan(Vec<Rule>);

impl Plan {
    fn parse(text: &str) -> Result<Self, String> {
        let rules = text.split(',').filter(|rule| !rule.is_empty()).map(Rule::parse);
        Ok(Self(rules.collect::<Result<_, _>>()?))
    }

    /// This process has come to a point.
    fn come(&self, point: &str) -> Option<Action> {
        let mut due = None;
        for rule in self.0.iter().filter(|rule| rule.point == point) {
            if rule.came.fetch_add(1, Ordering::Relaxed) + 1 == rule.at {
                due = Some(rule.action);
            }
        }
        due
    }
}

/// This process has come to a point.
///
/// # Errors
/// Where the plan says so, and at every point where the plan cannot be read.
///
/// # Panics
/// Where the plan says so.
pub(crate) fn come(point: &str) -> io::Result<()> {
    static PLAN: OnceLock<Result<Plan, String>> = OnceLock::new();
    let written = || std::env::var(VARIABLE).unwrap_or_default();
    let plan = PLAN.get_or_init(|| Plan::parse(&written()));
    let plan = plan.as_ref().map_err(|error| io::Error::other(format!("{VARIABLE}: {error}")))?;
    let action = plan.come(point);
    if action.is_some() {
        tracing::warn!("the fail point {point}");
    }
    match action {
        None => Ok(()),
        Some(Action::Error) => Err(io::Error::other(format!("the fail point {point}"))),
        Some(Action::Panic) => panic!("the fail point {point}"),
        Some(Action::Kill) => loop {
            // It does not come back.
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)?;
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_says_when_something_happens_where() {
        let plan = Plan::parse("append.applied=kill@3,flush.done=error@1,append.applied=panic@2").unwrap();
        let applied: Vec<_> = (0..4).map(|_| plan.come(APPEND_APPLIED)).collect();
        assert_eq!(applied, [None, Some(Action::Panic), Some(Action::Kill), None]);
        assert_eq!([plan.come(FLUSH_DONE), plan.come(FLUSH_DONE)], [Some(Action::Error), None]);
        assert_eq!(plan.come(BLOB_DONE), None);
        assert!(Plan::parse("").unwrap().0.is_empty());
    }

    #[test]
    fn a_plan_that_cannot_be_read_says_why() {
        for (text, said) in [
            ("append.applied", "is not POINT=ACTION@TIME"),
            ("append.aplied=kill@1", "there is no point \"append.aplied\""),
            ("append.applied=stop@1", "\"stop\" is no action"),
            ("append.applied=kill@0", "no number from 1"),
        ] {
            let error = Plan::parse(text).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
