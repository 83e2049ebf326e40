"""A server whose tools take too much, or turn on the process that guards them.
Arguments: a mark, by which its processes are found."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

mark = sys.argv[-1]
if sys.argv[1] == "sleep":
    time.sleep(600)
    sys.exit()


def sleeper():
    """A child in a session of its own that nothing but its parent ties to us."""
    return subprocess.Popen(
        [sys.executable, __file__, "sleep", mark],
        env={},
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        close_fds=True,
    )


kept = []


def call(name):
    if name == "eat":
        kept.append(b"x" * (300 << 20))
    elif name == "share":
        # Memory that parent and children share is counted once.
        kept.append(b"x" * (40 << 20))
        for _ in range(5):
            if os.fork() == 0:
                time.sleep(600)
                os._exit(0)
    elif name == "fork":
        kept.extend(sleeper() for _ in range(30))
    elif name == "spin":
        threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()
    elif name in ("kill", "stop"):
        sleeper()
        how = signal.SIGKILL if name == "kill" else signal.SIGSTOP
        os.kill(os.getppid(), how)
    return {"content": [{"type": "text", "text": name + " done"}]}


TOOLS = ["echo", "eat", "share", "fork", "spin", "kill", "stop"]
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    method = request["method"]
    answer = {"jsonrpc": "2.0", "id": request["id"]}
    if method == "initialize":
        answer["result"] = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "greedy", "version": "1"},
        }
    elif method == "tools/list":
        schema = {"type": "object"}
        answer["result"] = {"tools": [{"name": it, "inputSchema": schema} for it in TOOLS]}
    elif method == "tools/call":
        answer["result"] = call(request["params"]["name"])
    else:
        answer["error"] = {"code": -32601, "message": "unknown method"}
    print(json.dumps(answer), flush=True)
