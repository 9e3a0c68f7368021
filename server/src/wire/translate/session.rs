//! Sessions.

use playhouse_protocol::{PermissionRule, SessionId, SessionSummary, Timestamp};

use super::dollars;
use crate::wire::place::Place;
use crate::wire::shapes::{Session, SessionChanges, SessionModel, SessionRevert, SessionTime, SessionTokens};

const QUALITIES: [&str; 32] = [
    "amber", "brisk", "calm", "clear", "crisp", "deep", "eager", "early", "fair", "fine", "fresh", "gentle",
    "glad", "golden", "grand", "green", "kind", "late", "light", "lively", "merry", "mild", "neat", "noble",
    "plain", "quick", "quiet", "silver", "steady", "sunny", "warm", "wide",
];
const THINGS: [&str; 32] = [
    "anchor", "bridge", "brook", "candle", "canyon", "cedar", "cloud", "comet", "delta", "ember", "falcon",
    "fern", "forest", "garden", "harbor", "heron", "island", "lantern", "maple", "meadow", "mill", "orchard",
    "otter", "pebble", "prairie", "raven", "river", "sparrow", "summit", "tower", "valley", "willow",
];

/// A session of this engine's version. `permissions` are its own rules, where they are known.
pub(crate) fn session(
    summary: &SessionSummary,
    place: &Place,
    version: &str,
    permissions: Option<&[PermissionRule]>,
) -> Session {
    let totals = summary.totals();
    let (tokens, changed) = (totals.tokens, summary.changed);
    Session {
        id: summary.id,
        slug: slug(summary.id),
        project: place.project.to_string(),
        directory: summary.workspace.clone(),
        path: Some(place.path().to_owned()),
        parent: summary.parent,
        summary: (!changed.is_nothing()).then_some(SessionChanges {
            additions: changed.additions,
            deletions: changed.deletions,
            files: changed.files,
        }),
        cost: dollars(totals.cost.0),
        tokens: SessionTokens {
            input: tokens.input,
            output: tokens.output,
            reasoning: tokens.reasoning,
            cache: super::message::cache(&tokens),
        },
        title: summary.title.clone(),
        agent: Some(summary.agent.clone()),
        model: Some(SessionModel {
            id: summary.model.model.clone(),
            provider: summary.model.provider.clone(),
            variant: None,
        }),
        version: version.to_owned(),
        time: SessionTime {
            created: summary.created.as_millis(),
            updated: summary.updated.as_millis(),
            archived: summary.archived.map(Timestamp::as_millis),
        },
        metadata: summary.metadata.clone(),
        revert: summary.reverted.map(|point| SessionRevert { message: point.message, part: point.call }),
        permission: permissions.filter(|rules| !rules.is_empty()).map(<[_]>::to_vec),
    }
}

/// Two words that are easy to say, made from the id.
fn slug(id: SessionId) -> String {
    let mix = id.as_str().bytes().fold(17u32, |mix, byte| mix.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let (quality, thing) = (mix >> 8 & 31, mix >> 16 & 31);
    format!("{}-{}", QUALITIES[quality as usize], THINGS[thing as usize])
}
