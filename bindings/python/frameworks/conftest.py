"""The scripted models, by the stem of their names. A test without them is skipped."""

import json
import os
from pathlib import Path

import pytest


def skip(reason):
    if os.environ.get("LLB_REQUIRE_ALL"):
        pytest.fail(f"{reason}, and LLB_REQUIRE_ALL is set", pytrace=False)
    pytest.skip(reason)


@pytest.fixture
def models():
    """Returns the path of a scripted model by the stem of its name."""
    folder = Path(os.environ.get("LLB_TEST_MODELS") or skip("LLB_TEST_MODELS is not set"))
    return lambda stem: str(folder / f"{stem}.gguf")


@pytest.fixture
def expected(models):
    """The output of each scripted model, by the stem of its name."""
    return json.loads(Path(models("text")).with_name("expected.json").read_text(encoding="utf-8"))
