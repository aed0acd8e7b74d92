"""A model on bytes whose answers vary, made-up data in MMLU's format, and tasks of one's own."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from emobench.kinds.interface import Subject
from emobench.kinds.lm_eval.kind import named_task
from emobench.tasks.spec import Task

SUBJECTS = ("anatomy", "astronomy", "virology")
COUNTS = (9, 7, 4)
"""Questions of each subject; different, so that a mean over subjects is not one over questions."""

OWN = {
    "own_three.yaml": """group: own_three
task: [mmlu_anatomy, mmlu_astronomy, mmlu_virology]
aggregate_metric_list: [{metric: acc, weight_by_size: true}]
metadata: {version: 1}
""",
    "own_alike.yaml": """group: own_alike
task: [mmlu_anatomy, mmlu_virology]
aggregate_metric_list: [{metric: acc, weight_by_size: false}]
metadata: {version: 1}
""",
    "own_loose.yaml": "group: own_loose\ntask: [own_choice, mmlu_virology]\n",
    "own_choice.yaml": """task: own_choice
dataset_path: json
dataset_kwargs: {data_files: {train: FOLDER/rows.jsonl, test: FOLDER/rows.jsonl}}
test_split: test
fewshot_split: train
output_type: multiple_choice
doc_to_text: !function words.text
doc_to_choice: ["bad", "very good"]
doc_to_target: label
num_fewshot: 2
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_norm, aggregation: mean, higher_is_better: true}
  - {metric: f1, aggregation: f1, higher_is_better: true}
metadata: {version: 1}
""",
    "own_free.yaml": """task: own_free
dataset_path: json
dataset_kwargs: {data_files: {test: FOLDER/rows.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{text}} is"
doc_to_target: "good"
generation_kwargs: {max_gen_toks: 4, until: ["."], do_sample: false}
filter_list:
  - {name: strict, filter: [{function: take_first}]}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
""",
    "own_text.yaml": """task: own_text
dataset_path: json
dataset_kwargs: {data_files: {test: FOLDER/rows.jsonl}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: word_perplexity}, {metric: bits_per_byte}]
""",
    "own_unsafe.yaml": "task: own_unsafe\nunsafe_code: true\ndataset_path: json\noutput_type: generate_until\n",
}


@pytest.fixture(scope="session", autouse=True)
def own_cache_of_datasets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """datasets knows a folder again by its name: what other tests left in the user's cache would be read."""
    import datasets

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        yield


@pytest.fixture(scope="session", name="questions")
def _questions() -> Callable[..., list[dict[str, Any]]]:
    return make_questions


def make_questions(subject: str, count: int) -> list[dict[str, Any]]:
    generator = random.Random(subject)
    words = ["heart", "moon", "virus", "bone", "star", "cell", "orbit", "nerve"]
    return [
        {
            "question": f"Which {generator.choice(words)} is number {i} of {subject}?",
            "subject": subject,
            "choices": [f"the {word} {i}" for word in generator.sample(words, 4)],
            "answer": generator.randrange(4),
        }
        for i in range(count)
    ]


@pytest.fixture(scope="session")
def mmlu_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three subjects, laid out like the hub's repository: Parquet by subject and split, named by a README."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("mmlu")
    lines = ["---", "configs:"]
    for subject, count in zip(SUBJECTS, COUNTS, strict=True):
        (folder / subject).mkdir()
        lines += [f"- config_name: {subject}", "  data_files:"]
        rows = make_questions(subject, 5 + count)
        for split, part in (("dev", rows[:5]), ("test", rows[5:])):
            pq.write_table(pa.Table.from_pylist(part), folder / subject / f"{split}-00000-of-00001.parquet")
            lines.append(f"  - {{split: {split}, path: {subject}/{split}-*.parquet}}")
    (folder / "README.md").write_text("\n".join([*lines, "---", ""]))
    return folder


@pytest.fixture(scope="session")
def own_tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of YAML tasks, with a function and rows beside them."""
    folder = tmp_path_factory.mktemp("own")
    for name, text in OWN.items():
        (folder / name).write_text(text.replace("FOLDER", str(folder)))
    (folder / "words.py").write_text("def text(doc):\n    return f\"Review: {doc['text']} It is\"\n")
    rows = [{"text": f"film {i} of {i * i}", "label": int(i % 3 == 0)} for i in range(10)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="session")
def byte_model() -> tuple[Any, Any]:
    """A GPT-2 of one layer on bytes, with weights so wide that its answers vary; and its tokenizer."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({s: i for i, s in enumerate([*symbols, "<eos>"])}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<eos>", eos_token="<eos>")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sizes = {"n_positions": 1024, "n_embd": 32, "n_layer": 1, "n_head": 2, "initializer_range": 0.5}
        model = GPT2LMHeadModel(GPT2Config(vocab_size=257, bos_token_id=256, eos_token_id=256, **sizes)).eval()
    return model, fast


def subject_of(model: Any, tokenizer: Any) -> Subject:
    """A subject that has a model and a tokenizer, and nothing else."""

    def absent(*_: Any) -> Any:
        raise AssertionError("lm-eval's tasks use the evaluated model alone")

    def work(title: str, unit: str) -> Any:
        return nullcontext(lambda done, total: None)

    return Subject(model, tokenizer, other=absent, work=work, sentence_encoder=absent, keep=absent, facts={})


@pytest.fixture
def subject(byte_model: tuple[Any, Any]) -> Subject:
    return subject_of(*byte_model)


@pytest.fixture
def evaluated(byte_model: tuple[Any, Any], tmp_path: Path) -> Callable[..., Any]:
    """What evaluates a task of lm-eval through emobench: its scores, what was not, its data and its folder."""

    def run(name: str, models: tuple[Any, Any] = byte_model, **rules: Any) -> Any:
        from emobench.kinds.lm_eval import evaluate as kind

        task: Task = named_task(name, rules)
        data = kind.load(task, data_dirs=(), offline=True)
        subject = subject_of(*models)
        kind.generate(subject, task, data, tmp_path)
        return kind.score(subject, task, data, tmp_path), data, tmp_path

    return run
