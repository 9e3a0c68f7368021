//! What holds the programs that a session starts.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// What an operator wants of walls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sandbox {
    /// Programs run only inside walls: where none can be built, none runs.
    Required,
    /// Programs run inside the best walls that can be built here, and without where none can.
    #[default]
    BestEffort,
    /// Programs run without walls.
    Off,
}

impl Sandbox {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Required, Self::BestEffort, Self::Off];

    /// Its name in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::BestEffort => "best-effort",
            Self::Off => "off",
        }
    }
}

impl fmt::Display for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What walls let through beside the workspace and the system's programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WallsAllowed {
    /// Directories that may be read as well: absolute.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// Directories that may be changed as well: absolute.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<String>,
    /// Whether the workspace may be read only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Whether the network may be reached.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub network: bool,
}

impl WallsAllowed {
    /// What both let through: a session can only make the operator's walls narrower. A directory that the operator lets
    /// be changed may also only be read, and so may one below it. Compares paths as they are written.
    #[must_use]
    pub fn narrowed(&self, by: &Self) -> Self {
        let within = |directory: &String, allowed: &[String]| {
            allowed.iter().any(|allowed| Path::new(directory).starts_with(allowed))
        };
        let may_read = |directory: &&String| within(directory, &self.read) || within(directory, &self.write);
        Self {
            read: by.read.iter().filter(may_read).cloned().collect(),
            write: by.write.iter().filter(|directory| within(directory, &self.write)).cloned().collect(),
            read_only: self.read_only || by.read_only,
            network: self.network && by.network,
        }
    }
}

/// How well walls hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strength {
    /// Nothing is visible but what was let in.
    Full,
    /// Less than that: `by` and `detail` say what.
    Weaker,
    /// Nothing holds.
    None,
}

/// The walls that are in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WallsInForce {
    /// How well they hold.
    pub strength: Strength,
    /// What they are made of: `bubblewrap`, `landlock`, `none`.
    pub by: String,
    /// What they let through, and what is missing, for people: one line.
    pub detail: String,
    /// Whether the network can be reached.
    pub network: bool,
}

impl fmt::Display for WallsInForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.by, self.detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_only_narrows_what_the_operator_lets_through() {
        let strings = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
        let operator = WallsAllowed {
            read: strings(&["/opt/sdk"]),
            write: strings(&["/srv/shared"]),
            read_only: false,
            network: true,
        };
        let wanted = WallsAllowed {
            read: strings(&["/opt/sdk/lib", "/opt", "/srv/shared", "/opt/sdk2"]),
            write: strings(&["/srv/shared/a", "/opt/sdk", "/"]),
            read_only: true,
            network: false,
        };
        let narrowed = operator.narrowed(&wanted);
        assert_eq!(narrowed.read, ["/opt/sdk/lib", "/srv/shared"]);
        assert_eq!(narrowed.write, ["/srv/shared/a"]);
        assert!(narrowed.read_only && !narrowed.network);
        let open = WallsAllowed { network: true, ..WallsAllowed::default() };
        assert!(!WallsAllowed::default().narrowed(&open).network);
    }
}
