use std::collections::HashMap;

use playhouse_protocol::changes::{ChangedFolder, FileContent};
use playhouse_protocol::message::BlobRef;
use proptest::prelude::*;

use super::*;

const FILE: u32 = 0o100_644;

/// Files in memory, and what is kept of contents.
#[derive(Default)]
struct Memory {
    files: HashMap<String, PathState>,
    kept: HashMap<String, Arc<[u8]>>,
    denied: Vec<String>,
    writes: Vec<PathWrite>,
}

/// A plan with what is to be written.
struct Planned {
    writes: Vec<PathWrite>,
    conflicts: Vec<LeftFile>,
    ambiguous: Vec<LeftFile>,
    not_covered: Vec<LeftFile>,
}

fn plan<'a>(
    sets: impl IntoIterator<Item = &'a ChangeSet>,
    selection: &Selection,
    memory: &mut Memory,
) -> Planned {
    let RevertPlan { conflicts, ambiguous, not_covered } =
        super::plan(sets.into_iter().map(|set| ("ses_1", set)), selection, memory);
    Planned { writes: std::mem::take(&mut memory.writes), conflicts, ambiguous, not_covered }
}

impl Memory {
    fn put(&mut self, path: &str, text: &str) {
        self.files.insert(path.into(), PathState::file(text.as_bytes().into(), FILE));
    }

    fn image(&mut self, text: &str) -> FileImage {
        let bytes: Arc<[u8]> = text.as_bytes().into();
        let blob = BlobRef { hash: sha(&bytes), size: bytes.len() as u64 };
        self.kept.insert(blob.hash.clone(), bytes);
        FileImage { content: FileContent::Blob(blob), mode: FILE }
    }

    /// A change of one file, done to the files as well.
    fn change(&mut self, path: &str, before: Option<&str>, after: Option<&str>) -> ChangeSet {
        let (old, new) = (before.map(|text| self.image(text)), after.map(|text| self.image(text)));
        match after {
            Some(text) => self.put(path, text),
            None => drop(self.files.remove(path)),
        }
        ChangeSet { changes: vec![ChangedFile::new(path, old, new)], ..ChangeSet::default() }
    }

    fn apply(&mut self, plan: &Planned) {
        for write in &plan.writes {
            match &write.to {
                PathState::Missing => drop(self.files.remove(&write.path)),
                state => drop(self.files.insert(write.path.clone(), state.clone())),
            }
        }
    }

    fn text(&self, path: &str) -> Option<String> {
        match self.files.get(path)? {
            PathState::File { bytes: Some(bytes), .. } => Some(String::from_utf8_lossy(bytes).into_owned()),
            other => panic!("{other:?}"),
        }
    }
}

impl Tree for Memory {
    fn look(&mut self, path: &str) -> PathState {
        self.files.get(path).cloned().unwrap_or(PathState::Missing)
    }

    fn content(&mut self, image: &FileImage) -> Option<Arc<[u8]>> {
        self.kept.get(image.content.sha()).cloned()
    }

    fn may(&mut self, path: &str) -> Result<(), String> {
        if self.denied.iter().any(|denied| denied == path) { Err("denied by a rule".into()) } else { Ok(()) }
    }

    fn planned(&mut self, write: PathWrite) {
        self.writes.push(write);
    }
}

fn why(left: &[LeftFile]) -> Vec<(&str, &str)> {
    left.iter().map(|left| (left.path.as_deref().unwrap_or_default(), &*left.reason)).collect()
}

#[test]
fn what_a_person_wrote_between_two_changes_stays() {
    let mut memory = Memory::default();
    memory.put("a", "one\ntwo\nthree\n");
    let first = memory.change("a", Some("one\ntwo\nthree\n"), Some("ONE\ntwo\nthree\n"));
    memory.put("a", "ONE\ntwo\nthree\nfour\n");
    let second = memory.change("a", Some("ONE\ntwo\nthree\nfour\n"), Some("ONE\ntwo\nTHREE\nfour\n"));
    let plan = plan([&second, &first], &Selection::default(), &mut memory);
    memory.apply(&plan);
    assert_eq!(memory.text("a").unwrap(), "one\ntwo\nthree\nfour\n");
    assert!(plan.conflicts.is_empty());
}

#[test]
fn a_conflict_leaves_the_path_alone_also_where_older_changes_would_fit() {
    let mut memory = Memory::default();
    let made = memory.change("a", None, Some("one\n"));
    let changed = memory.change("a", Some("one\n"), Some("two\n"));
    let gone = memory.change("b", Some("bee\n"), None);
    memory.put("a", "three\n");
    memory.put("b", "another\n");
    let plan = plan([&gone, &changed, &made], &Selection::default(), &mut memory);
    assert!(plan.writes.is_empty());
    let expected = [("a", "the same lines changed since"), ("b", "there is another file now")];
    assert_eq!(why(&plan.conflicts), expected);
}

#[test]
fn what_is_not_a_file_any_more_or_denied_is_a_conflict_and_what_is_not_kept_is_not_covered() {
    let mut memory = Memory::default();
    let folder = memory.change("folder", Some("1\n"), Some("2\n"));
    memory.files.insert("folder".into(), PathState::Other("a directory".into()));
    let secret = memory.change("secret", Some("1\n"), Some("2\n"));
    memory.denied.push("secret".into());
    let lost = memory.change("lost", Some("gone for ever\n"), Some("2\n"));
    memory.kept.remove(&sha(b"gone for ever\n"));
    let removed = memory.change("removed", Some("1\n"), Some("2\n"));
    memory.files.remove("removed");
    let plan = plan([&removed, &lost, &secret, &folder], &Selection::default(), &mut memory);
    assert!(plan.writes.is_empty());
    let expected = [
        ("folder", "it is a directory now"),
        ("removed", "it was removed since"),
        ("secret", "denied by a rule"),
    ];
    assert_eq!(why(&plan.conflicts), expected);
    assert_eq!(why(&plan.not_covered), [("lost", "its content before the change is not kept")]);
}

#[test]
fn ambiguous_paths_are_taken_back_when_they_are_named() {
    let mut memory = Memory::default();
    let mut set = memory.change("mine", None, Some("x"));
    set.changes[0].ambiguous = true;
    let other = memory.change("other", None, Some("y"));
    let listed = plan([&other, &set], &Selection::default(), &mut memory);
    assert_eq!((listed.writes.len(), listed.ambiguous.len()), (1, 1));
    let named = plan([&other, &set], &Selection::only(vec!["mine".to_owned()]), &mut memory);
    assert_eq!(named.writes.iter().map(|write| &*write.path).collect::<Vec<_>>(), ["mine"]);
    assert!(named.ambiguous.is_empty());
    let all =
        plan([&other, &set], &Selection { named: vec!["mine".to_owned()], only_named: false }, &mut memory);
    assert_eq!((all.writes.len(), all.ambiguous.len()), (2, 0));
}

#[test]
fn what_one_of_several_sessions_changed_is_taken_back_with_the_changes_of_all_of_them() {
    let mut memory = Memory::default();
    let mut set = memory.change("a", Some("1"), Some("2"));
    (set.changes[0].ambiguous, set.changes[0].among) = (true, vec!["ses_1".into(), "ses_2".into()]);
    let folder = ChangedFolder {
        path: "made".into(),
        before: None,
        after: Some(0o755),
        ambiguous: true,
        among: set.changes[0].among.clone(),
    };
    set.folders.push(folder);
    let all = Selection::default();
    let folders = |sets: [(&'static str, &ChangeSet); 2]| plan_folders(sets, &all, &mut |_| Some(0o755));
    let plan = super::plan([("ses_1", &set), ("ses_1", &set)], &all, &mut memory);
    assert_eq!((memory.writes.len(), plan.ambiguous.len()), (0, 1));
    let left = folders([("ses_1", &set), ("ses_1", &set)]);
    assert_eq!((left.changes.len(), left.ambiguous.len()), (0, 1));
    let plan = super::plan([("ses_2", &set), ("ses_1", &set)], &all, &mut memory);
    assert_eq!((memory.writes.len(), plan.ambiguous.len()), (1, 0));
    let taken = folders([("ses_2", &set), ("ses_1", &set)]);
    assert_eq!((taken.changes.len(), taken.ambiguous.len()), (1, 0));
}

#[test]
fn folders_go_or_come_back_unless_somebody_did_that_since() {
    let set = |before, after| {
        let folder = ChangedFolder { path: "d".into(), before, after, ambiguous: false, among: Vec::new() };
        ChangeSet { folders: vec![folder], ..ChangeSet::default() }
    };
    let all = Selection::default();
    let planned = |sets: &[ChangeSet], now: Option<u32>| {
        let plan = plan_folders(sets.iter().map(|set| ("ses_1", set)), &all, &mut |_| now);
        plan.changes.first().map(|folder| (folder.before, folder.after))
    };
    let (some, other, third) = (Some(0o700), Some(0o755), Some(0o711));
    assert_eq!(planned(&[set(None, some)], some), Some((some, None)));
    assert_eq!(planned(&[set(None, some)], None), None);
    assert_eq!(planned(&[set(some, None)], None), Some((None, some)));
    assert_eq!(planned(&[set(some, None)], other), None);
    assert_eq!(planned(&[set(some, other)], other), Some((other, some)));
    assert_eq!(planned(&[set(some, other)], third), None);
    assert_eq!(planned(&[set(some, other)], None), None);
    // The newest first: it was made and removed again, or removed and made again.
    assert_eq!(planned(&[set(some, None), set(None, some)], None), None);
    assert_eq!(planned(&[set(None, other), set(some, None)], other), Some((other, some)));
}

#[test]
fn permissions_come_back_unless_somebody_changed_them_since() {
    let mut memory = Memory::default();
    let mut set = memory.change("run", Some("x"), Some("x"));
    set.changes[0].after.as_mut().unwrap().mode = 0o100_755;
    for (now, expected) in [(0o100_755, FILE), (0o100_700, 0o100_700)] {
        memory.files.insert("run".into(), PathState::file(b"x".as_slice().into(), now));
        let plan = plan([&set], &Selection::default(), &mut memory);
        let to = plan.writes.first().map(|write| write.to.clone());
        let modes = to.map_or(now, |to| match to {
            PathState::File { mode, .. } => mode,
            other => panic!("{other:?}"),
        });
        assert_eq!(modes, expected);
    }
}

proptest! {
    /// Whatever a session did to files that nobody else touched, all is as before, and taking that back again gives the end.
    #[test]
    fn changes_of_one_writer_come_back_whole(steps in proptest::collection::vec((0..4_u8, 0..3_u8), 1..30)) {
        let mut memory = Memory::default();
        memory.put("f0", "zero\n");
        let start = memory.files.clone();
        let mut sets = Vec::new();
        for (number, (file, what)) in steps.into_iter().enumerate() {
            let path = format!("f{file}");
            let before = memory.text(&path);
            let after = (what > 0).then(|| format!("content {number}\n"));
            if before.is_some() || after.is_some() {
                sets.push(memory.change(&path, before.as_deref(), after.as_deref()));
            }
        }
        let end = memory.files.clone();
        let back = plan(sets.iter().rev(), &Selection::default(), &mut memory);
        prop_assert!(back.conflicts.is_empty() && back.not_covered.is_empty());
        memory.apply(&back);
        prop_assert_eq!(&memory.files, &start);
        let images = |state: &PathState, memory: &mut Memory| match state {
            PathState::File { bytes: Some(bytes), .. } => {
                Some(memory.image(std::str::from_utf8(bytes).unwrap()))
            }
            _ => None,
        };
        let changes = back.writes.iter().map(|write| {
            ChangedFile::new(write.path.clone(), images(&write.from, &mut memory), images(&write.to, &mut memory))
        });
        let reverted = ChangeSet { changes: changes.collect(), ..ChangeSet::default() };
        let forth = plan([&reverted], &Selection::default(), &mut memory);
        memory.apply(&forth);
        prop_assert_eq!(&memory.files, &end);
    }
}

#[test]
fn a_file_that_was_never_read_is_not_covered() {
    let mut memory = Memory::default();
    memory.put("ignored.log", "more\n");
    let unread = FileImage { content: FileContent::Lost { sha: String::new(), size: 5 }, mode: FILE };
    let made = ChangedFile::new("made.log", None, Some(unread.clone()));
    let changed = ChangedFile::new("ignored.log", Some(unread.clone()), Some(unread));
    let set = ChangeSet { changes: vec![changed, made], ..ChangeSet::default() };
    memory.put("made.log", "x\n");
    let plan = plan([&set], &Selection::default(), &mut memory);
    assert!(plan.writes.is_empty() && plan.conflicts.is_empty());
    let paths: Vec<_> = plan.not_covered.iter().map(|left| left.path.as_deref()).collect();
    assert_eq!(paths, [Some("ignored.log"), Some("made.log")]);
}

#[test]
fn texts_that_have_little_in_common_are_not_merged() {
    let text =
        |word: &str, lines: usize| (0..lines).map(|line| format!("{word} {line}\n")).collect::<String>();
    let (base, other) = (text("base", 30_000), text("other", 30_000));
    assert_eq!(merge::merge(base.as_bytes(), other.as_bytes(), other.as_bytes()), None);
    let (one, two) = (format!("one\n{base}"), format!("{base}two\n"));
    let merged = merge::merge(base.as_bytes(), one.as_bytes(), two.as_bytes());
    assert_eq!(merged.as_deref(), Some(format!("one\n{base}two\n").as_bytes()));
}

#[test]
fn a_path_that_is_as_it_was_before_all_changes_is_left() {
    let mut memory = Memory::default();
    let first = memory.change("a", Some("o\n"), Some("x\n"));
    let second = memory.change("a", Some("x\n"), Some("y\n"));
    memory.put("a", "o\n");
    let plan = plan([&second, &first], &Selection::default(), &mut memory);
    assert!(plan.writes.is_empty() && plan.conflicts.is_empty());
}
