//! The secrets of a sink: the one place of this crate that opens them.

use playhouse_billing::export::signature;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret as _, SecretSlice, SecretString};

/// Keys shorter than this are not looked for in texts: they would be found everywhere.
const SHORTEST_HIDDEN: usize = 4;

/// What requests are authorized with.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// As it was given, to be found in what servers say.
    text: Option<SecretString>,
    bearer: Option<HeaderValue>,
    signing: Option<SecretSlice<u8>>,
}

impl Keys {
    /// A token that goes out as `authorization`.
    ///
    /// # Errors
    /// No header can carry it. The fragment does not repeat it.
    pub(crate) fn bearer(key: SecretString) -> Result<Self, &'static str> {
        let value = format!("Bearer {}", key.expose_secret().trim());
        let mut value =
            HeaderValue::from_str(&value).map_err(|_| "holds characters that no header can carry")?;
        value.set_sensitive(true);
        Ok(Self { text: Some(key), bearer: Some(value), signing: None })
    }

    /// A key that signs.
    ///
    /// # Errors
    /// It has not the form of such keys. The fragment does not repeat it.
    pub(crate) fn signing(key: SecretString) -> Result<Self, String> {
        let bytes = signature::key_bytes(key.expose_secret()).map_err(|error| error.to_string())?;
        Ok(Self { text: Some(key), bearer: None, signing: Some(bytes.into()) })
    }

    /// Adds what shows who sends it.
    pub(crate) fn authorize(&self, headers: &mut HeaderMap) {
        if let Some(bearer) = &self.bearer {
            headers.insert(AUTHORIZATION, bearer.clone());
        }
    }

    /// Signs `body`, which is sent under `id` at `seconds` since 1970, as Standard Webhooks say.
    pub(crate) fn sign(&self, headers: &mut HeaderMap, id: &str, seconds: u64, body: &[u8]) {
        let Some(key) = &self.signing else { return };
        let signature = signature::sign(key.expose_secret(), id, seconds, body);
        for (name, value) in [
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", seconds.to_string()),
            ("webhook-signature", signature),
        ] {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
    }

    /// `text`, which a server wrote, without the key: it may repeat it.
    pub(crate) fn hide(&self, text: String) -> String {
        let Some(key) = self.text.as_ref().map(|key| key.expose_secret().trim()) else { return text };
        if key.len() < SHORTEST_HIDDEN { text } else { text.replace(key, "[hidden]") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_shown() {
        let keys = Keys::bearer("sk-very-secret".to_owned().into()).unwrap();
        let mut headers = HeaderMap::new();
        keys.authorize(&mut headers);
        assert_eq!(headers[AUTHORIZATION], "Bearer sk-very-secret");
        let shown = format!("{keys:?} {headers:?} {}", keys.hide("bad key: sk-very-secret!".to_owned()));
        assert!(!shown.contains("very"), "{shown}");
        assert!(shown.ends_with("bad key: [hidden]!"));
        let error = Keys::bearer("line\nbreak".to_owned().into()).unwrap_err();
        assert!(!error.contains("break"), "{error}");
        let error = Keys::signing("not-a-signing-key".to_owned().into()).unwrap_err();
        assert!(!error.contains("not-a"), "{error}");
    }
}
