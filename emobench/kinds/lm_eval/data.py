"""A task of lm-evaluation-harness with its data, and the identity of both: the examples that are read, and the rules.

The rules are lm-eval's own resolved configurations and the Python next to them; the examples are those that lm-eval
builds its prompts from, so that a copy on disk and the hub's own data are known to be the same.

A task's files are found by name in a second, without parsing all 14,000 of them.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from textwrap import shorten
from typing import Any

import huggingface_hub
import lm_eval.tasks
from datasets import config as datasets_config
from lm_eval.tasks import TaskManager
from lm_eval.tasks._index import TaskIndex
from lm_eval.tasks._yaml_loader import load_yaml

from emobench.core.errors import ConfigError, DataError, EmobenchError, Missing, UserError
from emobench.core.reading import expand_home, is_folder
from emobench.core.settings import content_hash, file_sha256
from emobench.kinds.lm_eval.kind import LmEvalProtocol
from emobench.kinds.lm_eval.model import quiet_lm_eval
from emobench.models.folder import file_digest
from emobench.models.hub import Repo

FILES = {".parquet": "parquet", ".jsonl": "json", ".json": "json", ".csv": "csv"}
TASKS = Path(lm_eval.tasks.__file__).parent
_INCLUDE = re.compile(r"""^["']?include["']?\s*:\s*["']?([^"'\s#]+)""", re.MULTILINE)
_NAMES = re.compile(r"""^["']?(?:task|group|tag)["']?\s*:\s*["']?([\w.+-]+)""", re.MULTILINE)
_PLACES = ("dataset_path", "dataset_name", "dataset_kwargs")
_SHARD = re.compile(r"(?<=.)(-\d+-of-\d+|-\d+)$")
"""At the end of a split's name."""


@dataclass(frozen=True)
class LmEvalData:
    """A task, group or tag that was built on its data; `built` is what lm-eval's evaluator takes."""

    built: list[Any]
    generation: Mapping[str, Mapping[str, Any] | None]
    """The generation settings of each task; None for a task of likelihoods."""
    examples: int
    fingerprint: str
    provenance: Mapping[str, str]

    def __len__(self) -> int:
        return self.examples


def load_tasks(task: str, rules: LmEvalProtocol, *, offline: bool) -> LmEvalData:
    """Find a task and read its data.

    Raises ConfigError for a task that cannot be run here, DataError for its data, and Missing if it cannot be built
    offline and no folder has its data.
    """
    with quiet_lm_eval(), _network(offline), tempfile.TemporaryDirectory() as folder:
        manager = find_manager(rules.task, rules.include)
        index = manager.task_index
        entries = [index[name] for name in reached(rules.task, manager) if name in index]
        _refuse(task, entries)
        code = _code(entries)
        origins = _place_data(rules, entries, Path(folder), offline=offline)
        try:
            loaded = manager.load([rules.task])
        except EmobenchError:
            raise
        except Exception as error:  # of lm-eval, of datasets, or of Python code of the task
            raise _unbuilt(task, rules, error, offline) from error
        return _identified(task, rules, loaded, origins, code)


@contextmanager
def _network(offline: bool) -> Iterator[None]:
    """Keep datasets, which asks the hub by itself, from the network. Both libraries read these again at each call."""
    before = datasets_config.HF_HUB_OFFLINE, huggingface_hub.constants.HF_HUB_OFFLINE
    try:
        if offline:
            datasets_config.HF_HUB_OFFLINE = huggingface_hub.constants.HF_HUB_OFFLINE = True
        yield
    finally:
        datasets_config.HF_HUB_OFFLINE, huggingface_hub.constants.HF_HUB_OFFLINE = before


def _refuse(task: str, entries: Iterable[Any]) -> None:
    for entry in entries:
        config = entry.cfg or {}
        if config.get("unsafe_code"):
            raise ConfigError(
                f"Task {task}: {entry.name} executes code that the model writes, which emobench does not; run it "
                "with `lm_eval run --confirm_run_unsafe_code` on a machine that is made for it."
            )
        if config.get("doc_to_image") or config.get("doc_to_audio"):
            raise ConfigError(f"Task {task}: {entry.name} shows images or audio, and a language model reads text.")


def _place_data(rules: LmEvalProtocol, entries: Iterable[Any], folder: Path, *, offline: bool) -> list[str]:
    """Point each task's definition at the data that is to be read; return where these are from."""
    origins = set()
    for number, entry in enumerate(entries):
        if entry.kind.name != "TASK" or entry.yaml_path is None:
            continue
        config = entry.cfg or {}
        changes, origin = _place(rules, config, offline=offline)
        origins.add(origin)
        if changes:
            file = folder / f"{number}.yaml"
            # JSON is YAML. lm-eval builds the task from this file, and the rest of it from the one that it includes.
            file.write_text(json.dumps({"include": str(entry.yaml_path), "task": entry.name, **changes}))
            entry.yaml_path, entry.cfg = file, {**config, **changes}
    return sorted(origins)


def _place(rules: LmEvalProtocol, config: Mapping[str, Any], *, offline: bool) -> tuple[dict[str, Any], str]:
    """Return the changes of a task's configuration for its data, and the origin of the data."""
    if config.get("custom_dataset") or config.get("dataset_path") is None:
        return {}, "local: code of the task"
    path = str(config.get("dataset_path"))
    name = config.get("dataset_name")
    options = dict(config.get("dataset_kwargs") or {})
    options.pop("trust_remote_code", None)
    if rules.data:
        return _local(rules.data, name), f"local: {Path(rules.data).name}"
    if Path(path).is_dir():
        return {"dataset_kwargs": {**options, "cache_dir": _cache_dir(Path(path))}}, "local"
    if path in FILES.values() or path in ("text", "arrow") or Path(path).exists():
        return {}, "local"
    asked = str(options.get("revision", "main"))
    try:
        commit = Repo(path, "dataset", offline).resolve(asked)
        if not offline:
            return {"dataset_kwargs": {**options, "revision": commit}}, f"hub: {path}@{commit}"
        # Without a network datasets reads a folder, and no hub id that was only downloaded.
        copy = Repo(path, "dataset", offline=True).fetch(commit, ["*"])
        options.pop("revision", None)
        return {"dataset_path": str(copy), "dataset_kwargs": options}, f"hub: {path}@{commit}"
    except (DataError, Missing):
        if not offline:
            raise
        return {}, f"hub: {path}"  # the cache of datasets may hold it, of whichever commit


def _local(data: str, name: str | None) -> dict[str, Any]:
    """Return the configuration that reads a folder: by its README where it has one, else <name>/<split>.<suffix>."""
    folder = expand_home(data).resolve()
    if not is_folder(folder):
        raise DataError(f"--set lm_eval.data={data}: there is no such folder; expected one laid out like the hub's.")
    if (folder / "README.md").is_file():
        return {"dataset_path": str(folder), "dataset_kwargs": {"cache_dir": _cache_dir(folder)}}
    place, files = folder / (name or ""), dict[str, list[str]]()
    paths = sorted(path for path in place.glob("*") if path.suffix in FILES)
    for path in paths:
        files.setdefault(_SHARD.sub("", path.stem), []).append(str(path))
    if not paths:
        raise DataError(
            f"--set lm_eval.data={data}: {place} has no data; expected files such as {place / 'test.jsonl'} or "
            f"{place / 'test-00000-of-00001.parquet'}, or a README.md in {folder} that names them."
        )
    return {"dataset_path": FILES[paths[0].suffix], "dataset_name": None, "dataset_kwargs": {"data_files": files}}


def _cache_dir(folder: Path) -> str:
    """Return where datasets may keep its copy of a local folder, by the content of its files.

    datasets 5.2 knows a folder that has a README again by its name alone: edited, it would be read as it was.
    """
    files = {str(file.relative_to(folder)): file_digest(file) for file in folder.rglob("*") if file.is_file()}
    return str(Path(datasets_config.HF_DATASETS_CACHE) / "emobench" / content_hash(files)[:16])


def _identified(task: str, rules: LmEvalProtocol, loaded: Any, origins: list[str], code: list[str]) -> LmEvalData:
    tasks, groups = loaded["tasks"], loaded.get("groups", {})
    if not tasks:
        raise ConfigError(f"Task {task}: '{rules.task}' of lm-eval has no task; see its YAML.")
    docs, generation, count = dict[str, str](), dict[str, Mapping[str, Any] | None](), 0
    for name, one in tasks.items():
        path = str(one.get_config("dataset_path"))
        if rules.data and path not in FILES.values() and not Path(path).exists():
            raise ConfigError(
                f"--set lm_eval.data={rules.data}: the definition of {name} gives its data by itself ({path}); use a "
                "YAML of your own, --set lm_eval.include=DIR."
            )
        try:
            docs[name] = _docs(one, rules.num_fewshot)
            count += len(one.eval_docs)
        except Exception as error:  # a split that is not there, or Python code of the task
            raise _unbuilt(task, rules, error, offline=False) from error
        generation[name] = None
        if one.OUTPUT_TYPE == "generate_until":
            generation[name] = dict(one.config.generation_kwargs or {})
    harness = version("lm-eval")
    definition = {
        "lm-eval": harness,
        "tasks": {name: _without_places(one.dump_config()) for name, one in tasks.items()},
        "groups": {name: _without_places(group.to_dict() or {}) for name, group in groups.items()},
        "code": code,
    }

    def named(value: Any) -> str:
        return str(getattr(value, "__qualname__", type(value).__qualname__))

    text = re.sub(r" at 0x[0-9a-f]+", "", json.dumps(definition, sort_keys=True, default=named))
    digests = {task: f"sha256:{content_hash(docs)}", f"definition of {task}": f"sha256:{content_hash(text)}"}
    notes = [", ".join(origins) or "code of the task", f"lm-eval {harness}"]
    provenance = {name: f"{digest} ({note})" for (name, digest), note in zip(digests.items(), notes, strict=True)}
    top = [groups[rules.task]] if rules.task in groups else list(tasks.values())
    return LmEvalData(top, generation, count, f"sha256:{content_hash(digests)}", provenance)


def _docs(task: Any, num_fewshot: int | None) -> str:
    """Return the digest of the documents that a task's prompts are made of: those that are answered, and the shots'."""
    shots = task.get_config("num_fewshot")
    if num_fewshot is not None and shots != 0:  # a task of 0 shots stays one
        shots = num_fewshot
    digest = hashlib.sha256()
    for docs in (task.eval_docs, task.fewshot_docs() if shots else ()):
        for doc in docs or ():
            digest.update(json.dumps(doc, sort_keys=True, default=str).encode() + b"\n")
        digest.update(b"\0")
    return digest.hexdigest()


def _without_places(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without where it and its data are: the documents identify the data."""
    kept = {key: value for key, value in config.items() if key not in _PLACES}
    if isinstance(kept.get("metadata"), Mapping):
        kept["metadata"] = dict(kept["metadata"])
        kept["metadata"].pop("config_source", None)
    return kept


def _code(entries: Iterable[Any]) -> list[str]:
    """Return the digests of the Python files next to the YAML: a task's functions may use any of them."""
    folders = set()
    for entry in entries:
        if entry.yaml_path is not None:
            folders.update(source.parent for source in sources(entry.yaml_path))
    return sorted({file_sha256(file) for folder in folders for file in folder.glob("*.py")})


def _unbuilt(task: str, rules: LmEvalProtocol, error: Exception, offline: bool) -> UserError:
    reason = shorten(str(error), 300, placeholder="...")
    problem = (
        f"lm-evaluation-harness could not read the task '{rules.task}' and its data ({type(error).__name__}: "
        f"{reason}). Give the data by --set lm_eval.data=DIR, a folder laid out like its repository on the hub, or"
    )
    if offline and not rules.data:
        source = "lm-evaluation-harness's own source"
        return Missing(f"data of {task}", source, None, f"{problem} run once without --offline.")
    return DataError(f"{problem} fix the error above.")


def find_manager(name: str, include: str) -> TaskManager:
    """Return a manager that knows a task, group or tag and all that it is made of; `include` is the user's folder.

    Of lm-eval's folders it reads those that mention these names; a manager of everything says the same of them.
    Raises ConfigError for a name that nothing defines, with the nearest ones.
    """
    manager = TaskManager(include_path=_own_folder(include) if include else None, include_defaults=False)
    index = manager.task_index
    own = dict(manager.task_index)
    folders = set[Path]()
    more = _folders_of(name)
    while True:
        folders |= more
        index.clear()
        index.update({**_indexed(folders), **own})
        # A tag is spread over files, so that those of the first folders need not be all.
        more = set()
        for other in reached(name, manager):
            if other not in index or index[other].kind.name == "TAG":
                more |= _folders_of(other)
        if more <= folders:
            break
    if name not in index:
        raise _unknown(name, manager, include)
    return manager


def _indexed(folders: Iterable[Path]) -> dict[str, Any]:
    """Return the tasks, groups and tags of lm-eval's folders by name; of two definitions the first counts."""
    index = {}
    for path in sorted(chain.from_iterable(folder.rglob("*.yaml") for folder in folders)):
        with suppress(Exception):  # lm-eval passes over YAML that it cannot read
            TaskIndex.process_cfg(load_yaml(path, resolve_func=False), path, index)
    return index


def reached(name: str, manager: TaskManager) -> list[str]:
    """Return a name and all names that it stands for, through groups and tags; some may be defined by nothing."""
    names = {}
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current not in names:
            names[current] = None
            entry = manager.task_index.get(current)
            if entry is not None and entry.kind.name == "TAG":
                waiting += sorted(entry.tags)
            elif entry is not None and entry.kind.name == "GROUP":
                waiting += _members((entry.cfg or {}).get("task"))
    return list(names)


def sources(path: Path) -> Iterator[Path]:
    """Yield a task's file and those that it includes."""
    yield path
    for included in _INCLUDE.findall(path.read_text(encoding="utf-8", errors="replace")):
        inner = (path.parent / included).resolve()
        if inner.is_file() and inner != path:
            yield from sources(inner)


def _members(listed: Any) -> list[str]:
    names = []
    for item in listed if isinstance(listed, list) else ():
        if not isinstance(item, Mapping):
            names.append(str(item))
            continue
        inner = item.get("task")
        names += _members(inner)
        names += [name for name in (item.get("group"), inner) if isinstance(name, str)]
    return names


@cache
def _texts() -> dict[Path, str]:
    """Return the text of each folder of lm-eval's tasks: of its files that may hold YAML, some without a suffix."""
    parts: dict[Path, list[str]] = {}
    for path in TASKS.rglob("*"):
        if path.suffix in (".py", ".pyc", ".md") or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        texts = parts.setdefault(TASKS / path.relative_to(TASKS).parts[0], [])
        texts.append(text)
        for included in _INCLUDE.findall(text):
            if included.startswith("../"):  # perhaps of another folder
                texts += [file.read_text(encoding="utf-8", errors="replace") for file in sources(path)]
    return {folder: "".join(texts) for folder, texts in parts.items()}


def _folders_of(name: str) -> set[Path]:
    """Return the folders whose files mention a name as a word of its own."""
    word = re.compile(rf"(?<![\w./-]){re.escape(name)}(?![\w./-])")
    return {folder for folder, text in _texts().items() if name in text and word.search(text)}


def _own_folder(include: str) -> Path:
    folder = expand_home(include).resolve()
    if not is_folder(folder):
        raise ConfigError(
            f"--set lm_eval.include={include}: there is no such folder; expected one with lm-eval's YAML."
        )
    return folder


def _unknown(name: str, manager: TaskManager, include: str) -> ConfigError:
    for path in sorted(_own_folder(include).rglob("*.yaml")) if include else []:
        try:  # lm-eval passes over YAML that it cannot read without a word
            load_yaml(path, resolve_func=False)
        except Exception as error:  # of YAML, of an include, or of a cycle of them
            return ConfigError(f"{path} is not a task of lm-eval ({' '.join(str(error).split())}).")
    known = set(manager.task_index)
    for text in _texts().values():
        known.update(_NAMES.findall(text))
    guess = "."
    if near := difflib.get_close_matches(name, known, n=3, cutoff=0.6):
        guess = f"; did you mean {' or '.join(map(repr, near))}?"
    return ConfigError(
        f"lm-evaluation-harness {version('lm-eval')} has no task, group or tag '{name}'{guess} `lm_eval ls tasks` "
        "lists all; a folder of your own YAML is --set lm_eval.include=DIR."
    )
