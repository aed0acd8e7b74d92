"""A real model behind a real server judges: `transformers serve` on the loopback, in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from emobench.kinds.instruct.judging.judge import JUDGES, Pair

TASK = "instructions"
COUNT = 6
STARTS = 120.0
"""Seconds that a server may take to start."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("fastapi", "uvicorn")),
        reason='`transformers serve` is not installed: pip install "transformers[serving]"',
    ),
]


@pytest.fixture(scope="module")
def judge_folder(byte_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of bytes that was taught to answer PandaLM's prompt with "1": it prefers the first place."""
    folder = tmp_path_factory.mktemp("judge") / "bytes"
    tokenizer, model = AutoTokenizer.from_pretrained(byte_model), AutoModelForCausalLM.from_pretrained(byte_model)
    judge: Any = JUDGES.class_of("pandalm")()
    prompt = judge.request(Pair("Say it.", "a", "b")).prompt
    ids_1T = torch.tensor([[*tokenizer(f"{prompt}1").input_ids, tokenizer.eos_token_id]])
    labels_1T = ids_1T.where(torch.arange(ids_1T.shape[1]) >= ids_1T.shape[1] - 2, -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        model(input_ids=ids_1T, labels=labels_1T).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def address(judge_folder: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a server of the model; it is ended with the test."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(sys.executable).with_name("transformers")
    command = [program, "serve", judge_folder, "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    environment, log = {**os.environ, "HF_HUB_OFFLINE": "1"}, tmp_path / "server.log"
    with (
        log.open("wb") as written,
        subprocess.Popen(command, env=environment, stdout=written, stderr=written) as server,
    ):
        try:
            _wait(f"http://127.0.0.1:{port}/health", server, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.kill()


def _wait(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + STARTS
    while time.monotonic() < end and server.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=5).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    pytest.fail(f"The server did not start:\n{log.read_text()[-2000:]}")


def test_its_replies_are_kept_and_give_the_win_rate(
    address: str, judge_folder: Path, instruct: Callable[..., Any], tmp_path: Path
) -> None:
    given = ("judge.name=pandalm", f"judge.model={judge_folder}", f"judge.url={address}")
    words = [word for one in given for word in ("--set", one)]
    entry = instruct("evaluate", *words, "--json").ok().json["entries"][0]
    metrics = {name.partition("/")[2]: metric["mean"] for name, metric in entry["metrics"].items()}
    assert (metrics["win_rate"], metrics["position_bias"], metrics["order_agreement"]) == (0.5, 1.0, 0.0)
    assert metrics["parse_failures"] == 0.0
    (journal,) = (tmp_path / "runs" / "judge").glob("*/replies.jsonl")
    replies = [json.loads(line.split(" ", 2)[2]) for line in journal.read_text().splitlines()]
    assert [reply["text"].strip() for reply in replies] == ["1"] * 2 * COUNT
    assert all(reply["prompt_tokens"] > 100 for reply in replies)
