"""Runs a llama.cpp server (PyPI: xllamacpp) until stdin is closed, and prints its URL.

Usage: python remote_server.py MODEL N_CTX
"""

import sys

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx = int(sys.argv[2])
params.n_parallel = 1
params.port = 0
params.cpuparams.n_threads = 2
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
