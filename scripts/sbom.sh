#!/bin/sh
# Writes the components of the library as a CycloneDX SBOM: scripts/sbom.sh OUTPUT.json
#
# cargo-cyclonedx lists the crates. llama.cpp is inside one of them, so it is added here.
set -eu

cd "$(dirname "$0")/.."
output=$1
tool=$(scripts/cargo-tool.sh cargo-cyclonedx 0.5.9)
target=$(rustc -vV | sed -n 's/^host: //p')
"$tool" cyclonedx --quiet --format json --spec-version 1.5 --target "$target" \
    --override-filename llb.cdx
build=$(sed -n 's/^pub const BUILD: u32 = \([0-9]*\);/\1/p' src/llama/mod.rs)
python3 - "$build" llb.cdx.json "$output" <<'PYTHON'
import json, os, sys

build, source, output = sys.argv[1:]
with open(source) as file:
    # Names of crates in this checkout, without the checkout's folder.
    bom = json.loads(file.read().replace(f"path+file://{os.getcwd()}#", "path#"))
llama = {
    "type": "library",
    "bom-ref": "llama.cpp",
    "name": "llama.cpp",
    "version": f"b{build}",
    "description": "LLM inference in C/C++, with ggml",
    "licenses": [{"expression": "MIT"}],
    "purl": f"pkg:github/ggml-org/llama.cpp@b{build}",
}
bom["components"].append(llama)
bom["dependencies"].append({"ref": "llama.cpp"})
for dependency in bom["dependencies"]:
    if "llama-cpp-sys-2@" in dependency["ref"]:
        dependency.setdefault("dependsOn", []).append("llama.cpp")
with open(output, "w") as file:
    json.dump(bom, file, indent=2)
    file.write("\n")
print(f"    {len(bom['components'])} components in {output}")
PYTHON
# cargo-cyclonedx writes one file for each member of the workspace.
rm -f llb.cdx.json cli/llb.cdx.json demo/llb.cdx.json
