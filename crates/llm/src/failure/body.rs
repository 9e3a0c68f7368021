//! Bodies and messages for people.

/// The longest text of a provider that goes into an error, in characters.
const TEXT_LIMIT: usize = 500;
/// How a page begins.
const PAGES: [&str; 7] = ["<!doctype html", "<html", "<head", "<body", "<title", "<meta", "<script"];
/// The most declarations and comments before it, of each kind.
const MOST_BEFORE: usize = 8;

/// Whether a body is a page for people: of a proxy, or of another server than the provider's.
pub(crate) fn is_page(body: &[u8]) -> bool {
    let mut body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
    // What may stand in front of it.
    for (begin, end) in [("<?xml", "?>"), ("<!--", "-->")].into_iter().cycle().take(MOST_BEFORE) {
        if body.starts_with(begin.as_bytes())
            && let Some(at) = body.windows(end.len()).position(|part| part == end.as_bytes())
        {
            body = body[at + end.len()..].trim_ascii_start();
        }
    }
    let begins =
        |word: &&str| body.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()));
    PAGES.iter().any(begins)
}

/// A body for people: what an HTML page is titled, or the beginning of a text.
pub(crate) fn describe_body(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(16 << 10)]);
    let lower = text.to_ascii_lowercase();
    if is_page(body) {
        let title = lower.find("<title").and_then(|tag| {
            let from = tag + lower[tag..].find('>')? + 1;
            let to = from + lower[from..].find("</title")?;
            Some(one_line(&text[from..to]))
        });
        return match title.filter(|title| !title.is_empty()) {
            Some(title) => format!("an HTML page titled \"{title}\""),
            None => format!("an HTML page: {}", cap(&one_line(&text), 120)),
        };
    }
    one_line(&text)
}

/// `text` on one line, without control characters, capped.
pub(super) fn one_line(text: &str) -> String {
    let words = text.split(|character: char| character.is_whitespace() || character.is_control());
    let mut line = String::new();
    for word in words.filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        // The length in bytes is at least that in characters, and the cap is exact below.
        if line.len() > 4 * TEXT_LIMIT {
            break;
        }
    }
    cap(&line, TEXT_LIMIT)
}

fn cap(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_known_by_how_it_begins() {
        for page in [
            "<!DOCTYPE html><html>",
            "\u{feff}\n<HTML>",
            "<?xml version=\"1.0\"?>\n<!DOCTYPE html PUBLIC \"x\">",
            "<!-- a proxy --><!-- of ours -->\n<html>",
            "<head><title>x</title>",
            "<script>location = '/login'</script>",
        ] {
            assert!(is_page(page.as_bytes()), "{page}");
        }
        for other in
            ["", "{}", "data: {}", "<?xml version=\"1.0\"?><Error/>", "<!-- open <html>", "<thinking>"]
        {
            assert!(!is_page(other.as_bytes()), "{other}");
        }
    }
}
