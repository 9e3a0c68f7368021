//! The description of the API.

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

/// The file that the repository keeps.
const DOCUMENT: &str = include_str!("../../openapi.json");

/// `GET /v1/openapi.json`
pub(crate) async fn document() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::super::OPERATIONS;
    use super::*;

    #[test]
    fn every_operation_is_described_and_no_other() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let mut described = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for method in item.as_object().unwrap().keys().filter(|key| *key != "parameters") {
                described.insert((method.clone(), path.clone()));
            }
        }
        let routed: BTreeSet<(String, String)> =
            OPERATIONS.iter().map(|(method, path)| ((*method).to_owned(), (*path).to_owned())).collect();
        assert_eq!(routed, described);
    }
}
