//! Commits and the files that they hold.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::RepositoryError;
use super::objects::{Kind, Objects};
use super::refs::is_hash;

/// The most commits that are looked at to find where two branches parted.
const MOST_COMMITS: usize = 1_000_000;
/// The most files of a commit, and the deepest folder.
const MOST_FILES: usize = 1_000_000;
const DEEPEST: usize = 256;
/// The largest list of files of one folder, and the largest commit, in bytes.
const LARGEST_TREE: u64 = 64 * 1024 * 1024;
const LARGEST_COMMIT: u64 = 16 * 1024 * 1024;
/// What a folder is, in a list of files.
const FOLDER: u32 = 0o40_000;

/// A file of a commit: what kind it is, and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) mode: u32,
    pub(super) id: String,
}

/// Paths from the worktree on, and what is there.
pub(super) type Files = BTreeMap<Vec<u8>, Version>;

struct Commit {
    tree: String,
    parents: Vec<String>,
    seconds: i64,
}

fn unreadable(what: String) -> RepositoryError {
    RepositoryError::Unreadable(what)
}

fn commit(objects: &Objects, id: &str) -> Result<Commit, RepositoryError> {
    let broken = || unreadable(format!("the commit {id} is broken"));
    let text = objects.read(id, Kind::Commit, LARGEST_COMMIT)?.ok_or_else(broken)?;
    let (mut tree, mut parents, mut seconds) = (None, Vec::new(), 0);
    for line in text.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty()) {
        let line = String::from_utf8_lossy(line);
        match line.split_once(' ') {
            Some(("tree", id)) if tree.is_none() && is_hash(id) => tree = Some(id.to_owned()),
            Some(("parent", id)) if is_hash(id) => parents.push(id.to_owned()),
            Some(("committer", who)) => {
                seconds = who.rsplit(' ').nth(1).and_then(|seconds| seconds.parse().ok()).unwrap_or_default();
            }
            _ => {}
        }
    }
    Ok(Commit { tree: tree.ok_or_else(broken)?, parents, seconds })
}

/// The files of a commit that lie in the folder `within`, which is empty or ends in a slash.
///
/// # Errors
/// Something of it is missing or broken, or there are too many.
pub(super) fn files(objects: &Objects, id: &str, within: &[u8]) -> Result<Files, RepositoryError> {
    let mut found = Files::new();
    let mut next = vec![(Vec::new(), commit(objects, id)?.tree, 0)];
    let mut folders = 0;
    while let Some((folder, id, depth)) = next.pop() {
        let broken = || unreadable(format!("the list of files {id} is broken"));
        folders += 1;
        if folders > MOST_FILES || depth > DEEPEST {
            return Err(broken());
        }
        let list = objects.read(&id, Kind::Tree, LARGEST_TREE)?.ok_or_else(broken)?;
        let mut rest = list.as_slice();
        while !rest.is_empty() {
            let (mode, name, id, after) = entry(rest, id.len() / 2).ok_or_else(broken)?;
            rest = after;
            let path = [&folder, name].concat();
            if mode & 0o170_000 == FOLDER {
                let path = [&path, &b"/"[..]].concat();
                if path.starts_with(within) || within.starts_with(&path) {
                    next.push((path, id, depth + 1));
                }
            } else if path.starts_with(within) {
                found.insert(path, Version { mode, id });
                if found.len() > MOST_FILES {
                    return Err(RepositoryError::TooMuch);
                }
            }
        }
    }
    Ok(found)
}

/// The first entry of a list: its mode, its name, its object, and what follows.
fn entry(list: &[u8], length: usize) -> Option<(u32, &[u8], String, &[u8])> {
    let space = list.iter().position(|byte| *byte == b' ')?;
    let mode = u32::from_str_radix(std::str::from_utf8(&list[..space]).ok()?, 8).ok()?;
    let rest = &list[space + 1..];
    let end = rest.iter().position(|byte| *byte == 0)?;
    let (name, rest) = (&rest[..end], &rest[end + 1..]);
    if name.is_empty() || name.contains(&b'/') {
        return None;
    }
    let (id, rest) = rest.split_at_checked(length)?;
    Some((mode, name, id.iter().map(|byte| format!("{byte:02x}")).collect(), rest))
}

const OF_ONE: u8 = 1;
const OF_OTHER: u8 = 2;
const OF_BOTH: u8 = OF_ONE | OF_OTHER;
/// Before a commit that both have.
const STALE: u8 = 4;

/// Commits that are still to be looked at, the youngest last.
#[derive(Default)]
struct Waiting {
    marks: HashMap<String, u8>,
    queue: BTreeSet<(i64, String)>,
    /// Those of the queue that are not stale.
    fresh: usize,
}

/// The youngest commit that two have in common. `ends` are those whose ancestors are not there.
///
/// # Errors
/// A commit is missing or broken, or there are too many.
pub(super) fn common_ancestor(
    objects: &Objects,
    one: &str,
    other: &str,
    ends: &HashSet<String>,
) -> Result<Option<String>, RepositoryError> {
    let mut commits: HashMap<String, (i64, Vec<String>)> = HashMap::new();
    let mut waiting = Waiting::default();
    let mut common = Vec::new();
    let mut steps = vec![(one.to_owned(), OF_ONE), (other.to_owned(), OF_OTHER)];
    loop {
        for (id, new) in steps.drain(..) {
            if !commits.contains_key(&id) {
                let commit = commit(objects, &id)?;
                let parents = if ends.contains(&id) { Vec::new() } else { commit.parents };
                commits.insert(id.clone(), (commit.seconds, parents));
            }
            if commits.len() > MOST_COMMITS {
                return Err(RepositoryError::TooMuch);
            }
            let seconds = commits.get(&id).map_or(0, |(seconds, _)| *seconds);
            waiting.mark(seconds, id, new);
        }
        if waiting.fresh == 0 {
            break;
        }
        let Some((seconds, id, mut marks)) = waiting.next() else { break };
        if marks & OF_BOTH == OF_BOTH && marks & STALE == 0 {
            common.push((seconds, id.clone()));
            marks |= STALE;
        }
        let parents = commits.get(&id).map(|(_, parents)| parents.clone()).unwrap_or_default();
        steps.extend(parents.into_iter().map(|parent| (parent, marks)));
    }
    common.retain(|(_, id)| waiting.marks.get(id).is_none_or(|marks| marks & STALE == 0));
    Ok(common.into_iter().max().map(|(_, id)| id))
}

impl Waiting {
    fn mark(&mut self, seconds: i64, id: String, new: u8) {
        let marks = self.marks.entry(id.clone()).or_default();
        let before = *marks;
        *marks |= new;
        if *marks == before {
            return;
        }
        let was_fresh = before & STALE == 0 && self.queue.contains(&(seconds, id.clone()));
        self.fresh += usize::from(*marks & STALE == 0);
        self.fresh -= usize::from(was_fresh);
        self.queue.insert((seconds, id));
    }

    /// The youngest of them, with its marks.
    fn next(&mut self) -> Option<(i64, String, u8)> {
        let (seconds, id) = self.queue.pop_last()?;
        let marks = self.marks.get(&id).copied().unwrap_or_default();
        self.fresh -= usize::from(marks & STALE == 0);
        Some((seconds, id, marks))
    }
}
