//! The catalogue of models that was loaded: a file beside the configuration.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use playhouse_catalogue::Catalogue;

use super::error::ConfigError;
use super::operator;
use super::settings::Variables;

/// The name of the file, in the folder of the configuration.
pub const CATALOGUE_FILE: &str = "models.json";

/// Where the catalogue is kept: beside the file `config_flag`, else beside the usual one; `None` for a user without a
/// home.
pub(super) fn locate(config_flag: Option<&Path>, variables: Variables<'_>) -> Option<PathBuf> {
    let location = operator::locate(config_flag, variables)?;
    Some(location.file.with_file_name(CATALOGUE_FILE))
}

/// The catalogue that is kept in `file`, or the built-in one where there is no such file.
pub(super) fn load(file: &Path) -> Result<Catalogue, ConfigError> {
    let bytes = match fs_err::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Catalogue::builtin()),
        Err(error) => return Err(ConfigError::file(file, operator::unreadable(&error))),
    };
    let text = operator::text(file, bytes)?;
    Catalogue::from_kept(&text).map_err(|error| ConfigError::file(file, error.to_string()))
}

/// Keeps `catalogue` in `file`, so that [`Settings::load`](super::Settings::load) finds it. The folder is made if it is
/// not there; whoever reads at the same time sees the old file or the new one, whole.
///
/// # Errors
/// The file cannot be written: the error names it.
pub fn keep_catalogue(file: &Path, catalogue: &Catalogue) -> std::io::Result<()> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    fs_err::create_dir_all(folder)?;
    let named = |error: std::io::Error| {
        std::io::Error::new(error.kind(), format!("{} cannot be written: {error}", file.display()))
    };
    let mut new = tempfile::NamedTempFile::new_in(folder).map_err(named)?;
    new.write_all(catalogue.keep().as_bytes()).map_err(named)?;
    new.as_file().sync_all().map_err(named)?;
    new.persist(file).map_err(|error| named(error.error))?;
    Ok(())
}
