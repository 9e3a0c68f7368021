//! What the store says of itself, and what it gives back.

use std::path::Path;
use std::time::Duration;

use fs_err as fs;
use playhouse::store::{Reclaim, Store, StoreOptions};

use crate::model::{Failure, World};

/// Nothing is wrong in the store, and after a compaction there is no file but of the `blobs` that the logs need.
pub(super) fn check(world: &World, blobs: u64) -> Result<(), Failure> {
    let data = world.data();
    // Nobody else has anything in hand.
    let reclaim = Reclaim { grace: Duration::ZERO, ..Reclaim::default() };
    let options = StoreOptions { reclaim, ..StoreOptions::default() };
    let failed = |what: &str, error: String| Failure::new(format!("the store {what}"), error);
    let store = Store::open_with(&data, &options).map_err(|error| failed("opens", error.to_string()))?;
    let report = store.upkeep.check().map_err(|error| failed("can be checked", error.to_string()))?;
    if !report.problems.is_empty() {
        return Err(failed("finds nothing wrong with itself", format!("{:#?}", report.problems)));
    }
    store.upkeep.reclaim().map_err(|error| failed("can be compacted", error.to_string()))?;
    let after = store.upkeep.check().map_err(|error| failed("can be checked", error.to_string()))?;
    if after != report {
        return Err(failed(
            &format!("holds after a compaction what it held before: {report:?}"),
            format!("{after:?}"),
        ));
    }
    drop(store);
    let files = count_files(&data.join("blobs"));
    if files != blobs {
        return Err(failed(&format!("keeps {blobs} blobs, as many as logs need"), format!("{files} files")));
    }
    let known = ["blobs", "format.json", "lock", "current"];
    for entry in fs::read_dir(&data).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".new") && known.iter().any(|known| name.starts_with(known)) {
            return Err(failed("leaves no unfinished file", name));
        }
    }
    Ok(())
}

fn count_files(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { count_files(&entry.path()) } else { 1 }).sum()
}
