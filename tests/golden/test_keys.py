"""No change of code changes a key by accident: results that users have would be made again."""

from __future__ import annotations

import json
import runpy
from collections import Counter
from pathlib import Path

MAKER = runpy.run_path(str(Path(__file__).with_name("make_keys.py")))


def test_keys_are_as_they_were(tmp_path: Path) -> None:
    expected = json.loads(MAKER["KEYS"].read_text())
    keys = MAKER["make_keys"](tmp_path)
    assert keys.keys() == expected.keys()
    changed = {request: keys[request] for request in expected if keys[request] != expected[request]}
    assert not changed, "If they have to change, say why, and run `python tests/golden/make_keys.py`."


def test_each_setting_decides_a_key() -> None:
    """Each request differs from all others by one thing, which has to be in a key."""
    expected = json.loads(MAKER["KEYS"].read_text())
    counts = Counter(json.dumps(keys, sort_keys=True) for keys in expected.values())
    alike = [request for request, keys in expected.items() if counts[json.dumps(keys, sort_keys=True)] > 1]
    without_a_gpu = ("recipe.precision=float32",)  # what `auto` is there
    mle = "model=model recipe=lm-finetune objectives=('mle',) seeds=(0,)"
    assert alike == [mle, f"{mle} settings={without_a_gpu}"]
