"""Checks the client of language servers against real ones: a session edits, is told of its error, follows a reference,
mends it, and renames what it found.

    check.py PLAYHOUSE MOCK_LLM NAME=FOLDER…

Each NAME is a known server, found since FOLDER, which holds its program, stands first in PATH. The model is scripted. What is
told of an edit must be right, or "not known yet": never "no errors" of a content that has some, nor an error of one that has
none. What is asked for with the tool `lsp` must be there.

Exit code 0 when all is well; else what was expected. Needs Python 3.10 or newer, and Linux.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

# Far longer than a session takes: ends what hangs.
PATIENCE = 180


def fail(problem):
    raise SystemExit(f"lsp: {problem}")


@dataclass
class Project:
    """Files of a small project. In `main` a function of `library` is called: `good` is right there, `bad` is not."""

    files: dict
    main: str
    library: str
    good: str
    bad: str
    name: str = "total_of"
    comment: str = "//"

    def spot(self, file):
        """Line and column of the function's name in a file."""
        for number, line in enumerate(self.files[file].splitlines()):
            if self.name in line and "import" not in line:
                return {"filePath": file, "line": number + 1, "character": line.index(self.name) + 1}


TYPESCRIPT = Project(
    {
        "tsconfig.json": '{"compilerOptions": {"strict": true, "module": "nodenext"}}\n',
        "library.ts": "export function total_of(one: number, other: number): number {\n    return one + other;\n}\n",
        "main.ts": 'import { total_of } from "./library.js";\n\nexport const total: number = total_of(1, 2);\n',
    },
    "main.ts",
    "library.ts",
    "(1, 2)",
    '("one", 2)',
)
PYTHON = Project(
    {
        "pyproject.toml": '[project]\nname = "example"\nversion = "1"\nrequires-python = ">=3.10"\n',
        "library.py": "def total_of(one: int, other: int) -> int:\n    return one + other\n",
        "main.py": "from library import total_of\n\ntotal: int = total_of(1, 2)\n",
    },
    "main.py",
    "library.py",
    "(1, 2)",
    '("one", 2)',
    comment="#",
)
C = Project(
    {
        "compile_flags.txt": "-Wall\n",
        "library.h": "int total_of(int one, int other);\n",
        "main.c": '#include "library.h"\n\nint total(void) { return total_of(1, 2); }\n',
    },
    "main.c",
    "library.h",
    "(1, 2)",
    "(1, 2, 3)",
)
RUST = Project(
    {
        "Cargo.toml": '[package]\nname = "example"\nversion = "0.1.0"\nedition = "2021"\n',
        "src/library.rs": "pub fn total_of(one: u32, other: u32) -> u32 {\n    one + other\n}\n",
        "src/lib.rs": "mod library;\n\npub fn total() -> u32 { library::total_of(1, 2) }\n",
    },
    "src/lib.rs",
    "src/library.rs",
    "(1, 2)",
    "(1, 2, 3)",
)
PROJECTS = {
    "typescript": TYPESCRIPT,
    "typescript-language-server": TYPESCRIPT,
    "ty": PYTHON,
    "basedpyright": PYTHON,
    "clangd": C,
    "rust-analyzer": RUST,
}


def steps(name):
    """Calls with what their results must be."""
    project = PROJECTS[name]

    def edit(old, new, told):
        def is_told(result):
            known = f"Language server {name}: {told} in {project.main}" in result
            # The server said nothing of the edit before, since its errors are the same.
            error = f"Language server {name}: {told.replace('new error', 'error')} in {project.main}"
            known |= error in result and "of which is not known whether they are new" in result
            return known != (f"Language server {name}: errors in {project.main}: not known yet" in result)

        return "edit", {"filePath": project.main, "oldString": old, "newString": new}, is_told

    def ask(operation, told, file=project.main):
        return "lsp", {"operation": operation, **project.spot(file)}, told

    def has(*texts):
        return lambda result: all(text in result for text in texts)

    def names(result):
        """The error, at its place."""
        return f"{project.main}:" in result and "error" in result and "no errors" not in result

    def renamed(result):
        # Not all of them rename.
        return "applied the rename to 2 files" in result or "not known yet" in result or "has no rename" in result

    def clean(result):
        return "no problems" in result or "no errors" in result or "not known yet" in result

    read = [("read", {"filePath": file}, lambda _: True) for file in (project.main, project.library)]
    return [
        *read,
        ask("hover", has(project.name)),
        ask("diagnostics", clean),
        edit(project.good, project.bad, "1 new error"),
        ask("diagnostics", names),
        ask("goToDefinition", has(f"{project.library}:1:")),
        ask("findReferences", has(f"{project.main}:3:")),
        edit(project.bad, project.good, "no errors"),
        ask("diagnostics", clean),
        edit(project.good, f"{project.good} ", "no errors"),
        ask("diagnostics", clean),
        edit(f"{project.good} ", project.bad, "1 new error"),
        edit(project.bad, project.good, "no errors"),
        ask("diagnostics", clean),
        ("lsp", {"operation": "rename", **project.spot(project.library), "newName": "sum_of", "apply": True}, renamed),
    ]


def session(command, name, bin_folder, folder, environment):
    """Results of the calls of a session whose workspace is the project of a server."""
    workspace = folder / name
    for file, content in PROJECTS[name].files.items():
        (workspace / file).parent.mkdir(parents=True, exist_ok=True)
        (workspace / file).write_text(content)
    environment = environment | {"PATH": f"{bin_folder}:{environment['PATH']}"}
    done = subprocess.run(
        [*command, "run", "--in-process", "-m", f"scripted/{name}", "--format", "json", "go"],
        capture_output=True,
        env=environment,
        cwd=workspace,
        text=True,
        timeout=PATIENCE,
    )
    if done.returncode:
        fail(f"{name}: exit code {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    return [event["data"]["result"] for event in events if event["type"] == "call.settled"]


def check(command, name, bin_folder, folder, environment):
    results = session(command, name, bin_folder, folder, environment)
    wanted = steps(name)
    if len(results) != len(wanted):
        fail(f"{name}: {len(results)} results of {len(wanted)} calls")
    unknown, problems = 0, []
    for (tool, given, told), result in zip(wanted, results):
        output = result["output"] if isinstance(result["output"], str) else json.dumps(result["output"])
        # What came late is of an edit before.
        own = "\n".join(line for line in output.splitlines() if not line.startswith("(of an edit before)"))
        unknown += "not known yet" in own
        if not told(own):
            problems.append(f"{name}: the result of {tool} {given} is {output!r}")
    if problems:
        fail("\n".join(problems))
    print(f"{name}: {len(results)} calls as expected, {unknown} of them not known yet", flush=True)


def main():
    playhouse, mock = (os.path.abspath(path) for path in sys.argv[1:3])
    named = dict(word.split("=", 1) for word in sys.argv[3:])
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "PLAYHOUSE_LOG": "warn"}
        (folder / "home").mkdir()
        script, models = {"models": {}}, ""
        for name in named:
            calls = [{"items": [{"call": {"name": tool, "input": given}}]} for tool, given, _ in steps(name)]
            script["models"][name] = {"turns": [{"steps": [*calls, {"items": [{"text": "Done."}]}]}]}
            models += f"[providers.scripted.models.{name}]\ncontext = 200000\noutput = 4096\n"
        (folder / "script.json").write_text(json.dumps(script))
        model = subprocess.Popen([mock, "--script", "script.json"], cwd=folder, stdout=subprocess.PIPE, text=True)
        try:
            url = model.stdout.readline().strip().removeprefix("mock-llm listening on ")
            provider = f'[permissions]\n"*" = "allow"\n[providers.scripted]\ndialect = "anthropic"\nbase_url = "{url}"\n'
            (folder / "config.toml").write_text(provider + models)
            command = [playhouse, "--data", str(folder / "data"), "--config", str(folder / "config.toml")]
            for name, bin_folder in named.items():
                check(command, name, os.path.abspath(bin_folder), folder, environment)
        finally:
            model.terminate()
            model.wait()


main()
