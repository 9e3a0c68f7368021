//! The tools that a model is shown, and what the dialects say of them.

use std::collections::HashSet;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock, OnceLock};

use playhouse_protocol::chat::ToolSpec;

use crate::dialect::DialectKind;

/// Tools that a model is shown, in order. Cheap to clone: whatever is made of them is made once for all that share them, and what
/// models are told of tools is most of a short conversation.
#[derive(Clone)]
pub struct Toolset(Arc<Tools>);

struct Tools {
    specs: Vec<ToolSpec>,
    /// Names of those that the provider searches.
    deferred: HashSet<String>,
    /// Bytes of names, descriptions and schemas.
    bytes: u64,
    /// What each dialect says of them, once it was asked.
    written: [OnceLock<Box<[u8]>>; DialectKind::COUNT],
}

impl Toolset {
    /// These tools, of which those with `deferred` names are not read by a model until the provider's search has found them.
    pub fn deferring(specs: Vec<ToolSpec>, deferred: HashSet<String>) -> Self {
        let bytes = specs.iter().map(bytes).sum();
        Self(Arc::new(Tools { specs, deferred, bytes, written: Default::default() }))
    }

    /// The same tools, each as `rewrite` makes it. Names stay.
    #[must_use]
    pub(crate) fn rewritten(&self, rewrite: impl Fn(ToolSpec) -> ToolSpec) -> Self {
        Self::deferring(self.iter().cloned().map(rewrite).collect(), self.0.deferred.clone())
    }

    /// Whether the provider searches any of them.
    pub fn are_searched(&self) -> bool {
        !self.0.deferred.is_empty()
    }

    /// Whether the tool of this name is one that the provider searches.
    pub fn is_deferred(&self, name: &str) -> bool {
        self.0.deferred.contains(name)
    }

    /// Bytes of what a model reads of them before anything was searched for. Of deferred ones OpenAI's read names and
    /// descriptions, Anthropic's nothing.
    pub fn bytes_read(&self, dialect: DialectKind) -> u64 {
        let unread = |spec: &ToolSpec| match dialect {
            DialectKind::OpenaiResponses => spec.parameters.to_string().len() as u64,
            _ => bytes(spec),
        };
        let deferred = self.iter().filter(|spec| self.is_deferred(&spec.name));
        self.bytes() - deferred.map(unread).sum::<u64>()
    }

    /// Bytes of their names and descriptions, and of their schemas as JSON.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// What `dialect` says of them: `write` is asked once, whatever it is asked of later.
    pub(crate) fn written(
        &self,
        dialect: DialectKind,
        write: impl FnOnce(&[ToolSpec], &mut Vec<u8>),
    ) -> &[u8] {
        self.0.written[dialect as usize].get_or_init(|| {
            let mut out = Vec::new();
            write(&self.0.specs, &mut out);
            out.into_boxed_slice()
        })
    }
}

impl Deref for Toolset {
    type Target = [ToolSpec];

    fn deref(&self) -> &[ToolSpec] {
        &self.0.specs
    }
}

impl Default for Toolset {
    /// No tools. Takes no memory: there are as many as there are conversations.
    fn default() -> Self {
        static NONE: LazyLock<Toolset> = LazyLock::new(|| Vec::new().into());
        NONE.clone()
    }
}

impl From<Vec<ToolSpec>> for Toolset {
    fn from(specs: Vec<ToolSpec>) -> Self {
        Self::deferring(specs, HashSet::new())
    }
}

fn bytes(spec: &ToolSpec) -> u64 {
    (spec.name.len() + spec.description.len() + spec.parameters.to_string().len()) as u64
}

impl FromIterator<ToolSpec> for Toolset {
    fn from_iter<I: IntoIterator<Item = ToolSpec>>(specs: I) -> Self {
        specs.into_iter().collect::<Vec<_>>().into()
    }
}

impl PartialEq for Toolset {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (**self == **other && self.0.deferred == other.0.deferred)
    }
}

impl fmt::Debug for Toolset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Head, Transcript};

    fn tool(name: &str) -> ToolSpec {
        ToolSpec { name: name.into(), description: "Does it.".into(), parameters: json!({"type": "object"}) }
    }

    #[test]
    fn each_dialect_writes_them_once_and_in_its_own_words() {
        let tools: Toolset = [tool("read"), tool("edit")].into_iter().collect();
        assert_eq!(tools.bytes(), 2 * (4 + 8 + 17));
        let request = |dialect| {
            let head = Head { tools: tools.clone(), ..Head::default() };
            let body = Transcript::new(dialect, &head).request(crate::ToolChoice::Auto);
            String::from_utf8(body.to_vec()).unwrap()
        };
        let dialects = [
            DialectKind::Anthropic,
            DialectKind::OpenaiChat,
            DialectKind::OpenaiResponses,
            DialectKind::Gemini,
        ];
        let first = dialects.map(request);
        assert_eq!(dialects.map(request), first);
        for (index, body) in first.iter().enumerate() {
            assert!(body.contains(r#""name":"edit""#), "{body}");
            assert!(!first[..index].contains(body));
        }
        let kept = |dialect| tools.written(dialect, |_, _| unreachable!("it was written before")).len();
        assert!(dialects.map(kept).into_iter().all(|length| length > 20));
    }

    #[test]
    fn deferred_tools_are_written_as_such_and_read_in_part() {
        let deferred = HashSet::from(["edit".to_owned()]);
        let tools = Toolset::deferring(vec![tool("read"), tool("edit")], deferred);
        assert_ne!(tools, vec![tool("read"), tool("edit")].into());
        let read = [DialectKind::Anthropic, DialectKind::OpenaiResponses].map(|of| tools.bytes_read(of));
        assert_eq!((tools.bytes(), read), (58, [29, 41]));
        let head = Head { tools: tools.rewritten(|tool| tool), ..Head::default() };
        let body = |dialect| {
            let body = Transcript::new(dialect, &head).request(crate::ToolChoice::Auto);
            serde_json::from_slice::<serde_json::Value>(&body).unwrap()["tools"].clone()
        };
        let schema = json!({"type": "object"});
        assert_eq!(
            body(DialectKind::Anthropic),
            json!([
                {"name": "read", "description": "Does it.", "input_schema": schema},
                {"name": "edit", "description": "Does it.", "input_schema": schema, "defer_loading": true},
                {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex",
                    "cache_control": {"type": "ephemeral"}},
            ])
        );
        let function =
            json!({"type": "function", "description": "Does it.", "parameters": schema, "strict": false});
        let with = |more: serde_json::Value| {
            let mut function = function.clone();
            function.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            function
        };
        assert_eq!(
            body(DialectKind::OpenaiResponses),
            json!([with(json!({"name": "read"})), with(json!({"name": "edit", "defer_loading": true})), {"type": "tool_search"}])
        );
    }

    #[test]
    fn equal_tools_are_equal_whoever_made_them() {
        let one: Toolset = vec![tool("read")].into();
        assert_eq!(one, vec![tool("read")].into());
        assert_ne!(one, vec![tool("edit")].into());
        assert_eq!(Toolset::default(), Vec::new().into());
        assert_eq!(format!("{:?}", Toolset::default()), "[]");
    }
}
