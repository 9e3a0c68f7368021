//! Provider dialects, streaming decode and transport.
//!
//! - [`Transcript`] keeps a conversation serialized in one dialect; a request goes on in the buffer of the last one, so
//!   that it costs what is new.
//! - [`send`] carries a request to an [`Endpoint`] over a [`Transport`]: sockets ([`HttpTransport`]), or a model in the
//!   same process.
//! - [`Credentials`] says with whose key, [`Limiter`] when it may be sent.
//! - [`AnswerStream`] decodes an answer: one batch of [`StreamEvent`]s for each read of the network.
//!
//! Inside, a dialect is one folder (`anthropic`, `openai_chat`, `openai_responses`, `gemini`) that implements one trait:
//! how requests are written, and how events are decoded. `usage` makes exclusive counts of what providers report, each by
//! its [`UsageConvention`]. `sse` cuts the body into events, `form` knows those that differ in their text only, `failure` makes typed errors of what providers say, `media`
//! carries attachments, `call_ids` keeps ids of calls acceptable, `connections` opens as many as HTTP/2 needs, `client` speaks
//! over them, `paced` reads them seldom while much comes, and `hold` keeps a request ready that may not leave yet.
//!
//! Errors are [`ErrorInfo`](playhouse_protocol::ErrorInfo)s: typed, naming the provider and what to do, never a key.
//!
//! ```
//! use playhouse_llm::{DialectKind, Head, ToolChoice, Transcript};
//! use playhouse_protocol::chat::{ChatMessage, UserPart};
//!
//! let head = Head { model: "m".into(), system: "be brief".into(), max_output: 100, ..Head::default() };
//! let mut transcript = Transcript::new(DialectKind::OpenaiChat, &head);
//! let prompt = ChatMessage::User { parts: vec![UserPart::Text { text: "hello".into() }] };
//! transcript.push(&prompt, &|_| None);
//! let request = transcript.request(ToolChoice::Auto);
//! assert!(request.ends_with(br#"{"role":"user","content":"hello"}]}"#));
//! ```

mod adjust;
mod answer;
mod anthropic;
mod call_ids;
mod client;
mod connections;
mod credentials;
mod decode;
mod dialect;
mod driven;
mod endpoint;
mod extent;
mod failure;
mod fetch;
mod form;
mod gemini;
mod halves;
mod head;
mod json;
mod limiter;
mod media;
mod members;
mod openai_chat;
mod openai_responses;
mod paced;
mod repair;
mod search;
mod sse;
mod toolset;
mod transcript;
mod transport;
mod usage;

pub use adjust::{
    Adjustments, Finding, Findings, Learned, Parameter, SentTools, ToolIdentity, refuses_reasoning,
};
pub use answer::{AnswerStream, Limits, send};
pub use connections::{Connections, Http2};
pub use credentials::Credentials;
pub use decode::{Answer, Failure, Removals, StreamEvent};
pub use dialect::DialectKind;
pub use endpoint::{Endpoint, host};
pub use fetch::{fetch, fetch_models};
pub use head::{CallIdForm, ChatFacts, Head, OutputLimitField, Reasoning, ReasoningWords, ToolChoice};
pub use limiter::{Limiter, Limiters, Permit, Quota};
pub use paced::carriers;
pub use repair::{Repair, Repairs};
pub use search::is_search;
pub use toolset::Toolset;
pub use transcript::Transcript;
pub use transport::{HttpRequest, HttpResponse, HttpTransport, Transport, address, check_address};
pub use usage::{UsageConvention, unknown_figures};
