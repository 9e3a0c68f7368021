//! What a data directory remembers of its database beside it: `opened`, `closed` and `salvaged`.
//!
//! A database that lost what was written last, or all of it, looks like one to which that was never written: a copy that is
//! older, a file that was cut, a directory that is gone. So the number of the last opening, which the database holds as well,
//! is written here each time once it is durable there. A database that knows of fewer openings than this is refused.
//!
//! What was lost of what the last opening wrote is not told so. Where that one ended in order it leaves a value of its last round
//! in `closed` (see `witness`), which must be there when the store is opened the next time.
//!
//! The time of the last salvage is in `salvaged` as well as in the database, which may be damaged again.

use std::io::ErrorKind;
use std::path::Path;

use fs_err as fs;
use playhouse_protocol::Timestamp;

use crate::StoreError;
use crate::blobs::sync_folder;
use crate::format::write_beside;
use crate::table::Table;
use crate::witness::Seen;

const FILE: &str = "opened";
const NEW_FILE: &str = "opened.new";
const END: &str = "closed";
const NEW_END: &str = "closed.new";
const SALVAGED: &str = "salvaged";
const NEW_SALVAGED: &str = "salvaged.new";

/// The number of the last opening of the store in `data`; 0 where none ended.
pub(crate) fn read(data: &Path) -> Result<u64, StoreError> {
    let path = data.join(FILE);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        result => result?,
    };
    text.trim_end().parse().map_err(|_| StoreError::Format {
        path,
        found: format!("holds \"{}\"", text.trim_end().escape_debug()),
        known: "there the number of times that the store was opened (without the file, nothing is held against the database)"
            .to_owned(),
    })
}

/// Remembers that the store in `data` was opened for the time `generation`, durably.
pub(crate) fn write(data: &Path, generation: u64) -> Result<(), StoreError> {
    write_beside(data, NEW_FILE, format!("{generation}\n").as_bytes())?;
    fs::rename(data.join(NEW_FILE), data.join(FILE))?;
    sync_folder(data)
}

/// When the store in `data` was salvaged last; `None` where it never was, or that cannot be read.
pub(crate) fn read_salvaged(data: &Path) -> Result<Option<Timestamp>, StoreError> {
    match fs::read(data.join(SALVAGED)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        result => {
            let text = String::from_utf8(result?).ok();
            Ok(text.and_then(|text| text.trim_end().parse().ok()).map(Timestamp::from_millis))
        }
    }
}

/// Remembers when the store in `data` was salvaged, durably.
pub(crate) fn write_salvaged(data: &Path, at: Timestamp) -> Result<(), StoreError> {
    write_beside(data, NEW_SALVAGED, format!("{}\n", at.as_millis()).as_bytes())?;
    fs::rename(data.join(NEW_SALVAGED), data.join(SALVAGED))?;
    sync_folder(data)
}

/// Remembers what of the last round the database of the store in `data` has, at the end of the opening `generation`.
pub(crate) fn write_end(data: &Path, generation: u64, seen: &Seen) -> Result<(), StoreError> {
    write_beside(data, NEW_END, format!("{generation} {seen}\n").as_bytes())?;
    fs::rename(data.join(NEW_END), data.join(END))?;
    sync_folder(data)
}

/// Nothing is held against the next opening of what the last one had in the end.
pub(crate) fn forget_end(data: &Path) -> Result<(), StoreError> {
    match fs::remove_file(data.join(END)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => {
            result?;
            sync_folder(data)
        }
    }
}

/// Refuses a database, in `place`, that lost what it had at the end of the opening `generation`. Where it is not known what that
/// was, as that opening did not end in order, nothing is held against it.
pub(crate) fn check_end(
    data: &Path,
    place: &Path,
    generation: u64,
    table: &dyn Table,
) -> Result<(), StoreError> {
    let path = data.join(END);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        result => result?,
    };
    // One that cannot be read says nothing, and is written again.
    let Some((of, seen)) = text.trim_end().split_once(' ') else { return Ok(()) };
    let Some(seen) = Seen::parse(seen).filter(|_| of.parse() == Ok(generation)) else { return Ok(()) };
    match seen.is_in(table) {
        // Where it cannot be read there is more to say than that.
        Ok(true) | Err(StoreError::Damaged { .. }) => return Ok(()),
        Ok(false) => {}
        Err(error) => return Err(error),
    }
    let found = format!(
        "what was written last is gone from it ({} says what that was): files of it were emptied, cut, or put back from an older \
         copy. To go on with what is there, and without the rest, remove {0}",
        path.display()
    );
    Err(StoreError::Damaged { what: place.display().to_string(), found })
}

/// Refuses a database that knows of `found` openings only, and is in `place`.
pub(crate) fn check(data: &Path, place: &Path, found: u64) -> Result<(), StoreError> {
    let known = read(data)?;
    if found >= known {
        return Ok(());
    }
    let times = |count: u64| if count == 1 { "once".to_owned() } else { format!("{count} times") };
    let is = match found {
        0 => "it is empty".to_owned(),
        found => format!("what it holds is of when the store had been opened {}", times(found)),
    };
    let path = data.join(FILE);
    let found = format!(
        "{is}, and the store was opened {} ({} says so): files of it were lost, emptied, cut, or put back from an older copy. \
         To go on with what is there, and without the rest, remove {1}",
        times(known),
        path.display()
    );
    Err(StoreError::Damaged { what: place.display().to_string(), found })
}
