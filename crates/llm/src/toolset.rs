//! The tools that a model is shown, and what the dialects say of them.

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
    /// Bytes of names, descriptions and schemas.
    bytes: u64,
    /// What each dialect says of them, once it was asked.
    written: [OnceLock<Box<[u8]>>; DialectKind::COUNT],
}

impl Toolset {
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
        let bytes =
            |spec: &ToolSpec| spec.name.len() + spec.description.len() + spec.parameters.to_string().len();
        let bytes = specs.iter().map(bytes).sum::<usize>() as u64;
        Self(Arc::new(Tools { specs, bytes, written: Default::default() }))
    }
}

impl FromIterator<ToolSpec> for Toolset {
    fn from_iter<I: IntoIterator<Item = ToolSpec>>(specs: I) -> Self {
        specs.into_iter().collect::<Vec<_>>().into()
    }
}

impl PartialEq for Toolset {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || **self == **other
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
    fn equal_tools_are_equal_whoever_made_them() {
        let one: Toolset = vec![tool("read")].into();
        assert_eq!(one, vec![tool("read")].into());
        assert_ne!(one, vec![tool("edit")].into());
        assert_eq!(Toolset::default(), Vec::new().into());
        assert_eq!(format!("{:?}", Toolset::default()), "[]");
    }
}
