//! `webfetch`: what an address of the web has.

use std::time::{Duration, Instant};

use playhouse_policy::{Access, Verdict};
use playhouse_protocol::record::{Effect, Recovery};
use reqwest::Url;
use reqwest::header::{ACCEPT, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Map;

use super::bounded;
use super::charset::{decode, essence};
use super::door::{Answer, Door, Request, shown};
use super::html::{self, Page};
use crate::files;
use crate::files::document::cut_characters;
use crate::media::{self, Kind, Sendable};
use crate::tool::{CallContext, NewAttachment, Prepared, Risk, ToolError, ToolOutput};
use crate::typed::{Ready, TypedTool};

/// The most of an answer that is read, in bytes once it is uncompressed.
const LARGEST: usize = 5_000_000;
/// Seconds, unless the call asks for others.
const TIMEOUT: u64 = 30;
/// The most seconds that a call may ask for.
const LONGEST_TIMEOUT: u64 = 120;
/// Of the body of an error, this many bytes are read and this many characters are shown.
const ERROR_BYTES: usize = 64 * 1024;
const ERROR_CHARACTERS: usize = 2_000;
/// Characters of an address in a title.
const LONGEST_TITLE: usize = 200;

/// What a page is made into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Format {
    /// Markdown.
    #[default]
    Markdown,
    /// Text without marks.
    Text,
    /// As it is.
    Html,
}

/// The arguments of `webfetch`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Arguments {
    url: String,
    #[serde(default)]
    /// Default: markdown.
    format: Option<Format>,
    /// Seconds: default 30, at most 120.
    #[serde(default)]
    timeout: Option<u64>,
}

/// What a call fetches.
#[derive(Clone, Debug)]
pub struct Task {
    url: Url,
    format: Format,
    timeout: Duration,
}

/// The tool.
#[derive(Debug)]
pub struct WebFetch {
    door: Door,
}

impl WebFetch {
    /// The tool, with the door through which it goes.
    pub fn new(door: Door) -> Self {
        Self { door }
    }
}

impl TypedTool for WebFetch {
    const NAME: &'static str = "webfetch";
    const DESCRIPTION: &'static str = include_str!("../../../../prompts/tools/webfetch.md");
    const RISK: Risk = Risk::Moderate;
    type Arguments = Arguments;
    type Task = Task;

    async fn prepare(&self, arguments: Arguments, _: &CallContext) -> Result<Ready<Task>, ToolError> {
        let seconds = arguments.timeout.unwrap_or(TIMEOUT);
        if !(1..=LONGEST_TIMEOUT).contains(&seconds) {
            return Err(ToolError::Invalid(format!(
                "timeout is {seconds}: give it in seconds, from 1 to {LONGEST_TIMEOUT}"
            )));
        }
        let url = address(&arguments.url).map_err(ToolError::Invalid)?;
        self.door.check(&url).map_err(|error| ToolError::Invalid(error.to_string()))?;
        let title = cut_characters(url.as_str(), LONGEST_TITLE).0.to_owned();
        Ok(Ready {
            accesses: vec![Access::Address(without_credentials(&url))],
            effect: Effect::None,
            recovery: Recovery::Rerun,
            preview: format!("GET {url}"),
            title,
            task: Task {
                url,
                format: arguments.format.unwrap_or_default(),
                timeout: Duration::from_secs(seconds),
            },
        })
    }

    async fn execute(&self, task: Task, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let what = format!("fetching {}", shown(&task.url));
        bounded(context, task.timeout, &what, self.fetch(&task, context)).await
    }
}

impl WebFetch {
    async fn fetch(&self, task: &Task, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let deadline = Instant::now() + task.timeout;
        let mut request = Request::get(task.url.clone());
        request.headers.insert(ACCEPT, HeaderValue::from_static(accepted(task.format)));
        let follows = |from: &Url, to: &Url| follows(context, from, to);
        let answer = self.door.send_where(request, &follows).await.map_err(failed)?;
        if !(200..300).contains(&answer.status) {
            return Err(status(answer).await);
        }
        let (url, kind) = (answer.url.clone(), answer.content_type.clone());
        let type_name = kind.as_deref().map(essence).unwrap_or_default();
        if let Some(reason) = unreadable(&type_name) {
            return Err(ToolError::Failed(format!("{} is {type_name}: {reason}", shown(&url))));
        }
        let body = answer.body(LARGEST).await.map_err(failed)?;
        let bytes = body.len();
        let mut output = match Kind::of(&body) {
            Some(kind) => {
                let fitted = files::reading(context, move || Ok(media::fit(kind, body.into()))).await?;
                attachment(&url, fitted.map_err(|error| failed(format!("{} {error}", shown(&url))))?)
            }
            None => {
                let job = Job { url: url.clone(), kind, format: task.format, body, deadline };
                let cancel = context.cancel.clone();
                files::reading(context, move || job.run(&|| cancel.is_cancelled())).await?
            }
        };
        let led_away = without_fragment(&task.url) != without_fragment(&url);
        if led_away && output.attachments.is_empty() {
            output.output = format!("(redirected to {url})\n\n{}", output.output);
        }
        let type_shown = if type_name.is_empty() { "unknown type" } else { &type_name };
        output.title = format!("{} ({type_shown})", cut_characters(url.as_str(), LONGEST_TITLE).0);
        output.metadata.insert("url".into(), url.as_str().into());
        output.metadata.insert("contentType".into(), type_name.into());
        output.metadata.insert("bytes".into(), bytes.into());
        Ok(output)
    }
}

/// What the rules say of where a redirect leads: they hold there as for the address that was asked for. What people agreed
/// to was one site.
fn follows(context: &CallContext, from: &Url, to: &Url) -> Result<(), String> {
    let tool = context.host.find(WebFetch::NAME).map_err(|error| error.to_string())?;
    let next = Prepared {
        accesses: vec![Access::Address(without_credentials(to))],
        effect: Effect::None,
        recovery: Recovery::Rerun,
        preview: String::new(),
        title: String::new(),
        plan: Box::new(()),
    };
    match context.host.judge(&*tool, &next) {
        Verdict::Allow => Ok(()),
        Verdict::Ask { .. } if is_same_site(from, to) => Ok(()),
        Verdict::Ask { .. } => {
            Err("it is another site, which has to be agreed to: fetch it by itself if that is what you want"
                .into())
        }
        Verdict::Deny { reason } => Err(reason),
    }
}

/// Whether both are one server, perhaps with encryption now.
fn is_same_site(from: &Url, to: &Url) -> bool {
    let is_usual = |url: &Url| url.port().is_none();
    from.host() == to.host() && (from.origin() == to.origin() || (is_usual(from) && is_usual(to)))
}

fn failed(error: impl std::fmt::Display) -> ToolError {
    ToolError::Failed(error.to_string())
}

fn accepted(format: Format) -> &'static str {
    match format {
        Format::Markdown => {
            "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, text/plain;q=0.8, */*;q=0.5"
        }
        Format::Text => "text/plain, text/html;q=0.9, application/xhtml+xml;q=0.9, */*;q=0.5",
        Format::Html => "text/html, application/xhtml+xml, text/plain;q=0.8, */*;q=0.5",
    }
}

/// What rules and people are told of `url`. Credentials in it are never sent, and are nobody's business.
fn without_credentials(url: &Url) -> String {
    let mut url = without_fragment(url);
    // Fails for addresses that cannot have credentials.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.into()
}

fn without_fragment(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_fragment(None);
    url
}

/// Reads an address as people write it.
fn address(text: &str) -> Result<Url, String> {
    let text = text.trim();
    let wrong = |reason: &str| {
        let short: String = text.chars().take(200).collect();
        format!("\"{}\" {reason}", short.escape_debug())
    };
    if text.is_empty() {
        return Err("url is empty: give the address of a page".to_owned());
    }
    // `localhost:3000` has a port, `mailto:someone` a scheme.
    let scheme = text.split_once(':').filter(|(scheme, rest)| {
        !scheme.is_empty()
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-'))
            && !rest.starts_with(|c: char| c.is_ascii_digit())
    });
    let whole = match scheme {
        Some((scheme, _)) if !matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https") => {
            return Err(wrong(
                "is not an address of the web: webfetch fetches http:// and https:// only, and read shows files",
            ));
        }
        Some(_) => text.to_owned(),
        None => format!("https://{}", text.trim_start_matches('/')),
    };
    Url::parse(&whole).map_err(|error| wrong(&format!("is not an address: {error}")))
}

/// Why content of this type is not fetched; `None` for what can be shown, or has to be looked at.
fn unreadable(kind: &str) -> Option<&'static str> {
    let (family, rest) = kind.split_once('/').unwrap_or((kind, ""));
    let archive = matches!(
        rest,
        "zip"
            | "gzip"
            | "x-gzip"
            | "x-tar"
            | "x-bzip2"
            | "x-xz"
            | "zstd"
            | "x-7z-compressed"
            | "vnd.rar"
            | "java-archive"
            | "wasm"
            | "x-iso9660-image"
            | "x-executable"
            | "vnd.debian.binary-package"
    );
    match family {
        "audio" | "video" | "font" => Some("webfetch shows text, images (PNG, JPEG, GIF, WebP) and PDF"),
        "application" if archive => Some(
            "webfetch shows text, images (PNG, JPEG, GIF, WebP) and PDF; if commands may use the network, download it with bash and look into it there",
        ),
        _ => None,
    }
}

/// What a server says that has no page.
async fn status(answer: Answer) -> ToolError {
    let (url, status, kind) = (shown(&answer.url), answer.status, answer.content_type.clone());
    let reason = reqwest::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    let body = answer.beginning(ERROR_BYTES).await;
    let is_html = kind.as_deref().is_some_and(|kind| is_html(&essence(kind)));
    let text = if body.contains(&0) { String::new() } else { decode(&body, kind.as_deref(), is_html) };
    let text = match is_html.then(|| html::plain_text(&text, &|| false)).flatten() {
        Some(page) => page.text,
        None => text,
    };
    let (beginning, cut) = cut_characters(text.trim(), ERROR_CHARACTERS);
    let mut message = format!("{url} answers {status} {}", reason.unwrap_or_default()).trim_end().to_owned();
    if !beginning.is_empty() {
        message.push_str(&format!(":\n\n{beginning}{}", if cut { "…" } else { "" }));
    }
    ToolError::Failed(message)
}

fn attachment(url: &Url, file: Sendable) -> ToolOutput {
    let name = url.path_segments().and_then(|mut segments| segments.next_back());
    let filename = name.filter(|name| !name.is_empty()).unwrap_or("download").chars().take(100).collect();
    let (mime, size, note) = (file.kind.mime(), files::size(file.content.len() as u64), file.note());
    ToolOutput {
        output: format!("{url} ({mime}, {size}{note}) is attached"),
        attachments: vec![NewAttachment { mime: mime.to_owned(), filename, content: file.content }],
        ..ToolOutput::default()
    }
}

fn is_html(kind: &str) -> bool {
    matches!(kind, "text/html" | "application/xhtml+xml")
}

/// An answer that is no picture and no document.
struct Job {
    url: Url,
    kind: Option<String>,
    format: Format,
    body: Vec<u8>,
    deadline: Instant,
}

impl Job {
    fn run(self, cancelled: &dyn Fn() -> bool) -> Result<ToolOutput, ToolError> {
        let stopped = || cancelled() || Instant::now() > self.deadline;
        let kind = self.kind.as_deref().map(essence).unwrap_or_default();
        let is_html = is_html(&kind) || (kind.is_empty() && looks_like_html(&self.body));
        let text = decode(&self.body, self.kind.as_deref(), is_html);
        // UTF-16 is full of zeros that are none once it is decoded.
        if text.bytes().take(64 * 1024).any(|byte| byte == 0) {
            return Err(ToolError::Failed(format!(
                "{} is a binary file ({}): webfetch shows text, images (PNG, JPEG, GIF, WebP) and PDF",
                shown(&self.url),
                files::size(self.body.len() as u64)
            )));
        }
        let page = match self.format {
            Format::Markdown if is_html => html::markdown(&text, &self.url, &stopped),
            Format::Text if is_html => html::plain_text(&text, &stopped),
            _ => return Ok(ToolOutput::text(text)),
        };
        let Page { text, title, whole } = page.ok_or_else(files::cancelled)?;
        let mut output = ToolOutput::text(text);
        if output.output.trim().is_empty() {
            output.output =
                "(the page has no text: it may be made by a script, and those are not run; format html shows it as it is)"
                    .to_owned();
        }
        if !whole {
            output.output.push_str(
                "\n\n(the page is too large to be converted as a whole: the rest is left out; format html has all of it)",
            );
        }
        if !title.is_empty() {
            output.metadata = Map::from_iter([("pageTitle".to_owned(), title.into())]);
        }
        Ok(output)
    }
}

/// For answers without a type.
fn looks_like_html(body: &[u8]) -> bool {
    let head = body.trim_ascii_start();
    let head = head.get(..32).unwrap_or(head).to_ascii_lowercase();
    head.starts_with(b"<!doctype html") || head.starts_with(b"<html")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, url) in [
            ("https://example.com/a b?c#d", "https://example.com/a%20b?c#d"),
            (" example.com/x ", "https://example.com/x"),
            ("//example.com", "https://example.com/"),
            ("localhost:3000/x", "https://localhost:3000/x"),
            ("HTTP://Example.COM", "http://example.com/"),
            ("bücher.example", "https://xn--bcher-kva.example/"),
        ] {
            assert_eq!(address(text).map(String::from), Ok(url.to_owned()), "{text}");
        }
        for text in [
            "",
            " ",
            "ftp://example.com",
            "file:///etc/passwd",
            "mailto:a@example.com",
            "javascript:alert(1)",
            "data:text/html,x",
            "http://",
            "http://[::1",
            "http://a b/",
            "https://exa mple.com",
        ] {
            let error = address(text).unwrap_err();
            assert!(!error.is_empty(), "{text}");
        }
    }

    #[test]
    fn types_that_nobody_can_show_are_refused() {
        for kind in ["video/mp4", "audio/ogg", "font/woff2", "application/zip", "application/wasm"] {
            assert!(unreadable(kind).is_some(), "{kind}");
        }
        for kind in
            ["", "text/html", "application/json", "image/png", "application/octet-stream", "application/pdf"]
        {
            assert!(unreadable(kind).is_none(), "{kind}");
        }
    }
}
