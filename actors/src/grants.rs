//! What people allowed for always: kept on the shelf, per tenant and workspace, and shared by the sessions there.
//!
//! A [`Book`] is the one object in memory for a tenant's sessions in one workspace. Their judgements read it, so that what
//! is granted or withdrawn holds for all of them at once. It leaves memory with the last of them.
//!
//! A grant is written and flushed before anybody hears of it. Sessions with open requests stand in the book, and are told
//! of a new grant that may be about them.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use playhouse_policy::{Pattern, Rules, Want};
use playhouse_protocol::consent::{Action, ConsentAsked, Grant, PermissionRule, Risk};
use playhouse_protocol::limit::{Amount, LimitScope, LimitUnit};
use playhouse_protocol::{CommandError, ConsentId, Limit, SessionId, Timestamp};
use playhouse_store::Shelf;
use serde::{Deserialize, Serialize};

/// All keys of the shelf that hold grants begin with this.
const PREFIX: &str = "grants/";
/// In what form grants are stored.
const VERSION: u32 = 1;
/// The most grants of one tenant in one workspace.
const MOST: usize = 1_000;
/// The longest permission and the longest pattern of a grant, in bytes.
const LONGEST: usize = 1_024;
/// How often a change is tried again when somebody else was faster. Writers of one process take turns before that.
const TRIES: usize = 32;
/// Hexadecimal digits of a grant's name.
const NAME_DIGITS: usize = 12;
/// Hexadecimal digits by which a workspace is known in keys.
const WORKSPACE_DIGITS: usize = 32;
/// Books are looked through for those that nobody uses when there are so many, and again when there are twice as many as
/// were left.
const FIRST_PRUNE: usize = 64;

/// The permission of grants that let a program start.
pub(crate) const START: &str = "start";

/// What a person is asked for before this program may start.
pub(crate) fn want_start(subject: &str) -> Want {
    Want::new(START, subject, Risk::Dangerous).always([subject])
}

/// The names of grants.
pub(crate) type GrantIds = Vec<String>;

/// What the shelf holds for one tenant and workspace.
#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    grants: Vec<Grant>,
}

/// The form of a value, whatever else stands in it.
#[derive(Deserialize)]
struct Form {
    version: u32,
}

/// All books that are in use, and the sessions whose requests are about no call.
#[derive(Default)]
pub(crate) struct Grants {
    books: Mutex<Books>,
    /// By session, with the tenant: nothing else says that those wait for people, since no turn does.
    ahead: Mutex<HashMap<SessionId, Arc<str>>>,
}

#[derive(Default)]
struct Books {
    by_key: HashMap<String, Weak<Book>>,
    prune_at: usize,
}

impl Grants {
    /// The book of a tenant and a workspace. Blocks, for the first who asks. Where it cannot be read nothing counts as
    /// granted, and nothing more can be.
    pub(crate) fn book(&self, shelf: &dyn Shelf, tenant: &str, workspace: &str) -> Arc<Book> {
        let key = key(tenant, workspace);
        let book = {
            let mut books = self.books.lock();
            match books.by_key.get(&key).and_then(Weak::upgrade) {
                Some(book) => book,
                None => {
                    let book = Arc::new(Book::new(key.clone(), tenant, workspace));
                    books.insert(key, &book);
                    book
                }
            }
        };
        book.fill(shelf);
        book
    }

    /// Notes whether a session has open requests that belong to no call.
    pub(crate) fn note_ahead(&self, session: SessionId, tenant: &Arc<str>, waits: bool) {
        let mut ahead = self.ahead.lock();
        if waits {
            ahead.insert(session, Arc::clone(tenant));
        } else {
            ahead.remove(&session);
        }
    }

    /// The sessions of a tenant, or of all, that have some, as far as they were awake since the engine started.
    pub(crate) fn ahead(&self, tenant: Option<&str>) -> Vec<SessionId> {
        let ahead = self.ahead.lock();
        ahead
            .iter()
            .filter(|(_, of)| tenant.is_none_or(|tenant| tenant == &***of))
            .map(|(session, _)| *session)
            .collect()
    }

    /// Withdraws the grant of this name, of `tenant` or of anyone. Blocks.
    pub(crate) fn revoke(
        &self,
        shelf: &dyn Shelf,
        tenant: Option<&str>,
        id: &str,
    ) -> Result<Grant, CommandError> {
        let missing = || {
            let id: String = id.chars().take(64).collect();
            CommandError::Invalid(format!(
                "nothing is allowed for always under the name \"{}\"; `playhouse consents list` shows what is",
                id.escape_debug()
            ))
        };
        let found = list(shelf, tenant)?.into_iter().find(|grant| grant.id == id).ok_or_else(missing)?;
        let book = self.book(shelf, &found.tenant, &found.workspace);
        book.remove(shelf, &[found.id])?.pop().ok_or_else(missing)
    }
}

impl Books {
    fn insert(&mut self, key: String, book: &Arc<Book>) {
        if self.by_key.len() >= self.prune_at.max(FIRST_PRUNE) {
            self.by_key.retain(|_, book| book.strong_count() > 0);
            self.prune_at = self.by_key.len() * 2;
        }
        self.by_key.insert(key, Arc::downgrade(book));
    }
}

/// All that is granted, to `tenant` or to anyone, in the order of the keys; what was granted first comes first. Blocks. A
/// value that cannot be read is left out, and said in the engine's own log.
pub(crate) fn list(shelf: &dyn Shelf, tenant: Option<&str>) -> Result<Vec<Grant>, CommandError> {
    let prefix = tenant.map_or_else(|| PREFIX.to_owned(), of_tenant);
    let mut all = Vec::new();
    for (key, value) in shelf.scan(&prefix)? {
        match decode(&value) {
            Ok(grants) => all.extend(grants),
            Err(reason) => tracing::error!(key, reason, "what is allowed for always cannot be read"),
        }
    }
    Ok(all)
}

/// What was granted in one workspace to one tenant.
pub(crate) struct Book {
    tenant: String,
    workspace: String,
    /// Its place on the shelf.
    key: String,
    /// What is granted, as rules; `None` until it was read.
    granted: RwLock<Option<Arc<Rules>>>,
    /// Whoever reads or writes the shelf takes turns.
    turn: Mutex<()>,
    /// The sessions with open requests, and what those want.
    waiting: Mutex<HashMap<SessionId, Waiting>>,
}

/// Tells a session that its open requests may be covered by what "always" to a request allowed.
pub(crate) type Rejudge = Arc<dyn Fn(ConsentId) + Send + Sync>;

struct Waiting {
    rejudge: Rejudge,
    wants: Vec<Want>,
}

impl Book {
    fn new(key: String, tenant: &str, workspace: &str) -> Self {
        Self {
            tenant: tenant.to_owned(),
            workspace: workspace.to_owned(),
            key,
            granted: RwLock::new(None),
            turn: Mutex::default(),
            waiting: Mutex::default(),
        }
    }

    /// Adds what is granted to `rules`.
    pub(crate) fn extend(&self, rules: &mut Rules) {
        if let Some(granted) = self.granted() {
            rules.extend(granted.iter().cloned());
        }
    }

    /// Whether a person said "always" to exactly this.
    pub(crate) fn grants(&self, want: &Want) -> bool {
        let granted = self.granted();
        let rule = granted.as_deref().and_then(|granted| granted.decide(&want.permission, &want.subject));
        rule.is_some_and(|rule| rule.action == Action::Allow)
    }

    fn granted(&self) -> Option<Arc<Rules>> {
        self.granted.read().clone()
    }

    fn set(&self, grants: &[Grant]) {
        let rules: Rules = grants.iter().map(|grant| &grant.rule).collect();
        *self.granted.write() = Some(Arc::new(rules));
    }

    /// Reads the shelf, if nobody has yet.
    fn fill(&self, shelf: &dyn Shelf) {
        let _turn = self.turn.lock();
        if self.granted().is_some() {
            return;
        }
        let read = shelf.get(&self.key).map_err(|error| error.to_string());
        match read.and_then(|value| value.map_or_else(|| Ok(Vec::new()), |value| decode(&value))) {
            Ok(grants) => self.set(&grants),
            Err(reason) => {
                tracing::error!(key = self.key, reason, "what is allowed for always cannot be read");
            }
        }
    }

    /// Grants what "always" to `asked` means. On return it is durable and holds. Gives back the names of those that are
    /// new. Blocks.
    pub(crate) fn add(
        &self,
        shelf: &dyn Shelf,
        asked: &ConsentAsked,
        given: Timestamp,
    ) -> Result<GrantIds, CommandError> {
        let rules = asked.always();
        if rules.iter().any(|rule| rule.permission.len().max(rule.pattern.len()) > LONGEST) {
            return Err(CommandError::Invalid(format!(
                "this cannot be allowed for always: its pattern is longer than {LONGEST} bytes. answer \"once\" or \"decline\""
            )));
        }
        let mut added = Vec::new();
        self.change(shelf, |grants| {
            added.clear();
            let before = grants.len();
            let is_new = |rule: &&PermissionRule| !grants.iter().any(|grant| grant.id == self.name(rule));
            let new = rules.iter().filter(is_new).count();
            for rule in &rules {
                let id = self.name(rule);
                if grants.iter().any(|grant| grant.id == id) {
                    continue;
                }
                if grants.len() >= MOST {
                    let told = format!(
                        "{MOST} things are allowed for always in {} already: withdraw some, or answer \"once\"",
                        self.workspace
                    );
                    let count = |count: usize| Amount::Count(count as u64);
                    let limit = Limit::of_count("grants", LimitScope::Tenant, LimitUnit::Count, MOST as u64);
                    let limit = Limit { needed: Some(count(new)), ..limit.used(count(before)) };
                    return Err(CommandError::AtLimit { told, limit: Box::new(limit), passes: false });
                }
                grants.push(Grant {
                    id: id.clone(),
                    tenant: self.tenant.clone(),
                    workspace: self.workspace.clone(),
                    rule: rule.clone(),
                    given,
                    consent: asked.consent,
                });
                added.push(id);
            }
            Ok(())
        })?;
        Ok(added)
    }

    /// Withdraws the grants of these names, and gives them back. On return that is durable and holds. Blocks.
    pub(crate) fn remove(&self, shelf: &dyn Shelf, ids: &[String]) -> Result<Vec<Grant>, CommandError> {
        let mut removed = Vec::new();
        self.change(shelf, |grants| {
            removed = grants.extract_if(.., |grant| ids.contains(&grant.id)).collect();
            Ok(())
        })?;
        Ok(removed)
    }

    /// Changes what the shelf holds, and then what counts. Another engine on the same store may do so at the same time.
    fn change(
        &self,
        shelf: &dyn Shelf,
        mut edit: impl FnMut(&mut Vec<Grant>) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        let _turn = self.turn.lock();
        for _ in 0..TRIES {
            let value = shelf.get(&self.key)?;
            let before = match value.as_deref().map(decode) {
                None => Vec::new(),
                Some(read) => read.map_err(|reason| {
                    CommandError::Store(format!("what is allowed for always cannot be read: {reason}"))
                })?,
            };
            let mut after = before.clone();
            edit(&mut after)?;
            if after == before || self.write(shelf, value.as_deref(), &after)? {
                self.set(&after);
                return Ok(());
            }
        }
        Err(CommandError::Overloaded(
            "others change what is allowed for always all the time: try again".into(),
        ))
    }

    fn write(
        &self,
        shelf: &dyn Shelf,
        expected: Option<&[u8]>,
        grants: &[Grant],
    ) -> Result<bool, CommandError> {
        let stored = Stored { version: VERSION, grants: grants.to_vec() };
        let new = match grants {
            [] => None,
            _ => Some(serde_json::to_vec(&stored).map_err(|error| CommandError::Store(error.to_string()))?),
        };
        shelf.compare_and_set(&self.key, expected, new.as_deref()).map_err(CommandError::from)
    }

    /// The name of the grant of this rule here.
    fn name(&self, rule: &PermissionRule) -> String {
        digits([&self.tenant, &self.workspace, &rule.permission, &rule.pattern], NAME_DIGITS)
    }

    /// A session has open requests, which want this, as long as the guard is held.
    pub(crate) fn wait(
        self: &Arc<Self>,
        session: SessionId,
        rejudge: Rejudge,
        wants: Vec<Want>,
    ) -> WaitingGuard {
        self.waiting.lock().insert(session, Waiting { rejudge: Arc::clone(&rejudge), wants });
        WaitingGuard { book: Arc::clone(self), session, rejudge }
    }

    /// Tells the sessions whose open requests may be covered by what was granted now. `consent` is the request to which
    /// "always" was said.
    pub(crate) fn tell(&self, rules: &[PermissionRule], consent: ConsentId) {
        let patterns: Vec<(&str, Pattern)> = rules
            .iter()
            .map(|rule| (rule.permission.as_str(), Pattern::new(rule.pattern.as_str())))
            .collect();
        let concerned = |want: &Want| {
            let same = |(permission, _): &&(&str, Pattern)| *permission == want.permission;
            patterns.iter().filter(same).any(|(_, pattern)| pattern.matches(&want.subject))
        };
        for waiting in self.waiting.lock().values() {
            if waiting.wants.iter().any(concerned) {
                (waiting.rejudge)(consent);
            }
        }
    }
}

/// A session that stands in a book, as long as this is held.
pub(crate) struct WaitingGuard {
    book: Arc<Book>,
    session: SessionId,
    rejudge: Rejudge,
}

impl Drop for WaitingGuard {
    fn drop(&mut self) {
        let mut waiting = self.book.waiting.lock();
        // What came later may stand there already.
        if waiting.get(&self.session).is_some_and(|there| Arc::ptr_eq(&there.rejudge, &self.rejudge)) {
            waiting.remove(&self.session);
        }
    }
}

/// The keys of a tenant begin with this. Hexadecimal, so that no name of a tenant reaches into another's.
fn of_tenant(tenant: &str) -> String {
    let hex: String = tenant.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("{PREFIX}{hex}/")
}

fn key(tenant: &str, workspace: &str) -> String {
    format!("{}{}", of_tenant(tenant), digits([workspace], WORKSPACE_DIGITS))
}

/// The first `count` hexadecimal digits of a hash of `texts`, wherever one ends and the next begins.
pub(crate) fn digits<const N: usize>(texts: [&str; N], count: usize) -> String {
    let mut content = Vec::new();
    for text in texts {
        content.extend((text.len() as u64).to_be_bytes());
        content.extend(text.as_bytes());
    }
    let mut digits = playhouse_workspace::hash(&content).to_string();
    digits.truncate(count);
    digits
}

fn decode(value: &[u8]) -> Result<Vec<Grant>, String> {
    let form: Form = serde_json::from_slice(value).map_err(|error| error.to_string())?;
    if form.version != VERSION {
        return Err(format!(
            "it is stored in form {}, and this engine reads form {VERSION}: use the engine that wrote it",
            form.version
        ));
    }
    let stored: Stored = serde_json::from_slice(value).map_err(|error| error.to_string())?;
    Ok(stored.grants)
}

#[cfg(test)]
mod tests;
