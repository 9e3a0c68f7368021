//! A folder of files with one row a line.
//!
//! `usage.ndjson` is the one that is written; a file that is full or old becomes `usage-FIRST-LAST.ndjson`, named by the
//! numbers of its rows in the feed. Before a cursor is saved the file is synced, and its length is saved with the cursor.
//! After a crash the file is cut back to that length, so that no row is in it twice and no line is partial.
//!
//! Others may move the file away, or remove it, whenever they want: what is saved is theirs then, and a new one is begun. So
//! before rows are written, and again when they are synced, it is looked whether the file that is open still has its name.
//! Rows that only went to one that was taken away are not saved: they are written again, to the next one. A file is written
//! from the moment on when it is saved that it is ours, and no other is ever changed.
//!
//! Everything here blocks.

use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fs_err::{File, OpenOptions};
use playhouse_billing::export::signature::fingerprint;
use playhouse_protocol::Timestamp;
use thiserror::Error;

use crate::records::{FileMark, LastLine};

/// The file in a folder of files that is written.
pub const ACTIVE: &str = "usage.ndjson";

/// A file that is written and removed to see whether the folder takes files.
const PROBE: &str = ".usage.ndjson.probe";

/// Why files cannot be written.
#[derive(Debug, Error)]
pub(crate) enum FileError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0} is not a folder: move it away, or name another one as the sink's `folder`")]
    NoFolder(PathBuf),
    #[error(
        "{0} holds what this sink has not written: move it away, or name another folder. Nothing was changed"
    )]
    Foreign(PathBuf),
    #[error(
        "{path} has {found} bytes, and {expected} were written: it was changed by others. Move it away, and export what it \
         lost from the ledger"
    )]
    Short { path: PathBuf, found: u64, expected: u64 },
    #[error("{0} was moved away or removed while rows were on the way to it: they are written again")]
    Taken(PathBuf),
}

/// When a file is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rotation {
    pub(crate) bytes: u64,
    pub(crate) millis: u64,
}

/// Writes the files of a sink.
#[derive(Debug)]
pub(crate) struct Files {
    folder: PathBuf,
    rotation: Rotation,
    /// `None` until there is a row for a new one.
    active: Option<Active>,
}

#[derive(Debug)]
struct Active {
    file: File,
    /// What is written, and synced when it becomes part of what is saved.
    mark: FileMark,
    /// Rows were written that may not be in the file that has its name.
    unsynced: bool,
}

impl Active {
    /// Whether the file is the one at `path`, as it was left. What others added to it is cut off.
    fn is_in_place(&self, path: &Path) -> Result<bool, FileError> {
        let there = match fs_err::metadata(path) {
            Ok(there) => there,
            Err(error) if is_absence(&error) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let open = self.file.metadata()?;
        if (there.dev(), there.ino()) != (open.dev(), open.ino()) {
            return Ok(false);
        }
        let (found, expected) = (open.len(), self.mark.length);
        if found < expected {
            return Err(FileError::Short { path: path.to_owned(), found, expected });
        }
        if found > expected {
            self.file.set_len(expected)?;
        }
        Ok(true)
    }
}

impl Files {
    /// Opens the folder, and cuts the active file back to what was saved of it.
    pub(crate) fn open(
        folder: &Path,
        rotation: Rotation,
        saved: Option<FileMark>,
    ) -> Result<Self, FileError> {
        make_folder(folder)?;
        probe(folder)?;
        let mut files = Self { folder: folder.to_owned(), rotation, active: None };
        let path = files.active_path();
        let mut file = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => file,
            // Somebody took it, or the engine ended between its renaming and the next save.
            Err(error) if is_absence(&error) => return Ok(files),
            Err(error) => return Err(error.into()),
        };
        let (found, inode) = { file.metadata().map(|there| (there.len(), there.ino()))? };
        let Some(mark) = saved else {
            // A file of ours is saved before anything is in it.
            return if found == 0 { Ok(files) } else { Err(FileError::Foreign(path)) };
        };
        let is_other = mark.inode.is_some_and(|saved| saved != inode);
        if found == 0 && is_other {
            // Whoever took it made an empty one in its place.
            return Ok(files);
        }
        let expected = mark.length;
        if found < expected {
            return Err(FileError::Short { path, found, expected });
        }
        // One that is another by its number may be a copy of ours.
        if !ends_as(&mut file, &mark)? || is_other && mark.last_line.is_none() {
            return Err(FileError::Foreign(path));
        }
        file.set_len(expected)?;
        file.seek(SeekFrom::Start(expected))?;
        file.sync_all()?;
        let mark = FileMark { inode: Some(inode), ..mark };
        files.active = Some(Active { file, mark, unsynced: false });
        Ok(files)
    }

    /// Whether there is a file that is being written.
    pub(crate) fn has_active(&self) -> bool {
        self.active.is_some()
    }

    fn active_path(&self) -> PathBuf {
        self.folder.join(ACTIVE)
    }

    /// Makes sure that there is a file for rows from `first` on. One that was begun is told: it must be saved before a row is
    /// written. After an error the files must be opened again.
    pub(crate) fn prepare(&mut self, first: u64, now: Timestamp) -> Result<Option<FileMark>, FileError> {
        let path = self.active_path();
        if let Some(active) = &self.active {
            if active.is_in_place(&path)? {
                return Ok(None);
            }
            if active.unsynced {
                return Err(FileError::Taken(path));
            }
            tracing::info!(path = %path.display(), "somebody took the file: a new one is begun");
        }
        self.active = None;
        make_folder(&self.folder)?;
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        let there = file.metadata()?;
        if !there.is_file() || there.len() > 0 {
            return Err(FileError::Foreign(path));
        }
        sync_folder(&self.folder)?;
        let inode = Some(there.ino());
        let mark = FileMark { length: 0, first, last: first, begun: now, inode, last_line: None };
        self.active = Some(Active { file, mark: mark.clone(), unsynced: false });
        Ok(Some(mark))
    }

    /// Writes whole lines, up to the row `last` of the feed, to the file that was prepared. After an error the files must be
    /// opened again.
    pub(crate) fn append(&mut self, lines: &[u8], last: u64) -> Result<(), FileError> {
        let path = self.active_path();
        let Some(active) = &mut self.active else { return Err(FileError::Taken(path)) };
        active.unsynced = true;
        active.file.write_all(lines)?;
        active.mark.length += lines.len() as u64;
        active.mark.last = last;
        active.mark.last_line = last_line(lines);
        Ok(())
    }

    /// Makes what was written durable, and says what is there to be saved. After an error the files must be opened again:
    /// what could not be synced may be lost.
    pub(crate) fn sync(&mut self) -> Result<Option<FileMark>, FileError> {
        let path = self.active_path();
        let Some(active) = &mut self.active else { return Ok(None) };
        active.file.sync_data()?;
        if active.is_in_place(&path)? {
            active.unsynced = false;
            return Ok(Some(active.mark.clone()));
        }
        if active.unsynced {
            return Err(FileError::Taken(path));
        }
        self.active = None;
        Ok(None)
    }

    /// Whether the active file is full or old.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.active.as_ref().is_some_and(|active| {
            active.mark.length >= self.rotation.bytes
                || now.millis_since(active.mark.begun) >= self.rotation.millis
        })
    }

    /// Closes the active file. It must be synced and saved; that it is closed must be saved before the next row.
    pub(crate) fn rotate(&mut self) -> Result<(), FileError> {
        let Some(active) = self.active.take() else { return Ok(()) };
        if !active.is_in_place(&self.active_path())? {
            return Ok(());
        }
        let FileMark { first, last, .. } = active.mark;
        let name = |suffix: &str| self.folder.join(format!("usage-{first:020}-{last:020}{suffix}.ndjson"));
        let mut target = name("");
        // A ledger that was made anew counts from 1 again, and nothing that was exported is overwritten.
        for number in 2.. {
            if !fs_err::exists(&target)? {
                break;
            }
            target = name(&format!("-{number}"));
        }
        fs_err::rename(self.active_path(), &target)?;
        sync_folder(&self.folder)?;
        Ok(())
    }
}

/// Whether nothing has that name: the file or a folder above it is not there.
fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn make_folder(folder: &Path) -> Result<(), FileError> {
    fs_err::create_dir_all(folder).map_err(|error| {
        let other = folder.ancestors().find(|above| above.exists()).filter(|there| !there.is_dir());
        other.map_or(FileError::Io(error), |other| FileError::NoFolder(other.to_owned()))
    })
}

/// Whether files can be written in a folder: at the start, and not with the first row, hours later.
fn probe(folder: &Path) -> Result<(), FileError> {
    let path = folder.join(PROBE);
    let written =
        OpenOptions::new().write(true).create(true).truncate(true).open(&path).and_then(|mut file| {
            file.write_all(b"\n")?;
            file.sync_all()
        });
    let removed = fs_err::remove_file(&path);
    Ok(written.and(removed)?)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn last_line(lines: &[u8]) -> Option<LastLine> {
    let line = lines.split_inclusive(|byte| *byte == b'\n').next_back()?;
    Some(LastLine { bytes: line.len() as u64, digest: fingerprint(&[line]) })
}

/// Whether what was saved of the file is in it: its last line, where that is known.
fn ends_as(file: &mut File, mark: &FileMark) -> io::Result<bool> {
    let Some(last) = &mark.last_line else { return Ok(true) };
    let Some(start) = mark.length.checked_sub(last.bytes) else { return Ok(false) };
    file.seek(SeekFrom::Start(start))?;
    let mut line = Vec::new();
    file.take(last.bytes).read_to_end(&mut line)?;
    Ok(fingerprint(&[&line]) == last.digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);
    const ROTATION: Rotation = Rotation { bytes: 10, millis: 500 };

    fn text(path: &Path) -> String {
        fs_err::read_to_string(path).unwrap()
    }

    #[test]
    fn what_was_not_saved_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::open(folder.path(), ROTATION, None).unwrap();
        assert_eq!(files.prepare(1, NOW).unwrap().unwrap().length, 0);
        files.append(b"1\n", 1).unwrap();
        let mark = files.sync().unwrap().unwrap();
        assert_eq!(files.prepare(2, NOW).unwrap(), None);
        files.append(b"2\n{\"par", 3).unwrap();
        drop(files);
        let mut files = Files::open(folder.path(), ROTATION, Some(mark)).unwrap();
        assert_eq!(text(&folder.path().join(ACTIVE)), "1\n");
        files.append(b"2\n", 2).unwrap();
        assert_eq!(text(&folder.path().join(ACTIVE)), "1\n2\n");
    }

    #[test]
    fn a_folder_that_takes_no_files_is_found_out_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        drop(Files::open(folder.path(), ROTATION, None).unwrap());
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 0, "nothing is left of the try");
        let probe = folder.path().join(PROBE);
        fs_err::create_dir(&probe).unwrap();
        let error = Files::open(folder.path(), ROTATION, None).unwrap_err().to_string();
        assert!(error.contains(&probe.display().to_string()), "{error}");
    }

    #[test]
    fn a_file_that_is_full_or_old_is_closed_under_the_numbers_of_its_rows() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::open(folder.path(), ROTATION, None).unwrap();
        assert!(!files.is_due(NOW), "there is none");
        files.prepare(7, NOW).unwrap();
        files.append(b"1\n", 8).unwrap();
        assert!(!files.is_due(Timestamp::from_millis(1_499)));
        assert!(files.is_due(Timestamp::from_millis(1_500)));
        files.append(b"23456789\n", 12).unwrap();
        assert!(files.is_due(NOW));
        let mark = files.sync().unwrap();
        files.rotate().unwrap();
        let closed = folder.path().join("usage-00000000000000000007-00000000000000000012.ndjson");
        assert_eq!(text(&closed), "1\n23456789\n");
        drop(files);
        // The engine ended before it could save that.
        let mut files = Files::open(folder.path(), ROTATION, mark).unwrap();
        files.prepare(7, NOW).unwrap();
        files.append(b"x\n", 12).unwrap();
        files.sync().unwrap();
        files.rotate().unwrap();
        assert_eq!(text(&closed), "1\n23456789\n", "nothing is overwritten");
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn the_files_of_others_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(ACTIVE);
        fs_err::write(&path, "theirs\n").unwrap();
        let problem = |mark: Option<FileMark>| {
            let error = Files::open(folder.path(), ROTATION, mark).unwrap_err().to_string();
            assert_eq!(text(&path), "theirs\n");
            error
        };
        assert!(problem(None).contains("move it away"));
        let mark = FileMark { length: 70, first: 1, last: 2, begun: NOW, inode: None, last_line: None };
        assert!(problem(Some(mark.clone())).contains("has 7 bytes, and 70 were written"));
        let mark = FileMark { length: 2, inode: Some(0), ..mark };
        assert!(problem(Some(mark.clone())).contains("has not written"), "another file");
        let mark = FileMark { inode: None, last_line: last_line(b"t\n"), ..mark };
        assert!(problem(Some(mark)).contains("has not written"), "another text");
    }

    #[test]
    fn a_copy_of_the_file_is_as_good_as_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::open(folder.path(), ROTATION, None).unwrap();
        files.prepare(1, NOW).unwrap();
        files.append(b"1\n2\n", 2).unwrap();
        let mark = files.sync().unwrap();
        drop(files);
        let (path, copy) = (folder.path().join(ACTIVE), folder.path().join("copy"));
        fs_err::copy(&path, &copy).unwrap();
        fs_err::rename(&copy, &path).unwrap();
        let files = Files::open(folder.path(), ROTATION, mark).unwrap();
        assert!(files.has_active());
        assert_eq!(text(&path), "1\n2\n");
    }

    #[test]
    fn rows_for_a_file_that_was_taken_are_not_saved() {
        let folder = tempfile::tempdir().unwrap();
        let (path, away) = (folder.path().join(ACTIVE), folder.path().join("away"));
        let mut files = Files::open(folder.path(), ROTATION, None).unwrap();
        files.prepare(1, NOW).unwrap();
        files.append(b"1\n", 1).unwrap();
        fs_err::rename(&path, &away).unwrap();
        assert!(matches!(files.sync(), Err(FileError::Taken(_))));
        assert!(matches!(files.prepare(2, NOW), Err(FileError::Taken(_))));
        fs_err::rename(&away, &path).unwrap();
        assert!(files.sync().unwrap().is_some(), "it is there again");
        fs_err::rename(&path, &away).unwrap();
        assert_eq!(files.sync().unwrap(), None, "what was saved is theirs");
        let mark = files.prepare(2, NOW).unwrap().unwrap();
        assert_eq!((mark.length, mark.first), (0, 2));
        files.append(b"2\n", 2).unwrap();
        assert_eq!((text(&path), text(&away)), ("2\n".to_owned(), "1\n".to_owned()));
        files.sync().unwrap();
        fs_err::rename(&path, &away).unwrap();
        fs_err::write(&path, "theirs").unwrap();
        files.rotate().unwrap();
        assert_eq!(text(&path), "theirs", "nothing of others is renamed");
    }
}
