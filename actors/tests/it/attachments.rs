//! What is attached to prompts: files that somebody gave, and paths that the text names.

use std::io::Cursor;
use std::os::unix::fs::symlink;

use bytes::Bytes;
use image::{DynamicImage, ImageFormat};
use mock_llm::{Model, Script, call, text};
use playhouse_actors::SessionHandle;
use playhouse_protocol::consent::{Action, PermissionRule};
use playhouse_protocol::message::{Attachment, Message, Part};
use playhouse_protocol::record::{Record, TurnOutcome};
use playhouse_protocol::{Accepted, CommandError, MessageId, NewSession, PathMention, Prompt};
use serde_json::Value;

use crate::support::Stage;

fn picture(width: u32, height: u32) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    DynamicImage::new_rgb8(width, height).write_to(&mut out, ImageFormat::Png).unwrap();
    out.into_inner()
}

pub(crate) fn put(stage: &Stage, path: &str, content: impl AsRef<[u8]>) {
    let path = stage.folder.path().join("workspace").join(path);
    fs_err::create_dir_all(path.parent().unwrap()).unwrap();
    fs_err::write(path, content).unwrap();
}

async fn file(stage: &Stage, mime: &str, name: &str, content: impl Into<Vec<u8>>) -> Attachment {
    let blob = stage.engine.store_blob("local", Bytes::from(content.into())).await.unwrap();
    Attachment::new(mime, name, blob)
}

/// The content of the last message of the last request, and how many messages it has.
pub(crate) fn read_by_model(stage: &Stage) -> (Vec<Value>, usize) {
    let entry = stage.directory.mock.journal().entries().pop().unwrap();
    let request: Value = serde_json::from_slice(entry.body.as_deref().unwrap()).unwrap();
    let messages = request["messages"].as_array().unwrap();
    (messages.last().unwrap()["content"].as_array().unwrap().clone(), messages.len())
}

/// Its texts.
pub(crate) fn texts(stage: &Stage) -> Vec<String> {
    let (content, _) = read_by_model(stage);
    let texts = content.iter().filter(|block| block["type"] == "text");
    texts.map(|block| block["text"].as_str().unwrap().to_owned()).collect()
}

/// Name and media type of the files of a session's last prompt.
async fn files(session: &SessionHandle) -> Vec<(String, String)> {
    let messages = session.snapshot().await.unwrap().messages;
    let parts = messages.iter().rev().find_map(|message| match message {
        Message::User(message) => Some(&message.parts),
        Message::Assistant(_) => None,
    });
    let file = |part: &Part| match part {
        Part::File { file, .. } => Some((file.filename.clone(), file.mime.clone())),
        _ => None,
    };
    parts.unwrap().iter().filter_map(file).collect()
}

async fn ask(session: &SessionHandle, text: &str) -> TurnOutcome {
    session.run(Prompt::text(text)).await.unwrap().ended.outcome
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_told_by_content_and_made_to_fit() {
    let stage = Stage::new(Script::new()).await;
    let session = stage.session("echo").await;
    let given = vec![
        file(&stage, "application/octet-stream", "notes.md", "# Notes\n{{name}}\n").await,
        file(&stage, "text/csv", "a.csv", "a,b\n").await,
        file(&stage, "text/plain", "wide.txt", picture(3_000, 30)).await,
        file(&stage, "image/png", "paper.png", include_str!("../../../tests/fixtures/page.pdf")).await,
        file(&stage, "image/png", "not.png", "just words").await,
    ];
    session.run(Prompt { files: given, ..Prompt::text("look") }).await.unwrap();
    let expected = [
        ("notes.md", "text/plain"),
        ("a.csv", "text/csv"),
        ("wide.txt", "image/png"),
        ("paper.png", "application/pdf"),
        ("not.png", "text/plain"),
    ];
    assert_eq!(files(&session).await, expected.map(|(name, mime)| (name.to_owned(), mime.to_owned())));
    assert_eq!(
        texts(&stage),
        [
            "look",
            "<file name=\"notes.md\">\n# Notes\n{{name}}\n</file>",
            "<file name=\"a.csv\">\na,b\n</file>",
            "[the file \"paper.png\" (application/pdf, 309 bytes) is not shown: this model reads no PDF documents]",
            "<file name=\"not.png\">\njust words\n</file>",
        ]
    );
    let images: Vec<Value> =
        read_by_model(&stage).0.into_iter().filter(|block| block["type"] == "image").collect();
    assert_eq!(images.len(), 1);
    let messages = session.snapshot().await.unwrap().messages;
    let Message::User(prompt) = &messages[0] else { panic!("the first message is the prompt") };
    let Part::File { file, .. } = &prompt.parts[3] else { panic!("the fourth part is the picture") };
    let content = stage.engine.blob("local", file.blob.clone()).await.unwrap();
    let shown = image::load_from_memory(&content).unwrap();
    assert_eq!((shown.width(), shown.height()), (2_000, 20));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_no_model_reads_is_refused_with_its_name() {
    let stage = Stage::new(Script::new()).await;
    let session = stage.session("echo").await;
    let mut bomb = picture(1, 1);
    bomb[16..24].copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
    let half = picture(50, 50);
    for (content, said) in [
        (half[..half.len() / 2].to_vec(), "it is damaged or not whole (image/png)"),
        (bomb, "it "),
        (b"\0\xff".to_vec(), "it is neither text (UTF-8) nor a PNG"),
        (vec![b'x'; 300_000], "it is a text of 300000 bytes, more than 204800"),
        ([b"%PDF-1.7".as_slice(), &vec![0; 5_000_000]].concat(), "it has 5.0 MB (application/pdf)"),
        (b"%PDF-1.7 and no more".to_vec(), "it is damaged or not whole (application/pdf)"),
    ] {
        let files = vec![file(&stage, "image/png", "thing", content).await];
        let error = session.prompt(Prompt { files, ..Prompt::text("look") }).await.unwrap_err();
        assert!(matches!(error, CommandError::Invalid(_)));
        let expected = format!("cannot attach \"thing\": {said}");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
    assert_eq!(stage.records(&session).await.len(), 1, "nothing was admitted");
    assert_eq!(ask(&session, "go on").await, TurnOutcome::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_text_names_is_attached_once() {
    let stage = Stage::new(Script::new()).await;
    put(&stage, "src/main.rs", "fn main() {}\n// two\n// three\n");
    put(&stage, "my notes.md", "remember\n");
    put(&stage, "dot.png", picture(2, 2));
    let session = stage.session("echo").await;
    let prompt = Prompt {
        paths: vec![PathMention {
            path: "src/main.rs".into(),
            first: Some(2),
            last: Some(2),
            ..PathMention::default()
        }],
        ..Prompt::text("see @src/main.rs, (@\"my notes.md\"), @src/ and @./src/main.rs#1; @dot.png!")
    };
    session.run(prompt).await.unwrap();
    let expected = [
        ("src/main.rs", "text/plain"),
        ("my notes.md", "text/plain"),
        ("src/", Attachment::DIRECTORY),
        ("dot.png", "image/png"),
    ];
    assert_eq!(files(&session).await, expected.map(|(name, mime)| (name.to_owned(), mime.to_owned())));
    let texts = texts(&stage);
    assert_eq!(
        texts[1],
        "<file name=\"src/main.rs\">\n2\t// two\n(lines 2-2 of 3; read on with offset 3)\n</file>"
    );
    assert_eq!(texts[2], "<file name=\"my notes.md\">\n1\tremember\n</file>");
    assert!(texts[3].starts_with("<file name=\"src/\">") && texts[3].contains("main.rs"), "{}", texts[3]);
    assert_eq!(texts.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_attached_stays_text() {
    let stage = Stage::new(Script::new()).await;
    put(&stage, "secret.txt", "the secret");
    put(&stage, "asked.txt", "the asked");
    put(&stage, "open.txt", "the open");
    put(&stage, "../outside.txt", "the outside");
    symlink(stage.folder.path().join("outside.txt"), stage.folder.path().join("workspace/link")).unwrap();
    pipe(&stage);
    let rule =
        |pattern: &str, action| PermissionRule { permission: "read".into(), pattern: pattern.into(), action };
    let permissions = vec![rule("secret*", Action::Deny), rule("asked*", Action::Ask)];
    let session = stage.engine.create(NewSession { permissions, ..stage.new_session("echo") }).await.unwrap();
    let outside = stage.folder.path().join("outside.txt");
    let said = format!(
        "@secret.txt#x @asked.txt @link @../outside.txt @{} @missing#2-1 @pipe me@open.txt",
        outside.display()
    );
    assert_eq!(ask(&session, &said).await, TurnOutcome::Completed);
    // Of what may be read it is told why it is not shown.
    let pipe =
        "<file name=\"pipe\">\n[not shown: pipe is a pipe, not a regular file, so it is not opened]\n</file>";
    assert_eq!(texts(&stage), [said.as_str(), pipe]);
    assert_eq!(files(&session).await, [("pipe".to_owned(), "text/plain".to_owned())]);
    let consents = stage.records(&session).await.into_iter();
    assert_eq!(consents.filter(|record| matches!(record, Record::ConsentAsked(_))).count(), 0);
    // Whoever wants no more than text says so.
    session.run(Prompt { plain: true, ..Prompt::text("@open.txt") }).await.unwrap();
    assert_eq!(texts(&stage), ["@open.txt"]);
    assert_eq!(ask(&session, "@open.txt").await, TurnOutcome::Completed);
    assert_eq!(texts(&stage)[1], "<file name=\"open.txt\">\n1\tthe open\n</file>");
    // A prompt of nothing but a path needs no text.
    let path = |path: &str| PathMention { path: path.into(), ..PathMention::default() };
    let only = |paths| Prompt { paths, ..Prompt::default() };
    session.run(only(vec![path("open.txt")])).await.unwrap();
    assert_eq!(texts(&stage), ["<file name=\"open.txt\">\n1\tthe open\n</file>"]);
    let error = session.prompt(only(vec![path("missing")])).await.unwrap_err();
    assert_eq!(error.to_string(), "the prompt is empty: say what is to be done");
}

/// Nobody writes into it: whoever opened it would wait for ever.
fn pipe(stage: &Stage) {
    let path = stage.folder.path().join("workspace/pipe");
    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success(), "the program mkfifo (coreutils) makes a pipe");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_is_sent_again_is_the_same_whatever_became_of_its_files() {
    let stage = Stage::new(Script::new()).await;
    put(&stage, "a.txt", "one");
    let session = stage.session("echo").await;
    let message: MessageId = "msg_0123456789abTheIdOfAClient".parse().unwrap();
    let picture = file(&stage, "image/png", "wide.png", picture(2_500, 2)).await;
    let prompt = |text: &str, files| Prompt { message: Some(message), files, ..Prompt::text(text) };
    let first = prompt("see @a.txt", vec![picture.clone()]);
    session.run(first.clone()).await.unwrap();
    put(&stage, "a.txt", "two");
    let again = session.prompt(first).await.unwrap();
    assert_eq!(again, Accepted { turn: message, repeated: true });
    for other in [prompt("see @a.txt", Vec::new()), prompt("see @b.txt", vec![picture])] {
        assert_eq!(session.prompt(other).await, Err(CommandError::Repeated(message)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_attached_need_not_be_read_before_it_is_edited() {
    let edit = serde_json::json!({"filePath": "a.txt", "oldString": "one", "newString": "two"});
    let model = || Model::new().step(call("edit", edit.clone())).step(text("done"));
    let stage = Stage::new(Script::new().model("m", model())).await;
    put(&stage, "a.txt", "one\n");
    let session = stage.session("m").await;
    assert_eq!(ask(&session, "change @a.txt").await, TurnOutcome::Completed);
    let changed = fs_err::read_to_string(stage.folder.path().join("workspace/a.txt")).unwrap();
    assert_eq!(changed, "two\n");
}
