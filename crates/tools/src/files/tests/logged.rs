//! What the write log holds, however a call ended.

use std::sync::Arc;

use playhouse_policy::Access;
use playhouse_protocol::message::CallInput;
use playhouse_protocol::record::Effect;
use playhouse_workspace::hash;

use super::*;
use crate::changed::{FileState, path_text};
use crate::{Alone, CallObserver, Host, Intent, ObservedCall, Prepared, Showing, Tool, WriteLog, runner};

impl House {
    /// What the calls since the last look wrote: `path: before -> after`, with the permissions where they differ.
    fn wrote(&self) -> Vec<String> {
        let root = fs_err::canonicalize(self.path("")).unwrap();
        let text = |state: &Option<FileState>| match state {
            None => "nothing".to_owned(),
            Some(state) => {
                let bytes = state.bytes.as_ref().unwrap();
                assert_eq!((state.content, state.size), (Some(hash(bytes)), bytes.len() as u64));
                format!("{:?} {:o}", String::from_utf8_lossy(bytes), state.mode)
            }
        };
        let drained = self.context.writes.reader().drain();
        assert_eq!(drained.gaps, Vec::<String>::new());
        let lines = drained.files.iter().map(|write| {
            format!("{}: {} -> {}", path_text(&root, &write.path), text(&write.before), text(&write.after))
        });
        lines.collect()
    }
}

#[tokio::test]
async fn every_file_tool_says_what_it_wrote() {
    let house = House::with(&[
        "a=one\n",
        "same=x\n",
        "n.ipynb={\"cells\": [{\"cell_type\": \"code\", \"id\": \"c\", \"source\": [\"1\"], \"metadata\": {}, \"outputs\": [], \"execution_count\": null}], \"metadata\": {}, \"nbformat\": 4, \"nbformat_minor\": 5}",
    ]);
    for name in ["a", "same", "n.ipynb"] {
        house.good("read", json!({"filePath": name})).await;
    }
    fs_err::set_permissions(house.path("a"), std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(house.wrote(), Vec::<String>::new());

    house.good("write", json!({"filePath": "new/b", "content": "b\n"})).await;
    assert_eq!(house.wrote(), ["new/b: nothing -> \"b\\n\" 100644"]);
    house.good("edit", json!({"filePath": "a", "oldString": "one", "newString": "two"})).await;
    assert_eq!(house.wrote(), ["a: \"one\\n\" 100755 -> \"two\\n\" 100755"]);
    house
        .good("multiedit", json!({"filePath": "a", "edits": [{"oldString": "two", "newString": "three"}]}))
        .await;
    assert_eq!(house.wrote(), ["a: \"two\\n\" 100755 -> \"three\\n\" 100755"]);
    house.good("write", json!({"filePath": "same", "content": "x\n"})).await;
    assert_eq!(house.wrote(), Vec::<String>::new(), "nothing was written");
    house.good("notebook_edit", json!({"filePath": "n.ipynb", "cellId": "c", "newSource": "2"})).await;
    assert_eq!(house.wrote().len(), 1);
}

#[tokio::test]
async fn a_patch_says_each_file_and_one_that_failed_says_none() {
    let house = House::with(&["a=1\n", "gone=g\n", "moved=m\n", "last=l\n"]);
    for name in ["a", "gone", "moved", "last"] {
        house.good("read", json!({"filePath": name})).await;
    }
    let patch = "*** Begin Patch\n*** Delete File: gone\n*** Update File: a\n@@\n-1\n+2\n*** Add File: x/new\n+new\n*** Update File: moved\n*** Move to: x/moved\n@@\n-m\n+n\n";
    fs_err::set_permissions(house.path("last"), std::fs::Permissions::from_mode(0o444)).unwrap();
    let failing = format!("{patch}*** Update File: last\n@@\n-l\n+k\n*** End Patch");
    house.bad("apply_patch", json!({"patchText": failing})).await;
    assert_eq!(house.wrote(), Vec::<String>::new(), "all of it was put back");
    house.good("apply_patch", json!({"patchText": format!("{patch}*** End Patch")})).await;
    assert_eq!(
        house.wrote(),
        [
            "a: \"1\\n\" 100644 -> \"2\\n\" 100644",
            "gone: \"g\\n\" 100644 -> nothing",
            "moved: \"m\\n\" 100644 -> nothing",
            "x/moved: nothing -> \"n\\n\" 100644",
            "x/new: nothing -> \"new\\n\" 100644",
        ]
    );
}

#[tokio::test]
async fn a_file_that_is_not_the_one_of_the_intent_is_not_written() {
    let house = House::with(&["a=1\n"]);
    house.good("read", json!({"filePath": "a"})).await;
    let path = fs_err::canonicalize(house.path("a")).unwrap();
    house.context.writes.intend(path.clone(), Some(hash(b"another")), true);
    let edit = json!({"filePath": "a", "oldString": "1", "newString": "2"});
    assert!(house.bad("edit", edit.clone()).await.starts_with("a changed meanwhile"));
    let patch = "*** Begin Patch\n*** Update File: a\n@@\n-1\n+2\n*** End Patch";
    assert!(house.bad("apply_patch", json!({"patchText": patch})).await.contains("a changed meanwhile"));
    house.context.writes.intend(path, Some(hash(b"1\n")), true);
    house.good("edit", edit).await;
}

/// Writes down what it sees.
#[derive(Default)]
struct Witness(Arc<std::sync::Mutex<Vec<String>>>);

impl CallObserver for Witness {
    fn intend<'a>(
        &'a self,
        call: ObservedCall<'a>,
        _: &'a CallContext,
    ) -> futures::future::BoxFuture<'a, Result<Intent, ToolError>> {
        self.0.lock().unwrap().push(format!("intend {}", call.tool.spec().name));
        Box::pin(std::future::ready(Ok(Intent { tracked: true, ..Intent::default() })))
    }

    fn before<'a>(
        &'a self,
        call: ObservedCall<'a>,
        _: &'a CallContext,
    ) -> futures::future::BoxFuture<'a, ()> {
        self.0.lock().unwrap().push(format!("before {}", call.names_all_it_writes()));
        Box::pin(std::future::ready(()))
    }

    fn after<'a>(
        &'a self,
        ended: &'a mut Result<ToolOutput, ToolError>,
        _: &'a CallContext,
    ) -> futures::future::BoxFuture<'a, ()> {
        self.0.lock().unwrap().push(format!("after {}", ended.is_ok()));
        if let Ok(output) = ended {
            output.output.push_str("seen");
        }
        Box::pin(std::future::ready(()))
    }
}

/// A host with observers.
struct Observed(Alone, Vec<Box<dyn CallObserver>>);

impl Host for Observed {
    fn find(&self, tool: &str) -> Result<Arc<dyn Tool>, ToolError> {
        self.0.find(tool)
    }
    fn judge(&self, tool: &dyn Tool, prepared: &Prepared) -> playhouse_policy::Verdict {
        self.0.judge(tool, prepared)
    }
    fn showing(&self) -> Showing {
        self.0.showing()
    }
    fn todos(&self) -> Arc<[playhouse_protocol::question::Todo]> {
        self.0.todos()
    }
    fn observers(&self) -> &[Box<dyn CallObserver>] {
        &self.1
    }
    fn ask(
        &self,
        questions: Vec<playhouse_protocol::question::Question>,
    ) -> futures::future::BoxFuture<'_, playhouse_protocol::question::QuestionAnswer> {
        self.0.ask(questions)
    }
}

#[tokio::test]
async fn observers_see_the_calls_that_may_change_the_workspace_and_no_others() {
    let house = House::with(&["a=1\n"]);
    let witness = Witness::default();
    let seen = Arc::clone(&witness.0);
    let host = Arc::new(Observed(Alone::default(), vec![Box::new(witness)]));
    let context = CallContext { host, writes: WriteLog::default(), ..house.context.clone() };
    let call = async |tool: &str, input: Value| {
        let input = CallInput::from_model(&input.to_string());
        let (tool, prepared) = runner::prepare(&house.registry, tool, &input, &context).await?;
        let intent = runner::intend(&*tool, prepared.effect, &prepared.accesses, &context).await?;
        runner::execute(&tool, prepared, &context).await.map(|output| (intent, output.output))
    };
    let (intent, _) = call("read", json!({"filePath": "a"})).await.unwrap();
    assert_eq!((intent, seen.lock().unwrap().len()), (Intent::default(), 0));
    let (intent, output) =
        call("edit", json!({"filePath": "a", "oldString": "1", "newString": "2"})).await.unwrap();
    assert!(intent.tracked && output.ends_with("seen"), "{output}");
    call("edit", json!({"filePath": "a", "oldString": "1", "newString": "2"})).await.unwrap_err();
    call("bash", json!({"command": "true"})).await.unwrap();
    // A program of others is not believed.
    let of_others = [Access::Tool { server: "s".into(), tool: "peek".into() }];
    let bash = house.registry.get("bash").unwrap();
    let read = house.registry.get("read").unwrap();
    for (tool, accesses, is_observed) in
        [(bash, &of_others[..], true), (bash, &[], false), (read, &of_others, false)]
    {
        assert_eq!(ObservedCall { tool: &**tool, accesses }.is_observed(Effect::None), is_observed);
    }
    assert_eq!(
        *seen.lock().unwrap(),
        [
            "intend edit",
            "before true",
            "after true",
            "intend edit",
            "before true",
            "after false",
            "intend bash",
            "before false",
            "after true",
        ]
    );
}
