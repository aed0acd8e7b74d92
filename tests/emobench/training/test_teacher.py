"""What an objective gets at setup, and trainings against a dense target and with side data."""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from emobench.core.errors import ConfigError
from emobench.data.oracle.language import oracle_language, oracle_texts, oracle_tokenizer
from emobench.data.packing import RowCollator, pack_blocks
from emobench.models.head import probe_head
from emobench.objectives import IGNORED, Objective
from emobench.training.context import FrozenTeacher, TrainingContext
from emobench.training.train import train
from emobench_objectives.distillation import KdForward, KdJs
from emobench_objectives.emo import Emo
from emobench_objectives.unlikelihood import Unlikelihood


def context_of(model: Any, **values: Any) -> TrainingContext:
    given = {"total_steps": 3, "pretrained": True, "load_head": None, "load_model": None, "model": model} | values
    return TrainingContext(probe_head(model), **given)


def test_from_scratch_only_the_initial_head_is_there(kit: SimpleNamespace, tmp_path: Path) -> None:
    context = context_of(kit.tiny(), pretrained=False)
    for ask in (context.head_weight, context.cost_embedding, lambda: Emo().setup(context)):
        with pytest.raises(ConfigError, match="starts from scratch"):
            ask()
    with pytest.raises(ConfigError, match="starts from scratch"):
        train(kit.job(tmp_path / "refused", objective=Emo(), pretrained=False))
    assert not (tmp_path / "refused").exists()
    job = kit.job(tmp_path / "initial", objective=Emo(cost="initial"), pretrained=False)
    initial_VD = job.model.get_output_embeddings().weight.detach().clone()
    train(job)
    found_VD = job.objective.frozen_state()["cost_embedding"]
    torch.testing.assert_close(found_VD, F.normalize(initial_VD), rtol=0, atol=1e-15)
    trained_VD = kit.saved(tmp_path / "initial")["transformer.wte.weight"]
    assert (trained_VD - initial_VD).abs().max().item() > 1e-3


@pytest.mark.parametrize("kind", ["gpt2", "phi", "gemma2", "granite"])
def test_a_teachers_logits_are_its_models(kit: SimpleNamespace, kind: str) -> None:
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        model = kit.tiny(kind, dtype=dtype).train()
        teacher = FrozenTeacher(copy.deepcopy(model))
        ids_BT = torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0]])
        mask_BT = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
        hidden_BTH = teacher.hidden(ids_BT, mask_BT)
        found = teacher.logits(hidden_BTH[mask_BT.bool()])
        with torch.no_grad():
            expected = model.eval()(input_ids=ids_BT, attention_mask=mask_BT).logits[mask_BT.bool()]
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
        assert found.dtype == dtype
        assert not hidden_BTH.requires_grad
        assert not teacher.model.training
        assert not any(parameter.requires_grad for parameter in teacher.model.parameters())


@pytest.mark.parametrize("kind", ["gpt2", "phi", "gemma2", "granite"])
def test_a_copy_gives_the_log_probabilities_of_the_weights_that_were_taken(kit: SimpleNamespace, kind: str) -> None:
    model = kit.tiny(kind, **({"resid_pdrop": 0.5} if kind == "gpt2" else {})).train()
    ids_BT = torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0]])
    mask_BT = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    labels_BT = torch.tensor([[3, -100, 5, 6], [7, 8, -100, -100]])
    snapshot = context_of(model).snapshot()
    snapshot.take()
    with torch.no_grad():
        logits_BTV = copy.deepcopy(model).eval()(input_ids=ids_BT, attention_mask=mask_BT).logits
        for weight in model.parameters():
            weight += 1.0
    moved = kit.weights(model)
    found_BT = snapshot.log_prob({"input_ids": ids_BT, "attention_mask": mask_BT, "labels": labels_BT})
    log_q_BTV = logits_BTV.log_softmax(-1)
    expected_BT = torch.zeros(2, 4, dtype=torch.float64)
    for b, t in ((0, 2), (0, 3), (1, 1)):
        expected_BT[b, t] = log_q_BTV[b, t - 1, labels_BT[b, t]]
    torch.testing.assert_close(found_BT, expected_BT, rtol=1e-12, atol=1e-12)
    assert kit.difference(kit.weights(model), moved) == 0
    assert all(module.training for module in model.modules())
    assert not found_BT.requires_grad


def test_what_the_context_cannot_give_is_a_sentence(kit: SimpleNamespace) -> None:
    model = kit.tiny()
    context = context_of(model, pretrained=False, load_model=lambda name: kit.tiny(vocab_size=kit.vocabulary + 3))
    with pytest.raises(ConfigError, match=r"this model starts from scratch; .* 'kd-forward\(target=gpt2\)'"):
        context.teacher("pretrained")
    with pytest.raises(ConfigError, match=r"target=other: its head has 64 rows; expected 61, .* the same tokenizer"):
        context.teacher("other")
    with pytest.raises(ConfigError, match=r"cost=opt: its head has 62 rows; expected 61, .*the same tokenizer"):
        context_of(model, load_head=lambda name: torch.ones(kit.vocabulary + 1, 4)).cost_embedding("opt")
    with pytest.raises(ConfigError, match=r"the distribution of the training corpus is not known; .*target=MODEL"):
        context.language()
    with pytest.raises(ConfigError, match="the oracle language has 513 rows; expected 61"):
        context_of(model, known_language=oracle_language("target")).language()


def test_a_row_too_long_for_the_teacher_is_a_sentence(kit: SimpleNamespace) -> None:
    teacher = FrozenTeacher(kit.tiny(n_positions=8))
    with pytest.raises(ConfigError, match=r"The teacher reads at most 8 tokens, and a row has 9; .*max_length=8"):
        teacher.hidden(torch.zeros(1, 9, dtype=torch.long))


def digest(model: Any) -> str:
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.state_dict().values())).hexdigest()


def test_a_training_step_is_that_of_the_whole_logits(kit: SimpleNamespace, tmp_path: Path) -> None:
    """One SGD step on ragged, masked rows equals one on KL(teacher || model) written with both models' logits."""
    teacher = kit.tiny("llama", seed=5)
    untouched = digest(teacher)
    objective = KdForward(target="teacher")
    rows = kit.ragged(8)
    settings = {"batch": 8, "epochs": 1, "accumulation": 2}
    job = kit.job(tmp_path, objective=objective, train=rows, recipe=settings, load_model=lambda name: teacher)

    by_hand = kit.tiny()
    total, count = torch.zeros((), dtype=torch.float64), 0
    for row in rows:
        ids = torch.from_numpy(row["input_ids"]).long()[None]
        kept = torch.from_numpy(row["labels"][1:]) != IGNORED
        log_q, log_p = (m(ids).logits[0, :-1][kept].log_softmax(-1) for m in (by_hand, teacher))
        total, count = (
            total + F.kl_div(log_q, log_p.detach(), reduction="sum", log_target=True),
            count + int(kept.sum()),
        )
    (total / count).backward()
    with torch.no_grad():
        for parameter in by_hand.parameters():
            parameter -= 0.5 * parameter.grad

    attached = sgd(kit, job)
    assert kit.difference(kit.weights(job.model), kit.weights(by_hand)) < 1e-9
    assert digest(teacher) == untouched
    assert attached[0]["loss"] == pytest.approx(float(total.detach()) / count, rel=1e-9)


def sgd(kit: SimpleNamespace, job: Any) -> list[dict[str, float]]:
    """Train with plain SGD, whose steps are gradients; the context is that of `train`."""
    whole = job.objective
    context = context_of(job.model, load_model=job.load_model, known_language=job.known_language)
    whole.setup(context)
    whole.setup = lambda context: None  # done
    try:
        return kit.train_sgd(job)
    finally:
        del whole.setup


def stopping_at(step: int) -> Any:
    class Stop(Exception):
        pass

    def progress(line: dict[str, float]) -> None:
        if "loss" in line and line["step"] == step:
            raise Stop

    return Stop, progress


@pytest.mark.parametrize(
    "objective",
    [lambda: KdForward(target="pretrained", alpha=0.5), lambda: KdJs(target="t"), lambda: Unlikelihood()],
    ids=["pretrained", "model", "unlikelihood"],
)
def test_a_training_that_was_stopped_ends_as_if_it_was_not(
    kit: SimpleNamespace, tmp_path: Path, objective: Any
) -> None:
    """Two epochs of three steps; stopped in the second, after the checkpoint of the first."""
    teacher = kit.tiny(seed=9)
    untouched = digest(teacher)

    def job(folder: Path, **values: Any) -> Any:
        return kit.job(folder, objective=objective(), recipe={"epochs": 2}, load_model=lambda name: teacher, **values)

    train(job(tmp_path / "whole"))
    stop, progress = stopping_at(5)
    with pytest.raises(stop):
        train(job(tmp_path / "halves", progress=progress))
    assert [path.name for path in (tmp_path / "halves" / "checkpoints").iterdir()] == ["checkpoint-3"]
    train(job(tmp_path / "halves"))
    assert kit.difference(kit.saved(tmp_path / "halves"), kit.saved(tmp_path / "whole")) == 0
    assert digest(teacher) == untouched
    # The teacher is no part of the model: its folder holds what a plain training writes.
    train(kit.job(tmp_path / "plain"))
    assert kit.saved(tmp_path / "plain").keys() == kit.saved(tmp_path / "whole").keys()


def oracle_job(kit: SimpleNamespace, folder: Path, objective: Objective, epochs: int = 1) -> Any:
    """A small GPT-2 on 60 blocks of the oracle language."""
    symbols = oracle_tokenizer()
    texts = {"train": oracle_texts("target", "train")[:200], "validation": oracle_texts("target", "validation")[:40]}
    rows = {split: pack_blocks(some, symbols, length=32, eos_between=True) for split, some in texts.items()}
    model = kit.tiny(dtype=torch.float32, vocab_size=513, n_embd=32, bos_token_id=512, eos_token_id=512)
    return kit.job(
        folder, model=model, tokenizer=symbols, objective=objective, collate=RowCollator(512), **rows,
        known_language=oracle_language("target"), recipe={"epochs": epochs, "batch": 8, "learning_rate": 1e-2},
    )  # fmt: skip


def test_the_target_of_each_block_is_the_languages(kit: SimpleNamespace, tmp_path: Path) -> None:
    """The logged KL(P || Q) of the first step, against the numpy forward algorithm on whole texts.

    A block cut from texts that begin with EOS has the language's own P at each position.
    """
    job = oracle_job(kit, tmp_path, KdForward())
    oracle = oracle_language("target")
    texts = [text for text in oracle.sample(20, seed=4) if len(text) < 30][:8]
    rows = [{"input_ids": (ids := torch.tensor([512, *text, 512]).numpy()), "labels": ids} for text in texts]
    total: list[Tensor] = []
    for row in rows:
        p_TV = oracle.state_probs(row["input_ids"][None, :-1])[0] @ oracle.emission_SV
        log_p = torch.from_numpy(p_TV).log()
        with torch.no_grad():
            log_q = job.model(torch.from_numpy(row["input_ids"])[None, :-1]).logits[0].double().log_softmax(-1)
        total.append((log_p.exp() * (log_p - log_q)).sum(-1))
    small = {"epochs": 1, "batch": 8}
    job = kit.job(
        tmp_path, model=job.model, tokenizer=job.tokenizer, objective=KdForward(), train=rows, validation=rows,
        collate=RowCollator(512), known_language=oracle, recipe=small,
    )  # fmt: skip
    train(job)
    assert kit.log_of(tmp_path)[0]["loss"] == pytest.approx(float(torch.cat(total).mean()), rel=1e-5)
