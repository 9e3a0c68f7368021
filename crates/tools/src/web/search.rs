//! `websearch` and `codesearch`, and who searches for them.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_policy::Access;
use playhouse_protocol::record::{Effect, Recovery};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::bounded;
use super::door::{Door, DoorError, shown};
use super::searxng::SearxngSearch;
use crate::files::document::cut_characters;
use crate::tool::{CallContext, Risk, ToolError, ToolOutput};
use crate::typed::{Ready, TypedTool};

/// The longest wait for an answer, unless the backend has another.
const TIMEOUT: Duration = Duration::from_secs(25);
/// The longest query, in characters.
const LONGEST_QUERY: usize = 2_000;
/// Characters of a query in a title.
const LONGEST_TITLE: usize = 100;
/// Results, unless the call asks for others; and the most that it may ask for.
const RESULTS: u32 = 8;
const MOST_RESULTS: u32 = 25;
/// Tokens of code, unless the call asks for others; and what it may ask for.
const TOKENS: u32 = 5_000;
const FEWEST_TOKENS: u32 = 1_000;
const MOST_TOKENS: u32 = 50_000;

/// A search of the web.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WebQuery {
    /// What is looked for.
    pub query: String,
    /// How many results at most.
    pub num_results: u32,
}

/// A search for code and how it is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CodeQuery {
    /// What is looked for.
    pub query: String,
    /// How much is wanted, in tokens.
    pub tokens_num: u32,
}

/// Why a search has no result.
#[derive(Debug, Error)]
pub enum SearchError {
    /// Nobody is configured who can do it, with what to do instead.
    #[error("{0}")]
    Unavailable(String),
    /// It cannot be reached.
    #[error(transparent)]
    Door(#[from] DoorError),
    /// It answers with an error, or with something else than results.
    #[error("{0}")]
    Answer(String),
}

/// Who searches. Answers are text, ready to be read by a model.
///
/// ```
/// use futures::FutureExt as _;
/// use futures::future::BoxFuture;
/// use playhouse_tools::web::{SearchBackend, SearchError, SearchOptions, WebQuery};
///
/// struct Handbook;
///
/// impl SearchBackend for Handbook {
///     fn name(&self) -> &str {
///         "handbook"
///     }
///
///     fn web<'a>(&'a self, query: &'a WebQuery) -> BoxFuture<'a, Result<String, SearchError>> {
///         async move { Ok(format!("nothing about {}", query.query)) }.boxed()
///     }
/// }
///
/// let options = SearchOptions::Backend(std::sync::Arc::new(Handbook));
/// assert_eq!(format!("{options:?}"), "Backend(\"handbook\")");
/// ```
pub trait SearchBackend: Send + Sync + 'static {
    /// Its name for people, as `exa`.
    fn name(&self) -> &str;

    /// The longest wait for an answer.
    fn timeout(&self) -> Duration {
        TIMEOUT
    }

    /// Whether it searches the web. If not, models are not shown `websearch`.
    fn has_web(&self) -> bool {
        true
    }

    /// Whether it searches for code. If not, models are not shown `codesearch`.
    fn has_code(&self) -> bool {
        true
    }

    /// Searches the web. Has no deadline: dropping the future ends it.
    fn web<'a>(&'a self, query: &'a WebQuery) -> BoxFuture<'a, Result<String, SearchError>>;

    /// Searches for code and documentation. One that has no such search leaves this as it is.
    fn code<'a>(&'a self, _query: &'a CodeQuery) -> BoxFuture<'a, Result<String, SearchError>> {
        let message = format!("{} has no search for code: use websearch", self.name());
        std::future::ready(Err(SearchError::Unavailable(message))).boxed()
    }
}

/// Where a backend is, with the headers that it wants.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub(super) url: Url,
    headers: Vec<(String, SecretString)>,
}

/// Why an endpoint cannot be used: a fragment that does not repeat the value of a header.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct EndpointError(String);

impl Endpoint {
    /// The endpoint at `url`; every request has `headers` (names and values, which may be keys).
    ///
    /// # Errors
    /// `url` is no address of the web, or a header cannot be sent.
    pub fn new(url: &str, headers: Vec<(String, SecretString)>) -> Result<Self, EndpointError> {
        let url = Url::parse(url).map_err(|error| EndpointError(format!("is not an address: {error}")))?;
        Door::for_the_operator().check(&url).map_err(|error| EndpointError(error.to_string()))?;
        let endpoint = Self { url, headers };
        endpoint.header_map()?;
        Ok(endpoint)
    }

    /// Its address.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Its address without what may be secret in it.
    pub fn shown(&self) -> String {
        shown(&self.url)
    }

    /// The way to it, which is the operator's: it may lead anywhere.
    pub fn door(&self) -> Door {
        Door::for_the_operator()
    }

    /// The headers of each request: names and values.
    pub fn headers(&self) -> &[(String, SecretString)] {
        &self.headers
    }

    pub(super) fn header_map(&self) -> Result<HeaderMap, EndpointError> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let wrong = |what| {
                EndpointError(format!("{what} of the header \"{}\" cannot be sent", name.escape_debug()))
            };
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong("the name"))?;
            let mut value = HeaderValue::from_str(value.expose_secret()).map_err(|_| wrong("the value"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }

    /// `text`, which a server wrote, without the values of headers: it may repeat a key.
    pub fn without_keys(&self, text: &str) -> String {
        self.headers.iter().fold(text.to_owned(), |text, (_, value)| {
            let value = value.expose_secret();
            let bare = value.strip_prefix("Bearer ").unwrap_or(value);
            if bare.len() < 4 { text } else { text.replace(bare, "[hidden]") }
        })
    }
}

/// Who searches, as it is configured.
#[derive(Clone, Default)]
pub enum SearchOptions {
    /// Nobody: models see no search tool.
    #[default]
    Off,
    /// This one.
    Backend(Arc<dyn SearchBackend>),
}

impl std::fmt::Debug for SearchOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Off => f.write_str("Off"),
            Self::Backend(backend) => f.debug_tuple("Backend").field(&backend.name()).finish(),
        }
    }
}

impl SearchOptions {
    /// A SearxNG.
    pub fn searxng(endpoint: Endpoint) -> Self {
        Self::Backend(Arc::new(SearxngSearch::new(endpoint)))
    }

    /// Why there is no search, unless the backend `has` it.
    fn lacks(&self, has: impl Fn(&dyn SearchBackend) -> bool) -> Option<String> {
        match self {
            Self::Backend(backend) if has(&**backend) => None,
            Self::Backend(backend) => Some(format!(
                "{} has no such search: set `search_tool` or `code_tool` in [tools.web], or another `search`",
                backend.name()
            )),
            Self::Off => Some("no search service is configured: set `search` in [tools.web]".to_owned()),
        }
    }

    fn backend(&self) -> Result<&dyn SearchBackend, ToolError> {
        match self {
            Self::Backend(backend) => Ok(&**backend),
            Self::Off => Err(ToolError::Failed(
                "there is no search here: nobody is configured who searches. Go on with what you know, and with webfetch \
                 for pages whose address you know. (The operator turns it on with `search` in [tools.web]: \"exa\", \
                 \"searxng\" or \"mcp\".)"
                    .to_owned(),
            )),
        }
    }
}

/// The arguments of `websearch`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebArguments {
    query: String,
    /// 1 to 25. Default: 8.
    #[serde(default)]
    num_results: Option<u32>,
}

/// The arguments of `codesearch`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CodeArguments {
    query: String,
    /// 1000 to 50000. Default: 5000.
    #[serde(default)]
    tokens_num: Option<u32>,
}

/// The tool `websearch`.
#[derive(Clone, Debug, Default)]
pub struct WebSearch {
    options: SearchOptions,
}

/// The tool `codesearch`.
#[derive(Clone, Debug, Default)]
pub struct CodeSearch {
    options: SearchOptions,
}

impl WebSearch {
    /// The tool, with who searches.
    pub fn new(options: SearchOptions) -> Self {
        Self { options }
    }
}

impl CodeSearch {
    /// The tool, with who searches.
    pub fn new(options: SearchOptions) -> Self {
        Self { options }
    }
}

impl TypedTool for WebSearch {
    const NAME: &'static str = "websearch";
    const DESCRIPTION: &'static str = include_str!("../../../../prompts/tools/websearch.md");
    const RISK: Risk = Risk::Moderate;
    type Arguments = WebArguments;
    type Task = WebQuery;

    fn unavailable(&self) -> Option<String> {
        self.options.lacks(|backend| backend.has_web())
    }

    async fn prepare(&self, arguments: WebArguments, _: &CallContext) -> Result<Ready<WebQuery>, ToolError> {
        let num_results = arguments.num_results.unwrap_or(RESULTS);
        if !(1..=MOST_RESULTS).contains(&num_results) {
            return Err(ToolError::Invalid(format!(
                "numResults is {num_results}: ask for 1 to {MOST_RESULTS}"
            )));
        }
        let query = checked(&arguments.query)?;
        Ok(ready(&query, WebQuery { query: query.clone(), num_results }))
    }

    async fn execute(&self, query: WebQuery, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let backend = self.options.backend()?;
        let mut output = search(context, backend, &query.query, backend.web(&query)).await?;
        output.metadata.insert("numResults".into(), query.num_results.into());
        Ok(output)
    }
}

impl TypedTool for CodeSearch {
    const NAME: &'static str = "codesearch";
    const DESCRIPTION: &'static str = include_str!("../../../../prompts/tools/codesearch.md");
    const RISK: Risk = Risk::Moderate;
    type Arguments = CodeArguments;
    type Task = CodeQuery;

    fn unavailable(&self) -> Option<String> {
        self.options.lacks(|backend| backend.has_code())
    }

    async fn prepare(
        &self,
        arguments: CodeArguments,
        _: &CallContext,
    ) -> Result<Ready<CodeQuery>, ToolError> {
        let tokens_num = arguments.tokens_num.unwrap_or(TOKENS);
        if !(FEWEST_TOKENS..=MOST_TOKENS).contains(&tokens_num) {
            return Err(ToolError::Invalid(format!(
                "tokensNum is {tokens_num}: ask for {FEWEST_TOKENS} to {MOST_TOKENS}"
            )));
        }
        let query = checked(&arguments.query)?;
        Ok(ready(&query, CodeQuery { query: query.clone(), tokens_num }))
    }

    async fn execute(&self, query: CodeQuery, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let backend = self.options.backend()?;
        let mut output = search(context, backend, &query.query, backend.code(&query)).await?;
        output.metadata.insert("tokensNum".into(), query.tokens_num.into());
        Ok(output)
    }
}

fn checked(query: &str) -> Result<String, ToolError> {
    let query = query.trim();
    if query.is_empty() {
        return Err(ToolError::Invalid("query is empty: say what to look for".into()));
    }
    let characters = query.chars().count();
    if characters > LONGEST_QUERY {
        return Err(ToolError::Invalid(format!(
            "query has {characters} characters: say it in {LONGEST_QUERY} at most"
        )));
    }
    Ok(query.to_owned())
}

fn ready<T>(query: &str, task: T) -> Ready<T> {
    Ready {
        accesses: vec![Access::Query(query.to_owned())],
        effect: Effect::None,
        recovery: Recovery::Rerun,
        preview: format!("search for {query}"),
        title: cut_characters(query, LONGEST_TITLE).0.to_owned(),
        task,
    }
}

async fn search(
    context: &CallContext,
    backend: &dyn SearchBackend,
    query: &str,
    searching: BoxFuture<'_, Result<String, SearchError>>,
) -> Result<ToolOutput, ToolError> {
    let what = format!("the search with {}", backend.name());
    let searching = searching.map(|found| {
        found.map_err(|error| {
            ToolError::Failed(match error {
                SearchError::Unavailable(message) => message,
                error => format!("the search failed: {error}. Go on without it, or try again later"),
            })
        })
    });
    let found = bounded(context, backend.timeout(), &what, searching).await?;
    let nothing = || format!("nothing was found for \"{query}\"");
    let mut output = ToolOutput::text(if found.trim().is_empty() { nothing() } else { found });
    output.title = cut_characters(query, LONGEST_TITLE).0.to_owned();
    output.metadata.insert("provider".into(), backend.name().into());
    Ok(output)
}
