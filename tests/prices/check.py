"""Checks what the ledger says that requests cost against an independent calculation: the PyPI package genai-prices.

    check.py PLAYHOUSE MOCK_LLM CATALOGUE

Starts both programs in a temporary folder, asks every model of the catalogue in the wire format of its provider, and reads
the rows of the ledger. What a row cost is then worked out again from the provider's own usage object, which the row holds as it
came: which tokens are in which class, which prices hold and what that costs is all decided by genai-prices.

Exit code 0 when they agree for each model that both know, to the cent for all its requests together and to a hundredth of a
cent for each. Needs Python 3.11 or newer.
"""

import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

from genai_prices import calc_price, extract_usage

CENT = Decimal("0.01")

# Provider: its name there, the form of its usage objects there, and the variables that say where it is and hold its key.
PROVIDERS = {
    "anthropic": ("anthropic", "default", "ANTHROPIC_BASE_URL", "", "ANTHROPIC_API_KEY"),
    "openai": ("openai", None, "OPENAI_BASE_URL", "/v1", "OPENAI_API_KEY"),
    "google": ("google", "default", "GOOGLE_GEMINI_BASE_URL", "", "GEMINI_API_KEY"),
    "openrouter": ("openrouter", "chat", "OPENROUTER_BASE_URL", "/v1", "OPENROUTER_API_KEY"),
    "mistral": ("mistral", "default", "MISTRAL_BASE_URL", "/v1", "MISTRAL_API_KEY"),
    "groq": ("groq", "default", "GROQ_BASE_URL", "", "GROQ_API_KEY"),
    "deepseek": ("deepseek", "chat", "DEEPSEEK_BASE_URL", "/v1", "DEEPSEEK_API_KEY"),
    "xai": ("x-ai", "chat", "XAI_BASE_URL", "/v1", "XAI_API_KEY"),
}

# What a model reports, turn by turn: some of each class, the cache of an hour, and, where its context window holds that, more
# input than any threshold of prices.
TURNS = [
    {"input": 61_234, "cache_read": 20_011, "cache_write": 3_007, "output": 10_013, "reasoning": 517},
    {"input": 31_234, "cache_read": 40_013, "cache_write_1h": 5_003, "output": 7_019, "reasoning": 0},
    {"input": 700_003, "cache_read": 100_003, "output": 20_011, "reasoning": 1_003},
]

# Where the two lists of prices are known to differ, and why, as far as that is known.
PRICED_OTHERWISE = {
    "openrouter/openai/gpt-5.5": "the catalogue of models.dev, which ours equals, has no prices of long requests for it",
    "openrouter/z-ai/glm-5.2": "the two lists differ; which one is right was not found out",
    "openrouter/moonshotai/kimi-k2.7-code": "the two lists differ; which one is right was not found out",
    "deepseek/deepseek-v4-pro": "the two lists differ; which one is right was not found out",
    "deepseek/deepseek-v4-flash": "the two lists differ; which one is right was not found out",
}


class OverSocket(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path):
        super().__init__("localhost")
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self.path)


def ask(path, method, address, body=None):
    """What the engine behind this socket answers."""
    connection = OverSocket(path)
    text = None if body is None else json.dumps(body)
    connection.request(method, address, body=text, headers={"content-type": "application/json"})
    answer = connection.getresponse()
    told = answer.read().decode()
    connection.close()
    if answer.status >= 300:
        raise SystemExit(f"{method} {address}: {answer.status} {told}")
    return json.loads(told)


def listed(catalogue):
    """Models as provider/model, each with how many of the turns its context window holds."""
    found, models = tomllib.loads(Path(catalogue).read_text())["models"], {}
    for provider in PROVIDERS.keys() & found.keys():
        for model, facts in found[provider].items():
            models[f"{provider}/{model}"] = sum(1 for usage in TURNS if sum(usage.values()) <= facts["context"])
    return dict(sorted(models.items()))


def independent(row):
    """What a row cost by genai-prices; None for a model that it does not know."""
    provider, flavor, *_ = PROVIDERS[row["provider"]]
    raw, model = row["raw"], row["model"]
    if flavor is None:
        flavor = "responses" if "input_tokens" in raw else "chat"
    name = ("modelVersion", "usageMetadata") if provider == "google" else ("model", "usage")
    try:
        usage = extract_usage({name[0]: model, name[1]: raw}, provider_id=provider, api_flavor=flavor).usage
        return calc_price(usage, model, provider_id=provider).total_price
    except LookupError:
        return None


def rows_of(playhouse, mock, models, folder):
    """Asks each model, and gives the rows of the ledger."""
    script = {"models": {}}
    for model in models:
        name = model.split("/", 1)[1]
        steps = [{"steps": [{"items": [{"text": "Hello."}], "usage": usage}]} for usage in TURNS]
        script["models"][name] = {"turns": steps}
    (folder / "script.json").write_text(json.dumps(script))
    (folder / "config.toml").write_text("")
    (folder / "workspace").mkdir()
    started = []
    try:
        server = subprocess.Popen([mock, "--script", folder / "script.json"], stdout=subprocess.PIPE, text=True)
        started.append(server)
        url = server.stdout.readline().strip().removeprefix("mock-llm listening on ")
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        for _, _, address, path, key in PROVIDERS.values():
            environment |= {address: url + path, key: "key-of-nobody"}
        command = [playhouse, "--data", folder / "data", "--config", folder / "config.toml"]
        command += ["serve", "--sandbox", "off", "--port", "0"]
        with open(folder / "log", "w") as log:
            engine = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, env=environment, cwd=folder / "workspace", text=True
            )
        started.append(engine)
        if not engine.stdout.readline():
            raise SystemExit(f"the engine does not start: {(folder / 'log').read_text()}")
        path = folder / "data" / "engine.sock"
        for model in models:
            session = ask(path, "POST", "/v1/sessions", {"model": model})["id"]
            for number in range(models[model]):
                ask(path, "POST", f"/v1/sessions/{session}/prompts", {"text": f"prompt {number}"})
        deadline = time.monotonic() + 300
        while any(session["open_turns"] for session in ask(path, "GET", "/v1/sessions?limit=500")["sessions"]):
            if time.monotonic() > deadline:
                raise SystemExit("the turns do not end")
            time.sleep(0.1)
        return ask(path, "POST", "/operator", {"request": "rows", "data": {"limit": 10_000}})["data"]["rows"]
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()


def main():
    playhouse, mock, catalogue = (os.path.abspath(path) for path in sys.argv[1:])
    models = listed(catalogue)
    with tempfile.TemporaryDirectory() as folder:
        rows = rows_of(playhouse, mock, models, Path(folder))
    ours, theirs = defaultdict(Decimal), defaultdict(Decimal)
    compared, unknown, wrong = defaultdict(int), defaultdict(set), {}
    for row in rows:
        model = f"{row['provider']}/{row['model']}"
        if "raw" not in row:
            # mock-llm reports usage in chat completions to those who ask for it; Mistral does so unasked.
            unknown[model].add("it reported nothing")
            continue
        cost, again = row["cost"], independent(row)
        if cost is None or again is None:
            unknown[model].add("the catalogue lacks a price" if cost is None else "genai-prices does not know it")
            continue
        cost = Decimal(cost)
        ours[model] += cost
        theirs[model] += again
        compared[model] += 1
        if abs(cost - again) >= CENT / 100:
            wrong[model] = f"a request with {row['raw']} cost {cost} here and {again} there"
    for model in models:
        if abs(ours[model] - theirs[model]) >= CENT:
            wrong.setdefault(model, f"{ours[model]} here and {theirs[model]} there")
        verdict = "agrees" if compared[model] else "not compared"
        if model in wrong:
            verdict = "priced otherwise: " + PRICED_OTHERWISE[model] if model in PRICED_OTHERWISE else "DIFFERS"
        notes = "".join(f"; {note}" for note in sorted(unknown[model]))
        print(f"{model:45} {compared[model]} of {models[model]}  ${ours[model]:.6f}  {verdict}{notes}")
    wrong = {model: why for model, why in wrong.items() if model not in PRICED_OTHERWISE}
    for model, why in wrong.items():
        print(f"{model}: {why}", file=sys.stderr)
    if len(rows) != sum(models.values()):
        raise SystemExit(f"{len(rows)} rows of {sum(models.values())} requests")
    agreed = sum(1 for model in models if compared[model] and model not in wrong and model not in PRICED_OTHERWISE)
    print(f"{agreed} models agree, {len(wrong)} differ")
    # So that a check which compares next to nothing is no success.
    if wrong or agreed < 40:
        raise SystemExit(1)


main()
