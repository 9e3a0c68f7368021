//! Items of an answer: as events hold them, and as far as they have come.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::json::{Arguments, Text, arguments, fitting, text};
use crate::members;
use crate::search;

/// What stands between the sections of a summary of reasoning.
pub(super) const BETWEEN_SECTIONS: &str = "\n\n";

/// An item that began.
pub(super) struct Item {
    /// Its index, where the server gave one.
    pub(super) index: Option<u64>,
    /// Its id or, where it has none, that of its call; empty where the server gave neither.
    pub(super) id: String,
    pub(super) kind: Kind,
    /// Whether any of it came in pieces. If not, it comes with the item's end.
    pub(super) streamed: bool,
    /// Whether its end came.
    pub(super) ended: bool,
    /// Members that go back with it.
    pub(super) members: Option<Value>,
}

/// What an item is, with what is known of it.
pub(super) enum Kind {
    Message,
    /// `section`: the section of the summary that is being said.
    Reasoning {
        section: Option<u64>,
    },
    /// `number`: its number, once its name is known. `held`: arguments that came before that.
    Call {
        number: Option<usize>,
        held: String,
    },
    /// Half of a search of tools by the provider.
    Search,
    /// Of a kind that is not known here.
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum KindName {
    Message,
    Reasoning,
    Call,
    Search,
    Other,
}

impl Kind {
    pub(super) fn name(&self) -> KindName {
        match self {
            Self::Message => KindName::Message,
            Self::Reasoning { .. } => KindName::Reasoning,
            Self::Call { .. } => KindName::Call,
            Self::Search => KindName::Search,
            Self::Other => KindName::Other,
        }
    }
}

impl Item {
    pub(super) fn new(index: Option<u64>, id: &str, kind: Kind) -> Self {
        Self { index, id: id.to_owned(), kind, streamed: false, ended: false, members: None }
    }

    /// Whether `data` may be of this item.
    pub(super) fn is_of(&self, data: &ItemData<'_>) -> bool {
        let id = data.id();
        let same_id = self.id.is_empty() || id.is_empty() || self.id == id;
        self.kind.name() == data.kind_name() && (same_id || !self.ended)
    }

    /// Whether `data` is this item once more, and not another one with the same index.
    pub(super) fn is_again(&self, data: &ItemData<'_>) -> bool {
        self.kind.name() == data.kind_name() && self.id == data.id() && !(self.ended && self.id.is_empty())
    }
}

/// An item as an event holds it.
#[derive(Deserialize)]
pub(super) struct ItemData<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow, default, deserialize_with = "fitting")]
    id: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "fitting")]
    pub(super) call_id: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    arguments: Option<Arguments<'a>>,
    #[serde(borrow)]
    encrypted_content: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "fitting")]
    pub(super) content: Option<Vec<Piece<'a>>>,
    #[serde(borrow, default, deserialize_with = "fitting")]
    summary: Option<Vec<Piece<'a>>>,
    #[serde(default, deserialize_with = "fitting")]
    phase: Option<Value>,
    #[serde(default, deserialize_with = "fitting")]
    namespace: Option<Value>,
    #[serde(default, deserialize_with = "fitting")]
    caller: Option<Value>,
    #[serde(default, deserialize_with = "fitting")]
    extra_content: Option<Value>,
    #[serde(default, deserialize_with = "fitting")]
    provider_specific_fields: Option<Value>,
    #[serde(default, deserialize_with = "fitting")]
    thought_signature: Option<Value>,
    /// All of it, for an item that goes back as it came.
    #[serde(skip)]
    pub(super) raw: Option<Value>,
}

#[derive(Deserialize)]
pub(super) struct Piece<'a> {
    #[serde(borrow)]
    pub(super) text: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) refusal: Option<Text<'a>>,
}

impl ItemData<'_> {
    pub(super) fn kind_name(&self) -> KindName {
        match &*self.kind {
            "message" => KindName::Message,
            "reasoning" => KindName::Reasoning,
            "function_call" => KindName::Call,
            kind if search::RESPONSES.is_half(kind, None) => KindName::Search,
            _ => KindName::Other,
        }
    }

    /// Its id or, where it has none, that of its call.
    pub(super) fn id(&self) -> &str {
        match text(&self.id) {
            "" => text(&self.call_id),
            id => id,
        }
    }

    pub(super) fn arguments(&self) -> &str {
        arguments(&self.arguments)
    }

    /// The readable reasoning: its summary or, where there is none, all of it.
    pub(super) fn thoughts(&self) -> String {
        let sections = |pieces: &Option<Vec<Piece<'_>>>| -> Vec<String> {
            let texts = pieces.iter().flatten().map(|piece| text(&piece.text).to_owned());
            texts.filter(|section| !section.is_empty()).collect()
        };
        let summary = sections(&self.summary);
        let sections = if summary.is_empty() { sections(&self.content) } else { summary };
        sections.join(BETWEEN_SECTIONS)
    }

    /// Members that go back with the message or the call.
    pub(super) fn members(&self) -> Option<Value> {
        members::kept([
            ("phase", &self.phase),
            ("namespace", &self.namespace),
            ("caller", &self.caller),
            ("extra_content", &self.extra_content),
            ("provider_specific_fields", &self.provider_specific_fields),
            ("thought_signature", &self.thought_signature),
        ])
    }

    /// What goes back unchanged.
    pub(super) fn opaque(&self) -> Option<Value> {
        let encrypted = text(&self.encrypted_content);
        (!encrypted.is_empty())
            .then(|| json!({"reasoning_id": text(&self.id), "encrypted_content": encrypted}))
    }
}
