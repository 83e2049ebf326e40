"""llama.cpp's own tests of Anthropic's Messages API and of OpenAI's Responses API, against
maru in front of the small model, all in a network of their own.

Usage: llama_tests.py MARU TOOLS; needs root. Prints the outcome of each test as JSON.
"""
import json
import os
import subprocess
import sys
import tempfile

import openai
import pytest

from own_network import Hub, enter_own_network

maru, tools = sys.argv[1:3]
# The tests of the Messages API expect a server there.
PORT = 8082


class Outcomes:
    """Collects the outcomes. The tests were written for another model: what it says is left
    out of them, that it says something is not."""

    def __init__(self):
        self.outcomes = {}

    def pytest_collection_modifyitems(self, items):
        for item in items:
            if item.name.startswith("test_responses"):
                item.module.match_regex = lambda _regex, text: bool(text)
                # The key of clients that insist on one.
                item.module.OpenAI = lambda api_key, **rest: openai.OpenAI(api_key="local", **rest)

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.split("::")[1]
        if report.outcome != "passed":
            lines = str(report.longrepr).splitlines()
            self.outcomes[name] = [it for it in lines if it.startswith("E ")][:3] or lines[-3:]
        elif report.when == "call":
            self.outcomes.setdefault(name, "passed")


enter_own_network()
directory = tempfile.TemporaryDirectory(prefix="maru-llama-", ignore_cleanup_errors=True)
small = subprocess.Popen(
    [tools + "/small/bin/python", tools + "/small_model.py"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
)
settings = "models:\n  - name: '*'\n    base_url: %s/v1\n" % small.stdout.readline().strip()
hub = Hub(maru, directory.name, PORT, settings)
os.environ.update(DEBUG_EXTERNAL="1", PORT=str(PORT))
os.chdir(tools + "/llama/tests")
sys.path.insert(0, os.getcwd())
outcomes = Outcomes()
# What pytest prints is not part of the answer.
printed, sys.stdout = sys.stdout, sys.stderr
try:
    files = ["unit/test_compat_anthropic.py", "unit/test_compat_oai_responses.py"]
    pytest.main(["-p", "no:cacheprovider", "-q", *files], plugins=[outcomes])
finally:
    hub.stop()
    small.kill()
print(json.dumps(outcomes.outcomes), file=printed)
