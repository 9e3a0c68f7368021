//! A turn as one text: what the model says as it is, and a tag wherever a call begins or ends. For renderers that take one
//! stream.
//!
//! A call is `<opencode-tool name="…" status="running" title="…" toolid="…"></opencode-tool>` when it begins, and the same
//! with `completed` and its output, or `error` and the message, when it ends. A call of an MCP server's tool is
//! `<anyon-mcp-tool-call server="…" tool="…" status="running" toolid="…">` with its arguments as JSON, and then
//! `<anyon-mcp-tool-result …>`. A tag that
//! is opened is closed at once. Attributes and bodies are escaped as XML, and hold no character that XML has no place for;
//! the model's text between the tags is left as it is.
//!
//! [`TagStream`] makes the stream of a session's events, from any [`TagPlace`] on.

mod stream;

use std::collections::{HashMap, HashSet};

use playhouse_protocol::id::PartId;
use playhouse_protocol::message::{CallOutcome, CallResult};
use playhouse_protocol::record::CallProposed;
use serde_json::Value;

use crate::about;
pub use stream::{TagPlace, TagStream};

/// A call, as tags name it.
#[derive(Clone, Debug, PartialEq)]
pub struct TaggedCall {
    /// The MCP server whose tool it is; `None` for every other tool.
    pub server: Option<String>,
    /// The tool, by its name at its server.
    pub tool: String,
    /// What it is about, in one line.
    pub title: String,
    /// Names it in the stream.
    pub id: String,
    /// The arguments.
    pub input: Value,
}

/// Where a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage<'a> {
    /// It runs.
    Running,
    /// It is done; its output.
    Completed(&'a str),
    /// It failed; what the model reads of it.
    Error(&'a str),
}

/// The tag of a call.
pub fn tag(call: &TaggedCall, stage: Stage<'_>) -> String {
    let (status, body) = match stage {
        Stage::Running => ("running", ""),
        Stage::Completed(output) => ("completed", output),
        Stage::Error(message) => ("error", message),
    };
    let TaggedCall { server, tool, title, id, input } = call;
    let Some(server) = server else {
        let attributes = attributes(&[("name", tool), ("status", status), ("title", title), ("toolid", id)]);
        return format!("<opencode-tool{attributes}>{}</opencode-tool>", escaped(body, false));
    };
    if stage == Stage::Running {
        let attributes =
            attributes(&[("server", server), ("tool", tool), ("status", status), ("toolid", id)]);
        let input = input.to_string();
        return format!("<anyon-mcp-tool-call{attributes}>{}</anyon-mcp-tool-call>", escaped(&input, false));
    }
    let attributes = attributes(&[("server", server), ("tool", tool), ("status", status), ("toolid", id)]);
    format!("<anyon-mcp-tool-result{attributes}>{}</anyon-mcp-tool-result>", escaped(body, false))
}

fn attributes(pairs: &[(&str, &str)]) -> String {
    pairs.iter().map(|(name, value)| format!(" {name}=\"{}\"", escaped(value, true))).collect()
}

/// Text as it may stand in XML 1.0. White space of attributes is written out, since readers would make spaces of it.
fn escaped(text: &str, attribute: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' if attribute => out.push_str("&quot;"),
            '\t' if attribute => out.push_str("&#9;"),
            '\n' if attribute => out.push_str("&#10;"),
            // Readers would make a line break of it, or one of it and the one behind it.
            '\r' => out.push_str("&#13;"),
            '\t' | '\n' => out.push(character),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ if character < ' ' => out.push('\u{fffd}'),
            _ => out.push(character),
        }
    }
    out
}

/// The calls of a stream, and which tags they have had.
#[derive(Debug, Default)]
pub struct Tags {
    /// Calls that have no result yet, in the order in which they were proposed.
    order: Vec<PartId>,
    calls: HashMap<PartId, TaggedCall>,
    /// Those of them that are announced as running.
    running: HashSet<PartId>,
    /// Names that are taken.
    ids: HashSet<String>,
}

impl Tags {
    /// A call was proposed. It has no tag before it runs.
    pub fn proposed(&mut self, proposed: &CallProposed) {
        let of_server = proposed.source.as_ref().and_then(|source| source.mcp());
        let (server, tool) = match of_server {
            Some((server, tool)) => (Some(server), tool),
            None => (None, &*proposed.tool),
        };
        let call = TaggedCall {
            server: server.map(str::to_owned),
            tool: tool.to_owned(),
            title: about::title(&proposed.input),
            id: self.free_id(proposed),
            input: proposed.input.to_value(),
        };
        if self.calls.insert(proposed.call, call).is_none() {
            self.order.push(proposed.call);
        }
    }

    /// The provider's own id where it is new here: some count the calls of each answer from the beginning.
    fn free_id(&mut self, proposed: &CallProposed) -> String {
        let wanted =
            if proposed.call_id.is_empty() { proposed.call.as_str() } else { proposed.call_id.as_str() };
        let mut id = wanted.to_owned();
        let mut number = 2;
        while !self.ids.insert(id.clone()) {
            id = format!("{wanted}-{number}");
            number += 1;
        }
        id
    }

    /// A call runs. `None` for one that was announced (it runs again after a restart), or never proposed.
    pub fn running(&mut self, call: PartId) -> Option<String> {
        let tagged = self.calls.get(&call)?;
        self.running.insert(call).then(|| tag(tagged, Stage::Running))
    }

    /// A call has its result. One that may not run has this tag only.
    pub fn settled(&mut self, call: PartId, result: &CallResult) -> Option<String> {
        let announced = self.running.contains(&call);
        let mut tagged = self.take(call)?;
        // Who was shown a title when it began finds it by that again.
        if !result.title.is_empty() && (tagged.title.is_empty() || !announced) {
            tagged.title.clone_from(&result.title);
        }
        Some(match result.outcome {
            CallOutcome::Done => tag(&tagged, Stage::Completed(&result.output)),
            _ => tag(&tagged, Stage::Error(&result.output)),
        })
    }

    /// The stream ends: the tags of calls that run and whose result nobody will see.
    pub fn close(&mut self) -> Vec<String> {
        let mut left: Vec<PartId> = std::mem::take(&mut self.order);
        left.retain(|call| self.running.contains(call));
        let end =
            |call| Some(tag(&self.take(call)?, Stage::Error("its result is not known: the stream ended")));
        left.into_iter().filter_map(end).collect()
    }

    fn take(&mut self, call: PartId) -> Option<TaggedCall> {
        self.order.retain(|open| *open != call);
        self.running.remove(&call);
        self.calls.remove(&call)
    }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::Timestamp;
    use playhouse_protocol::id::MessageId;
    use playhouse_protocol::message::CallInput;
    use playhouse_protocol::tool::ToolOrigin;
    use serde_json::{Map, json};

    use super::*;

    fn part(number: u64) -> PartId {
        PartId::parse(&format!("prt_{number:012x}Part1234567890")).unwrap()
    }

    fn proposed(number: u64, call_id: &str, tool: &str) -> CallProposed {
        about(number, call_id, tool, "")
    }

    fn about(number: u64, call_id: &str, tool: &str, title: &str) -> CallProposed {
        CallProposed::new(
            part(number),
            MessageId::parse("msg_000000000001Mess1234567890").unwrap(),
            call_id,
            tool,
            CallInput::from_model(&json!({"description": title}).to_string()),
        )
    }

    fn result(outcome: CallOutcome, title: &str, output: &str) -> CallResult {
        CallResult {
            outcome,
            title: title.to_owned(),
            output: output.to_owned(),
            metadata: Map::new(),
            attachments: Vec::new(),
            started: Timestamp::from_millis(1),
            ended: Timestamp::from_millis(2),
        }
    }

    #[test]
    fn a_call_is_announced_and_completed_under_one_id() {
        let mut tags = Tags::default();
        tags.proposed(&about(1, "call_1", "bash", "make <all> \"now\"\tthen"));
        assert_eq!(
            tags.running(part(1)).unwrap(),
            "<opencode-tool name=\"bash\" status=\"running\" title=\"make &lt;all&gt; &quot;now&quot;&#9;then\" \
             toolid=\"call_1\"></opencode-tool>"
        );
        assert_eq!(tags.running(part(1)), None, "it runs again after a restart");
        assert_eq!(
            tags.settled(part(1), &result(CallOutcome::Done, "", "a & b\n\"c\" \u{1b}[1m\r\n")).unwrap(),
            "<opencode-tool name=\"bash\" status=\"completed\" title=\"make &lt;all&gt; &quot;now&quot;&#9;then\" \
             toolid=\"call_1\">a &amp; b\n\"c\" \u{fffd}[1m&#13;\n</opencode-tool>"
        );
        assert_eq!(tags.settled(part(1), &result(CallOutcome::Done, "", "")), None);
        assert!(tags.close().is_empty());
    }

    #[test]
    fn a_call_has_one_title() {
        let mut tags = Tags::default();
        for (number, before, shown) in [(1, "make all", "make all"), (2, "", "of the result")] {
            tags.proposed(&about(number, "", "bash", before));
            tags.running(part(number)).unwrap();
            let end = tags.settled(part(number), &result(CallOutcome::Done, "of the result", "")).unwrap();
            assert!(end.contains(&format!("title=\"{shown}\"")), "{end}");
        }
    }

    #[test]
    fn every_end_that_is_no_good_one_is_an_error() {
        use CallOutcome::{Cancelled, Crashed, Declined, Failed, Interrupted};
        for outcome in [Failed, Declined, Cancelled, Interrupted, Crashed] {
            let mut tags = Tags::default();
            tags.proposed(&about(1, "c", "read", "a.txt"));
            assert_eq!(
                tags.settled(part(1), &result(outcome, "b.txt", "no </opencode-tool>")).unwrap(),
                "<opencode-tool name=\"read\" status=\"error\" title=\"b.txt\" toolid=\"c\">\
                 no &lt;/opencode-tool&gt;</opencode-tool>"
            );
        }
    }

    #[test]
    fn ids_that_repeat_are_told_apart() {
        let mut tags = Tags::default();
        for (number, id) in [(1, "call_0"), (2, "call_0"), (3, "call_0"), (4, "")] {
            tags.proposed(&proposed(number, id, "read"));
        }
        let ids = (1..=4).map(|number| {
            let tag = tags.running(part(number)).unwrap();
            tag.split("toolid=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
        });
        assert_eq!(ids.collect::<Vec<_>>(), ["call_0", "call_0-2", "call_0-3", part(4).as_str()]);
    }

    #[test]
    fn what_is_announced_is_ended_when_the_stream_ends() {
        let mut tags = Tags::default();
        for number in 1..=3 {
            tags.proposed(&proposed(number, &format!("c{number}"), "bash"));
        }
        tags.running(part(3)).unwrap();
        tags.running(part(1)).unwrap();
        let ends = tags.close();
        assert_eq!(ends.len(), 2, "the second never ran: {ends:?}");
        assert!(ends[0].contains("status=\"error\"") && ends[0].contains("toolid=\"c1\""), "{ends:?}");
        assert!(ends[1].contains("toolid=\"c3\""), "{ends:?}");
    }

    #[test]
    fn a_call_of_an_mcp_server_is_told_by_its_source() {
        let mut tags = Tags::default();
        let source = ToolOrigin::Mcp { server: "files".to_owned(), tool: "read.all".to_owned() };
        let of_server =
            CallProposed { source: Some(source.into()), ..proposed(1, "a", "mcp_files_read_all") };
        tags.proposed(&of_server);
        tags.proposed(&CallProposed { source: Some(ToolOrigin::Host.into()), ..proposed(2, "b", "deploy") });
        let running = [1, 2].map(|number| tags.running(part(number)).unwrap());
        assert!(
            running[0].starts_with("<anyon-mcp-tool-call server=\"files\" tool=\"read.all\" "),
            "{running:?}"
        );
        assert!(running[1].starts_with("<opencode-tool name=\"deploy\" "), "{running:?}");
    }

    #[test]
    fn calls_of_mcp_servers_have_tags_of_their_own() {
        let call = TaggedCall {
            server: Some("files \"x\"".to_owned()),
            tool: "read".to_owned(),
            title: "not shown".to_owned(),
            id: "c".to_owned(),
            input: json!({"path": "<a>"}),
        };
        assert_eq!(
            tag(&call, Stage::Running),
            "<anyon-mcp-tool-call server=\"files &quot;x&quot;\" tool=\"read\" status=\"running\" toolid=\"c\">{\"path\":\"&lt;a&gt;\"}\
             </anyon-mcp-tool-call>"
        );
        assert_eq!(
            tag(&call, Stage::Completed("1 < 2")),
            "<anyon-mcp-tool-result server=\"files &quot;x&quot;\" tool=\"read\" status=\"completed\" toolid=\"c\">1 &lt; 2\
             </anyon-mcp-tool-result>"
        );
        assert!(
            tag(&call, Stage::Error("no"))
                .contains("status=\"error\" toolid=\"c\">no</anyon-mcp-tool-result>")
        );
    }

    #[test]
    fn nothing_that_xml_has_no_place_for_is_left() {
        let all: String = (0..=0x2_ffff).filter_map(char::from_u32).collect();
        for attribute in [false, true] {
            let text = escaped(&all, attribute);
            let bad = |character: &char| matches!(character, '\0'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' | '<' | '>');
            assert_eq!(text.chars().find(bad), None);
            assert_eq!(text.contains(['\n', '\t', '"']), !attribute);
        }
    }
}
