"""A fastmcp server with skills, a user interface and an extension of its own.

Usage: extension_server.py DIRECTORY, on stdio; with a PORT besides, over HTTP.
"""

import sys
from pathlib import Path

from fastmcp import FastMCP
from fastmcp.server.extensions import MethodBinding, ServerExtension
from fastmcp.server.middleware import Middleware
from fastmcp.server.providers.skills import SkillsDirectoryProvider
from fastmcp.skills.extension import SkillsExtension
from fastmcp.tools import ToolResult
from mcp_types import EmbeddedResource, RequestParams, ResourceLink, TextResourceContents

PAGE = "<!doctype html><title>clock</title><p id=face>12:00</p>"
SKILL = """---
name: {name}
description: {name} for tests
---
# {name}
"""


class Roll(RequestParams):
    """What the dice extension is asked."""

    sides: int = 6


class Dice(ServerExtension):
    """An extension that no specification knows."""

    identifier = "com.example/dice"

    def settings(self):
        return {"sides": [6, 20]}

    def methods(self):
        async def roll(_context, params):
            return {"rolled": params.sides, "digits": 1.5}

        return [MethodBinding(method="dice/roll", params_type=Roll, handler=roll)]


class HidesPages(Middleware):
    """Leaves pages out of the list, as servers may: a client knows them from their tools."""

    async def on_list_resources(self, context, call_next):
        return [it for it in await call_next(context) if "hidden" not in str(it.uri)]


def build(directory):
    for name in ["invoices", "letters"]:
        place = Path(directory, name)
        place.mkdir(parents=True, exist_ok=True)
        place.joinpath("SKILL.md").write_text(SKILL.format(name=name))
        place.joinpath("more.txt").write_text("more of " + name)
    server = FastMCP("extensions")
    skills = SkillsDirectoryProvider(roots=Path(directory), experimental_skills=True)
    server.add_provider(skills)
    server.add_extension(SkillsExtension(providers=[skills]))
    server.add_extension(Dice())

    csp = {"connectDomains": ["https://clock.example"]}
    page = {"ui": {"resourceUri": "ui://clock/face.html", "csp": csp, "visibility": ["model", "app"]}}

    @server.tool(meta=page, annotations={"readOnlyHint": True})
    def show_clock() -> str:
        """Shows a clock."""
        return "12:00"

    @server.resource("ui://clock/face.html", mime_type="text/html;profile=mcp-app", meta={"ui": {"csp": csp}})
    def face() -> str:
        return PAGE

    @server.resource("ui://clock/hidden.html", mime_type="text/html;profile=mcp-app")
    def hidden() -> str:
        return PAGE

    @server.tool(meta={"ui": {"resourceUri": "ui://clock/hidden.html"}})
    def link_pages() -> ToolResult:
        """Links to its pages."""
        page = TextResourceContents(uri="ui://clock/face.html", mime_type="text/html", text=PAGE)
        link = ResourceLink(type="resource_link", name="hidden", uri="ui://clock/hidden.html")
        return ToolResult(content=[link, EmbeddedResource(type="resource", resource=page)])

    server.add_middleware(HidesPages())
    return server


server = build(sys.argv[1])
if len(sys.argv) > 2:
    server.run(transport="http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False)
else:
    server.run(transport="stdio", show_banner=False)
