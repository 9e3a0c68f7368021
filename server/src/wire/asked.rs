//! What a request of the wire asks, as far as all routes have it in common.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri};
use playhouse_protocol::SessionId;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::failure::Failure;
use super::feed::{Feed, Feeds, place};
use super::place::Place;
use crate::app::App;
use crate::native::extract;
use crate::native::sessions::blocking;
use crate::principal::Principal;
use crate::problem::{Kind, Problem};

/// The header that names a directory, with what is no plain character escaped as in an address.
const DIRECTORY: &str = "x-opencode-directory";

/// Who asks, and about which directory.
pub(crate) struct Asked {
    pub(crate) app: App,
    pub(crate) principal: Principal,
    pub(crate) headers: HeaderMap,
    uri: Uri,
    feeds: Feeds,
}

#[derive(Deserialize)]
struct Where {
    directory: Option<String>,
}

impl FromRequestParts<App> for Asked {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        let principal = Principal::from_request_parts(parts, app).await?;
        let feeds = Extension::<Feeds>::from_request_parts(parts, app).await;
        let Extension(feeds) = feeds.map_err(|error| Problem::new(Kind::Internal, error.to_string()))?;
        let (headers, uri) = (parts.headers.clone(), parts.uri.clone());
        Ok(Self { app: app.clone(), principal, headers, uri, feeds })
    }
}

impl Asked {
    /// The query.
    pub(crate) fn query<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let query = Query::<T>::try_from_uri(&self.uri);
        query.map(|Query(query)| query).map_err(|error| extract::misfit_query(&error))
    }

    /// The path that was asked for.
    pub(crate) fn path(&self) -> &str {
        self.uri.path()
    }

    /// The directory that the client named, as it wrote it.
    fn written(&self) -> Result<Option<String>, Problem> {
        let Where { directory } = self.query()?;
        let header = || {
            let header = self.headers.get(DIRECTORY)?;
            Some(unescaped(header.as_bytes()))
        };
        Ok(directory.or_else(header).filter(|directory| !directory.is_empty()))
    }

    /// The directory that the client named, if it named one. It lies below a root.
    ///
    /// # Errors
    /// It does not.
    pub(crate) async fn named_place(&self) -> Result<Option<Arc<Place>>, Problem> {
        let Some(written) = self.written()? else { return Ok(None) };
        let (app, principal) = (self.app.clone(), self.principal.clone());
        let admitted = blocking(move || app.admit_directory(&principal, &written)).await??;
        self.place_of(&admitted.to_string_lossy()).await.map(Some)
    }

    /// The directory that the client named, or else the first root of who asks.
    ///
    /// # Errors
    /// It does not lie below a root, or there is no root.
    pub(crate) async fn place(&self) -> Result<Arc<Place>, Problem> {
        if let Some(place) = self.named_place().await? {
            return Ok(place);
        }
        let missing = || Problem::invalid("the request names no directory, and this server has no root");
        let roots = self.app.roots_of(&self.principal);
        let first = roots.first().ok_or_else(missing)?.to_string_lossy().into_owned();
        self.place_of(&first).await
    }

    /// The place of a directory that is known to be allowed.
    pub(crate) async fn place_of(&self, directory: &str) -> Result<Arc<Place>, Problem> {
        let crashed = || Problem::new(Kind::Internal, "the work crashed: the server's log says where");
        place(self.app.roots_of(&self.principal), directory).await.map(Arc::new).ok_or_else(crashed)
    }

    /// The feed of the tenant.
    pub(crate) async fn feed(&self) -> Arc<Feed> {
        self.feeds.of(&self.app, &self.principal).await
    }
}

/// The id of a session in a path.
pub(crate) fn session(written: &str) -> Result<SessionId, Failure> {
    Ok(SessionId::parse(written)?)
}

/// A text in which bytes are escaped as `%2F`.
pub(crate) fn unescaped(written: &[u8]) -> String {
    String::from_utf8_lossy(&unescaped_bytes(written)).into_owned()
}

/// The bytes that are escaped so.
pub(crate) fn unescaped_bytes(written: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut text = Vec::with_capacity(written.len());
    let mut rest = written;
    while let Some((first, after)) = rest.split_first() {
        let escaped = match (first, after) {
            (b'%', [high, low, ..]) => digit(*high).zip(digit(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        match escaped {
            Some(byte) => {
                text.push(byte);
                rest = &after[2..];
            }
            None => {
                text.push(*first);
                rest = after;
            }
        }
    }
    text
}

/// A body of JSON.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self, Failure> {
        let extract::Body(body) = extract::Body::from_request(request, app).await?;
        Ok(Self(body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_directories_are_read() {
        for (written, directory) in [
            ("%2Fsrv%2Fd%C3%A9mo", "/srv/démo"),
            ("/plain", "/plain"),
            ("100%", "100%"),
            ("%zz%4", "%zz%4"),
            ("/ä", "/ä"),
        ] {
            assert_eq!(unescaped(written.as_bytes()), directory);
        }
    }
}
