//! Writing paths of a revert: each as a whole or not at all.

use std::path::{Path, PathBuf};

use playhouse_protocol::changes::{ChangedFile, FileImage};
use playhouse_workspace::door::{self, DoorError, Expected, InPlace, Kind};
use playhouse_workspace::{ContentHash, LINK, Resolved, TYPE, Workspace};

use crate::journal::Images;

/// Folders in each other that are looked through.
const DEEPEST: usize = 128;

/// What came of a path that was written.
pub(super) enum Wrote {
    /// All of it.
    Whole,
    /// Its content; not its permissions, with the reason.
    Content(String),
}

/// Leads a file from what it was before to what it is after, and notes the folders that it `made` for that. Blocks.
///
/// # Errors
/// Nothing was written, and why.
pub(super) fn write(
    workspace: &Workspace,
    place: &Resolved,
    changed: &ChangedFile,
    images: &Images,
    made: &mut Vec<PathBuf>,
) -> Result<Wrote, String> {
    let content = match &changed.after {
        Some(image) => Some((image, images.content(image).ok_or("its content is not kept")?)),
        None => None,
    };
    let failed = |error: DoorError| error.to_string();
    let old = changed.before.as_ref();
    let link = match old.filter(|image| is_link(image)) {
        Some(image) => Some(images.content(image).ok_or("its content is not kept")?),
        None => None,
    };
    let Some((new, content)) = content else {
        match link {
            Some(target) => door::take_link(place, &target).and_then(door::TakenLink::remove),
            None => door::take(place, expected(old)?).and_then(door::Taken::remove),
        }
        .map_err(failed)?;
        return Ok(Wrote::Whole);
    };
    if old.is_none() {
        remove_empty_at(workspace, place);
    }
    if is_link(new) {
        if old.is_some() && link.is_none() {
            door::replace_with_link(place, &content, expected(old)?).map_err(failed)?;
            return Ok(Wrote::Whole);
        }
        let away = link.map(|target| door::take_link(place, &target)).transpose().map_err(failed)?;
        make(place, made, || door::make_link(place, &content)).map_err(failed)?;
        // What stood there lies beside it, under a hidden name, if that fails.
        drop(away.map(door::TakenLink::remove));
        return Ok(Wrote::Whole);
    }
    let away = link.map(|target| door::take_link(place, &target)).transpose().map_err(failed)?;
    let expected = if away.is_some() { Expected::Nothing } else { expected(old)? };
    let is_same = old.is_some_and(|old| !is_link(old) && old.content.sha() == new.content.sha());
    let mut has_mode = is_same && old.is_some_and(|old| old.mode == new.mode);
    if !is_same {
        let kept = workspace.output().join("revert.before");
        let in_place = InPlace { workspace, kept: &kept };
        let write = || door::write_with_mode(place, &content, expected, &in_place, new.mode);
        has_mode = make(place, made, write).map_err(failed)?.mode == new.mode;
    }
    drop(away.map(door::TakenLink::remove));
    if has_mode {
        return Ok(Wrote::Whole);
    }
    match door::set_mode(place, new.mode) {
        Ok(()) => Ok(Wrote::Whole),
        Err(error) if is_same => Err(failed(error)),
        Err(error) => Ok(Wrote::Content(error.to_string())),
    }
}

fn is_link(image: &FileImage) -> bool {
    image.mode & TYPE == LINK
}

fn expected(old: Option<&FileImage>) -> Result<Expected, String> {
    match old {
        None => Ok(Expected::Nothing),
        Some(image) => ContentHash::parse(image.content.sha())
            .map(Expected::Content)
            .ok_or_else(|| "its hash cannot be read".to_owned()),
    }
}

/// Makes the folders of a place as well, and removes them again where it fails.
fn make<T>(
    place: &Resolved,
    made: &mut Vec<PathBuf>,
    work: impl FnOnce() -> Result<T, DoorError>,
) -> Result<T, DoorError> {
    let new = door::create_parents(place)?;
    let done = work().inspect_err(|_| door::remove_empty(&new))?;
    made.extend(new);
    Ok(done)
}

/// Removes the folder at a place, if there is nothing in it but folders.
fn remove_empty_at(workspace: &Workspace, place: &Resolved) {
    if matches!(door::facts(place), Ok(Some(facts)) if facts.kind == Kind::Directory) {
        let mut folders = vec![place.path.clone()];
        if each_below(workspace, place, 0, &mut |path, kind| {
            folders.push(path.to_owned());
            kind == Kind::Directory
        }) {
            door::remove_empty(&folders);
        }
    }
}

/// Shows everything in a folder, the upper first. False: `show` said so of something, or the folder cannot be read.
pub(super) fn each_below(
    workspace: &Workspace,
    place: &Resolved,
    depth: usize,
    show: &mut dyn FnMut(&Path, Kind) -> bool,
) -> bool {
    let Ok(entries) = door::read_dir(place) else { return false };
    for entry in entries {
        let Ok(entry) = entry else { return false };
        let path = place.path.join(&entry.name);
        if !show(&path, entry.kind) {
            return false;
        }
        if entry.kind == Kind::Directory {
            let inner = workspace.found(&path);
            if depth >= DEEPEST || !inner.is_ok_and(|inner| each_below(workspace, &inner, depth + 1, show)) {
                return false;
            }
        }
    }
    true
}
