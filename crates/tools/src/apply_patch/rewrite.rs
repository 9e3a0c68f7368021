//! Files that get other texts, all of them or none: for tools to which somebody else says what stands in them afterwards.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::PathBuf;

use playhouse_policy::{Access, AccessKind, Known};
use playhouse_workspace::Resolved;

use super::plan::{Change, Planned};
use super::{commit, report};
use crate::files;
use crate::files::change::{self, Keeping};
use crate::files::seen;
use crate::tool::{CallContext, ToolError, ToolOutput};

/// A file, and what becomes of its text.
#[derive(Clone, Debug)]
pub struct Rewrite {
    /// Where it is.
    pub place: Resolved,
    /// What must stand in it now.
    pub before: String,
    /// What stands in it afterwards.
    pub after: String,
}

/// What a call changes in the texts of files.
#[derive(Debug)]
pub struct Rewrites {
    planned: Vec<Planned>,
    name: &'static str,
}

impl Rewrites {
    /// Reads the files. `name` is what is carried out, as in "the rename". Blocks.
    ///
    /// # Errors
    /// Where a file is gone, is named twice, has another text than it must have, or cannot be changed by tools. Nothing is
    /// written.
    pub fn plan(name: &'static str, files: Vec<Rewrite>) -> Result<Self, ToolError> {
        let mut seen = HashSet::new();
        if let Some(twice) = files.iter().find(|file| !seen.insert(file.place.path.clone())) {
            let shown = &twice.place.shown;
            return Err(ToolError::Failed(format!("{shown} would change under two names: nothing was done")));
        }
        let plan = |Rewrite { place, before, after }: Rewrite| {
            let changed = || {
                ToolError::Failed(format!(
                    "{} changed meanwhile, and nothing was done: try again",
                    place.shown
                ))
            };
            let current = seen::current(&place)?.ok_or_else(changed)?;
            if current.text != before.as_bytes() {
                return Err(changed());
            }
            let text = after.into_bytes();
            let encoded = match change::encoded(&place, Some(&current), &text)? {
                Cow::Borrowed(_) => None,
                Cow::Owned(encoded) => Some(encoded),
            };
            let change = Change::Update { before: current, text, encoded, to: None, notes: Vec::new() };
            Ok(Planned { place, change })
        };
        Ok(Self { planned: files.into_iter().map(plan).collect::<Result<_, _>>()?, name })
    }

    /// What it would touch, for rules about files as if `read` and `edit` did it: its result shows lines.
    pub fn accesses(&self) -> impl Iterator<Item = Access> {
        let kinds = [(AccessKind::Read, Known::Purpose), (AccessKind::Write, Known::Aside)];
        let of = move |planned: &Planned| {
            let place = planned.place.clone();
            kinds.map(|(kind, known)| place.access(kind).known(known))
        };
        self.planned.iter().flat_map(of)
    }

    /// The diffs, as people see them before they agree.
    pub fn preview(&self) -> String {
        report::preview(&self.planned).0
    }

    /// Writes the files. What the session had not read before counts as unread.
    ///
    /// # Errors
    /// When a file cannot be written, or is not what it was. Every file is then as it was before, or the error says which is not.
    pub async fn carry_out(self, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let (known, keeping) = (context.files.clone(), Keeping::of(context));
        let paths: Vec<PathBuf> = self.planned.iter().map(|planned| planned.place.path.clone()).collect();
        files::changing_all(context, &paths, move || {
            let is_unread = |planned: &&Planned| match planned.change.before() {
                Some(before) => before.must_be_known(&known, &planned.place).is_err(),
                None => false,
            };
            let unread: Vec<&Planned> = self.planned.iter().filter(is_unread).collect();
            let notes = commit::commit(self.name, &self.planned, &known, &keeping)?;
            for planned in unread {
                known.forget(&planned.place.path);
            }
            Ok(report::output(self.name, &self.planned, &[], &notes))
        })
        .await
    }
}
