"""openai-python and LangChain against the OpenAI endpoint.

Usage: openai_client.py BASE_URL; prints what each client made of a text, a call
in one piece, a streamed text and a streamed call.
"""
import json
import sys

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import OpenAI

base = sys.argv[1]
question = [{"role": "user", "content": "Weather in Seoul?"}]
schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
tools = [{"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": schema}}]
file_schema = {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}, "required": ["path", "content"]}
file_tools = [{"type": "function", "function": {"name": "write_file", "description": "Writes a file", "parameters": file_schema}}]
seen = {}

client = OpenAI(base_url=base, api_key="local", max_retries=0)


def calls_of(message):
    return [[it.function.name, json.loads(it.function.arguments)] for it in message.tool_calls or []]


def openai_python():
    text = client.chat.completions.create(model="text", messages=question).choices[0]
    call = client.chat.completions.create(model="call", messages=question, tools=tools).choices[0]
    pieces = []
    for chunk in client.chat.completions.create(model="text", messages=question, stream=True):
        pieces.append(chunk.choices[0].delta.content or "")
    # The helper is the strictest reader that this client has.
    with client.chat.completions.stream(
        model="call", messages=question, tools=tools, stream_options={"include_usage": True}
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    streamed = final.choices[0]
    pieces_of_file = []
    with client.chat.completions.stream(model="file", messages=question, tools=file_tools) as stream:
        for event in stream:
            if event.type == "tool_calls.function.arguments.delta":
                pieces_of_file.append(event.arguments_delta)
        file_call = stream.get_final_completion().choices[0].message
    try:
        list(client.chat.completions.create(model="broken", messages=question, stream=True))
        broken = "no error"
    except Exception as error:
        broken = type(error).__name__
    try:
        client.chat.completions.create(model="missing", messages=question)
        missing = "no error"
    except Exception as error:
        missing = type(error).__name__
    code = {"model": "text", "prompt": "def f():", "suffix": "f()"}
    continued = client.completions.create(**code).choices[0]
    continued_pieces = [it.choices[0].text for it in client.completions.create(**code, stream=True)]
    vectors = client.embeddings.create(model="any", input=["휴가", "vacation"])
    return {
        "text": text.message.content,
        "call": calls_of(call.message),
        "finish": [text.finish_reason, call.finish_reason, streamed.finish_reason],
        "streamed_text": "".join(pieces),
        "streamed_call": calls_of(streamed.message),
        "file": calls_of(file_call),
        "file_pieces": len([it for it in pieces_of_file if it]),
        "usage": final.usage.total_tokens,
        "broken": broken,
        "missing": missing,
        "models": sorted(it.id for it in client.models.list()),
        "vectors": len(vectors.data),
        "continued": [continued.text, "".join(continued_pieces), continued.finish_reason],
    }


@tool
def write_file(path: str, content: str) -> str:
    """Writes a file."""
    return "written"


@tool
def get_weather(city: str) -> str:
    """Weather of a city."""
    return "sunny"


def langchain(use_responses_api):
    def model(name):
        return ChatOpenAI(
            model=name, base_url=base, api_key="local", max_retries=0, use_responses_api=use_responses_api
        )

    call = model("call").bind_tools([get_weather]).invoke("Weather in Seoul?")
    gathered = None
    for chunk in model("call").bind_tools([get_weather]).stream("Weather in Seoul?"):
        gathered = chunk if gathered is None else gathered + chunk
    file, file_pieces = None, 0
    for chunk in model("file").bind_tools([write_file]).stream("Write."):
        file = chunk if file is None else file + chunk
        file_pieces += sum(bool(it["args"]) for it in chunk.tool_call_chunks)
    text = "".join(chunk.text for chunk in model("text").stream("Hello"))
    simple = lambda message: [[it["name"], it["args"]] for it in message.tool_calls]
    return {
        "text": model("text").invoke("Hello").text,
        "call": simple(call),
        "streamed_text": text,
        "streamed_call": simple(gathered),
        "file": simple(file),
        "file_pieces": file_pieces,
        "invalid": len(gathered.invalid_tool_calls) + len(file.invalid_tool_calls),
    }


seen["openai"] = openai_python()
seen["langchain"] = langchain(False)
seen["langchain_responses"] = langchain(True)
print(json.dumps(seen, ensure_ascii=False))
