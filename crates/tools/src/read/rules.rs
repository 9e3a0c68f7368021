//! Rules of subdirectories: a model is shown them when it first reads a file there.

use std::path::Path;

use playhouse_policy::{AccessKind, Verdict};
use playhouse_prompts::RulesFile;
use playhouse_prompts::rules::NAMES;
use playhouse_protocol::record::{Effect, Recovery};
use playhouse_workspace::{Resolved, at_once, door};

use crate::files;
use crate::runner::RULES;
use crate::tool::{CallContext, Prepared, ToolOutput};
use crate::typed::TypedTool as _;

/// The most bytes of rules behind one result. What does not fit comes with a later one.
const MOST: usize = 32 * 1024;

/// Adds the rules of the folders between the workspace and the file `place`, as far as they are new to the session.
pub(super) async fn add(place: &Resolved, output: &mut ToolOutput, context: &CallContext) {
    let root = context.workspace.root();
    let Some(folder) = place.path.strip_prefix(root).ok().and_then(Path::parent) else { return };
    // Those of the workspace itself are in the system prompt.
    if folder.as_os_str().is_empty() {
        return;
    }
    if at_once(|| there_is_none(root, folder)) == Some(true) {
        return;
    }
    let (folder, workspace) = (folder.to_owned(), context.workspace.clone());
    let (found, problems) = context.pool.run(move || RulesFile::below(workspace.root(), &folder)).await;
    for problem in problems {
        tracing::warn!(%problem, "left out of a result");
    }
    let mut left = MOST;
    for rules in found {
        let itself = root.join(&rules.file) == place.path;
        if itself && output.metadata.get("complete") == Some(&true.into()) && rules.cut.is_none() {
            if context.host.claims_rules(&rules.file) {
                output.metadata.insert(RULES.into(), vec![rules.file].into());
            }
            continue;
        }
        if rules.text.len() > left || !may_read(&rules.file, context).await {
            continue;
        }
        if context.host.claims_rules(&rules.file) {
            left -= rules.text.len();
            output.rules.push(rules);
        }
    }
}

/// Whether it is sure that no folder between `root` and its `folder`, that one too, has rules.
fn there_is_none(root: &Path, folder: &Path) -> bool {
    let folders = folder.ancestors().filter(|folder| !folder.as_os_str().is_empty());
    let mut files = folders.flat_map(|folder| NAMES.map(|name| root.join(folder).join(name)));
    files.all(|file| matches!(door::facts_at(&file), Ok(None)))
}

/// Whether a call of `read` may show this file without asking anybody.
async fn may_read(file: &str, context: &CallContext) -> bool {
    let Ok(place) = files::resolve(context, file).await else { return false };
    let Ok(tool) = context.host.find(super::Read::NAME) else { return false };
    let prepared = Prepared {
        accesses: vec![place.access(AccessKind::Read)],
        effect: Effect::None,
        recovery: Recovery::Rerun,
        preview: place.shown.clone(),
        title: place.shown.clone(),
        plan: Box::new(()),
    };
    context.host.judge(&*tool, &prepared) == Verdict::Allow
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use playhouse_policy::{Action, Policy, Rule};
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;
    use crate::testing::{self, Person};
    use crate::{Alone, Registry};

    /// A workspace with rules in two folders, and what a session in it does.
    struct Place {
        folder: TempDir,
        person: Arc<Person>,
    }

    impl Place {
        fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs_err::create_dir_all(folder.path().join("w/docs/deep")).unwrap();
            for (file, text) in [
                ("AGENTS.md", "of all"),
                ("docs/AGENTS.md", "of docs"),
                ("docs/deep/CLAUDE.md", "of deep"),
                ("docs/deep/a.md", "a"),
                ("docs/b.md", "b"),
                ("c.md", "c"),
            ] {
                fs_err::write(folder.path().join("w").join(file), text).unwrap();
            }
            let policy = Policy { configuration: rules.into_iter().collect(), ..Policy::default() };
            let alone = Alone::with_policy(Arc::new(Registry::native()), policy);
            Self { folder, person: Arc::new(Person { alone, ..Person::default() }) }
        }

        async fn call(&self, tool: &str, input: serde_json::Value) -> ToolOutput {
            let (root, outputs) = (self.folder.path().join("w"), self.folder.path().join("outputs"));
            let mut context = testing::context(&root, &outputs).unwrap();
            context.host = Arc::clone(&self.person) as _;
            testing::call(&Registry::native(), tool, &input, &context).await.unwrap()
        }

        async fn read(&self, file: &str) -> (String, serde_json::Value) {
            let output = self.call("read", json!({"filePath": file})).await;
            (output.output, output.metadata.get("rules").cloned().unwrap_or_default())
        }
    }

    #[tokio::test]
    async fn rules_come_behind_the_first_file_that_is_read_below_them_and_once() {
        let place = Place::new([]);
        assert_eq!(place.read("c.md").await, ("1\tc\n".to_owned(), json!(null)));
        let (text, rules) = place.read("docs/b.md").await;
        assert!(text.starts_with("1\tb\n") && text.ends_with("\nof docs\n</rules>"), "{text}");
        assert_eq!(rules, json!(["docs/AGENTS.md"]));
        let (text, rules) = place.read("docs/deep/a.md").await;
        assert!(text.contains("of deep") && !text.contains("of docs"), "{text}");
        assert_eq!(rules, json!(["docs/deep/CLAUDE.md"]));
        assert_eq!(place.read("docs/deep/a.md").await.1, json!(null));
    }

    #[tokio::test]
    async fn a_file_of_rules_that_is_read_by_itself_is_not_shown_a_second_time() {
        let place = Place::new([]);
        let (text, rules) = place.read("docs/AGENTS.md").await;
        assert_eq!((text.as_str(), rules), ("1\tof docs\n", json!(["docs/AGENTS.md"])));
        assert_eq!(place.read("docs/b.md").await.1, json!(null));
    }

    #[tokio::test]
    async fn what_may_not_be_read_is_not_shown() {
        let rules = [Rule::new("*", "*", Action::Allow), Rule::new("read", "docs/AGENTS.md", Action::Deny)];
        let place = Place::new(rules);
        assert_eq!(place.read("docs/deep/a.md").await.1, json!(["docs/deep/CLAUDE.md"]));
    }

    #[tokio::test]
    async fn a_batch_shows_those_of_all_its_calls() {
        let place = Place::new([]);
        let calls = ["docs/b.md", "docs/deep/a.md"];
        let calls = calls.map(|file| json!({"tool": "read", "parameters": {"filePath": file}}));
        let output = place.call("batch", json!({"tool_calls": calls})).await;
        assert_eq!(
            (output.output.matches("of docs").count(), output.output.matches("of deep").count()),
            (1, 1)
        );
        let mut rules = output.metadata["rules"].as_array().unwrap().clone();
        rules.sort_by_key(|file| file.to_string());
        assert_eq!(rules, [json!("docs/AGENTS.md"), json!("docs/deep/CLAUDE.md")]);
    }
}
