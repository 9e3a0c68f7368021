//! What is configured of the contents that are kept so that changes of commands can be undone.

use std::time::Duration;

use super::document::Value;
use super::keys::KeyName;
use super::reader::{at_least_one, bound_in_megabytes, megabytes};
use super::settings::Settings;

/// Sets a key of the section `snapshots`.
///
/// # Errors
/// Why the value does not do: the end of a sentence that begins with the key.
pub(super) fn set(key: KeyName, value: &Value, settings: &mut Settings) -> Result<(), String> {
    let limits = &mut settings.snapshots;
    match (key, value) {
        (KeyName::SnapshotsFiles, Value::Whole(number)) => {
            limits.files = usize::try_from(at_least_one(*number)?).unwrap_or(usize::MAX);
        }
        (KeyName::SnapshotsScan, Value::Whole(number)) => {
            limits.scan = Duration::from_millis(at_least_one(*number)?.into());
        }
        (KeyName::SnapshotsKept, Value::Whole(number)) => limits.kept = megabytes(*number),
        (KeyName::SnapshotsTotal, Value::Whole(number)) => {
            settings.engine.storage.undo = bound_in_megabytes(*number);
        }
        (KeyName::SnapshotsInclude, Value::List(patterns)) => limits.include.clone_from(patterns),
        _ => return Err("does not belong here".to_owned()),
    }
    Ok(())
}
