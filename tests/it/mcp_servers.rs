//! Servers of tools (MCP) that sessions share, and what is left of them.

use std::collections::BTreeSet;

use futures::future::join_all;
use mock_llm::{Model, Script, call, text};
use playhouse::House;
use playhouse::config::Settings;
use playhouse::protocol::message::{CallPart, CallState, Message, Part};
use playhouse::protocol::{NewSession, Prompt};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::host_tools::{LISTENING, asked};
use crate::interrupt::{is_alive, process};
use crate::serve::Serving;
use crate::stage::{Stage, until};

/// A server in the language of shells. `echo` answers with its text and the process: several calls at once, in any order, as
/// soon as seven wait or no other comes for a moment. `hang` writes down its process and that of a child, and answers nothing.
const SERVER: &str = r#"
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
answer() {
    while [ ${#waiting[@]} -gt 0 ]; do
        one=$((RANDOM % ${#waiting[@]}))
        reply "${waiting[one]%% *}" '{"content":[{"type":"text","text":"'"${waiting[one]#* } of $$"'"}]}'
        unset "waiting[one]"
        waiting=("${waiting[@]}")
    done
}
waiting=() begun=
while :; do
    if [ ${#waiting[@]} -eq 0 ]; then
        IFS= read -r line || exit
    elif ! IFS= read -r -t 0.02 line; then
        # Of a line that comes in pieces this is the beginning.
        begun+=$line
        answer
        continue
    fi
    line=$begun$line
    begun=
    id=${line#*\"id\":}
    id=${id%%[,\}]*}
    case "$line" in
    *'"initialize"'*) reply "$id" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}' ;;
    *'"tools/list"'*) reply "$id" '{"tools":[{"name":"echo","inputSchema":{"type":"object"}},{"name":"hang","inputSchema":{"type":"object"}}]}' ;;
    *'"hang"'*) sleep 300 & echo $! > child.pid; echo $$ > server.pid ;;
    *'"echo"'*)
        text=${line#*\"text\":\"}
        waiting+=("$id ${text%%\"*}")
        [ ${#waiting[@]} -lt 7 ] || answer
        ;;
    esac
done
"#;

fn configuration() -> String {
    format!(
        "[permissions]\n\"*\" = \"allow\"\nmcp = \"allow\"\n[mcp.x]\ncommand = \"/bin/bash\"\nargs = [\"-c\", '''{SERVER}''']\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "slow: scripts/slow runs it"]
async fn a_hundred_sessions_share_a_server_and_each_reads_its_own_answers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    fs_err::write(&file, configuration()).unwrap();
    // One to four calls of each session, one after the other or all at once.
    let asked = |number: usize| (0..=number * 7 % 4).map(move |call| format!("answer {number}.{call}"));
    let script = (0..100).fold(Script::new(), |script, number| {
        let mut calls = asked(number).map(|text| json!({"text": text}));
        let first = call("mcp_x_echo", calls.next().unwrap());
        let model = match number % 3 {
            0 => Model::new().step(calls.fold(first, |step, text| step.call("mcp_x_echo", text))),
            _ => calls.fold(Model::new().step(first), |model, text| model.step(call("mcp_x_echo", text))),
        };
        script.model(format!("m{number}"), model.step(text("Done.")))
    });
    let settings = Settings::load(Some(&file), &|_| None).unwrap();
    let house = House::builder(settings).data(folder.path().join("data")).mock(script).start().await.unwrap();
    let place = folder.path().to_string_lossy().into_owned();
    let read = join_all((0..100).map(async |number| {
        let model = Some(format!("mock/m{number}").parse().unwrap());
        let new = NewSession { model, ..NewSession::new("local", place.clone()) };
        let session = house.engine().create(new).await.unwrap();
        session.run(Prompt::text("go")).await.unwrap();
        let parts =
            session.snapshot().await.unwrap().messages.into_iter().flat_map(|message| match message {
                Message::User(message) => message.parts,
                Message::Assistant(message) => message.parts,
            });
        let results = parts.filter_map(|part| match part {
            Part::Call(CallPart { state: CallState::Settled(result), .. }) => Some(result.output),
            _ => None,
        });
        results.collect::<Vec<_>>()
    }));
    let read = read.await;
    house.shutdown().await;
    let mut processes = BTreeSet::new();
    for (number, read) in read.iter().enumerate() {
        let mut texts = Vec::new();
        for (text, process) in read.iter().filter_map(|read| read.split_once(" of ")) {
            texts.push(text.to_owned());
            processes.insert(process);
        }
        assert_eq!(texts, asked(number).collect::<Vec<_>>(), "of session {number}: {read:?}");
    }
    assert_eq!(processes.len(), 1, "they share one server");
}

#[test]
fn nothing_is_left_of_a_server_that_is_killed_nor_of_those_of_an_engine_that_is() {
    for engine_too in [false, true] {
        let stage = Stage::new(Model::new().step(call("mcp_x_hang", json!({}))).step(text("Done.")));
        stage.configure(&configuration());
        let serving = Serving::start(&stage, LISTENING);
        let (status, made) = asked(&serving, "POST", "/v1/sessions", &json!({"workspace": stage.workspace}));
        assert_eq!(status, 201, "{made}");
        let place = format!("/v1/sessions/{}", made["id"].as_str().unwrap());
        assert_eq!(asked(&serving, "POST", &format!("{place}/prompts"), &json!({"text": "go"})).0, 202);

        let [server, child] = ["server.pid", "child.pid"].map(|file| process(&stage, file));
        assert!(is_alive(server) && is_alive(child));
        let gone = || !is_alive(server) && !is_alive(child);
        if engine_too {
            serving.signal(Signal::KILL);
            drop(serving.ended());
            until("the server and its child are gone", gone);
            continue;
        }
        kill_process(server, Signal::KILL).unwrap();
        until("the server and its child are gone", gone);
        let told = || asked(&serving, "GET", &format!("{place}/messages"), &Value::Null).1.to_string();
        until("the turn goes on", || told().contains("Done."));
        assert!(told().contains("signal 9"), "{}", told());
    }
}
