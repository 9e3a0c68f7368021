//! Records of what prompts name, and of what runs for command templates.

use playhouse_protocol::Record;
use playhouse_protocol::message::{Attachment, BlobRef, Part, PromptKind};
use playhouse_protocol::record::PromptAdmitted;

use crate::samples::*;

/// They, under the names of their golden files.
pub(crate) fn with_mentions_and_blocks() -> Vec<(&'static str, Record)> {
    let Record::PromptAdmitted(admitted) = admitted(3) else { unreachable!("it admits a prompt") };
    let blob = BlobRef { hash: "cd".repeat(32), size: 70 };
    let file = Attachment { mentioned: true, ..Attachment::new("text/plain", "src/main.rs", blob) };
    let kind = PromptKind::Block { command: "git status".to_owned(), template: "fix".to_owned() };
    vec![
        ("prompt.admitted.block", Record::PromptAdmitted(PromptAdmitted { kind, ..admitted.clone() })),
        (
            "prompt.admitted.mentioned",
            Record::PromptAdmitted(PromptAdmitted {
                parts: vec![Part::File { id: part(5), file }],
                ..admitted
            }),
        ),
    ]
}
