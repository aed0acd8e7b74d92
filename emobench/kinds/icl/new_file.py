"""The first version of a classification task's file, for its author to change."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


def task_file(name: str, dataset: Mapping[str, Any]) -> str:
    """Return the YAML of a task on a data set, as `emobench.data.hub_corpus` or `labelled` describes it."""
    (field,) = dataset.get("fields", ["text"])
    labels = {one: one.replace("_", " ").lower() for one in dataset["classes"]}
    protocol = {"template": f"{{{field}}} This is {{label}}.", "labels": labels, "retriever": "bm25"}  # needs no model
    if field != "text":
        protocol["query"] = [field]
    content = {
        "name": name,
        "kind": "icl",
        "version": 1,
        "description": f"The classes of {dataset.get('repo') or Path(dataset['path']).name}, {len(labels)} of them.",
        "dataset": dict(dataset),
        "protocols": {"own": protocol},
    }
    head = "# Raise `version` when the meaning changes. `emobench settings icl` explains the rules of a protocol.\n"
    return head + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
