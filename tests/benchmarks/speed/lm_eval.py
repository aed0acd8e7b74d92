"""CPU time of multiple choice in lm-evaluation-harness: through emobench, and by lm-eval's own transformers model.

    python tests/benchmarks speed.lm_eval --data-dir FOLDER [--case NAME ...] [--model NAME ...] [--rounds 5]

Both arms are lm_eval.simple_evaluate on the same built tasks, with batches of 8: HFLM, and emobench's model. Cases:

    mmlu    5 fixed shots, answers of one letter
    trec    no shot, six answers of one to five tokens

Models: those of `icl_simple`. FOLDER holds trec.test.jsonl and mmlu_stem.{dev,test}.jsonl. Arms alternate; medians of
process time, one thread, from documents to metrics: lm-eval builds its prompts in both.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from measuring import RESULTS, alternating_seconds, median_and_spread, origin, over, write
from speed.icl_simple import SHAPES, model_and_tokenizer

from emobench.kinds.interface import Subject
from emobench.kinds.lm_eval.kind import LmEvalProtocol
from emobench.kinds.lm_eval.model import MemoryModel, quiet_lm_eval
from emobench.models.inference import optimize_for_inference

BATCH = 8
SUBJECTS, QUESTIONS = 2, 24
TREC_QUESTIONS = 192
"""Enough that what is done once for a model, the check of the engine, is not a tenth of it."""
NAMES = ["Abbreviation", "Entity", "Description and abstract concept", "Human being", "Location", "Numeric value"]
ACCURACY = {"aggregation": "mean", "higher_is_better": True}
MMLU = {
    "fewshot_split": "dev",
    "fewshot_config": {"sampler": "first_n"},
    "num_fewshot": 5,
    "doc_to_text": "{{question}}{% for one in choices %}\n{{'ABCD'[loop.index0]}}. {{one}}{% endfor %}\nAnswer:",
    "doc_to_choice": ["A", "B", "C", "D"],
    "doc_to_target": "answer",
    "metric_list": [{"metric": "acc", **ACCURACY}],
}
TREC = {
    "doc_to_text": "Question: {{text}}\nThe answer is of the type:",
    "doc_to_choice": NAMES,
    "doc_to_target": "label",
    "metric_list": [{"metric": "acc", **ACCURACY}, {"metric": "acc_norm", **ACCURACY}],
}


def tasks_of(case: str, data: Path, folder: Path) -> list[Any]:
    """Write a case's documents and definitions, and return its tasks as lm-eval builds them."""

    def rows(name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (data / f"{name}.jsonl").read_text().splitlines()]

    def keep(name: str, definition: dict[str, Any], **splits: list[dict[str, Any]]) -> None:
        files = {split: str(folder / f"{name}.{split}.jsonl") for split in splits}
        for split, found in splits.items():
            Path(files[split]).write_text("".join(json.dumps(row) + "\n" for row in found))
        data_of = {"dataset_path": "json", "dataset_kwargs": {"data_files": files}, "test_split": "test"}
        whole = {"task": name, "output_type": "multiple_choice", **data_of, **definition}
        (folder / f"{name}.yaml").write_text(json.dumps(whole))  # JSON is YAML

    if case == "trec":
        names = ["trec"]
        keep("trec", TREC, test=rows("trec.test")[:TREC_QUESTIONS])
    else:
        asked, shown = rows("mmlu_stem.test"), rows("mmlu_stem.dev")
        names = list(dict.fromkeys(row["subject"] for row in asked))[:SUBJECTS]
        for name in names:
            own = [row for row in asked if row["subject"] == name][:QUESTIONS]
            keep(name, MMLU, test=own, dev=[row for row in shown if row["subject"] == name])
    manager = TaskManager(include_path=[folder], include_defaults=False)
    return list(manager.load(names)["tasks"].values())


def subject_of(model: Any, tokenizer: Any) -> Subject:
    def absent(*_: Any) -> Any:
        raise AssertionError("lm-eval's tasks use the evaluated model alone")

    def work(title: str, unit: str) -> Any:
        return nullcontext(lambda done, total: None)

    return Subject(
        model=model,
        tokenizer=tokenizer,
        other=absent,
        work=work,
        sentence_encoder=absent,
        keep=absent,
        facts={},
    )


def measure(case: str, model: Any, tokenizer: Any, data: Path, rounds: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    evaluate: Any = simple_evaluate
    with tempfile.TemporaryDirectory() as place, quiet_lm_eval():
        tasks = tasks_of(case, data, Path(place))
        own = copy.deepcopy(model)  # as `emobench run` loads it
        optimize_for_inference(own)
        manager = TaskManager(include_defaults=False)

        def run(name: str, lm: Any) -> None:
            result = evaluate(model=lm, tasks=tasks, task_manager=manager, bootstrap_iters=0, log_samples=True)
            found[name] = [row for rows in result["samples"].values() for row in rows]

        def ours() -> None:
            with tempfile.TemporaryDirectory() as kept:
                answers = Path(kept) / "kept.jsonl"
                run("ours", MemoryModel(subject_of(own, tokenizer), LmEvalProtocol(task=case, batch=BATCH), answers))

        def peer() -> None:
            run("hflm", HFLM(pretrained=model, tokenizer=copy.deepcopy(tokenizer), batch_size=BATCH))

        arms: dict[str, Callable[[], None]] = {"ours": ours, "hflm": peer}
        for arm in arms.values():
            arm()
        seconds = alternating_seconds(arms, "cpu", rounds=rounds)
    values = {name: [[value for value, _ in row["filtered_resps"]] for row in rows] for name, rows in found.items()}
    answers = {name: [row.index(max(row)) for row in rows] for name, rows in values.items()}
    flat = {name: list(itertools.chain(*rows)) for name, rows in values.items()}
    return {
        "documents": len(values["ours"]),
        "variants": {name: median_and_spread(times) for name, times in seconds.items()},
        "hflm_over_ours": over(seconds["hflm"], seconds["ours"]),
        "same_answers": sum(a == b for a, b in zip(answers["ours"], answers["hflm"], strict=True)),
        "largest_difference": max(abs(a - b) for a, b in zip(flat["ours"], flat["hflm"], strict=True)),
    }


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--case", action="append", choices=("mmlu", "trec"))
    parser.add_argument("--model", action="append", help="Repeatable. Default: shallow, deep, smollm2-135m-instruct.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "speed" / "lm_eval-cpu.json")
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    texts = [row for name in ("trec.test", "mmlu_stem.test") for row in (given.data_dir / f"{name}.jsonl").open()]
    found: dict[str, Any] = {}
    for name in given.model or (*SHAPES, "smollm2-135m-instruct"):
        model, tokenizer = model_and_tokenizer(name, texts)
        for case in given.case or ("mmlu", "trec"):
            row = measure(case, model, tokenizer, given.data_dir, given.rounds)
            found.setdefault(name, {})[case] = row
            ratio = row["hflm_over_ours"]
            shown = f"{ratio['median']:6.2f} ({ratio['least']:.2f} to {ratio['most']:.2f})"
            print(f"{name:24}{case:6}{shown}, same answers {row['same_answers']} of {row['documents']}", flush=True)
    write({**origin(__file__, argv, "cpu"), "models": found}, given.out)


if __name__ == "__main__":
    main(sys.argv[1:])
