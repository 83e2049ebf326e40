"""An MCP server that accepts the tokens of an issuer. Usage: signed_in_server.py PORT ISSUER"""

import asyncio
import json
import sys
import urllib.request

import jwt
import uvicorn
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer

port, issuer = int(sys.argv[1]), sys.argv[2]
resource = f"http://127.0.0.1:{port}/mcp"


class Verifier:
    """Verifies signed tokens with the keys of the issuer."""

    def __init__(self):
        self.keys = None

    def fetch_keys(self):
        with urllib.request.urlopen(f"{issuer}/jwks", timeout=10) as answer:
            return json.load(answer)

    async def verify_token(self, token):
        if self.keys is None:
            found = await asyncio.to_thread(self.fetch_keys)
            self.keys = {key["kid"]: jwt.PyJWK(key) for key in found["keys"]}
        try:
            key = self.keys[jwt.get_unverified_header(token)["kid"]]
            claims = jwt.decode(token, key, algorithms=["RS256", "ES256", "PS256"], audience=resource, issuer=issuer)
        except (jwt.PyJWTError, KeyError):
            return None
        return AccessToken(
            token=token,
            client_id=claims["client_id"],
            scopes=claims.get("scope", "").split(),
            expires_at=claims["exp"],
            resource=resource,
            subject=claims["sub"],
        )


server = MCPServer(
    "signed-in",
    token_verifier=Verifier(),
    auth=AuthSettings(
        issuer_url=issuer,
        resource_server_url=resource,
        required_scopes=["mcp:tools"],
        validate_token_resource=True,
    ),
)


@server.tool()
async def wait_a_little(text: str) -> str:
    """Returns the text after a while."""
    await asyncio.sleep(0.3)
    return text


uvicorn.run(server.streamable_http_app(host="127.0.0.1"), host="127.0.0.1", port=port, log_level="warning")
