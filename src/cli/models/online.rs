//! What providers tell of their own models, asked for now.

use futures::future::join_all;
use playhouse_catalogue::Listing;
use playhouse_llm::{Endpoint, fetch_models};
use playhouse_protocol::{Day, ModelRef};

use super::{FETCH_TIME, MOST_BYTES};
use crate::cli::variable;
use crate::config::Settings;

/// The answer of one provider, or why there is none: a fragment that names no key.
pub(in crate::cli) struct Told {
    pub(in crate::cli) provider: String,
    pub(in crate::cli) listing: Result<Listing, String>,
}

/// Asks all providers whose lists tell more than names and that have a key, at once: OpenAI and Anthropic.
pub(in crate::cli) async fn ask(settings: &Settings, today: Day) -> Vec<Told> {
    let asked = settings.listing_providers().filter_map(|provider| {
        // Any model has the provider's address and key.
        let model = settings
            .catalogue
            .now()
            .models(provider)
            .next()
            .map(|(name, _)| ModelRef::new(provider, name))?;
        let endpoint = settings.resolve_model(&model, &variable).ok()?.endpoint;
        Some(ask_one(provider.to_owned(), endpoint, today))
    });
    join_all(asked).await
}

async fn ask_one(provider: String, endpoint: Endpoint, today: Day) -> Told {
    let listing = fetch_models(&endpoint, MOST_BYTES, FETCH_TIME)
        .await
        .and_then(|text| Listing::read(&text, today).map_err(|error| error.to_string()));
    Told { provider, listing }
}
