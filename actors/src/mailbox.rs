//! The messages by which actors reach each other, and how they end.
//!
//! Messages are apart from the actors that take them: so a step, a call and a handle can send one to a session or to the
//! supervisor without knowing how those work.

use std::time::Duration;

use playhouse_protocol::CommandError;
use ractor::rpc::CallResult;
use ractor::{ActorRef, RpcReplyPort};

mod session;
mod supervisor;

pub(crate) use session::{ReplyPort, SessionMessage, appends};
pub use supervisor::Stopped;
pub(crate) use supervisor::{FindPort, Found, Live, SupervisorMessage};

/// How long the engine's own actors may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// Why the actor of a session stops that was removed from the store.
pub(crate) const REMOVED: &str = "the session was removed";
/// Why the actor of a session stops that leaves memory until somebody asks for it.
pub(crate) const LEFT: &str = "the session rests";
/// Why the actor of a session stops that could not append, as the store takes no writes.
pub(crate) const HELD_UP: &str = "the store takes no writes";
/// Why the actor of a session or of its work ended whose runtime is being shut down, as ractor says it: nobody aborts an
/// actor's task but its runtime. That is no crash. Others of its actors may run for a moment longer, and must not write that
/// one down.
pub(crate) const RUNTIME_ENDS: &str = "actor_task_cancelled";
/// Why the actor of a session is stopped that was read while the store took no writes.
pub(crate) const UNSURE: &str = "the session is read again";

/// Asks one of the engine's own actors.
pub(crate) async fn ask<M: ractor::Message, T: Send + 'static>(
    actor: &ActorRef<M>,
    message: impl FnOnce(RpcReplyPort<T>) -> M,
) -> Result<T, CommandError> {
    match actor.call(message, Some(ANSWER_WAIT)).await {
        Ok(CallResult::Success(answer)) => Ok(answer),
        Ok(CallResult::Timeout) => {
            Err(CommandError::NotAccepted(format!("the engine did not answer within {ANSWER_WAIT:?}")))
        }
        Ok(CallResult::SenderError) | Err(_) => {
            Err(CommandError::NotAccepted("the engine has stopped".into()))
        }
    }
}
