//! Carrying out a plan: all of it, or nothing.
//!
//! What comes is written first, and what goes is taken last: at every moment the content of a file stands under its old
//! name or its new one, also when the process is killed. Files that go are first only taken aside, so that they can be
//! put back as they were. What has been done is written down as it is done, and undone in the opposite order when
//! something fails, and also when this code panics.

use std::path::PathBuf;

use playhouse_workspace::door::{self, DoorError, Expected, Taken, Written};
use playhouse_workspace::{ContentHash, FileTracker, Resolved};

use super::plan::{Change, Planned};
use crate::changed::{FileState, FileWrite, FolderWrite};
use crate::files::change::{self, Keeping};
use crate::files::seen::{self, Current};
use crate::tool::ToolError;

/// Makes the files what `planned` says, for what is called `name`. Gives what is to be told of those that were written.
///
/// # Errors
/// When a file cannot be changed, or is not what it was when it was planned. Every file is then as it was before, or
/// the error says which is not.
pub(super) fn commit(
    name: &'static str,
    planned: &[Planned],
    known: &FileTracker,
    keeping: &Keeping,
) -> Result<Vec<String>, ToolError> {
    for Planned { place, change } in planned {
        keeping.writes.must_be_intended(place, change.before().map(|current| current.hash))?;
    }
    let mut journal = Journal { name, done: Vec::new(), known, keeping };
    let written = journal.carry_out(planned).map_err(|error| journal.undo(&error))?;
    let left = journal.settle();

    let mut notes = Vec::new();
    for (place, bytes, written) in written {
        seen::remember(known, place, bytes, written.hash);
        notes.extend(change::parted(place, &written));
    }
    for planned in planned {
        if planned.change.gone().is_some() {
            known.forget(&planned.place.path);
        }
    }
    if left.is_empty() {
        return Ok(notes);
    }
    Err(ToolError::Failed(format!(
        "{name} was applied, but not all files could be removed: {}",
        left.join("; ")
    )))
}

/// What was done so far.
struct Journal<'a> {
    /// What is carried out, as in "the patch".
    name: &'static str,
    done: Vec<Done<'a>>,
    known: &'a FileTracker,
    keeping: &'a Keeping,
}

enum Done<'a> {
    /// A file was taken aside.
    Took { taken: Taken, gone: FileWrite },
    /// A file was made, and these directories for it.
    Made { place: &'a Resolved, hash: ContentHash, made: FileWrite },
    /// Directories were made.
    MadeDirectories(Vec<PathBuf>),
    /// A file got other content.
    Changed { place: &'a Resolved, before: &'a Current, hash: ContentHash },
}

/// A file that was written: where, and what.
type Wrote<'a> = (&'a Resolved, &'a [u8], Written);

/// The files that go, and what stands there before.
fn goes(planned: &[Planned]) -> impl Iterator<Item = (&Resolved, &Current)> {
    planned.iter().filter_map(|planned| Some((&planned.place, planned.change.gone()?)))
}

impl<'a> Journal<'a> {
    /// First files come and change, then others go.
    fn carry_out(&mut self, planned: &'a [Planned]) -> Result<Vec<Wrote<'a>>, DoorError> {
        for (place, _) in goes(planned) {
            door::check_takable(place)?;
        }
        let written = self.bring(planned)?;
        for (place, before) in goes(planned) {
            let taken = door::take(place, Expected::Content(before.hash))?;
            let gone =
                FileWrite { path: place.path.clone(), before: Some(before.state(taken.mode())), after: None };
            self.keeping.writes.wrote(gone.clone());
            self.done.push(Done::Took { taken, gone });
        }
        Ok(written)
    }

    /// Writes all files that come and change.
    fn bring(&mut self, planned: &'a [Planned]) -> Result<Vec<Wrote<'a>>, DoorError> {
        let mut written = Vec::with_capacity(planned.len());
        for Planned { place, change } in planned {
            match change {
                Change::Delete { .. } => {}
                Change::Add { bytes } => written.push(self.make(place, bytes, None)?),
                Change::Update { text, encoded, to: Some(to), .. } => {
                    written.push(self.make(to, encoded.as_ref().unwrap_or(text), Some(place))?);
                }
                Change::Update { before, text, .. } if before.text == *text => {}
                Change::Update { before, text, encoded, .. } => {
                    let bytes = encoded.as_ref().unwrap_or(text);
                    let wrote = self.keeping.change(written.len(), place, before, bytes)?;
                    self.done.push(Done::Changed { place, before, hash: wrote.hash });
                    written.push((place, bytes, wrote));
                }
            }
        }
        Ok(written)
    }

    /// Makes a file; one that is moved is like the one at its place of `origin`.
    fn make(
        &mut self,
        place: &'a Resolved,
        bytes: &'a [u8],
        origin: Option<&Resolved>,
    ) -> Result<Wrote<'a>, DoorError> {
        let directories = door::create_parents(place)?;
        if !directories.is_empty() {
            self.keeping.writes.changed_folders(directories.iter().map(|path| FolderWrite::made(path)));
            self.done.push(Done::MadeDirectories(directories));
        }
        let wrote = match origin {
            Some(origin) => door::write_like(place, bytes, origin)?,
            None => door::write_atomic(place, bytes, Expected::Nothing)?,
        };
        self.keeping.made(place, bytes, &wrote);
        let after = Some(FileState::new(wrote.hash, bytes, wrote.mode));
        let made = FileWrite { path: place.path.clone(), before: None, after };
        self.done.push(Done::Made { place, hash: wrote.hash, made });
        Ok((place, bytes, wrote))
    }

    /// Removes for good what was taken aside. Gives what could not be removed, and is back in its place.
    fn settle(mut self) -> Vec<String> {
        let done = std::mem::take(&mut self.done);
        let removed = done.into_iter().filter_map(|done| match done {
            Done::Took { taken, gone } => {
                taken.remove().err().inspect(|_| self.keeping.writes.wrote(gone.reversed()))
            }
            Done::Made { .. } | Done::MadeDirectories(_) | Done::Changed { .. } => None,
        });
        removed.map(|error| error.to_string()).collect()
    }

    /// Undoes everything, and says what came of it.
    fn undo(&mut self, error: &DoorError) -> ToolError {
        let lost = self.put_back();
        let mut text = format!("{} was not applied: {error}. ", self.name);
        if lost.is_empty() {
            text.push_str("Every file is as it was before");
        } else {
            text.push_str("What was done until then was undone, apart from this, which needs a look: ");
            text.push_str(&lost.join("; "));
        }
        ToolError::Failed(text)
    }

    /// Undoes everything, the last thing first. Gives what could not be undone.
    fn put_back(&mut self) -> Vec<String> {
        let mut lost = Vec::new();
        while let Some(done) = self.done.pop() {
            let undone = match done {
                Done::Took { taken, gone } => {
                    taken.put_back().inspect(|()| self.keeping.writes.wrote(gone.reversed()))
                }
                // Content that somebody else wrote meanwhile is not thrown away.
                Done::Made { place, hash, made } => door::take(place, Expected::Content(hash))
                    .and_then(Taken::remove)
                    .inspect(|()| self.keeping.writes.wrote(made.reversed())),
                Done::MadeDirectories(directories) => {
                    door::remove_empty(&directories);
                    let left = directories.iter().map(|path| FolderWrite::made(path));
                    self.keeping.writes.changed_folders(left);
                    Ok(())
                }
                Done::Changed { place, before, hash } => {
                    let restored = self.keeping.write(0, place, before.raw(), Expected::Content(hash));
                    restored.map(|written| {
                        seen::remember(self.known, place, before.raw(), written.hash);
                        self.keeping.writes.wrote(FileWrite {
                            path: place.path.clone(),
                            before: None,
                            after: Some(before.state(written.mode)),
                        });
                    })
                }
            };
            lost.extend(undone.err().map(|error| error.to_string()));
        }
        lost
    }
}

impl Drop for Journal<'_> {
    fn drop(&mut self) {
        self.put_back();
    }
}

#[cfg(test)]
mod tests {
    use playhouse_workspace::hash;

    use super::*;
    use crate::testing;

    #[test]
    fn nothing_goes_before_all_else_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("repo");
        fs_err::create_dir_all(&root).unwrap();
        let context = testing::context(&root, &folder.path().join("outputs")).unwrap();
        let keeping = Keeping::of(&context);
        let place = |name: &str| context.workspace.resolve(name).unwrap();
        let current = |name: &str| {
            fs_err::write(root.join(name), "old").unwrap();
            seen::current(&place(name)).unwrap().unwrap()
        };
        let update = |name: &str, to: Option<&str>| Planned {
            place: place(name),
            change: Change::Update {
                before: current(name),
                text: b"new".to_vec(),
                encoded: None,
                to: to.map(place),
                notes: Vec::new(),
            },
        };
        let gone = Planned { place: place("gone"), change: Change::Delete { before: current("gone") } };
        let planned = [gone, update("moved", Some("to/moved")), update("last", None)];
        let known = FileTracker::new();
        let names = || {
            let entries = fs_err::read_dir(&root).unwrap().chain(fs_err::read_dir(root.join("to")).unwrap());
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names.join(" ")
        };
        let mut journal =
            Journal { name: super::super::PATCH, done: Vec::new(), known: &known, keeping: &keeping };
        journal.bring(&planned).unwrap();
        assert_eq!(names(), "gone last moved moved to");
        assert!(journal.put_back().is_empty());
        assert_eq!(fs_err::read_to_string(root.join("last")).unwrap(), "old");

        commit(super::super::PATCH, &planned, &known, &keeping).unwrap();
        assert_eq!(names(), "last moved to");
        assert_eq!(fs_err::read_to_string(root.join("to/moved")).unwrap(), "new");
    }

    #[test]
    fn what_others_wrote_meanwhile_is_not_thrown_away() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("repo");
        fs_err::create_dir_all(root.join("made")).unwrap();
        let context = testing::context(&root, &folder.path().join("outputs")).unwrap();
        let keeping = Keeping::of(&context);
        let place = |name: &str| context.workspace.resolve(name).unwrap();
        let [changed, made, gone, free] = ["changed", "made/new", "gone", "free"].map(place);
        for place in [&changed, &gone, &free] {
            fs_err::write(&place.path, "old").unwrap();
        }
        let known = FileTracker::new();
        let before = seen::current(&changed).unwrap().unwrap();
        let nothing = |place: &Resolved| FileWrite { path: place.path.clone(), before: None, after: None };
        let take = |place: &Resolved| Done::Took {
            taken: door::take(place, Expected::Anything).unwrap(),
            gone: nothing(place),
        };
        let mut journal = Journal {
            name: super::super::PATCH,
            done: vec![
                take(&gone),
                take(&free),
                Done::MadeDirectories(vec![root.join("made")]),
                Done::Made { place: &made, hash: hash(b"patched"), made: nothing(&made) },
                Done::Changed { place: &changed, before: &before, hash: hash(b"patched") },
            ],
            known: &known,
            keeping: &keeping,
        };
        for place in [&changed, &made, &gone] {
            fs_err::write(&place.path, "theirs").unwrap();
        }
        let error = journal.undo(&DoorError::ReadOnly("last".into())).to_string();
        let expected = "the patch was not applied: last is read-only: its permissions allow nobody, or not this user, to write it. What was done until then was undone, apart from this, which needs a look: changed changed meanwhile: read it again, then repeat the change; made/new changed meanwhile: read it again, then repeat the change; gone (kept beside it as .playhouse-";
        assert!(error.starts_with(expected), "{error}");
        for (place, content) in [(&changed, "theirs"), (&made, "theirs"), (&gone, "theirs"), (&free, "old")] {
            assert_eq!(fs_err::read_to_string(&place.path).unwrap(), content, "{}", place.shown);
        }
    }
}
