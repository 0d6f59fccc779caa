# The platforms that the library is built for: CPU, ARCH, LIBC and SYSTEM set cargo's target folder,
# its triple and its compilers. The targets cross-compile the library and test it in emulators.

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
