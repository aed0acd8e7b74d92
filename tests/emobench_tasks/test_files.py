"""The built-in recipes, tasks and suites hold the paper's numbers (EMO, section 4.1.1) where they say so."""

from __future__ import annotations

from typing import Any

import pytest

from emobench.core.settings import to_plain
from emobench.data.instruction_sets import CONVERSATIONS, source_of
from emobench.data.labelled import GENERATED
from emobench.data.sources import CORPORA
from emobench.kinds.icl.retrieval.retriever import RETRIEVERS
from emobench.models.catalog import CATALOG
from emobench.registry import find_recipe, find_suite, find_task, load_kind, objective_names, suite_names, task_names
from emobench.tasks.spec import BY_KIND


def test_the_recipe_of_the_paper() -> None:
    """AdamW, 5e-5, batch 32, 3 epochs, blocks of 256, linear decay; no warm-up, weight decay or clipping."""
    stated: dict[str, Any] = {
        "epochs": 3.0,
        "batch": 32,
        "learning_rate": 5e-5,
        "schedule": "linear",
        "warmup": 0.0,
        "weight_decay": 0.0,
        "clip": 0.0,
        "max_length": 256,
        "packing": "blocks",
        "select": "mle",
        "lora": False,
        "precision": "auto",
        "mask_until": "",
        "max_tokens": None,
    }
    found = to_plain(find_recipe("lm-finetune"))
    assert {name: found[name] for name in stated} == stated


def test_the_protocols_of_lm_quick() -> None:
    """Prefixes of 20 tokens, 80 more sampled without truncation; the paper samples five times, and all texts."""
    for name in ("quick", "paper"):
        rules = to_plain(find_task("lm-quick", protocol=name).protocol)
        assert (rules["unit"], rules["prefix"], rules["continuation"], rules["bos"]) == ("tokens", 20, 80, "none")
    paper = to_plain(find_task("lm-quick", protocol="paper").protocol)
    assert (paper["sampling"]["samples"], paper["limit"], paper["test_blocks"]) == (5, None, None)
    assert (paper["mauve"]["featurizer"], paper["mauve"]["pooling"]) == ("gpt2-large", "auto")
    assert find_task("lm-quick").protocol_name == "quick"


@pytest.mark.parametrize("name", ["wikitext2", "wikitext103", "webtext", "ptb", "writingprompts", "ag_news"])
def test_the_official_code_looks_at_the_first_lines(name: str) -> None:
    """4,000 test lines, of WebText and WritingPrompts 5,000 (test_utils.py)."""
    rules = to_plain(find_task(f"generation/{name}", protocol="official-code").protocol)
    assert rules["first_texts"] == (5000 if name in ("webtext", "writingprompts") else 4000)


def test_the_embedded_default() -> None:
    suite = find_suite("oracle-language")
    assert set(suite.objectives) == {"mle", "tailr", "mixce", "emo"}
    assert len(suite.seeds) >= 2
    assert suite.model == "tiny-oracle"
    assert [find_recipe(run.recipe, run.settings).corpus for run in suite.runs] == ["oracle-target"]
    assert find_recipe("oracle-pretrain").corpus == "oracle-source"


@pytest.mark.parametrize("name", suite_names())
def test_a_suite_names_what_there_is(name: str) -> None:
    suite = find_suite(name)
    assert set(suite.objectives) <= set(objective_names())
    assert suite.model is None or suite.model in CATALOG
    assert suite.description.endswith(".")
    for run in suite.runs:
        corpus = find_recipe(run.recipe, run.settings).corpus
        assert corpus in {*CORPORA, *CONVERSATIONS, "responses"} or source_of(corpus)  # "responses" is the user's own
        assert {task for task in run.tasks if BY_KIND not in task} <= set(task_names())


@pytest.mark.parametrize("name", task_names())
def test_a_task_is_of_a_kind_that_can_be_evaluated(name: str) -> None:
    task = find_task(name)
    assert task.description.endswith(".")
    kind = load_kind(task.kind)
    assert callable(kind.runtime.generate)
    if task.dataset is not None:
        assert task.dataset.repo or task.dataset.name == GENERATED
        assert task.protocol.retriever in RETRIEVERS.names()
    elif task.kind not in ("lm_eval", "instruct"):  # these have sources of their own
        assert task.corpus in CORPORA
        for auxiliary in kind.key_facts(task, None).models.values():
            assert auxiliary.name == "pretrained" or auxiliary.name in CATALOG
