"""llb beside another llama.cpp in one process, in both orders of loading."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import skip

import llb

HERE = Path(__file__).parent


@pytest.mark.parametrize("first", ["llb", "xllamacpp"])
def test_both_chat_in_one_process(first, models, expected):
    if importlib.util.find_spec("xllamacpp") is None:
        skip("no xllamacpp, which has a llama.cpp of its own (pip install xllamacpp)")
    command = [sys.executable, str(HERE / "beside.py"), first, models("text")]
    environment = {**os.environ, "PYTHONPATH": str(Path(llb.__file__).parents[1])}
    output = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert output.returncode == 0, output.stderr[-2000:]
    texts = json.loads(output.stdout.splitlines()[-1])
    assert texts.pop("mapped") == ["libllb", "xllamacpp"]
    for name, written in texts.items():
        assert len(written) == (7 if name == first else 6)
        assert set(written) == {expected["text"]}, name
