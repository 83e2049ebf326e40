"""Signs in by the SDK's OAuthClientProvider, and prints the link that a person would open.
Works with both versions of the SDK. Usage: sign_in_client.py URL PORT"""

import asyncio
import sys
from urllib.parse import parse_qs, urlsplit

try:
    import httpx2 as httpx
except ImportError:
    import httpx
from mcp.client.auth import OAuthClientProvider, TokenStorage
from mcp.shared.auth import OAuthClientMetadata

url, port = sys.argv[1], int(sys.argv[2])


class Storage(TokenStorage):
    tokens = None
    client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client_info):
        self.client = client_info


async def main():
    returned = asyncio.get_running_loop().create_future()

    async def answer(reader, writer):
        target = (await reader.readline()).split()[1].decode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()
        if not returned.done():
            returned.set_result(parse_qs(urlsplit(target).query))

    await asyncio.start_server(answer, "127.0.0.1", port)

    async def open_link(link):
        print("open", link, flush=True)

    async def wait_for_redirect():
        query = await returned
        code, state = query["code"][0], query["state"][0]
        try:
            from mcp.client.auth import AuthorizationCodeResult
        except ImportError:
            return code, state
        return AuthorizationCodeResult(code=code, state=state, iss=query["iss"][0])

    storage = Storage()
    provider = OAuthClientProvider(
        server_url=url,
        client_metadata=OAuthClientMetadata(
            client_name="Python client",
            redirect_uris=[f"http://127.0.0.1:{port}/callback"],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
        ),
        storage=storage,
        redirect_handler=open_link,
        callback_handler=wait_for_redirect,
    )
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "python", "version": "1"},
        },
    }
    headers = {"accept": "application/json, text/event-stream"}
    async with httpx.AsyncClient(auth=provider, headers=headers, timeout=30) as client:
        session = await client.post(url, json=message)
        session.raise_for_status()
        headers["mcp-session-id"] = session.headers["mcp-session-id"]
        first = storage.tokens.refresh_token
        # Until the access token has expired twice.
        while storage.tokens.refresh_token == first:
            message = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
            listed = await client.post(url, json=message, headers=headers)
            listed.raise_for_status()
            await asyncio.sleep(0.2)
        print("renewed", listed.text)


asyncio.run(main())
