"""Checks the MCP client against servers that others wrote: each is used by a session, whose model is scripted.

    check.py PLAYHOUSE MOCK_LLM NODE_MODULES VENV CHROMIUM

NODE_MODULES holds node and the servers of npm, VENV those of PyPI, and CHROMIUM is the browser. Servers are started by
`playhouse mcp test`, used over `playhouse run`, over `/v1` and over opencode's wire, and ended in every way: by the end of a command,
by SIGTERM and SIGKILL to the engine, and by SIGKILL to a server. Tools are listed, each call has the expected result in the
transcript, and no process is left.

Exit code 0 when all is well; else what was expected. Needs Python 3.10 or newer, git, and Linux.
"""

import contextlib
import http.client
import http.server
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

PAGE = b"<!doctype html><title>The local page</title><h1>Ready to order</h1><button>Buy 4711</button>"
# Far longer than a call takes: ends what hangs.
PATIENCE = 120


def fail(problem):
    raise SystemExit(f"mcp: {problem}")


@dataclass
class Server:
    """An entry of the configuration, and what a session does with it: tools, their arguments, and a part of each result."""

    name: str
    command: str
    args: list
    calls: list
    env: dict = field(default_factory=dict)
    scope: str = "workspace"

    def table(self):
        text = f"[mcp.{self.name}]\ncommand = {json.dumps(self.command)}\nargs = {json.dumps(self.args)}\n"
        text += f'scope = "{self.scope}"\n[mcp.{self.name}.env]\n'
        return text + "".join(f"{name} = {json.dumps(value)}\n" for name, value in self.env.items())

    def called(self):
        """The calls by the names that a model is shown."""
        for tool, arguments, part in self.calls:
            yield tool if tool == "mcp_resource" else f"mcp_{self.name}_{tool}", arguments, part


def servers(modules, venv, chromium, folder, page):
    """All servers. Node's are started by its program, since their files need a newer one than systems have."""
    node = str(modules / "node/bin/node")
    official = modules / "@modelcontextprotocol"
    workspace = str(folder / "workspace")
    mark = {"PLAYHOUSE_CHECK": str(folder)}
    person = {"name": "Ada", "entityType": "person", "observations": ["likes engines"]}
    resource = "demo://resource/static/document/features.md"
    return [
        Server(
            "everything",
            node,
            [str(official / "server-everything/dist/index.js"), "stdio"],
            [
                ("echo", {"message": "PING-77"}, "PING-77"),
                ("get-sum", {"a": 2, "b": 40}, "42"),
                ("mcp_resource", {"server": "everything", "uri": resource}, "Features"),
            ],
            mark,
        ),
        Server(
            "files",
            node,
            [str(official / "server-filesystem/dist/index.js"), workspace],
            [
                ("write_file", {"path": f"{workspace}/order.txt", "content": "4711 pieces"}, "order.txt"),
                ("read_text_file", {"path": f"{workspace}/order.txt"}, "4711 pieces"),
                ("read_text_file", {"path": "/etc/hostname"}, "outside allowed directories"),
            ],
            mark,
        ),
        Server(
            "memory",
            node,
            [str(official / "server-memory/dist/index.js")],
            [
                ("create_entities", {"entities": [person]}, ""),
                ("search_nodes", {"query": "engines"}, "Ada"),
            ],
            mark | {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")},
            "tenant",
        ),
        Server(
            "git",
            str(venv / "bin/mcp-server-git"),
            ["--repository", workspace],
            [
                ("git_log", {"repo_path": workspace}, "the first commit"),
                ("git_status", {"repo_path": workspace}, "On branch"),
            ],
            mark,
        ),
        Server(
            "time",
            str(venv / "bin/mcp-server-time"),
            ["--local-timezone", "UTC"],
            [("convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}, "T21:00")],
            mark,
        ),
        Server(
            "fetch",
            str(venv / "bin/mcp-server-fetch"),
            ["--ignore-robots-txt", "--allow-private-ips"],
            [("fetch", {"url": page}, "Ready to order")],
            mark,
        ),
        Server(
            "browser",
            node,
            [str(modules / "@playwright/mcp/cli.js"), "--headless", "--no-sandbox", "--isolated"]
            + ["--executable-path", chromium, "--output-dir", str(folder / "browser")],
            [
                ("browser_navigate", {"url": page}, "The local page"),
                ("browser_snapshot", {}, "Buy 4711"),
            ],
            mark | {"HOME": str(folder)},
            "session",
        ),
    ]


# Processes


def stat(process):
    """The parent and the start of a process that is not a zombie."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return None if words[0] == "Z" else (int(words[1]), words[19])


def below(root):
    """All that descend from a process: numbers and starts."""
    found = {int(name): stat(name) for name in os.listdir("/proc") if name.isdigit()}
    tree, level = {}, {root}
    while level:
        level = {process for process, seen in found.items() if seen and seen[0] in level}
        tree |= {process: found[process][1] for process in level}
    return tree


def arguments(process):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().decode().split("\0")
    return []


def marked(folder):
    """Processes that work for this check, by their environment or their arguments."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            told = Path(f"/proc/{name}/environ").read_bytes() + Path(f"/proc/{name}/cmdline").read_bytes()
            if os.fsencode(folder) in told and int(name) != os.getpid() and stat(name):
                yield int(name)


def until(look, problem):
    """Looks until there is something to see."""
    deadline = time.monotonic() + PATIENCE
    while not (seen := look()):
        if time.monotonic() > deadline:
            fail(problem())
        time.sleep(0.02)
    return seen


def nothing_left(tree, folder, after):
    """Waits until all of a tree is gone, and nothing else of this check is there."""

    def left():
        still = {process for process, start in tree.items() if (stat(process) or (0, 0))[1] == start}
        return still | set(marked(folder))

    def told():
        return f"{after} left " + ", ".join(f"{process} ({' '.join(arguments(process))[:200]})" for process in left())

    until(lambda: not left(), told)


# The engine


class Engine:
    """`playhouse serve` with all servers."""

    def __init__(self, command, folder, environment):
        self.log = folder / "log"
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(
                [*command, "serve", "--sandbox", "off", "--port", "0"],
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd=folder / "workspace",
                text=True,
            )
        line = self.process.stdout.readline()
        if "http://" not in line:
            fail(f"the engine does not start: {line}{self.log.read_text()}")
        self.address = line.split("http://")[1].split()[0].strip("/.,")
        self.workspace = str(folder / "workspace")

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE)
        connection.request(method, path, None if body is None else json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        told = answer.read().decode()
        connection.close()
        if answer.status >= 300:
            fail(f"{method} {path}: {answer.status} {told}\n{self.log.read_text()[-2000:]}")
        return json.loads(told or "null")

    def turn(self, name):
        """A session over /v1 with the model of a server. Returns its calls with what came out."""
        session = self.ask("POST", "/v1/sessions", {"model": f"scripted/{name}", "workspace": self.workspace})["id"]
        self.ask("POST", f"/v1/sessions/{session}/prompts", {"text": "go"})
        path = f"/v1/sessions/{session}"
        until(lambda: not self.ask("GET", path)["open_turns"], lambda: f"{name}: the turn does not end")
        parts = [part for message in self.ask("GET", path + "/messages")["messages"] for part in message["parts"]]
        return [(part["tool"], part["state"].get("output", "")) for part in parts if part["type"] == "call"]

    def turn_of_opencode(self, name):
        """The same over opencode's wire."""
        query = f"?directory={self.workspace}"
        session = self.ask("POST", "/session" + query, {})["id"]
        model = {"providerID": "scripted", "modelID": name}
        body = {"model": model, "parts": [{"type": "text", "text": "go"}]}
        self.ask("POST", f"/session/{session}/message{query}", body)
        parts = [part for message in self.ask("GET", f"/session/{session}/message{query}") for part in message["parts"]]
        tools = [part for part in parts if part["type"] == "tool"]
        return [(part["tool"], part["state"].get("output") or part["state"].get("error", "")) for part in tools]


def as_expected(server, calls, how):
    """Compares the calls of a session with those that its model made."""
    wanted = list(server.called())
    if [tool for tool, _ in calls] != [tool for tool, _, _ in wanted]:
        fail(f"{server.name} over {how}: expected calls of {[tool for tool, _, _ in wanted]}, got {calls}")
    for (tool, output), (_, _, part) in zip(calls, wanted):
        if part not in output:
            fail(f"{server.name} over {how}: expected {part!r} in the result of {tool}, got {output!r}")
    print(f"{server.name}: {len(calls)} calls over {how}", flush=True)


def all_at_once(engine, all_servers):
    """A session of each server, side by side."""
    with ThreadPoolExecutor(len(all_servers)) as pool:
        for server, calls in zip(all_servers, pool.map(lambda server: engine.turn(server.name), all_servers)):
            as_expected(server, calls, "/v1")


def configure(all_servers, url, folder):
    script = {"models": {}}
    text = 'model = "scripted/files"\n[permissions]\n"*" = "allow"\nmcp = "allow"\n'
    text += f'[providers.scripted]\ndialect = "anthropic"\nbase_url = "{url}"\n'
    for server in all_servers:
        steps = [{"items": [{"call": {"name": tool, "input": given}}]} for tool, given, _ in server.called()]
        script["models"][server.name] = {"turns": [{"steps": [*steps, {"items": [{"text": "Done."}]}]}]}
        text += f"[providers.scripted.models.{server.name}]\ncontext = 200000\noutput = 4096\n"
    (folder / "config.toml").write_text(text + "".join(server.table() for server in all_servers))
    return script


def check(command, all_servers, folder, environment):
    by_name = {server.name: server for server in all_servers}

    def run(*words):
        done = subprocess.run(
            [*command, *words], capture_output=True, env=environment, cwd=folder / "workspace", text=True, timeout=PATIENCE
        )
        if done.returncode:
            fail(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        nothing_left({}, folder, " ".join(words))
        return done.stdout

    for server in all_servers:
        listed = json.loads(run("mcp", "test", server.name, "--format", "json"))["tools"]
        missing = {tool for tool, _, _ in server.calls} - {"mcp_resource", *listed}
        if missing:
            fail(f"{server.name}: {missing} not among its tools: {listed}")

    lines = run("run", "--in-process", "-m", "scripted/memory", "--format", "json", "go").splitlines()
    events = [json.loads(line) for line in lines]
    names = {event["data"]["call"]: event["data"]["tool"] for event in events if event["type"] == "call.proposed"}
    settled = [event["data"] for event in events if event["type"] == "call.settled"]
    as_expected(by_name["memory"], [(names[end["call"]], json.dumps(end)) for end in settled], "run")

    engine = Engine(command, folder, environment)
    all_at_once(engine, all_servers)
    as_expected(by_name["files"], engine.turn_of_opencode("files"), "opencode's wire")

    # One server is killed: all that it started goes with it, and the next session has a new one.
    cli = by_name["browser"].args[0]
    trees = {process: below(process) for process in below(engine.process.pid) if cli in arguments(process)}
    roots = [process for process in trees if not any(process in tree for tree in trees.values())]
    if not roots or not any(trees.values()):
        fail(f"no browser runs: {trees}")
    for process in roots:
        os.kill(process, signal.SIGKILL)
        until(lambda: not any(stat(one) for one in trees[process]), lambda: f"SIGKILL to the browser's server left {trees[process]}")
    as_expected(by_name["browser"], engine.turn("browser"), "/v1, after SIGKILL to its server")

    for number, name in ((signal.SIGKILL, "SIGKILL"), (signal.SIGTERM, "SIGTERM")):
        tree = below(engine.process.pid)
        if len(tree) < len(all_servers):
            fail(f"before {name} fewer processes run than there are servers: {tree}")
        engine.process.send_signal(number)
        engine.process.wait(PATIENCE)
        nothing_left(tree, folder, f"{name} to the engine")
        print(f"{name} to the engine: none of {len(tree)} processes is left", flush=True)
        if number == signal.SIGKILL:
            engine = Engine(command, folder, environment)
            all_at_once(engine, all_servers)


class Pages(http.server.BaseHTTPRequestHandler):
    """One page, at every address."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_):
        pass


def main():
    playhouse, mock, modules, venv, chromium = (os.path.abspath(path) for path in sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "workspace").mkdir()
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PLAYHOUSE_LOG": "warn"}
        commit = "git init -q && git -c user.name=a -c user.email=a@example.org commit -q --allow-empty -m 'the first commit'"
        subprocess.run(commit, shell=True, check=True, cwd=folder / "workspace", env=environment)

        pages = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        page = f"http://127.0.0.1:{pages.server_port}/"
        all_servers = servers(Path(modules), Path(venv), chromium, folder, page)
        script = configure(all_servers, "http://unused", folder)
        (folder / "script.json").write_text(json.dumps(script))
        model = subprocess.Popen([mock, "--script", "script.json"], cwd=folder, stdout=subprocess.PIPE, text=True)
        try:
            configure(all_servers, model.stdout.readline().strip().removeprefix("mock-llm listening on "), folder)
            command = [playhouse, "--data", str(folder / "data"), "--config", str(folder / "config.toml")]
            check(command, all_servers, folder, environment)
        finally:
            model.terminate()
            model.wait()
            for process in marked(folder):
                os.kill(process, signal.SIGKILL)


main()
