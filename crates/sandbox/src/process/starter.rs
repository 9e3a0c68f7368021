//! Threads that start programs, and that live as long as this process.
//!
//! What holds a command is killed by the kernel when its parent ends, so that it never outlives this process. For the
//! kernel the parent is the thread that started it: one that ends because it has nothing to do would take the command with
//! it. So commands are started by threads that never end. There are as many as commands were ever started at the same
//! time, and not more than a few.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};

use parking_lot::Mutex;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

/// So many commands are started at the same time, and so many threads there are at most.
const MOST: usize = 64;

struct Job {
    command: Command,
    runtime: Handle,
    done: oneshot::Sender<io::Result<Child>>,
    /// Given back when the thread is free again, whoever waits for it or not.
    permit: SemaphorePermit<'static>,
}

/// The threads that wait for a job.
static IDLE: Mutex<Vec<SyncSender<Job>>> = Mutex::new(Vec::new());
static ROOM: Semaphore = Semaphore::const_new(MOST);

/// Starts a program. Needs a tokio runtime with I/O.
///
/// # Errors
/// When it does not start, or no thread can be made for it.
pub(super) async fn start(command: Command) -> io::Result<Child> {
    let permit = ROOM.acquire().await.map_err(io::Error::other)?;
    let (done, started) = oneshot::channel();
    hand_over(Job { command, runtime: Handle::current(), done, permit })?;
    started.await.map_err(io::Error::other)?
}

fn hand_over(job: Job) -> io::Result<()> {
    let idle = IDLE.lock().pop();
    let thread = match idle {
        Some(thread) => thread,
        None => new_thread()?,
    };
    thread.send(job).map_err(|_| io::Error::other("the thread that starts programs is gone"))
}

fn new_thread() -> io::Result<SyncSender<Job>> {
    // One place, so that handing over never waits.
    let (sender, jobs) = sync_channel::<Job>(1);
    let own = sender.clone();
    let work = move || {
        for Job { mut command, runtime, done, permit } in jobs {
            let _entered = runtime.enter();
            let child = command.spawn();
            // In this order: whoever gets the permit finds this thread.
            IDLE.lock().push(own.clone());
            drop(permit);
            // Whoever does not wait any more drops the child, which kills it.
            let _ = done.send(child);
        }
    };
    std::thread::Builder::new().name("start-command".into()).spawn(work)?;
    Ok(sender)
}
