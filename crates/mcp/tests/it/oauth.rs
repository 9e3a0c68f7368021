//! Logins at servers behind addresses.

use std::sync::atomic::Ordering;
use std::time::Duration;

use playhouse_mcp::{
    Authorizer, Connection, GrantType, LoginError, Need, OAuthClient, OpenError, Place, Redirected,
    ServerEntry, Transport, Vault,
};
use playhouse_tools::web::Door;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::authority::Authority;
use crate::stage::{PATIENCE, call, place};

const REDIRECT: &str = "http://127.0.0.1:9/callback";

/// A login of the tenant `acme`, as another process would have it.
fn authorizer(entry: &ServerEntry, folder: &TempDir) -> Authorizer {
    Authorizer::new(entry, door(), Some((&Vault::new(folder.path()), "acme"))).unwrap()
}

fn door() -> Door {
    Door::new(vec!["127.0.0.1".parse().unwrap()])
}

async fn open(entry: &ServerEntry, authorizer: &Authorizer) -> Result<Connection, OpenError> {
    let place = Place { door: door(), authorizer: Some(authorizer.clone()), ..place() };
    Ok(Connection::open(entry, &place).await?.0)
}

/// Logs in as a person would.
async fn log_in(server: &Authority, authorizer: &Authorizer) -> Result<(), LoginError> {
    let begun = authorizer.begin(REDIRECT).await?;
    let redirected = server.agree(&begun.url);
    assert_eq!(redirected.state, begun.state);
    authorizer.finish(redirected).await
}

#[tokio::test]
async fn a_login_is_begun_ended_and_kept() {
    let (server, folder) = (Authority::start().await, tempfile::tempdir().unwrap());
    let entry = server.entry();
    let one = authorizer(&entry, &folder);
    let Err(error) = open(&entry, &one).await else { panic!("it was open") };
    assert!(
        matches!(&error, OpenError::Login(reason) if reason.contains("playhouse mcp auth web")),
        "{error:?}"
    );
    assert!(matches!(one.need(), Some(Need::Login(_))));
    // Another process knows, too.
    assert_eq!(authorizer(&entry, &folder).need(), one.need());
    log_in(&server, &one).await.unwrap();
    assert_eq!((one.need(), authorizer(&entry, &folder).need()), (None, None));
    let connection = open(&entry, &one).await.unwrap();
    assert_eq!(call(&connection, "who").await.unwrap(), "access-1");
    // What was asked for: PKCE, the scopes of the server, and what the token is for.
    let asked = server.asked();
    let of = |name: &str| asked.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    assert_eq!(of("code_challenge_method").as_deref(), Some("S256"));
    assert_eq!(of("scope").as_deref(), Some("read"));
    assert_eq!(of("resource"), Some(server.url()));
    assert_eq!(server.registrations.load(Ordering::SeqCst), 1);
    // Another process needs none, and nothing is there to be read.
    let connection = open(&entry, &authorizer(&entry, &folder)).await.unwrap();
    assert_eq!(call(&connection, "who").await.unwrap(), "access-1");
    for file in fs_err::read_dir(folder.path()).unwrap() {
        let content = fs_err::read(file.unwrap().path()).unwrap();
        assert!(!String::from_utf8_lossy(&content).contains("access-1"));
    }
    // Other tenants have none.
    let other = Authorizer::new(&entry, door(), Some((&Vault::new(folder.path()), "other"))).unwrap();
    assert!(matches!(open(&entry, &other).await, Err(OpenError::Login(_))));
    assert!(one.forget().await.unwrap());
    assert!(!one.forget().await.unwrap());
    assert!(matches!(open(&entry, &authorizer(&entry, &folder)).await, Err(OpenError::Login(_))));
}

#[tokio::test]
async fn a_token_that_is_refused_is_renewed_once_by_all() {
    let (server, folder) = (Authority::start().await, tempfile::tempdir().unwrap());
    let entry = server.entry();
    let one = authorizer(&entry, &folder);
    log_in(&server, &one).await.unwrap();
    // Two processes, which share nothing but the files.
    let connections =
        [open(&entry, &one).await.unwrap(), open(&entry, &authorizer(&entry, &folder)).await.unwrap()];
    server.end_tokens();
    let calls = connections.iter().flat_map(|connection| (0..4).map(move |_| call(connection, "who")));
    for answer in futures::future::join_all(calls).await {
        assert_eq!(answer.unwrap(), "access-2");
    }
    assert_eq!(server.renewals.load(Ordering::SeqCst), 1);
    // The renewal brought another refresh token, which is kept.
    server.end_tokens();
    assert_eq!(call(&connections[1], "who").await.unwrap(), "access-3");
    assert_eq!(server.refused.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_token_is_renewed_before_it_ends() {
    let (server, folder) = (Authority::start().await, tempfile::tempdir().unwrap());
    server.lives.store(0, Ordering::SeqCst);
    let entry = server.entry();
    let one = authorizer(&entry, &folder);
    log_in(&server, &one).await.unwrap();
    server.lives.store(3_600, Ordering::SeqCst);
    let connection = open(&entry, &one).await.unwrap();
    assert_eq!(call(&connection, "who").await.unwrap(), "access-2");
    assert_eq!(server.renewals.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_renewal_is_finished_when_its_request_is_given_up() {
    let (server, folder) = (Authority::start().await, tempfile::tempdir().unwrap());
    let entry = server.entry();
    let one = authorizer(&entry, &folder);
    log_in(&server, &one).await.unwrap();
    let connection = open(&entry, &one).await.unwrap();
    server.end_tokens();
    let gate = server.hold_renewals();
    {
        let given_up = call(&connection, "who");
        tokio::select! {
            _ = given_up => panic!("it was answered"),
            () = server.renewing.notified() => {}
        }
    }
    gate.add_permits(1);
    assert_eq!(call(&connection, "who").await.unwrap(), "access-2");
    assert_eq!(server.renewals.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_renewal_that_fails_loses_nothing() {
    let (server, folder) = (Authority::start().await, tempfile::tempdir().unwrap());
    let entry = server.entry();
    let one = authorizer(&entry, &folder);
    log_in(&server, &one).await.unwrap();
    let connection = open(&entry, &one).await.unwrap();
    server.end_tokens();
    server.fails.store(503, Ordering::SeqCst);
    let error = call(&connection, "who").await.unwrap_err().to_string();
    assert!(error.contains("cannot be renewed"), "{error}");
    assert_eq!(one.need(), None);
    server.fails.store(0, Ordering::SeqCst);
    assert_eq!(call(&connection, "who").await.unwrap(), "access-2");
}

#[tokio::test]
async fn a_login_that_is_over_is_marked_and_begun_anew() {
    let (server, folder) = (Authority::start().await, tempfile::tempdir().unwrap());
    let entry = server.entry();
    let one = authorizer(&entry, &folder);
    log_in(&server, &one).await.unwrap();
    let connection = open(&entry, &one).await.unwrap();
    server.end_tokens();
    server.end_refreshes();
    let error = call(&connection, "who").await.unwrap_err().to_string();
    assert!(error.contains("its login is over") && error.contains("playhouse mcp auth web"), "{error}");
    assert!(!error.contains("refresh-1") && !error.contains("access-1"), "{error}");
    assert!(matches!(one.need(), Some(Need::Login(_))));
    // It is kept, and not tried again.
    let sealed = |name: &std::ffi::OsStr| name.to_string_lossy().ends_with(".sealed");
    let files = || {
        fs_err::read_dir(folder.path()).unwrap().filter(|file| sealed(&file.as_ref().unwrap().file_name()))
    };
    assert_eq!(files().count(), 1);
    assert!(call(&connection, "who").await.is_err());
    assert_eq!(server.refused.load(Ordering::SeqCst), 1);
    log_in(&server, &one).await.unwrap();
    assert_eq!(call(&connection, "who").await.unwrap(), "access-2");
}

#[tokio::test]
async fn what_comes_back_belongs_to_a_login() {
    let (server, folder) = (Authority::start().await, tempfile::tempdir().unwrap());
    let one = authorizer(&server.entry(), &folder);
    let begun = one.begin(REDIRECT).await.unwrap();
    let good = server.agree(&begun.url);
    let wrong = Redirected { state: "other".into(), ..good.clone() };
    assert_eq!(one.finish(wrong).await, Err(LoginError::Unknown));
    let elsewhere = Redirected { issuer: Some("https://other.example".into()), ..good.clone() };
    assert!(one.finish(elsewhere).await.unwrap_err().to_string().contains("mismatch"));
    // Neither ends the login that waits.
    one.finish(good.clone()).await.unwrap();
    assert_eq!(one.finish(good).await, Err(LoginError::Unknown));
    // A browser is not sent to other machines without encryption.
    for redirect in ["http://example.org/callback", "file:///etc/passwd", "x"] {
        assert!(matches!(one.begin(redirect).await, Err(LoginError::Failed(_))), "{redirect}");
    }
}

#[tokio::test]
async fn an_authorization_server_without_pkce_is_refused() {
    for methods in [Some(r#"["plain"]"#), None] {
        let (server, folder) = (Authority::start().await, tempfile::tempdir().unwrap());
        *server.challenges.lock().unwrap() = methods;
        let error = authorizer(&server.entry(), &folder).begin(REDIRECT).await.unwrap_err();
        assert!(matches!(&error, LoginError::Unsupported(text) if text.contains("PKCE")), "{error:?}");
        assert_eq!(server.registrations.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test]
async fn no_address_of_discovery_passes_the_guard() {
    // Each of them is named by the server: what describes it, the authorization server, and what that names.
    for place in ["metadata", "authority", "authorize", "token", "register", "redirect"] {
        let (server, folder) = (Authority::start().await, tempfile::tempdir().unwrap());
        *server.astray.lock().unwrap() = Some(place);
        let entry = server.entry();
        let one = authorizer(&entry, &folder);
        assert!(open(&entry, &one).await.is_err());
        let error = timeout(PATIENCE, log_in(&server, &one)).await.unwrap().unwrap_err().to_string();
        assert!(
            error.contains("is refused") || error.contains("not followed") || error.contains("not allowed"),
            "{place}: {error}"
        );
    }
}

#[tokio::test]
async fn a_server_that_registers_nobody_is_logged_in_to_with_a_client_of_its_own() {
    let (server, folder) = (Authority::start().await, tempfile::tempdir().unwrap());
    server.registers.store(false, Ordering::SeqCst);
    let mut entry = server.entry();
    let one = authorizer(&entry, &folder);
    assert!(matches!(one.begin(REDIRECT).await, Err(LoginError::Registration(_))));
    assert!(matches!(one.need(), Some(Need::Registration(_))));
    let Transport::Http(http) = &mut entry.transport else { panic!("it is an address") };
    http.oauth.client = Some(OAuthClient { id: "mine".into(), secret: Some("hunter2".into()) });
    http.oauth.scopes = vec!["write".into()];
    let one = authorizer(&entry, &folder);
    log_in(&server, &one).await.unwrap();
    let connection = open(&entry, &one).await.unwrap();
    assert_eq!(call(&connection, "who").await.unwrap(), "access-1");
    assert!(server.asked().contains(&("scope".into(), "write".into())));
    assert!(!format!("{entry:?} {one:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_call_that_needs_more_scopes_says_so_and_the_next_login_asks_for_them() {
    let (server, folder) = (Authority::start().await, tempfile::tempdir().unwrap());
    let entry = server.entry();
    let one = authorizer(&entry, &folder);
    log_in(&server, &one).await.unwrap();
    let connection = open(&entry, &one).await.unwrap();
    let error = call(&connection, "admin").await.unwrap_err().to_string();
    assert!(error.contains("wants more rights for this (admin)"), "{error}");
    assert_eq!((call(&connection, "who").await.unwrap().as_str(), one.need()), ("access-1", None));
    log_in(&server, &one).await.unwrap();
    assert!(server.asked().contains(&("scope".into(), "admin read".into())), "{:?}", server.asked());
    assert_eq!(call(&connection, "admin").await.unwrap(), "access-2");
}

#[tokio::test]
async fn a_client_that_grants_access_itself_needs_nobody() {
    let (server, folder) = (Authority::start().await, tempfile::tempdir().unwrap());
    let mut entry = server.entry();
    let Transport::Http(http) = &mut entry.transport else { panic!("it is an address") };
    http.oauth.grant = GrantType::ClientCredentials;
    http.oauth.client = Some(OAuthClient { id: "mine".into(), secret: Some("hunter2".into()) });
    let one = authorizer(&entry, &folder);
    assert!(matches!(one.begin(REDIRECT).await, Err(LoginError::Unsupported(_))));
    let connection = open(&entry, &one).await.unwrap();
    assert_eq!(call(&connection, "who").await.unwrap(), "access-1");
    server.end_tokens();
    assert_eq!(call(&connection, "who").await.unwrap(), "access-2");
    // Nothing of it is kept.
    assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_server_that_refuses_even_a_new_token_is_not_asked_for_ever() {
    let (server, folder) = (Authority::start().await, tempfile::tempdir().unwrap());
    server.takes_none.store(true, Ordering::SeqCst);
    let entry = server.entry();
    let one = authorizer(&entry, &folder);
    log_in(&server, &one).await.unwrap();
    let opened = timeout(Duration::from_secs(60), open(&entry, &one)).await.unwrap();
    assert!(matches!(opened, Err(OpenError::Login(_))));
    assert_eq!(server.renewals.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_header_or_a_switch_leaves_logins_out() {
    let server = Authority::start().await;
    let mut entry = server.entry();
    let Transport::Http(http) = &mut entry.transport else { panic!("it is an address") };
    http.oauth.enabled = false;
    assert!(Authorizer::new(&entry, door(), None).is_none());
    let Transport::Http(http) = &mut entry.transport else { panic!("it is an address") };
    http.oauth.enabled = true;
    http.headers = vec![("authorization".into(), "Bearer x".into())];
    assert!(Authorizer::new(&entry, door(), None).is_none());
}
