"""A scripted model, so that the examples need no download: an OpenAI-compatible server that
writes a tool call as text, as many local models do, and then answers with its result. Its
embeddings count the words of a text."""

import http.server
import json
import re
import zlib

CALL = '<tool_call>\n{"name": "get_employee_info", "arguments": {"employee_id": "EMP001"}}\n</tool_call>'


DIMENSION = 256


def embed(text):
    vector = [0.0] * DIMENSION
    for word in re.findall(r"\w+", text.lower()):
        vector[zlib.crc32(word.encode()) % DIMENSION] += 1.0
    return vector


class Model(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.reply("application/json", json.dumps({"object": "list", "data": [{"id": "small"}]}))

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path.endswith("/embeddings"):
            texts = request["input"] if isinstance(request["input"], list) else [request["input"]]
            vectors = [{"object": "embedding", "index": i, "embedding": embed(it)} for i, it in enumerate(texts)]
            return self.reply("application/json", json.dumps({"object": "list", "data": vectors, "model": request["model"]}))
        has_result = "Engineering" in json.dumps(request["messages"])
        text = "EMP001 works in Engineering." if has_result else CALL
        if request.get("stream"):
            chunks = [{"delta": {"content": text}}, {"delta": {}, "finish_reason": "stop"}]
            events = [json.dumps({"choices": [{"index": 0, **it}]}) for it in chunks] + ["[DONE]"]
            self.reply("text/event-stream", "".join(f"data: {it}\n\n" for it in events))
        else:
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            self.reply("application/json", json.dumps({"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}))

    def reply(self, kind, text):
        body = text.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
server.serve_forever()
