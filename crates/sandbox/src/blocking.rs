//! Work that may block, on threads of the runtime.

use std::panic::resume_unwind;

use tokio::sync::oneshot;
use tokio::task::JoinError;

/// Runs `work` on a thread where it may block, and gives back its result. A panic in it goes on in the caller.
///
/// If the runtime is shut down before the work begins, this never ends: the runtime drops the tasks that wait for it next, and
/// none of them takes the shutdown for a failure of the work.
pub async fn blocking<T, F>(work: F) -> T
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    match try_blocking(work).await {
        Ok(result) => result,
        Err(error) => resume_unwind(error.into_panic()),
    }
}

/// [`blocking`], where a panic in the work is an error.
///
/// # Errors
/// The work panicked.
pub async fn try_blocking<T, F>(work: F) -> Result<T, JoinError>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let (told, mut result) = oneshot::channel();
    carry(Box::new(move || drop(told.send(work())))).await?;
    let Ok(result) = result.try_recv() else { unreachable!("the work tells its result before it ends") };
    Ok(result)
}

/// Work of one type, whatever its result: what tokio compiles for a type of work is much, and is compiled once.
async fn carry(work: Box<dyn FnOnce() + Send>) -> Result<(), JoinError> {
    match tokio::task::spawn_blocking(work).await {
        Err(error) if error.is_cancelled() => std::future::pending().await,
        result => result,
    }
}
