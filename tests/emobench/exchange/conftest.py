"""Results that lm-evaluation-harness itself wrote: two tiny random models on four local tasks and a group of two."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

WORDS = ["<eos>", "<unk>", "Review", "It", "is", "good", "bad", "great", "awful", "positive", "negative", ".", "film"]
DATA = """dataset_path: json
dataset_kwargs: {data_files: {train: FOLDER/rows.jsonl, test: FOLDER/rows.jsonl}}
test_split: test
fewshot_split: train
fewshot_delimiter: "\\n"
"""
CHOSEN = f"""{DATA}output_type: multiple_choice
doc_to_choice: ["negative.", "positive."]
doc_to_target: label
"""
MEAN = "aggregation: mean, higher_is_better: true"
TASKS = {
    "tiny_sent": f"""{CHOSEN}num_fewshot: 2
doc_to_text: "Review {{{{text}}}} It is"
metric_list: [{{metric: acc, {MEAN}}}, {{metric: acc_norm, {MEAN}}}]
metadata: {{version: 1.0}}
""",
    "tiny_two": f"""{CHOSEN}num_fewshot: 0
doc_to_text: "{{{{text}}}} is"
metric_list: [{{metric: acc, {MEAN}}}, {{metric: f1, aggregation: f1, higher_is_better: true}}]
metadata: {{version: 2}}
""",
    "tiny_gen": f"""{DATA}output_type: generate_until
doc_to_text: "{{{{text}}}} It is"
doc_to_target: "positive"
generation_kwargs: {{max_gen_toks: 3, until: ["."], do_sample: false}}
filter_list:
  - {{name: first-word, filter: [{{function: regex, regex_pattern: "(a)"}}, {{function: take_first}}]}}
  - {{name: strict, filter: [{{function: take_first}}]}}
metric_list: [{{metric: exact_match, {MEAN}}}]
metadata: {{version: 1.0}}
""",
    "tiny_ppl": f"""{DATA}output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list: [{{metric: word_perplexity}}, {{metric: bits_per_byte}}]
metadata: {{version: 1.0}}
""",
}
GROUP = """group: tiny_group
task: [tiny_sent, tiny_two]
aggregate_metric_list: [{metric: acc, weight_by_size: true}]
metadata: {version: 3.0}
"""


def evaluate(root: Path) -> None:
    """Evaluate both models as lm_eval's own command line does."""
    import lm_eval
    import torch
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    heads = [("good", 1), ("bad", 0), ("great", 1), ("awful", 0)]
    rows = [{"text": f"{w} film {p}", "label": k} for w, k in heads for p in ("film", "good", "bad", "great", "awful")]
    (root / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (root / "tasks").mkdir()
    for name, text in TASKS.items():
        (root / "tasks" / f"{name}.yaml").write_text(f"task: {name}\n{text.replace('FOLDER', str(root))}")
    (root / "tasks" / "tiny_group.yaml").write_text(GROUP)
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<eos>", unk_token="<unk>")
    config = GPT2Config(vocab_size=len(WORDS), n_positions=64, n_embd=16, n_layer=1, n_head=2, initializer_range=1.0)
    config.bos_token_id = config.eos_token_id = 0
    for seed, name in enumerate(("before", "after")):
        torch.manual_seed(seed)
        GPT2LMHeadModel(config).save_pretrained(root / name)
        fast.save_pretrained(root / name)
        given = {"pretrained": f"{root}/{name}"}
        manager = TaskManager(include_path=str(root / "tasks"), include_defaults=False, metadata=given)
        tracker = EvaluationTracker(output_path=str(root / "out"))
        results = lm_eval.simple_evaluate(
            model="hf", model_args=f"pretrained={root}/{name}", tasks=["tiny_group", "tiny_gen", "tiny_ppl"],
            task_manager=manager, device="cpu", batch_size=8, bootstrap_iters=10, evaluation_tracker=tracker,
        )  # fmt: skip
        assert results is not None
        samples = results.pop("samples")
        tracker.save_results_aggregated(results=results, samples=samples)
        for task in results["configs"]:
            tracker.save_results_samples(task_name=task, samples=samples[task])


@pytest.fixture(scope="session")
def results_files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The results of the models `before` and `after`."""
    root = tmp_path_factory.mktemp("lm-eval")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("DISABLE_MULTIPROC", "1")
        patch.setattr("datasets.config.HF_DATASETS_CACHE", root / "cache")
        evaluate(root)
    paths = {path.parent.name.rpartition("__")[2]: path for path in (root / "out").rglob("results_*.json")}
    return [paths["before"], paths["after"]]
