//! Bodies and messages for people.

/// The longest text of a provider that goes into an error, in characters.
const TEXT_LIMIT: usize = 500;

/// Whether a body is a page for people: of a proxy, or of another server than the provider's.
pub(crate) fn is_page(body: &[u8]) -> bool {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
    let begins =
        |word: &str| body.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()));
    begins("<!doctype html") || begins("<html")
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
