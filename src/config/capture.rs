//! What is configured of capture tools: those of the operator, and which examples are in force.

use std::path::PathBuf;
use std::sync::Arc;

use playhouse_prompts::inside::read_trusted;
use playhouse_protocol::nearest::did_you_mean;
use playhouse_tools::Registry;
use playhouse_tools::capture::{CaptureTool, EXAMPLES, check_name, example};
use playhouse_tools::schema::LARGEST;
use serde_json::Value as Json;

use super::document::{Value, shown};
use super::keys::KeyName;
use super::settings::Settings;

/// The place of a capture tool in a file.
pub(super) const PATH: &str = "capture.NAME";

/// A capture tool as far as the file describes it.
#[derive(Default)]
pub(super) struct CaptureDraft {
    pub(super) line: usize,
    description: Option<String>,
    schema: Option<(usize, PathBuf)>,
}

impl CaptureDraft {
    /// Takes a setting over. A fragment says what is wrong with it.
    pub(super) fn set(
        &mut self,
        key: KeyName,
        value: &Value,
        line: usize,
        path: impl FnOnce(&str) -> PathBuf,
    ) -> Result<(), String> {
        match (key, value) {
            (KeyName::CaptureDescription, Value::Text(text)) => self.description = Some(text.clone()),
            (KeyName::CaptureSchema, Value::Text(text)) if text.trim().is_empty() => {
                return Err("is empty: name a file with a JSON Schema".to_owned());
            }
            (KeyName::CaptureSchema, Value::Text(text)) => self.schema = Some((line, path(text))),
            _ => return Err("does not belong here".to_owned()),
        }
        Ok(())
    }

    /// The tool, or line and text of what is wrong. Reads the file of the schema.
    pub(super) fn finish(self, name: &str) -> Result<Arc<CaptureTool>, (usize, String)> {
        let table = format!("capture.{}", shown(name));
        let wrong = |message: String| (self.line, message);
        check_name(name).map_err(|error| wrong(format!("the name of `{table}` {error}")))?;
        if Registry::native().get(name).is_some() {
            return Err(wrong(format!("`{table}` has the name of a native tool: give it another one")));
        }
        let Some((line, file)) = self.schema else {
            return Err(wrong(format!("`{table}` has no `schema`: name a file with a JSON Schema")));
        };
        let schema =
            read(&file).map_err(|error| (line, format!("`{table}.schema`: {} {error}", file.display())))?;
        let description = self.description.unwrap_or_default();
        let tool = CaptureTool::new(name, &description, &schema);
        tool.map(Arc::new).map_err(|error| wrong(format!("`{table}`: {error}")))
    }
}

/// The JSON of an operator's file. A fragment says what is wrong with it.
fn read(file: &std::path::Path) -> Result<Json, String> {
    let most = LARGEST as u64;
    let content = read_trusted(file, most).map_err(|error| format!("cannot be read: {error}"))?;
    if content.size > most {
        return Err(format!("is {} bytes long, at most {most}", content.size));
    }
    serde_json::from_slice(&content.bytes).map_err(|error| format!("is not valid JSON: {error}"))
}

/// Takes the examples over that are in force. A fragment says what is wrong.
pub(super) fn set_examples(_: KeyName, value: &Value, settings: &mut Settings) -> Result<(), String> {
    let Value::List(names) = value else { return Err("does not belong here".to_owned()) };
    for name in names {
        if example(name).is_none() {
            let meant = did_you_mean(name, EXAMPLES);
            let there_are = EXAMPLES.join(", ");
            return Err(format!("names \"{}\"; there are {there_are}{meant}", name.escape_debug()));
        }
    }
    settings.capture_examples.clone_from(names);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use playhouse_tools::Tool as _;

    use super::super::error::ConfigError;
    use super::*;

    fn load(folder: &Path, text: &str) -> Result<Settings, ConfigError> {
        let file = folder.join("config.toml");
        fs_err::write(&file, text).unwrap();
        Settings::load(Some(&file), &|_| None)
    }

    #[test]
    fn a_tool_has_its_schema_in_a_file_beside_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        fs_err::write(folder.path().join("verdict.json"), r#"{"type": "object"}"#).unwrap();
        let text = "tools.capture = [\"save_prd\"]\npermissions.verdict = \"ask\"\n[capture.verdict]\n\
                    description = \"Says it.\"\nschema = \"verdict.json\"\n";
        let settings = load(folder.path(), text).unwrap();
        let [tool] = settings.captures.as_slice() else { panic!("one") };
        assert_eq!((tool.spec().name.as_str(), tool.spec().description.as_str()), ("verdict", "Says it."));
        assert_eq!(settings.capture_examples, ["save_prd"]);
        fs_err::write(folder.path().join("verdict.json"), r#"{"type": "object", "title": "x"}"#).unwrap();
        assert_ne!(load(folder.path(), text).unwrap().fingerprint, settings.fingerprint);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        fs_err::write(folder.path().join("good.json"), "{}").unwrap();
        fs_err::write(folder.path().join("bad.json"), "{").unwrap();
        fs_err::write(folder.path().join("none.json"), "{\"type\": 7}").unwrap();
        let good = "description = \"d\"\nschema = \"good.json\"";
        for (text, message) in [
            (
                "[capture.read]\nschema = \"good.json\"".to_owned(),
                ":1: `capture.read` has the name of a native",
            ),
            (format!("[capture.mcp_x]\n{good}"), ":1: the name of `capture.mcp_x` is "),
            (format!("[capture.submit_output]\n{good}"), ":1: the name of `capture.submit_output` is "),
            ("[capture.a]\ndescription = \"d\"".to_owned(), ":1: `capture.a` has no `schema`"),
            ("[capture.a]\nschema = \"good.json\"".to_owned(), ":1: `capture.a`: `description` is missing"),
            (
                good.replace("good", "bad")
                    .replace("description", "capture.a.description")
                    .replace("schema", "capture.a.schema"),
                "bad.json is not valid JSON",
            ),
            (format!("[capture.a]\n{}", good.replace("good", "absent")), ":3: `capture.a.schema`: "),
            (format!("[capture.a]\n{}", good.replace("good", "none")), ":1: `capture.a`: `schema`: "),
            (
                "tools.capture = [\"save_prt\"]".to_owned(),
                ":1: `tools.capture`: names \"save_prt\"; there are ",
            ),
        ] {
            let error = load(folder.path(), &text).unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
