"""`emobench objectives bench`: measures every kind of loss of tokens on a small shape; the times are not held."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from emobench.testing.bench import CROSS_ENTROPY, peak_bytes

TOKENS, VOCABULARY, WIDTH = 40, 101, 16
SHAPE = ("--shape", f"{TOKENS},{VOCABULARY},{WIDTH}")
FILE = """
import emobench

class Plain(emobench.StatisticsObjective):
    \"\"\"-log q_t. Own.\"\"\"

    def loss(self, s):
        return -s.log_prob

class Weighted(Plain):
    \"\"\"-w log q_t. Own.\"\"\"

    needs = {"weight"}

    def loss(self, s):
        return -s.side["weight"] * s.log_prob

class Short(Weighted):
    def side_data(self, batch):
        return {"weight": batch["labels"][:, 1:]}

class Whole(emobench.ModelObjective):
    \"\"\"-log q_t. Own.\"\"\"

    def loss(self, model, batch):
        raise RuntimeError("not yet")
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(FILE)
    return tmp_path / "own.py"


def test_every_kind_of_loss_is_measured_beside_cross_entropy(command: Callable[..., Any], file: Path) -> None:
    names = ("mle", "emo", "gem", "0.5*emo + linear(1, 0)*mle", "kd-forward", "kd-forward(target=gpt2)", "unlikelihood")
    names += ("demd-dense", f"{file}:Plain", f"{file}:Weighted")
    found = command("objectives", "bench", *names, *SHAPE, "--json").json
    losses = {row["loss"]: row for row in found["losses"]}
    assert list(losses) == [CROSS_ENTROPY, *names]
    assert (found["shape"], found["dtype"], found["device"]) == ([TOKENS, VOCABULARY, WIDTH], "float32", "cpu")
    plain = losses[CROSS_ENTROPY]["milliseconds"]
    for row in losses.values():
        assert row["milliseconds"] > 0
        assert row["x_cross_entropy"] == pytest.approx(row["milliseconds"] / plain)
        assert row["spread"] >= 0
        assert row["step_bytes"] > 0
    # The frozen rows of the head, (V, D) in float32.
    assert losses["emo"]["held_bytes"] == 4 * VOCABULARY * WIDTH
    assert losses["mle"]["held_bytes"] == 0


def test_the_table_has_a_line_for_each(command: Callable[..., Any]) -> None:
    lines = command("objectives", "bench", "emo", "gem", *SHAPE).ok().out.splitlines()
    assert lines[0].startswith(f"{TOKENS} tokens, vocabulary {VOCABULARY}, width {WIDTH}, float32, cpu")
    head = next(i for i, line in enumerate(lines) if line.startswith("loss"))
    assert [line.split()[0] for line in lines[head + 1 : head + 4]] == ["cross-entropy", "emo", "gem"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["mle", "--shape", "512,32000"], "--shape is '512,32000'; expected TOKENS,VOCABULARY,WIDTH"),
        (["mle", "--shape", "512,-2,64"], "--shape is '512,-2,64'; expected"),
        (["mle", "--shape", "512,1,64"], "--shape is '512,1,64'; expected"),
        (["mle", "--dtype", "float8"], "--dtype is float8; expected float32, bfloat16 or float16."),
        (["mle", "--device", "tpu"], "--device tpu is unknown"),
        (["mle", "emoo"], "There is no objective 'emoo'; did you mean 'emo'?"),
        (["tailr(gamma=7)"], "expected at least 0.0, at most 1.0"),
    ],
)
def test_bad_input_gets_a_sentence(command: Callable[..., Any], arguments: list[str], sentence: str) -> None:
    command("objectives", "bench", *arguments).refused(sentence)


def test_a_loss_that_cannot_be_measured_alone_is_refused(command: Callable[..., Any], file: Path) -> None:
    command("objectives", "bench", "mle", f"{file}:Whole", *SHAPE).refused(
        "cannot be measured", f"`emobench train --objective {file}:Whole`"
    )
    command("objectives", "bench", f"{file}:Short", *SHAPE).refused("'weight' has shape (1, 40); expected (1, 41)")


def test_a_shape_that_does_not_fit_is_said_to_be_too_large(command: Callable[..., Any]) -> None:
    done = command("objectives", "bench", "mle", "--shape", f"10,1000,{10**12}")
    assert done.code == 1
    assert "does not fit the memory of cpu; give a smaller one." in done.err


def test_the_peak_is_what_a_run_holds_at_most() -> None:
    logits_NV = torch.zeros(300, 700)

    def run() -> None:
        logits_NV.logsumexp(dim=1)  # exp(z - max) is within the kernel

    peak = peak_bytes(run, "cpu")
    assert 4 * 300 * 700 <= peak < 4 * 300 * 700 + 4 * 4 * 300
    held = []
    assert peak_bytes(lambda: held.extend(torch.zeros(1000) for _ in range(5)), "cpu") == 5 * 4000
