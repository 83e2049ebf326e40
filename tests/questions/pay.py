"""An MCP server whose tool `pay` asks for approval without saying on whose behalf.

`pay.py stdio`, or `pay.py http`, which prints its port and serves `/sse` (HTTP+SSE)
and `/mcp` (Streamable HTTP, the question comes on the GET stream).

`pay` asks at once with {"now": true}, else when `slow` is called; `slow` is answered
with what came back for the question. `folders` answers with the client's roots,
`state` with whether `pay` is in progress. With `roots` as the last argument, the
server asks for roots as soon as it is initialized.
"""

import json
import queue
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ASKS_FOR_ROOTS = sys.argv[-1] == "roots"
QUESTION = {
    "message": "Pay 1000?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
}
EMPTY = {"type": "object", "properties": {}}
TOOLS = [{"name": name, "inputSchema": EMPTY} for name in ("pay", "slow", "folders", "state")]


def text(said):
    return {"content": [{"type": "text", "text": said}]}


class Server:
    """One session; `send` takes messages that answer no request, `answer` the rest."""

    def __init__(self, send, answer):
        self.send, self.answer = send, answer
        self.lock = threading.Lock()
        self.paying = None
        self.slow = None
        self.asked = {}
        self.next = 100

    def ask(self, method, params, done):
        self.next += 1
        self.asked[self.next] = done
        self.send({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params})

    def result(self, id, result):
        self.answer(id, {"jsonrpc": "2.0", "id": id, "result": result})

    def ask_to_pay(self):
        self.ask("elicitation/create", QUESTION, self.paid)

    def paid(self, message):
        said = message.get("result", {}).get("action") or message["error"]["message"]
        paying, slow = self.paying, self.slow
        self.paying = self.slow = None
        for id in (paying, slow):
            if id is not None:
                self.result(id, text(said))

    def take(self, message):
        with self.lock:
            self.handle(message)

    def handle(self, message):
        method, id = message.get("method"), message.get("id")
        if method is None:
            done = self.asked.pop(id, None)
            if done:
                done(message)
        elif method == "initialize":
            self.result(id, {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "pay", "version": "1"},
            })
        elif method == "notifications/initialized" and ASKS_FOR_ROOTS:
            self.ask("roots/list", {}, lambda _: None)
        elif method == "tools/list":
            self.result(id, {"tools": TOOLS})
        elif method == "tools/call":
            self.call(id, message["params"])
        elif id is not None:
            error = {"code": -32601, "message": "method not found"}
            self.answer(id, {"jsonrpc": "2.0", "id": id, "error": error})

    def call(self, id, params):
        name = params["name"]
        if name == "pay":
            self.paying = id
            if (params.get("arguments") or {}).get("now"):
                self.ask_to_pay()
        elif name == "slow":
            self.slow = id
            self.ask_to_pay()
        elif name == "folders":
            self.ask("roots/list", {}, lambda it: self.result(id, text(json.dumps(it))))
        else:
            self.result(id, text("waiting" if self.paying is None else "paying"))


def stdio():
    lock = threading.Lock()

    def send(message):
        with lock:
            print(json.dumps(message), flush=True)

    server = Server(send, lambda _, message: send(message))
    for line in sys.stdin:
        message = json.loads(line)
        server.take(message)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stream = None  # of the session: a queue of messages
    waiting = {}  # requests of Streamable HTTP, by id
    server_of = {}

    def log_message(self, *_):
        pass

    def events(self, first, messages):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        if self.path == "/mcp":
            self.send_header("mcp-session-id", "one")
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(first.encode())
        self.wfile.flush()
        while True:
            message = messages.get()
            if message is None:
                return
            self.wfile.write(f"data: {json.dumps(message)}\n\n".encode())
            self.wfile.flush()
            if "method" not in message and self.command == "POST":
                return

    def do_GET(self):
        if self.path == "/sse":
            Handler.stream = queue.Queue()
        endpoint = "event: endpoint\ndata: /message\n\n" if self.path == "/sse" else ":\n\n"
        if self.path == "/sse":
            send = Handler.stream.put
            Handler.server_of["/message"] = Server(send, lambda _, message: send(message))
        self.events(endpoint, Handler.stream)

    def do_DELETE(self):
        self.accepted()

    def accepted(self):
        self.send_response(202)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/message":
            self.accepted()
            Handler.server_of["/message"].take(message)
            return
        if message.get("method") == "server/discover" or self.headers.get("mcp-protocol-version") == "2026-07-28":
            error = {"code": -32601, "message": "method not found"}
            return self.plain({"jsonrpc": "2.0", "id": message.get("id"), "error": error})
        if message.get("method") == "initialize":
            def answer(id, message):
                Handler.waiting.pop(id).put(message)
            Handler.stream = queue.Queue()
            Handler.server_of["/mcp"] = Server(Handler.stream.put, answer)
        server = Handler.server_of["/mcp"]
        if "method" not in message or "id" not in message:
            self.accepted()
            server.take(message)
            return
        mine = Handler.waiting[message["id"]] = queue.Queue()
        server.take(message)
        self.events(":\n\n", mine)

    def plain(self, message):
        body = json.dumps(message).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def http():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


if sys.argv[1] == "stdio":
    stdio()
else:
    http()
