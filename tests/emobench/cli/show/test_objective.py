"""`emobench objectives show --plot`: the picture, its numbers, and the objectives that have none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

FILE = """
import emobench

class Root(emobench.WeightedLikelihood):
    \"\"\"-sg(q_t^0.5) log q_t. Own.\"\"\"

    def weight(self, s):
        return (0.5 * s.log_prob).detach().exp()

class Whole(emobench.ModelObjective):
    \"\"\"-log q_t. Own.\"\"\"

    def loss(self, model, batch):
        raise RuntimeError("not yet")
"""
TEXT = "bar bas ban bal bam der des den"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(FILE)
    return tmp_path / "own.py"


@pytest.fixture
def drawn(command: Callable[..., Any], small_model: Path, tmp_path: Path) -> Callable[..., Any]:
    """Draw objectives on the small model."""

    def draw(*arguments: object) -> Any:
        return command("objectives", "show", *arguments, "--model", small_model, "--runs", tmp_path / "runs")

    return draw


def test_the_numbers_of_a_picture(drawn: Callable[..., Any], file: Path, tmp_path: Path) -> None:
    own = f"{file}:Root"
    done = drawn("mle", "emo", own, "--plot", tmp_path / "a.svg", "--text", TEXT, "--json").ok().json
    assert [facts["name"] for facts in done["objectives"]] == ["mle", "emo", "root"]
    weights = {name: [row for row in done["weights"] if row["objective"] == name] for name in ("mle", "emo", own)}
    assert {row["weight"] for row in weights["mle"]} == {1.0}
    for row in weights[own]:
        assert row["weight"] == pytest.approx(row["probability"] ** 0.5)
    contexts = {row["context"] for row in done["targets"]}
    assert len(contexts) == 3
    for context in contexts:
        rows = [row for row in done["targets"] if row["context"] == context]
        shares: dict[str, dict[str, float]] = {}
        for row in rows:
            shares.setdefault(row["series"], {})[row["token"]] = row["share"]
        assert list(shares) == ["prediction", "mle", "emo", own]
        target = rows[0]["target"]
        assert TEXT.startswith(f"{context} {target}")
        assert shares["mle"] == pytest.approx(dict.fromkeys(shares["mle"], 0.0) | {target: 1.0})
        # Root is MLE with the weight sqrt(q_t): a target between the prediction and the one-hot one.
        root = shares["prediction"][target] ** 0.5
        for token, share in shares["prediction"].items():
            assert shares[own][token] == pytest.approx(share + root * (shares["mle"][token] - share))
        # Half of EMO is MLE; the other half has mass for all that the model predicts.
        assert 0.5 < shares["emo"].pop(target) < 1
        assert any(share > 0.01 for share in shares["emo"].values())


@pytest.mark.parametrize(("name", "begins"), [("a.svg", b"<svg"), ("a.png", b"\x89PNG"), ("a.pdf", b"%PDF")])
def test_a_picture_is_a_file_of_its_kind(
    drawn: Callable[..., Any], tmp_path: Path, name: str, begins: bytes, require_readable: Callable[[str], None]
) -> None:
    done = drawn("0.5*emo + linear(1, 0)*tailr(gamma=1e-5)", "--plot", tmp_path / name, "--text", TEXT).ok()
    assert done.out.splitlines()[-1] == str(tmp_path / name)
    require_readable(done.out)
    written = (tmp_path / name).read_bytes()
    assert written.startswith(begins)
    if name.endswith(".svg"):
        texts = " ".join(ElementTree.fromstring(written).itertext())
        for word in ("probability of the target", "entropy (nats)", "Implied targets", "tailr(gamma=1e-5)"):
            assert word in texts


@pytest.mark.parametrize(
    ("name", "reads"),
    [
        ("unlikelihood", "context_tokens"),
        ("kd-forward(target=pretrained)", "dense_target"),
        ("emo-1-adaptive", "the head"),
        ("Whole", "the model and the batch"),
    ],
)
def test_a_loss_of_more_than_a_prediction_has_no_picture(
    drawn: Callable[..., Any], file: Path, tmp_path: Path, name: str, reads: str
) -> None:
    if name == "Whole":
        name = f"{file}:Whole"
    drawn(name, "--plot", tmp_path / "a.svg").refused(name, reads)
    assert not (tmp_path / "a.svg").exists()


def test_bad_input_gets_a_sentence(drawn: Callable[..., Any], command: Callable[..., Any], tmp_path: Path) -> None:
    drawn("mle").refused("--plot")
    drawn("mle", "--plot", tmp_path / "a.txt").refused("a.txt")
    drawn("mle", "emoo", "--plot", tmp_path / "a.svg").refused("'emoo'")
    drawn("mle", "--plot", tmp_path / "a.svg", "--text", "bar").refused("'bar'", "at least 2")
    command("objectives", "show", "mle", "--plot", tmp_path / "a.svg", "--model", "./none").refused("./none")
