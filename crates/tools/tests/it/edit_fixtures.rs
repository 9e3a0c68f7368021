//! Edits as models make them: a folder each, `before` and `call.json`, and then `after` or `error`.
//!
//! `call.json` names the tool, its input, and the strategy that must find the text. `error` has what the error must
//! contain, a line each. Without `before` there is no file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use playhouse_protocol::message::CallInput;
use playhouse_tools::{CallContext, Registry, ToolError, ToolOutput, runner};
use serde_json::{Value, json};

use super::{Count, context};

/// Every strategy must be shown to find something.
const STRATEGIES: [&str; 8] = [
    "exact",
    "line-trimmed",
    "indentation-flexible",
    "whitespace-normalised",
    "escape-normalised",
    "trimmed-boundary",
    "block-anchor",
    "context-aware",
];

/// Makes one call as the engine does.
pub(crate) async fn call(tool: &str, input: &Value, context: &CallContext) -> Result<ToolOutput, ToolError> {
    let input = CallInput::from_model(&input.to_string());
    let (tool, prepared) = runner::prepare(&Registry::native(), tool, &input, context).await?;
    runner::execute(&tool, prepared, context).await
}

fn folders() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/edit");
    let entries = fs_err::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<_> = entries.filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

/// What is wrong with the case in `folder`, and the strategy that it needed.
async fn run(folder: &Path) -> Result<Option<String>, String> {
    let call_json = fs_err::read_to_string(folder.join("call.json")).unwrap();
    let case: Value = serde_json::from_str(&call_json).map_err(|error| error.to_string())?;
    let tool = case["tool"].as_str().unwrap();
    let house = tempfile::tempdir().unwrap();
    let context = context(house.path(), Arc::new(Count::default()));
    let path = case["input"]["filePath"].as_str().unwrap();
    let file = house.path().join(path);
    let before = fs_err::read(folder.join("before")).ok();
    if let Some(before) = &before {
        fs_err::create_dir_all(file.parent().unwrap()).unwrap();
        fs_err::write(&file, before).unwrap();
        // A binary file is refused by read, and then by edit for the same reason.
        let _ = call("read", &json!({"filePath": path}), &context).await;
    }
    let result = call(tool, &case["input"], &context).await;
    let now = fs_err::read(&file).ok();
    match (fs_err::read(folder.join("after")), result) {
        (Ok(after), Ok(output)) => {
            if now.as_ref() != Some(&after) {
                let now = String::from_utf8_lossy(now.as_deref().unwrap_or_default()).into_owned();
                return Err(format!("{}\nthe file is now:\n{now:?}", output.output));
            }
            let used = output.metadata.get("strategy").and_then(Value::as_str);
            if used != case["strategy"].as_str() {
                return Err(format!("was found by {used:?}"));
            }
            let warned = output.output.contains("warning: oldString is not there exactly");
            if used.is_some() && warned != (used != Some("exact")) {
                return Err(format!("the warning is wrong: {}", output.output));
            }
            Ok(used.map(str::to_owned))
        }
        (Err(_), Err(error)) => {
            if now != before {
                return Err("was refused, and yet the file changed".to_owned());
            }
            let (error, wanted) = (error.to_string(), fs_err::read_to_string(folder.join("error")).unwrap());
            match wanted.lines().find(|line| !error.contains(line)) {
                Some(line) => Err(format!("the error does not say {line:?}:\n{error}")),
                None => Ok(None),
            }
        }
        (Ok(_), Err(error)) => Err(format!("was refused:\n{error}")),
        (Err(_), Ok(output)) => Err(format!("was not refused:\n{}", output.output)),
    }
}

#[tokio::test]
async fn every_fixture_does_what_it_says() {
    let folders = folders();
    let refused = folders.iter().filter(|folder| folder.join("error").exists()).count();
    assert!(
        folders.len() >= 60 && refused * 3 >= folders.len(),
        "{refused} of {} are refused",
        folders.len()
    );
    let (mut wrong, mut used) = (Vec::new(), Vec::new());
    for folder in &folders {
        let name = folder.file_name().unwrap().to_string_lossy();
        match run(folder).await {
            Ok(strategy) => used.extend(strategy),
            Err(problem) => wrong.push(format!("{name}: {problem}")),
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n\n"));
    for strategy in STRATEGIES {
        assert!(used.iter().any(|used| used == strategy), "no fixture is found by {strategy}");
    }
}
