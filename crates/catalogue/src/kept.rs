//! The form in which a whole catalogue is kept between runs: smaller than that of models.dev, and read several times as
//! fast.

use std::collections::BTreeMap;

use playhouse_protocol::ModelRef;
use serde::{Deserialize, Serialize};

use crate::entry::Entry;
use crate::error::CatalogueError;
use crate::facts::ModelFacts;
use crate::loaded::{Loaded, MODELS_DEV};
use crate::told::Told;

/// Says whose file it is.
const FORMAT: &str = "playhouse-models";

/// The version that is written.
const VERSION: u64 = 3;

/// The oldest version that is read.
const OLDEST: u64 = 2;

/// What stands in the file whatever its version is.
#[derive(Deserialize)]
struct Mark {
    format: String,
    version: u64,
}

#[derive(Serialize, Deserialize)]
struct File<'a> {
    format: &'a str,
    version: u64,
    /// The catalogue from which the models came. Files of version 2 do not tell.
    #[serde(default = "models_dev")]
    source: String,
    models: BTreeMap<String, BTreeMap<String, Entry>>,
    /// What providers told of their own models.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    told: BTreeMap<String, BTreeMap<String, Told>>,
}

fn models_dev() -> String {
    MODELS_DEV.to_owned()
}

/// The file with these models.
pub(crate) fn write(loaded: &Loaded) -> String {
    let source = loaded.source.clone();
    let mut file =
        File { format: FORMAT, version: VERSION, source, models: BTreeMap::new(), told: BTreeMap::new() };
    for (model, told) in &loaded.told {
        let siblings = file.told.entry(model.provider.clone()).or_default();
        siblings.insert(model.model.clone(), told.clone());
    }
    for (model, facts) in &loaded.models {
        let siblings = file.models.entry(model.provider.clone()).or_default();
        siblings.insert(model.model.clone(), Entry::from(facts));
    }
    // Texts, numbers and maps with text keys can always be written.
    serde_json::to_string(&file).unwrap_or_default()
}

/// Reads a file that [`write`] made.
pub(crate) fn read(text: &str) -> Result<Loaded, CatalogueError> {
    let foreign = |error: serde_json::Error| CatalogueError::Foreign(error.to_string());
    let file = match serde_json::from_str::<File<'_>>(text) {
        Ok(file) if file.format == FORMAT && (OLDEST..=VERSION).contains(&file.version) => file,
        other => {
            // A version that is not known may have any other form.
            let mark: Mark = serde_json::from_str(text).map_err(foreign)?;
            if mark.format != FORMAT {
                return Err(CatalogueError::Foreign(format!(
                    "its format is \"{}\"",
                    mark.format.chars().take(64).collect::<String>().escape_debug()
                )));
            }
            if !(OLDEST..=VERSION).contains(&mark.version) {
                return Err(CatalogueError::Version { found: mark.version, known: VERSION });
            }
            other.map_err(foreign)?
        }
    };
    let models = file.models.into_iter().flat_map(|(provider, models)| {
        models
            .into_iter()
            .map(move |(model, entry)| (ModelRef::new(&provider, model), ModelFacts::from(entry)))
    });
    let told = file.told.into_iter().flat_map(|(provider, models)| {
        models.into_iter().map(move |(model, told)| (ModelRef::new(&provider, model), told))
    });
    Ok(Loaded { source: file.source, models: models.collect(), told: told.collect() })
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::capability::Sampling;

    use super::*;

    fn models() -> Loaded {
        let models = crate::builtin::builtin().models.clone();
        Loaded { source: "litellm".to_owned(), models, told: BTreeMap::new() }
    }

    #[test]
    fn what_was_written_is_read_again() {
        let text = write(&models());
        assert_eq!(read(&text).unwrap(), models());
        assert!(!text.contains("null") && !text.contains("\"prefill\":false"), "what is usual is left out");
    }

    #[test]
    fn files_of_version_2_are_read() {
        let text = r#"{"format":"playhouse-models","version":2,"models":{"openai":{"gpt-5-pro":{
            "context":400000,"input":272000,"output":128000,"prices":{"input":"15","output":"120"},
            "attachments":["image"],"reasoning":true,"efforts":["high"],"temperature":false,"responses":true}}}}"#;
        let (_, facts) = read(text).unwrap().models.pop_first().unwrap();
        assert_eq!(read(text).unwrap().source, MODELS_DEV);
        assert_eq!((facts.rules.sampling, facts.rules.responses), (Sampling::Never, true));
        assert_eq!(facts.prices.usual.output, Some("120".parse().unwrap()));
    }

    #[test]
    fn what_is_not_ours_or_newer_is_refused() {
        let error = |text: &str| read(text).unwrap_err().to_string();
        let newer = write(&models()).replacen("\"version\":3", "\"version\":4,\"more\":[]", 1);
        assert_eq!(
            error(&newer),
            "catalogue version 4, this program reads version 3: run `playhouse models update` again"
        );
        for text in ["", "{}", "[]", r#"{"format":"x","version":3}"#, &write(&models())[..100]] {
            assert!(error(text).starts_with("not a catalogue that"), "{text}");
        }
        let damaged = write(&models()).replacen("\"context\"", "\"contxt\"", 1);
        assert!(error(&damaged).contains("contxt"), "{}", error(&damaged));
    }
}
