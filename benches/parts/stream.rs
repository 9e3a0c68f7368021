//! What a token costs on its way: decoded from what a read of the network brings, and through the ring to a subscriber.

use std::hint::black_box;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, StreamExt};
use playhouse::protocol::{AttemptId, ErrorInfo};
use playhouse_actors::parts::RingPart;
use playhouse_llm::{DialectKind, Endpoint, HttpRequest, HttpResponse, Limits, Transport, send};
use serde_json::{Value, json};

use crate::Part;

/// Tokens of an answer.
const TOKENS: usize = 2_000;

/// Gives the same answer to every request, an event with each read.
struct Canned(Vec<Bytes>);

impl Transport for Canned {
    fn send(&self, _: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, ErrorInfo>> {
        // Not all of it is there at once: what is there is decoded as one batch.
        let chunks = stream::iter(self.0.clone()).then(|chunk| async move {
            tokio::task::yield_now().await;
            Ok(chunk)
        });
        let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
        let body = chunks.boxed();
        async move { Ok(HttpResponse { status: 200, headers, body }) }.boxed()
    }
}

/// The events around the tokens, and the one of a token.
fn events(dialect: DialectKind, word: &str, number: usize) -> (Vec<Value>, Value, Vec<Value>) {
    match dialect {
        DialectKind::Anthropic => (
            vec![
                json!({"type": "message_start", "message": {}}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}),
            ],
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}}),
            vec![
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
                json!({"type": "message_stop"}),
            ],
        ),
        DialectKind::OpenaiChat => {
            let chunk = |delta: Value, reason: Option<&str>| {
                json!({
                    "id": "chatcmpl-7", "object": "chat.completion.chunk", "created": 1_800_000_000, "model": "m",
                    "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
                })
            };
            (vec![], chunk(json!({"content": word}), None), vec![chunk(json!({}), Some("stop"))])
        }
        DialectKind::OpenaiResponses => {
            let item = |kind: &str| json!({"type": kind, "output_index": 0, "item": {"type": "message"}});
            (
                vec![item("response.output_item.added")],
                json!({
                    "type": "response.output_text.delta", "sequence_number": number, "item_id": "msg_7",
                    "output_index": 0, "content_index": 0, "delta": word,
                }),
                vec![
                    item("response.output_item.done"),
                    json!({"type": "response.completed", "response": {}}),
                ],
            )
        }
        DialectKind::Gemini => (
            vec![],
            json!({"candidates": [{"content": {"parts": [{"text": word}], "role": "model"}, "index": 0}]}),
            vec![json!({"candidates": [{"finishReason": "STOP"}]})],
        ),
    }
}

/// The reads that bring an answer.
fn answer(dialect: DialectKind) -> Vec<Bytes> {
    let named = matches!(dialect, DialectKind::Anthropic | DialectKind::OpenaiResponses);
    let frame = |event: &Value| {
        Bytes::from(match event["type"].as_str() {
            Some(name) if named => format!("event: {name}\ndata: {event}\n\n"),
            _ => format!("data: {event}\n\n"),
        })
    };
    let (before, _, after) = events(dialect, "", 0);
    let token = |number: usize| frame(&events(dialect, &format!("word{number} "), number).1);
    before.iter().map(frame).chain((0..TOKENS).map(token)).chain(after.iter().map(frame)).collect()
}

async fn decode(dialect: DialectKind, transport: &Canned) {
    let endpoint = Endpoint::new("bench", dialect, "http://bench.test");
    let attempt = AttemptId::parse("att_00000000000012345678901234").expect("it is an id");
    let sent = send(transport, &endpoint, "m", attempt, Bytes::new(), Limits::default()).await;
    let mut answer = sent.expect("it is an answer");
    let (mut pieces, mut reads) = (Vec::new(), 0);
    while answer.next(&mut pieces).await.expect("it is decoded") {
        reads += usize::from(!pieces.is_empty());
        pieces.clear();
    }
    answer.finish().expect("it is whole");
    assert!(reads >= TOKENS, "a token with each read, not {reads}");
}

fn decoding(dialect: DialectKind) -> Part {
    let transport = Canned(answer(dialect));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    Part::new(TOKENS, "token", move || runtime.block_on(decode(dialect, &transport)))
}

pub(crate) fn anthropic() -> Part {
    decoding(DialectKind::Anthropic)
}

pub(crate) fn openai_chat() -> Part {
    decoding(DialectKind::OpenaiChat)
}

pub(crate) fn openai_responses() -> Part {
    decoding(DialectKind::OpenaiResponses)
}

pub(crate) fn gemini() -> Part {
    decoding(DialectKind::Gemini)
}

pub(crate) fn ring() -> Part {
    let mut ring = RingPart::default();
    Part::new(TOKENS, "token", move || {
        for _ in 0..TOKENS {
            assert!(black_box(ring.piece("token ")) > 0);
        }
    })
}
