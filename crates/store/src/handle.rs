//! The handle of a database that can be closed and opened again in place.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use parking_lot::RwLock;

use crate::{StoreError, SuspensionReason};

/// An open database, or why it could not be opened again: whoever wants something of it meanwhile is told as one who writes is.
pub(crate) struct Handle<D> {
    directory: PathBuf,
    database: RwLock<Result<D, SuspensionReason>>,
}

impl<D> Handle<D> {
    /// Opens the database in `directory`.
    pub(crate) fn open(
        directory: &Path,
        open: impl FnOnce() -> Result<D, StoreError>,
    ) -> Result<Self, StoreError> {
        let database = guarded(directory, open)?;
        Ok(Self { directory: directory.to_owned(), database: RwLock::new(Ok(database)) })
    }

    /// Does something with the database. It must not come back here: one who waits to open it again would be in between.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&D) -> Result<T, StoreError>) -> Result<T, StoreError> {
        match &*self.database.read() {
            Ok(database) => guarded(&self.directory, || work(database)),
            Err(reason) => Err(StoreError::Suspended { reason: *reason }),
        }
    }

    /// Waits until nobody uses the database, closes it, and puts what `open` makes in its place.
    pub(crate) fn reopen(&self, open: impl FnOnce() -> Result<D, StoreError>) -> Result<(), StoreError> {
        let mut database = self.database.write();
        // Gone before it is opened again: two handles would be in each other's way.
        close(&self.directory, &mut database);
        match guarded(&self.directory, open) {
            Ok(opened) => {
                *database = Ok(opened);
                Ok(())
            }
            Err(error) => {
                *database = Err(error.as_suspension());
                Err(error)
            }
        }
    }
}

impl<D> Drop for Handle<D> {
    fn drop(&mut self) {
        let database = self.database.get_mut();
        close(&self.directory, database);
    }
}

fn close<D>(directory: &Path, database: &mut Result<D, SuspensionReason>) {
    let database = std::mem::replace(database, Err(SuspensionReason::Failed));
    let closed = guarded(directory, || {
        drop(database);
        Ok(())
    });
    if let Err(error) = closed {
        tracing::error!(%error, "a database could not be closed");
    }
}

/// Does something with a database whose code trusts what is on the disk: it panics where that is not what it wrote.
fn guarded<T>(directory: &Path, work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let found = format!("its backend panicked while it was used ({})", text_of(&*panic));
        Err(StoreError::Damaged { what: directory.display().to_string(), found })
    })
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn handle<D>(database: D) -> Handle<D> {
        Handle::open(Path::new("/data/sled"), || Ok(database)).unwrap()
    }

    #[test]
    fn it_is_closed_before_it_is_opened_again_and_may_be_tried_again() {
        let database = Arc::new(1);
        let watched = Arc::downgrade(&database);
        let handle = handle(database);
        let error = handle.reopen(|| {
            assert!(watched.upgrade().is_none(), "two are open");
            Err(StoreError::Backend("no space left".to_owned()))
        });
        assert!(error.unwrap_err().to_string().contains("no space left"));
        let error = handle.with(|number| Ok(**number)).unwrap_err();
        assert!(matches!(error, StoreError::Suspended { reason: SuspensionReason::Failed }), "{error}");
        let full = || Err(std::io::Error::from(std::io::ErrorKind::StorageFull).into());
        handle.reopen(full).unwrap_err();
        assert_eq!(handle.with(|_| Ok(())).unwrap_err().suspension(), Some(SuspensionReason::Full));
        handle.reopen(|| Ok(Arc::new(2))).unwrap();
        assert_eq!(handle.with(|number| Ok(**number)).unwrap(), 2);
    }

    /// A database that is damaged.
    struct Careless;

    impl Drop for Careless {
        fn drop(&mut self) {
            panic!("a page is missing");
        }
    }

    #[test]
    fn a_panic_of_a_backend_says_that_it_is_damaged() {
        let handle = handle(Careless);
        let error = handle.with(|_| -> Result<(), _> { panic!("page {} is none", 7) }).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("/data/sled is damaged") && text.contains("page 7 is none"), "{text}");
        let error = handle.reopen(|| panic!("nor can it be opened")).unwrap_err().to_string();
        assert!(error.contains("nor can it be opened"), "{error}");
        assert_eq!(handle.with(|_| Ok(())).unwrap_err().suspension(), Some(SuspensionReason::Damaged));
        handle.reopen(|| Ok(Careless)).unwrap();
        drop(handle);
    }
}
