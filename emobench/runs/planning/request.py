"""What a user asks for, before any name in it is looked up."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from emobench.core.errors import ConfigError, UnknownNameError
from emobench.core.settings import OPTIONAL, PRETRAINED, dotted_settings, to_plain, utf8
from emobench.leaderboard.entry import MOST_TRIALS, Tuning
from emobench.models.device import AUTO, LoadOptions, resolve_dtype
from emobench.registry import kind_names, usable_kinds
from emobench.tasks.rules import dotted, rule_groups
from emobench.training.recipe import Lora, Recipe

RequestFields = dict[str, Any]
"""Some fields of a request, by name."""
UNNAMED = "unnamed"
"""The recipe of a declared training whose user names none."""
_EXAMPLES = {"objective": "", "recipe": "", "tasks": "sst2,trec", "corpus": "ag_news", "protocol": "paper"}
"""The first words of `--set` that no kind of task has, with an example of a value."""
MOST_EXAMPLES = 10**12
RECIPE_SETTINGS = frozenset((*dotted(Recipe, "recipe."), *dotted(Lora, "recipe.lora.")))
LONGEST_NAME = 100
"""Characters of the name of a declared recipe."""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The rules that an entry records, which are in force instead of those of a suite's files."""

    protocols: Mapping[str, str]
    """Task -> the id of its protocol. Other tasks of the suite are none of this request."""
    changes: Mapping[str, Mapping[str, Any]]
    """Task -> the rules that differ from the protocol of that name: "sampling.top_p" -> 0.9."""
    corpora: Mapping[str, str]
    """Task -> the corpus that it reads, for those that read another one than their file says."""
    recipes: tuple[Mapping[str, Any], ...]
    """All values of each training, in the order of the suite; none for a model as it is."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """What is tuned: the space, and the number of trials of each objective."""

    space: Mapping[str, str]
    """Setting -> its range or list, as `--tune` takes them; "objective.*" -> "" for the main parameter of each."""
    trials: int
    seeds: int = 1
    """Trainings of each trial, each with a seed of its own. The mean over them decides."""
    sampler: Literal["grid", "random", "tpe"] = "random"

    def __post_init__(self) -> None:
        if not 2 <= self.trials <= MOST_TRIALS:
            raise ConfigError(
                f"--trials is {self.trials}; expected 2 to {MOST_TRIALS:,}, the number of trials of each objective."
            )
        if not 1 <= self.seeds <= MOST_TRIALS:
            raise ConfigError(f"--trial-seeds is {self.seeds}; expected 1 to {MOST_TRIALS:,} trainings of each trial.")


@dataclass(frozen=True, kw_only=True)
class Request:
    """One call of `emobench run`, `train` or `evaluate`."""

    suite: str | None = None
    recipe: str | None = None
    """Instead of a suite: train by this recipe alone."""
    objectives: tuple[str, ...] = ()
    """None, like no model and no seeds, means those of the suite."""
    model: str | None = None
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    """What is read in the place of a model of a paper's table, by the paper's name: a folder, an alias or a hub id."""
    seeds: tuple[int, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What `--set` gave, nested."""
    limit: int | None = None
    data_dirs: tuple[Path, ...] = ()
    runs: Path = Path("runs")
    leaderboard: Path = Path("leaderboards/measured")
    offline: bool = False
    device: str = "cpu"
    """What `resolve_device` gave: it goes into keys and entries, so it is never "auto"."""
    asked_device: str = ""
    """As it was given: a long run on a CPU wants `--device cpu` in so many words. Empty in a script."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = AUTO
    """As it was given. auto: weights in float32; on a GPU, trainings compute in half precision (`Recipe.precision`)."""
    from_scratch: bool = False
    trust_remote_code: bool = False
    trackers: tuple[str, ...] = ()
    command: str = ""
    """The command line, for the entry."""
    max_memory: int | None = field(default=None, metadata=OPTIONAL)
    """Bytes that each process may hold of its GPU; it decides no result."""
    tokenizer: str | None = field(default=None, metadata=OPTIONAL)
    """Whose tokenizer takes the place of the model's."""
    base: str | None = field(default=None, metadata=OPTIONAL)
    """What `model` was trained from."""
    declared_recipe: str | None = field(default=None, metadata=OPTIONAL)
    """The user's name for the training of `model`, a checkpoint of another program; None: no training is declared."""
    recorded: Recorded | None = field(default=None, metadata=OPTIONAL)
    """What an entry says, where one is repeated."""
    search: Search | None = field(default=None, metadata=OPTIONAL)
    """What is tuned before the test; None: nothing."""
    tuning: Tuning | None = field(default=None, metadata=OPTIONAL)
    """How the settings were tuned, of a request that tests a choice."""

    def __post_init__(self) -> None:
        # Names and settings become part of keys and entries. The other folders may have any name.
        names = [self.suite, self.recipe, self.objectives, self.model, self.settings, self.stand_ins]
        utf8(json.dumps(to_plain(names), ensure_ascii=False, default=str))
        utf8(str(self.runs))  # safetensors takes no other path
        for key in self.settings:
            if key not in _EXAMPLES and key not in (known := setting_names()):
                refuse_foreign({key: self.settings[key]})
                raise UnknownNameError("setting", key, known, where="--set: ")
        refuse_foreign({"recipe": self.settings.get("recipe")})
        if self.limit is not None and not 1 <= self.limit <= MOST_EXAMPLES:
            raise ConfigError(f"--limit is {self.limit}; expected a number of examples of at least 1.")
        if self.dtype not in (AUTO, "float32", "bfloat16", "float16"):
            raise ConfigError(f"--dtype is {self.dtype}; expected auto, float32, bfloat16 or float16.")
        if self.declared:
            self._check_declared()
        if (self.suite is None) == (self.recipe is None):
            raise ConfigError("Give a suite or a recipe, and not both.")
        if len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"--seed is given as {', '.join(map(str, self.seeds))}; expected each seed once.")
        for seed in self.seeds:
            if not 0 <= seed < 2**32:
                raise ConfigError(f"--seed is {seed}; expected a number from 0 to 2**32 - 1.")

    def _check_declared(self) -> None:
        if self.model is None or self.base is None:
            raise ConfigError(
                "--trained-with declares the training of a checkpoint; give the checkpoint and its base: --model "
                "./ckpt --from BASE."
            )
        if self.from_scratch:
            raise ConfigError("--from-scratch draws weights at random, and a checkpoint has its own; drop it.")
        if len(self.seeds) != 1:
            raise ConfigError(
                f"--seed is given {len(self.seeds)} times with --trained-with; expected one: the seed with which "
                f"{self.model} was trained. Give each checkpoint a command of its own."
            )
        name = self.declared_recipe or ""
        if not name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
            raise ConfigError(
                f"--recipe-name is {name[:LONGEST_NAME]!r}; expected at most {LONGEST_NAME} printable characters, such "
                "as sft-v1."
            )

    @property
    def declared(self) -> bool:
        """Whether `model` is a checkpoint whose training the user declares."""
        return self.declared_recipe is not None

    @property
    def weights(self) -> str:
        """The data type of the weights, for keys and entries."""
        return resolve_dtype(self.dtype)

    @property
    def load_options(self) -> LoadOptions:
        """How its models are loaded."""
        return LoadOptions(
            device=self.device,
            dtype=self.weights,
            offline=self.offline,
            trust_remote_code=self.trust_remote_code,
            from_scratch=self.from_scratch,
            tokenizer=self.tokenizer,
        )

    def section(self, name: str) -> Mapping[str, Any]:
        """Return the nested settings under a first word."""
        section = self.settings.get(name, {})
        if not isinstance(section, Mapping):
            raise ConfigError(f"--set {name}={section}: expected {name}.KEY=VALUE; see `emobench settings`.")
        return section

    def word(self, name: str) -> str | None:
        """Return a setting that is one word, such as `corpus=ag_news`."""
        word = self.settings.get(name)
        if word is not None and not isinstance(word, str):
            raise ConfigError(f"--set {name}: expected one word, such as --set {name}={_EXAMPLES[name]}.")
        return word

    def words(self, name: str) -> tuple[str, ...] | None:
        """Return a setting that is a list of words, such as `tasks=sst2,trec` or `tasks=[sst2,trec]`."""
        listed = self.settings.get(name)
        if isinstance(listed, str):
            listed = [word.strip() for word in listed.split(",")]
        if listed is None:
            return None
        if not isinstance(listed, list) or not listed or not all(isinstance(word, str) for word in listed):
            raise ConfigError(f"--set {name}: expected a list of names, such as --set {name}={_EXAMPLES[name]}.")
        if len(set(listed)) < len(listed):
            raise ConfigError(f"--set {name}: {', '.join(listed)} has a name twice; give each once.")
        return tuple(listed)


def declared_fields(
    objectives: Sequence[str], base: str | None, trained_with: str | None, recipe: str | None
) -> RequestFields:
    """Return the fields of a request that evaluates with --from, --trained-with and --recipe-name, if they are given.

    Raises ConfigError for a combination of them that means nothing.
    """
    if trained_with is None:
        if recipe is not None:
            raise ConfigError("--recipe-name names the recipe of a declared training; add --trained-with NAME.")
        return {"objectives": tuple(objectives), "base": base}
    if objectives:
        raise ConfigError("--objective means a training of emobench, and --trained-with another one; give one of them.")
    if trained_with == PRETRAINED:
        raise ConfigError("--trained-with pretrained: a model as it is was not trained; drop the option.")
    return {"objectives": (trained_with,), "base": base, "declared_recipe": UNNAMED if recipe is None else recipe}


def setting_names() -> set[str]:
    """Return the first words of `--set`: those of every run, the kinds of task, and their groups of rules."""
    return {*_EXAMPLES, *kind_names(), *(group for kind in usable_kinds() for group in rule_groups(kind.rules))}


def refuse_foreign(settings: Mapping[str, Any]) -> None:
    """Raise ConfigError for a setting by the name that it has elsewhere, such as lr, or without its section."""
    from emobench.runs.inspect.settings import own_names

    for name, _ in dotted_settings(settings):
        if name in RECIPE_SETTINGS or name.startswith("recipe.trainer."):
            continue
        if own := own_names(name):
            raise ConfigError(f"--set {name}: There is no setting '{name}'; use {' or '.join(own)} instead.")
