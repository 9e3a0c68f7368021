//! Before anything is measured: what counts tokens must see one that is lost and one that comes twice.

use crate::Result;
use crate::body::Body;
use crate::watch::{Feed, Reader, Watch};

/// Tokens of the turn that is read.
const TOKENS: u64 = 3;

/// Fails when a wrong number of tokens would not be told, in any of the wires that clients read.
pub(crate) fn check() -> Result<()> {
    let wires: [(&str, Feed, Line); 3] = [
        ("of the engine", Feed::Of(0), |token| match token {
            Some(token) => format!(r#"data: {{"seq":1,"type":"part.delta","delta":"{token}"}}"#),
            None => r#"data: {"type":"turn.ended","outcome":"completed"}"#.to_owned(),
        }),
        ("v1", Feed::Shared, |token| match token {
            Some(token) => format!(
                r#"data: {{"type":"message.part.delta","properties":{{"sessionID":"ses_1","delta":"{token}"}}}}"#
            ),
            None => r#"data: {"type":"session.idle","properties":{"sessionID":"ses_1"}}"#.to_owned(),
        }),
        ("of the model", Feed::Of(0), |token| match token {
            Some(token) => {
                format!(
                    r#"data: {{"type":"content_block_delta","delta":{{"type":"text_delta","text":"{token}"}}}}"#
                )
            }
            None => r#"data: {"type":"message_stop"}"#.to_owned(),
        }),
    ];
    // Times of tokens, and whether they are all of a turn.
    let turns: [(&[u64], bool); 4] =
        [(&[7, 8, 9], true), (&[7, 9], false), (&[7, 8, 8, 9], false), (&[7, 9, 8], false)];
    for (wire, feed, line) in wires {
        for (times, is_right) in turns {
            // In one piece, and cut everywhere.
            for size in [usize::MAX, 1, 7, 64] {
                let (failed, tokens) = read(feed, line, times, size);
                if (failed == 0) != is_right || tokens != times.len() as u64 {
                    return Err(format!(
                        "the clients cannot count: of the tokens {times:?} of the wire {wire} they saw {tokens}, and {failed} failures"
                    )
                    .into());
                }
            }
        }
    }
    Ok(())
}

/// A line with a token, or the one that ends the turn.
type Line = fn(Option<&str>) -> String;

/// Failures that were told, and tokens that were counted.
fn read(feed: Feed, line: Line, times: &[u64], size: usize) -> (usize, u64) {
    let mut watch = Watch::default();
    watch.of_a_turn = Some(TOKENS);
    watch.session("ses_1");
    watch.begin(0);
    let mut body = String::new();
    let tokens = times.iter().map(|time| Some(format!("@{time:016}")));
    for token in tokens.chain([None]) {
        let chunk = format!("event: x\n{}\n\n", line(token.as_deref()));
        body += &format!("{:X}\r\n{chunk}\r\n", chunk.len());
    }
    let (mut reading, mut reader) = (Body::default(), Reader::of(feed));
    for piece in body.as_bytes().chunks(size.min(body.len())) {
        watch.take(&mut reading, &mut reader, piece);
    }
    (watch.failed, watch.tokens)
}
