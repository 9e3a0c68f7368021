//! What servers offer, and the lists that are kept of it on disk.
//!
//! A kept list lets sessions begin with the tools of a server that does not run. There is one file for each hash of an entry, so a
//! server that is declared differently begins without one.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use tempfile::NamedTempFile;

/// The longest instructions of a server that are kept, in bytes.
pub(crate) const INSTRUCTIONS: usize = 2 * 1024;
/// The largest file that is read, in bytes.
const LARGEST: u64 = 64 << 20;
/// The form of the files. Those of another are not read.
const VERSION: u32 = 1;

/// What a server offers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Listing {
    /// Its tools, in its order.
    pub tools: Vec<ListedTool>,
    /// Its prompts, in its order.
    pub prompts: Vec<ListedPrompt>,
    /// What it says of its use: 2 KB at most.
    pub instructions: Option<String>,
    /// Whether it has resources.
    pub has_resources: bool,
    /// What could not be read of it: by name, with the reason.
    pub refused: Vec<(String, String)>,
}

/// A tool as a server describes it. Nothing of this is checked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedTool {
    /// The server's own name of it.
    pub name: String,
    /// Its name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Schema of its arguments.
    #[serde(default)]
    pub input_schema: Value,
    /// Schema of its structured result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// What it says of its effects.
    #[serde(default, deserialize_with = "lenient")]
    pub annotations: Annotations,
    /// How it is called.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Execution::is_usual")]
    pub execution: Execution,
}

/// How a tool is called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Execution {
    /// Whether it is called as a task: `forbidden`, `optional` or `required`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_support: Option<String>,
}

impl Execution {
    /// Whether it can be called as a task only.
    pub fn needs_a_task(&self) -> bool {
        self.task_support.as_deref() == Some("required")
    }

    fn is_usual(&self) -> bool {
        self.task_support.is_none()
    }
}

/// What a tool says of its effects. A server may lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Annotations {
    /// Whether it changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// Whether it may destroy something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// Whether a second call with the same arguments changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// Whether it reaches out to others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
}

/// A prompt as a server describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedPrompt {
    /// Its name.
    pub name: String,
    /// Its name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What it takes.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<PromptArgument>,
}

/// An argument of a prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptArgument {
    /// Its name.
    pub name: String,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether it must be given.
    #[serde(default, deserialize_with = "lenient")]
    pub required: bool,
}

/// A resource as a server describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedResource {
    /// Its address.
    pub uri: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
}

/// What has another form than it should is as if it were not there.
fn lenient<'de, D: Deserializer<'de>, T: for<'a> Deserialize<'a> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// A file.
#[derive(Serialize, Deserialize)]
struct Kept<T> {
    version: u32,
    listing: T,
}

/// A folder of kept lists. Its methods block.
#[derive(Clone, Debug)]
pub struct KeptLists {
    folder: PathBuf,
}

impl KeptLists {
    /// The lists in a folder, which is made when it is needed.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn path(&self, hash: &str) -> PathBuf {
        self.folder.join(format!("{hash}.json"))
    }

    /// The list that is kept for an entry with this [hash](crate::ServerEntry::hash). `None` if there is none that can be read:
    /// then the server has to be asked.
    pub fn load(&self, hash: &str) -> Option<Listing> {
        let path = self.path(hash);
        let read = || {
            let mut text = Vec::new();
            fs_err::File::open(&path)?.take(LARGEST + 1).read_to_end(&mut text)?;
            if text.len() as u64 > LARGEST {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long"));
            }
            let kept: Kept<Listing> = serde_json::from_slice(&text)?;
            if kept.version != VERSION {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "it is of another version"));
            }
            Ok(kept.listing)
        };
        match read() {
            Ok(listing) => Some(listing),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the list of a server's tools cannot be read; it is asked again");
                None
            }
        }
    }

    /// Keeps a list in place of the one before, whole or not at all.
    ///
    /// # Errors
    /// It cannot be written; the one before stays.
    pub fn save(&self, hash: &str, listing: &Listing) -> io::Result<()> {
        fs_err::create_dir_all(&self.folder)?;
        let mut file = NamedTempFile::new_in(&self.folder)?;
        file.write_all(&serde_json::to_vec(&Kept { version: VERSION, listing })?)?;
        file.as_file().sync_all()?;
        file.persist(self.path(hash)).map_err(|error| error.error)?;
        Ok(())
    }

    /// Forgets a list, which there may not be.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, hash: &str) -> io::Result<()> {
        match fs_err::remove_file(self.path(hash)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn listing() -> Listing {
        let tool = json!({
            "name": "a", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}, "icons": [1], "title": "A",
        });
        Listing {
            tools: vec![serde_json::from_value(tool).unwrap()],
            prompts: vec![ListedPrompt { name: "p".into(), ..ListedPrompt::default() }],
            instructions: Some("Use it.".into()),
            has_resources: true,
            refused: vec![("x".into(), "y".into())],
        }
    }

    #[test]
    fn a_list_is_kept_whole() {
        let folder = tempfile::tempdir().unwrap();
        let kept = KeptLists::new(folder.path().join("lists"));
        assert_eq!(kept.load("ab"), None);
        kept.save("ab", &listing()).unwrap();
        assert_eq!(kept.load("ab"), Some(listing()));
        assert_eq!(kept.load("cd"), None);
        kept.save("ab", &Listing::default()).unwrap();
        assert_eq!(kept.load("ab"), Some(Listing::default()));
        // Nothing else is left of it.
        assert_eq!(fs_err::read_dir(kept.folder()).unwrap().count(), 1);
        kept.remove("ab").unwrap();
        kept.remove("ab").unwrap();
        assert_eq!(kept.load("ab"), None);
    }

    #[test]
    fn a_bad_file_is_no_list() {
        let folder = tempfile::tempdir().unwrap();
        let kept = KeptLists::new(folder.path());
        for text in ["", "{", "[]", r#"{"version":2,"listing":{}}"#, r#"{"version":1,"listing":{"tools":1}}"#]
        {
            fs_err::write(folder.path().join("ab.json"), text).unwrap();
            assert_eq!(kept.load("ab"), None, "{text}");
        }
        fs_err::write(folder.path().join("ab.json"), r#"{"version":1,"listing":{"later":1}}"#).unwrap();
        assert_eq!(kept.load("ab"), Some(Listing::default()));
    }

    #[test]
    fn a_tool_needs_no_more_than_a_name() {
        let tool: ListedTool =
            serde_json::from_value(json!({"name": "a", "annotations": {"readOnlyHint": "yes"}})).unwrap();
        assert_eq!(tool, ListedTool { name: "a".into(), ..ListedTool::default() });
        assert!(serde_json::from_value::<ListedTool>(json!({"name": 1})).is_err());
    }
}
