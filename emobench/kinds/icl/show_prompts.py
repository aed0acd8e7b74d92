"""Prompts of kind `icl` for a reader: what the model sees, how labels score, and the task for lm-evaluation-harness."""

from __future__ import annotations

import bisect
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from emobench.core.errors import ConfigError
from emobench.data.labelled import LabelledData
from emobench.kinds.icl.answers import UNITS, ExampleLosses, answers, label_scores
from emobench.kinds.icl.evaluate import drafts_of, make_scorer, prompts_of, score_prompts
from emobench.kinds.icl.prompts import Draft, ExamplePrompts, tokenize
from emobench.kinds.icl.retrieval.shots import check_pool
from emobench.kinds.icl.rules import IclProtocol
from emobench.kinds.interface import Subject
from emobench.kinds.views import Piece, ShownLabel, ShownPrompt
from emobench.tasks.spec import Task

FIRST_IDS = 8
LABEL, BOS = "label", "BOS"
"""Parts of a prompt."""
BOS_ARGUMENTS = {"tokenizer": "", "one": ",add_bos_token=True", "none": ",add_bos_token=False"}
"""Model arguments with which lm-eval begins a prompt as the protocol asks."""
TOO_LONG = {"drop_shots": "leaves the least similar shots out", "cut_right": "cuts it on the right, as OpenICL does"}
check_export = check_pool


def unit(task: Task) -> str:
    """Return the unit of a label's loss."""
    return UNITS[task.protocol_as(IclProtocol).scorer]


def show(subject: Subject, task: Task, data: LabelledData, count: int, ids: Sequence[str]) -> list[ShownPrompt]:
    """Return the first prompts, or those of the examples whose ids begin so, with the losses of each label."""
    rules = task.protocol_as(IclProtocol)
    drafts = _chosen(drafts_of(subject, task, data), count, ids, task.name)
    prompts = prompts_of(subject, task, drafts)
    scorer = make_scorer(subject, rules, labels_only=False)
    shown = {}
    with subject.work(f"score {task.name}", "prompts"):
        for batch in scorer.batches(prompts):
            pairs = [(drafts[i], prompts[i]) for i in batch]
            samples = score_prompts(scorer, subject, task, pairs)
            for (draft, prompt), sample in zip(pairs, samples, strict=True):
                shown[prompt.id] = _prompt(rules, draft, prompt, sample, subject.tokenizer)
    return [shown[prompt.id] for prompt in prompts]


def export(subject: Subject, task: Task, data: LabelledData, folder: Path) -> list[Path]:
    """Write `emobench_<task>.yaml` and `emobench_<task>.test.jsonl` for lm-evaluation-harness; return the files.

    lm-eval cannot retrieve shots for the example that it asks about, so the rows hold those of a run as text.
    """
    rules = task.protocol_as(IclProtocol)
    drafts = drafts_of(subject, task, data)
    name = f"emobench_{task.name.replace('-', '_')}"
    rows = folder / f"{name}.test.jsonl"
    definition = folder / f"{name}.yaml"
    lines = []
    for draft in drafts:
        *shots, (_, query), (_, after) = draft.parts(rules)
        ice = ""
        for _, text in shots:
            ice += text
        row: dict[str, Any] = {
            "id": draft.example.id,
            "ice": ice,
            "ice_ids": [shot.id for shot in draft.shots],
            "query": query,
        }
        row |= {"choices": [text + after for text in rules.texts], "gold": rules.ties.index(draft.example.label)}
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    rows.write_text("".join(lines), encoding="utf-8")
    definition.write_text(_yaml(task, rules, data, name, rows.resolve()), encoding="utf-8")
    return [definition, rows]


def _yaml(task: Task, rules: IclProtocol, data: LabelledData, name: str, rows: Path) -> str:
    installed = version("emobench")
    bos = BOS_ARGUMENTS[rules.bos]
    too_long = TOO_LONG[rules.too_long]
    head = f"""\
# {task.name} of emobench {installed}: protocol {task.protocol_id}, data {data.fingerprint[:19]}.
#
#   lm_eval run --model hf --model_args pretrained=MODEL{bos} --include_path DIR --tasks {name}
#
# Each row holds its own shots as text (`ice`, of the examples `ice_ids`), so that num_fewshot is 0.
# lm-eval answers with the choice of the highest log-likelihood: emobench's scorer=label (this protocol has
# scorer={rules.scorer}; `prompt`, the mean loss of the whole prompt, is beyond lm-eval's YAML).
# A prompt that is too long for the model is cut on the left; emobench {too_long}.
# Moved to another folder, the rows need their new place in data_files.
"""
    content = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(rows)}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "num_fewshot": 0,
        "doc_to_text": "{{ice}}{{query}}",
        "doc_to_choice": "choices",
        "doc_to_target": "gold",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
        "metadata": {"version": task.version},
    }
    return head + yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def _chosen(drafts: Sequence[Draft], count: int, ids: Sequence[str], task: str) -> list[Draft]:
    if not ids:
        return list(drafts[:count])
    chosen = [draft for draft in drafts if draft.example.id.startswith(tuple(filter(None, ids)))]
    if not chosen:
        raise ConfigError(
            f"--example {', '.join(ids)}: no test example of {task} has an id that begins so; `emobench answers` names "
            f"them, such as {drafts[0].example.id}."
        )
    return chosen


def _prompt(
    rules: IclProtocol, draft: Draft, prompt: ExamplePrompts, sample: ExampleLosses, tokenizer: Any
) -> ShownPrompt:
    kept = Draft(example=draft.example, shots=draft.shots[: len(prompt.shots)])
    (answer,) = answers(rules, [sample], {})
    place = rules.ties.index(answer.right)
    labels = []
    losses, posteriors = label_scores(rules, sample)
    for i, name in enumerate(rules.ties):
        posterior = posteriors[i]
        tokens = len(prompt.tokens[i])
        label = ShownLabel(name=name, text=rules.labels[name], loss=losses[i], posterior=posterior, tokens=tokens)
        labels.append(label)
    ids, shown, count = prompt.tokens[place], [], 0
    for piece in pieces(kept, rules, tokenizer, place):
        count += piece.token is not None
        if count <= len(ids):
            shown.append(piece)
    text, _ = kept.texts(rules)[place]
    shots = [(shot.id, shot.label) for shot in kept.shots]
    facts: dict[str, Any] = {"id": prompt.id, "right": answer.right, "answer": answer.answer}
    facts |= {
        "tied": answer.margin == 0,
        "text": text,
        "tokens": len(ids),
        "first_ids": ids[:FIRST_IDS],
        "dropped": prompt.dropped,
        "cut": prompt.cut,
    }
    return ShownPrompt(shots=tuple(shots), labels=tuple(labels), pieces=tuple(shown), **facts)


def pieces(draft: Draft, rules: IclProtocol, tokenizer: Any, place: int) -> list[Piece]:
    """Return the prompt of one label, by its place in `ties`, token by token: the texts, but for BOS, joined.

    A token belongs to the part of its last character, so that one that reaches into the label is the label's. Of a
    character of several tokens the first has the text. Without offsets the pieces are the parts, and of no token.
    """
    *parts, _ = draft.parts(rules)
    whole, begin = draft.texts(rules)[place]
    parts.append((LABEL, whole[begin:]))
    (ids,), offsets = tokenize([whole], tokenizer, rules)
    if offsets is None:
        return [Piece(part=name, text=text, token=None) for name, text in parts if text]
    ends = []
    end = 0
    for _, text in parts:
        end += len(text)
        ends.append(end)
    split = []
    done = 0

    def add(start: int, end: int, token: int | None) -> None:
        name, _ = parts[bisect.bisect_right(ends, end - 1)]
        split.append(Piece(part=name, text=whole[start:end], token=token))

    for token, (start, end) in zip(ids, offsets[0], strict=True):
        if start == end:
            split.append(Piece(part=BOS, text=tokenizer.convert_ids_to_tokens(token), token=token))
            continue
        if start > done:
            add(done, start, None)
        add(max(start, done), end, token)
        done = max(done, end)
    if done < len(whole):
        split.append(Piece(part=LABEL, text=whole[done:], token=None))
    return split
