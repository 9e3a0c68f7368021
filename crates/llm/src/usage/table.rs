//! The counts that providers are known to send, as data.
//!
//! `docs/reference/usage-figures.md` shows this table; a test holds it to it.

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// The prompt: all input, or the uncached part, as [`Relation`] says of the figures beside it.
    Prompt,
    /// Input that the prompt's figure leaves out.
    BesidePrompt,
    /// Input read from a cache.
    Hit,
    /// Input that was not read from a cache.
    Miss,
    /// Input written to a cache, for whatever time.
    Write,
    /// The part of it that is kept for five minutes.
    Write5m,
    /// The part of it that is kept for 30 minutes.
    Write30m,
    /// The part of it that is kept for an hour.
    Write1h,
    /// The part of it that is kept for twelve hours.
    Write12h,
    /// The answer, with or without reasoning.
    Completion,
    /// Reasoning.
    Reasoning,
    /// Input of calls that the provider makes on its own for this answer.
    InnerInput,
    /// The same, read from a cache.
    InnerHit,
    /// Output of such calls.
    InnerOutput,
    /// The sum of all.
    Total,
    /// A part of another figure that bills as the whole does.
    Part,
}

/// Where a figure stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the usage object itself. Names with `/` between them lead further down.
    Top,
    /// Below one of [`INPUT_DETAILS`].
    Input,
    /// Below one of [`OUTPUT_DETAILS`].
    Output,
    /// Anywhere below the usage object.
    Anywhere,
}

/// Whether a figure is part of that of the prompt or of the completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// A part, whatever the total says.
    Inside,
    /// Beside it, whatever the total says.
    Beside,
    /// A part by its name; beside it where only that gives the reported total.
    Part,
    /// As the provider's convention says; otherwise where only that gives the reported total.
    Convention,
}

/// Names of objects that say more of the prompt.
pub(super) const INPUT_DETAILS: [&str; 4] =
    ["prompt_tokens_details", "input_tokens_details", "prompt_token_details", "input_token_details"];

/// Names of objects that say more of the completion.
pub(super) const OUTPUT_DETAILS: [&str; 4] = [
    "completion_tokens_details",
    "output_tokens_details",
    "completion_token_details",
    "output_token_details",
];

/// A figure that a provider sends.
#[derive(Debug)]
pub(super) struct Figure {
    pub(super) place: Place,
    pub(super) name: &'static str,
    pub(super) counts: Count,
    pub(super) relation: Relation,
    /// Who says so: for the reference.
    #[cfg_attr(not(test), expect(dead_code, reason = "the reference shows it, which a test makes"))]
    pub(super) source: &'static str,
}

const fn figure(
    place: Place,
    name: &'static str,
    counts: Count,
    relation: Relation,
    source: &'static str,
) -> Figure {
    Figure { place, name, counts, relation, source }
}

const ANTHROPIC: &str = "types of `@anthropic-ai/sdk` (Usage, CacheCreation)";
const BOTH: &str = "types of `@anthropic-ai/sdk` (Usage) and of `openai` (ResponseUsage)";
const OPENAI_CHAT: &str = "types of `openai` (CompletionUsage)";
const OPENAI_RESPONSES: &str = "types of `openai` (ResponseUsage)";
const GOOGLE: &str = "types of `@google/genai` (GenerateContentResponseUsageMetadata)";
const DEEPSEEK: &str = "DeepSeek's API reference (chat completion, usage)";
const ALIBABA: &str = "Model Studio's guide to context caches";
const LITELLM: &str = "litellm (types/utils.py, Usage)";
const MOONSHOT: &str = "Moonshot's API reference (chat, usage)";
const SAKANA: &str = "Sakana's API reference (usage)";
const OPENROUTER: &str = "OpenRouter's guide to usage accounting";

/// All of them.
pub(super) static FIGURES: &[Figure] = &{
    use Count::{
        BesidePrompt, Completion, Hit, InnerHit, InnerInput, InnerOutput, Miss, Part, Prompt, Reasoning,
        Total, Write, Write1h, Write5m, Write12h, Write30m,
    };
    use Place::{Anywhere, Input, Output, Top};
    use Relation::{Beside, Convention, Inside};

    [
        figure(Top, "input_tokens", Prompt, Inside, BOTH),
        figure(Top, "prompt_tokens", Prompt, Inside, OPENAI_CHAT),
        figure(Top, "promptTokenCount", Prompt, Inside, GOOGLE),
        figure(Top, "toolUsePromptTokenCount", BesidePrompt, Beside, GOOGLE),
        figure(Top, "cache_read_input_tokens", Hit, Convention, ANTHROPIC),
        figure(Top, "cache_read_tokens", Hit, Convention, LITELLM),
        figure(Top, "cached_tokens", Hit, Convention, MOONSHOT),
        figure(Top, "prompt_cache_hit_tokens", Hit, Inside, DEEPSEEK),
        figure(Top, "prompt_cache_miss_tokens", Miss, Inside, DEEPSEEK),
        figure(Top, "cachedContentTokenCount", Hit, Inside, GOOGLE),
        figure(Input, "cached_tokens", Hit, Relation::Part, OPENAI_CHAT),
        figure(Input, "cache_read_tokens", Hit, Relation::Part, LITELLM),
        figure(Input, "cache_read_input_tokens", Hit, Relation::Part, LITELLM),
        figure(Top, "cache_creation_input_tokens", Write, Convention, ANTHROPIC),
        figure(Top, "cache_creation_tokens", Write, Convention, LITELLM),
        figure(Top, "cache_write_tokens", Write, Convention, OPENROUTER),
        figure(Input, "cache_write_tokens", Write, Relation::Part, OPENAI_RESPONSES),
        figure(Input, "cache_creation_tokens", Write, Relation::Part, LITELLM),
        figure(Input, "cache_creation_input_tokens", Write, Relation::Part, ALIBABA),
        figure(Top, "cache_creation/ephemeral_5m_input_tokens", Write5m, Convention, ANTHROPIC),
        figure(Top, "cache_creation/ephemeral_1h_input_tokens", Write1h, Convention, ANTHROPIC),
        figure(Input, "cache_creation/ephemeral_5m_input_tokens", Write5m, Relation::Part, ALIBABA),
        figure(Input, "cache_creation/ephemeral_1h_input_tokens", Write1h, Relation::Part, ALIBABA),
        figure(
            Input,
            "cache_creation_token_details/ephemeral_5m_input_tokens",
            Write5m,
            Relation::Part,
            LITELLM,
        ),
        figure(
            Input,
            "cache_creation_token_details/ephemeral_1h_input_tokens",
            Write1h,
            Relation::Part,
            LITELLM,
        ),
        figure(
            Input,
            "cache_write_tokens_details/ttl_30m_tokens",
            Write30m,
            Relation::Part,
            OPENAI_RESPONSES,
        ),
        figure(
            Input,
            "cache_write_tokens_details/ttl_12h_tokens",
            Write12h,
            Relation::Part,
            OPENAI_RESPONSES,
        ),
        figure(Top, "output_tokens", Completion, Inside, BOTH),
        figure(Top, "completion_tokens", Completion, Inside, OPENAI_CHAT),
        figure(Top, "candidatesTokenCount", Completion, Inside, GOOGLE),
        figure(Top, "responseTokenCount", Completion, Inside, GOOGLE),
        figure(Top, "thoughtsTokenCount", Reasoning, Beside, GOOGLE),
        figure(Top, "reasoning_tokens", Reasoning, Convention, LITELLM),
        figure(Output, "reasoning_tokens", Reasoning, Convention, OPENAI_CHAT),
        figure(Output, "thinking_tokens", Reasoning, Convention, ANTHROPIC),
        figure(Input, "orchestration_input_tokens", InnerInput, Convention, SAKANA),
        figure(Input, "orchestration_input_cached_tokens", InnerHit, Convention, SAKANA),
        figure(Output, "orchestration_output_tokens", InnerOutput, Convention, SAKANA),
        figure(Top, "total_tokens", Total, Inside, OPENAI_CHAT),
        figure(Top, "totalTokenCount", Total, Inside, GOOGLE),
        figure(Anywhere, "audio_tokens", Part, Inside, OPENAI_CHAT),
        figure(Anywhere, "text_tokens", Part, Inside, OPENAI_RESPONSES),
        figure(Anywhere, "image_tokens", Part, Inside, OPENAI_RESPONSES),
        figure(Anywhere, "video_tokens", Part, Inside, ALIBABA),
        figure(Anywhere, "file_tokens", Part, Inside, OPENROUTER),
        figure(Anywhere, "accepted_prediction_tokens", Part, Inside, OPENAI_CHAT),
        figure(Anywhere, "rejected_prediction_tokens", Part, Inside, OPENAI_CHAT),
        figure(Anywhere, "promptTokensDetails/tokenCount", Part, Inside, GOOGLE),
        figure(Anywhere, "cacheTokensDetails/tokenCount", Part, Inside, GOOGLE),
        figure(Anywhere, "candidatesTokensDetails/tokenCount", Part, Inside, GOOGLE),
        figure(Anywhere, "responseTokensDetails/tokenCount", Part, Inside, GOOGLE),
        figure(Anywhere, "toolUsePromptTokensDetails/tokenCount", Part, Inside, GOOGLE),
    ]
};

/// What a figure is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Input, of all classes.
    Input,
    /// Output and reasoning.
    Output,
}

impl Side {
    /// Whether a member of a usage object holds figures of it, and of nothing else.
    pub(super) fn has(self, member: &str) -> bool {
        let details = match self {
            Self::Input => &INPUT_DETAILS,
            Self::Output => &OUTPUT_DETAILS,
        };
        let names =
            |figure: &Figure| figure.place == Place::Top && figure.name.split('/').next() == Some(member);
        details.contains(&member)
            || FIGURES.iter().any(|figure| figure.counts.side() == Some(self) && names(figure))
    }
}

impl Count {
    /// What it is about; nothing for sums of both, and for parts.
    const fn side(self) -> Option<Side> {
        match self {
            Self::Prompt
            | Self::BesidePrompt
            | Self::Hit
            | Self::Miss
            | Self::Write
            | Self::Write5m
            | Self::Write30m
            | Self::Write1h
            | Self::Write12h
            | Self::InnerInput
            | Self::InnerHit => Some(Side::Input),
            Self::Completion | Self::Reasoning | Self::InnerOutput => Some(Side::Output),
            Self::Total | Self::Part => None,
        }
    }
}

impl Figure {
    /// Whether it stands at this path: names with `/` between them, of lists only what they are called.
    pub(super) fn is_at(&self, path: &str) -> bool {
        let below = |names: &[&str]| {
            names.iter().any(|name| {
                path.strip_prefix(name).and_then(|rest| rest.strip_prefix('/')) == Some(self.name)
            })
        };
        match self.place {
            Place::Top => path == self.name,
            Place::Input => below(&INPUT_DETAILS),
            Place::Output => below(&OUTPUT_DETAILS),
            Place::Anywhere => {
                path.strip_suffix(self.name).is_some_and(|above| above.is_empty() || above.ends_with('/'))
            }
        }
    }
}
