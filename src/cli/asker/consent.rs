//! A request for consent at the terminal: how it looks, and what a key answers.

use playhouse_policy::EXTERNAL_DIRECTORY;
use playhouse_protocol::SessionId;
use playhouse_protocol::record::{ConsentAnswer, ConsentAsked};

use super::{Line, Style};

/// Lines of a preview that are shown at first.
const PREVIEW_LINES: usize = 40;
/// Characters of a preview that are shown at first.
const PREVIEW_CHARACTERS: usize = 8_000;
/// Wants, and what "always" would allow, that are listed each.
const LISTED: usize = 10;

/// Stands before each line of a preview: no command looks like what is told about it.
const MARGIN: &str = "  │ ";
/// Lines of a fact that are shown.
const FACT_LINES: usize = 5;

/// What is asked after `m`.
pub(super) const MESSAGE_PROMPT: &str = "What shall it be told? (empty for nothing) ";

/// What a typed line chooses.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// This is the answer.
    Answer(ConsentAnswer),
    /// Declined; the message follows.
    Message,
    /// Show the whole preview.
    All,
    /// None of the keys; what to say.
    Again(String),
}

/// Whether something of it can be agreed to only by a person who sees it.
pub(in crate::cli) fn needs_a_person(asked: &ConsentAsked) -> bool {
    asked.wants.iter().any(|want| want.in_person || want.named)
}

/// The request as people see it; `whole` with all of its preview.
pub(in crate::cli) fn shown(asked: &ConsentAsked, from: Option<SessionId>, whole: bool) -> Vec<Line> {
    let place = super::place(from);
    let mut lines = vec![Line::new(Style::Warning, format!("? {} asks for consent{place}", asked.tool))];
    preview(asked, whole, &mut lines);
    let mut fact = |name: &str, text: &str| {
        for (index, part) in text.split('\n').take(FACT_LINES).enumerate() {
            let name = if index == 0 { name } else { "" };
            lines.push(Line::new(Style::Dim, format!("  {name:7} {part}")));
        }
    };
    fact("why", &asked.reason);
    if asked.wants.len() > 1 {
        for want in asked.wants.iter().take(LISTED) {
            let note = if want.in_person { " (each time)" } else { "" };
            fact("wants", &format!("{} {}{note}", want.permission, want.subject));
        }
        if let Some(more) = more(asked.wants.len()) {
            fact("", &more);
        }
    }
    fact("risk", &asked.risk.to_string());
    if let Some(walls) = &asked.walls {
        let network = match walls.network {
            // Most walls tell it themselves.
            _ if walls.detail.contains("network") => "",
            true => "; reaches the network",
            false => "; no network",
        };
        fact("walls", &format!("{walls}{network}"));
    }
    let rules = asked.always();
    for rule in rules.iter().take(LISTED) {
        fact("always", &format!("{} \"{}\"", rule.permission, rule.pattern));
    }
    if let Some(more) = more(rules.len()) {
        fact("", &more);
    }
    lines
}

fn more(count: usize) -> Option<String> {
    count.checked_sub(LISTED).filter(|more| *more > 0).map(|more| format!("and {more} more"))
}

fn preview(asked: &ConsentAsked, whole: bool, lines: &mut Vec<Line>) {
    let text = asked.preview.trim_end_matches('\n');
    let all = text.split('\n').count();
    let mut left = if whole { usize::MAX } else { PREVIEW_CHARACTERS };
    let most = if whole { usize::MAX } else { PREVIEW_LINES };
    let mut complete = 0;
    for line in text.split('\n').take(most) {
        let style = if asked.diff { diff_style(line) } else { Style::Plain };
        let cut = line.char_indices().nth(left).map(|(at, _)| at);
        lines.push(Line::new(style, format!("{MARGIN}{}", &line[..cut.unwrap_or(line.len())])));
        if cut.is_some() {
            break;
        }
        left = left.saturating_sub(line.chars().count());
        complete += 1;
    }
    if complete < all {
        let shown: usize = text.split('\n').take(complete).map(|line| line.len() + 1).sum();
        let rest = text.len().saturating_sub(shown);
        let count = all - complete;
        let plural = if count == 1 { "" } else { "s" };
        lines.push(Line::new(
            Style::Warning,
            format!("  … {count} more line{plural}, {rest} bytes (v shows all)"),
        ));
    }
}

fn diff_style(line: &str) -> Style {
    match line.as_bytes().first() {
        _ if line.starts_with("+++") || line.starts_with("---") => Style::Dim,
        Some(b'+') => Style::Added,
        Some(b'-') => Style::Removed,
        Some(b'@') => Style::Place,
        _ => Style::Plain,
    }
}

/// The keys.
pub(super) fn prompt(asked: &ConsentAsked) -> String {
    let always = if asked.always().is_empty() { "" } else { "a always, " };
    format!("y once, {always}n decline, m decline with a message, v view all: ")
}

/// What a line chooses.
pub(super) fn choice(asked: &ConsentAsked, line: &str) -> Choice {
    match line.trim().to_lowercase().as_str() {
        "y" | "yes" | "once" => Choice::Answer(ConsentAnswer::Once),
        "a" | "always" if asked.always().is_empty() => {
            Choice::Again("this cannot be allowed for always: type y to allow it once".to_owned())
        }
        "a" | "always" => Choice::Answer(ConsentAnswer::Always),
        "n" | "no" => Choice::Answer(ConsentAnswer::Decline { message: None }),
        "m" | "message" => Choice::Message,
        "v" | "view" => Choice::All,
        _ => Choice::Again("type one of the letters".to_owned()),
    }
}

/// What `--yes` says.
pub(super) fn beforehand(asked: &ConsentAsked) -> ConsentAnswer {
    match asked.wants.iter().find(|want| want.in_person || want.named) {
        None => ConsentAnswer::Once,
        Some(want) => {
            let what = if want.permission == EXTERNAL_DIRECTORY {
                "a change outside of the workspace"
            } else {
                "what no rule can allow"
            };
            let subject = &want.subject;
            let message = format!("{subject} is {what} and needs a person: run without --yes at a terminal");
            ConsentAnswer::Decline { message: Some(message) }
        }
    }
}

/// What is said where nobody is.
pub(super) fn nobody(asked: &ConsentAsked) -> ConsentAnswer {
    let message = if asked.wants.iter().any(|want| want.in_person) {
        "nobody is there to be asked, and this needs a person: run it at a terminal, without --yes"
    } else if asked.wants.iter().any(|want| want.named) {
        "nobody is there to be asked: allow it with a rule about this permission by its name (`[permissions]` in the configuration)"
    } else {
        "nobody is there to be asked: allow it with a rule (`[permissions]` in the configuration), or with --yes"
    };
    ConsentAnswer::Decline { message: Some(message.to_owned()) }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::consent::{Risk, Want};
    use playhouse_protocol::walls::{Strength, WallsInForce};

    use super::super::tests::consent as request;
    use super::*;

    fn texts(lines: &[Line]) -> String {
        lines.iter().map(|line| format!("{}\n", line.text)).collect()
    }

    #[test]
    fn a_request_tells_all_that_one_must_know() {
        let mut asked = request(1, "make install\nmake clean");
        asked.wants = vec![
            Want::new("bash", "make install", Risk::Dangerous).always(["make install *"]),
            Want::new("bash", "make clean", Risk::Dangerous).always(["make clean *"]),
        ];
        asked.walls = Some(WallsInForce {
            strength: Strength::Full,
            by: "bubblewrap".to_owned(),
            detail: "the workspace".to_owned(),
            network: false,
        });
        assert_eq!(
            texts(&shown(&asked, None, false)),
            "? bash asks for consent\n  │ make install\n  │ make clean\n  why     no rule allows it\n  \
             wants   bash make install\n  wants   bash make clean\n  risk    dangerous\n  \
             walls   bubblewrap (the workspace); no network\n  always  bash \"make install *\"\n  \
             always  bash \"make clean *\"\n"
        );
        if let Some(walls) = &mut asked.walls {
            walls.detail = "the workspace can be changed; no network".to_owned();
        }
        let text = texts(&shown(&asked, None, false));
        assert!(text.contains("  walls   bubblewrap (the workspace can be changed; no network)\n"), "{text}");
        assert!(prompt(&asked).starts_with("y once, a always, n decline"));
        let from = SessionId::parse("ses_000000000001Sess1234567890").unwrap();
        let first = shown(&asked, Some(from), false).remove(0).text;
        assert!(first.ends_with("(sub-session ses_000000000001Sess1234567890)"), "{first}");
    }

    #[test]
    fn long_previews_are_cut_and_say_what_is_left() {
        let long: Vec<String> = (1..=50).map(|number| format!("echo {number}")).collect();
        let asked = request(1, &long.join("\n"));
        let text = texts(&shown(&asked, None, false));
        assert!(text.contains("  │ echo 40\n  … 10 more lines, 79 bytes (v shows all)\n"), "{text}");
        assert!(!text.contains("│ echo 41"), "{text}");
        let text = texts(&shown(&asked, None, true));
        assert!(text.contains("│ echo 50\n") && !text.contains('…'), "{text}");
        let wide = request(1, &"é".repeat(PREVIEW_CHARACTERS + 1));
        let lines = shown(&wide, None, false);
        assert_eq!(lines[1].text.chars().count(), PREVIEW_CHARACTERS + 4);
        assert!(lines[2].text.starts_with("  … 1 more line, "), "{}", lines[2].text);
        assert_eq!(shown(&wide, None, true)[1].text.chars().count(), PREVIEW_CHARACTERS + 5);
    }

    #[test]
    fn a_diff_has_its_colours() {
        use Style::{Added, Dim, Place, Plain, Removed};
        let mut asked = request(1, "--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n z");
        asked.diff = true;
        let styles: Vec<Style> = shown(&asked, None, false)[1..7].iter().map(|line| line.style).collect();
        assert_eq!(styles, [Dim, Dim, Place, Removed, Added, Plain]);
    }

    #[test]
    fn always_is_offered_only_where_it_can_be_said() {
        let mut asked = request(1, "python x.py");
        asked.wants = vec![Want::new("bash", "python x.py", Risk::Dangerous)];
        assert!(!prompt(&asked).contains("always"));
        let Choice::Again(text) = choice(&asked, "a") else { panic!("it cannot") };
        assert!(text.contains("cannot be allowed for always"), "{text}");
        assert_eq!(choice(&asked, " Y "), Choice::Answer(ConsentAnswer::Once));
        assert!(matches!(choice(&asked, ""), Choice::Again(_)), "Enter alone agrees to nothing");
    }

    #[test]
    fn what_needs_a_person_is_not_agreed_to_beforehand() {
        let mut asked = request(1, "x");
        assert_eq!(beforehand(&asked), ConsentAnswer::Once);
        let outside = Want::new(EXTERNAL_DIRECTORY, "/etc/motd", Risk::Dangerous);
        asked.wants.push(Want { named: true, ..outside });
        let ConsentAnswer::Decline { message: Some(message) } = beforehand(&asked) else {
            panic!("declined")
        };
        assert!(message.starts_with("/etc/motd is a change outside of the workspace and needs"), "{message}");
        assert!(needs_a_person(&asked));
        let told = |asked: &ConsentAsked| {
            let ConsentAnswer::Decline { message: Some(message) } = nobody(asked) else { panic!("declined") };
            assert!(!message.contains("or with --yes"), "{message}");
            message
        };
        assert!(told(&asked).contains("a rule about this permission by its name"));
        asked.wants[0].in_person = true;
        assert!(told(&asked).contains("this needs a person"));
    }
}
