//! Records of what calls changed in files.

use playhouse_protocol::changes::{
    ChangeKind, ChangeSet, ChangeSource, ChangedFile, Coverage, FileBefore, FileContent, FileImage,
};
use playhouse_protocol::message::BlobRef;
use playhouse_protocol::record::{CallIntended, Effect, Recovery};
use playhouse_protocol::{LeftFile, MessageId, PartId, Record, SessionReverted, WorkspaceChanged};

use crate::samples::part;

fn image(digit: &str) -> FileImage {
    let blob = BlobRef { hash: digit.repeat(64), size: 12 };
    FileImage { content: FileContent::Blob(blob), mode: 0o100_644 }
}

/// An intent without anything that came later.
pub(crate) fn intended(call: PartId) -> CallIntended {
    CallIntended {
        call,
        effect: Effect::Workspace,
        recovery: Recovery::Interrupt,
        delegate: None,
        before: Vec::new(),
        tracked: false,
    }
}

/// A change set with all that there may be in one.
pub(crate) fn changed(call: PartId) -> Record {
    let lost = FileContent::Lost { sha: "b".repeat(64), size: 3_000_000 };
    let file = |path: &str, kind, before, after| ChangedFile {
        path: path.to_owned(),
        kind,
        before,
        after,
        additions: 2,
        deletions: 1,
        ambiguous: false,
        among: Vec::new(),
    };
    let lost = FileImage { content: lost, mode: 0o100_755 };
    Record::WorkspaceChanged(WorkspaceChanged {
        call,
        set: ChangeSet {
            changes: vec![
                file("src/main.rs", ChangeKind::Modified, Some(image("a")), Some(image("c"))),
                file("new", ChangeKind::Added, None, Some(image("d"))),
                ChangedFile { ambiguous: true, ..file("/etc/x\\xff", ChangeKind::Deleted, Some(lost), None) },
            ],
            folders: Vec::new(),
            source: ChangeSource::Shell,
            coverage: Coverage::Partial { reason: "crash".to_owned() },
        },
    })
}

/// A revert with all that there may be in one.
pub(crate) fn reverted(to: MessageId, call: PartId) -> Record {
    let Record::WorkspaceChanged(WorkspaceChanged { set, .. }) = changed(call) else { unreachable!() };
    Record::Reverted(SessionReverted {
        to: Some(to),
        call: Some(call),
        redone: 0,
        under_way: false,
        set,
        left: vec![LeftFile::path("a", "it changed since"), LeftFile::call(call, "crash")],
        failed: Vec::new(),
    })
}

/// Intents that name files as they were.
pub(crate) fn with_before_images() -> Vec<(&'static str, Record)> {
    let before = vec![
        FileBefore { path: "src/main.rs".to_owned(), image: Some(image("a")), missing_folders: 0 },
        FileBefore { path: "new".to_owned(), image: None, missing_folders: 0 },
    ];
    let intended = CallIntended { before, ..intended(part(11)) };
    let tracked = CallIntended { tracked: true, before: Vec::new(), ..intended.clone() };
    vec![
        ("call.intended.before", Record::CallIntended(intended)),
        ("call.intended.tracked", Record::CallIntended(tracked)),
    ]
}
