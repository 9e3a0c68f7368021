//! The capture tools that a workspace declares: Markdown files in `.playhouse/capture/`.
//!
//! | key | value |
//! |---|---|
//! | `name` | the tool's name; left out: the file's |
//! | `description` | what models are told of it, before the text of the file |
//! | `schema` | the JSON Schema of what is kept |
//!
//! The head is [YAML](crate::front_matter::yaml). A workspace is not trusted: how many files are read and how large they are is
//! bounded, and links that lead out of it are not followed.

use std::path::Path;

use serde_json::Value;

use crate::PromptError;
use crate::front_matter::yaml;
use crate::inside::{names_inside, read_inside};

/// The folder, from a workspace's root.
pub const FOLDER: &str = ".playhouse/capture";
/// The most names in the folder that are looked at, the most files of tools, and the most bytes of each.
const MOST_NAMES: usize = 256;
const MOST_FILES: usize = 32;
const MOST_BYTES: u64 = 64 * 1024;

/// A file of the folder as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureFile {
    /// Its path from the workspace's root.
    pub file: String,
    /// Its text, or why there is none.
    pub text: Result<String, PromptError>,
}

/// A tool as a file declares it.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredCapture {
    /// The tool's name.
    pub name: String,
    /// What models are told of it; empty where the file says nothing.
    pub description: String,
    /// The JSON Schema of what is kept.
    pub schema: Value,
    /// The line of each key.
    lines: Vec<(String, usize)>,
    file: String,
}

/// The files of the folder of the workspace `root`, in the order of their names. Reads files.
pub fn read(root: &Path) -> Vec<CaptureFile> {
    let whole = |message: String| CaptureFile {
        file: FOLDER.to_owned(),
        text: Err(PromptError::whole(FOLDER, message)),
    };
    let mut names = match names_inside(root, Path::new(FOLDER), MOST_NAMES) {
        Ok(names) => names,
        Err(error) => return vec![whole(format!("cannot be used for capture tools: {error}"))],
    };
    names.retain(|name| name.ends_with(".md"));
    let more = names.len().saturating_sub(MOST_FILES);
    names.truncate(MOST_FILES);
    let mut files: Vec<CaptureFile> = names.iter().filter_map(|name| file(root, name)).collect();
    if more > 0 {
        files.push(whole(format!(
            "has {more} files too many: a workspace has at most {MOST_FILES} capture tools"
        )));
    }
    files
}

fn file(root: &Path, name: &str) -> Option<CaptureFile> {
    let file = format!("{FOLDER}/{name}");
    let text = match read_inside(root, Path::new(&file), MOST_BYTES) {
        // It was removed meanwhile.
        Ok(None) => return None,
        Ok(Some(content)) if content.size > MOST_BYTES => {
            Err(format!("is {} bytes long, at most {MOST_BYTES}", content.size))
        }
        Ok(Some(content)) => String::from_utf8(content.bytes).map_err(|_| "is not UTF-8".to_owned()),
        Err(error) => Err(format!("cannot be used for a capture tool: {error}")),
    };
    let text = text.map_err(|message| PromptError::whole(&file, message));
    Some(CaptureFile { file, text })
}

impl DeclaredCapture {
    /// Reads a file's text; `file` is its path, for messages and the name.
    ///
    /// # Errors
    /// Names the file, and the line or the key that is wrong.
    pub fn parse(file: &str, text: &str) -> Result<Self, PromptError> {
        let document = yaml::parse(file, text)?;
        let lines = document.members.iter().map(|member| (member.key.clone(), member.line)).collect();
        let stem = Path::new(file).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let mut capture = Self {
            name: stem.to_owned(),
            description: String::new(),
            schema: Value::Null,
            lines,
            file: file.to_owned(),
        };
        for member in document.members {
            match (member.key.as_str(), member.value) {
                ("name", Value::String(name)) => capture.name = name,
                ("description", Value::String(text)) => capture.description = text,
                ("schema", schema @ (Value::Object(_) | Value::Bool(_))) => capture.schema = schema,
                ("name" | "description", _) => {
                    let message = format!("`{}` must be a text", member.key);
                    return Err(PromptError::at(file, member.line, message));
                }
                ("schema", _) => {
                    return Err(PromptError::at(file, member.line, "`schema` must be a JSON Schema: a map"));
                }
                // Files may have keys of other programs.
                _ => {}
            }
        }
        if capture.schema.is_null() {
            return Err(PromptError::whole(
                file,
                "`schema` is missing: write the JSON Schema of what is kept",
            ));
        }
        capture.description = [capture.description.trim(), document.body]
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect::<Vec<_>>()
            .join("\n\n");
        Ok(capture)
    }

    /// That it cannot be used; `message` begins with the key that is wrong, in backticks.
    pub fn wrong(&self, message: impl Into<String>) -> PromptError {
        let message = message.into();
        let key = message.strip_prefix('`').and_then(|rest| rest.split_once('`')).map(|(key, _)| key);
        let line = self.lines.iter().find(|(known, _)| Some(known.as_str()) == key).map(|(_, line)| *line);
        PromptError { file: self.file.clone(), line, message }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_file_declares_a_tool() {
        let text = "---\nname: save_note\ndescription: Keeps a note\nschema:\n  type: object\nother: 1\n---\nOnce.\n";
        let capture = DeclaredCapture::parse(".playhouse/capture/note.md", text).unwrap();
        assert_eq!((capture.name.as_str(), capture.schema.clone()), ("save_note", json!({"type": "object"})));
        assert_eq!(capture.description, "Keeps a note\n\nOnce.");
        let error = capture.wrong("`schema`: is none").to_string();
        assert_eq!(error, ".playhouse/capture/note.md:4: `schema`: is none");
        let named = DeclaredCapture::parse("a/note.md", "---\nschema: {}\n---").unwrap();
        assert_eq!((named.name.as_str(), named.description.as_str()), ("note", ""));
        for (text, wrong) in [
            ("---\nname: 7\nschema: {}\n---", "a.md:2: `name` must be a text"),
            ("---\nschema: [a]\n---", "a.md:2: `schema` must be a JSON Schema: a map"),
            ("---\nname: x\n---", "a.md: `schema` is missing: write the JSON Schema of what is kept"),
        ] {
            assert_eq!(DeclaredCapture::parse("a.md", text).unwrap_err().to_string(), wrong);
        }
    }

    #[test]
    fn files_are_bounded_and_none_leads_outside() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        assert_eq!(read(root.path()), []);
        let folder = root.path().join(FOLDER);
        fs_err::create_dir_all(&folder).unwrap();
        fs_err::write(outside.path().join("key.md"), "---\nschema: {}\n---").unwrap();
        symlink(outside.path().join("key.md"), folder.join("a.md")).unwrap();
        fs_err::write(folder.join("b.md"), "x".repeat(70_000)).unwrap();
        fs_err::write(folder.join("c.md"), [0xff]).unwrap();
        fs_err::write(folder.join("d.md"), "text").unwrap();
        fs_err::write(folder.join("e.txt"), "text").unwrap();
        let told = |file: CaptureFile| file.text.unwrap_or_else(|error| error.to_string());
        let read_of = read(root.path()).into_iter().map(told).collect::<Vec<_>>();
        assert_eq!(
            read_of,
            [
                ".playhouse/capture/a.md: cannot be used for a capture tool: it leads outside of the workspace",
                ".playhouse/capture/b.md: is 70000 bytes long, at most 65536",
                ".playhouse/capture/c.md: is not UTF-8",
                "text",
            ]
        );
        for number in 0..40 {
            fs_err::write(folder.join(format!("x{number}.md")), "text").unwrap();
        }
        let all = read(root.path());
        assert_eq!(all.len(), MOST_FILES + 1);
        assert!(told(all[MOST_FILES].clone()).contains("12 files too many"));
    }
}
