# The files of a version in one folder, and the rehearsal of a release (docs/releasing.md).

DIST := $(TARGET)/dist
# What checks the files of a version.
VERIFY_VENV := $(TARGET)/verify-venv
CYCLONEDX_VERSION := 11.12.0
IN_TOTO_VERSION := 0.9.3
ACTIONLINT_VERSION := v1.7.12

# `system` is a target of its own, because other processors have nothing else of their own.
dist: empty-dist wheel cli jars crates sbom system ## build all files of a version for this system (target/dist)
	@$(MAKE) collect FILES="$(WHEEL) $(TARGET)/llb.cdx.json"

empty-dist:
	@rm -rf "$(DIST)"

system: ## pack the program, the library and the header: archive and deb (after cli and release-lib)
	@$(STEP) "packages for the system" scripts/release/system.sh "$(RELEASE)" \
		"$(dir $(RELEASE_LIBRARY))" "$(DIST)" "$(VERSION)" "$(SOVERSION)"

# FILES are folders and files of all systems.
collect:
	@mkdir -p "$(DIST)"
	@for name in $$(find $(FILES) -name plain -prune -o -type f \( -name '*.whl' -o -name '*.crate' \
		-o -name 'llb*.tar.gz' -o -name '*.deb' -o -name '*.cdx.json' \) -print); do \
		cp "$$name" "$(DIST)"; done
	@for name in $$(find $(FILES) -type d -name maven); do cp -R "$$name" "$(DIST)"; done
	@$(STEP) "checksums and provenance" scripts/release/provenance.py write "$(DIST)"

test-version: ## compare the versions of all packages and of the changelog
	@$(STEP) "versions" scripts/release/version.py

notes: ## print the changes of this version
	@awk '/^## / { on = $$2 == "$(VERSION)" } on' docs/changelog.md

# With ARCH, only the library for that processor is added to it.
jars: release-lib ## deploy the Java modules into a local Maven repository (target/dist/maven)
	@home=$$($(JAVA_BINDING)/find-jdk.sh) || { echo "no JDK 22 or later" >&2; exit 1; }; \
	$(if $(ARCH),,rm -rf "$(DIST)/maven";) \
	$(STEP) "jars" env JAVA_HOME="$$home" $(if $(ARCH),CC=$(ARCH)-linux-gnu-gcc) \
		mvn -B -q -f $(JAVA_BINDING)/pom.xml deploy -DskipITs -Dmaven.install.skip \
		-pl $(if $(ARCH),llb-natives,'!readme-test,!examples/spring-boot,!examples/kotlin') \
		-Dllb.library="$(RELEASE_LIBRARY)" \
		-Dllb.platform=linux-$(or $(ARCH),$(shell uname -m)) \
		-DaltDeploymentRepository="llb::file://$(DIST)/maven"

# The rehearsal builds them from their own archives.
crates: ## pack the crates llb and llb-cli (target/dist)
	@mkdir -p "$(DIST)"
	@$(STEP) "crates" $(CARGO) package --quiet --no-verify --allow-dirty -p llb -p llb-cli
	@cp "$(TARGET)"/package/llb-$(VERSION).crate "$(TARGET)"/package/llb-cli-$(VERSION).crate "$(DIST)"

release-rehearsal: dist scripted-models ## build all files of a version, install each in an empty place and run it
	$(call environment,$(VERIFY_VENV),environment of the checks)
	@$(STEP) "packages of the checks" "$(VERIFY_VENV)/bin/python" -m pip install -q \
		--disable-pip-version-check "cyclonedx-python-lib[json-validation]==$(CYCLONEDX_VERSION)" \
		in-toto-attestation==$(IN_TOTO_VERSION)
	@$(STEP) "rehearsal" scripts/release/rehearse.py "$(DIST)" \
		"$(TARGET)/scripted-models/text.gguf" "$(VERIFY_VENV)/bin/python"

# Images of Python on systems with glibc 2.28 and later, or with musl.
IMAGES ?= $(if $(LIBC),python:3.13-alpine python:3.9-alpine,python:3.9-slim-buster python:3.13-slim-bookworm)
wheel-containers: ## run the wheel in containers of older systems, or with LIBC=musl of Alpine (Docker)
	@$(STEP) "wheel: containers" scripts/containers.sh "$(WHEEL)" \
		"$(TARGET)/scripted-models/text.gguf" $(IMAGES)

image: ## build the container image of the program from its archive (Docker)
	@rm -rf "$(DIST)/image" && mkdir -p "$(DIST)/image" && \
		tar -xzf "$(DIST)/llb-$(VERSION)-linux-$$(uname -m).tar.gz" -C "$(DIST)/image" \
		--strip-components 1
	@$(STEP) "image" docker build --quiet -f scripts/release/Containerfile \
		-t llb:$(VERSION) "$(DIST)/image"; status=$$?; rm -rf "$(DIST)/image"; exit $$status

workflows: ## check the workflows of .github with actionlint (Go)
	@if command -v go >/dev/null; then \
		$(STEP) "workflows" scripts/workflows.sh "$(TARGET)/actionlint" $(ACTIONLINT_VERSION); \
	else echo "SKIPPED: workflows: no Go, which builds actionlint"; fi
