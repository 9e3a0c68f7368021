use serde_json::json;

use super::*;
use crate::{Registry, testing};

const NOTEBOOK: &str = "{\n \"cells\": [\n  {\n   \"cell_type\": \"code\",\n   \"execution_count\": 1,\n   \"id\": \"one\",\n   \"metadata\": {},\n   \"outputs\": [{\"output_type\": \"stream\"}],\n   \"source\": [\n    \"1 + 1\"\n   ]\n  }\n ],\n \"metadata\": {},\n \"nbformat\": 4,\n \"nbformat_minor\": 5\n}\n";

struct House {
    folder: tempfile::TempDir,
    context: CallContext,
    registry: Registry,
}

impl House {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("repo");
        fs_err::create_dir(&root).unwrap();
        let context = testing::context(&root, &folder.path().join("outputs")).unwrap();
        let house = Self { folder, context, registry: Registry::native() };
        house.put(NOTEBOOK);
        house
    }

    fn put(&self, text: &str) {
        fs_err::write(self.folder.path().join("repo/a.ipynb"), text).unwrap();
    }

    fn text(&self) -> String {
        fs_err::read_to_string(self.folder.path().join("repo/a.ipynb")).unwrap()
    }

    async fn call(&self, tool: &str, more: serde_json::Value) -> Result<ToolOutput, ToolError> {
        let mut input = json!({"filePath": "a.ipynb"});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        testing::call(&self.registry, tool, &input, &self.context).await
    }

    async fn read(&self) {
        self.call("read", json!({})).await.unwrap();
    }

    async fn bad(&self, more: serde_json::Value) -> String {
        let before = self.text();
        let error = self.call("notebook_edit", more).await.unwrap_err().to_string();
        assert_eq!(self.text(), before);
        error
    }
}

#[tokio::test]
async fn cells_are_replaced_inserted_and_deleted() {
    let house = House::new();
    house.read().await;
    let replaced =
        house.call("notebook_edit", json!({"cellId": "one", "newSource": "2\r\n3"})).await.unwrap();
    insta::assert_snapshot!(replaced.output, @r#"
    replaced the source of cell 0 (id one, code) of a.ipynb and cleared its outputs (+4 -3)
    --- a/a.ipynb
    +++ b/a.ipynb
    @@ -2,12 +2,13 @@
      "cells": [
       {
        "cell_type": "code",
    -   "execution_count": 1,
    +   "execution_count": null,
        "id": "one",
        "metadata": {},
    -   "outputs": [{"output_type": "stream"}],
    +   "outputs": [],
        "source": [
    -    "1 + 1"
    +    "2\n",
    +    "3"
        ]
       }
      ],
    "#);
    let metadata = &replaced.metadata;
    assert_eq!(
        (&metadata["editMode"], &metadata["cellId"], &metadata["cellIndex"]),
        (&json!("replace"), &json!("one"), &json!(0))
    );

    let insert = json!({"editMode": "insert", "cellIndex": 1, "cellType": "markdown", "newSource": "# Two"});
    let inserted = house.call("notebook_edit", insert).await.unwrap();
    let id = inserted.metadata["cellId"].as_str().unwrap();
    assert!(
        inserted.output.starts_with(&format!("inserted cell 1 (id {id}, markdown) of a.ipynb (+8 -0)\n")),
        "{}",
        inserted.output
    );
    let deleted = house.call("notebook_edit", json!({"editMode": "delete", "cellId": id})).await.unwrap();
    assert!(
        deleted.output.starts_with(&format!("deleted cell 1 (id {id}, markdown) of a.ipynb (+0 -8)\n")),
        "{}",
        deleted.output
    );
}

#[test]
fn parameters_have_their_final_names() {
    let registry = Registry::native();
    let spec = registry.get("notebook_edit").unwrap().spec();
    insta::assert_snapshot!(crate::arguments::short(&spec.parameters), @r#"{filePath: string, cellId?: string, cellIndex?: integer, newSource?: string, cellType?: "code" | "markdown" | "raw", editMode?: "replace" | "insert" | "delete"}"#);
}

#[tokio::test]
async fn a_notebook_must_have_been_read_and_not_changed_since() {
    let house = House::new();
    let edit = json!({"cellIndex": 0, "newSource": "x"});
    assert!(house.bad(edit.clone()).await.contains("has not been read in this session"));
    house.read().await;
    house.put(&NOTEBOOK.replace("1 + 1", "2 + 2"));
    assert!(house.bad(edit.clone()).await.contains("a.ipynb changed since it was last read"));
    house.read().await;
    house.call("notebook_edit", edit).await.unwrap();
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_refused() {
    let house = House::new();
    house.read().await;
    for (input, reason) in [
        (json!({"newSource": "x"}), "no cell is named"),
        (json!({"cellIndex": 0}), "newSource is missing"),
        (json!({"cellIndex": 0, "cellId": "one", "newSource": "x"}), "name the cell by one of them"),
        (json!({"editMode": "insert", "newSource": "x"}), "cellType is missing"),
        (json!({"editMode": "delete", "cellIndex": 0, "newSource": "x"}), "leave one of them out"),
        (json!({"cellIndex": 0, "newSource": "x", "cellType": "raw"}), "cellType is for insert only"),
        (
            json!({"cellIndex": 5, "newSource": "x"}),
            "a.ipynb cannot be edited like this: it has no cell 5. Its cells are 0 (id one, code)",
        ),
        (json!({"cellIndex": -1, "newSource": "x"}), "do not fit"),
        (json!({"cellIndex": 0, "newSource": "x", "editMode": "swap"}), "do not fit"),
    ] {
        let error = house.bad(input.clone()).await;
        assert!(error.contains(reason), "{input}: {error}");
    }
    house.put("not a notebook");
    house.read().await;
    assert!(house.bad(json!({"cellIndex": 0, "newSource": "x"})).await.contains("it is not valid JSON"));
}

#[tokio::test]
async fn a_person_sees_the_diff_and_a_cancelled_call_changes_nothing() {
    let house = House::new();
    house.read().await;
    let input = json!({"filePath": "a.ipynb", "cellIndex": 0, "newSource": "2"});
    let call = playhouse_protocol::message::CallInput::from_model(&input.to_string());
    let (tool, prepared) =
        crate::runner::prepare(&house.registry, "notebook_edit", &call, &house.context).await.unwrap();
    assert!(prepared.preview.contains("\n-    \"1 + 1\"\n+    \"2\"\n"), "{}", prepared.preview);
    let place = house.context.workspace.resolve("a.ipynb").unwrap();
    let guard = house.context.locks.lock(&[place.path]).await;
    let mut running = std::pin::pin!(crate::runner::execute(&tool, prepared, &house.context));
    assert!(futures::poll!(&mut running).is_pending());
    house.context.cancel.cancel();
    assert_eq!(running.await.unwrap_err(), ToolError::Cancelled(String::new()));
    drop(guard);
    assert_eq!(house.text(), NOTEBOOK);
}

#[tokio::test]
async fn a_byte_order_mark_stays() {
    let house = House::new();
    house.put(&format!("\u{feff}{NOTEBOOK}"));
    house.read().await;
    house.call("notebook_edit", json!({"cellIndex": 0, "newSource": "2"})).await.unwrap();
    assert!(house.text().starts_with("\u{feff}{\n \"cells\": [\n"));
}

#[tokio::test]
async fn a_notebook_in_utf16_stays_so() {
    let house = House::new();
    let utf16 = |text: &str| -> Vec<u8> {
        format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect()
    };
    let path = house.folder.path().join("repo/a.ipynb");
    fs_err::write(&path, utf16(NOTEBOOK)).unwrap();
    house.read().await;
    house.call("notebook_edit", json!({"cellId": "one", "newSource": "1 + 1 # ü"})).await.unwrap();
    let made = NOTEBOOK
        .replace("1 + 1", "1 + 1 # ü")
        .replace("\"execution_count\": 1", "\"execution_count\": null")
        .replace("[{\"output_type\": \"stream\"}]", "[]");
    assert_eq!(fs_err::read(&path).unwrap(), utf16(&made));
}
