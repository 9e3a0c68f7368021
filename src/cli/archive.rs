//! `playhouse usage archive`: writing old rows of the ledger away.
//!
//! Rows go to `FILE.part`, page by page: a page leaves the ledger when it is on the disk, and the file gets its name when all
//! are in it. `unfinished.json` in the folder of archives names the one that is under way, so that the next run goes on with
//! it after this one was cut off. What stands in the file and in the ledger then is not written once more, and leaves the
//! ledger: an engine may still be removing it for the command that was killed, so that nothing is ever cut off the file but
//! half a line. So a row is in the ledger, or in one file.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use playhouse_protocol::ledger::{ArchiveQuery, RowId, RowPlace, RowQuery};
use playhouse_protocol::{Day, LedgerRow, Timestamp};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::reach::Reach;
use super::sessions::json;
use super::{Failure, print, say};

/// Entries that leave the ledger at once.
const PAGE: usize = 1_000;

/// Says which archive is under way, in the folder of archives.
const NOTE: &str = "unfinished.json";

/// An archive that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unfinished {
    /// What ended before this day.
    before: Day,
    /// What its file is called when it is finished.
    file: PathBuf,
}

/// Writes rows that ended before this day to a new file: `output`, or one in `folder`.
pub(super) async fn archive(
    reach: &Reach,
    folder: &Path,
    before: Day,
    output: Option<PathBuf>,
) -> Result<(), Failure> {
    let archives = Archives::hold(folder)?;
    let output = output.map(std::path::absolute).transpose()?;
    let mut begun = None;
    if let Some(unfinished) = archives.unfinished()? {
        let is_same =
            unfinished.before == before && output.as_ref().is_none_or(|output| *output == unfinished.file);
        match archives.find(&unfinished)? {
            Some(file) if is_same => {
                say(&format!(
                    "going on with {}, which was cut off after {}",
                    file.path.display(),
                    rows(file.rows)
                ));
                begun = Some(file);
            }
            Some(file) => {
                let path = file.path.clone();
                let count = file.settle(reach, unfinished.before).await?.finish(&archives)?;
                if count > 0 {
                    print(&format!("{}\n", path.display()))?;
                    say(&format!("finished {}, which was cut off: it has {}", path.display(), rows(count)));
                }
            }
            // It had its name when it was cut off, and nobody was told.
            None if is_same => {
                let path = unfinished.file.display();
                print(&format!("{path}\n"))?;
                say(&format!(
                    "{path} was written already, by an archive that was cut off when it was finished"
                ));
                if output.is_some() {
                    return Ok(());
                }
            }
            None => {}
        }
    }
    let place = match (&begun, output) {
        (Some(file), _) => file.path.clone(),
        (None, Some(path)) if path.try_exists()? => {
            let path = path.display();
            return Err(Failure::usage(format!("{path} is there already: name a new file with --output")));
        }
        (None, Some(path)) => path,
        (None, None) => archives.new_name(before)?,
    };
    write(reach, &archives, Unfinished { before, file: place }, begun).await
}

fn rows(count: u64) -> String {
    if count == 1 { "1 row".to_owned() } else { format!("{count} rows") }
}

/// Rows leave the ledger when they are in the file.
async fn write(
    reach: &Reach,
    archives: &Archives,
    under_way: Unfinished,
    mut begun: Option<Growing>,
) -> Result<(), Failure> {
    let before = under_way.before;
    let mut query = ArchiveQuery { before: before.start(), up_to: None, after: 0, limit: PAGE };
    let (mut written, mut kept, mut behind, mut archived) = (0, 0, Vec::new(), None);
    loop {
        let page = reach.archivable(query.clone()).await?;
        if query.after == 0 {
            archived = page.archived_before;
        }
        if !page.rows.is_empty() {
            let file = match &mut begun {
                Some(file) => file,
                None => begun.insert(archives.begin(&under_way)?),
            };
            file.add(&page.rows)?;
        }
        if !page.numbers.is_empty() {
            written += reach.archive(query.before, page.numbers).await?;
        }
        kept += page.kept;
        if page.kept > 0 {
            behind = page.behind;
        }
        match page.next {
            Some(next) => query.after = next,
            None => break,
        }
    }
    let mut told = format!("wrote {} away", rows(written));
    if let Some(file) = begun {
        if kept > 0 {
            file.check_gone(reach).await?;
        }
        let path = file.path.clone();
        let count = file.finish(archives)?;
        if count > 0 {
            print(&format!("{}\n", path.display()))?;
        }
        if count > written {
            told += &format!(": {} with those of before", rows(count));
        }
    }
    say(&told);
    if written == 0 && kept == 0 && archived.is_some_and(|archived: Timestamp| archived >= before.start()) {
        say(&format!("those from before {before} (UTC) were written away already"));
    }
    if kept > 0 {
        let (rows, behind) = (rows(kept), behind.join(", "));
        say(&format!("left {rows} that not every sink has yet: see `playhouse billing status` for {behind}"));
    }
    Ok(())
}

/// The folder of archives, in which nobody else writes rows away as long as this is there.
#[derive(Debug)]
struct Archives {
    folder: PathBuf,
    /// The folder itself, locked.
    _held: fs::File,
}

impl Archives {
    fn hold(folder: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(folder)?;
        let held = fs::File::open(folder)?;
        match flock(held.file(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { folder: folder.to_owned(), _held: held }),
            Err(Errno::WOULDBLOCK) => {
                Err(Failure::failed("another `playhouse usage archive` is at work: wait until it is over"))
            }
            Err(error) => Err(Failure::failed(format!("{} cannot be locked: {error}", folder.display()))),
        }
    }

    fn note(&self) -> PathBuf {
        self.folder.join(NOTE)
    }

    /// The archive that was cut off.
    fn unfinished(&self) -> Result<Option<Unfinished>, Failure> {
        let note = self.note();
        match fs::read(&note) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| {
                Failure::failed(format!("{} cannot be understood: {error}; move it away", note.display()))
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The file of an archive that was cut off. `None` where it is finished.
    fn find(&self, unfinished: &Unfinished) -> Result<Option<Growing>, Failure> {
        let (path, part) = (unfinished.file.clone(), part(&unfinished.file));
        if part.try_exists()? {
            return Growing::resume(path).map(Some);
        }
        if path.try_exists()? {
            self.forget()?;
            return Ok(None);
        }
        Err(Failure::failed(format!(
            "{} is not there, to which rows were written when an archive was cut off: put it back; or, if its rows are \
             kept elsewhere, remove {}",
            part.display(),
            self.note().display()
        )))
    }

    /// A name in this folder that is not taken.
    fn new_name(&self, before: Day) -> Result<PathBuf, Failure> {
        for number in 1_u64.. {
            let more = if number == 1 { String::new() } else { format!("-{number}") };
            let path = self.folder.join(format!("usage-before-{before}{more}.jsonl"));
            if !path.try_exists()? {
                return Ok(std::path::absolute(path)?);
            }
        }
        Err(Failure::failed(format!("{} is full", self.folder.display())))
    }

    /// Makes the file of an archive and notes that it is under way, both durably.
    fn begin(&self, under_way: &Unfinished) -> Result<Growing, Failure> {
        let part = part(&under_way.file);
        let mut options = fs::OpenOptions::new();
        // One that is empty was cut off before it was noted.
        let file = options.append(true).create(true).mode(0o600).open(&part)?;
        if file.metadata()?.len() > 0 {
            return Err(Failure::usage(format!(
                "{} is there, and not from an archive that is known here: move it away, or name another file with --output",
                part.display()
            )));
        }
        file.sync_all()?;
        sync_folder_of(&part)?;
        let new = self.folder.join(format!("{NOTE}.new"));
        let mut note = fs::File::create(&new)?;
        note.write_all(json(under_way)?.as_bytes())?;
        note.sync_all()?;
        fs::rename(&new, self.note())?;
        sync_folder_of(&new)?;
        Ok(Growing { path: under_way.file.clone(), file, rows: 0, last: Vec::new() })
    }

    fn forget(&self) -> Result<(), Failure> {
        fs::remove_file(self.note())?;
        Ok(sync_folder_of(&self.note())?)
    }
}

/// What the file of this name is called before it is finished.
fn part(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".part");
    PathBuf::from(name)
}

/// So that names are there too after a loss of power.
fn sync_folder_of(path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// A file to which rows are written.
#[derive(Debug)]
struct Growing {
    /// What it is called when it is finished.
    path: PathBuf,
    file: fs::File,
    rows: u64,
    /// The last rows that were in it when it was taken up again. All before them have left the ledger.
    last: Vec<LedgerRow>,
}

impl Growing {
    /// Goes on with a file that was cut off. Half a line at its end goes.
    fn resume(path: PathBuf) -> Result<Self, Failure> {
        let part = part(&path);
        let mut reader = BufReader::new(fs::File::open(&part)?);
        let (mut rows, mut end, mut lines) = (0, 0, VecDeque::new());
        loop {
            let mut line = Vec::new();
            let length = reader.read_until(b'\n', &mut line)?;
            if !line.ends_with(b"\n") {
                break;
            }
            if lines.len() == PAGE {
                lines.pop_front();
            }
            lines.push_back(line);
            (rows, end) = (rows + 1, end + length as u64);
        }
        let first = rows - lines.len() as u64 + 1;
        let read = (first..).zip(&lines).map(|(number, line)| {
            serde_json::from_slice(line).map_err(|error| {
                Failure::failed(format!("{}:{number}: this is no row of a ledger: {error}", part.display()))
            })
        });
        let last = read.collect::<Result<_, _>>()?;
        let file = fs::OpenOptions::new().append(true).open(&part)?;
        file.set_len(end)?;
        file.sync_all()?;
        Ok(Self { path, file, rows, last })
    }

    /// Adds rows, a line each, but those that are in it. They are on the disk on return.
    fn add(&mut self, rows: &[LedgerRow]) -> Result<(), Failure> {
        let known: HashSet<&RowId> = self.last.iter().map(|row| &row.id).collect();
        let (mut lines, mut count) = (String::new(), 0);
        for row in rows.iter().filter(|row| !known.contains(&row.id)) {
            lines += &json(row)?;
            lines.push('\n');
            count += 1;
        }
        self.file.write_all(lines.as_bytes())?;
        self.file.sync_data()?;
        self.rows += count;
        Ok(())
    }

    /// Brings the page to its end in whose middle it was cut off.
    async fn settle(mut self, reach: &Reach, before: Day) -> Result<Self, Failure> {
        let mut query = ArchiveQuery { before: before.start(), up_to: None, after: 0, limit: PAGE };
        let known: HashSet<RowId> = self.last.iter().map(|row| row.id.clone()).collect();
        loop {
            let page = reach.archivable(query.clone()).await?;
            if page.rows.iter().any(|row| known.contains(&row.id)) {
                self.add(&page.rows)?;
                reach.archive(query.before, page.numbers).await?;
            } else if !page.rows.is_empty() {
                break;
            }
            match page.next {
                Some(next) => query.after = next,
                None => break,
            }
        }
        self.check_gone(reach).await?;
        Ok(self)
    }

    /// # Errors
    /// The ledger keeps rows that are in it, for a sink that came later.
    async fn check_gone(&self, reach: &Reach) -> Result<(), Failure> {
        for row in self.last.iter().rev() {
            if is_in_ledger(reach, row).await? {
                return Err(Failure::failed(format!(
                    "{} cannot be finished: a sink still needs rows that are in it; run this again when \
                     `playhouse billing status` says that it has them",
                    part(&self.path).display()
                )));
            }
        }
        Ok(())
    }

    /// Gives the file its name; one without rows goes instead. How many it has.
    fn finish(self, archives: &Archives) -> Result<u64, Failure> {
        let part = part(&self.path);
        if self.rows == 0 {
            fs::remove_file(&part)?;
        } else if self.path.try_exists()? {
            let path = self.path.display();
            return Err(Failure::failed(format!(
                "{path} is there already: move it away, and run this once more"
            )));
        } else {
            fs::rename(&part, &self.path)?;
        }
        sync_folder_of(&self.path)?;
        archives.forget()?;
        Ok(self.rows)
    }
}

/// Whether the ledger has this row.
async fn is_in_ledger(reach: &Reach, row: &LedgerRow) -> Result<bool, Failure> {
    // The place right before it, so that not all rows of that millisecond are read.
    let mut id = row.id.0.clone();
    id.pop();
    let mut query = RowQuery {
        tenant: Some(row.tenant.clone()),
        from: Some(row.ended),
        to: Some(Timestamp::from_millis(row.ended.as_millis().saturating_add(1))),
        after: Some(RowPlace { id: RowId(id), ..row.place() }),
        limit: 1,
        ..RowQuery::default()
    };
    loop {
        let page = reach.rows(query.clone()).await?;
        if page.rows.iter().any(|found| found.id == row.id) {
            return Ok(true);
        }
        match page.next {
            Some(next) if next.id < row.id => query.after = Some(next),
            _ => return Ok(false),
        }
    }
}
