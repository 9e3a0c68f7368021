//! Writes a new `models.toml`: `models-update TABLE SOURCE DAY FILE`, where TABLE is litellm's table, SOURCE its name with
//! version, and DAY that of the new file. `scripts/models-update` runs it.

use std::error::Error;

use playhouse_catalogue::generate::{OVERLAY, models_toml};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [table, source, day, file] = arguments.as_slice() else {
        return Err("usage: models-update TABLE SOURCE DAY FILE".into());
    };
    let table = fs_err::read_to_string(table)?;
    fs_err::write(file, models_toml(&table, OVERLAY, source, day.parse()?)?)?;
    Ok(())
}
