#!/usr/bin/env python3
"""Writes and verifies what accompanies the files of a release.

    provenance.py write FOLDER      writes SHA256SUMS, and provenance.json: an in-toto statement with
                                    SLSA's provenance, of the commit that is checked out
    provenance.py verify FOLDER     compares both with the files, and reads the SBOM; fails with the
                                    name of what differs

`verify` needs the packages cyclonedx-python-lib[json-validation] and in-toto-attestation. Neither
command signs: the workflow of a release lets GitHub attest the same files.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUMS = "SHA256SUMS"
STATEMENT = "provenance.json"


def files(folder):
    """The files of a release: all in the folder, also those of the Maven repository below it."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in found if path.name not in (SUMS, STATEMENT) or path.parent != folder]


def sha256(path):
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def digests(folder):
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files(folder)}


def git(*arguments):
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def locked_crates():
    """Name, version and checksum of the crates of registries in Cargo.lock."""
    text = (ROOT / "Cargo.lock").read_text()
    return re.findall(r'name = "(.+)"\nversion = "(.+)"\nsource = .*\nchecksum = "(.+)"', text)


def statement(sums):
    manifest = (ROOT / "Cargo.toml").read_text()
    repository = re.search(r'^repository = "(.*)"$', manifest, re.M)
    source = {
        "uri": f"git+{repository[1]}" if repository else "git+file:llb",
        "digest": {"gitCommit": git("rev-parse", "HEAD")},
    }
    if git("status", "--porcelain"):
        source["annotations"] = {"modified": True}
    crates = [
        {"uri": f"pkg:cargo/{name}@{version}", "digest": {"sha256": checksum}}
        for name, version, checksum in locked_crates()
    ]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": value}} for name, value in sums.items()],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:llb:make-dist:1",
                "externalParameters": {"target": "dist"},
                "resolvedDependencies": [source, *crates],
            },
            "runDetails": {"builder": {"id": os.environ.get("LLB_BUILDER", "urn:llb:local")}},
        },
    }


def write(folder):
    sums = digests(folder)
    lines = [f"{value}  {name}\n" for name, value in sums.items()]
    (folder / SUMS).write_text("".join(lines))
    (folder / STATEMENT).write_text(json.dumps(statement(sums), indent=2) + "\n")
    print(f"    {len(sums)} files in {SUMS} and {STATEMENT}")


def verify_sums(folder, actual):
    listed = {}
    for line in (folder / SUMS).read_text().splitlines():
        value, name = line.split("  ", 1)
        listed[name] = value
    differing = sorted(name for name in {*listed, *actual} if listed.get(name) != actual.get(name))
    if differing:
        sys.exit(f"{SUMS}: differs for {', '.join(differing)}")
    print(f"{SUMS}: {len(actual)} files")


def verify_statement(folder, actual):
    from google.protobuf import json_format
    from in_toto_attestation.v1 import statement as in_toto
    from in_toto_attestation.v1 import statement_pb2

    parsed = json_format.Parse((folder / STATEMENT).read_text(), statement_pb2.Statement())
    in_toto.Statement.copy_from_pb(parsed).validate()
    subjects = {subject.name: subject.digest["sha256"] for subject in parsed.subject}
    differing = sorted(
        name for name in {*subjects, *actual} if subjects.get(name) != actual.get(name)
    )
    if differing:
        sys.exit(f"{STATEMENT}: differs for {', '.join(differing)}")
    predicate = json_format.MessageToDict(parsed.predicate)
    source, *crates = predicate["buildDefinition"]["resolvedDependencies"]
    head = git("rev-parse", "HEAD")
    if source["digest"]["gitCommit"] != head:
        sys.exit(f"{STATEMENT}: of {source['digest']['gitCommit']}, but {head} is checked out")
    print(f"{STATEMENT}: commit {head[:12]}, {len(crates)} crates")


def verify_sbom(folder):
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    (path,) = folder.glob("*.cdx.json")
    text = path.read_text()
    if error := JsonStrictValidator(SchemaVersion.V1_5).validate_str(text):
        sys.exit(f"{path.name}: {error}")
    components = {(each["name"], each["version"]) for each in json.loads(text)["components"]}
    locked = {(name, version) for name, version, _ in locked_crates()}
    unknown = sorted(name for name, version in components - locked if name != "llama.cpp")
    engine = {version for name, version in components if name == "llama.cpp"}
    if unknown or len(engine) != 1:
        sys.exit(f"{path.name}: not in Cargo.lock: {unknown}; llama.cpp: {engine}")
    print(f"{path.name}: {len(components)} components, llama.cpp {engine.pop()}")


def verify(folder):
    actual = digests(folder)
    verify_sums(folder, actual)
    verify_statement(folder, actual)
    verify_sbom(folder)


if __name__ == "__main__":
    commands = {"write": write, "verify": verify}
    if len(sys.argv) != 3 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](Path(sys.argv[2]))
