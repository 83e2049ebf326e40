"""A real coding agent in front of maru, which is in front of a scripted model, all in a
network of their own: the agent can reach nothing else.

Usage: coding_agent.py claude|codex|codex-search DIALECT MARU NODE_MODULES; needs root. The
model, which writes its calls in DIALECT, lists a folder, reads a file, edits it, runs a
command and ends. With codex-search it finds a tool of the hub and calls it instead. Prints
what was left behind as JSON.
"""
import glob
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading

from own_network import Hub, enter_own_network

agent, dialect, maru, modules = sys.argv[1:5]
MODEL = "scripted"

enter_own_network()

directory = tempfile.TemporaryDirectory(prefix="maru-agent-", ignore_cleanup_errors=True)
home = directory.name
folder = os.path.join(home, "project")
os.mkdir(folder)
notes = os.path.join(folder, "notes.txt")
open(notes, "w").write("The sky is blue.\nThe \"door\" is <b>red</b> & old.\n")
open(os.path.join(folder, "check.sh"), "w").write("grep -c green notes.txt > checked.txt; echo checked\n")

PATCH = """apply_patch <<'EOF'
*** Begin Patch
*** Update File: notes.txt
@@
-The sky is blue.
+The sky is green.
*** End Patch
EOF"""
STEPS = {
    "claude": [
        ("Bash", {"command": "ls", "description": "Lists the folder"}),
        ("Read", {"file_path": notes}),
        ("Edit", {"file_path": notes, "old_string": "sky is blue", "new_string": "sky is green"}),
        ("Bash", {"command": "sh check.sh", "description": "Runs the check"}),
    ],
    "codex": [
        ("exec_command", {"cmd": "ls"}),
        ("exec_command", {"cmd": "cat notes.txt"}),
        ("exec_command", {"cmd": PATCH}),
        ("exec_command", {"cmd": "sh check.sh"}),
    ],
    "codex-search": [
        ("find_tools", {"query": "search documents"}),
        ("call_tool", {"name": "search_docs", "arguments": {"query": "연차"}}),
    ],
}[agent]


def hermes(name, arguments):
    return "<tool_call>\n%s\n</tool_call>" % json.dumps({"name": name, "arguments": arguments})


def glm(name, arguments):
    pairs = "".join("\n<arg_key>%s</arg_key>\n<arg_value>%s</arg_value>" % it for it in arguments.items())
    return "<tool_call>%s%s\n</tool_call>" % (name, pairs)


def qwen_coder(name, arguments):
    pairs = "".join("<parameter=%s>\n%s\n</parameter>\n" % it for it in arguments.items())
    return "<tool_call>\n<function=%s>\n%s</function>\n</tool_call>" % (name, pairs)


def gemma(name, arguments):
    pairs = ",".join('%s:<|"|>%s<|"|>' % it for it in arguments.items())
    return "<|tool_call>call:%s{%s}<tool_call|>" % (name, pairs)


def bare_json(name, arguments):
    return json.dumps({"name": name, "arguments": arguments})


DIALECTS = {"hermes": hermes, "glm": glm, "qwen-coder": qwen_coder, "gemma": gemma, "bare-json": bare_json}
results = []


def next_text(body):
    """What the model writes next: the step whose result it has not seen."""
    found = [it["content"] for it in body["messages"] if it["role"] == "tool"]
    if not body.get("tools"):
        return "A title"
    if len(found) > len(results):
        results[:] = found
    if len(found) < len(STEPS):
        name, arguments = STEPS[len(found)]
        # The agent may put the name of the server in front.
        offered = [it["function"]["name"] for it in body["tools"]]
        name = next((it for it in offered if it.endswith(name)), name)
        return DIALECTS[dialect](name, arguments)
    return "ALL DONE"


class Model(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = next_text(body)
        usage = {"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 60}
        if body.get("stream"):
            pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
            chunks = [{"choices": [{"index": 0, "delta": {"content": it}}]} for it in pieces]
            chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            chunks.append({"choices": [], "usage": usage})
            data = "".join("data: %s\n\n" % json.dumps(it) for it in chunks) + "data: [DONE]\n\n"
            kind = "text/event-stream"
        else:
            message = {"role": "assistant", "content": text}
            data = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage})
            kind = "application/json"
        data = data.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()

settings = "models:\n  - name: %s\n    tool_mode: native\n    base_url: http://127.0.0.1:%d/v1\n"
hub = Hub(maru, home, 20006, settings % (MODEL, server.server_port))

environment = {"HOME": home, "PATH": os.environ["PATH"], "TERM": "dumb"}


def connect(*arguments):
    """What `maru connect` prints for a person."""
    command = [maru, *hub.options, "connect", *arguments, "--models", "--model", MODEL]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


prompt = "Make the sky green in notes.txt, then run check.sh."
if agent == "claude":
    [claude] = glob.glob(modules + "/@anthropic-ai/claude-code-linux-*/claude")
    methods = json.loads(connect("claude-code", "-o", "json"))["models"]["methods"]
    [lines] = [it["text"] for it in methods if it["kind"] == "environment"]
    # The printed lines as they are; the last one starts the program.
    assert lines.endswith("\nclaude"), lines
    command = ["sh", "-c", lines + ' "$@"', "sh", "-p", prompt, "--allowedTools", "Bash,Read,Edit,Write"]
    environment["PATH"] = os.path.dirname(claude) + ":" + environment["PATH"]
    # There is no network.
    environment["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] = "1"
else:
    connect("codex", "--write")
    if agent == "codex-search":
        with open(os.path.join(home, ".codex/config.toml"), "a") as settings:
            settings.write('\n[mcp_servers.maru]\nurl = "http://127.0.0.1:20006/mcp?tools=search"\n')
    command = [
        *glob.glob(modules + "/@openai/codex-linux-*/vendor/*/*/codex"),
        "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", prompt,
    ]
try:
    ran = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180
    )
    output, errors, status = ran.stdout, ran.stderr, ran.returncode
except subprocess.TimeoutExpired as late:
    output, errors, status = str(late.stdout), str(late.stderr), "timeout"
finally:
    hub.stop()


def read(path):
    try:
        return open(path).read()
    except OSError:
        return None


print(json.dumps({
    "status": status,
    "output": output[-4000:],
    "errors": errors[-4000:],
    "notes": read(notes),
    "checked": read(os.path.join(folder, "checked.txt")),
    "results": results,
    "log": read(hub.log)[-2000:] if status != 0 else "",
}))
