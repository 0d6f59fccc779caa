# Benchmarks (docs/performance.md).

bench: ready bench-peers ## run the benchmarks
	@$(ENGINE_STEP) "benchmarks" $(TEST_ENV) $(CARGO) bench

# With the files of devices beside the library: make backend-cuda or backend-vulkan.
gpu-check: lib ## check a GPU with MODEL=file.gguf and measure it
	@[ -n "$(MODEL)" ] || { echo "usage: make gpu-check MODEL=file.gguf" >&2; exit 2; }
	@$(ENGINE_STEP) "GPU check" env LLB_MODEL="$(abspath $(MODEL))" LLB_BACKENDS="$(RELEASE)" \
		$(CARGO) bench -q --bench device

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
