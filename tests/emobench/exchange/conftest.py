"""Results that lm-evaluation-harness itself wrote: two tiny random models on four local tasks and a group of two."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EVALUATE = '''
import json, sys
from pathlib import Path
import lm_eval, torch
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

root = Path(sys.argv[1])
words = ["<eos>", "<unk>", "Review", "It", "is", "good", "bad", "great", "awful", "positive", "negative", ".", "film"]
tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
heads = [("good", 1), ("bad", 0), ("great", 1), ("awful", 0)]
rows = [{"text": f"{w} film {p}", "label": k} for w, k in heads for p in ("film", "good", "bad", "great", "awful")]
(root / "rows.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
data = f"""dataset_path: json
dataset_kwargs: {{data_files: {{train: {root}/rows.jsonl, test: {root}/rows.jsonl}}}}
test_split: test
fewshot_split: train
fewshot_delimiter: "\\\\n"
"""
chosen = data + """output_type: multiple_choice
doc_to_choice: ["negative.", "positive."]
doc_to_target: label
"""
mean = "aggregation: mean, higher_is_better: true"
tasks = {
    "tiny_sent": chosen + f"""num_fewshot: 2
doc_to_text: "Review {{{{text}}}} It is"
metric_list: [{{metric: acc, {mean}}}, {{metric: acc_norm, {mean}}}]
metadata: {{version: 1.0}}
""",
    "tiny_two": chosen + f"""num_fewshot: 0
doc_to_text: "{{{{text}}}} is"
metric_list: [{{metric: acc, {mean}}}, {{metric: f1, aggregation: f1, higher_is_better: true}}]
metadata: {{version: 2}}
""",
    "tiny_gen": data + f"""output_type: generate_until
doc_to_text: "{{{{text}}}} It is"
doc_to_target: "positive"
generation_kwargs: {{max_gen_toks: 3, until: ["."], do_sample: false}}
filter_list:
  - {{name: first-word, filter: [{{function: regex, regex_pattern: "(a)"}}, {{function: take_first}}]}}
  - {{name: strict, filter: [{{function: take_first}}]}}
metric_list: [{{metric: exact_match, {mean}}}]
metadata: {{version: 1.0}}
""",
    "tiny_ppl": data + """output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: word_perplexity}, {metric: bits_per_byte}]
metadata: {version: 1.0}
""",
}
(root / "tasks").mkdir()
for name, text in tasks.items():
    (root / "tasks" / f"{name}.yaml").write_text(f"task: {name}\\n{text}")
(root / "tasks" / "tiny_group.yaml").write_text("""group: tiny_group
task: [tiny_sent, tiny_two]
aggregate_metric_list: [{metric: acc, weight_by_size: true}]
metadata: {version: 3.0}
""")
for seed, name in enumerate(("before", "after")):
    torch.manual_seed(seed)
    config = GPT2Config(vocab_size=len(words), n_positions=64, n_embd=16, n_layer=1, n_head=2, initializer_range=1.0)
    config.bos_token_id = config.eos_token_id = 0
    GPT2LMHeadModel(config).save_pretrained(root / name)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<eos>", unk_token="<unk>")
    fast.save_pretrained(root / name)
    arguments = f"pretrained={root}/{name}"
    tracker = EvaluationTracker(output_path=str(root / "out"))
    # The metadata that lm_eval's own command line gives to its task manager.
    manager = TaskManager(
        include_path=str(root / "tasks"), include_defaults=False, metadata={"pretrained": f"{root}/{name}"}
    )
    results = lm_eval.simple_evaluate(
        model="hf", model_args=arguments, tasks=["tiny_group", "tiny_gen", "tiny_ppl"], task_manager=manager,
        device="cpu", batch_size=8, bootstrap_iters=100, evaluation_tracker=tracker,
    )
    samples = results.pop("samples")
    tracker.save_results_aggregated(results=results, samples=samples)
    for task in results["configs"]:
        tracker.save_results_samples(task_name=task, samples=samples[task])
'''


@pytest.fixture(scope="session")
def lm_eval_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of lm_eval's --output_path, with a folder for each of two models."""
    root = tmp_path_factory.mktemp("lm-eval")
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(root / "hub"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", EVALUATE, root], capture_output=True, text=True, env=environment, cwd=root
    )
    assert done.returncode == 0, done.stderr
    return root / "out"


@pytest.fixture(scope="session")
def results_files(lm_eval_out: Path) -> list[Path]:
    """The results of the models `before` and `after`."""
    found = {path.parent.name.rpartition("__")[2]: path for path in lm_eval_out.rglob("results_*.json")}
    return [found["before"], found["after"]]
