"""Runs slow queries on a pool of psycopg, as document 000 sets it up.

Usage: psycopg_pool_client.py CONNINFO QUERIES. Prints how many were answered.
"""

import asyncio
import sys

import psycopg_pool


async def main(conninfo, queries):
    async with psycopg_pool.AsyncConnectionPool(conninfo, min_size=5, max_size=20) as pool:

        async def ask(number):
            async with pool.connection() as connection, connection.cursor() as cursor:
                await cursor.execute(f"SELECT slow({0.6 + number % 6 / 10}, {number})")
                return (await cursor.fetchone())[0] == number

        answered = await asyncio.gather(*(ask(number) for number in range(queries)))
        print(sum(answered))


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
