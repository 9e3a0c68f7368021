//! The parts of a model's name that its rules depend on.

/// The maker of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    OpenAi,
    Anthropic,
    Google,
    DeepSeek,
    Moonshot,
}

/// A major and a minor version; `gpt-6` is `(6, 0)`.
pub(super) type Version = (u32, u32);

/// A model's name, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ModelName<'a> {
    /// The maker.
    pub(super) maker: Maker,
    /// The version; `(0, 0)` where the name has none.
    pub(super) version: Version,
    /// The name of the size: `opus` of Claude, `astra` or `mini` of GPT, `flash-lite` of Gemini; empty without one.
    pub(super) variant: &'a str,
}

impl<'a> ModelName<'a> {
    /// Parses `name`. Returns `None` for a name that begins with no known family, which includes names with a vendor
    /// before them (`openai/gpt-5.5`): those belong to servers with rules of their own.
    pub(super) fn parse(name: &'a str) -> Option<Self> {
        let (family, rest) = name.split_once('-')?;
        match family {
            "gpt" => Self::versioned(Maker::OpenAi, rest),
            "gemini" => Self::versioned(Maker::Google, rest),
            "claude" => Self::claude(rest),
            "deepseek" => Some(Self { maker: Maker::DeepSeek, version: (0, 0), variant: rest }),
            "kimi" => Self::versioned(Maker::Moonshot, rest.strip_prefix('k')?),
            _ => None,
        }
    }

    /// A version and then a variant: `5.6-terra`.
    fn versioned(maker: Maker, rest: &'a str) -> Option<Self> {
        let (version, variant) = rest.split_once('-').unwrap_or((rest, ""));
        Some(Self { maker, version: dotted(version)?, variant })
    }

    /// A size and then a version of one or two numbers, with a dash or a dot between them: `opus-4-7`, `opus-5`. A date
    /// after it is ignored.
    fn claude(rest: &'a str) -> Option<Self> {
        let mut words = rest.split('-');
        let variant = words.next().filter(|word| word.bytes().all(|byte| byte.is_ascii_alphabetic()))?;
        let (major, minor) = dotted(words.next()?)?;
        let minor = match words.next().filter(|word| word.len() <= 2).and_then(|word| word.parse().ok()) {
            Some(minor) => minor,
            None => minor,
        };
        Some(Self { maker: Maker::Anthropic, version: (major, minor), variant })
    }
}

/// `5` or `5.6`.
fn dotted(text: &str) -> Option<Version> {
    let (major, minor) = text.split_once('.').unwrap_or((text, "0"));
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_maker_a_version_and_a_variant() {
        for (name, maker, version, variant) in [
            ("gpt-5", Maker::OpenAi, (5, 0), ""),
            ("gpt-5.6-terra", Maker::OpenAi, (5, 6), "terra"),
            ("gpt-6-astra", Maker::OpenAi, (6, 0), "astra"),
            ("claude-opus-5", Maker::Anthropic, (5, 0), "opus"),
            ("claude-opus-4-7", Maker::Anthropic, (4, 7), "opus"),
            ("claude-opus-4.7", Maker::Anthropic, (4, 7), "opus"),
            ("claude-sonnet-4-5-20250929", Maker::Anthropic, (4, 5), "sonnet"),
            ("claude-opus-4-20250514", Maker::Anthropic, (4, 0), "opus"),
            ("gemini-2.5-flash-lite", Maker::Google, (2, 5), "flash-lite"),
            ("gemini-4-hydrogen", Maker::Google, (4, 0), "hydrogen"),
            ("deepseek-v4-pro", Maker::DeepSeek, (0, 0), "v4-pro"),
            ("kimi-k3.1", Maker::Moonshot, (3, 1), ""),
        ] {
            assert_eq!(ModelName::parse(name), Some(ModelName { maker, version, variant }), "{name}");
        }
        for name in ["gpt", "gpt-4o", "openai/gpt-5.5", "claude-3-5-sonnet-20241022", "kimi-latest", "echo"] {
            assert_eq!(ModelName::parse(name), None, "{name}");
        }
    }
}
