//! May this call run? A pure judgement of what a call says that it would touch.
//!
//! A tool resolves its paths (links included) before it asks, so that a judgement needs no file system.
//!
//! - [`Access`] and [`wants`]: what a call touches, and what of it rules are asked about.
//! - [`Policy`], [`Rules`], [`Want`]: rules in layers, and what they say of what a call wants.
//! - [`shell`]: what a script would run and touch, told without running it.
//! - [`is_looping`]: whether a model is caught in a loop.
//!
//! ```
//! use playhouse_policy::{Access, AccessKind, Policy, Risk, Verdict, Zone, wants};
//!
//! let policy = Policy::default();
//! let inside = Access::path(AccessKind::Read, "/repo/a.txt", Zone::Workspace);
//! assert_eq!(policy.judge(&wants("read", Risk::Safe, &[inside]).unwrap()), Verdict::Allow);
//! let outside = Access::path(AccessKind::Read, "/etc/passwd", Zone::Outside);
//! assert!(matches!(policy.judge(&wants("read", Risk::Safe, &[outside]).unwrap()), Verdict::Ask { .. }));
//! ```
//!
//! Rules, and a script that is judged by them:
//!
//! ```
//! use playhouse_policy::{Action, Policy, Risk, Rule, Verdict, Want, shell};
//!
//! let configuration = [
//!     Rule::new("bash", "*", Action::Ask),
//!     Rule::new("bash", "git status *", Action::Allow),
//!     Rule::new("bash", "rm -rf *", Action::Deny),
//! ];
//! let policy = Policy { configuration: configuration.into_iter().collect(), ..Policy::default() };
//! let judge = |script: &str| {
//!     let commands = shell::analyse(script).commands;
//!     let wants = commands.into_iter().map(|command| Want {
//!         doubt: command.doubt,
//!         ..Want::new("bash", command.text, Risk::Dangerous)
//!     });
//!     policy.judge(&wants.collect::<Vec<_>>())
//! };
//! assert_eq!(judge("git status --short"), Verdict::Allow);
//! assert!(matches!(judge("git status; make"), Verdict::Ask { .. }));
//! assert!(matches!(judge("ls | xargs sudo sh -c 'rm -rf x'"), Verdict::Deny { .. }));
//! ```

mod access;
mod doom;
mod pattern;
mod policy;
mod rule;
pub mod shell;

pub use access::{Access, AccessKind, DOOM_LOOP, EXTERNAL_DIRECTORY, Known, Zone, loop_want, wants};
pub use doom::{LONGEST_CYCLE, REPEATS, is_looping};
pub use pattern::Pattern;
pub use playhouse_protocol::consent::{Action, Risk, Want};
pub use policy::{Policy, Verdict, builtin};
pub use rule::{Rule, Rules};
