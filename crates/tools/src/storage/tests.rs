use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use fs_err as fs;

use super::*;

const KB: u64 = 1024;

struct Fixture {
    folder: tempfile::TempDir,
    storage: Storage,
}

impl Fixture {
    fn new(outputs: u64, tenant: u64) -> Self {
        let limits = StorageLimits { outputs: Some(outputs), tenant: Some(tenant), undo: Some(100 * KB) };
        Self { folder: tempfile::tempdir().unwrap(), storage: Storage::new(limits) }
    }

    fn outputs(&self, session: &str) -> PathBuf {
        self.folder.path().join(session)
    }

    fn session(&self, session: &str) -> SessionStorage {
        self.storage.session("acme", self.outputs(session), Vec::new())
    }

    /// Writes an output; the bytes that are kept, and the bound that allowed no more.
    fn write(&self, session: &str, name: &str, bytes: u64) -> (usize, Option<StorageBound>) {
        let mut writer = self.session(session).writer(self.outputs(session).join(name));
        writer.write(&vec![b'x'; usize::try_from(bytes).unwrap()]).unwrap()
    }

    /// A file of so many bytes that was written so many hours ago.
    fn lies(&self, session: &str, name: &str, bytes: u64, hours: u64) -> PathBuf {
        let path = self.outputs(session).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, vec![b'x'; usize::try_from(bytes).unwrap()]).unwrap();
        let time = SystemTime::now() - Duration::from_secs(hours * 3_600);
        fs::File::options().write(true).open(&path).unwrap().file().set_modified(time).unwrap();
        path
    }

    fn names(&self, session: &str) -> Vec<String> {
        let entries = fs::read_dir(self.outputs(session)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

#[test]
fn the_oldest_finished_outputs_make_room_and_what_lies_there_counts() {
    let fixture = Fixture::new(10 * KB, 100 * KB);
    fixture.lies("one", "b.txt", 4 * KB, 2);
    fixture.lies("one", "a.txt", 4 * KB, 1);
    assert_eq!(fixture.write("one", "c.txt", 2 * KB), (2048, None));
    assert_eq!(fixture.names("one"), ["a.txt", "b.txt", "c.txt"]);
    assert_eq!(fixture.write("one", "d.txt", 3 * KB), (3072, None));
    assert_eq!(fixture.names("one"), ["a.txt", "c.txt", "d.txt"]);
    assert_eq!(fixture.storage.usage("acme").outputs, 9 * KB);
    // The outputs of another session stay whatever this one writes.
    assert_eq!(fixture.write("two", "a.txt", 10 * KB), (10_240, None));
    assert_eq!(fixture.write("one", "e.txt", 10 * KB), (10_240, None));
    assert_eq!(
        (fixture.names("one"), fixture.names("two")),
        (vec!["e.txt".to_owned()], vec!["a.txt".into()])
    );
}

#[test]
fn an_output_that_is_larger_than_the_bound_is_cut_and_those_being_written_stay() {
    let fixture = Fixture::new(10 * KB, 100 * KB);
    let mut long = fixture.session("one").writer(fixture.outputs("one").join("long.txt"));
    assert_eq!(long.write(&[b'x'; 6 * 1024]).unwrap(), (6 * 1024, None));
    fixture.lies("one", "old.txt", KB, 1);
    let bound = StorageBound::Session(10 * KB);
    assert_eq!(fixture.write("one", "next.txt", 5 * KB), (4 * 1024, Some(bound)));
    assert_eq!(fixture.names("one"), ["long.txt", "next.txt"]);
    // It may take what is finished by now.
    assert_eq!(long.write(&[b'x'; 5 * 1024]).unwrap(), (4 * 1024, Some(bound)));
    assert_eq!(fixture.names("one"), ["long.txt"]);
    drop(long);
    assert_eq!(fixture.write("one", "new.txt", KB), (1024, None));
    assert_eq!(fixture.names("one"), ["new.txt"]);
}

#[test]
fn what_repairs_and_skills_need_is_counted_and_stays() {
    let fixture = Fixture::new(10 * KB, 100 * KB);
    for name in ["prt_1.before", "prt_1.before.json", "prt_1.found", "prt_2.restored.json", "skills/a/b"] {
        fixture.lies("one", name, 2 * KB, 5);
    }
    let names = fixture.names("one");
    assert_eq!(fixture.write("one", "new.txt", KB), (0, Some(StorageBound::Session(10 * KB))));
    assert_eq!(fixture.names("one"), names);
}

#[test]
fn a_tenant_above_its_bound_takes_no_more_and_keeps_what_it_has() {
    let fixture = Fixture::new(100 * KB, 10 * KB);
    fixture.storage.note_home("acme", Path::new("/home"), 12 * KB);
    fixture.lies("one", "old.txt", KB, 1);
    let bound = StorageBound::Tenant { used: 13 * KB, most: 10 * KB };
    assert_eq!(fixture.write("one", "new.txt", KB), (0, Some(bound)));
    assert_eq!(fixture.names("one"), ["old.txt"]);
    assert_eq!(fixture.storage.take_attachment("acme", 1), Err(bound));
    assert_eq!(fixture.storage.take_attachment("other", 10 * KB), Ok(()));
    // Where the removal of old ones helps, they are removed.
    fixture.storage.note_home("acme", Path::new("/home"), 9 * KB);
    assert_eq!(fixture.write("one", "new.txt", KB), (1024, None));
    assert_eq!(fixture.names("one"), ["new.txt"]);
    assert_eq!(
        fixture.storage.usage("acme"),
        StorageUse { outputs: KB, homes: 9 * KB, ..StorageUse::default() }
    );
    assert!(bound.to_string().contains("of this tenant take"), "{bound}");
}

#[test]
fn no_link_is_followed() {
    let (fixture, elsewhere) = (Fixture::new(10 * KB, 100 * KB), Fixture::new(10 * KB, 100 * KB));
    let precious = elsewhere.lies("one", "precious.txt", 20 * KB, 5);
    fixture.lies("one", "old.txt", 9 * KB, 1);
    fs::os::unix::fs::symlink(&precious, fixture.outputs("one").join("link.txt")).unwrap();
    fs::os::unix::fs::symlink(elsewhere.outputs("one"), fixture.outputs("one").join("below")).unwrap();
    assert_eq!(fixture.write("one", "new.txt", 9 * KB), (9 * 1024, None));
    assert_eq!(fixture.names("one"), ["below", "link.txt", "new.txt"]);
    assert!(precious.exists());
}

#[tokio::test]
async fn a_home_that_grows_above_the_bound_is_noticed() {
    let fixture = Fixture::new(100 * KB, 10 * KB);
    let home = fixture.folder.path().join("home");
    fs::create_dir_all(&home).unwrap();
    fixture.storage.note_home("acme", &home, 0);
    let session = fixture.storage.session("acme", fixture.outputs("one"), vec![home.clone()]);
    fs::write(home.join("much"), vec![b'x'; 64 * 1024]).unwrap();
    let bound = session.home_is_full(&playhouse_workspace::Pool::new(1)).await;
    assert!(matches!(bound, StorageBound::Tenant { used, .. } if used >= 64 * KB), "{bound:?}");
}
