"""Tasks of kind `generation`: continuations of the beginnings of real texts, and the perplexity of the test text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from emobench.data.packing import pack_blocks
from emobench.data.texts import Texts, load_texts
from emobench.errors import ConfigError
from emobench.evaluation.generation.prompts import first_ids, select_prompts
from emobench.evaluation.generation.samples import Sample, make_samples, read_samples, write_samples
from emobench.evaluation.generation.sampling import Sampling, sample_continuations
from emobench.evaluation.kinds import BaseModel, Scored, Subject
from emobench.evaluation.metrics.entropy import entropy
from emobench.evaluation.metrics.features import embed
from emobench.evaluation.metrics.mauve import mauve_scores
from emobench.evaluation.metrics.perplexity import perplexity
from emobench.evaluation.metrics.rouge import rouge
from emobench.evaluation.metrics.token_pass import evaluate_tokens
from emobench.models.head import probe_head, token_count
from emobench.tasks.scores import Score
from emobench.tasks.spec import Featurizer, GenerationProtocol, PromptRule, Task

SAMPLES = "samples.jsonl"


def load(task: Task, *, data_dirs: Sequence[Path], offline: bool) -> Texts:
    return load_texts(task.corpus, "test", data_dirs=data_dirs, offline=offline)


def featurizer(task: Task) -> Featurizer:
    return task.protocol_as(GenerationProtocol).featurizer


def check(task: Task, texts: Texts, model: BaseModel) -> None:
    rules = task.protocol_as(GenerationProtocol)
    # How many tokens words are is only known when they are cut; sampling checks that.
    longest = max(rules.max_length, rules.prefix + rules.continuation if rules.unit == "tokens" else 0)
    if model.context is not None and longest > model.context:
        raise ConfigError(
            f"Task {task.name} needs {longest} tokens, but {model.name} reads at most {model.context}; "
            f"add --set generation.max_length={model.context} or shorter generation.prefix and generation.continuation."
        )
    select_prompts(texts.texts, model.tokenizer, rules, limit=1)


def generation_rules(task: Task) -> dict[str, Any]:
    rules = task.protocol_as(GenerationProtocol)
    decided = [*(field.name for field in fields(PromptRule)), "sampling", "limit"]
    return {name: getattr(rules, name) for name in decided}


def generate(subject: Subject, task: Task, texts: Texts, folder: Path) -> None:
    rules = task.protocol_as(GenerationProtocol)
    prompts = select_prompts(texts.texts, subject.tokenizer, rules, limit=rules.limit)
    with subject.work(f"sample {task.name}", "prompts") as progress:
        found = sample_continuations(
            subject.model,
            [prompt.prefix_ids for prompt in prompts],
            prompt_keys=[prompt.id for prompt in prompts],
            sampling=_sampling(rules),
            vocabulary=token_count(subject.tokenizer),
            progress=progress,
        )
    samples = [s for p, c in zip(prompts, found, strict=True) for s in make_samples(p, c, subject.tokenizer)]
    write_samples(folder / SAMPLES, samples)
    (folder / "first_prompt_ids.json").write_text(f"{first_ids(prompts)}\n")


def score(subject: Subject, task: Task, texts: Texts, folder: Path) -> Scored:
    rules = task.protocol_as(GenerationProtocol)
    samples = read_samples(folder / SAMPLES)
    found = Scored()
    found.add(("ppl_test", "entropy"), partial(_test_text, subject, rules, texts))
    found.add(
        ("mauve", "mauve_star"),
        partial(mauve_of_samples, subject, rules.featurizer, rules.kmeans_seeds, samples, rules.joiner),
    )
    found.add(("rouge1", "rouge2", "rougeL"), partial(rouge_of_samples, samples, rules.joiner))
    return found


def mauve_of_samples(
    subject: Subject, featurizer: Featurizer, seeds: tuple[int, ...], samples: list[Sample], joiner: str
) -> dict[str, Score]:
    """Return MAUVE and MAUVE* of prefix + continuation against the human texts; the mean over the samples' indices."""
    human = list({sample.prompt_id: sample.reference_text for sample in samples}.values())
    human_ND = features_of(subject, featurizer, human, keep=True)
    runs = [
        mauve_scores(human_ND, features_of(subject, featurizer, [s.full_text(joiner) for s in group]), seeds=seeds)
        for group in _by_index(samples)
    ]
    return {"mauve": _mean([run.mauve for run in runs]), "mauve_star": _mean([run.mauve_star for run in runs])}


def rouge_of_samples(samples: list[Sample], joiner: str) -> dict[str, Score]:
    """Return ROUGE-1/2/L of prefix + continuation against the human texts."""
    generated = [sample.full_text(joiner) for sample in samples]
    return rouge(generated, [s.reference_text for s in samples], [s.prompt_id for s in samples])  # type: ignore[return-value]


def features_of(subject: Subject, featurizer: Featurizer, texts: list[str], *, keep: bool = False) -> np.ndarray:
    """Return the features of texts; those of human texts are kept, since all runs compare with the same ones."""
    key = (featurizer.model, featurizer.pooling, str(featurizer.max_length), *texts) if keep else ()
    if key not in subject.features or not keep:
        encoder = subject.encoder(featurizer.model)
        with subject.work("features", "texts") as progress:
            found = embed(
                texts,
                encoder.model,
                encoder.tokenizer,
                pooling=featurizer.pooling,
                max_length=featurizer.max_length,
                progress=progress,
            )
        if not keep:
            return found
        subject.features[key] = found
    return subject.features[key]


def _test_text(subject: Subject, rules: GenerationProtocol, texts: Texts) -> dict[str, Score]:
    rows = pack_blocks(texts.texts, subject.tokenizer, length=rules.max_length)
    if rules.test_blocks is not None:
        rows = rows.first(rules.test_blocks * rules.max_length)
    with subject.work("perplexity of the test text", "blocks") as progress:
        head = probe_head(subject.model, subject.tokenizer)
        sums = evaluate_tokens(subject.model, head, rows, {"entropy"}, progress=progress)  # type: ignore[arg-type]
    ids = [str(i) for i in range(len(rows))]
    return {"ppl_test": perplexity(sums, ids), "entropy": entropy(sums, ids)}


def _by_index(samples: list[Sample]) -> list[list[Sample]]:
    """Return the samples of each index, one of each prompt: a sampling run, in the paper's words."""
    groups: dict[int, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.sample, []).append(sample)
    return list(groups.values())


def _mean(scores: list[Score]) -> Score:
    return replace(scores[0], value=float(np.mean([score.value for score in scores])))


def _sampling(rules: GenerationProtocol) -> Sampling:
    return Sampling(
        new_tokens=rules.continuation,
        samples=rules.sampling.samples,
        seed=rules.sampling.seed,
        min_new_tokens=None if rules.sampling.suppress_eos else 0,
    )
