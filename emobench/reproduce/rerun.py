"""An entry that is run again: its record becomes the request, and its numbers are compared.

Differences of this machine, such as packages or data, are listed before it starts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from emobench.core.errors import ConfigError, DataError, ModelError
from emobench.core.reading import names_path, path_exists
from emobench.core.settings import PRETRAINED, to_plain
from emobench.data.local_files import data_name, local_data
from emobench.leaderboard.entry import ROUNDING, Entry, MetricSummary
from emobench.leaderboard.private_paths import published
from emobench.models.catalog import CATALOG, HUB_ID
from emobench.registry import (
    find_suite,
    find_task,
    kind_of_name,
    load_kind,
    objective_files,
    require_installed,
    suite_names,
)
from emobench.runs.execution.environment import machine_facts
from emobench.runs.execution.record import (
    PROMPTS,
    data_of,
    hardware,
    objective_fields,
    packages,
)
from emobench.runs.planning.plan import Plan
from emobench.runs.planning.rebuild import differences
from emobench.runs.planning.request import Recorded, Request
from emobench.runs.planning.resolve import Values, nested_rules, rule_changes
from emobench.tasks.spec import Suite, short_name
from emobench.training.recipe import optimizer_of

RERUNS = "rerun"
"""The folder of reruns in a folder of runs: <id of the entry>-<number>, each with runs and a board of its own."""
BOARD = "board"
COMPARED = "compared.json"
"""A file of a finished rerun: the next rerun of the entry starts again."""
CORPUS_PLACES = ("recipe.corpus", "provenance.data")
"""Places of an entry that may name the user's own texts."""
_ONE_NAME = re.compile(r"[A-Za-z][\w-]*")
_NUMBERED = re.compile(r"\d+\. .+")


def request_of(entry: Entry, given: Request) -> Request:
    """Return the request that repeats an entry. Raises a UserError for one that cannot be repeated.

    `given` has what an entry does not know: folders, device, a suite's or an objective's file, and the name of a model
    that moved. An entry may be a stranger's: of what it names, installed objectives, suites and models of the hub are
    used, and of this machine's files only a corpus in the working folder with the recorded content.
    """
    if entry.kind != "measured":
        raise ConfigError(f"{entry.id} is {entry.kind}, from {entry.source.cite}, and was not run by emobench.")
    if entry.declared:
        raise ConfigError(
            f"{entry.id} is a checkpoint that another program trained. Evaluate it again with `emobench evaluate "
            "--trained-with`."
        )
    others = sorted(given.settings.keys() & {"objective", "recipe", "tasks", "corpus", "protocol"})
    if others:
        raise ConfigError(f"--set {others[0]}: the entry decides it; drop it.")
    if given.suite is None and entry.suite.name not in suite_names():
        raise ConfigError(f"{entry.id}: there is no installed suite {entry.suite.name}; give its file: --suite FILE.")
    suite = find_suite(given.suite or entry.suite.name)
    if (suite.name, suite.version) != (entry.suite.name, entry.suite.version):
        raise ConfigError(
            f"{entry.id} is of the suite {entry.suite}, and here is {suite.name} v{suite.version}. Install emobench "
            f"{entry.provenance.packages.get('emobench', 'of that time')}."
        )
    if not entry.untrained and not given.objectives:
        require_installed(entry.objective.name)
    read = {name.rpartition(".")[0] for name in entry.provenance.data}
    for place, value in _followed(entry, given, suite):
        for text in filter(names_path, _texts(value)):
            if place in CORPUS_PLACES and data_name(text) == text and text in read:
                _require_file(entry, text)
                continue
            raise ConfigError(
                f"{entry.id}: `{place}` has the path {text}. An entry is not asked where files are; name them "
                'again: --model FOLDER, --objective "NAME(PARAMETER=FOLDER)", --set RULE=FOLDER, --data-dir FOLDER.'
            )
    # An entry names the class of an objective in a file; a combination has its parameters in its name.
    objective = entry.objective.name
    params = to_plain(entry.objective.params)
    if given.objectives:
        objective = given.objectives[0]
    if entry.untrained:
        objective = PRETRAINED
        params = {}
    elif "(" in objective or not (given.objectives or _ONE_NAME.fullmatch(objective)):
        params = {}
    settings = dict(given.settings)
    if params:
        settings["objective"] = params
    recorded = Recorded(
        protocols=entry.protocols,
        changes=entry.changes,
        corpora=_corpora(entry, suite),
        recipes=tuple(_recipes(entry)),
    )
    return replace(
        given,
        suite=given.suite or entry.suite.name,
        model=given.model or _model(entry),
        objectives=(objective,),
        seeds=entry.seeds,
        settings=settings,
        recorded=recorded,
        dtype=entry.recipe.get("dtype", "float32"),
        from_scratch=bool(entry.recipe.get("from_scratch")),
        tuning=entry.tuning,
    )


def _require_file(entry: Entry, corpus: str) -> None:
    """Raise DataError unless the working folder has the file of a corpus; its content is compared in the plan."""
    data = local_data(corpus)
    if data is not None and not path_exists(data.path):
        raise DataError(
            f"{entry.id} read {corpus}, and there is no {data.path} here. Copy it here, or give the command in its "
            "folder."
        )


def _followed(entry: Entry, given: Request, suite: Suite) -> Iterator[tuple[str, Any]]:
    """Yield the places of an entry, and their values, that may name files and that the user does not replace."""
    for values in _recipes(entry):
        yield "recipe.corpus", values.get("corpus")
    yield "provenance.data", _corpora_read(entry)
    if given.model is None:
        yield "model.name", entry.model.name
    if not given.objectives or "(" not in given.objectives[0]:
        yield "objective.params", to_plain(entry.objective.params)
    names = {}
    for run in suite.runs:
        for name in run.tasks:
            names[short_name(name)] = name
    for task, changes in entry.changes.items():
        settings: Values = {}
        if task in names:
            own = kind_of_name(names[task])
            kind = own[0] if own else load_kind(find_task(names[task]).kind)
            settings = rule_changes(given, kind)
        yield f"changes.{task}", _kept(nested_rules(changes, {}), settings)


def _kept(rules: Values, settings: Values) -> Values:
    """Return nested rules without those that settings replace."""
    kept = {}
    for name, value in rules.items():
        if name not in settings:
            kept[name] = value
        elif isinstance(value, Mapping) and isinstance(settings[name], Mapping):
            kept[name] = _kept(value, settings[name])
    return kept


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts within plain data but its keys."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner)


def new_folder_of(entry: Entry, runs: Path) -> Path:
    """Return the folder of the next rerun of an entry, or of one that was stopped."""
    number = 1
    while (folder := runs / RERUNS / f"{entry.id}-{number}").exists() and (folder / COMPARED).exists():
        number += 1
    return folder


def require_recorded(entry: Entry, plan: Plan) -> None:
    """Raise a UserError if the model, the objective or the user's own data of a plan are not the entry's."""
    model = plan.model
    if model.has_identity and model.made_by is None:
        revision = model.entry_fields()["revision"]
        if revision != entry.model.revision:
            raise ModelError(
                f"--model {plan.request.model}: its digest or commit is {revision}, and {entry.id} used "
                f"{entry.model.name} with {entry.model.revision}. Give that one: --model FOLDER, or NAME@COMMIT."
            )
    recorded_data = _digests(entry.provenance.data)
    for name, digest in _data_here(plan).items():
        if local_data(name.rpartition(".")[0]) is not None and recorded_data.get(name) != digest:
            raise DataError(
                f"{name} was changed: its digest is {digest}, and {entry.id} read {recorded_data.get(name)}. Give the "
                "file as it was."
            )
    here = objective_fields(plan.rows[0])
    asked = plan.request.objectives[0]
    if objective_files(asked) and here["source_sha256"] != entry.objective.source_sha256:
        raise ConfigError(
            f"--objective {asked}: the digest of its code is {here['source_sha256']}; expected the entry's, "
            f"{entry.objective.source_sha256}. Give the file as it was."
        )
    if here["params"] != to_plain(entry.objective.params):
        raise ConfigError(
            f"--objective {plan.rows[0].label}: its parameters are {here['params']}; expected the entry's, "
            f"{to_plain(entry.objective.params)}."
        )


def differences_of(entry: Entry, plan: Plan) -> list[str]:
    """Return the differences of this machine from the entry, a line each: packages, hardware, data, code."""
    row, provenance, device = plan.rows[0], entry.provenance, plan.request.device
    code = ("name", "version", "source_sha256")
    fields = objective_fields(row)
    data = _digests(provenance.data)
    data_here = _data_here(plan)
    if not plan.ready:  # missing data have no digest
        data_here = {**data, **data_here}
    recorded: dict[str, Any] = {"packages": dict(provenance.packages), "hardware": provenance.hardware, "data": data}
    here: dict[str, Any] = {"packages": packages(), "hardware": hardware(device), "data": data_here}
    recorded["objective"] = {name: getattr(entry.objective, name) for name in code}
    here["objective"] = {name: fields[name] for name in code}
    if provenance.environment is not None:
        recorded["environment"] = dict(provenance.environment)
        here["environment"] = machine_facts(device)
    if plan.model.made_by is not None:
        recorded["pretraining"] = to_plain(entry.model.pretraining)
        here["pretraining"] = plan.model.made_by.pretraining_fields()
    return list(differences(recorded, here))


def _data_here(plan: Plan) -> dict[str, str]:
    """Return the digests of a plan's data; none if some of it is missing."""
    if plan.ready or plan.ingredients.look is False:
        return _digests(published(data_of(plan.rows[0])))
    return {}


def run_keys(plan: Plan) -> list[str] | None:
    """Return the keys that the runs of a plan have in an entry. None while the base model is missing or not trained."""
    if not plan.ready or not plan.model.has_identity:
        return None
    return [run.examples(plan.request.command).key for run in plan.rows[0].runs]


def _digests(data: Mapping[str, str]) -> dict[str, str]:
    """Return digests without the places of the data, which differ between machines."""
    digests = {}
    for name, text in data.items():
        if not name.startswith(PROMPTS):
            digests[name], _, _ = text.partition(" (")
    return digests


def _model(entry: Entry) -> str:
    name = entry.model.name
    revision = entry.model.revision
    if entry.model.source == "local folder" and name not in CATALOG:
        raise ConfigError(f"{entry.id} used the folder {name}; its entry does not record the place: --model FOLDER.")
    pinned = HUB_ID.fullmatch(name) and "@" not in name and revision
    return f"{name}@{revision}" if pinned else name


def _recipes(entry: Entry) -> list[Values]:
    """Return the values of each training; with several, they are numbered in an entry."""
    if entry.untrained:
        return []
    # Entries of half precision that do not say it were trained with weights of that precision.
    common = {"weight_dtype": entry.recipe.get("dtype", "float32")}
    numbered = []
    for name, values in entry.recipe.items():
        if _NUMBERED.fullmatch(name):
            if not isinstance(values, Mapping):
                raise ConfigError(f"{entry.id}: `recipe` has {values!r} under {name!r}; expected settings.")
            numbered.append(common | dict(values))
    if numbered:
        return numbered
    recipe = dict(entry.recipe)
    for name in ("dtype", "from_scratch"):
        recipe.pop(name, None)
    if recipe.get("optimizer") == optimizer_of("cuda"):  # what "auto" was there
        del recipe["optimizer"]
    return [common | recipe]


def _corpora(entry: Entry, suite: Suite) -> dict[str, str]:
    """Return the corpus of each task that read another one than its file says, by the names of its data."""
    read = _corpora_read(entry)
    candidates = []
    for values in _recipes(entry):
        if values.get("corpus") in read:
            candidates.append(values["corpus"])
    corpora = {}
    for run in suite.runs:
        for name in run.tasks:
            if short_name(name) not in entry.protocols or kind_of_name(name) is not None:
                continue
            task = find_task(name)
            if load_kind(task.kind).reads == "any corpus" and task.corpus not in read:
                corpora[task.name] = str([*candidates, *read, task.corpus][0])
    return corpora


def _corpora_read(entry: Entry) -> list[str]:
    """Return the names of the data on which an entry was evaluated."""
    names = []
    for name in entry.provenance.data:
        if name.endswith(".test"):
            names.append(name.removesuffix(".test"))
    return names


# The numbers of a rerun: equal to the entry's, except for float rounding, or within its spread over seeds.

Verdict = Literal["exactly", "float rounding", "within the spread over seeds", "differs", "missing now", "new"]


@dataclass(frozen=True)
class Agreement:
    """One metric of an entry, and of its rerun. Fractions are in [0, 1]."""

    metric: str
    recorded: float | None
    rerun: float | None
    difference: float | None
    """The rerun's mean minus the entry's."""
    std: float | None
    """The entry's standard deviation over seeds. None with one seed."""
    verdict: Verdict

    def expected(self, *, elsewhere: bool) -> bool:
        """Return whether a rerun should give this verdict; `elsewhere` means other packages, hardware or data."""
        if self.verdict == "within the spread over seeds":
            return elsewhere
        return self.verdict in ("exactly", "float rounding", "new")


def agreements(entry: Entry, rerun: Entry) -> list[Agreement]:
    """Return the agreement of each metric of an entry and of its rerun; some metrics may be in one of them only."""
    results = []
    for name in dict.fromkeys([*entry.metrics, *rerun.metrics]):
        recorded = entry.metrics.get(name)
        here = rerun.metrics.get(name)
        before = recorded and recorded.mean
        after = here and here.mean
        difference = None
        if before is not None and after is not None:
            difference = after - before
        std = recorded and recorded.std
        results.append(Agreement(name, before, after, difference, std, _verdict(recorded, here)))
    return results


def _verdict(recorded: MetricSummary | None, here: MetricSummary | None) -> Verdict:
    if recorded is None:
        return "new"
    if here is None:
        return "missing now"
    if recorded.values == here.values:
        return "exactly"
    if len(recorded.values) == len(here.values):
        pairs = zip(recorded.values, here.values, strict=True)
        if all(math.isclose(a, b, rel_tol=ROUNDING) for a, b in pairs):
            return "float rounding"
    if recorded.std is not None and abs(here.mean - recorded.mean) <= recorded.std:
        return "within the spread over seeds"
    return "differs"
