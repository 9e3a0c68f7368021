//! What providers tell of their own models, asked for now.

use futures::future::join_all;
use playhouse_catalogue::Listing;
use playhouse_llm::{Endpoint, fetch_models};
use playhouse_protocol::{Day, ModelRef};

use super::{FETCH_TIME, MOST_BYTES};
use crate::cli::variable;
use crate::config::{ConfigError, Settings};

/// The answer of one provider, or why there is none: a fragment that names no key.
pub(in crate::cli) struct Told {
    pub(in crate::cli) provider: String,
    pub(in crate::cli) listing: Result<Listing, String>,
}

/// Asks all providers whose lists tell more than names and that have a key, at once: OpenAI and Anthropic.
pub(in crate::cli) async fn ask(settings: &Settings, today: Day) -> Vec<Told> {
    let asked = settings.listing_providers().filter_map(|provider| {
        // Any model has the provider's address and key.
        let catalogue = settings.catalogue.now();
        let (name, _) = catalogue.models(provider).next()?;
        let endpoint = match settings.resolve_model(&ModelRef::new(provider, name), &variable) {
            Ok(resolved) => Ok(resolved.endpoint),
            Err(ConfigError::MissingKey { .. }) => return None,
            Err(error) => Err(error.to_string()),
        };
        Some(ask_one(provider.to_owned(), endpoint, today))
    });
    join_all(asked).await
}

async fn ask_one(provider: String, endpoint: Result<Endpoint, String>, today: Day) -> Told {
    let listing = match endpoint {
        Ok(endpoint) => fetch_models(&endpoint, MOST_BYTES, FETCH_TIME).await,
        Err(error) => Err(error),
    };
    let read = |text: String| Listing::read(&text, today).map_err(|error| error.to_string());
    Told { provider, listing: listing.and_then(read) }
}
