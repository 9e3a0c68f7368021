//! Tasks of one type. What tokio compiles for a type of task is much: boxed, it is compiled once for all of them.

use futures::FutureExt as _;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Runs `work` as a task of this runtime.
#[track_caller]
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(work.boxed())
}

/// Runs `work` as a task of `runtime`.
#[track_caller]
pub(crate) fn spawn_on(runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    runtime.spawn(work.boxed())
}
