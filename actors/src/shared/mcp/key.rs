//! Which server is meant: an entry, and who shares one process of it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use playhouse_mcp::ServerScope;
use playhouse_protocol::SessionId;
use playhouse_tools::ToolScope;

use super::declared::Declared;

/// Which server is shared by whom.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct ServerKey {
    /// For people.
    pub(super) name: Arc<str>,
    /// That of its entry.
    pub(super) hash: Arc<str>,
    pub(super) tenant: Arc<str>,
    /// The directory that it serves; `None` if it serves all of a tenant.
    pub(super) workspace: Option<Arc<Path>>,
    /// The session that has it for itself.
    pub(super) session: Option<SessionId>,
}

impl ServerKey {
    /// The server that a session uses.
    pub(super) fn new(declared: &Declared, scope: &ToolScope) -> Self {
        let shared = declared.entry.scope;
        Self {
            name: declared.entry.name.as_str().into(),
            hash: declared.hash.as_str().into(),
            tenant: Arc::clone(&scope.tenant),
            workspace: (shared != ServerScope::Tenant).then(|| Arc::clone(&scope.workspace)),
            session: (shared == ServerScope::Session).then_some(scope.session),
        }
    }
}

impl fmt::Display for ServerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for ServerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, tenant, workspace, session, .. } = self;
        write!(f, "{name} of {tenant:?} in {workspace:?} for {session:?}")
    }
}
