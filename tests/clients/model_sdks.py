"""anthropic-python, and openai-python with the Responses API.

Usage: model_sdks.py HUB_URL; prints what each client made of a text, a call, both streamed,
a file that is written piece by piece, thinking, and errors.
"""
import json
import sys

import anthropic
import openai

hub = sys.argv[1]
question = [{"role": "user", "content": "Weather in Seoul?"}]
schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
file_schema = {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}, "required": ["path", "content"]}


def name_of_error(call):
    try:
        call()
        return "no error"
    except Exception as error:
        return type(error).__name__


def messages():
    client = anthropic.Anthropic(base_url=hub, api_key="local", max_retries=0)
    tools = [{"name": "get_weather", "description": "Weather", "input_schema": schema}]
    file_tools = [{"name": "write_file", "description": "Writes a file", "input_schema": file_schema}]
    ask = lambda model, **more: client.messages.create(model=model, max_tokens=100, messages=question, **more)
    stream = lambda model, **more: client.messages.stream(model=model, max_tokens=100, messages=question, **more)
    calls_of = lambda message: [[it.name, it.input] for it in message.content if it.type == "tool_use"]
    text, call = ask("text"), ask("call", tools=tools)
    with stream("text") as streaming:
        streamed_text = "".join(streaming.text_stream)
        usage = streaming.get_final_message().usage
    with stream("call", tools=tools) as streaming:
        streamed = streaming.get_final_message()
    pieces = 0
    with stream("file", tools=file_tools) as streaming:
        for event in streaming:
            if event.type == "input_json" and event.partial_json:
                pieces += 1
        file = streaming.get_final_message()
    thinking = {"type": "enabled", "budget_tokens": 1024}
    with stream("thinking", thinking=thinking) as streaming:
        thought = streaming.get_final_message()
    again = question + [{"role": "assistant", "content": thought.content}, {"role": "user", "content": "!"}]
    answer = client.messages.create(model="text", max_tokens=100, messages=again)
    return {
        "text": text.content[0].text,
        "call": calls_of(call),
        "finish": [text.stop_reason, call.stop_reason, streamed.stop_reason],
        "streamed_text": streamed_text,
        "streamed_call": calls_of(streamed),
        "file": calls_of(file),
        "file_pieces": pieces,
        "thinking": [thought.content[0].thinking, bool(thought.content[0].signature), answer.content[0].text],
        "usage": usage.input_tokens + usage.output_tokens,
        "broken": name_of_error(lambda: list(ask("broken", stream=True))),
        "missing": name_of_error(lambda: ask("missing")),
        "invalid": name_of_error(lambda: client.messages.create(model="text", max_tokens=-1, messages=question)),
        "tokens": client.messages.count_tokens(model="text", messages=question).input_tokens,
        "models": sorted(it.id for it in client.models.list()),
    }


def responses():
    client = openai.OpenAI(base_url=hub + "/v1", api_key="local", max_retries=0)
    tools = [{"type": "function", "name": "get_weather", "description": "Weather", "parameters": schema, "strict": False}]
    file_tools = [{"type": "function", "name": "write_file", "description": "Writes a file", "parameters": file_schema, "strict": False}]
    ask = lambda model, **more: client.responses.create(model=model, input=question, **more)
    stream = lambda model, **more: client.responses.stream(model=model, input=question, **more)
    calls_of = lambda response: [[it.name, json.loads(it.arguments)] for it in response.output if it.type == "function_call"]
    text, call = ask("text"), ask("call", tools=tools)
    streamed_text = ""
    with stream("text") as streaming:
        for event in streaming:
            if event.type == "response.output_text.delta":
                streamed_text += event.delta
        usage = streaming.get_final_response().usage
    with stream("call", tools=tools) as streaming:
        streaming.until_done()
        streamed = streaming.get_final_response()
    pieces = 0
    with stream("file", tools=file_tools) as streaming:
        for event in streaming:
            if event.type == "response.function_call_arguments.delta" and event.delta:
                pieces += 1
        file = streaming.get_final_response()
    with stream("thinking", include=["reasoning.encrypted_content"]) as streaming:
        streaming.until_done()
        thought = streaming.get_final_response()
    again = question + [it.to_dict() for it in thought.output] + [{"role": "user", "content": "!"}]
    answer = client.responses.create(model="text", input=again)
    broken = [it.type for it in ask("broken", stream=True)][-1]
    return {
        "text": text.output_text,
        "call": calls_of(call),
        "finish": [text.status, call.status, streamed.status],
        "streamed_text": streamed_text,
        "streamed_call": calls_of(streamed),
        "file": calls_of(file),
        "file_pieces": pieces,
        "thinking": [thought.output[0].summary[0].text, bool(thought.output[0].encrypted_content), answer.output_text],
        "usage": usage.input_tokens + usage.output_tokens,
        "broken": broken,
        "missing": name_of_error(lambda: ask("missing")),
        "invalid": name_of_error(lambda: ask("text", previous_response_id="resp_1")),
    }


print(json.dumps({"messages": messages(), "responses": responses()}, ensure_ascii=False))
