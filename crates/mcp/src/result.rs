//! The results of tools, as models read them.
//!
//! - Content is shown if it has text or media; else structured content is, as JSON. Never both: servers repeat the one in the
//!   other.
//! - Images and documents that models can be shown are attached, checked and made to fit as files are. Other media become a note
//!   with their size.
//! - How much of it a model reads is up to the runner of calls.

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use playhouse_tools::media::{self, Kind};
use playhouse_tools::{NewAttachment, ToolError, ToolOutput};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::text::line;

/// As servers write it: with padding or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// The longest name, address or media type of a server in a line of ours, in bytes.
const NAME: usize = 300;

/// The result of a tool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallResult {
    /// What it shows.
    pub content: Vec<Content>,
    /// The same for programs.
    pub structured: Option<Value>,
    /// Whether the tool failed.
    pub is_error: bool,
}

/// A part of what a tool shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// A text.
    Text(String),
    /// An image, a sound or another file, in base64.
    Blob {
        /// What it is called: `image`, `audio` or its address.
        name: String,
        /// Its media type, as the server says.
        mime: Option<String>,
        /// The content.
        data: String,
    },
    /// Something that can be read from the server.
    Link {
        /// Its address.
        uri: String,
        /// Its name.
        name: String,
        /// What it is.
        description: Option<String>,
        /// Its media type.
        mime: Option<String>,
        /// Its size in bytes.
        size: Option<u64>,
    },
    /// A part of a kind that is not known, or that is malformed: with its kind.
    Unknown(String),
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|value| Self::read(&value))
    }
}

impl Content {
    fn read(value: &Value) -> Self {
        let kind = value.get("type").and_then(Value::as_str).unwrap_or("nothing");
        Self::known(kind, value).unwrap_or_else(|| Self::Unknown(line(kind, NAME)))
    }

    fn known(kind: &str, value: &Value) -> Option<Self> {
        let text = |of: &Value, name: &str| of.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(match kind {
            "text" => Self::Text(text(value, "text")?),
            "image" | "audio" => Self::Blob {
                name: kind.to_owned(),
                mime: text(value, "mimeType"),
                data: text(value, "data")?,
            },
            "resource_link" => Self::Link {
                uri: text(value, "uri")?,
                name: text(value, "title").or_else(|| text(value, "name")).unwrap_or_default(),
                description: text(value, "description"),
                mime: text(value, "mimeType"),
                size: value.get("size").and_then(Value::as_u64),
            },
            "resource" => {
                let resource = value.get("resource")?;
                match text(resource, "text") {
                    Some(text) => Self::Text(text),
                    None => Self::Blob {
                        name: text(resource, "uri").unwrap_or_else(|| "resource".to_owned()),
                        mime: text(resource, "mimeType"),
                        data: text(resource, "blob")?,
                    },
                }
            }
            _ => return None,
        })
    }
}

impl CallResult {
    /// Reads what a server answered.
    pub(crate) fn read(mut result: Value) -> Result<Self, String> {
        let Some(fields) = result.as_object_mut() else { return Err("it is no object".to_owned()) };
        let content = match fields.remove("content") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(parts)) => parts.iter().map(Content::read).collect(),
            Some(_) => return Err("its content is no list".to_owned()),
        };
        Ok(Self {
            content,
            structured: fields.remove("structuredContent"),
            is_error: fields.get("isError").and_then(Value::as_bool).unwrap_or_default(),
        })
    }

    /// The result as models read it. Blocks: images are looked at.
    ///
    /// # Errors
    /// The tool failed: with its text.
    pub fn into_output(self, title: String) -> Result<ToolOutput, ToolError> {
        let Self { content, structured, is_error } = self;
        let shows = |part: &Content| match part {
            Content::Text(text) => !text.trim().is_empty(),
            Content::Blob { .. } | Content::Link { .. } => true,
            Content::Unknown(_) => false,
        };
        let (mut parts, mut attachments) = (Vec::new(), Vec::new());
        match structured {
            Some(structured) if !content.iter().any(shows) => parts.push(pretty(&structured)),
            _ => {
                for part in content {
                    match part {
                        Content::Text(text) => parts.push(text),
                        Content::Blob { name, mime, data } => {
                            parts.push(blob(&name, mime.as_deref(), &data, &mut attachments));
                        }
                        Content::Link { uri, name, description, mime, size } => {
                            let size = size.map(|size| format!("{size} bytes"));
                            let facts: Vec<String> = mime.into_iter().chain(size).collect();
                            let facts = if facts.is_empty() {
                                String::new()
                            } else {
                                format!(" ({})", facts.join(", "))
                            };
                            let description = description.map(|text| format!(": {text}")).unwrap_or_default();
                            parts.push(line(
                                &format!("[resource {uri} {name}{facts}{description}]"),
                                3 * NAME,
                            ));
                        }
                        Content::Unknown(kind) => {
                            parts.push(format!("[a part of the kind \"{kind}\" that cannot be shown]"))
                        }
                    }
                }
            }
        }
        let mut output = parts.join("\n");
        if is_error {
            if output.trim().is_empty() {
                output = "the tool failed, and does not say why".to_owned();
            }
            return Err(ToolError::Failed(output));
        }
        if output.trim().is_empty() && attachments.is_empty() {
            output = "(no output)".to_owned();
        }
        Ok(ToolOutput { title, output, attachments, ..ToolOutput::default() })
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string())
}

/// Attaches what models can be shown, and says what there is.
fn blob(name: &str, mime: Option<&str>, data: &str, attachments: &mut Vec<NewAttachment>) -> String {
    let what = line(&format!("{name} {}", mime.unwrap_or_default()), NAME);
    // Base64 may be broken into lines.
    let dense: Vec<u8> = data.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let Ok(content) = BASE64.decode(dense) else {
        return format!("[{what}, which is not valid base64]");
    };
    let bytes = content.len();
    let Some(kind) = Kind::of(&content) else {
        return format!("[{what}, {bytes} bytes, cannot be shown]");
    };
    match media::fit(kind, content.into()) {
        Err(error) => format!("[{what} {error}]"),
        Ok(sendable) => {
            let subtype = sendable.kind.mime().rsplit('/').next().unwrap_or_default();
            let filename = format!("result-{}.{subtype}", attachments.len() + 1);
            let note = format!("[{filename}{}]", sendable.note());
            let mime = sendable.kind.mime().to_owned();
            attachments.push(NewAttachment { mime, filename, content: sendable.content });
            note
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A PNG of one pixel.
    const PNG: &str =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

    fn output(result: Value) -> Result<ToolOutput, ToolError> {
        CallResult::read(result).unwrap().into_output("title".into())
    }

    fn text(result: Value) -> String {
        output(result).unwrap().output
    }

    #[test]
    fn content_stands_before_structured_content() {
        let both = json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "structuredContent": {"a": 1}});
        assert_eq!(text(both), "a\nb");
        assert_eq!(text(json!({"content": [], "structuredContent": {"a": 1}})), "{\n  \"a\": 1\n}");
        assert_eq!(
            text(json!({"content": [{"type": "text", "text": " "}], "structuredContent": null})),
            "null"
        );
        assert_eq!(text(json!({})), "(no output)");
    }

    #[test]
    fn an_image_is_attached_and_other_media_are_named() {
        let content = json!({"content": [
            {"type": "image", "data": PNG, "mimeType": "image/jpeg"},
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
            {"type": "image", "data": "%", "mimeType": "image/png"},
            {"type": "image", "data": "iVBORw0KGgo", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "a:b", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "a:c", "blob": "AAAA"}},
            {"type": "resource_link", "uri": "a:d", "name": "D", "size": 7, "mimeType": "text/plain"},
            {"type": "hologram"},
            {"type": "text"},
        ], "structuredContent": {"a": 1}});
        let output = output(content).unwrap();
        let lines: Vec<&str> = output.output.lines().collect();
        assert_eq!(
            lines[..3],
            [
                "[result-1.png]",
                "[audio audio/wav, 3 bytes, cannot be shown]",
                "[image image/png, which is not valid base64]"
            ]
        );
        assert!(lines[3].starts_with("[image image/png is damaged or not whole"), "{}", lines[3]);
        assert_eq!(
            lines[4..],
            [
                "inside",
                "[a:c, 3 bytes, cannot be shown]",
                "[resource a:d D (text/plain, 7 bytes)]",
                "[a part of the kind \"hologram\" that cannot be shown]",
                "[a part of the kind \"text\" that cannot be shown]",
            ]
        );
        let [attachment] = &output.attachments[..] else { panic!("{:?}", output.attachments) };
        assert_eq!((attachment.mime.as_str(), attachment.filename.as_str()), ("image/png", "result-1.png"));
    }

    #[test]
    fn a_tool_that_failed_says_why() {
        let failed = |content: Value| output(json!({"content": content, "isError": true})).unwrap_err();
        assert_eq!(failed(json!([{"type": "text", "text": "no"}])), ToolError::Failed("no".into()));
        assert_eq!(failed(json!([])), ToolError::Failed("the tool failed, and does not say why".into()));
    }

    #[test]
    fn what_is_no_result_is_told() {
        assert!(CallResult::read(json!([])).is_err() && CallResult::read(json!({"content": "a"})).is_err());
    }
}
