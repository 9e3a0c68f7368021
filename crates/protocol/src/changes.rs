//! What calls changed in files: before-images, change sets, and where the content lies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::PartId;
use crate::message::BlobRef;

/// Where the content of a file is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "in", rename_all = "snake_case")]
pub enum FileContent {
    /// In the blob store of the tenant.
    Blob(BlobRef),
    /// Nowhere: it was too large to be kept, or could not be stored. The change cannot be reverted.
    Lost {
        /// SHA-256 of the content, 64 hex digits.
        sha: String,
        /// Size in bytes.
        size: u64,
    },
}

impl FileContent {
    /// SHA-256 of the content, 64 hex digits.
    pub fn sha(&self) -> &str {
        match self {
            Self::Blob(blob) => &blob.hash,
            Self::Lost { sha, .. } => sha,
        }
    }

    /// The blob that holds it.
    pub const fn blob(&self) -> Option<&BlobRef> {
        match self {
            Self::Blob(blob) => Some(blob),
            Self::Lost { .. } => None,
        }
    }
}

/// A file as it is at one time. That of a symbolic link has the path that it leads to as its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileImage {
    /// The content.
    pub content: FileContent,
    /// Type and permission bits, as in `st_mode`.
    pub mode: u32,
}

/// A file that a call is about to change, as it is before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileBefore {
    /// From the workspace on; the whole path of one that lies elsewhere. See [`ChangedFile::path`].
    pub path: String,
    /// The file; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<FileImage>,
    /// Number of folders right above it that do not exist.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub missing_folders: u32,
}

/// How a file changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// There was none before.
    Added,
    /// Content or permissions differ.
    Modified,
    /// There is none any more.
    Deleted,
}

impl ChangeKind {
    /// How a file changed that was there `before` or not, and is there `after` or not.
    pub const fn of(before: bool, after: bool) -> Self {
        match (before, after) {
            (false, _) => Self::Added,
            (true, true) => Self::Modified,
            (true, false) => Self::Deleted,
        }
    }
}

/// A file that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedFile {
    /// From the workspace on, with `/` between names; the whole path of one that lies elsewhere. A backslash is written
    /// `\\`, a byte that is no UTF-8 `\xNN`.
    pub path: String,
    /// How it changed.
    pub kind: ChangeKind,
    /// The file before; absent where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<FileImage>,
    /// The file after; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<FileImage>,
    /// Lines that were added; 0 for binary content.
    #[serde(default)]
    pub additions: u64,
    /// Lines that were removed; 0 for binary content.
    #[serde(default)]
    pub deletions: u64,
    /// A command of another session ran at the same time: nobody can tell whose change it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ambiguous: bool,
    /// Of an ambiguous change: the sessions one of which made it, this one among them. Empty: anybody may have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub among: Vec<String>,
}

impl ChangedFile {
    /// A change of the file at `path`, of which no lines were counted.
    pub fn new(path: impl Into<String>, before: Option<FileImage>, after: Option<FileImage>) -> Self {
        let kind = ChangeKind::of(before.is_some(), after.is_some());
        let (additions, deletions, ambiguous, among) = (0, 0, false, Vec::new());
        Self { path: path.into(), kind, before, after, additions, deletions, ambiguous, among }
    }
}

/// A folder that was made or removed, or whose permissions changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedFolder {
    /// As that of a file, without a slash at its end.
    pub path: String,
    /// Permission bits before; absent where there was no folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u32>,
    /// Permission bits after; absent where there is no folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u32>,
    /// A command of another session ran at the same time: nobody can tell whose change it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ambiguous: bool,
    /// Of an ambiguous change: the sessions one of which made it, this one among them. Empty: anybody may have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub among: Vec<String>,
}

/// Who saw a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeSource {
    /// The tool that wrote the files.
    #[default]
    Tool,
    /// A comparison of the workspace before and after a call.
    Shell,
    /// Another agent program.
    Foreign,
}

/// Whether a change set names all that a call changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Coverage {
    /// All of it.
    #[default]
    Full,
    /// Not all of it.
    Partial {
        /// What is missing, and why: `crash`, or a sentence.
        reason: String,
    },
}

/// What one call changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ChangeSet {
    /// The files, each once, by path.
    pub changes: Vec<ChangedFile>,
    /// The folders that were made or removed, or have other permissions, each once, by path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folders: Vec<ChangedFolder>,
    /// Who saw it.
    pub source: ChangeSource,
    /// Whether that is all.
    #[serde(default)]
    pub coverage: Coverage,
}

impl ChangeSet {
    /// A set that names nothing, and says why.
    pub fn unknown(source: ChangeSource, reason: impl Into<String>) -> Self {
        Self { source, coverage: Coverage::Partial { reason: reason.into() }, ..Self::default() }
    }

    /// Whether it says nothing: no file, no folder, and none that might be missing.
    pub fn is_nothing(&self) -> bool {
        self.changes.is_empty() && self.folders.is_empty() && self.coverage == Coverage::Full
    }
}

/// A file that a call changed, as its part of a message tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TouchedFile {
    /// The absolute path.
    pub path: String,
    /// How it changed.
    pub kind: ChangeKind,
    /// Lines that were added.
    pub additions: u64,
    /// Lines that were removed.
    pub deletions: u64,
}

/// The files that a call changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TouchedFiles(pub Vec<TouchedFile>);

/// Files that a call of the session changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceChanged {
    /// The call.
    pub call: PartId,
    /// What it changed.
    #[serde(flatten)]
    pub set: ChangeSet,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_set_reads_back_and_its_blobs_are_found() {
        let blob = BlobRef { hash: "a".repeat(64), size: 3 };
        let image = FileImage { content: FileContent::Blob(blob), mode: 0o100_644 };
        let lost = FileContent::Lost { sha: "b".repeat(64), size: 9 };
        let changed = WorkspaceChanged {
            call: PartId::parse("prt_00000000000012345678901234").unwrap(),
            set: ChangeSet {
                changes: vec![ChangedFile {
                    path: "a.txt".to_owned(),
                    kind: ChangeKind::Modified,
                    before: Some(image.clone()),
                    after: Some(FileImage { content: lost, ..image }),
                    additions: 1,
                    deletions: 0,
                    ambiguous: true,
                    among: vec!["ses_1".to_owned()],
                }],
                folders: vec![ChangedFolder {
                    path: "logs".to_owned(),
                    before: Some(0o700),
                    after: None,
                    ambiguous: false,
                    among: Vec::new(),
                }],
                source: ChangeSource::Shell,
                coverage: Coverage::Partial { reason: "crash".to_owned() },
            },
        };
        let text = serde_json::to_string(&changed).unwrap();
        assert_eq!(serde_json::from_str::<WorkspaceChanged>(&text).unwrap(), changed, "{text}");
        assert!(text.contains(&format!("\"hash\":\"{}\"", "a".repeat(64))), "{text}");
        assert!(text.contains(&format!("\"sha\":\"{}\"", "b".repeat(64))), "{text}");
    }
}
