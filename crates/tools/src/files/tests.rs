//! The file tools, called the way the engine calls them.

mod changing;
mod encodings;
mod hostile;
mod links;
mod logged;
mod reading;
mod searching;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::*;
use crate::tool::ToolOutput;
use crate::{Registry, testing};

/// A workspace, and a session that works in it.
struct House {
    folder: tempfile::TempDir,
    context: CallContext,
    registry: Registry,
}

impl House {
    /// A workspace with these files: `path=content`, or `path/` for a directory.
    fn with(entries: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("repo");
        fs_err::create_dir(&root).unwrap();
        let context = testing::context(&root, &folder.path().join("outputs")).unwrap();
        let house = Self { folder, context, registry: Registry::native() };
        for entry in entries {
            let (name, content) = entry.split_once('=').unwrap_or((entry, ""));
            if name.ends_with('/') {
                fs_err::create_dir_all(house.path(name)).unwrap();
            } else {
                house.put(name, content.as_bytes());
            }
        }
        house
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("repo").join(name)
    }

    fn put(&self, name: &str, content: &[u8]) {
        fs_err::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs_err::write(self.path(name), content).unwrap();
    }

    fn content(&self, name: &str) -> Vec<u8> {
        fs_err::read(self.path(name)).unwrap()
    }

    async fn call(&self, tool: &str, input: Value) -> Result<ToolOutput, ToolError> {
        testing::call(&self.registry, tool, &input, &self.context).await
    }

    /// The output of a call that must do well.
    async fn good(&self, tool: &str, input: Value) -> String {
        match self.call(tool, input).await {
            Ok(output) => output.output,
            Err(error) => panic!("{tool} must do well, says {error}"),
        }
    }

    /// The error of a call that must not, with the folder of this test left out.
    async fn bad(&self, tool: &str, input: Value) -> String {
        match self.call(tool, input).await {
            Ok(output) => panic!("{tool} must fail, says {}", output.output),
            Err(error) => {
                let folder = fs_err::canonicalize(self.folder.path()).unwrap();
                error.to_string().replace(folder.to_str().unwrap(), "<folder>")
            }
        }
    }
}

#[test]
fn parameters_have_their_final_names() {
    let registry = Registry::native();
    let takes = ["read", "write", "edit", "glob", "grep", "list"]
        .map(|name| crate::arguments::short(&registry.get(name).unwrap().spec().parameters));
    insta::assert_snapshot!(takes.join("\n"), @r"
    {filePath: string, offset?: integer, limit?: integer}
    {filePath: string, content: string}
    {filePath: string, oldString: string, newString: string, replaceAll?: boolean}
    {pattern: string, path?: string}
    {pattern: string, path?: string, include?: string}
    {path?: string, ignore?: [string, …]}
    ");
}
