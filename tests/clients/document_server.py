"""The FastMCP server of the data tools, written as their specification says, and a fake embedder.

Prints the port of the embedder, then the port of the server. The environment names the
databases as the specification does. The vectors count letters, so that texts with the
same words are near each other.
"""

import asyncio
import json
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import chromadb
import psycopg_pool
import requests
import uvicorn
from fastmcp import FastMCP

DIMENSIONS = 64


class Embedder(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        texts = json.loads(self.rfile.read(int(self.headers["content-length"])))["input"]
        status, body = 200, {"data": [{"index": at, "embedding": embed(it)} for at, it in enumerate(texts)]}
        if not texts:
            status, body = 400, {"error": {"message": "input must not be empty"}}
        body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def embed(text):
    vector = [0.0] * DIMENSIONS
    for letter in text.lower():
        vector[ord(letter) % DIMENSIONS] += 1.0
    vector[0] += 0.5
    return vector


embedder = ThreadingHTTPServer(("127.0.0.1", 0), Embedder)
threading.Thread(target=embedder.serve_forever, daemon=True).start()
EMBEDDING_URL = f"http://127.0.0.1:{embedder.server_port}/v1/embeddings"
POOL = psycopg_pool.AsyncConnectionPool(
    " ".join(
        f"{name}={os.environ['POSTGRESQL_DB_' + variable]}"
        for name, variable in [("user", "USER"), ("password", "PASS"), ("dbname", "NAME"), ("host", "HOST"), ("port", "PORT")]
    ),
    min_size=5,
    max_size=20,
    open=False,
)


def embeddings(text_list):
    response = requests.post(
        EMBEDDING_URL,
        json={"input": text_list, "model": "bge-m3-ko"},
        headers={"Content-Type": "application/json"},
    )
    response.raise_for_status()
    return [data["embedding"] for data in response.json()["data"]]


def chroma_client():
    return chromadb.HttpClient(
        host=os.environ["CHROMADB_HOST"],
        port=int(os.environ["CHROMADB_PORT"]),
        settings=chromadb.config.Settings(allow_reset=True, anonymized_telemetry=False),
    )


def seed(documents):
    collection = chroma_client().create_collection(os.environ["CHROMADB_COLLECTION_NAME"])
    texts = [text for text, _ in documents]
    collection.add(
        ids=[str(at) for at in range(len(documents))],
        embeddings=[embed(text) for text in texts],
        documents=[text if kept else None for text, kept in documents],
    )


mcp = FastMCP("BGA Data Search Tools")


@mcp.tool()
def get_text_embedding(text_list: list[str]) -> list[list[float]]:
    """BGE-M3-KO 임베딩 생성"""
    return embeddings(text_list)


@mcp.tool()
def get_sim_search(query_list: list[str], n_results: int = 3) -> list[list[str | None]]:
    """ChromaDB 유사도 검색"""
    collection = chroma_client().get_collection(os.environ["CHROMADB_COLLECTION_NAME"])
    found = collection.query(query_embeddings=embeddings(query_list), n_results=n_results)
    return found["documents"]


@mcp.tool()
async def query_bga_database(generated_sql: str) -> dict:
    """PostgreSQL 비동기 쿼리 실행"""
    generated_sql = generated_sql.replace("\u00a0", " ")
    async with POOL.connection() as connection, connection.cursor() as cursor:
        try:
            await cursor.execute(query=generated_sql)
            rows = await cursor.fetchall()
            columns = [item.name for item in cursor.description]
            records = [dict(zip(columns, row)) for row in rows]
        except Exception as error:
            return {"status": "error", "message": f"Error while querying DB: {error}"}
    content = {"sql": generated_sql, "records": records}
    return {"status": "success", "message": "SQL executed.", "data": {"type": "csv_table", "content": content}}


@mcp.tool()
def serialize_for_cell(data: str) -> str:
    """NBSP 문자 제거"""
    return data.replace("\u00a0", " ")


async def main():
    await POOL.open(wait=True)
    seed(
        [
            ("users.email VARCHAR(255) 사용자 이메일 주소", True),
            ("customers.contact_email VARCHAR(255) 고객 연락처", True),
            ("accounts.user_email VARCHAR(255) 계정 이메일", True),
            ("orders.order_date TIMESTAMP 주문 생성 일시", True),
            ("orders.created_at TIMESTAMP 레코드 생성 시간", True),
            ("shipments.ship_date DATE 발송 날짜", True),
            ("a column that has an embedding and no document", False),
        ]
    )
    listener = socket.create_server(("127.0.0.1", 0))
    print(embedder.server_port, listener.getsockname()[1], flush=True)
    server = uvicorn.Server(uvicorn.Config(mcp.http_app(path="/mcp"), log_level="warning"))
    await server.serve([listener])


asyncio.run(main())
