//! The rules of each family, as data. In each table the first row that fits a model's name applies.

use super::model::{Maker, ModelName, Version};

/// The rules of a model.
#[derive(Clone, Copy, Debug)]
pub(super) enum Profile {
    OpenAi(&'static OpenAi),
    Claude(&'static Claude),
    Gemini(&'static Gemini),
    Compatible(&'static Compatible),
}

impl Profile {
    /// The rules of the model `name`; `None` for a model without any.
    pub(super) fn of(name: &str) -> Option<Self> {
        let name = ModelName::parse(name)?;
        match name.maker {
            Maker::OpenAi => find(OPENAI, name).map(Self::OpenAi),
            Maker::Anthropic => find(CLAUDE, name).map(Self::Claude),
            Maker::Google => find(GEMINI, name).map(Self::Gemini),
            Maker::DeepSeek => Some(Self::Compatible(&DEEPSEEK)),
            Maker::Moonshot => find(KIMI, name).map(Self::Compatible),
        }
    }
}

/// A row: the models that it is for, and their rules.
struct Row<P: 'static> {
    /// The first version.
    from: Version,
    /// The last version.
    to: Version,
    /// Words of which the variant contains one; empty for any variant.
    variants: &'static [&'static str],
    /// The rules.
    rules: P,
}

fn find<P>(table: &'static [Row<P>], name: ModelName<'_>) -> Option<&'static P> {
    let fits = |row: &&Row<P>| {
        (row.from..=row.to).contains(&name.version)
            && (row.variants.is_empty() || row.variants.iter().any(|word| name.variant.contains(word)))
    };
    table.iter().find(fits).map(|row| &row.rules)
}

/// The version after every other.
const LATEST: Version = (u32::MAX, u32::MAX);

/// Function tools on Chat Completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChatTools {
    /// With any effort.
    Any,
    /// Without an effort, or with `none`.
    WithoutEffort,
    /// With an explicit `none` only.
    WithNone,
    /// Never.
    Never,
    /// The model is not served there at all.
    NoChat,
}

/// `temperature`, `top_p` and log probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sampling {
    /// Where the effort is an explicit `none`.
    WithNone,
    /// Never.
    Never,
}

/// Rules of an OpenAI model, on both of its formats.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenAi {
    /// The efforts. `max` is taken on Responses only.
    pub(super) efforts: &'static [&'static str],
    pub(super) chat_tools: ChatTools,
    pub(super) sampling: Sampling,
    /// Parameters that are refused beside those that all refuse.
    pub(super) refused: &'static [&'static str],
    /// Whether `service_tier: flex` is refused.
    pub(super) no_flex: bool,
    /// Whether reasoning is bound to `instructions` too.
    pub(super) binds_instructions: bool,
}

const FIRST: OpenAi = OpenAi {
    efforts: &["minimal", "low", "medium", "high"],
    chat_tools: ChatTools::Any,
    sampling: Sampling::Never,
    refused: &[],
    no_flex: false,
    binds_instructions: true,
};
const WITH_NONE: OpenAi =
    OpenAi { efforts: &["none", "low", "medium", "high"], sampling: Sampling::WithNone, ..FIRST };
const WITH_XHIGH: OpenAi = OpenAi { efforts: &["none", "low", "medium", "high", "xhigh"], ..WITH_NONE };
const WITH_MAX: OpenAi = OpenAi {
    efforts: &["none", "low", "medium", "high", "xhigh", "max"],
    chat_tools: ChatTools::WithNone,
    ..WITH_XHIGH
};
const SIX: OpenAi = OpenAi { refused: &["prompt_cache_retention"], ..WITH_MAX };
const ALWAYS_REASONS: OpenAi = OpenAi {
    efforts: &["low", "medium", "high", "xhigh", "max"],
    chat_tools: ChatTools::Never,
    sampling: Sampling::Never,
    ..SIX
};

const OPENAI: &[Row<OpenAi>] = &[
    Row { from: (5, 0), to: (5, 0), variants: &[], rules: FIRST },
    Row { from: (5, 1), to: (5, 1), variants: &[], rules: WITH_NONE },
    Row {
        from: (5, 2),
        to: (5, 3),
        variants: &["pro", "codex"],
        rules: OpenAi { chat_tools: ChatTools::NoChat, ..WITH_XHIGH },
    },
    Row { from: (5, 2), to: (5, 3), variants: &[], rules: WITH_XHIGH },
    Row {
        from: (5, 4),
        to: (5, 5),
        variants: &["pro"],
        rules: OpenAi {
            efforts: &["medium", "high", "xhigh"],
            chat_tools: ChatTools::NoChat,
            sampling: Sampling::Never,
            ..WITH_XHIGH
        },
    },
    Row {
        from: (5, 4),
        to: (5, 5),
        variants: &[],
        rules: OpenAi { chat_tools: ChatTools::WithoutEffort, ..WITH_XHIGH },
    },
    Row { from: (5, 6), to: (5, u32::MAX), variants: &[], rules: WITH_MAX },
    Row { from: (6, 0), to: (6, 0), variants: &["astra"], rules: ALWAYS_REASONS },
    Row { from: (6, 1), to: (6, 1), variants: &["sol"], rules: ALWAYS_REASONS },
    Row { from: (6, 0), to: (6, 1), variants: &[], rules: SIX },
    Row {
        from: (6, 2),
        to: LATEST,
        variants: &[],
        rules: OpenAi { no_flex: true, binds_instructions: false, ..ALWAYS_REASONS },
    },
];

/// A `tool_choice` that forces a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forced {
    Yes,
    WithoutThinking,
    Never,
}

/// Rules of a Claude model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claude {
    /// The values of `thinking.type`.
    pub(super) thinking: &'static [&'static str],
    /// Whether it thinks where the request has no `thinking`.
    pub(super) thinks: bool,
    /// The values of `output_config.effort`; empty where it has none.
    pub(super) efforts: &'static [&'static str],
    /// The type of thinking with which only efforts up to `high` are taken; empty for none.
    pub(super) up_to_high_with: &'static str,
    /// Whether `temperature`, `top_p` and `top_k` are taken where it does not think.
    pub(super) sampling: bool,
    pub(super) forced: Forced,
    /// Whether the conversation may end with an answer.
    pub(super) prefill: bool,
    /// Whether thinking is bound to what stood before it.
    pub(super) bound: bool,
    /// Whether the text of thinking is empty unless `thinking.display` is set.
    pub(super) quiet: bool,
}

/// Efforts in order.
const EFFORTS: &[&str] = &["low", "medium", "high", "xhigh", "max"];

const FOUR_FIVE: Claude = Claude {
    thinking: &["enabled", "disabled"],
    thinks: false,
    efforts: &[],
    up_to_high_with: "",
    sampling: true,
    forced: Forced::WithoutThinking,
    prefill: true,
    bound: false,
    quiet: false,
};
const FOUR_SIX: Claude = Claude {
    thinking: &["adaptive", "enabled", "disabled"],
    efforts: &["low", "medium", "high", "max"],
    prefill: false,
    ..FOUR_FIVE
};
const FOUR_SEVEN: Claude = Claude {
    thinking: &["adaptive", "disabled"],
    efforts: EFFORTS,
    sampling: false,
    forced: Forced::Yes,
    ..FOUR_SIX
};
const FIVE: Claude = Claude { thinks: true, ..FOUR_SEVEN };
const FABLE_FIVE: Claude = Claude { thinking: &["adaptive"], ..FIVE };
const LATEST_CLAUDE: Claude = Claude { forced: Forced::Never, bound: true, quiet: true, ..FABLE_FIVE };

const CLAUDE: &[Row<Claude>] = &[
    Row {
        from: (4, 5),
        to: (4, 5),
        variants: &["opus"],
        rules: Claude { efforts: &["low", "medium", "high"], ..FOUR_FIVE },
    },
    Row { from: (4, 0), to: (4, 5), variants: &[], rules: FOUR_FIVE },
    Row { from: (4, 6), to: (4, 6), variants: &[], rules: FOUR_SIX },
    Row { from: (4, 7), to: (4, 8), variants: &[], rules: FOUR_SEVEN },
    Row { from: (5, 0), to: (5, 0), variants: &["fable"], rules: FABLE_FIVE },
    Row {
        from: (5, 0),
        to: (5, 0),
        variants: &["opus"],
        rules: Claude { up_to_high_with: "disabled", ..FIVE },
    },
    Row { from: (5, 0), to: (5, 0), variants: &["sonnet", "haiku"], rules: FIVE },
    Row {
        from: (5, 5),
        to: (5, 5),
        variants: &["haiku"],
        rules: Claude { up_to_high_with: "disabled", bound: true, ..FIVE },
    },
    Row {
        from: (5, 5),
        to: (5, 5),
        variants: &["sonnet"],
        rules: Claude {
            thinking: &["adaptive", "between_tools"],
            up_to_high_with: "between_tools",
            quiet: false,
            ..LATEST_CLAUDE
        },
    },
    Row { from: (5, 0), to: LATEST, variants: &[], rules: LATEST_CLAUDE },
];

/// Rules of a Gemini model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gemini {
    /// The levels, in lower case; empty where it takes none.
    pub(super) levels: &'static [&'static str],
    /// The least and the most tokens of a budget; `None` where any is taken.
    pub(super) budgets: Option<(i64, i64)>,
    /// Whether a budget of 0 turns thinking off.
    pub(super) can_be_off: bool,
    /// Whether the first call of an answer comes back with its signature.
    pub(super) signatures: bool,
}

const BUDGETS: Gemini =
    Gemini { levels: &[], budgets: Some((128, 32_768)), can_be_off: false, signatures: false };
const LEVELS: Gemini =
    Gemini { levels: &["low", "medium", "high"], budgets: None, can_be_off: true, signatures: true };

const GEMINI: &[Row<Gemini>] = &[
    Row {
        from: (2, 5),
        to: (2, 5),
        variants: &["flash-lite"],
        rules: Gemini { budgets: Some((512, 24_576)), can_be_off: true, ..BUDGETS },
    },
    Row {
        from: (2, 5),
        to: (2, 5),
        variants: &["flash"],
        rules: Gemini { budgets: Some((0, 24_576)), can_be_off: true, ..BUDGETS },
    },
    Row { from: (2, 5), to: (2, 5), variants: &[], rules: BUDGETS },
    Row {
        from: (3, 0),
        to: LATEST,
        variants: &["flash"],
        rules: Gemini { levels: &["minimal", "low", "medium", "high"], ..LEVELS },
    },
    Row {
        from: (4, 0),
        to: (4, 0),
        variants: &["hydrogen"],
        rules: Gemini { levels: &["low", "medium", "high", "xhigh"], ..LEVELS },
    },
    Row { from: (3, 0), to: LATEST, variants: &[], rules: LEVELS },
];

/// The answers that come back with `reasoning_content`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReasoningBack {
    /// All, unless `thinking` is disabled.
    EveryAnswer,
    /// Those with calls.
    AnswersWithCalls,
}

/// Rules of an open model on Chat Completions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compatible {
    pub(super) reasoning_back: ReasoningBack,
    /// The message where one comes without; `{}` is the number of the message.
    pub(super) missing: &'static str,
    /// Whether `thinking` is a parameter.
    pub(super) has_thinking: bool,
    /// The values of `reasoning_effort`; empty for any.
    pub(super) efforts: &'static [&'static str],
    /// Whether `temperature` other than 1 and `tool_choice: required` are taken.
    pub(super) is_lenient: bool,
}

const DEEPSEEK: Compatible = Compatible {
    reasoning_back: ReasoningBack::EveryAnswer,
    missing: "The `reasoning_content` in the thinking mode must be passed back to the API.",
    has_thinking: true,
    efforts: &[],
    is_lenient: true,
};

const KIMI: &[Row<Compatible>] = &[Row {
    from: (3, 0),
    to: LATEST,
    variants: &[],
    rules: Compatible {
        reasoning_back: ReasoningBack::AnswersWithCalls,
        missing: "thinking is enabled but reasoning_content is missing in assistant tool call message at index {}",
        has_thinking: false,
        efforts: &["low", "high", "max"],
        is_lenient: false,
    },
}];
