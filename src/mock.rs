//! The scripted model in the same process: the provider `mock`. And those models of it that make calls by hand.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use mock_llm::Mock;
use parking_lot::Mutex;
use playhouse_catalogue::{Modalities, ModelFacts};
use playhouse_llm::{DialectKind, Endpoint, HttpRequest, HttpResponse, Transport};
use playhouse_protocol::capability::RequestRules;
use playhouse_protocol::operator::ScriptedCall;
use playhouse_protocol::{ErrorCode, ErrorInfo, PriceList, Prices};
use rust_decimal::Decimal;
use secrecy::ExposeSecret as _;
use serde_json::Value;

/// The provider's name.
pub(crate) const PROVIDER: &str = "mock";

/// Carries requests to a [`Mock`] without sockets.
pub(crate) struct MockTransport(pub(crate) Arc<Mock>);

impl Transport for MockTransport {
    fn send(&self, request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, ErrorInfo>> {
        let mock = Arc::clone(&self.0);
        async move {
            let HttpRequest { url, headers, body, .. } = request;
            let path = url.strip_prefix(BASE_URL).unwrap_or(&url).to_owned();
            let headers: Vec<(String, String)> = headers
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.expose_secret().to_owned()))
                .collect();
            let response = mock.respond(&path, &headers, body).await;
            let body = response
                .body
                .map(|chunk| chunk.map_err(|error| ErrorInfo::new(ErrorCode::StreamCut, error.to_string())));
            Ok(HttpResponse { status: response.status, headers: response.headers, body: body.boxed() })
        }
        .boxed()
    }
}

/// How the names of models begin that make calls by hand.
pub(crate) const BY_HAND: &str = "by-hand-";

/// Models that make calls by hand which are kept: the oldest make room. What is forgotten says its closing text.
const MOST_BY_HAND: usize = 256;

/// Models that make calls by hand.
#[derive(Default)]
pub(crate) struct ByHand(Mutex<VecDeque<(String, Arc<MockTransport>)>>);

impl ByHand {
    /// Adds one of this name that makes these calls, one a step.
    pub(crate) fn add(&self, name: &str, calls: &[ScriptedCall]) {
        let model = calls.iter().fold(mock_llm::Model::new(), |model, call| {
            model.step(mock_llm::call(call.tool.clone(), Value::Object(call.input.clone())))
        });
        let mock = Mock::new(mock_llm::Script::new().model(name, model));
        let mut models = self.0.lock();
        if models.len() >= MOST_BY_HAND {
            models.pop_front();
        }
        models.push_back((name.to_owned(), Arc::new(MockTransport(Arc::new(mock)))));
    }

    /// The one of this name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<MockTransport>> {
        let models = self.0.lock();
        models.iter().find(|(known, _)| known == name).map(|(_, transport)| Arc::clone(transport))
    }
}

const BASE_URL: &str = "mock:";

/// The endpoint of the scripted model.
pub(crate) fn endpoint() -> Endpoint {
    Endpoint::new(PROVIDER, DialectKind::Anthropic, BASE_URL)
}

/// The same made-up facts for every scripted model: 200,000 tokens of context, $1 and $5 per million.
pub(crate) fn facts() -> ModelFacts {
    let dollars = |cents: i64| Some(Decimal::new(cents, 2));
    ModelFacts {
        context: 200_000,
        output: 32_000,
        prices: PriceList::from(Prices {
            input: dollars(100),
            output: dollars(500),
            cache_read: dollars(10),
            cache_write: dollars(125),
            ..Prices::default()
        }),
        modalities: Modalities { image: true, pdf: true },
        rules: RequestRules { prefill: true, ..RequestRules::default() },
        ..ModelFacts::default()
    }
}

/// Those of one of them: one that makes calls by hand costs nothing.
pub(crate) fn facts_of(model: &str) -> ModelFacts {
    let facts = facts();
    if !model.starts_with(BY_HAND) {
        return facts;
    }
    let free = Some(Decimal::ZERO);
    let prices =
        Prices { input: free, output: free, cache_read: free, cache_write: free, ..facts.prices.usual };
    ModelFacts { prices: prices.into(), ..facts }
}
