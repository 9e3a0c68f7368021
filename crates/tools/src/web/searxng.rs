//! Searching with a SearxNG: `GET /search` with `format=json`.

use std::fmt::Write as _;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use reqwest::header::{ACCEPT, HeaderValue};
use serde::Deserialize;

use super::door::{Door, Request, shown};
use super::search::{Endpoint, SearchBackend, SearchError, WebQuery};
use crate::files::document::cut_characters;

/// The largest answer that is read, in bytes.
const LARGEST: usize = 5_000_000;
/// What is shown of one result, in characters.
const LONGEST_SNIPPET: usize = 1_000;
const LONGEST_TITLE: usize = 200;

/// A SearxNG.
#[derive(Debug)]
pub struct SearxngSearch {
    endpoint: Endpoint,
    door: Door,
}

#[derive(Deserialize)]
struct Found {
    results: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    url: String,
    #[serde(default)]
    title: String,
    content: Option<String>,
    #[serde(rename = "publishedDate")]
    published: Option<String>,
}

impl SearxngSearch {
    /// The one at `endpoint`, which may be given with `/search` or without.
    pub fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, door: Door::for_the_operator() }
    }

    async fn find(&self, query: &WebQuery) -> Result<String, SearchError> {
        let mut url = self.endpoint.url.clone();
        let path = url.path().trim_end_matches('/').to_owned();
        if !path.ends_with("/search") {
            url.set_path(&format!("{path}/search"));
        }
        url.query_pairs_mut().append_pair("q", &query.query).append_pair("format", "json");
        let mut headers = self.endpoint.header_map().map_err(|error| self.bad(&error.to_string()))?;
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let answer = self.door.send(Request { headers, follow: false, ..Request::get(url) }).await?;
        match answer.status {
            200 => {}
            403 => {
                return Err(self.bad("it answers 403: its own settings have to name json in search.formats"));
            }
            status => return Err(self.bad(&format!("it answers {status}"))),
        }
        let body = answer.body(LARGEST).await?;
        let found: Found = serde_json::from_slice(&body)
            .map_err(|error| self.bad(&format!("its answer is not what SearxNG says ({error})")))?;
        let mut text = String::new();
        for Entry { url, title, content, published } in found.results.iter().take(query.num_results as usize)
        {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "## {}\n{url}", cut_characters(title.trim(), LONGEST_TITLE).0);
            if let Some(published) = published {
                let _ = writeln!(text, "published {published}");
            }
            let content = content.as_deref().unwrap_or_default().trim();
            let _ = writeln!(text, "{}\n", cut_characters(content, LONGEST_SNIPPET).0);
        }
        Ok(text.trim_end().to_owned())
    }

    fn bad(&self, what: &str) -> SearchError {
        SearchError::Answer(format!("searxng at {}: {what}", shown(&self.endpoint.url)))
    }
}

impl SearchBackend for SearxngSearch {
    fn name(&self) -> &str {
        "searxng"
    }

    fn has_code(&self) -> bool {
        false
    }

    fn web<'a>(&'a self, query: &'a WebQuery) -> BoxFuture<'a, Result<String, SearchError>> {
        self.find(query).boxed()
    }
}
