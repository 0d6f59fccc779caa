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
# Features of the crate besides the default ones, such as metal. For lib, cli, scripted-models and
# test-rust.
FEATURES ?=
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
# The number of requests to a real model of `make drafts`, each at temperature 0 and with a seed.
DRAFTED_REQUESTS ?= 200
# The oldest glibc that `make release-lib` and `make wheel` link for. That of RHEL 8 and its like.
GLIBC ?= 2.28
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
DESTDIR ?=

# --- derived ---

include make/platforms.mk

VENV := $(CURDIR)/target/venv
# It builds the site of docs/.
MDBOOK_VERSION := 0.5.4
PIP_INSTALL := "$(VENV)/bin/python" -m pip install -q --disable-pip-version-check
JAVA_BINDING := bindings/java

export CARGO_TARGET_DIR := $(TARGET)
# Without this, variables of this make, such as DESTDIR, reach the make and cmake of llama.cpp.
CARGO := env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u MAKEOVERRIDES -u DESTDIR -u PREFIX -u CPU -u ARCH -u LIBC -u SYSTEM -u FEATURES cargo

# The library of this build. On macOS, not of a build for another system.
LIBRARY := $(RELEASE)/libllb.$(if $(filter Darwin,$(shell uname -s)),dylib,so)
CARGO_FEATURES := $(FEATURES:%=--features %)

STEP := scripts/step.sh
ENGINE_STEP := $(STEP) --engine "$(RELEASE)"

# Variables for all tests. A test that skips because one of them is unset or invalid prints a line.
TEST_ENV := env $(if $(filter yes,$(REAL_MODELS)),,-u LLB_MODELS) LLB_LIBRARY="$(LIBRARY)" \
	LLB_TEST_MODELS="$(TARGET)/scripted-models" LLB_INCLUDE="$(CURDIR)/include" \
	$(if $(filter yes,$(REAL_MODELS)),LLB_MODELS="$(LLB_MODELS)")

help: ## list the targets
	@echo "make demo    build llb, download the models once, and chat with one"
	@echo "make test    run all tests: Rust, C, Python, Java"
	@echo
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | \
		awk -F '\t' '{ printf "  %-22s %s\n", $$1, $$2 }'
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
	@$(ENGINE_STEP) "library" $(CARGO) build --release $(TRIPLE:%=--target %) $(CARGO_FEATURES)
	@$(if $(SYSTEM)$(filter %.dylib,$(LIBRARY)),true,ln -sf libllb.so "$(RELEASE)/libllb.so.$(SOVERSION)")

# The program links the library statically. llama.cpp is that of `make lib`.
cli: ready ## build the program llb (target/release/llb)
	@$(ENGINE_STEP) "program" $(CARGO) build --release -p llb-cli $(CARGO_FEATURES)

models: ## download the three small models of the demo and the tests (840 MB, once)
	@LLB_MODELS="$(LLB_MODELS)" python3 scripts/models.py

scripted-models: ready ## write the tiny test models with known output
	@$(ENGINE_STEP) "scripted models" $(CARGO) run --release --quiet $(CARGO_FEATURES) --example scripted_models -- \
		"$(TARGET)/scripted-models"

demo: ## set up, build, download the models and run the demo; HF=org/name uses a hub model
	@$(STEP) "set-up" scripts/setup.sh --for demo
# The models are downloaded while the library is compiled. The call after it reports them, or tries
# again.
	@$(if $(HF),,{ LLB_MODELS="$(LLB_MODELS)" python3 scripts/models.py 2>&1 | sed 's/^/    /'; } & \
	models=$$!; trap 'trap - TERM; kill 0' INT TERM;) \
	$(MAKE) lib && $(ENGINE_STEP) "demo program" $(CARGO) build --release --quiet -p llb-demo || \
		{ $(if $(HF),,kill $$models 2>/dev/null;) exit 1; }; wait
	@$(if $(HF),:,$(STEP) "models" env LLB_MODELS="$(LLB_MODELS)" python3 scripts/models.py)
	@LLB_MODELS="$(LLB_MODELS)" $(STEP) "demo" "$(RELEASE)/llb-demo" \
		"$(if $(HF),hf:$(HF),$(MODEL))"

lint: ready ## check formatting, clippy, rustdoc, fuzz targets, links, NOTICE, licences, workflows
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
	@$(STEP) "libraries of the page" scripts/page-libraries.sh --check
	@$(STEP) "licences and sources" scripts/deny.sh
	@$(STEP) "features" scripts/features-check.sh
	@$(STEP) "without the engine" $(CARGO) clippy --quiet --release --no-default-features --tests \
		-- -D warnings
	@$(MAKE) workflows

# cargo builds mdbook once, which takes minutes.
docs: lib ## build the site of docs/ and check its links: target/site/html
	@$(STEP) "site" sh -c 'mdbook=$$(scripts/cargo-tool.sh mdbook $(MDBOOK_VERSION)) && \
		scripts/site.py "$$mdbook" "$(TARGET)/site" "$(RELEASE)/libllb.so"'

page-libraries: ## copy the JavaScript libraries of the server's page from npm
	@$(STEP) "libraries of the page" scripts/page-libraries.sh

# cargo builds cargo-semver-checks once, which takes minutes.
semver: ready ## compare the API for Rust with that of a commit: BASELINE=v0.1.0
	@[ -n "$(BASELINE)" ] || { echo "usage: make semver BASELINE=v0.1.0" >&2; exit 2; }
	@$(ENGINE_STEP) "API for Rust" env -u MAKEFLAGS scripts/semver.sh "$(BASELINE)"

header: ## generate include/llb.h from the code
	@$(STEP) "header" scripts/header.sh "$(CURDIR)/include/llb.h"

header-check: ## compare include/llb.h with the code
	@rm -f target/header/llb.h
	@$(STEP) "header" scripts/header.sh "$(CURDIR)/target/header/llb.h"
	@diff -u include/llb.h target/header/llb.h || \
		{ echo "include/llb.h differs from the code; run: make header" >&2; exit 1; }

install: lib ## install library, header, pkg-config and CMake files: PREFIX=/usr [DESTDIR=...]
	@scripts/install.sh "$(RELEASE)" "$(DESTDIR)" "$(PREFIX)" "$(LIBDIR)" "$(SOVERSION)" "$(VERSION)"

baseline: ## build the library for any x86-64 processor, in target-baseline (slower)
	@$(MAKE) lib CPU=baseline

native: ## build the library for exactly this machine, in target-native
	@$(MAKE) lib CPU=native

clean: ## remove everything that was built here; keep the models
	rm -rf target target-baseline target-native $(JAVA_BINDING)/*/target $(JAVA_BINDING)/*/*/target \
		bindings/python/build bindings/python/src/*.egg-info

include make/backends.mk make/release.mk make/dist.mk make/tests.mk make/benches.mk

# No target is a file.
.PHONY: $(shell sed -n "s/^\([a-z0-9-]*\):.*/\1/p" $(MAKEFILE_LIST))
