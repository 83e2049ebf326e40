"""A stand-in for the company's issuer: serves its public key at /keys, and gives everybody who
asks at /token?scope=SCOPE an access token. A real one asks who you are."""

import base64
import http.server
import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse

ISSUER, RESOURCE = "https://login.example.com", "https://maru.example.com/mcp"


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def openssl(*arguments, data=None):
    return subprocess.run(["openssl", *arguments], input=data, check=True, capture_output=True).stdout


# So that the file of the key is deleted, too.
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
key = tempfile.NamedTemporaryFile()
key.write(openssl("genpkey", "-algorithm", "ed25519"))
key.flush()
public = openssl("pkey", "-in", key.name, "-pubout", "-outform", "DER")[-32:]


def token(scope):
    header = {"alg": "EdDSA", "kid": "1"}
    claims = {"iss": ISSUER, "aud": RESOURCE, "sub": "kim", "scope": scope, "exp": int(time.time()) + 600}
    text = ".".join(encoded(json.dumps(it).encode()) for it in (header, claims))
    with tempfile.NamedTemporaryFile() as message:
        message.write(text.encode())
        message.flush()
        signature = openssl("pkeyutl", "-sign", "-inkey", key.name, "-rawin", "-in", message.name)
    return f"{text}.{encoded(signature)}"


class Issuer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        address = urllib.parse.urlsplit(self.path)
        if address.path == "/keys":
            body = json.dumps({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "1", "x": encoded(public)}]})
        else:
            body = token(urllib.parse.parse_qs(address.query)["scope"][0])
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Issuer)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
