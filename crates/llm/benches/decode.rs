//! How fast answers are decoded: `cargo bench -p playhouse-llm`.
//!
//! Prints bytes a second for streams of events of 100 B, 64 KB and 8 MB, read 16 KB at a time, from the body of an answer
//! to its pieces. The figures must be of one order of magnitude: a reader that scans again what it holds is a hundred times
//! slower with large events. Run without `--bench` (as `cargo test --benches` does) each case runs once and small.

#![allow(clippy::print_stdout, reason = "the figures are what it is for")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot run stops")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, StreamExt};
use playhouse_llm::{DialectKind, Endpoint, HttpRequest, HttpResponse, Limits, Transport, send};
use playhouse_protocol::{AttemptId, ErrorInfo};
use serde_json::json;

/// What one read of a socket brings, in bytes.
const READ: usize = 16 << 10;

/// Gives the same answer to every request.
struct Canned(Bytes);

impl Transport for Canned {
    fn send(&self, _: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, ErrorInfo>> {
        let mut rest = self.0.clone();
        let chunks =
            std::iter::from_fn(move || (!rest.is_empty()).then(|| Ok(rest.split_to(rest.len().min(READ)))));
        let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
        let body = stream::iter(chunks).boxed();
        async move { Ok(HttpResponse { status: 200, headers, body }) }.boxed()
    }
}

/// The events around so many texts of this size.
fn answer(dialect: DialectKind, size: usize, count: usize) -> Bytes {
    let words = "word ".repeat(size.div_ceil(5));
    let (before, event, after): (Vec<serde_json::Value>, _, Vec<serde_json::Value>) = match dialect {
        DialectKind::Anthropic => (
            vec![
                json!({"type": "message_start", "message": {}}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}),
            ],
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": words}}),
            vec![
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
                json!({"type": "message_stop"}),
            ],
        ),
        DialectKind::OpenaiChat => (
            vec![],
            json!({"choices": [{"index": 0, "delta": {"content": words}}]}),
            vec![json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})],
        ),
        DialectKind::OpenaiResponses => (
            vec![
                json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}}),
            ],
            json!({"type": "response.output_text.delta", "output_index": 0, "delta": words}),
            vec![
                json!({"type": "response.output_item.done", "output_index": 0, "item": {"type": "message"}}),
                json!({"type": "response.completed", "response": {}}),
            ],
        ),
        DialectKind::Gemini => (
            vec![],
            json!({"candidates": [{"content": {"parts": [{"text": words}]}}]}),
            vec![json!({"candidates": [{"finishReason": "STOP"}]})],
        ),
    };
    let named = matches!(dialect, DialectKind::Anthropic | DialectKind::OpenaiResponses);
    let frame = |event: &serde_json::Value| match event["type"].as_str() {
        Some(name) if named => format!("event: {name}\ndata: {event}\n\n"),
        _ => format!("data: {event}\n\n"),
    };
    let mut stream: String = before.iter().map(frame).collect();
    stream += &frame(&event).repeat(count);
    stream.extend(after.iter().map(frame));
    stream.into()
}

async fn decode(dialect: DialectKind, transport: &Canned) {
    let endpoint = Endpoint::new("bench", dialect, "http://bench.test");
    let attempt = AttemptId::parse("att_00000000000012345678901234").unwrap();
    let mut answer = send(transport, &endpoint, "m", attempt, Bytes::new(), Limits::default()).await.unwrap();
    let mut pieces = Vec::new();
    while answer.next(&mut pieces).await.unwrap() {
        pieces.clear();
    }
    answer.finish().unwrap();
}

fn main() {
    let measured = std::env::args().any(|argument| argument == "--bench");
    let (volume, time) = if measured { (16 << 20, Duration::from_secs(1)) } else { (0, Duration::ZERO) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    println!("{:<18}{:>12}{:>12}{:>12}", "bytes a second", "100 B", "64 KB", "8 MB");
    for dialect in
        [DialectKind::Anthropic, DialectKind::OpenaiChat, DialectKind::OpenaiResponses, DialectKind::Gemini]
    {
        let name = serde_json::to_value(dialect).unwrap();
        print!("{:<18}", name.as_str().unwrap());
        for size in [100, 64 << 10, 8 << 20] {
            let transport = Canned(answer(dialect, size, (volume / size).max(1)));
            let begin = Instant::now();
            let mut bytes = 0;
            while bytes == 0 || begin.elapsed() < time {
                runtime.block_on(decode(dialect, &transport));
                bytes += transport.0.len();
            }
            let rate = bytes as f64 / begin.elapsed().as_secs_f64() / 1e6;
            print!("{:>12}", format!("{rate:.0} MB/s"));
        }
        println!();
    }
}
