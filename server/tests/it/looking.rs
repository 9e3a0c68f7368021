//! What clients look at in a directory: text, and what git says of it.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mock_llm::{Model, Script, call, text};
use playhouse_protocol::message::BlobRef;
use playhouse_store::{Blobs, StoreError};
use serde_json::{Value, json};

use crate::client::Client;
use crate::native_schema::Description;
use crate::support::{PATIENCE, Served, Site};
use crate::wire_client::Wire;

async fn served(site: &Site) -> (Served, Wire) {
    let served = site.serve(Script::new(), |_| {}).await;
    let wire = Wire::of(&served, None);
    (served, wire)
}

fn git(folder: &Path, arguments: &[&str]) {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=a", "-c", "user.email=a@example.com"]);
    git.args(arguments).current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null");
    let output = git.output().expect("git is needed: apt install git");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn text_is_found_with_its_places() {
    let site = Site::new();
    let root = site.workspace();
    fs_err::create_dir_all(root.join("src")).unwrap();
    fs_err::write(root.join("src/main.rs"), "// é\nfn main() { main() }\n").unwrap();
    fs_err::write(root.join("log.txt"), "main\n").unwrap();
    fs_err::write(root.join(".ignore"), "*.txt\n").unwrap();
    fs_err::os::unix::fs::symlink("/etc", root.join("link")).unwrap();
    let (_served, wire) = served(&site).await;
    let expected = json!([{
        "path": {"text": "src/main.rs"},
        "lines": {"text": "fn main() { main() }\n"},
        "line_number": 2,
        "absolute_offset": 6,
        "submatches": [
            {"match": {"text": "main"}, "start": 3, "end": 7},
            {"match": {"text": "main"}, "start": 12, "end": 16},
        ],
    }]);
    assert_eq!(wire.get("/find?pattern=ma.n").await, expected);
    assert_eq!(wire.get("/find?pattern=root:").await, json!([]), "links are not followed");
    let below = format!("/find?pattern=main&directory={}", root.join("src").display());
    assert_eq!(wire.get(&below).await[0]["path"]["text"], "main.rs");
    for query in ["pattern=(", "pattern=", ""] {
        wire.ask("GET", &format!("/find?{query}"), &[], "").await.with(400);
    }
    fs_err::write(root.join("many"), "x\n".repeat(1_000)).unwrap();
    assert_eq!(wire.get("/find?pattern=x").await.as_array().unwrap().len(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn ignore_files_that_are_pipes_or_links_hold_nobody_up_and_tell_nothing() {
    let site = Site::new();
    let root = site.workspace();
    for folder in [".git/info", "link"] {
        fs_err::create_dir_all(root.join(folder)).unwrap();
    }
    for pipe in [".gitignore", ".git/info/exclude"] {
        let made = Command::new("mkfifo").arg(root.join(pipe)).status();
        assert!(made.expect("mkfifo is needed: apt install coreutils").success());
    }
    let outside = site.folder.path().join("outside");
    fs_err::write(&outside, "guessed\n").unwrap();
    fs_err::os::unix::fs::symlink(&outside, root.join("link/.gitignore")).unwrap();
    fs_err::write(root.join("link/.ignore"), "dull\n").unwrap();
    for name in ["guessed", "dull"] {
        fs_err::write(root.join("link").join(name), "").unwrap();
    }
    let (_served, wire) = served(&site).await;
    let ignored = async |path: &str| -> Vec<(String, bool)> {
        let listed = wire.get(&format!("/file?path={path}")).await;
        let node = |node: &Value| (node["name"].as_str().unwrap().to_owned(), node["ignored"] == true);
        listed.as_array().unwrap().iter().map(node).collect()
    };
    let named = |names: &[(&str, bool)]| -> Vec<(String, bool)> {
        names.iter().map(|(name, ignored)| ((*name).to_owned(), *ignored)).collect()
    };
    assert_eq!(ignored("").await, named(&[(".git", false), ("link", false), (".gitignore", false)]));
    let inner = [(".gitignore", false), (".ignore", false), ("dull", true), ("guessed", false)];
    assert_eq!(ignored("link").await, named(&inner));
    assert_eq!(wire.get("/find/file?query=guessed").await, json!(["link/guessed"]));
    assert_eq!(wire.get("/find/file?query=dull").await, json!([]));
    for path in ["..", "/etc", "nowhere"] {
        wire.ask("GET", &format!("/file?path={path}"), &[], "").await.with(400);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_belongs_to_the_engine_is_not_seen() {
    let site = Site::new();
    let root = site.workspace();
    fs_err::create_dir_all(root.join("data")).unwrap();
    fs_err::write(root.join("data/keys"), "secret\n").unwrap();
    fs_err::write(root.join("open.txt"), "secret\n").unwrap();
    git(&root, &["init", "--quiet", "--initial-branch=main"]);
    let site = Site {
        tune: |options| options.hidden = vec![options.outputs.with_file_name("workspace/data")],
        ..site
    };
    let (_served, wire) = served(&site).await;
    let found = wire.get("/find?pattern=secret").await;
    assert_eq!((found.as_array().unwrap().len(), &found[0]["path"]["text"]), (1, &json!("open.txt")));
    assert_eq!(wire.get("/find/file?query=keys").await, json!([]));
    assert!(!wire.get("/file?path=").await.to_string().contains("data"));
    for path in ["/file?path=data", "/file/content?path=data/keys"] {
        wire.ask("GET", path, &[], "").await.with(400);
    }
    let there = format!("directory={}", root.join("data").display());
    for path in ["/file?path=.", "/find?pattern=secret", "/vcs/status?x=y"] {
        wire.ask("GET", &format!("{path}&{there}"), &[], "").await.with(400);
    }
    let status = wire.get("/file/status").await;
    assert_eq!((status.as_array().unwrap().len(), &status[0]["path"]), (1, &json!("open.txt")));
    let raw = wire.ask("GET", "/vcs/diff/raw", &[], "").await.body;
    assert!(raw.contains("open.txt") && !raw.contains("data/keys"), "{raw}");
}

/// Exchanges two names of a directory, as fast as it can, until it is told to end.
fn exchange(
    folder: &Path,
    one: &'static str,
    other: &'static str,
) -> (Arc<AtomicBool>, std::thread::JoinHandle<()>) {
    let held = fs_err::File::open(folder).unwrap().into_parts().0;
    let over = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&over);
    let exchanges = move || {
        while !ended.load(Ordering::Relaxed) {
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(&held, one, &held, other, flags).unwrap();
            std::thread::yield_now();
        }
    };
    (over, std::thread::spawn(exchanges))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_changes_places_with_a_link_tells_no_names_of_others() {
    let site = Site::new();
    let (root, outside) = (site.workspace(), site.folder.path().join("outside"));
    fs_err::create_dir_all(root.join("in")).unwrap();
    fs_err::write(root.join("in/mine.txt"), "").unwrap();
    fs_err::create_dir_all(&outside).unwrap();
    fs_err::write(outside.join("of-another.txt"), "").unwrap();
    fs_err::os::unix::fs::symlink(&outside, root.join("link")).unwrap();
    let (_served, wire) = served(&site).await;
    let (over, thread) = exchange(&root, "in", "link");
    let mut seen = 0;
    for _ in 0..300 {
        let answer = wire.ask("GET", "/file?path=in", &[], "").await;
        assert!(!answer.body.contains("of-another"), "{}", answer.body);
        seen += usize::from(answer.body.contains("mine.txt"));
    }
    over.store(true, Ordering::Relaxed);
    thread.join().unwrap();
    assert!(seen > 0, "the directory was never there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_changes_places_with_a_pipe_holds_nobody_up() {
    let site = Site::new();
    let root = site.workspace();
    git(&root, &["init", "--quiet", "--initial-branch=main"]);
    let made = Command::new("mkfifo").arg(root.join(".git/pipe")).status();
    assert!(made.expect("mkfifo is needed: apt install coreutils").success());
    let (_served, wire) = served(&site).await;
    let (over, thread) = exchange(&root.join(".git"), "HEAD", "pipe");
    let mut told = 0;
    for _ in 0..300 {
        told += usize::from(wire.get("/vcs").await == json!({"branch": "main"}));
    }
    over.store(true, Ordering::Relaxed);
    thread.join().unwrap();
    assert!(told > 0, "HEAD was never there");
}

#[tokio::test(flavor = "multi_thread")]
async fn links_that_lead_out_do_not_tell_whether_anything_is_there() {
    let site = Site::new();
    let root = site.workspace();
    let (_served, wire) = served(&site).await;
    let mut told = Vec::new();
    for there in ["there", "nowhere"] {
        let target = site.folder.path().join(there);
        if there == "there" {
            fs_err::create_dir_all(&target).unwrap();
            fs_err::write(target.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        }
        let (dot, link) = (root.join(".git"), root.join("link"));
        fs_err::os::unix::fs::symlink(&target, &dot).unwrap();
        fs_err::os::unix::fs::symlink(&target, &link).unwrap();
        let mut answers = Vec::new();
        for path in ["/project/current", "/vcs", "/vcs/status", "/file/content?path=link", "/file?path=link"]
        {
            answers.push(wire.ask("GET", path, &[], "").await);
        }
        answers.push(wire.ask("GET", &format!("/path?directory={}", link.display()), &[], "").await);
        for rules in ["AGENTS.md", "CLAUDE.md"] {
            let rules = root.join(rules);
            fs_err::os::unix::fs::symlink(target.join("HEAD"), &rules).unwrap();
            answers.push(wire.ask("POST", "/session", &[], "{}").await);
            fs_err::remove_file(rules).unwrap();
        }
        told.push(answers.into_iter().map(|answer| (answer.status, answer.body)).collect::<Vec<_>>());
        fs_err::remove_file(dot).unwrap();
        fs_err::remove_file(link).unwrap();
    }
    let (nowhere, there) = (told.pop().unwrap(), told.pop().unwrap());
    // What is made, or was made at a time, differs in more than that.
    let is_refused = |status: &u16| *status >= 400;
    for (there, nowhere) in there.iter().zip(&nowhere) {
        assert_eq!(there.0, nowhere.0, "{} {}", there.1, nowhere.1);
        assert!(!is_refused(&there.0) || there == nowhere, "{} {}", there.1, nowhere.1);
    }
    assert!(there.iter().any(|(status, _)| is_refused(status)));
    let is_kept = |told: &[(u16, String)]| told[0].1.contains(r#""vcs":"git""#);
    assert_eq!((is_kept(&there), is_kept(&nowhere)), (false, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_git_says_is_told() {
    let site = Site::new();
    let root = site.workspace();
    let (_served, wire) = served(&site).await;
    for path in ["/file/status", "/vcs/status", "/vcs/diff?mode=git", "/vcs/diff?mode=branch"] {
        assert_eq!(wire.get(path).await, json!([]), "{path}: there is no repository");
    }
    assert_eq!(wire.get("/vcs").await, json!({}));
    assert_eq!(wire.ask("GET", "/vcs/diff/raw", &[], "").await.body, "");
    git(&root, &["init", "--quiet", "--initial-branch=main"]);
    fs_err::create_dir(root.join("in")).unwrap();
    fs_err::write(root.join("in/a.txt"), "one\ntwo\n").unwrap();
    fs_err::write(root.join("gone.txt"), "x\n").unwrap();
    git(&root, &["add", "."]);
    git(&root, &["commit", "--quiet", "--message=one"]);
    git(&root, &["checkout", "--quiet", "-b", "work"]);
    fs_err::write(root.join("b.txt"), "b\n").unwrap();
    git(&root, &["add", "."]);
    git(&root, &["commit", "--quiet", "--message=two"]);
    assert_eq!(wire.get("/vcs").await, json!({"branch": "work", "default_branch": "main"}));
    fs_err::write(root.join("in/a.txt"), "one\n2\n").unwrap();
    fs_err::remove_file(root.join("gone.txt")).unwrap();
    fs_err::write(root.join("new.txt"), "n\n").unwrap();
    let row = |path: &str, added: u64, removed: u64, status: &str| json!({"path": path, "added": added, "removed": removed, "status": status});
    let expected = json!([
        row("gone.txt", 0, 1, "deleted"),
        row("in/a.txt", 1, 1, "modified"),
        row("new.txt", 1, 0, "added"),
    ]);
    assert_eq!(wire.get("/file/status").await, expected);
    let below = format!("/file/status?directory={}", root.join("in").display());
    assert_eq!(wire.get(&below).await, json!([row("a.txt", 1, 1, "modified")]));
    let files = |changes: &Value| {
        let names =
            changes.as_array().unwrap().iter().map(|change| change["file"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    let status = wire.get("/vcs/status").await;
    assert_eq!(files(&status), ["gone.txt", "in/a.txt", "new.txt"]);
    assert!(status[0].get("patch").is_none());
    let diff = wire.get("/vcs/diff?mode=git&context=0").await;
    assert_eq!(files(&diff), files(&status));
    assert!(diff[1]["patch"].as_str().unwrap().ends_with("@@ -2 +2 @@ one\n-two\n+2\n"), "{diff}");
    assert_eq!(files(&wire.get("/vcs/diff?mode=branch").await), ["b.txt", "gone.txt", "in/a.txt", "new.txt"]);
    let raw = wire.ask("GET", "/vcs/diff/raw", &[], "").await;
    assert_eq!(raw.header("content-type"), Some("text/x-diff; charset=utf-8"));
    assert!(raw.body.starts_with("diff --git a/gone.txt b/gone.txt\n"), "{}", raw.body);
    for query in ["", "mode=other", "mode=git&context=-1"] {
        wire.ask("GET", &format!("/vcs/diff?{query}"), &[], "").await.with(400);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_session_changed_on_the_whole_is_told() {
    let write = |content: &str| call("write", json!({"filePath": "a.txt", "content": content}));
    let edit = call("edit", json!({"filePath": "a.txt", "oldString": "two", "newString": "2\n3"}));
    let model = Model::new()
        .step(write("one\ntwo\n"))
        .step(text("Done."))
        .next_turn()
        .step(edit)
        .step(call("write", json!({"filePath": "b.txt", "content": "b\n"})))
        .step(text("Done."));
    let site = Site::new();
    let served = site.serve(Script::new().model("m", model), |_| {}).await;
    let client = Client::of(&served, None);
    let description = Description::of(&client).await;
    let session = client.session("m").await;
    let diff = async |query: &str| {
        let diff = client.get(&format!("{session}/diff{query}")).await.with(200);
        description.check("Diff", &diff);
        let row = |file: &Value| {
            let text = |name: &str| file[name].as_str().unwrap().to_owned();
            (
                text("path"),
                text("status"),
                file["additions"].as_u64().unwrap(),
                file["deletions"].as_u64().unwrap(),
            )
        };
        diff["files"].as_array().unwrap().iter().map(row).collect::<Vec<_>>()
    };
    assert!(diff("").await.is_empty());
    let mut events = client.events(&format!("{session}/events"), None).await;
    client.prompt(&session, "one").await;
    events.until("turn.ended").await;
    let second = client.prompt(&session, "two").await;
    events.until("turn.ended").await;
    let told = diff("").await;
    let row = |path: &str, status: &str, added, removed| (path.to_owned(), status.to_owned(), added, removed);
    assert_eq!(told, [row("a.txt", "added", 3, 0), row("b.txt", "added", 1, 0)]);
    let told = diff(&format!("?prompt={second}")).await;
    assert_eq!(told, [row("a.txt", "modified", 2, 1), row("b.txt", "added", 1, 0)]);
    client.get(&format!("{session}/diff?prompt=x")).await.refused(400, "invalid");
    let other = session.replace(&session[session.len() - 4..], "0000");
    client.get(&format!("{other}/diff")).await.refused(404, "not-found");
}

/// Content that cannot be read before it is let go.
struct Slow {
    inner: Arc<dyn Blobs>,
    gate: std::sync::Mutex<std::sync::mpsc::Receiver<()>>,
    /// True from the first read on.
    reading: Arc<AtomicBool>,
}

impl Blobs for Slow {
    fn put(&self, tenant: &str, content: &[u8]) -> Result<BlobRef, StoreError> {
        self.inner.put(tenant, content)
    }

    fn get(&self, tenant: &str, blob: &BlobRef) -> Result<Vec<u8>, StoreError> {
        self.reading.store(true, Ordering::SeqCst);
        // Ends when the other end is dropped.
        let _ = self.gate.lock().unwrap().recv();
        self.inner.get(tenant, blob)
    }

    fn holds(&self, tenant: &str, content: &[u8]) -> Result<bool, StoreError> {
        self.inner.holds(tenant, content)
    }

    fn size(&self, tenant: &str) -> Result<u64, StoreError> {
        self.inner.size(tenant)
    }

    fn put_image(&self, tenant: &str, content: &[u8]) -> Result<BlobRef, StoreError> {
        self.inner.put_image(tenant, content)
    }

    fn get_image(&self, tenant: &str, blob: &BlobRef) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.get_image(tenant, blob)
    }

    fn trim_images(&self, tenant: &str, most: u64) -> Result<u64, StoreError> {
        self.inner.trim_images(tenant, most)
    }
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let wait = async {
        while !is() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect(what);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_too_much_to_do_is_not_ready_and_says_why() {
    let (hold, gate) = std::sync::mpsc::sync_channel(0);
    let mut site = Site { tune: |options| options.limits.threads = 1, ..Site::new() };
    let inner = Arc::clone(&site.store.blobs);
    let reading = Arc::new(AtomicBool::new(false));
    site.store.blobs = Arc::new(Slow { inner, gate: gate.into(), reading: Arc::clone(&reading) });
    let served = site.serve(Script::new(), |options| options.waiting = 2).await;
    // What an engine does when it starts takes a moment.
    while served.get("/readyz").await.body != "ok\n" {
        tokio::task::yield_now().await;
    }
    let engine = served.app.engine();
    let blob = engine.store_blob("local", "content".into()).await.unwrap();
    let read = || {
        let (engine, blob) = (engine.clone(), blob.clone());
        tokio::spawn(async move { engine.blob("local", blob).await })
    };
    // The two that wait come after the only thread has begun the first.
    let mut reads = vec![read()];
    until("the first one runs", || reading.load(Ordering::SeqCst)).await;
    reads.extend([read(), read()]);
    // The engine may have work of its own that waits behind them.
    until("two wait", || engine.load().work >= 2).await;
    let answer = served.get("/readyz").await;
    assert!(answer.header("retry-after").is_some());
    let detail = answer.refused(503, "overloaded");
    assert!(detail.contains(" pieces of work wait for a thread"), "{detail}");
    assert_eq!(served.get("/healthz").await.status, 200);
    drop(hold);
    for read in reads {
        assert_eq!(read.await.unwrap().unwrap(), "content");
    }
    assert_eq!(served.get("/readyz").await.status, 200);
}
