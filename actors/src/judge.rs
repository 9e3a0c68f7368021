//! What may be done in one session: the rules of all layers, put together for each call.

use std::sync::Arc;

use parking_lot::RwLock;
use playhouse_policy::{Policy, Rules, Verdict, Want};
use playhouse_protocol::consent::PermissionRule;
use playhouse_protocol::{Mandate, tools_of};
use playhouse_tools::{Registry, Showing, Tool};

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
    /// How many sessions stand above this one, and how many may at most.
    depth: usize,
    deepest: usize,
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
        let judge =
            Self { directory, ground, own: RwLock::default(), book, home, bound, depth: 0, deepest: 0 };
        judge.set_own(own);
        judge
    }

    /// The same for a session below so many others, of which there may be so many at most.
    #[must_use]
    pub(crate) fn below(self, depth: usize, deepest: usize) -> Self {
        Self { depth, deepest, ..self }
    }

    /// Why no work can be handed over to another session from here.
    pub(crate) fn too_deep(&self) -> Option<String> {
        (self.depth >= self.deepest).then(|| {
            format!(
                "tasks stand at most {} deep, and this is one of the deepest: do it yourself",
                self.deepest
            )
        })
    }

    /// What `agent` may do in this session, for work that it hands over.
    pub(crate) fn mandate(&self, agent: &str, read_only: bool, tools: &Registry) -> Mandate {
        let allows =
            |tool: &&Arc<dyn Tool>| tool.serves(agent) && self.directory.allows(agent, &tool.spec().name);
        let all = tools.iter().all(|tool| allows(&tool));
        let names = || tools.iter().filter(allows).map(|tool| tool.spec().name.clone()).collect();
        let own = Arc::clone(&self.own.read());
        Mandate {
            agent: written(&self.directory.agent_rules(agent)),
            session: written(&own),
            restrictions: written(&self.directory.agent_restrictions(agent)),
            read_only,
            tools: (!all).then(names),
        }
    }

    /// The session has these rules from now on.
    pub(crate) fn set_own(&self, own: &[PermissionRule]) {
        let rules: Rules = own.iter().collect();
        let rules = match &self.home {
            Some(home) => rules.expanded(home),
            None => rules,
        };
        *self.own.write() = Arc::new(rules);
    }

    /// What people allowed for always where this session works.
    pub(crate) fn book(&self) -> &Arc<Book> {
        &self.book
    }

    /// The agents and models that this session may use.
    pub(crate) fn directory(&self) -> &Arc<dyn Directory> {
        &self.directory
    }

    /// The rules that hold for `agent`, without what people allowed for always: all of them hold, so the strictest judgement
    /// counts. Without an agent those that hold for people: an agent's rules are about what its model does. `mandates` are what
    /// those may do who handed the turn's work over.
    fn policies(&self, agent: Option<&str>, mandates: &[Mandate]) -> Vec<Policy> {
        let own = Arc::clone(&self.own.read());
        let policy = Policy {
            configuration: self.ground.configuration.clone(),
            agent: agent.map_or_else(Rules::new, |agent| self.directory.agent_rules(agent)),
            session: Rules::clone(&own),
            workspace: self.ground.workspace.clone(),
            moderate: self.ground.moderate.into(),
            ..Policy::default()
        };
        let restrictions = agent.map_or_else(Rules::new, |agent| self.directory.agent_restrictions(agent));
        let restricted =
            (!restrictions.is_empty()).then(|| Policy { workspace: restrictions, ..policy.clone() });
        let above = above(&policy, mandates);
        std::iter::once(policy).chain(restricted).chain(above).collect()
    }

    /// The tools of which those who handed the work over could make calls, sorted; `None` for all that there are.
    pub(crate) fn handed(&self, mandates: &[Mandate], tools: &Registry) -> Option<Vec<String>> {
        let listed = tools_of(mandates);
        let above = above(&Policy::default(), mandates);
        let hides = |permission: &str| above.iter().any(|policy| policy.is_hidden(permission));
        let hidden: Vec<&str> = tools
            .iter()
            .filter(|tool| hides(tool.permission()))
            .map(|tool| tool.spec().name.as_str())
            .collect();
        if hidden.is_empty() {
            return listed.map(|listed| listed.into_iter().map(str::to_owned).collect());
        }
        let all = || tools.iter().map(|tool| tool.spec().name.as_str()).collect();
        let mut left: Vec<String> = listed
            .unwrap_or_else(all)
            .into_iter()
            .filter(|name| !hidden.contains(name))
            .map(str::to_owned)
            .collect();
        left.sort_unstable();
        Some(left)
    }

    /// What the rules say of a call of `agent`. What people allowed for always answers what would be asked; it does not
    /// stand against a rule that denies, of whatever layer.
    pub(crate) fn verdict(&self, agent: Option<&str>, mandates: &[Mandate], wants: &[Want]) -> Verdict {
        if let Some(reason) = self.out_of_bounds(wants) {
            return Verdict::Deny { reason };
        }
        let mut policies = self.policies(agent, mandates);
        let verdict = strictest(&policies, wants);
        if !matches!(verdict, Verdict::Ask { .. }) {
            return verdict;
        }
        policies.iter_mut().for_each(|policy| self.book.extend(&mut policy.session));
        strictest(&policies, wants)
    }

    /// Which files may be shown to a model of `agent` without asking.
    pub(crate) fn showing(&self, agent: Option<&str>, mandates: &[Mandate]) -> Showing {
        let mut policies = self.policies(agent, mandates);
        policies.iter_mut().for_each(|policy| self.book.extend(&mut policy.session));
        Showing::by(policies)
    }

    /// Why what is wanted is never done, whatever rules and people say.
    pub(crate) fn out_of_bounds(&self, wants: &[Want]) -> Option<String> {
        self.bound.refuses(wants)
    }

    /// Whether what a person is asked about needs nobody's consent any more.
    pub(crate) fn covers(&self, agent: &str, mandates: &[Mandate], wants: &[Want]) -> bool {
        // A request of an older log does not say what it is about.
        !wants.is_empty() && self.verdict(Some(agent), mandates, wants) == Verdict::Allow
    }

    /// Who says that nothing under `permission` can run; `None` when it can.
    pub(crate) fn hidden_by(
        &self,
        agent: Option<&str>,
        mandates: &[Mandate],
        permission: &str,
    ) -> Option<&'static str> {
        let policies = self.policies(agent, mandates);
        if !policies.iter().any(|policy| policy.is_hidden(permission)) {
            return None;
        }
        let policy = policies.into_iter().next().unwrap_or_default();
        let here = Policy { agent: Rules::new(), session: Rules::new(), ..policy };
        let everywhere = Policy { workspace: Rules::new(), ..here.clone() };
        Some(if everywhere.is_hidden(permission) {
            "the configuration"
        } else if here.is_hidden(permission) {
            "the workspace's own configuration"
        } else if mandates.is_empty() {
            "the rules of the session or its agent"
        } else {
            "the rules of the session or its agent, or of those above that handed this work over"
        })
    }

    /// Tells of permissions whether nothing under them can run.
    pub(crate) fn hides(&self, agent: &str) -> impl Fn(&str) -> bool + use<> {
        // What those above may not use, `handed` knows.
        let policies = self.policies(Some(agent), &[]);
        move |permission| policies.iter().any(|policy| policy.is_hidden(permission))
    }
}

/// What holds of `policy` for those who handed work over.
fn above(policy: &Policy, mandates: &[Mandate]) -> Vec<Policy> {
    let above = mandates.iter().flat_map(|mandate| {
        let above = Policy {
            agent: mandate.agent.iter().collect(),
            session: mandate.session.iter().collect(),
            ..policy.clone()
        };
        let restrictions: Rules = mandate.restrictions.iter().collect();
        let restricted =
            (!restrictions.is_empty()).then(|| Policy { workspace: restrictions, ..above.clone() });
        std::iter::once(above).chain(restricted)
    });
    above.collect()
}

/// Rules as they are written down.
fn written(rules: &Rules) -> Vec<PermissionRule> {
    let written = rules.iter().map(|rule| PermissionRule {
        permission: rule.permission.as_str().to_owned(),
        pattern: rule.pattern.as_str().to_owned(),
        action: rule.action,
    });
    written.collect()
}

/// What all of them together say: nothing is allowed that one of them does not allow.
fn strictest(policies: &[Policy], wants: &[Want]) -> Verdict {
    let mut asked: Option<(String, Vec<Want>)> = None;
    for policy in policies {
        match policy.judge(wants) {
            Verdict::Allow => {}
            Verdict::Ask { reason, wants } => {
                let (_, all) = asked.get_or_insert_with(|| (reason, Vec::new()));
                for want in wants {
                    if !all.contains(&want) {
                        all.push(want);
                    }
                }
            }
            denied @ Verdict::Deny { .. } => return denied,
        }
    }
    asked.map_or(Verdict::Allow, |(reason, wants)| Verdict::Ask { reason, wants })
}
