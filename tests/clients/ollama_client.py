"""The Python client of Ollama against /api of a hub, whose address is in OLLAMA_HOST."""
import json

from ollama import Client, ResponseError

client = Client()
question = [{"role": "user", "content": "Weather in Seoul?"}]


def get_weather(city: str) -> str:
    """Weather of a city

    Args:
        city: The city
    """
    return city


chat = client.chat(model="text", messages=question)
pieces = [it.message.content for it in client.chat(model="text", messages=question, stream=True)]
call = client.chat(model="call", messages=question, tools=[get_weather]).message
streamed_calls = []
for part in client.chat(model="call", messages=question, tools=[get_weather], stream=True):
    streamed_calls += part.message.tool_calls or []
results = [*question, call, {"role": "tool", "tool_name": "get_weather", "content": "rain"}]
after = client.chat(model="text", messages=results, options={"temperature": 0.5, "num_predict": 9})
schema = {"type": "object", "properties": {"a": {"type": "string"}}}
formed = client.chat(model="text", messages=question, format=schema, think=False)
generated = client.generate(model="text", prompt="Hi", system="Be brief.")
pieces_generated = [it.response for it in client.generate(model="text", prompt="Hi", stream=True)]
try:
    client.chat(model="missing", messages=question)
    missing = "no error"
except ResponseError as error:
    missing = [error.status_code, error.error]
read = lambda calls: [[it.function.name, dict(it.function.arguments)] for it in calls]
print(json.dumps({
    "text": chat.message.content, "thinking": chat.message.thinking, "reason": chat.done_reason,
    "counts": [chat.prompt_eval_count, chat.eval_count], "streamed": "".join(pieces),
    "call": read(call.tool_calls), "streamed_call": read(streamed_calls),
    "after": after.message.content, "formed": formed.message.content,
    "generated": generated.response, "streamed_generated": "".join(pieces_generated),
    "models": sorted(it.model for it in client.list().models),
    "shown": client.show("text").capabilities, "running": len(client.ps().models),
    "vectors": [len(it) for it in client.embed(model="any", input=["a", "b"]).embeddings],
    "vector": len(client.embeddings(model="any", prompt="a").embedding), "missing": missing,
}))
