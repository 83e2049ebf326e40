"""Streams many answers with openai-python (Chat Completions and Responses) and
anthropic-python in turn, and sums up the usage that they report for each API.

Usage: usage_client.py HUB_URL TOKEN COUNT CONCURRENCY; the models are named after the APIs.
"""
import asyncio
import json
import sys

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

hub, token, count, concurrency = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
openai = AsyncOpenAI(base_url=hub + "/v1", api_key=token, max_retries=0)
anthropic = AsyncAnthropic(base_url=hub, api_key=token, max_retries=0)


async def chat(question):
    stream = await openai.chat.completions.create(
        model="chat", messages=question, stream=True, stream_options={"include_usage": True}
    )
    usage = None
    async for chunk in stream:
        usage = chunk.usage or usage
    return {
        "input_tokens": usage.prompt_tokens,
        "cached_tokens": usage.prompt_tokens_details.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "reasoning_tokens": usage.completion_tokens_details.reasoning_tokens,
    }


async def responses(question):
    async with openai.responses.stream(model="responses", input=question) as stream:
        usage = (await stream.get_final_response()).usage
    return {
        "input_tokens": usage.input_tokens,
        "cached_tokens": usage.input_tokens_details.cached_tokens,
        "output_tokens": usage.output_tokens,
        "reasoning_tokens": usage.output_tokens_details.reasoning_tokens,
    }


async def messages(question):
    async with anthropic.messages.stream(model="messages", max_tokens=100, messages=question) as stream:
        usage = (await stream.get_final_message()).usage
    # Cached tokens are counted apart, and reasoning is not told apart.
    cached = usage.cache_read_input_tokens
    return {"input_tokens": usage.input_tokens + cached, "cached_tokens": cached, "output_tokens": usage.output_tokens}


APIS = [chat, responses, messages]


async def main():
    free = asyncio.Semaphore(concurrency)
    sums = {api.__name__: {"requests": 0} for api in APIS}

    async def one(number):
        api = APIS[number % len(APIS)]
        async with free:
            used = await api([{"role": "user", "content": f"question {number}"}])
        for name, tokens in [("requests", 1), *used.items()]:
            sums[api.__name__][name] = sums[api.__name__].get(name, 0) + tokens

    await asyncio.gather(*(one(number) for number in range(count)))
    print(json.dumps(sums))


asyncio.run(main())
