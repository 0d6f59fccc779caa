# Benchmarks (docs/performance.md).

bench: ready bench-peers ## run the benchmarks
	@$(ENGINE_STEP) "benchmarks" $(TEST_ENV) $(CARGO) bench

# One short run of each benchmark, with a small model: it works, and counts something. The figures of
# such a run mean nothing.
BENCH_MODEL = $(LLB_MODELS)/smollm2-135m-instruct-q4_1.gguf
bench-check: lib cli ## run each benchmark for a moment
ifeq ($(REAL_MODELS),yes)
	@$(ENGINE_STEP) "benchmarks, short" $(TEST_ENV) LLB_MODEL="$(BENCH_MODEL)" LLB_ROUNDS=1 \
		LLB_SECONDS=1 LLB_BUSY=1 LLB_PREFILL=1 LLB_ON_CPU=1 LLB_CHECKS=0 LLB_CHATS=2 \
		LLB_PROMPT=100 LLB_DECODED=16 $(CARGO) bench --quiet
	$(call environment,$(VENV),Python environment)
	$(call packages,xllamacpp,llama.cpp server,xllamacpp,benchmarks beside the llama.cpp server)
	$(call packages,bfcl_eval,cases of tool calls,--no-deps bfcl-eval,the benchmark of tool calls)
	@if "$(VENV)/bin/python" -c "import xllamacpp, bfcl_eval" 2>/dev/null; then \
		$(STEP) "benchmark of chats, short" $(TEST_ENV) "$(VENV)/bin/python" benches/chats.py \
			"$(BENCH_MODEL)" --chats 1 --rounds 1 --tokens 8 && \
		$(STEP) "benchmark of a prompt beside replies, short" $(TEST_ENV) "$(VENV)/bin/python" \
			benches/chats.py "$(BENCH_MODEL)" --beside 20 --rounds 1 --tokens 32 && \
		$(STEP) "benchmark of tool calls, short" $(TEST_ENV) LLB_PROGRAM="$(RELEASE)/llb" \
			"$(VENV)/bin/python" benches/tool_calls.py "$(BENCH_MODEL)" \
			--categories simple_python --cases 1 --max-tokens 16; fi
endif

# With the files of devices beside the library: make backend-cuda or backend-vulkan.
gpu-check: lib ## check a GPU with MODEL=file.gguf and measure it
	@[ -n "$(MODEL)" ] || { echo "usage: make gpu-check MODEL=file.gguf" >&2; exit 2; }
	@$(ENGINE_STEP) "GPU check" env LLB_MODEL="$(abspath $(MODEL))" LLB_BACKENDS="$(RELEASE)" \
		$(CARGO) bench -q --bench device

# LLB_KEY is the API key, if the server needs one.
vllm-check: lib ## check a running vLLM with URL=http://host:8000 MODEL=file.gguf (a minute)
	@[ -n "$(URL)" ] && [ -n "$(MODEL)" ] || \
		{ echo "usage: make vllm-check URL=http://host:8000 MODEL=file.gguf" >&2; exit 2; }
	$(call environment,$(VENV),Python environment)
	@$(STEP) "vLLM check" env LLB_LIBRARY="$(RELEASE)/libllb.so" \
		PYTHONPATH="$(CURDIR)/bindings/python/src" \
		"$(VENV)/bin/python" scripts/vllm-check.py "$(URL)" "$(abspath $(MODEL))"

bench-java: lib scripted-models ## measure what a call from Java costs over the C call
	@home=$$($(JAVA_BINDING)/find-jdk.sh) || { echo "no JDK 22 or later" >&2; exit 1; }; \
	export JAVA_HOME="$$home"; \
	$(STEP) "Java benchmark: build" $(TEST_ENV) mvn -B -q -Pbench -DskipITs \
		-f $(JAVA_BINDING)/pom.xml package && \
	$(STEP) "Java benchmark" $(TEST_ENV) $(JAVA_BINDING)/llb-bench/run.sh

# Without them the template benchmark measures llb alone and prints a line.
bench-peers:
	@$(STEP) "peers of the benchmarks" benches/template/setup.sh || \
		scripts/skip.sh "peers of the template benchmark" "the peers could not be installed"

# Sources, the answers of the library, speed, tables that scripts derive, and tests, of the pinned
# llama-cpp-sys-2 and of VERSION. llama.cpp is compiled once more. The pin stays raised.
BUMP := $(TARGET)/bump
bump: ## raise llama-cpp-sys-2 and report what changed: VERSION=0.1.162 (target/bump/report.md)
	@[ "$(origin VERSION)" = "command line" ] || { echo "usage: make bump VERSION=0.1.162" >&2; exit 2; }
	@mkdir -p "$(BUMP)"
	@$(STEP) "sources" scripts/bump.py sources $(VERSION) >"$(BUMP)/report.md"
	@$(MAKE) lib cli scripted-models
	@$(STEP) "before" $(BUMP_ENV) scripts/bump.py measure "$(BUMP)/before"
	@$(STEP) "pin" scripts/bump.py pin $(VERSION)
	@$(MAKE) lib cli scripted-models
	@$(STEP) "after" $(BUMP_ENV) scripts/bump.py measure "$(BUMP)/after"
	@scripts/bump.py compare "$(BUMP)/before" "$(BUMP)/after" >>"$(BUMP)/report.md"
	@$(STEP) "architectures" scripts/architectures.py || true
	@{ echo "## Derived tables"; echo; git diff --stat -- tests/data src/gguf; echo; \
		echo "## Tests"; echo; echo '```text'; } >>"$(BUMP)/report.md"
	@$(ENGINE_STEP) "tests" $(TEST_ENV) $(CARGO) test --release --no-fail-fast --lib \
		--test integration --test corpus >>"$(BUMP)/report.md" 2>&1 || true
	@echo '```' >>"$(BUMP)/report.md"; echo "    $(BUMP)/report.md"
BUMP_ENV = $(TEST_ENV) LLB_PROGRAM="$(RELEASE)/llb" LLB_MODEL="$(BENCH_MODEL)" LLB_ROUNDS=5
