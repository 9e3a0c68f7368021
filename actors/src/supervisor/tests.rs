use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::runtime::Builder;
use tokio::sync::mpsc;

use crate::mailbox::RUNTIME_ENDS;

/// Tells why its children ended.
struct Above;

impl Actor for Above {
    type Msg = ();
    type State = mpsc::Sender<String>;
    type Arguments = mpsc::Sender<String>;

    async fn pre_start(
        &self,
        _: ActorRef<()>,
        told: mpsc::Sender<String>,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(told)
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        event: SupervisionEvent,
        told: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorTerminated(_, _, why) = event {
            told.send(why.unwrap_or_default()).await?;
        }
        Ok(())
    }
}

struct Below;

impl Actor for Below {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

/// The words are ractor's: with others the end of a runtime would be a crash again.
#[test]
fn ractor_says_that_a_runtime_ended_an_actor_in_these_words() {
    let runtime = || Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (stays, goes) = (runtime(), runtime());
    let (told, mut tells) = mpsc::channel(2);
    let (above, _) = stays.block_on(Actor::spawn(None, Above, told)).unwrap();
    goes.block_on(Actor::spawn_linked(None, Below, (), above.get_cell())).unwrap();
    drop(goes);
    let why = tells.blocking_recv().unwrap();
    assert_eq!(why, RUNTIME_ENDS);
}
