# Kernels for other processors, and backends for GPUs: files beside the library (docs/backends.md).

backends: lib ## compile the kernels for other processors (libllb-cpu-*.so beside the library)
	@$(STEP) "kernels" nice scripts/kernels.py "$(RELEASE)"

# Needs glslc and headers (docs/backends.md). The shaders take minutes.
backend-vulkan: lib ## compile the Vulkan backend (libllb-vulkan.so beside the library)
	@$(STEP) "Vulkan backend" nice scripts/devices.py "$(RELEASE)" vulkan

# llama.cpp's devices of other hosts.
backend-rpc: lib ## compile the RPC backend (libllb-rpc.so beside the library)
	@$(STEP) "RPC backend" nice scripts/devices.py "$(RELEASE)" rpc

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
# can run. The RPC backend needs no driver.
backends-test: backend-rpc
	@$(STEP) "kernels of this machine" nice scripts/kernels.py "$(RELEASE)" --best sse42
