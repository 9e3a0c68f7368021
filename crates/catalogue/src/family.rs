//! Families of models, read from their names: `claude-opus-5-5` is version 5.5 of the tier `opus` of the line `claude`.

use std::cmp::Reverse;

use playhouse_protocol::ModelRef;

/// The lines whose names are understood, each with the provider that makes it.
const LINES: [(&str, &str); 8] = [
    ("gpt", "openai"),
    ("claude", "anthropic"),
    ("gemini", "google"),
    ("deepseek", "deepseek"),
    ("kimi", "moonshotai"),
    ("glm", "zai"),
    ("qwen", "alibaba"),
    ("grok", "xai"),
];

/// A model's name, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Family {
    /// The provider that makes it.
    pub(crate) vendor: &'static str,
    /// The first part of the name, without a version: `gpt`, `claude`.
    line: &'static str,
    /// The rest of the name without version, date and `preview`: `sol`, `opus`, `flash-lite`; empty for none.
    tier: String,
    /// Major and minor version.
    version: (u32, u32),
}

impl Family {
    /// The family of a model by its bare name ([`bare`]); `None` for names that are not understood.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let name = undated(name).unwrap_or(name).to_ascii_lowercase();
        let (line, vendor) = LINES.into_iter().find(|(line, _)| name.starts_with(line))?;
        let mut rest = &name[line.len()..];
        // Only Qwen writes its version without a hyphen before it.
        if line != "qwen" {
            rest = rest.strip_prefix('-')?;
        }
        let (version, tier) = match line {
            // Gateways write the minor version of Claude after a dot.
            "claude" => claude(&rest.replace('.', "-"))?,
            "deepseek" => numbered(rest.strip_prefix('v')?, line)?,
            "kimi" => numbered(rest.strip_prefix('k')?, line)?,
            _ => numbered(rest, line)?,
        };
        Some(Self { vendor, line, tier, version })
    }
}

/// Version and tier of `<major>[.<minor>][-<tier>]`.
fn numbered(text: &str, line: &str) -> Option<((u32, u32), String)> {
    let (number, tier) = text.split_once('-').unwrap_or((text, ""));
    let (major, minor) = number.split_once('.').unwrap_or((number, "0"));
    let minor = match line {
        // Grok 4.20 came before 4.3: its version is a decimal fraction.
        "grok" => format!("{minor:0<2}"),
        _ => minor.to_owned(),
    };
    let tier = tier.split("preview").next().unwrap_or_default().trim_end_matches('-');
    Some(((digits(major)?, digits(&minor)?), tier.to_owned()))
}

/// Version and tier of `<tier>-<major>[-<minor>]`, or of `<major>[-<minor>]-<tier>` up to the third generation.
fn claude(text: &str) -> Option<((u32, u32), String)> {
    let parts: Vec<&str> = text.split('-').collect();
    let numbers: Vec<u32> =
        parts.iter().skip_while(|part| digits(part).is_none()).map_while(|part| digits(part)).collect();
    let begins = parts.first().and_then(|part| digits(part));
    if begins.is_some_and(|major| major > 3) {
        return None;
    }
    let tier: Vec<&str> = parts.into_iter().filter(|part| digits(part).is_none()).collect();
    match *numbers.as_slice() {
        _ if tier.is_empty() => None,
        [major] => Some(((major, 0), tier.join("-"))),
        [major, minor] => Some(((major, minor), tier.join("-"))),
        _ => None,
    }
}

/// A number of one to three digits.
fn digits(text: &str) -> Option<u32> {
    let fits = (1..=3).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    fits.then(|| text.parse().ok()).flatten()
}

/// A model's name without what a gateway puts before it: the part after the last slash.
pub(crate) fn bare(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// The name of the model of which `name` is a dated snapshot (`-20260301`, `@20260301`, `-2026-03-01`, `-0301`) or the
/// current one (`-latest`); `None` for other names.
pub(crate) fn undated(name: &str) -> Option<&str> {
    if let Some(model) = name.strip_suffix("-latest") {
        return Some(model);
    }
    let number = |text: &str, length: usize| text.len() == length && text.bytes().all(|b| b.is_ascii_digit());
    let (model, last) = name.rsplit_once(['-', '@'])?;
    if number(last, 8) && last.starts_with("20") {
        return Some(model);
    }
    if number(last, 4) && ("0101"..="1231").contains(&last) {
        return Some(model);
    }
    let (model, month) = model.rsplit_once('-')?;
    let (model, year) = model.rsplit_once('-')?;
    let dated = number(last, 2) && number(month, 2) && number(year, 4) && year.starts_with("20");
    dated.then_some(model)
}

/// The providers that make a line of models.
pub(crate) fn vendors() -> impl Iterator<Item = &'static str> {
    LINES.into_iter().map(|(_, vendor)| vendor)
}

/// The models whose names are understood, each with its family. Snapshots are left out.
pub(crate) fn members<'a>(
    models: impl Iterator<Item = &'a ModelRef>,
) -> impl Iterator<Item = (Family, &'a ModelRef)> {
    models.filter(|model| undated(&model.model).is_none()).filter_map(|model| {
        let family = Family::of(&model.model)?;
        (family.vendor == model.provider).then_some((family, model))
    })
}

/// Words of names of models that hold no conversation.
const OTHER_KINDS: [&str; 9] =
    ["audio", "embedding", "image", "live", "moderation", "realtime", "search", "transcribe", "tts"];

/// Lines whose weights anybody may serve, with a window of their own choice.
const OPEN_LINES: [&str; 4] = ["deepseek", "glm", "kimi", "qwen"];

/// Whether the limits of a model at `provider` may differ from those at its vendor.
pub(crate) fn has_own_limits(model: &str, provider: &str) -> bool {
    Family::of(bare(model))
        .is_some_and(|family| family.vendor != provider && OPEN_LINES.contains(&family.line))
}

/// The model among `members` whose rules `wanted` follows:
///
/// 1. the newest of its tier that is not newer than it,
/// 2. else the newest of its tier,
/// 3. else the newest of its line.
///
/// `None` where its tier seems to be a known one, mistyped, and where all that is known of its line is newer: rules of older
/// models are not those of newer ones.
///
/// A newer model follows the newest rules, never the oldest.
pub(crate) fn predecessor<'a>(wanted: &Family, members: &[(Family, &'a ModelRef)]) -> Option<&'a ModelRef> {
    if wanted.tier.split('-').any(|word| OTHER_KINDS.contains(&word)) {
        return None;
    }
    let siblings = || members.iter().filter(|(family, _)| family.line == wanted.line);
    if siblings().all(|(family, _)| family.version > wanted.version) {
        return None;
    }
    let known = siblings().any(|(family, _)| family.tier == wanted.tier);
    if !known && siblings().any(|(family, _)| is_mistyped(&family.tier, &wanted.tier)) {
        return None;
    }
    let best = siblings().max_by_key(|(family, model)| {
        let same_tier = family.tier == wanted.tier;
        // Of two of one version the first by name is taken.
        (same_tier, same_tier && family.version <= wanted.version, family.version, Reverse(&model.model))
    });
    best.map(|(_, model)| *model)
}

/// Whether two names of at least three letters differ by one letter: added, left out, changed, or swapped with the next.
pub(crate) fn is_mistyped(left: &str, right: &str) -> bool {
    if left.len().min(right.len()) < 3 || left == right {
        return false;
    }
    let (left, right) = (left.as_bytes(), right.as_bytes());
    let begin = left.iter().zip(right).take_while(|(left, right)| left == right).count();
    let (left, right) = (&left[begin..], &right[begin..]);
    let end = left.iter().rev().zip(right.iter().rev()).take_while(|(left, right)| left == right).count();
    match (&left[..left.len() - end], &right[..right.len() - end]) {
        ([first, second], [third, fourth]) => first == fourth && second == third,
        (left, right) => left.len() <= 1 && right.len() <= 1,
    }
}

/// Whether OpenAI serves a model with tools on its Responses wire only: `gpt-5.4` and up, and the `-pro`, `-codex` and
/// research models.
pub(crate) fn needs_responses(model: &str) -> bool {
    !answers_on_chat(model)
        || Family::of(model).is_some_and(|family| family.line == "gpt" && family.version >= (5, 4))
}

/// Whether OpenAI serves a model on Chat Completions at all.
pub(crate) fn answers_on_chat(model: &str) -> bool {
    !(model.ends_with("-pro") || model.contains("codex") || model.contains("deep-research"))
}

/// Whether a model of OpenAI is of the generation from `gpt-5` on.
pub(crate) fn is_gpt_5_up(model: &str) -> bool {
    Family::of(model).is_some_and(|family| family.line == "gpt" && family.version >= (5, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(name: &str) -> Option<(&'static str, String, (u32, u32))> {
        Family::of(name).map(|Family { vendor, tier, version, .. }| (vendor, tier, version))
    }

    #[test]
    fn names_of_each_line_are_understood() {
        for (name, vendor, tier, version) in [
            ("gpt-5.4", "openai", "", (5, 4)),
            ("gpt-6-sol", "openai", "sol", (6, 0)),
            ("gpt-5.1-codex-mini", "openai", "codex-mini", (5, 1)),
            ("claude-opus-5-5", "anthropic", "opus", (5, 5)),
            ("claude-opus-4.5", "anthropic", "opus", (4, 5)),
            ("claude-opus-6", "anthropic", "opus", (6, 0)),
            ("Claude-3-5-Sonnet", "anthropic", "sonnet", (3, 5)),
            ("claude-3-5-sonnet-20241022", "anthropic", "sonnet", (3, 5)),
            ("claude-opus-5@20260301", "anthropic", "opus", (5, 0)),
            ("gemini-3.1-pro-preview", "google", "pro", (3, 1)),
            ("gemini-2.5-flash-lite-preview-09-2025", "google", "flash-lite", (2, 5)),
            ("gemini-4-argon", "google", "argon", (4, 0)),
            ("deepseek-v4-pro", "deepseek", "pro", (4, 0)),
            ("deepseek-v3.2", "deepseek", "", (3, 2)),
            ("kimi-k2.7-code", "moonshotai", "code", (2, 7)),
            ("kimi-k3", "moonshotai", "", (3, 0)),
            ("glm-5.3-flash", "zai", "flash", (5, 3)),
            ("qwen3.8-max", "alibaba", "max", (3, 8)),
            ("grok-4.7", "xai", "", (4, 70)),
            ("grok-4.20", "xai", "", (4, 20)),
        ] {
            assert_eq!(family(name), Some((vendor, tier.to_owned(), version)), "{name}");
        }
        for name in [
            "",
            "gpt",
            "gpt-",
            "gpt-oss-120b",
            "gpt-4o",
            "llama-3",
            "claude",
            "claude-2.1",
            "claude-opus",
            "claude-mythos-preview",
            "gemini-flash-latest",
            "deepseek-chat",
            "qwen-max",
            "qwen3:8b",
            "glm-5v",
            "o3",
            "grok-build-0.1",
            "gpt-99999",
            "qwen",
            "kimi-latest",
        ] {
            assert_eq!(family(name), None, "{name}");
        }
    }

    #[test]
    fn snapshots_lose_their_date() {
        for (name, model) in [
            ("claude-opus-5-20260301", "claude-opus-5"),
            ("claude-opus-5@20260301", "claude-opus-5"),
            ("gpt-5.4-2026-03-05", "gpt-5.4"),
            ("deepseek-v4-flash-0731", "deepseek-v4-flash"),
            ("grok-4.5-latest", "grok-4.5"),
        ] {
            assert_eq!(undated(name), Some(model));
        }
        for name in ["claude-opus-5-5", "gpt-5.4", "gpt-6-sol", "mistral-large-2512", "x-10-2025", "-", ""] {
            assert_eq!(undated(name), None, "{name}");
        }
    }

    #[test]
    fn the_newest_of_the_tier_that_is_not_newer_comes_first() {
        let models: Vec<ModelRef> = [
            "claude-opus-4-8",
            "claude-opus-5",
            "claude-opus-5-5",
            "claude-opus-5-20260301",
            "claude-sonnet-5-5",
            "claude-fable-5-2",
        ]
        .map(|name| ModelRef::new("anthropic", name))
        .into();
        let follows = |name: &str| {
            let family = Family::of(name).unwrap();
            let members: Vec<_> = members(models.iter()).collect();
            predecessor(&family, &members).map(|model| model.model.as_str())
        };
        assert_eq!(follows("claude-opus-6"), Some("claude-opus-5-5"));
        assert_eq!(follows("claude-opus-5-1"), Some("claude-opus-5"));
        assert_eq!(follows("claude-opus-4-1"), None, "all that is known is newer");
        assert_eq!(follows("claude-saga-6"), Some("claude-opus-5-5"), "no model of its tier is known");
        assert_eq!(follows("gpt-7"), None);
        for name in ["claude-sonet-6", "claude-opsu-6", "claude-opuss-6", "claude-fablo-6"] {
            assert_eq!(follows(name), None, "{name} is mistyped");
        }
    }

    #[test]
    fn models_that_need_responses_are_known_by_name() {
        for name in
            ["gpt-5.4", "gpt-5.6-luna", "gpt-6.3-nova", "gpt-7", "gpt-5.3-codex", "o3-pro", "gpt-5-pro"]
        {
            assert!(needs_responses(name), "{name}");
        }
        for name in ["gpt-5.3", "gpt-5", "gpt-4.1", "gpt-4o", "o3", "gpt-oss-120b"] {
            assert!(!needs_responses(name), "{name}");
        }
    }
}
