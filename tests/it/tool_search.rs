//! Tools of MCP servers that are too many to be shown, and that the provider searches itself.

use fs_err as fs;
use mock_llm::{Dialect, MockOptions, Model, RefusalShape, Rules, Script, call, text};
use playhouse::protocol::Record;
use serde_json::{Value, json};

use crate::stage::{Stage, finish};
use crate::tap::Tap;

/// A server with 50 tools in the language of shells: each says its name.
const SERVER: &str = r#"
list() {
    n=0; between=
    while [ $n -lt 50 ]; do
        printf '%s{"name":"t%s","description":"Does thing %s.","inputSchema":{"type":"object"}}' "$between" $n $n
        between=,; n=$((n + 1))
    done
}
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
while read -r line; do
    id=${line#*\"id\":}
    id=${id%%[,\}]*}
    case "$line" in
    *'"initialize"'*) reply "$id" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}' ;;
    *'"tools/list"'*) reply "$id" "{\"tools\":[$(list)]}" ;;
    *'"tools/call"'*)
        tool=${line#*\"name\":\"}
        reply "$id" '{"content":[{"type":"text","text":"this is '"${tool%%\"*}"'"}]}' ;;
    esac
done
"#;

/// What the mock answers with is of one model; `searching` and `gateway` are the same server, of which only the first searches.
fn stage(dialect: Dialect, model: Model, rules: Rules) -> (Stage, Tap) {
    let script = Script::new().model("plain-1", model);
    let stage = Stage::with_rules(script, MockOptions::default(), rules);
    let tap = Tap::before(&stage.url());
    let url = tap.url();
    let (dialect, path) = match dialect {
        Dialect::Anthropic => ("anthropic", ""),
        _ => ("openai-responses", "/v1"),
    };
    let provider = |name: &str, more: &str| {
        format!(
            "[providers.{name}]\ndialect = \"{dialect}\"\nbase_url = \"{url}{path}\"\n{more}\
             [providers.{name}.models.plain-1]\ncontext = 40000\noutput = 4000\n"
        )
    };
    let config = format!(
        "model = \"searching/plain-1\"\n{}{}[permissions]\nmcp = \"allow\"\n[mcp.x]\ncommand = \"/bin/sh\"\n\
         args = [\"-c\", '''{SERVER}''']\n",
        provider("searching", "deferred_tools = true\n"),
        provider("gateway", ""),
    );
    fs::write(&stage.config, config).unwrap();
    // From now on its tools are known at once.
    stage.playhouse(["mcp", "test", "x"]).is(0);
    (stage, tap)
}

/// The tools of a request that are not native.
fn outside(request: &Value) -> Vec<&Value> {
    let tools = request["tools"].as_array().unwrap().iter();
    let is_outside = |tool: &&Value| match tool["name"].as_str() {
        Some(name) => {
            name.starts_with("mcp_") || tool["type"].as_str().is_some_and(|kind| kind.contains("search"))
        }
        None => true,
    };
    tools.filter(is_outside).collect()
}

fn names<'a>(tools: &[&'a Value]) -> Vec<&'a str> {
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

/// The blocks of a search in both dialects, as a model says them.
fn search(dialect: Dialect) -> [Value; 2] {
    match dialect {
        Dialect::Anthropic => [
            json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "tool_search_tool_regex",
                "input": {"query": "thing 7"}, "caller": {"type": "direct"}}),
            json!({"type": "tool_search_tool_result", "tool_use_id": "srvtoolu_1", "content": {
                "type": "tool_search_tool_search_result",
                "tool_references": [{"type": "tool_reference", "tool_name": "mcp_x_t7"}]}}),
        ],
        _ => [
            json!({"type": "tool_search_call", "id": "tsc_1", "call_id": null, "execution": "server",
                "status": "completed", "arguments": {"paths": ["mcp_x_t7"]}}),
            json!({"type": "tool_search_output", "id": "tso_1", "call_id": null, "execution": "server",
                "status": "completed", "tools": [{"type": "function", "name": "mcp_x_t7", "defer_loading": true,
                "description": "Does thing 7.", "parameters": {"type": "object"}}]}),
        ],
    }
}

/// What was said behind the prompt of a request.
fn said(dialect: Dialect, request: &Value) -> Vec<Value> {
    match dialect {
        Dialect::Anthropic => request["messages"][1]["content"].as_array().unwrap().clone(),
        _ => request["input"].as_array().unwrap()[1..].to_vec(),
    }
}

#[test]
fn deferred_tools_are_searched_by_the_provider_and_called_by_name() {
    for dialect in [Dialect::Anthropic, Dialect::OpenaiResponses] {
        let [use_, found] = search(dialect);
        let model = Model::new()
            .step(text("Let me look.").block(use_.clone()).block(found.clone()).call("mcp_x_t7", json!({})))
            .step(text("Done."))
            .next_turn()
            .step(text("Done again."))
            .next_turn()
            .step(text("Done elsewhere."));
        let (stage, tap) = stage(dialect, model, Rules::default());
        stage.run(["Do thing 7."]).is(0);
        let session = stage.session();
        // Another process knows what the first one showed.
        stage.run(["-s", &session, "Once more."]).is(0);

        let requests = stage.requests();
        let tools = outside(&requests[0]);
        let (last, deferred) = tools.split_last().unwrap();
        assert_eq!(deferred.len(), 50, "{deferred:?}");
        assert!(deferred.iter().all(|tool| tool["defer_loading"] == true));
        assert_eq!(deferred[7]["name"], "mcp_x_t7");
        match dialect {
            Dialect::Anthropic => {
                assert_eq!(last["type"], "tool_search_tool_regex_20251119");
                let marked = requests[0]["tools"].as_array().unwrap().iter();
                assert_eq!(marked.filter(|tool| tool.get("cache_control").is_some()).count(), 1);
                assert!(last.get("cache_control").is_some());
                assert!(tap.heard().contains("anthropic-beta: advanced-tool-use-2025-11-20"));
            }
            _ => assert_eq!(**last, json!({"type": "tool_search"})),
        }
        for request in &requests[1..] {
            assert_eq!(request["tools"].to_string(), requests[0]["tools"].to_string());
            let said = said(dialect, request);
            assert_eq!(said[1..3], [use_.clone(), found.clone()], "{said:?}");
            assert!(request.to_string().contains("this is t7"));
        }
        assert_eq!(requests.len(), 3);
        let records = stage.records(&session);
        let settled = records.iter().filter(|record| matches!(record, Record::ToolsSettled(_))).count();
        assert_eq!(settled, 1);
        let usages = records.iter().filter_map(|record| match record {
            Record::AttemptEnded(ended) => ended.usage.as_ref(),
            _ => None,
        });
        assert!(
            usages.clone().count() == 3
                && usages
                    .map(|usage| usage.quality)
                    .all(|quality| { quality == playhouse::protocol::usage::Quality::Reported })
        );

        // A server that is not known to search gets no blocks of another one, and the engine searches.
        stage.run(["-s", &session, "-m", "gateway/plain-1", "And there?"]).is(0);
        let requests = stage.requests();
        let last = requests.last().unwrap();
        assert_eq!(names(&outside(last)), ["mcp_search", "mcp_call"]);
        let text = last.to_string();
        let found_words = ["defer_loading", "server_tool_use", "tool_search_call", "tool_search_output"];
        assert!(!found_words.iter().any(|word| text.contains(word)), "{text}");
    }
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_server_that_refuses_deferred_tools_gets_those_of_the_engine() {
    for dialect in [Dialect::Anthropic, Dialect::OpenaiResponses] {
        for shape in [RefusalShape::Param, RefusalShape::Path, RefusalShape::Prose] {
            let rules = Rules {
                refused_fields: vec!["defer_loading".to_owned()],
                refusal_shape: shape,
                ..Rules::default()
            };
            let passed_on = json!({"server": "x", "tool": "t3", "arguments": {}});
            let model = Model::new().step(call("mcp_call", passed_on)).step(text("Done.")).cycle();
            let (stage, _tap) = stage(dialect, model, rules);
            let mut command = stage.command(["run", "Do thing 3."]);
            command.env("PLAYHOUSE_LOG", "warn");
            let told = finish(command).is(0);
            assert!(told.stderr.contains("deferred_tools = false"), "{}", told.stderr);
            stage.run(["-s", &stage.session(), "Once more."]).is(0);
            let requests = stage.requests();
            // Each process asks once.
            let refused: Vec<bool> =
                requests.iter().map(|request| request.to_string().contains("defer_loading")).collect();
            assert_eq!(refused, [true, false, false, true, false, false], "{shape:?}");
            for request in [&requests[1], &requests[2], &requests[4], &requests[5]] {
                assert_eq!(names(&outside(request)), ["mcp_search", "mcp_call"]);
            }
            assert!(requests[2].to_string().contains("this is t3"));
        }
    }
}
