//! What git says of a directory. Where no repository is, or none that may be looked at, there is nothing to say.

use std::path::Path;

use axum::Json;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue};
use playhouse_actors::{Change, Outlook, Repository, RepositoryError, Since, Status};
use serde::Deserialize;

use super::files::outlook;
use crate::native::sessions::blocking;
use crate::problem::{Kind, Problem};
use crate::wire::asked::Asked;
use crate::wire::failure::Named;
use crate::wire::shapes::{FileStatus, Vcs, VcsChange};

/// Lines around a change, where the query says nothing, and at most.
const USUAL_CONTEXT: u32 = 3;
const MOST_CONTEXT: u32 = 1_000_000;
/// The longest patches, of one file and of all, in bytes: those that are longer are left out.
const LONGEST_PATCH: usize = 1024 * 1024;
const LONGEST_PATCHES: usize = 8 * 1024 * 1024;

/// The directory, and its repository.
async fn repository(asked: &Asked) -> Result<(Outlook, Option<Repository>), Problem> {
    let (place, outlook) = outlook(asked).await?;
    if !place.git {
        return Ok((outlook, None));
    }
    let roots = asked.app.roots_of(&asked.principal).all().to_vec();
    let found = asked.app.engine().repository(Path::new(&*place.worktree).to_owned(), roots).await;
    Ok((outlook, found))
}

fn failed(error: RepositoryError) -> Problem {
    let kind = match error {
        RepositoryError::TooMuch => Kind::TooLarge,
        RepositoryError::TooSlow => Kind::Overloaded,
        RepositoryError::Unreadable(_) => Kind::Invalid,
        RepositoryError::NoGit | RepositoryError::Io(_) | RepositoryError::Process(_) => Kind::Internal,
    };
    Problem::new(kind, error.to_string())
}

async fn changes(asked: &Asked, since: Since, context: Option<u32>) -> Result<Vec<Change>, Problem> {
    let (outlook, Some(repository)) = repository(asked).await? else { return Ok(Vec::new()) };
    let _question = asked.app.limits().question(&asked.principal.tenant).await?;
    let shows = |path: &Path| outlook.shows(path);
    repository.changes(outlook.directory(), since, context, &shows).await.map_err(failed)
}

fn word(status: Status) -> &'static str {
    match status {
        Status::Added => "added",
        Status::Deleted => "deleted",
        Status::Modified => "modified",
    }
}

/// `GET /vcs`
pub(crate) async fn read(asked: Asked) -> Result<Json<Vcs>, Named> {
    let (_, Some(repository)) = repository(&asked).await? else { return Ok(Json(Vcs::default())) };
    let read = move || Vcs { branch: repository.branch(), default_branch: repository.default_branch() };
    Ok(Json(blocking(read).await?))
}

/// `GET /file/status`
pub(crate) async fn file_status(asked: Asked) -> Result<Json<Vec<FileStatus>>, Named> {
    let changes = changes(&asked, Since::Head, None).await?.into_iter();
    let status = changes.map(|Change { path, status, added, removed, .. }| FileStatus {
        path,
        added,
        removed,
        status: word(status),
    });
    Ok(Json(status.collect()))
}

fn told(changes: Vec<Change>) -> Json<Vec<VcsChange>> {
    let mut left = LONGEST_PATCHES;
    let told = changes.into_iter().map(|change| {
        let patch = change.patch.filter(|patch| patch.len() <= left.min(LONGEST_PATCH));
        left -= patch.as_ref().map_or(0, String::len);
        VcsChange {
            file: change.path,
            additions: change.added,
            deletions: change.removed,
            status: word(change.status),
            patch,
        }
    });
    Json(told.collect())
}

/// `GET /vcs/status`
pub(crate) async fn status(asked: Asked) -> Result<Json<Vec<VcsChange>>, Named> {
    Ok(told(changes(&asked, Since::Head, None).await?))
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    /// Against the commit that is checked out.
    Git,
    /// Against where the branch left the default branch.
    Branch,
}

#[derive(Deserialize)]
struct DiffSearch {
    mode: Mode,
    context: Option<u32>,
}

/// `GET /vcs/diff`
pub(crate) async fn diff(asked: Asked) -> Result<Json<Vec<VcsChange>>, Named> {
    let DiffSearch { mode, context } = asked.query()?;
    let since = match mode {
        Mode::Git => Since::Head,
        Mode::Branch => Since::Branch,
    };
    let context = context.unwrap_or(USUAL_CONTEXT).min(MOST_CONTEXT);
    Ok(told(changes(&asked, since, Some(context)).await?))
}

/// `GET /vcs/diff/raw`
pub(crate) async fn raw(asked: Asked) -> Result<([(HeaderName, HeaderValue); 1], Vec<u8>), Named> {
    let patch = match repository(&asked).await? {
        (outlook, Some(repository)) => {
            let _question = asked.app.limits().question(&asked.principal.tenant).await?;
            let shows = |path: &Path| outlook.shows(path);
            repository.patch(outlook.directory(), &shows).await.map_err(failed)?
        }
        (_, None) => Vec::new(),
    };
    Ok(([(CONTENT_TYPE, HeaderValue::from_static("text/x-diff; charset=utf-8"))], patch))
}
