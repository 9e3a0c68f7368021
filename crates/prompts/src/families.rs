//! Families of models: how each wants to be told what its work is.
//!
//! The texts differ in what models of a family do by themselves: some stop to ask, some go beyond the task, some write calls
//! into their answers. What holds for all, the facts of the tools and the care that is to be taken, stands in one text each.

use std::sync::LazyLock;

use playhouse_protocol::ModelRef;

use crate::template::Template;

/// What stands in the text of every family.
const VARIABLES: [&str; 2] = ["facts", "care"];
const FACTS: &str = include_str!("../../../prompts/system/facts.md");
const CARE: &str = include_str!("../../../prompts/system/care.md");

/// The texts with everything filled in, in the order of [`Family::ALL`]. They are part of the program and tests read them.
static TEXTS: LazyLock<[String; 6]> = LazyLock::new(|| {
    Family::ALL.map(|family| {
        let (file, text) = family.source();
        let template =
            Template::parse(file, text, &VARIABLES).expect("the texts of families are well formed");
        template.render(&[FACTS.trim(), CARE.trim()]).trim().to_owned()
    })
});

/// Models that are told their work in the same words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Claude.
    Anthropic,
    /// GPT and the o series.
    Gpt,
    /// The Codex models.
    Codex,
    /// Gemini.
    Gemini,
    /// Qwen.
    Qwen,
    /// All others.
    Default,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Anthropic, Self::Gpt, Self::Codex, Self::Gemini, Self::Qwen, Self::Default];

    /// The family of `model`: by its name, wherever it is served; where that tells nothing, by who serves it.
    ///
    /// ```
    /// use playhouse_prompts::Family;
    /// let of = |model: &str| Family::of(&model.parse().unwrap());
    /// assert_eq!(of("openrouter/anthropic/claude-sonnet-5"), Family::Anthropic);
    /// assert_eq!(of("openai/gpt-5.3-codex"), Family::Codex);
    /// assert_eq!(of("openai/o3"), Family::Gpt);
    /// assert_eq!(of("mistral/mistral-large-latest"), Family::Default);
    /// ```
    pub fn of(model: &ModelRef) -> Self {
        let name = model.model.to_ascii_lowercase();
        let last = name.rsplit('/').next().unwrap_or_default();
        // Those of OpenAI that are called `o` and a number.
        let is_o = last.strip_prefix('o').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        for (word, family) in [
            ("codex", Self::Codex),
            ("claude", Self::Anthropic),
            ("gemini", Self::Gemini),
            ("qwen", Self::Qwen),
            ("qwq", Self::Qwen),
            ("gpt", Self::Gpt),
        ] {
            if name.contains(word) {
                return family;
            }
        }
        match model.provider.as_str() {
            _ if is_o => Self::Gpt,
            "anthropic" => Self::Anthropic,
            "openai" => Self::Gpt,
            "google" => Self::Gemini,
            "alibaba" => Self::Qwen,
            _ => Self::Default,
        }
    }

    /// Its name: that of its file in `prompts/system/`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Gpt => "gpt",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Qwen => "qwen",
            Self::Default => "default",
        }
    }

    /// Where its text stands, and the text.
    const fn source(self) -> (&'static str, &'static str) {
        match self {
            Self::Anthropic => ("system/anthropic.md", include_str!("../../../prompts/system/anthropic.md")),
            Self::Gpt => ("system/gpt.md", include_str!("../../../prompts/system/gpt.md")),
            Self::Codex => ("system/codex.md", include_str!("../../../prompts/system/codex.md")),
            Self::Gemini => ("system/gemini.md", include_str!("../../../prompts/system/gemini.md")),
            Self::Qwen => ("system/qwen.md", include_str!("../../../prompts/system/qwen.md")),
            Self::Default => ("system/default.md", include_str!("../../../prompts/system/default.md")),
        }
    }

    /// What its models are told of their work, where an agent has no words of its own.
    pub fn prompt(self) -> &'static str {
        &TEXTS[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_has_the_family_of_its_name_and_else_that_of_its_provider() {
        for (model, family) in [
            ("anthropic/claude-haiku-4-5", Family::Anthropic),
            ("anthropic/next", Family::Anthropic),
            ("openai/gpt-4o", Family::Gpt),
            ("openai/o4-mini", Family::Gpt),
            ("proxy/o3-pro", Family::Gpt),
            ("groq/openai/gpt-oss-120b", Family::Gpt),
            ("openai/codex-mini-latest", Family::Codex),
            ("openai/gpt-5.1-codex-mini", Family::Codex),
            ("google/gemini-3.5-flash", Family::Gemini),
            ("google/next", Family::Gemini),
            ("openrouter/qwen/qwen3-coder", Family::Qwen),
            ("local/Qwen2.5-Coder-32B-Instruct", Family::Qwen),
            ("ollama/olmo", Family::Default),
            ("ollama/llama-3.3", Family::Default),
            ("openrouter/z-ai/glm-5.2", Family::Default),
            ("mock/by-hand", Family::Default),
        ] {
            assert_eq!(Family::of(&model.parse().unwrap()), family, "{model}");
        }
    }

    #[test]
    fn every_family_is_told_the_same_facts_in_words_of_its_own() {
        for family in Family::ALL {
            let text = family.prompt();
            assert_eq!(text.matches(FACTS.trim()).count(), 1, "{}", family.name());
            assert_eq!(text.matches(CARE.trim()).count(), 1, "{}", family.name());
            let others = Family::ALL.into_iter().filter(|other| *other != family);
            assert!(others.into_iter().all(|other| other.prompt() != text), "{}", family.name());
            let patches = matches!(family, Family::Gpt | Family::Codex | Family::Gemini);
            assert_eq!(text.contains("`apply_patch`"), patches, "{}", family.name());
        }
    }
}
