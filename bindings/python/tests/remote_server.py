"""Runs a llama.cpp server (PyPI: xllamacpp) until stdin is closed, and prints its URL.

Usage: python remote_server.py MODEL N_CTX [chat|embedding|reranker] [PROJECTOR]
"""

import sys

import xllamacpp

kind = sys.argv[3] if len(sys.argv) > 3 else "chat"
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx = int(sys.argv[2])
params.n_parallel = 1
params.port = 0
params.cpuparams.n_threads = 2
if len(sys.argv) > 4:
    params.mmproj.path = sys.argv[4]
params.embedding = kind != "chat"
if kind == "reranker":
    params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_RANK
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
