//! `playhouse demo`: a whole coding turn with a scripted model, without a key and without a network.

use std::path::Path;
use std::process::Command;

use clap::Args;
use mock_llm::{Model, Script, call, text};
use playhouse_protocol::consent::Action;
use playhouse_protocol::{ModelRef, NewSession, PermissionRule, Prompt, Sandbox, Seq};
use serde_json::json;
use similar::TextDiff;

use super::asker::{Asker, Present};
use super::interrupt::Interrupt;
use super::reach::Held;
use super::render::{Format, Renderer};
use super::run::{Work, exit_of, new_session, turn};
use super::{CommandResult, Failure, print};
use crate::config::Settings;
use crate::house::House;

/// Options of `playhouse demo`.
#[derive(Debug, Args)]
pub(super) struct DemoArguments {
    /// Leave the repository where it is, and say where
    #[arg(long)]
    keep: bool,
}

const PROMPT: &str = "test.sh fails. Find out why and fix it.";
/// Tokens a second of the scripted model: text that one can watch.
const RATE: f64 = 40.0;

const PROGRAM: &str = "\
#!/bin/sh
# Adds up the numbers that are given as arguments.
total=0
for number in \"$@\"; do
    total=$number
done
echo \"$total\"
";
const TEST: &str = "\
#!/bin/sh
# Fails with a message when sum.sh does not add up.
check() {
    expected=$1; shift
    actual=$(sh ./sum.sh \"$@\")
    if [ \"$actual\" != \"$expected\" ]; then
        echo \"FAIL: sum.sh $* gave $actual, expected $expected\"
        exit 1
    fi
}
check 0
check 5 5
check 6 1 2 3
echo \"all tests pass\"
";
const README: &str = "# sum\n\n`sum.sh` adds up numbers. `sh test.sh` tests it.\n";
const FILES: [(&str, &str); 3] = [("README.md", README), ("sum.sh", PROGRAM), ("test.sh", TEST)];

pub(super) async fn demo(arguments: DemoArguments) -> CommandResult {
    let folder = tempfile::Builder::new().prefix("playhouse-demo-").tempdir()?;
    let root = fs_err::canonicalize(folder.path())?;
    let repository = make_repository(&root)?;
    print(&format!("repository  {}{}\nprompt      {PROMPT}\n\n", root.display(), repository))?;

    let settings = Settings::load(Some(Path::new("/dev/null")), &|_| None)?;
    let house = House::builder(settings)
        .sandbox(Sandbox::BestEffort)
        .mock(Script::new().model("demo", script()))
        .variables(|_| None)
        .start()
        .await?;
    let new = NewSession {
        model: Some(ModelRef::new(crate::mock::PROVIDER, "demo")),
        // It is the demo's own repository, and its own script.
        permissions: ["bash", "edit"].map(allowed).to_vec(),
        ..new_session(&root)?
    };
    let held = Held::inside(house);
    let session = held.reach().create(new).await?;
    let format = Format::text(&std::io::stdout());
    let mut renderer = Renderer::new(format).all_on_stdout().before_end(Box::new({
        let root = root.clone();
        move || diff(&root)
    }));
    let mut asker = Asker::new(Present { terminal: false, yes: false });
    let work = Work { prompt: Prompt { unattended: true, ..Prompt::text(PROMPT) }, template: None };
    let interrupt = Interrupt::watch(held.reach().clone());
    let ended = turn(held.reach(), session, Seq::START, work, &interrupt, &mut renderer, &mut asker).await?;
    held.close().await;
    if arguments.keep {
        let kept = folder.keep();
        print(&format!("the repository is in {}\n", kept.display()))?;
    }
    Ok(exit_of(&ended))
}

/// A rule that allows everything under `permission`.
fn allowed(permission: &str) -> PermissionRule {
    PermissionRule { permission: permission.to_owned(), pattern: "*".to_owned(), action: Action::Allow }
}

fn script() -> Model {
    Model::new()
        .step(
            text("I will run the test first, and look at the files beside it.")
                .call("bash", json!({"command": "sh test.sh", "description": "Run the test"}))
                .call("list", json!({})),
        )
        .step(
            text("`sum.sh 1 2 3` gives 3, the last number. Let me see how it keeps its total.")
                .call("grep", json!({"pattern": "total", "include": "*.sh"}))
                .call("read", json!({"filePath": "sum.sh"})),
        )
        .step(
            text("Line 5 replaces the total with each number instead of adding to it.").call(
                "edit",
                json!({
                    "filePath": "sum.sh",
                    "oldString": "    total=$number",
                    "newString": "    total=$((total + number))",
                }),
            ),
        )
        .step(call("bash", json!({"command": "sh test.sh", "description": "Run the test again"})))
        .step(text(
            "The test passes now. `sum.sh` overwrote its total in the loop; it adds to it now, so that all numbers count.",
        ))
        .rate(RATE)
}

/// Makes the repository; the note says so where there is no git for it.
fn make_repository(root: &Path) -> Result<&'static str, Failure> {
    for (name, content) in FILES {
        fs_err::write(root.join(name), content)?;
    }
    let path = std::env::var_os("PATH");
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=Playhouse", "-c", "user.email=demo@localhost"]).args(arguments);
        // `GIT_DIR` in the environment (a hook has it) would lead into the user's own repository; and the user's settings
        // may sign commits and run hooks.
        command.env_clear().env("GIT_CONFIG_NOSYSTEM", "1").envs(path.as_ref().map(|path| ("PATH", path)));
        command.current_dir(root).output().is_ok_and(|output| output.status.success())
    };
    let made = git(&["init", "-q"]) && git(&["add", "."]) && git(&["commit", "-qm", "Add sum"]);
    Ok(if made { "" } else { " (plain files: there is no git on this machine)" })
}

/// What changed in the files since they were made.
fn diff(root: &Path) -> String {
    let mut all = String::new();
    for (name, before) in FILES {
        let after = fs_err::read_to_string(root.join(name)).unwrap_or_default();
        if after != before {
            let diff = TextDiff::from_lines(before, after.as_str());
            let unified = diff.unified_diff().context_radius(2).header(name, name).to_string();
            all.push_str(&unified);
        }
    }
    all
}
