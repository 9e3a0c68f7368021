//! A scripted model: it speaks the wire formats of real providers, and says what a script tells it to say.
//!
//! It stands in for a provider in demos, in tests and under load. It knows nothing of the engine that talks to it, and
//! has encoders of its own, so that a mistake in the engine's decoders is not repeated here.
//!
//! - [`Script`], [`Model`], [`Step`]: what is said, as JSON or built in Rust. [`builtin`] models need no script.
//! - [`Dialect`]: the wire formats. Requests are read as strictly as the provider reads them.
//! - [`Fault`]: how an answer goes wrong. In its place: a status, what the provider says no with ([`Rejection`]), HTML. In
//!   it: a cut, a stall or an error at a [`Moment`], or a [`Defect`] of a complete answer.
//! - [`Framing`]: how the bytes are carried: line ends, comments, small and slow writes, gzip, a body without end.
//! - [`Mock`]: answers requests in process, with bodies that stream; [`Mock::serve`] does the same over sockets.
//! - [`Journal`]: what was asked, what was answered, and which usage was reported.
//!
//! # Which step is answered
//!
//! The mock keeps no conversations. A request holds its whole conversation, and that says where it stands: the number
//! of the user's prompts is the turn, and the number of answers since the last prompt is the step. So a thousand
//! sessions can share a script, a retried request gets the same answer, and the same request always gets the same
//! bytes. In detail:
//!
//! - A message with tool results is no prompt; neither is a user message after results that has no text, or whose text
//!   names one of their calls (it brings their images, where results cannot hold them). An assistant message at the very
//!   end is a prefill: the model goes on with it, so it is no answer yet.
//! - Where a format has what a model says as several items (Responses), those without another's between them are one answer.
//! - Where the request forbids calls, a user message at the very end that follows results (or, if the tools are still
//!   shown, another user message) is a reminder, not a prompt.
//! - A step with calls that is asked for by a request which forbids them says its text without the calls, or
//!   [`NO_CALLS_TEXT`] when nothing else is left.
//! - After the last step of a turn, and after the last turn, the answer is the model's closing text.
//!
//! The exceptions are a step with [`Step::fail_first`], for which the mock counts how often the same request came, and
//! [`Item::Times`], which tells the time.
//!
//! # Tokens
//!
//! A token is one event of the stream: a word with the space before it, or a piece of a longer word. The input of a
//! request is a quarter of its bytes. Limits that a request sets (`max_tokens`) are not applied: the script decides.
//!
//! With [`Step::reports`] an answer reports more than counts: calls inside of it, the tier it got, several reports, or any
//! usage object as it is.
//!
//! # Reasoning
//!
//! What a script has as reasoning is always said, asked for or not. So that it can be sent back it comes with a signature
//! (Anthropic), encrypted content (Responses, where `include` asks for it) or a thought signature on the part after it
//! (Gemini). Reasoning that comes back without is refused where the provider refuses it.
//!
//! # Prompt cache
//!
//! With [`Script::prompt_cache`], the longest beginning (in messages) that an earlier request of the same model and format
//! had too is reported as read from the cache. Anthropic keeps what lies before the last `cache_control`, and reports what
//! it writes; the others keep everything. A quarter of the bytes are tokens here too. A script's [`UsageOverride`] comes
//! first.
//!
//! # Rules
//!
//! With [`Mock::with_rules`] the mock refuses what a provider refuses, in the provider's own words. The rules of a model go
//! by its name: `gpt-5` and up (Chat Completions and Responses), `claude-…-4` and up (Anthropic), `gemini-2.5` and up,
//! `deepseek-…` and `kimi-k3` and up (Chat Completions). Other models, also those with a vendor before the name, have no
//! rules but [`Rules::refused_fields`].
//!
//! The mock signs all reasoning of these models itself; what a script has as signature is replaced. A signature tells the
//! model, the text and, where the provider binds reasoning to it, a hash of everything before it in the request that
//! it answered. So a mock needs no state to recognise reasoning that comes back forged, changed or behind a change.
//! [`Mock::rules_report`] counts it, and counts what could have come back and did not.
//!
//! # Example
//!
//! ```
//! use bytes::Bytes;
//! use futures::StreamExt;
//! use mock_llm::{Mock, Model, Script, call, text};
//! use serde_json::json;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let mock = Mock::new(Script::new().model(
//!     "helper",
//!     Model::new()
//!         .step(text("Let me look.").call("read", json!({"filePath": "README.md"})))
//!         .step(text("It is a playhouse.")),
//! ));
//! let request = json!({"model": "helper", "max_tokens": 100, "stream": true,
//!     "tools": [{"name": "read"}], "messages": [{"role": "user", "content": "What is this?"}]});
//! let mut response = mock.respond("/v1/messages", &[], Bytes::from(request.to_string())).await;
//! assert_eq!(response.status, 200);
//! let mut answer = Vec::new();
//! while let Some(bytes) = response.body.next().await {
//!     answer.extend_from_slice(&bytes.unwrap());
//! }
//! assert!(String::from_utf8(answer).unwrap().contains("README.md"));
//! assert_eq!(mock.journal().entries()[0].model.as_deref(), Some("helper"));
//! # });
//! ```

mod answer;
pub mod builtin;
mod cache;
mod conversation;
mod fault;
mod framing;
mod journal;
mod mock;
mod pace;
mod plan;
mod repeats;
mod rules;
mod script;
mod server;
mod tokens;
mod usage;
mod wire;

pub use fault::{Cut, Defect, Fault, Moment, Rejection, RetryAfter};
pub use framing::{Framing, LineEnd};
pub use journal::{Entry, Journal, JournalOptions, Outcome};
pub use mock::{Mock, MockOptions, MockResponse};
pub use plan::NO_CALLS_TEXT;
pub use rules::{RefusalShape, RuleCounts, RuleNote, Rules, RulesReport};
pub use script::{
    Call, DEFAULT_CLOSING_TEXT, Finish, Item, Model, Script, ScriptError, Step, Turn, UsageOverride, call,
    calls, malformed_call, reasoning, refusal, repeat, signed_reasoning, text, tokens,
};
pub use server::{ServeOptions, Server};
pub use usage::{InnerCall, Reports, Told};
pub use wire::Dialect;
