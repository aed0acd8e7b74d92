"""Instructions and responses that a model of bytes can train on, a judge's replies, and the command line on them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

COUNT = 6
TOKENS = 8


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of the package openai are cut short, and no key or address comes from the environment."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.02)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


@pytest.fixture(scope="session")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with six instructions, the second with an input, and the responses to others."""
    folder = tmp_path_factory.mktemp("asked")
    rows = [{"instruction": f"Say {i}.", "input": "Loud" if i == 1 else "", "reference": f"{i}"} for i in range(COUNT)]
    (folder / "instructions.test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    rows = [{"instruction": f"Name {i}.", "input": "", "output": f"It is {i}."} for i in range(12)]
    (folder / "responses.train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


@pytest.fixture
def instruct(command: Callable[..., Any], byte_model: Path, asked: Path, tmp_path: Path) -> Callable[..., Any]:
    """Run `emobench VERB --suite instruct` on these data, with responses of eight tokens."""

    def run(verb: str, *more: object, data: Path = asked) -> Any:
        places = ("--data-dir", data, "--runs", tmp_path / "runs", "--leaderboard", tmp_path / "board", "--offline")
        given = any(str(one).startswith("instruct.max_new_tokens=") for one in more)
        length = () if given else ("--set", f"instruct.max_new_tokens={TOKENS}")
        return command(verb, "--suite", "instruct", "--model", byte_model, *length, *places, "-q", *more)

    return run
