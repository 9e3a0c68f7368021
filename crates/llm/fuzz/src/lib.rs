//! Feeds the decoders arbitrary bytes, whole and in arbitrary pieces: both must give the same answer, and neither may
//! panic.
//!
//! One target for each dialect (needs `cargo install cargo-fuzz` and a nightly compiler); for a minute each:
//!
//! ```text
//! cd crates/llm
//! for target in anthropic openai_chat openai_responses gemini; do
//!     mkdir -p fuzz/corpus/$target
//!     cargo +nightly fuzz run $target fuzz/corpus/$target fuzz/seeds/$target -- -max_total_time=60
//! done
//! ```

use std::sync::LazyLock;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, StreamExt};
use playhouse_llm::{
    Answer, DialectKind, Endpoint, HttpRequest, HttpResponse, Limits, StreamEvent, Transport, send,
};
use playhouse_protocol::{AttemptId, ErrorInfo};
use tokio::runtime::Runtime;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime needs no more")
});

/// Gives one answer, in these pieces.
struct Pieces(Vec<Bytes>);

impl Transport for Pieces {
    fn send(&self, _: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, ErrorInfo>> {
        let body = stream::iter(self.0.clone().into_iter().map(Ok)).boxed();
        async move { Ok(HttpResponse { status: 200, headers: Vec::new(), body }) }.boxed()
    }
}

/// Decodes `input` as an answer of `dialect`. Its first byte says in pieces of which size it comes the second time.
///
/// # Panics
///
/// Splitting changed the answer.
pub fn check(dialect: DialectKind, input: &[u8]) {
    let Some((size, stream)) = input.split_first() else { return };
    let whole = decode(dialect, vec![Bytes::copy_from_slice(stream)]);
    let size = usize::from(*size).max(1);
    let pieces = decode(dialect, stream.chunks(size).map(Bytes::copy_from_slice).collect());
    assert_eq!(whole.1.is_ok(), pieces.1.is_ok(), "an answer in pieces of {size} ends otherwise");
    if whole.1.is_ok() {
        assert_eq!(whole, pieces, "an answer in pieces of {size} is another one");
    }
}

/// The pieces of an answer with neighbours of one kind made one, and its end.
fn decode(dialect: DialectKind, pieces: Vec<Bytes>) -> (Vec<StreamEvent>, Result<Answer, ErrorInfo>) {
    let endpoint = Endpoint::new("fuzz", dialect, "http://fuzz.test");
    let attempt = AttemptId::parse("att_00000000000012345678901234").expect("it has the form of an id");
    let transport = Pieces(pieces);
    RUNTIME.block_on(async {
        let sent = send(&transport, &endpoint, "m", attempt, Bytes::new(), Limits::default());
        let mut answer = match sent.await {
            Ok(answer) => answer,
            Err(error) => return (Vec::new(), Err(error)),
        };
        let mut events = Vec::new();
        loop {
            match answer.next(&mut events).await {
                Ok(true) => {}
                Ok(false) => return (merge(events), answer.finish()),
                Err(error) => return (merge(events), Err(error)),
            }
        }
    })
}

fn merge(events: Vec<StreamEvent>) -> Vec<StreamEvent> {
    let mut merged: Vec<StreamEvent> = Vec::new();
    for event in events {
        match (merged.last_mut(), &event) {
            (Some(StreamEvent::Text(text)), StreamEvent::Text(more))
            | (Some(StreamEvent::Reasoning(text)), StreamEvent::Reasoning(more)) => text.push_str(more),
            (
                Some(StreamEvent::CallArguments { call, text }),
                StreamEvent::CallArguments { call: same, text: more },
            ) if call == same => text.push_str(more),
            _ => merged.push(event),
        }
    }
    merged
}
