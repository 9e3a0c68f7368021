//! What may be done in one session: the rules of all layers, put together for each call.

use std::sync::{Arc, PoisonError, RwLock};

use playhouse_policy::{Policy, Rules, Verdict, Want};
use playhouse_protocol::consent::PermissionRule;

use crate::bounds::Bound;
use crate::directory::{Directory, Ground};
use crate::grants::Book;

/// Judges the calls of one session. Shared by its actors; the session actor changes it.
pub(crate) struct Judge {
    directory: Arc<dyn Directory>,
    ground: Ground,
    /// The session's own rules.
    own: RwLock<Arc<Rules>>,
    /// What people allowed for always.
    book: Arc<Book>,
    /// What `~` in the session's own rules stands for.
    home: Option<String>,
    /// What no rule and nobody's consent leads out of.
    bound: Bound,
}

impl Judge {
    pub(crate) fn new(
        directory: Arc<dyn Directory>,
        ground: Ground,
        own: &[PermissionRule],
        book: Arc<Book>,
        home: Option<String>,
        bound: Bound,
    ) -> Self {
        let judge = Self { directory, ground, own: RwLock::default(), book, home, bound };
        judge.set_own(own);
        judge
    }

    /// The session has these rules from now on.
    pub(crate) fn set_own(&self, own: &[PermissionRule]) {
        let rules: Rules = own.iter().collect();
        let rules = match &self.home {
            Some(home) => rules.expanded(home),
            None => rules,
        };
        *self.own.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }

    /// What people allowed for always where this session works.
    pub(crate) fn book(&self) -> &Arc<Book> {
        &self.book
    }

    /// The rules that hold for `agent`, without what people allowed for always. Without an agent those that hold for
    /// people: an agent's rules are about what its model does.
    fn policy(&self, agent: Option<&str>) -> Policy {
        let own = Arc::clone(&self.own.read().unwrap_or_else(PoisonError::into_inner));
        Policy {
            configuration: self.ground.configuration.clone(),
            agent: agent.map_or_else(Rules::new, |agent| self.directory.agent_rules(agent)),
            session: Rules::clone(&own),
            workspace: self.ground.workspace.clone(),
            moderate: self.ground.moderate.into(),
            ..Policy::default()
        }
    }

    /// What the rules say of a call of `agent`. What people allowed for always answers what would be asked; it does not
    /// stand against a rule that denies, of whatever layer.
    pub(crate) fn verdict(&self, agent: Option<&str>, wants: &[Want]) -> Verdict {
        if let Some(reason) = self.out_of_bounds(wants) {
            return Verdict::Deny { reason };
        }
        let mut policy = self.policy(agent);
        let verdict = policy.judge(wants);
        if !matches!(verdict, Verdict::Ask { .. }) {
            return verdict;
        }
        self.book.extend(&mut policy.session);
        policy.judge(wants)
    }

    /// Why what is wanted is never done, whatever rules and people say.
    pub(crate) fn out_of_bounds(&self, wants: &[Want]) -> Option<String> {
        self.bound.refuses(wants)
    }

    /// Whether what a person is asked about needs nobody's consent any more.
    pub(crate) fn covers(&self, agent: &str, wants: &[Want]) -> bool {
        // A request of an older log does not say what it is about.
        !wants.is_empty() && self.verdict(Some(agent), wants) == Verdict::Allow
    }

    /// Who says that nothing under `permission` can run; `None` when it can.
    pub(crate) fn hidden_by(&self, agent: Option<&str>, permission: &str) -> Option<&'static str> {
        let policy = self.policy(agent);
        if !policy.is_hidden(permission) {
            return None;
        }
        let here = Policy { agent: Rules::new(), session: Rules::new(), ..policy };
        let everywhere = Policy { workspace: Rules::new(), ..here.clone() };
        Some(if everywhere.is_hidden(permission) {
            "the configuration"
        } else if here.is_hidden(permission) {
            "the workspace's own configuration"
        } else {
            "the rules of the session or its agent"
        })
    }

    /// Tells of permissions whether nothing under them can run.
    pub(crate) fn hides(&self, agent: &str) -> impl Fn(&str) -> bool + use<> {
        let policy = self.policy(Some(agent));
        move |permission| policy.is_hidden(permission)
    }
}
