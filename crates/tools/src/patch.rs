//! Patches in the format that begins with `*** Begin Patch`: reading them, and applying them to the content of a file.
//!
//! Everything here is pure: text in, bytes out. [`parse()`] reads a patch; [`apply()`] puts the hunks of one file into its
//! content, or says which hunk does not fit and what is there instead. The work is bounded by an [`Effort`].
//!
//! What a patch means where the format leaves it open:
//! - Hunks are in the order of the file: each is looked for after the one before it. A hunk whose first `@@` lines are
//!   those of the hunk before it may go on in the same place.
//! - The lines of a hunk are compared in four passes ([`Pass`]), each looser than the one before; the first pass that
//!   finds the lines decides. Lines of the file that a hunk only mentions keep the bytes that they have.
//! - A hunk of `+` lines alone goes after its `@@` lines; without them, or with `*** End of File`, to the end.
//! - New lines get the line ending that most lines of the file have. Whether the file ends in one stays as it is, unless
//!   `\ No newline at end of file` says otherwise, as in a diff.
//! - Empty lines without a sign in front are empty lines of the file within a hunk, and nothing at the end of one.

mod apply;
mod effort;
mod parse;
mod seek;

pub(crate) use apply::{Applied, Loose, Stop, apply};
pub(crate) use effort::Effort;
pub(crate) use parse::{MOVE, UPDATE, parse};

/// What a patch does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Patch {
    /// Its sections, in their order; at least one.
    pub(crate) sections: Vec<Section>,
}

/// What is done with one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    /// The path as it is written.
    pub(crate) path: String,
    /// What is done.
    pub(crate) action: Action,
}

/// What is done with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// It is made, with this content.
    Add(String),
    /// It is removed.
    Delete,
    /// It is changed, or moved, or both.
    Update {
        /// The changes; none where it is only moved.
        hunks: Vec<Hunk>,
        /// Where it is moved to.
        to: Option<String>,
    },
}

/// One change of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hunk {
    /// Its first line in the patch, from 1.
    pub(crate) number: usize,
    /// The lines of its `@@`, the outer ones first: each is looked for after the one before it.
    pub(crate) contexts: Vec<String>,
    /// Its lines; at least one.
    pub(crate) lines: Vec<Line>,
    /// Whether it stands at the end of the file.
    pub(crate) at_end: bool,
    /// Whether the file ends in a line ending afterwards, where the patch says so.
    pub(crate) ending: Option<bool>,
}

/// A line of a hunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// What happens to it.
    pub(crate) sign: Sign,
    /// The line, without its ending.
    pub(crate) text: String,
}

/// What happens to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// It is there and stays.
    Kept,
    /// It is there and goes.
    Removed,
    /// It is new.
    Added,
}

#[cfg(test)]
mod tests;
