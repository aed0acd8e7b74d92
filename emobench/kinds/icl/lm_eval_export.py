"""A task as lm-evaluation-harness runs it: its prompts with their shots as JSON Lines, and the YAML that reads them.

lm-eval cannot retrieve shots for the example that it asks about, so that they are found before, and are text here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from emobench.data.labelled import LabelledData
from emobench.kinds.icl.prompts import Draft
from emobench.kinds.icl.rules import IclProtocol
from emobench.tasks.spec import Task

BOS = {"tokenizer": "", "one": ",add_bos_token=True", "none": ",add_bos_token=False"}
"""What makes lm-eval begin a prompt as the protocol asks."""
TOO_LONG = {"drop_shots": "leaves the least similar shots out", "cut_right": "cuts it on the right, as OpenICL does"}


def write_lm_eval_task(task: Task, data: LabelledData, drafts: Sequence[Draft], folder: Path) -> list[Path]:
    """Write `emobench_<task>.yaml` and `emobench_<task>.test.jsonl`; return the files."""
    rules = task.protocol_as(IclProtocol)
    name = f"emobench_{task.name.replace('-', '_')}"
    rows, yaml = folder / f"{name}.test.jsonl", folder / f"{name}.yaml"
    with rows.open("w", encoding="utf-8") as file:
        for draft in drafts:
            file.write(json.dumps(lm_eval_row(rules, draft), ensure_ascii=False) + "\n")
    yaml.write_text(_yaml(task, rules, data, name, rows.resolve()), encoding="utf-8")
    return [yaml, rows]


def lm_eval_row(rules: IclProtocol, draft: Draft) -> dict[str, object]:
    """Return one test example: the text before it, itself, its choices and the place of the right one."""
    *shots, (_, query), (_, after) = draft.parts(rules)
    return {
        "id": draft.example.id,
        "ice": "".join(text for _, text in shots),
        "ice_ids": [shot.id for shot in draft.shots],
        "query": query,
        "choices": [text + after for text in rules.texts],
        "gold": rules.ties.index(draft.example.label),
    }


def _yaml(task: Task, rules: IclProtocol, data: LabelledData, name: str, rows: Path) -> str:
    return f"""\
# {task.name} of emobench {version("emobench")}: protocol {task.protocol_id}, data {data.fingerprint[:19]}.
#
#   lm_eval run --model hf --model_args pretrained=MODEL{BOS[rules.bos]} --include_path DIR --tasks {name}
#
# Each row holds its own shots as text (`ice`, of the examples `ice_ids`), so that num_fewshot is 0.
# lm-eval answers with the choice of the highest log-likelihood: emobench's scorer=label (this protocol has
# scorer={rules.scorer}; `prompt`, the mean loss of the whole prompt, is beyond lm-eval's YAML).
# A prompt that is too long for the model is cut on the left; emobench {TOO_LONG[rules.too_long]}.
# Moved to another folder, the rows need their new place in data_files.
task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {json.dumps(str(rows), ensure_ascii=False)}
test_split: test
output_type: multiple_choice
num_fewshot: 0
doc_to_text: "{{{{ice}}}}{{{{query}}}}"
doc_to_choice: choices
doc_to_target: gold
target_delimiter: ""
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
metadata:
  version: {task.version}
"""
