//! The catalogue of models: the file beside the configuration that `playhouse models update` writes, and what the
//! configuration says of single models.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use playhouse_catalogue::Catalogue;

use super::error::ConfigError;
use super::models::ConfiguredModels;
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

/// The catalogue of a configuration. While an engine runs it follows the file, so that `playhouse models update` needs no
/// restart; clones share what was read.
#[derive(Clone, Debug)]
pub struct LiveCatalogue(Arc<Followed>);

#[derive(Debug)]
struct Followed {
    /// The file; `None` for a user without a home.
    file: Option<PathBuf>,
    configured: ConfiguredModels,
    read: Mutex<(Option<Stamp>, Catalogue)>,
}

/// Tells a file from the one that takes its place: device, inode, size, and time of the last change in nanoseconds.
type Stamp = (u64, u64, u64, i128);

impl LiveCatalogue {
    /// The catalogue that is kept in `file`, or the built-in one where there is no such file.
    pub(super) fn load(file: Option<PathBuf>) -> Result<Self, ConfigError> {
        let stamp = file.as_deref().and_then(stamp);
        let catalogue = file.as_deref().map_or(Ok(Catalogue::builtin()), load_catalogue)?;
        let configured = ConfiguredModels::default();
        Ok(Self(Arc::new(Followed { file, configured, read: Mutex::new((stamp, catalogue)) })))
    }

    /// Adds what a configuration says of models.
    ///
    /// # Errors
    /// That is wrong.
    pub(super) fn configure(&mut self, configured: ConfiguredModels) -> Result<(), ConfigError> {
        let (stamp, catalogue) = self.0.read.lock().clone();
        let read = Mutex::new((stamp, configured.apply(catalogue)?));
        self.0 = Arc::new(Followed { file: self.0.file.clone(), configured, read });
        Ok(())
    }

    /// The catalogue as it is now. Looks whether the file has changed, and reads it then; one that cannot be used is named in
    /// the log, and what was read before holds.
    pub fn now(&self) -> Catalogue {
        let Followed { file, configured, read } = &*self.0;
        let mut read = read.lock();
        let Some(file) = file else { return read.1.clone() };
        let found = stamp(file);
        if found != read.0 {
            read.0 = found;
            match load_catalogue(file).and_then(|catalogue| configured.apply(catalogue)) {
                Ok(catalogue) => {
                    let models = catalogue.loaded().count();
                    tracing::info!(file = %file.display(), models, "the catalogue of models was read again");
                    read.1 = catalogue;
                }
                Err(error) => tracing::error!(
                    %error,
                    "the catalogue of models changed and cannot be used: the one before holds until it is right"
                ),
            }
        }
        read.1.clone()
    }
}

/// `None` for a file that is not there.
fn stamp(file: &Path) -> Option<Stamp> {
    let found = fs_err::metadata(file).ok()?;
    let changed = i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec());
    Some((found.dev(), found.ino(), found.size(), changed))
}

/// The catalogue that is kept in `file`, or the built-in one where there is no such file.
///
/// # Errors
/// The file cannot be read, or is not what [`keep_catalogue`] wrote.
pub fn load_catalogue(file: &Path) -> Result<Catalogue, ConfigError> {
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
