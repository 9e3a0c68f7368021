"""Asks mock-llm through the providers' own SDKs, and checks what they make of its answers.

Run by scripts/sdk-check, with the server's address as the only argument. Every answer's types are checked strictly: the
SDKs themselves accept nearly anything, so each event and answer is validated against its pydantic model.
"""

import json
import sys

import anthropic
import openai
import pydantic
from google import genai
from google.genai import errors as genai_errors
from google.genai import types as genai_types

BASE = sys.argv[1]
PROMPT = "Look around."
TEXT = 'Let me "look": é 🏠.'
THOUGHT = "First see what is there."
ARGUMENTS = {"filePath": "README.md", "limit": 5}
SCHEMA = {"type": "object", "properties": {"filePath": {"type": "string"}}}
passed = 0


def check(what, actual, expected):
    global passed
    if actual != expected:
        raise SystemExit(f"sdk-check: {what}: expected {expected!r}, got {actual!r}")
    passed += 1


def raises(what, kind, ask):
    try:
        ask()
    except kind as error:
        check(what, True, True)
        return error
    raise SystemExit(f"sdk-check: {what}: nothing was raised, expected {kind.__name__}")


def strictly(value):
    """The SDKs build their models without validation; do it here, with what was received."""
    data = value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    try:
        type(value).model_validate(data)
    except pydantic.ValidationError as error:
        raise SystemExit(f"sdk-check: {type(value).__name__} is not valid: {error}\n{json.dumps(data)}") from error
    return value


def check_anthropic():
    client = anthropic.Anthropic(base_url=BASE, api_key="key", max_retries=0)
    tools = [{"name": name, "input_schema": SCHEMA} for name in ("read", "list")]

    def ask(model, messages=None, **more):
        messages = messages or [{"role": "user", "content": PROMPT}]
        return {"model": model, "max_tokens": 1000, "tools": tools, "messages": messages, **more}

    def stream(model, messages=None):
        with client.messages.stream(**ask(model, messages)) as events:
            for event in events:
                if event.type in ("message_start", "content_block_start", "content_block_delta", "message_delta"):
                    strictly(event)
            return strictly(events.get_final_message())

    for message in (strictly(client.messages.create(**ask("talk"))), stream("talk")):
        check("anthropic kinds", [block.type for block in message.content], ["thinking", "text", "tool_use", "tool_use"])
        check("anthropic thinking", message.content[0].thinking, THOUGHT)
        check("anthropic signature", bool(message.content[0].signature), True)
        check("anthropic text", message.content[1].text, TEXT)
        check("anthropic arguments", message.content[2].input, ARGUMENTS)
        check("anthropic reason", message.stop_reason, "tool_use")
        usage = message.usage
        counts = (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens)
        check("anthropic usage", counts, (100, 40, 7))
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": "x"}
            for block in message.content
            if block.type == "tool_use"
        ]
        said = [block.model_dump(exclude_none=True, exclude={"parsed_output"}) for block in message.content]
        turn = [
            {"role": "user", "content": PROMPT},
            {"role": "assistant", "content": said},
            {"role": "user", "content": results},
        ]
        check("anthropic second step", stream("talk", turn).content[0].text, "All is well.")
    redacted = stream("redacted")
    check("anthropic redacted", (redacted.content[0].type, redacted.content[0].data), ("redacted_thinking", "c2VjcmV0"))
    for model, reason in (("refusal", "refusal"), ("length", "max_tokens"), ("empty", "end_turn")):
        check(f"anthropic {model}", stream(model).stop_reason, reason)
    raises("anthropic limited", anthropic.RateLimitError, lambda: stream("limited"))
    raises("anthropic key", anthropic.AuthenticationError, lambda: stream("bad-key"))
    raises("anthropic overflow", anthropic.BadRequestError, lambda: stream("overflow"))
    raises("anthropic unknown", anthropic.NotFoundError, lambda: stream("nobody"))
    error = raises("anthropic overloaded", anthropic.APIStatusError, lambda: stream("overloaded"))
    check("anthropic overloaded", error.body["error"]["type"], "overloaded_error")
    check("anthropic again", client.with_options(max_retries=1).messages.create(**ask("again")).content[0].text,
          "At the second attempt.")
    check("anthropic odd", stream("odd").content[0].text, "Très bien 🏠.")


def check_chat():
    client = openai.OpenAI(base_url=f"{BASE}/v1", api_key="key", max_retries=0)
    tools = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in ("read", "list")]

    def ask(model, messages=None):
        return {"model": model, "tools": tools, "messages": messages or [{"role": "user", "content": PROMPT}]}

    def stream(model, messages=None):
        options = {"include_usage": True}
        with client.chat.completions.stream(**ask(model, messages), stream_options=options) as events:
            for event in events:
                if event.type == "chunk":
                    strictly(event.chunk)
            return events.get_final_completion()

    for completion in (strictly(client.chat.completions.create(**ask("talk"))), stream("talk")):
        choice = completion.choices[0]
        check("chat text", choice.message.content, TEXT)
        check("chat reason", choice.finish_reason, "tool_calls")
        calls = choice.message.tool_calls
        check("chat calls", [call.function.name for call in calls], ["read", "list"])
        check("chat arguments", json.loads(calls[0].function.arguments), ARGUMENTS)
        usage = completion.usage
        counts = (usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens)
        check("chat usage", counts, (147, 40))
        check("chat total", usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        said = {
            "role": "assistant",
            "content": choice.message.content,
            "tool_calls": [
                {"id": call.id, "type": "function",
                 "function": {"name": call.function.name, "arguments": call.function.arguments}}
                for call in calls
            ],
        }
        results = [{"role": "tool", "tool_call_id": call.id, "content": "x"} for call in calls]
        turn = [{"role": "user", "content": PROMPT}, said, *results]
        check("chat second step", stream("talk", turn).choices[0].message.content, "All is well.")
    check("chat refusal", stream("refusal").choices[0].message.refusal, "I will not.")
    check("chat empty", stream("empty").choices[0].finish_reason, "stop")
    for model, reason in (("length", "length"), ("filter", "content_filter")):
        completion = client.chat.completions.create(**ask(model))
        check(f"chat {model}", completion.choices[0].finish_reason, reason)
    check_openai_errors("chat", client, stream)
    again = client.with_options(max_retries=1).chat.completions.create(**ask("again"))
    check("chat again", again.choices[0].message.content, "At the second attempt.")
    check("chat odd", stream("odd").choices[0].message.content, "Très bien 🏠.")


def check_openai_errors(name, client, stream):
    raises(f"{name} limited", openai.RateLimitError, lambda: stream("limited"))
    raises(f"{name} key", openai.AuthenticationError, lambda: stream("bad-key"))
    error = raises(f"{name} overflow", openai.BadRequestError, lambda: stream("overflow"))
    check(f"{name} overflow", error.code, "context_length_exceeded")
    raises(f"{name} unknown", openai.NotFoundError, lambda: stream("nobody"))
    if name == "chat":
        error = raises(f"{name} overloaded", openai.APIError, lambda: stream("overloaded"))
        check(f"{name} overloaded", error.message, "Busy.")


def check_responses():
    client = openai.OpenAI(base_url=f"{BASE}/v1", api_key="key", max_retries=0)
    tools = [{"type": "function", "name": name, "parameters": SCHEMA, "strict": False} for name in ("read", "list")]

    def ask(model, items=None):
        return {
            "model": model, "tools": tools, "input": items or PROMPT, "store": False,
            "include": ["reasoning.encrypted_content"],
        }

    def stream(model, items=None):
        with client.responses.stream(**ask(model, items)) as events:
            for event in events:
                # The SDK adds to some events what it has put together; those are its own.
                if event.type not in ("response.output_text.delta", "response.function_call_arguments.delta",
                                      "response.output_text.done", "response.completed"):
                    strictly(event)
            return events.get_final_response()

    def raw(model):
        return [strictly(event) for event in client.responses.create(**ask(model), stream=True)]

    for response in (strictly(client.responses.create(**ask("talk"))), stream("talk"), raw("talk")[-1].response):
        kinds = ["reasoning", "message", "function_call", "function_call"]
        check("responses kinds", [item.type for item in response.output], kinds)
        check("responses summary", response.output[0].summary[0].text, THOUGHT)
        check("responses encrypted", bool(response.output[0].encrypted_content), True)
        check("responses text", response.output_text, TEXT)
        check("responses arguments", json.loads(response.output[2].arguments), ARGUMENTS)
        check("responses status", response.status, "completed")
        usage = response.usage
        counts = (usage.input_tokens, usage.input_tokens_details.cached_tokens)
        check("responses usage", counts, (147, 40))
        check("responses reasoning", usage.output_tokens_details.reasoning_tokens > 0, True)
        check("responses total", usage.total_tokens, usage.input_tokens + usage.output_tokens)
        drop = {"parsed_arguments", "status"}
        said = [item.model_dump(exclude_none=True, exclude=drop) for item in response.output]
        for item in said:
            for part in item.get("content", []):
                part.pop("parsed", None)
        results = [
            {"type": "function_call_output", "call_id": item.call_id, "output": "x"}
            for item in response.output
            if item.type == "function_call"
        ]
        turn = [{"role": "user", "content": PROMPT}, *said, *results]
        check("responses second step", stream("talk", turn).output_text, "All is well.")
    check("responses refusal", raw("refusal")[-1].response.output[0].content[0].refusal, "I will not.")
    for model, reason in (("length", "max_output_tokens"), ("filter", "content_filter")):
        last = raw(model)[-1]
        told = (last.type, last.response.status, last.response.incomplete_details.reason)
        check(f"responses {model}", told, ("response.incomplete", "incomplete", reason))
    check("responses empty", raw("empty")[-1].response.output, [])
    redacted = raw("redacted")[-1].response.output[0]
    check("responses redacted", (redacted.summary, redacted.encrypted_content), ([], "c2VjcmV0"))
    check_openai_errors("responses", client, stream)
    *_, error, failed = raw("overloaded")
    check("responses overloaded", (error.type, error.message), ("error", "Busy."))
    check("responses failed", (failed.type, failed.response.error.message), ("response.failed", "Busy."))
    again = client.with_options(max_retries=1).responses.create(**ask("again"))
    check("responses again", again.output_text, "At the second attempt.")
    check("responses odd", stream("odd").output_text, "Très bien 🏠.")


def check_gemini():
    client = genai.Client(api_key="key", http_options=genai_types.HttpOptions(base_url=BASE))
    declarations = [
        genai_types.FunctionDeclaration(name=name, parameters_json_schema=SCHEMA) for name in ("read", "list")
    ]
    config = genai_types.GenerateContentConfig(
        tools=[genai_types.Tool(function_declarations=declarations)],
        system_instruction="Be kind.",
        max_output_tokens=100,
        thinking_config=genai_types.ThinkingConfig(include_thoughts=True, thinking_budget=100),
        automatic_function_calling=genai_types.AutomaticFunctionCallingConfig(disable=True),
    )

    def user(text):
        return genai_types.Content(role="user", parts=[genai_types.Part(text=text)])

    def stream(model, contents=None):
        asked = contents or [user(PROMPT)]
        return list(client.models.generate_content_stream(model=model, contents=asked, config=config))

    def parts_of(chunks):
        return [
            part for chunk in chunks for candidate in chunk.candidates or [] for part in candidate.content.parts or []
        ]

    whole = client.models.generate_content(model="talk", contents=[user(PROMPT)], config=config)
    for chunks in ([whole], stream("talk")):
        parts = parts_of(chunks)
        check("gemini thought", "".join(part.text for part in parts if part.thought), THOUGHT)
        check("gemini text", "".join(part.text for part in parts if part.text and not part.thought), TEXT)
        calls = [part.function_call for part in parts if part.function_call]
        check("gemini calls", [call.name for call in calls], ["read", "list"])
        check("gemini arguments", calls[0].args, ARGUMENTS)
        check("gemini signature", [bool(part.thought_signature) for part in parts if part.function_call], [True, False])
        last = chunks[-1]
        check("gemini reason", last.candidates[0].finish_reason, genai_types.FinishReason.STOP)
        usage = last.usage_metadata
        check("gemini usage", (usage.prompt_token_count, usage.cached_content_token_count), (147, 40))
        total = usage.prompt_token_count + usage.candidates_token_count + usage.thoughts_token_count
        check("gemini total", usage.total_token_count, total)
        results = [
            genai_types.Part.from_function_response(name=call.name, response={"output": "x"}) for call in calls
        ]
        turn = [
            user(PROMPT),
            genai_types.Content(role="model", parts=[part for part in parts if part.text != ""]),
            genai_types.Content(role="user", parts=results),
        ]
        second = "".join(part.text for part in parts_of(stream("talk", turn)))
        check("gemini second step", second, "All is well.")
    for model, reason in (("length", "MAX_TOKENS"), ("filter", "SAFETY"), ("empty", "STOP")):
        check(f"gemini {model}", stream(model)[-1].candidates[0].finish_reason.name, reason)
    for model, code in (("limited", 429), ("bad-key", 400), ("overflow", 400), ("nobody", 404)):
        error = raises(f"gemini {model}", genai_errors.ClientError, lambda model=model: stream(model))
        check(f"gemini {model}", error.code, code)
    error = raises("gemini overloaded", genai_errors.ServerError, lambda: stream("overloaded"))
    check("gemini overloaded", (error.code, error.status), (503, "UNAVAILABLE"))
    # This SDK takes comments for a part of an error, so here they are left out.
    check("gemini odd", "".join(part.text or "" for part in parts_of(stream("plain-odd"))), "Très bien 🏠.")


for ask_all in (check_anthropic, check_chat, check_responses, check_gemini):
    ask_all()
    print(f"sdk-check: {ask_all.__name__.removeprefix('check_')}: all well")
print(f"{passed} passed, 0 failed")
