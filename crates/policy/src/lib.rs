//! May this call run? A pure judgement of what a call says that it would touch.
//!
//! A tool resolves its paths (links included) before it asks, so that a judgement needs no file system.
//!
//! - [`Access`] and [`judge`]: what calls touch, and the judgement that is in force: what is inside the workspace is
//!   allowed, and so is reading the session's own output folder; everything else is denied.
//! - [`Policy`], [`Rules`], [`Want`]: rules in layers, and what they say of what a call wants.
//! - [`shell`]: what a script would run and touch, told without running it.
//! - [`is_looping`]: whether a model is caught in a loop.
//!
//! ```
//! use playhouse_policy::{Access, AccessKind, Verdict, Zone, judge};
//!
//! let inside = Access::path(AccessKind::Write, "/repo/a.txt", Zone::Workspace);
//! assert_eq!(judge(&[inside]), Verdict::Allow);
//! let outside = Access::path(AccessKind::Read, "/etc/passwd", Zone::Outside);
//! assert!(matches!(judge(&[outside]), Verdict::Deny { .. }));
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

pub use access::{Access, AccessKind, Zone, judge};
pub use doom::{LONGEST_CYCLE, REPEATS, is_looping};
pub use pattern::Pattern;
pub use policy::{Policy, Risk, Verdict, Want, builtin};
pub use rule::{Action, Rule, Rules};
