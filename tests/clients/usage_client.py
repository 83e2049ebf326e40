"""Streams many chats with openai-python, and sums up the usage that it reports.

Usage: usage_client.py BASE_URL TOKEN COUNT CONCURRENCY
"""
import asyncio
import json
import sys

from openai import AsyncOpenAI

base, token, count, concurrency = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])


async def main():
    client = AsyncOpenAI(base_url=base, api_key=token, max_retries=0)
    free = asyncio.Semaphore(concurrency)
    sums = {"requests": 0, "input_tokens": 0, "cached_tokens": 0, "output_tokens": 0, "reasoning_tokens": 0}

    async def one(number):
        async with free:
            stream = await client.chat.completions.create(
                model="counted",
                messages=[{"role": "user", "content": f"question {number}"}],
                stream=True,
                stream_options={"include_usage": True},
            )
            usage = None
            async for chunk in stream:
                usage = chunk.usage or usage
        sums["requests"] += 1
        sums["input_tokens"] += usage.prompt_tokens
        sums["output_tokens"] += usage.completion_tokens
        sums["cached_tokens"] += usage.prompt_tokens_details.cached_tokens
        sums["reasoning_tokens"] += usage.completion_tokens_details.reasoning_tokens

    await asyncio.gather(*(one(number) for number in range(count)))
    print(json.dumps(sums))


asyncio.run(main())
