//! What an answer used: every provider counts in its own way, and becomes exclusive counts here.
//!
//! Which way that is belongs to the provider and the dialect ([`UsageConvention`]) and is never read from the figures.

mod anthropic;
mod inclusive;

use playhouse_protocol::Usage;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::DialectKind;

/// How a provider counts tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UsageConvention {
    /// Classes of input are exclusive; reasoning is output.
    Anthropic,
    /// Cached tokens are part of the prompt's, reasoning is part of the completion's.
    OpenaiChat,
    /// The same with the names of Responses.
    OpenaiResponses,
    /// Cached tokens are part of the prompt's; thoughts stand beside the candidates'.
    Gemini,
    /// As `openai-chat`, but hits and misses of the cache have fields of their own, and add up to the prompt.
    DeepseekChat,
    /// As `openai-chat`, but reasoning stands beside the completion.
    XaiChat,
    /// As `openai-chat`, and tokens written to a cache are part of the prompt's.
    OpenrouterChat,
    /// As `openrouter-chat`, with another name for what was written.
    AlibabaChat,
}

/// Who counts otherwise than the dialect's own provider does.
const EXCEPTIONS: [(&str, DialectKind, UsageConvention); 4] = [
    ("deepseek", DialectKind::OpenaiChat, UsageConvention::DeepseekChat),
    ("xai", DialectKind::OpenaiChat, UsageConvention::XaiChat),
    ("openrouter", DialectKind::OpenaiChat, UsageConvention::OpenrouterChat),
    ("alibaba", DialectKind::OpenaiChat, UsageConvention::AlibabaChat),
];

impl UsageConvention {
    /// The convention of `provider` on `dialect`; that of the dialect where the provider is not known.
    pub fn of(provider: &str, dialect: DialectKind) -> Self {
        let exception = EXCEPTIONS.iter().find(|(name, on, _)| *name == provider && *on == dialect);
        exception.map_or(
            match dialect {
                DialectKind::Anthropic => Self::Anthropic,
                DialectKind::OpenaiChat => Self::OpenaiChat,
                DialectKind::OpenaiResponses => Self::OpenaiResponses,
                DialectKind::Gemini => Self::Gemini,
            },
            |(_, _, convention)| *convention,
        )
    }

    /// Reads a provider's own usage object; `None` where it holds none of the figures of this convention.
    fn read(self, raw: &Map<String, Value>) -> Option<Usage> {
        let (tokens, quality) = match self {
            Self::Anthropic => anthropic::read(raw),
            Self::OpenaiChat => inclusive::OPENAI_CHAT.read(raw),
            Self::OpenaiResponses => inclusive::OPENAI_RESPONSES.read(raw),
            Self::Gemini => inclusive::GEMINI.read(raw),
            Self::DeepseekChat => inclusive::DEEPSEEK.read(raw),
            Self::XaiChat => inclusive::XAI.read(raw),
            Self::OpenrouterChat => inclusive::OPENROUTER.read(raw),
            Self::AlibabaChat => inclusive::ALIBABA.read(raw),
        }?;
        Some(Usage { tokens, quality, raw: Some(Value::Object(raw.clone())) })
    }
}

/// The usage objects of an answer, the later figures over the earlier ones.
#[derive(Debug)]
pub(crate) struct Reported {
    /// How they are to be read.
    convention: UsageConvention,
    /// Field by field, the last figure.
    figures: Map<String, Value>,
    /// How often something new was reported.
    reports: u64,
}

impl Reported {
    pub(crate) fn new(convention: UsageConvention) -> Self {
        Self { convention, figures: Map::new(), reports: 0 }
    }

    /// Takes figures that are each the last word on their field.
    pub(crate) fn merge(&mut self, usage: Map<String, Value>) {
        let mut news = false;
        for (field, value) in usage.into_iter().filter(|(_, value)| !value.is_null()) {
            if self.figures.get(&field) != Some(&value) {
                self.figures.insert(field, value);
                news = true;
            }
        }
        self.reports += u64::from(news);
    }

    /// Takes figures that stand instead of all before.
    pub(crate) fn replace(&mut self, usage: Map<String, Value>) {
        if self.figures != usage {
            self.figures = usage;
            self.reports += 1;
        }
    }

    pub(crate) fn reports(&self) -> u64 {
        self.reports
    }

    pub(crate) fn usage(&self) -> Option<Usage> {
        self.convention.read(&self.figures)
    }
}

/// Reads counts out of a usage object, and notices what is no count.
struct Counts<'a> {
    raw: &'a Map<String, Value>,
    /// Whether there was any count.
    any: bool,
    /// Whether all that was there were counts.
    whole: bool,
}

impl<'a> Counts<'a> {
    fn new(raw: &'a Map<String, Value>) -> Self {
        Self { raw, any: false, whole: true }
    }

    /// The count at `path`, names with `/` between them; `None` where there is nothing.
    fn get(&mut self, path: &str) -> Option<u64> {
        let mut names = path.split('/');
        let mut value = self.raw.get(names.next()?)?;
        for name in names {
            value = value.get(name)?;
        }
        if value.is_null() {
            return None;
        }
        self.any = true;
        self.whole &= value.is_u64();
        value.as_u64()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_provider_counts_as_its_dialect_does_if_it_is_no_exception() {
        for (provider, dialect, expected) in [
            ("openai", DialectKind::OpenaiChat, UsageConvention::OpenaiChat),
            ("openai", DialectKind::OpenaiResponses, UsageConvention::OpenaiResponses),
            ("local", DialectKind::OpenaiChat, UsageConvention::OpenaiChat),
            ("google", DialectKind::Gemini, UsageConvention::Gemini),
            ("deepseek", DialectKind::OpenaiChat, UsageConvention::DeepseekChat),
            ("deepseek", DialectKind::Anthropic, UsageConvention::Anthropic),
            ("xai", DialectKind::OpenaiChat, UsageConvention::XaiChat),
        ] {
            assert_eq!(UsageConvention::of(provider, dialect), expected, "{provider}");
        }
    }

    #[test]
    fn only_what_is_new_counts_as_a_report() {
        let figures = |count: u64| json!({"input_tokens": count}).as_object().unwrap().clone();
        let mut reported = Reported::new(UsageConvention::Anthropic);
        for (count, reports) in [(1, 1), (1, 1), (2, 2)] {
            reported.merge(figures(count));
            assert_eq!(reported.reports(), reports);
        }
        reported.replace(figures(2));
        assert_eq!(reported.reports(), 2);
    }

    #[test]
    fn nothing_reported_is_not_zero() {
        for convention in [UsageConvention::Anthropic, UsageConvention::OpenaiChat, UsageConvention::Gemini] {
            let mut reported = Reported::new(convention);
            assert_eq!(reported.usage(), None);
            reported.merge(json!({"seconds": 3}).as_object().unwrap().clone());
            assert_eq!(reported.usage(), None, "figures of another convention are none");
        }
    }
}
