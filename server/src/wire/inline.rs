//! Attached files as part of the answer: small ones are `data:` addresses, as clients expect them; the others are to be
//! fetched from this server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use playhouse_protocol::SessionId;
use playhouse_protocol::message::BlobRef;

use super::shapes::{MessageWithParts, Part, ToolState, WireEvent};
use crate::app::App;

/// The largest file that is written into an answer, and into an event, in bytes.
const LARGEST: u64 = 1024 * 1024;
const LARGEST_IN_EVENT: u64 = 256 * 1024;
/// The most bytes of files that are written into one answer.
const MOST: u64 = 8 * 1024 * 1024;

/// Where a file is to be had: a path of this server.
pub(super) fn address(session: SessionId, hash: &str) -> String {
    format!("/v1/sessions/{session}/attachments/{hash}")
}

/// Writes the files of these messages into them, as far as they are small; those of the last messages first.
pub(super) async fn messages(app: &App, tenant: &str, messages: &mut [MessageWithParts]) {
    let mut room = Room { app, tenant, largest: LARGEST, left: MOST };
    for part in messages.iter_mut().rev().flat_map(|message| &mut message.parts) {
        room.part(part).await;
    }
}

/// The same for events.
pub(super) async fn events(app: &App, tenant: &str, events: &mut [WireEvent]) {
    let mut room = Room { app, tenant, largest: LARGEST_IN_EVENT, left: MOST };
    for event in events {
        if let WireEvent::PartUpdated { part, .. } = event {
            room.part(part).await;
        }
    }
}

struct Room<'a> {
    app: &'a App,
    tenant: &'a str,
    largest: u64,
    left: u64,
}

impl Room<'_> {
    async fn part(&mut self, part: &mut Part) {
        match part {
            Part::File { .. } => self.file(part).await,
            Part::Tool { state: ToolState::Completed { attachments, .. }, .. } => {
                for file in attachments {
                    self.file(file).await;
                }
            }
            _ => {}
        }
    }

    async fn file(&mut self, part: &mut Part) {
        let Part::File { mime, url, blob: Some(blob), .. } = part else { return };
        if blob.size > self.largest.min(self.left) || !is_plain(mime) {
            return;
        }
        match self.app.engine().blob(self.tenant, BlobRef::clone(blob)).await {
            Ok(content) => {
                self.left -= blob.size;
                *url = format!("data:{mime};base64,{}", STANDARD.encode(content));
            }
            Err(error) => tracing::warn!(hash = blob.hash, %error, "an attached file cannot be read"),
        }
    }
}

/// Whether a media type can stand in an address as it is.
fn is_plain(mime: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/+-._".contains(&byte);
    !mime.is_empty() && mime.bytes().all(plain)
}
