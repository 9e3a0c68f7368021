//! Which pieces of an answer are batched and which are sent at once. The tests set the time since the last event, so that they
//! depend on no clock.

use bytes::Bytes;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::StreamExt as _;
use playhouse_llm::{DialectKind, Endpoint, HttpRequest, HttpResponse, Limits, Transport};
use playhouse_protocol::event::Provisional;
use playhouse_protocol::{EventBody, IdGenerator, Seq, SessionId, Timestamp};
use std::sync::Mutex;

use super::*;
use crate::events::ring::Next;

/// Answers with what is sent to it.
struct Piecewise(Mutex<Option<futures::channel::mpsc::UnboundedReceiver<Bytes>>>);

impl Transport for Piecewise {
    fn send(&self, _: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, ErrorInfo>> {
        let pieces = self.0.lock().unwrap().take().unwrap();
        let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
        async move { Ok(HttpResponse { status: 200, headers, body: pieces.map(Ok).boxed() }) }.boxed()
    }
}

fn content(text: &str) -> Bytes {
    format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n").into()
}

fn end() -> Bytes {
    let reason = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    Bytes::from(reason)
}

fn call() -> Bytes {
    let call = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"read","arguments":"{"}}]}}]}"#;
    format!("data: {call}\n\n").into()
}

struct Scene {
    ring: Ring,
    ids: Ids,
    of: (MessageId, AttemptId),
    pace: Pace,
    stream: AnswerStream,
    /// Where pieces are put.
    pieces: UnboundedSender<Bytes>,
    /// What was looked at.
    seen: u64,
}

impl Scene {
    /// An answer beside so many others.
    async fn beside(others: usize) -> (Self, Vec<Coming>) {
        let (pieces, received) = unbounded();
        let mut ids = IdGenerator::new(|bytes| bytes.fill(7));
        let now = Timestamp::from_millis(1);
        let session: SessionId = ids.next(now);
        let of: (MessageId, AttemptId) = (ids.next(now), ids.next(now));
        let transport = Piecewise(Mutex::new(Some(received)));
        let endpoint = Endpoint::new("test", DialectKind::OpenaiChat, "http://a.test/v1");
        let sent =
            playhouse_llm::send(&transport, &endpoint, "m", of.1, Bytes::new(), Limits::default()).await;
        let ring = Ring::new(session, 1, 1 << 20, Seq(4));
        let (ids, pace) = (Ids::after(now), Pace::new(2));
        let others = (0..others).map(|_| pace.begin()).collect();
        (Self { ring, ids, of, pace, stream: sent.unwrap(), pieces, seen: 0 }, others)
    }

    /// The texts of the events since this was called last; `|` for a part that began.
    fn told(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        while let Next::Event(event) = self.ring.at(self.seen) {
            self.seen += 1;
            match &event.event().body {
                EventBody::Provisional(Provisional::PartDelta { text, .. }) => told.push(text.clone()),
                _ => told.push("|".to_owned()),
            }
        }
        told
    }
}

/// Has the last event be so new, or so old, that what comes next is held, or not, beside many answers.
fn told_is_new(telling: &mut Telling<'_>, is_new: bool) {
    let now = Instant::now();
    let told = if is_new { now + Duration::from_secs(3_600) } else { now - LONGEST };
    telling.told = telling.told.map(|_| told);
}

/// Reads to the end while the pieces come, each soon after the last event or not. Gives the texts of the events.
async fn read_all(others: usize, pieces: Vec<(bool, Bytes)>) -> Vec<String> {
    let (mut scene, _others) = Scene::beside(others).await;
    let mut opaque = HashMap::new();
    let mut telling = Telling::new(scene.of, &scene.ids, &scene.ring, &scene.pace, &mut opaque);
    let mut more = true;
    for (is_soon, piece) in pieces {
        assert!(more);
        told_is_new(&mut telling, is_soon);
        scene.pieces.unbounded_send(piece).unwrap();
        more = telling.read(&mut scene.stream).await.unwrap();
    }
    assert!(!more);
    drop(telling);
    scene.stream.finish().unwrap();
    scene.told()
}

/// Ten pieces and the end. Of two between two events the first is held, if others come.
fn ten() -> Vec<(bool, Bytes)> {
    let mut pieces: Vec<_> = (0..10).map(|number| (number % 2 == 1, content(&number.to_string()))).collect();
    pieces.push((true, end()));
    pieces
}

#[tokio::test]
async fn few_answers_are_told_piece_by_piece() {
    let told = read_all(10, ten()).await;
    assert_eq!(told, ["|", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
}

#[tokio::test]
async fn pieces_of_many_answers_are_told_two_by_two_and_the_end_at_once() {
    let told = read_all(600, ten()).await;
    assert_eq!(told, ["|", "0", "12", "34", "56", "78", "9"]);
}

#[tokio::test]
async fn a_part_that_begins_is_told_at_once_behind_what_was_held() {
    let (mut scene, _others) = Scene::beside(600).await;
    let mut opaque = HashMap::new();
    let mut telling = Telling::new(scene.of, &scene.ids, &scene.ring, &scene.pace, &mut opaque);
    for (piece, held) in [(content("a"), 0), (content("b"), 1), (content("c"), 1), (call(), 0)] {
        told_is_new(&mut telling, true);
        scene.pieces.unbounded_send(piece).unwrap();
        assert!(telling.read(&mut scene.stream).await.unwrap());
        assert_eq!(telling.held.len(), held);
    }
    drop(telling);
    assert_eq!(scene.told(), ["|", "a", "bc", "|", "{"]);
}

#[tokio::test]
async fn pieces_that_came_together_are_told_together() {
    let (mut scene, _others) = Scene::beside(600).await;
    let mut opaque = HashMap::new();
    for piece in [content("a"), content("b"), content("c"), call()] {
        scene.pieces.unbounded_send(piece).unwrap();
    }
    let mut telling = Telling::new(scene.of, &scene.ids, &scene.ring, &scene.pace, &mut opaque);
    assert!(telling.read(&mut scene.stream).await.unwrap());
    assert!(telling.held.is_empty());
    drop(telling);
    assert_eq!(scene.told(), ["|", "abc", "|", "{"]);
}

#[tokio::test]
async fn what_is_held_is_told_when_nothing_follows_and_when_the_answer_is_given_up() {
    let (mut scene, _others) = Scene::beside(600).await;
    let mut opaque = HashMap::new();
    let mut telling = Telling::new(scene.of, &scene.ids, &scene.ring, &scene.pace, &mut opaque);
    let began = Instant::now();
    for piece in ["a", "b"] {
        told_is_new(&mut telling, true);
        scene.pieces.unbounded_send(content(piece)).unwrap();
        assert!(telling.read(&mut scene.stream).await.unwrap());
    }
    assert_eq!(telling.held, [StreamEvent::Text("b".to_owned())]);
    let followed = tokio::time::timeout(Duration::from_secs(30), telling.read(&mut scene.stream)).await;
    assert!(followed.expect("the event is sent").unwrap());
    assert!(telling.held.is_empty());
    assert!(began.elapsed() >= LONGEST * STALLED);
    told_is_new(&mut telling, true);
    scene.pieces.unbounded_send(content("c")).unwrap();
    assert!(telling.read(&mut scene.stream).await.unwrap());
    scene.pieces.unbounded_send(content("d")).unwrap();
    assert!(telling.read(&mut scene.stream).now_or_never().is_some());
    assert_eq!(telling.held.len(), 1);
    drop(telling);
    assert_eq!(scene.told(), ["|", "a", "b", "cd"]);
}

#[tokio::test]
async fn large_pieces_are_told_at_once() {
    let large = "x".repeat(LARGE);
    let pieces = [content("a"), content(&large), content("b"), end()].map(|piece| (true, piece));
    assert_eq!(read_all(600, pieces.into()).await, ["|", "a", &large, "b"]);
}

#[test]
fn the_more_answers_come_the_longer_pieces_are_held_up_to_a_limit() {
    let pace = Pace::new(2);
    let coming = pace.begin();
    let beside = |others: usize| {
        let _others: Vec<_> = (0..others).map(|_| pace.begin()).collect();
        coming.between()
    };
    assert_eq!([beside(0), beside(49)], [Duration::ZERO; 2]);
    assert_eq!(beside(149), Duration::from_millis(10));
    assert_eq!(beside(2_000), LONGEST);
    assert_eq!(beside(0), Duration::ZERO, "those that ended count no more");
    let wide = Pace::new(16);
    let _others: Vec<_> = (0..400).map(|_| wide.begin()).collect();
    assert_eq!(wide.begin().between(), Duration::from_nanos(12_500), "one beyond 400, shared by 16");
}
