//! The handle of a database that can be closed and opened again in place.

use std::sync::{PoisonError, RwLock};

use crate::StoreError;

/// An open database, or why it could not be opened again.
pub(crate) struct Handle<D> {
    database: RwLock<Result<D, String>>,
}

impl<D> Handle<D> {
    pub(crate) fn new(database: D) -> Self {
        Self { database: RwLock::new(Ok(database)) }
    }

    /// Does something with the database. It must not come back here: one who waits to open it again would be in between.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&D) -> Result<T, StoreError>) -> Result<T, StoreError> {
        match &*self.database.read().unwrap_or_else(PoisonError::into_inner) {
            Ok(database) => work(database),
            Err(reason) => Err(StoreError::Backend(format!("the database is closed: {reason}"))),
        }
    }

    /// Waits until nobody uses the database, closes it, and puts what `open` makes in its place.
    pub(crate) fn reopen(&self, open: impl FnOnce() -> Result<D, StoreError>) -> Result<(), StoreError> {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        // Gone before it is opened again: two handles would be in each other's way.
        *database = Err("it is being opened again".to_owned());
        match open() {
            Ok(opened) => {
                *database = Ok(opened);
                Ok(())
            }
            Err(error) => {
                *database = Err(error.to_string());
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn it_is_closed_before_it_is_opened_again_and_may_be_tried_again() {
        let database = Arc::new(1);
        let watched = Arc::downgrade(&database);
        let handle = Handle::new(database);
        let error = handle.reopen(|| {
            assert!(watched.upgrade().is_none(), "two are open");
            Err(StoreError::Backend("no space left".to_owned()))
        });
        assert!(error.unwrap_err().to_string().contains("no space left"));
        let error = handle.with(|number| Ok(**number)).unwrap_err().to_string();
        assert!(error.contains("closed") && error.contains("no space left"), "{error}");
        handle.reopen(|| Ok(Arc::new(2))).unwrap();
        assert_eq!(handle.with(|number| Ok(**number)).unwrap(), 2);
    }
}
