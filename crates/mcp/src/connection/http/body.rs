//! The body of an answer as messages: one of JSON, or a stream of events.

use std::collections::VecDeque;

use playhouse_tools::web::{Answer, DoorError};

use super::sse::{Event, Events};
use crate::connection::messages::LONGEST;

pub(super) struct Body {
    /// `None` once it was read whole.
    answer: Option<Answer>,
    pub(super) is_stream: bool,
    pub(super) events: Events,
    ready: VecDeque<Event>,
}

impl Body {
    pub(super) fn new(answer: Answer) -> Self {
        Self::resumed(answer, Events::new())
    }

    /// The body of an answer that continues a stream.
    pub(super) fn resumed(answer: Answer, events: Events) -> Self {
        let is_stream = is_stream(&answer);
        Self { answer: Some(answer), is_stream, events: events.resumed(), ready: VecDeque::new() }
    }

    /// The next message. `None` at the end; what is not whole by then is dropped.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, DoorError> {
        if !self.is_stream {
            return match self.answer.take() {
                Some(answer) => Ok(Some(Event::Data(answer.body(LONGEST).await?))),
                None => Ok(None),
            };
        }
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let Some(answer) = &mut self.answer else { return Ok(None) };
            let Some(chunk) = answer.chunk().await? else { return Ok(None) };
            let ready = &mut self.ready;
            self.events.push(&chunk, |event| ready.push_back(event));
        }
    }
}

pub(super) fn is_stream(answer: &Answer) -> bool {
    let kind = answer.content_type.as_deref().unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("text/event-stream")
}
