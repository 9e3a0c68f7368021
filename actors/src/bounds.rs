//! What calls never leave, whatever rules and people say: the directories that an operator keeps a tenant to.
//!
//! A tenant writes the rules of its own sessions, and answers their requests for consent. Where tenants are not the
//! operator, neither may lead out of what the operator allows them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use playhouse_policy::{EXTERNAL_DIRECTORY, Want};

/// Said of a workspace that is not within them.
pub(crate) const OUT_OF_BOUNDS: &str = "is not below a directory that the operator allowed";

/// To which directories the sessions of tenants are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Within {
    /// By tenant: directories, absolute, links resolved. Sessions of such a tenant work below them, and beside their own
    /// workspace and outputs touch nothing else.
    pub tenants: HashMap<String, Vec<PathBuf>>,
    /// What holds for the others.
    pub others: Others,
}

/// What holds for the sessions of a tenant that is not named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Others {
    /// Nothing.
    #[default]
    Free,
    /// They touch nothing but their own workspace and outputs; but for the operator's own.
    Kept {
        /// The tenants that are the operator.
        but: Vec<String>,
    },
}

/// The same, for all sessions of an engine. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bounds(Arc<RwLock<Arc<Within>>>);

impl Bounds {
    pub(crate) fn set(&self, within: Within) {
        *self.0.write() = Arc::new(within);
    }

    fn get(&self) -> Arc<Within> {
        Arc::clone(&self.0.read())
    }

    /// Whether a session of `tenant` may work in `directory`, whose links are resolved.
    pub(crate) fn hold_workspace(&self, tenant: &str, directory: &Path) -> bool {
        let within = self.get();
        within.tenants.get(tenant).is_none_or(|roots| lies_in(directory, roots))
    }
}

impl Bounds {
    /// The directories that `tenant` is kept to beside the workspaces of its sessions; `None` for one that is free.
    pub(crate) fn keep_to(&self, tenant: &str) -> Option<Vec<PathBuf>> {
        self.get().roots_of(tenant).map(<[PathBuf]>::to_vec)
    }
}

impl Within {
    fn roots_of(&self, tenant: &str) -> Option<&[PathBuf]> {
        match (self.tenants.get(tenant), &self.others) {
            (Some(roots), _) => Some(roots),
            (None, Others::Kept { but }) if !but.iter().any(|own| own == tenant) => Some(&[]),
            (None, _) => None,
        }
    }
}

/// What bounds one session.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) bounds: Bounds,
    pub(crate) tenant: Arc<str>,
    /// Where it works: absolute, links resolved.
    pub(crate) workspace: PathBuf,
}

impl Bound {
    /// Why these are refused, whatever rules and people say. What a command may touch without that it can be told is not
    /// among them: walls hold that.
    pub(crate) fn refuses(&self, wants: &[Want]) -> Option<String> {
        let within = self.bounds.get();
        let roots = within.roots_of(&self.tenant)?;
        // It may be awake since before the operator withdrew the directory.
        if !self.bounds.hold_workspace(&self.tenant, &self.workspace) {
            return Some(format!("the workspace {} {OUT_OF_BOUNDS}", self.workspace.display()));
        }
        let is_outside = |want: &&Want| {
            want.permission == EXTERNAL_DIRECTORY
                && want.doubt.is_none()
                && !lies_in(Path::new(&want.subject), roots)
        };
        let want = wants.iter().find(is_outside)?;
        Some(format!(
            "{} is outside the workspace and {OUT_OF_BOUNDS}: no rule and no consent changes that. Work within the workspace",
            want.subject
        ))
    }
}

fn lies_in(path: &Path, roots: &[PathBuf]) -> bool {
    roots.iter().any(|root| path.starts_with(root))
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::consent::Risk;

    use super::*;

    fn outside(path: &str) -> Vec<Want> {
        vec![Want::new("read", path, Risk::Safe), Want::new(EXTERNAL_DIRECTORY, path, Risk::Dangerous)]
    }

    #[test]
    fn a_tenant_is_kept_to_its_directories_and_others_to_their_workspace() {
        let bounds = Bounds::default();
        let refuses = |tenant: &str, path: &str| {
            let workspace = "/roots/a/w".into();
            let bound = Bound { bounds: bounds.clone(), tenant: tenant.into(), workspace };
            bound.refuses(&outside(path)).is_some()
        };
        assert!(!refuses("acme", "/etc/passwd"), "nothing is bound yet");
        bounds.set(Within {
            tenants: HashMap::from([("acme".to_owned(), vec!["/roots/a".into(), "/shared".into()])]),
            others: Others::Kept { but: vec!["local".to_owned()] },
        });
        for (tenant, path, refused) in [
            ("acme", "/etc/passwd", true),
            ("acme", "/roots", true),
            ("acme", "/roots/ab/file", true),
            ("acme", "/roots/a/other", false),
            ("acme", "/shared", false),
            ("gone", "/roots/a/other", true),
            ("local", "/etc/passwd", false),
        ] {
            assert_eq!(refuses(tenant, path), refused, "{tenant} {path}");
        }
        assert_eq!(bounds.keep_to("acme").unwrap(), [Path::new("/roots/a"), Path::new("/shared")]);
        assert_eq!((bounds.keep_to("gone"), bounds.keep_to("local")), (Some(Vec::new()), None));
        assert!(bounds.hold_workspace("acme", Path::new("/roots/a/b")));
        assert!(!bounds.hold_workspace("acme", Path::new("/etc")));
        assert!(bounds.hold_workspace("local", Path::new("/etc")));
    }

    #[test]
    fn a_session_that_is_awake_does_nothing_where_its_tenant_may_not_work_any_more() {
        let bounds = Bounds::default();
        let bound = Bound { bounds: bounds.clone(), tenant: "acme".into(), workspace: "/roots/b/w".into() };
        let inside = [Want::new("read", "/roots/b/w/file", Risk::Safe)];
        let keep = |root: &str| {
            let tenants = HashMap::from([("acme".to_owned(), vec![PathBuf::from(root)])]);
            bounds.set(Within { tenants, others: Others::default() });
        };
        keep("/roots/b");
        assert_eq!(bound.refuses(&inside), None);
        keep("/roots/a");
        let refused = bound.refuses(&inside).unwrap();
        assert!(
            refused.contains("/roots/b/w is not below a directory that the operator allowed"),
            "{refused}"
        );
    }
}
