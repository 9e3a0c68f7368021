//! Events: durable ones without a gap, provisional ones that add up, subscribers that come late or fall behind.

use std::collections::HashMap;
use std::sync::Arc;

use mock_llm::{Fault, Model, Script, call, text, tokens};
use playhouse_actors::Subscription;
use playhouse_protocol::event::{OpenPartKind, Provisional};
use playhouse_protocol::id::PartId;
use playhouse_protocol::record::{Record, StepPart};
use playhouse_protocol::{EventBody, Prompt, Seq};
use playhouse_store::Store;
use serde_json::json;

use crate::support::{Stage, until};

/// What a client knows after its events, and checks on the way.
#[derive(Default)]
struct Client {
    durable: Vec<Seq>,
    parts: HashMap<PartId, String>,
    finished: HashMap<PartId, String>,
    resyncs: usize,
    ended: bool,
}

impl Client {
    async fn read(events: &mut Subscription) -> Self {
        let mut client = Self::default();
        while !client.ended {
            let event = events.next().await.unwrap().expect("the stream goes on");
            let event = event.event();
            match &event.body {
                EventBody::Durable(record) => {
                    client.durable.push(event.id.seq);
                    match record.as_ref() {
                        Record::StepFinished(finished) => {
                            for part in &finished.parts {
                                if let StepPart::Text { id, text, .. } = part {
                                    client.finished.insert(*id, text.clone());
                                }
                            }
                        }
                        Record::TurnEnded(_) => client.ended = true,
                        _ => {}
                    }
                }
                EventBody::Provisional(piece) => client.piece(piece),
            }
        }
        client
    }

    fn piece(&mut self, piece: &Provisional) {
        match piece {
            Provisional::PartStarted { part, .. } => {
                assert!(self.parts.insert(*part, String::new()).is_none(), "announced once");
            }
            Provisional::PartSnapshot { part, text, .. } => {
                self.parts.insert(*part, text.clone());
            }
            Provisional::PartDelta { part, offset, text } => {
                let known = self.parts.get_mut(part).expect("announced before its first delta");
                assert_eq!(known.len() as u64, *offset, "pieces follow each other");
                known.push_str(text);
            }
            Provisional::Resync { .. } => {
                self.resyncs += 1;
                self.parts.clear();
            }
            Provisional::CallOutput { .. }
            | Provisional::StepRetry { .. }
            | Provisional::AttemptWaiting { .. }
            | Provisional::DescendantRequest { .. }
            | Provisional::FileChanged(_)
            | Provisional::SessionParked { .. } => {}
        }
    }
}

fn gapless(durable: &[Seq]) -> bool {
    durable.windows(2).all(|pair| pair[1] == pair[0].next())
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_add_up_to_the_finished_parts() {
    let script = Script::new().model(
        "m",
        Model::new()
            .step(tokens(300).call("probe", json!({"mode": "free"})))
            .step(text("Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.")),
    );
    let stage = Stage::new(script).await;
    let session = stage.session("m").await;
    let mut events = session.events(Some(Seq::START)).await.unwrap();
    session.prompt(Prompt::text("go")).await.unwrap();
    let client = Client::read(&mut events).await;
    assert_eq!(client.durable[0], Seq(1));
    assert!(gapless(&client.durable), "{:?}", client.durable);
    assert_eq!(client.finished.len(), 2);
    for (part, text) in &client.finished {
        assert_eq!(client.parts.get(part), Some(text));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_subscriber_gets_the_log_and_the_open_part() {
    let step = text("one two three four five").fault(Fault::stall(5));
    let stage = Stage::new(Script::new().model("m", Model::new().step(step))).await;
    let session = stage.session("m").await;
    let mut early = session.events(None).await.unwrap();
    session.prompt(Prompt::text("go")).await.unwrap();
    let mut text = String::new();
    while text.is_empty() {
        let event = early.next().await.unwrap().unwrap();
        if let EventBody::Provisional(Provisional::PartDelta { text: piece, .. }) = &event.event().body {
            text.push_str(piece);
        }
    }
    let mut late = session.events(Some(Seq::START)).await.unwrap();
    let mut durable = Vec::new();
    loop {
        let event = late.next().await.unwrap().unwrap();
        match &event.event().body {
            EventBody::Durable(_) => durable.push(event.event().id.seq),
            EventBody::Provisional(Provisional::PartSnapshot {
                kind: OpenPartKind::Text, text: all, ..
            }) => {
                assert!(all.starts_with(&text), "{all} / {text}");
                break;
            }
            EventBody::Provisional(other) => panic!("{other:?} before the snapshot"),
        }
    }
    assert_eq!(durable.first(), Some(&Seq(1)));
    assert!(gapless(&durable));
    session.abort().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_that_falls_behind_is_told_and_goes_on_from_the_log() {
    let step = || tokens(2_000).call("probe", json!({"mode": "free"}));
    let script = Script::new().model("m", Model::new().step(step()).step(step()).step(text("the end")));
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let stage = Stage::on(Store::memory().unwrap(), folder, script, 2_000).await;
    let session = stage.session("m").await;
    let mut slow = session.events(Some(Seq::START)).await.unwrap();
    session.run(Prompt::text("go")).await.unwrap();
    let client = Client::read(&mut slow).await;
    assert!(client.resyncs > 0, "a ring of 2,000 bytes cannot hold all");
    assert_eq!(client.durable[0], Seq(1));
    assert!(gapless(&client.durable), "{:?}", client.durable);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_serialized_once_for_all_subscribers() {
    let stage = Stage::new(Script::new()).await;
    let session = stage.session("echo").await;
    let mut one = session.events(None).await.unwrap();
    let mut two = session.events(None).await.unwrap();
    session.run(Prompt::text("hello")).await.unwrap();
    let (first, second) = (one.next().await.unwrap().unwrap(), two.next().await.unwrap().unwrap());
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!(first.json().as_ptr(), second.json().as_ptr());
    let back: playhouse_protocol::Event = serde_json::from_slice(first.json()).unwrap();
    assert_eq!(&back, first.event());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_output_of_a_running_call_is_live() {
    let script = Script::new()
        .model("m", Model::new().step(call("probe", json!({"mode": "wait"}))).step(text("Done.")));
    let stage = Stage::new(script).await;
    let session = stage.session("m").await;
    let mut events = session.events(None).await.unwrap();
    session.prompt(Prompt::text("go")).await.unwrap();
    loop {
        let event = events.next().await.unwrap().unwrap();
        if let EventBody::Provisional(Provisional::CallOutput { offset, text, .. }) = &event.event().body {
            assert_eq!((*offset, text.as_str()), (0, "waiting…"));
            break;
        }
    }
    stage.probe.release(1);
    until(&mut events, |record| matches!(record, Record::TurnEnded(_))).await;
}
