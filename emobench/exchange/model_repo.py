"""A trained model as a model repository of the Hugging Face hub: its files, a card, and its results.

All files are written to a folder first. Results have the hub's own format (`.eval_results/*.yaml`, for tasks whose data
come from a data set of the hub), and that of Every Eval Ever.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from emobench.core.errors import ConfigError
from emobench.core.files import new_folder
from emobench.exchange import every_eval_ever
from emobench.exchange.sharing import hub_errors
from emobench.exchange.tables import model_card
from emobench.leaderboard.entry import Entry
from emobench.models.convert import COPIED
from emobench.report.site.runs import DATA_SOURCE

REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
CARD = "README.md"
WEIGHTS = "*.safetensors"


def check_name(repo: str) -> str:
    """Return the name of a repository; raises ConfigError unless it is OWNER/NAME."""
    if not REPO.fullmatch(repo) or len(repo) > 96:
        raise ConfigError(f"--push {repo}: expected the name of a model repository of the hub, as OWNER/NAME.")
    return repo


def write_repo(entry: Entry, seed: int, model: Path, folder: Path) -> None:
    """Write the repository of one seed's model, which is in the folder `model`, to `folder`, in place of an older one.

    Of the model's files, weights in safetensors, configuration and tokenizer are taken. Raises StorageError.
    """
    shutil.rmtree(folder, ignore_errors=True)
    with new_folder(folder) as partial:
        for pattern in (WEIGHTS, *COPIED):
            for file in model.glob(pattern):
                if file.is_file():
                    shutil.copyfile(file, partial / file.name)
        for name, text in _texts(entry, seed):
            path = partial / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def _texts(entry: Entry, seed: int) -> Iterator[tuple[str, str]]:
    """Yield the names and contents of the files that are about an entry."""
    yield CARD, model_card(entry)
    for task in entry.protocols:
        result = _result(entry, task, seed)
        if result is not None:
            yield f".eval_results/{task}.yaml", yaml.safe_dump([result], sort_keys=False, allow_unicode=True)
    for name, text in every_eval_ever.files(entry).items():
        yield f"every_eval_ever/{name}", text


def _result(entry: Entry, task: str, seed: int) -> dict[str, Any] | None:
    """Return the main metric of a task in the hub's format; None if its data are not from the hub."""
    source = DATA_SOURCE.search(entry.provenance.data.get(f"{task}.test", ""))
    metric = _main_metric(entry, task)
    if source is None or metric is None:
        return None
    dataset = {"id": source[1], "task_id": task, "revision": source[2]}
    summary = entry.metrics[metric]
    notes = f"{metric.partition('/')[2]} ({summary.unit}), protocol {entry.protocols[task]}, emobench entry {entry.id}"
    value = summary.values[entry.seeds.index(seed)]
    return {"dataset": dataset, "value": value, "date": entry.provenance.created, "notes": notes}


def _main_metric(entry: Entry, task: str) -> str | None:
    """Return the metric of the primary endpoint for a task, or else its first one that has a better direction."""
    primary = f"{task}/{(entry.primary or '').partition('/')[2]}"
    if primary in entry.metrics:
        return primary
    for name, summary in entry.metrics.items():
        if name.startswith(f"{task}/") and summary.higher_is_better is not None:
            return name
    return None


def send(folder: Path, repo: str) -> str:
    """Upload a folder to a model repository, which is created if it does not exist; return its address.

    Raises DataError where the hub cannot be reached or refuses: the folder stays.
    """
    import huggingface_hub

    advice = f"Check `hf auth whoami` and the network, and send the files with: {upload_command(folder, repo)}"
    with hub_errors(repo, advice):
        api = huggingface_hub.HfApi()
        address = api.create_repo(repo, exist_ok=True)
        api.upload_folder(repo_id=repo, folder_path=folder, commit_message="Model with its card and results")
    return str(address)


def upload_command(folder: Path, repo: str) -> str:
    return shlex.join(["hf", "upload", repo, str(folder)])
