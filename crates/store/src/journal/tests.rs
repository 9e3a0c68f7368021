use std::os::unix::fs::FileExt;
use std::path::Path;

use tempfile::TempDir;

use super::blocks::AHEAD;
use super::*;

fn change(key: &str, value: Option<&str>) -> Batch {
    Batch::from([(key.as_bytes().to_vec(), value.map(|value| value.as_bytes().to_vec()))])
}

fn write(journal: &mut Journal, batches: &[Batch]) {
    for batch in batches {
        journal.stage(batch);
        journal.write().unwrap();
    }
}

/// A journal with entries 1 (empty), 2, 3 and 4, and its salt.
fn written() -> (TempDir, u64) {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = Journal::begin(directory.path(), 0).unwrap();
    write(&mut journal, &[change("a", Some("1")), change("b", Some("2")), change("a", None)]);
    (directory, journal.salt())
}

fn read(directory: &Path, settled: u64, salt: u64) -> (Batch, u64, Option<String>) {
    let Found { journal, changes, damages, .. } = Journal::read(directory, settled..=settled, salt).unwrap();
    (changes, journal.last(), damages.last().map(ToString::to_string))
}

fn flip(directory: &Path, file: usize, byte: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(directory.join(FILES[file])).unwrap();
    let mut found = [0];
    file.file().read_exact_at(&mut found, byte).unwrap();
    file.file().write_all_at(&[found[0] ^ 0x10], byte).unwrap();
}

/// Where the entries of a file begin, with its end.
fn places(directory: &Path, file: usize, salt: u64) -> Vec<u64> {
    let content = fs::read(directory.join(FILES[file])).unwrap();
    let entries = entries_of(&content, salt);
    let begins = entries.iter().map(|(_, place)| (place.start - HEAD) as u64);
    begins.chain(entries.last().map(|(_, place)| place.end as u64)).collect()
}

#[test]
fn what_was_written_is_read_as_the_last_entry_leaves_it() {
    let (directory, salt) = written();
    let all: Batch = [change("a", None), change("b", Some("2"))].into_iter().flatten().collect();
    assert_eq!(read(directory.path(), 1, salt), (all, 4, None));
    assert_eq!(read(directory.path(), 3, salt), (change("a", None), 4, None));
    assert_eq!(read(directory.path(), 4, salt), (Batch::new(), 4, None));
}

#[test]
fn files_take_turns_and_what_is_left_of_older_entries_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = Journal::begin(directory.path(), 7).unwrap();
    let salt = journal.salt();
    let numbered =
        |number: u64| change(&format!("key {number}"), Some(&"x".repeat(number as usize % 7 * 100)));
    for round in 0..6 {
        for number in 0..5 {
            write(&mut journal, &[numbered(round * 5 + number)]);
        }
        let (last, settled) = (journal.last(), 8 + round * 5);
        let expected: Batch = (round * 5..round * 5 + 5).flat_map(numbered).collect();
        assert_eq!(read(directory.path(), settled, salt), (expected, last, None));
        let half: Batch = (round * 5 + 2..round * 5 + 5).flat_map(numbered).collect();
        assert_eq!(read(directory.path(), settled + 2, salt), (half, last, None));
        journal.turn();
    }
    // The next one is written over what was settled.
    write(&mut journal, &[change("next", None)]);
    assert_eq!(read(directory.path(), 38, salt), (change("next", None), 39, None));
}

#[test]
fn an_entry_that_was_cut_off_is_left_out_and_written_over() {
    let (directory, salt) = written();
    let places = places(directory.path(), 0, salt);
    let [.., last, end] = places[..] else { panic!("{places:?}") };
    for length in last..end {
        let file = fs::OpenOptions::new().write(true).open(directory.path().join(FILES[0])).unwrap();
        file.file().write_all_at(&vec![0; (end - length) as usize], length).unwrap();
        let Found { mut journal, damages, .. } = Journal::read(directory.path(), 1..=1, salt).unwrap();
        assert!(damages.is_empty() && journal.last() == 3, "{length}");
        write(&mut journal, &[change("c", Some("3"))]);
        let (changes, last, damage) = read(directory.path(), 3, salt);
        assert_eq!((changes, last, damage), (change("c", Some("3")), 4, None), "{length}");
    }
}

#[test]
fn one_changed_byte_is_damage_where_something_follows() {
    let (directory, salt) = written();
    let places = places(directory.path(), 0, salt);
    let [_, second, third, last, end] = places[..] else { panic!("{places:?}") };
    for byte in second..end {
        flip(directory.path(), 0, byte);
        let (changes, found, damage) = read(directory.path(), 1, salt);
        if byte < last {
            // What is behind it is there for whoever wants what is left.
            let left = if byte < third {
                [change("b", Some("2")), change("a", None)]
            } else {
                [change("a", None), Batch::new()]
            };
            assert_eq!((changes, found), (left.into_iter().flatten().collect(), 4), "{byte}");
            assert!(damage.is_some_and(|damage| damage.contains("cannot be read, though entry")), "{byte}");
        } else {
            // Nobody knows whether that was told.
            assert_eq!((found, damage), (3, None), "{byte}");
        }
        flip(directory.path(), 0, byte);
    }
}

#[test]
fn what_was_emptied_or_lost_is_damage() {
    let (directory, salt) = written();
    let path = directory.path().join(FILES[0]);
    let content = fs::read(&path).unwrap();
    fs::write(&path, "").unwrap();
    let (.., damage) = read(directory.path(), 1, salt);
    assert!(damage.is_some_and(|damage| damage.contains("entry 1 of its journal is not there")));
    fs::write(&path, &content).unwrap();
    assert_eq!(read(directory.path(), 1, salt).2, None);
    fs::remove_file(&path).unwrap();
    let error = Journal::read(directory.path(), 1..=1, salt).err().unwrap().to_string();
    assert!(error.contains("journal-0") && error.contains("it is not there"), "{error}");
    fs::write(&path, content).unwrap();
    // As an older copy has it.
    assert!(read(directory.path(), 5, salt).2.is_some());
    assert!(read(directory.path(), 4, salt + 1).2.is_some(), "of another opening");
}

#[test]
fn the_younger_file_cannot_be_lost_unseen() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = Journal::begin(directory.path(), 0).unwrap();
    write(&mut journal, &[change("a", Some("1"))]);
    journal.turn();
    write(&mut journal, &[change("b", Some("2")), change("c", Some("3"))]);
    let salt = journal.salt();
    let read = |known| Journal::read(directory.path(), known, salt).unwrap().damages;
    assert!(read(2..=4).is_empty());
    fs::write(directory.path().join(FILES[1]), "").unwrap();
    let damages = read(2..=4);
    assert!(damages[1].to_string().contains("entry 4 of its journal is not there"), "{damages:?}");
    // Nobody says how far it went.
    let damages = read(2..=2);
    assert!(damages[0].to_string().contains("its beginning, which says"), "{damages:?}");
}

#[test]
fn what_somebody_had_written_is_no_entry() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = Journal::begin(directory.path(), 0).unwrap();
    let mut forged = head(0, crc32fast::hash(b""), 9, 4711).to_vec();
    forged.extend(head(0, crc32fast::hash(b""), 3, 4711));
    let batch = Batch::from([(b"key".to_vec(), Some(forged))]);
    journal.stage(&batch);
    journal.write().unwrap();
    assert_eq!(read(directory.path(), 1, journal.salt()), (batch, 2, None));
}

fn cut(directory: &Path, file: usize, length: u64) {
    let file = fs::OpenOptions::new().write(true).open(directory.join(FILES[file])).unwrap();
    file.set_len(length).unwrap();
}

fn length(directory: &Path, file: usize) -> u64 {
    fs::metadata(directory.join(FILES[file])).unwrap().len()
}

#[test]
fn a_file_that_is_shorter_than_laid_out_is_named_with_both_lengths() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = Journal::begin(directory.path(), 0).unwrap();
    let salt = journal.salt();
    assert_eq!(length(directory.path(), 0), AHEAD, "before anything is written");
    // Over the first step and the second.
    for number in 0..40 {
        write(&mut journal, &[change(&number.to_string(), Some(&"x".repeat(5_000)))]);
    }
    journal.turn();
    write(&mut journal, &[change("a", Some("1"))]);
    assert_eq!([0, 1].map(|file| length(directory.path(), file)), [2 * AHEAD, AHEAD]);
    for (file, whole) in [(0, 2 * AHEAD), (1, AHEAD)] {
        let content = fs::read(directory.path().join(FILES[file])).unwrap();
        for length in [whole - 1, AHEAD - 1, 39_321, BLOCK as u64, 100, 1, 0] {
            cut(directory.path(), file, length);
            let damages = Journal::read(directory.path(), 1..=1, salt).unwrap().damages;
            let text = damages[0].to_string();
            assert!(text.contains(FILES[file]) && text.contains(&format!("{length} bytes long")), "{text}");
            if length > 32 {
                assert!(text.contains(&format!("laid out for {whole}")), "{text}");
            }
            fs::write(directory.path().join(FILES[file]), &content).unwrap();
        }
    }
    assert_eq!(read(directory.path(), 1, salt).2, None);
}

/// A file is longer than its layout says where an engine was killed in between.
#[test]
fn a_file_that_is_longer_than_laid_out_is_taken_and_counts_from_then_on() {
    let (directory, salt) = written();
    for (file, longer) in [(0, AHEAD + 1), (0, 3 * AHEAD), (1, 5_000)] {
        cut(directory.path(), file, longer);
        assert_eq!(read(directory.path(), 1, salt).2, None);
        cut(directory.path(), file, longer - 1);
        assert!(read(directory.path(), 1, salt).2.is_some(), "{longer}");
        cut(directory.path(), file, longer);
    }
}

/// As an engine before layouts leaves a journal: entries begin at the first byte, and files are as long as is written.
#[test]
fn a_journal_without_layouts_is_read_and_gets_them_as_it_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let files = FILES.map(|name| BlockFile::open(&directory.path().join(name), true).unwrap());
    let (mut journal, salt) = (Journal { offset: 0, ..Journal::of(files, 0, 9) }, 9);
    write(&mut journal, &[Batch::from([(Vec::new(), None)]), change("a", Some("1")), change("b", Some("2"))]);
    for length in [AHEAD, AHEAD / 2, BLOCK as u64] {
        cut(directory.path(), 0, length);
        let Found { journal, damages, .. } = Journal::read(directory.path(), 1..=1, salt).unwrap();
        assert!(damages.is_empty() && journal.last() == 3, "{damages:?}");
    }
    let mut journal = Journal::read(directory.path(), 1..=1, salt).unwrap().journal;
    for turn in 0..4_u64 {
        let settled = journal.last();
        journal.turn();
        write(&mut journal, &[change("c", Some("3")), change("d", Some("4"))]);
        let (changes, last, damage) = read(directory.path(), settled, salt);
        assert_eq!((changes.len(), last, damage), (2, settled + 2, None), "{turn}");
    }
    for file in [0, 1] {
        let content = fs::read(directory.path().join(FILES[file])).unwrap();
        cut(directory.path(), file, 0);
        assert!(read(directory.path(), journal.last() - 1, salt).2.is_some(), "{file}");
        fs::write(directory.path().join(FILES[file]), content).unwrap();
    }
    // Such an engine again, which writes from the first byte on.
    let settled = journal.last();
    journal.turn();
    (journal.offset, journal.is_bare) = (0, false);
    write(&mut journal, &[change("e", Some("5"))]);
    let (changes, _, damage) = read(directory.path(), settled, salt);
    assert_eq!((changes, damage), (change("e", Some("5")), None));
}
