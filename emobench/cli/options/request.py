"""Groups of options of the commands that plan, train or load models: a command takes each as one parameter."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from emobench.cli import options
from emobench.cli.terminal.streams import remark
from emobench.core.errors import ConfigError
from emobench.core.extras import MissingPackageError
from emobench.core.settings import build, parse_overrides
from emobench.models.device import (
    AUTO,
    Place,
    default_places,
    resolve_device,
    several_devices,
    several_processes,
)
from emobench.runs.dry_run import Read
from emobench.runs.execution.launch import LAUNCHERS, ZERO, JoinedLaunch, Launch, LocalLaunch, world_size
from emobench.runs.planning.request import UNNAMED, Request, RequestFields, Search
from emobench.runs.tuned import tuned_outline

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


@dataclass(frozen=True, kw_only=True)
class LoadingOptions:
    """How a command loads models."""

    offline: options.Offline = False
    device: options.Device = options.DEFAULT_DEVICE
    dtype: Annotated[
        str,
        typer.Option(
            "--dtype",
            help="The data type of the weights: auto, float32, bfloat16 or float16. auto is float32, with trainings on "
            "a GPU in half-precision autocast; float32 trains in float32 there, too.",
        ),
    ] = AUTO
    trust_remote_code: options.TrustRemoteCode = False

    def loading(self) -> RequestFields:
        """Return these options as fields of a request. --offline takes effect here, before anything is loaded."""
        if self.offline:
            os.environ["HF_HUB_OFFLINE"] = "1"  # read by huggingface_hub when it is imported, which is later
        return {
            "offline": self.offline,
            "device": resolve_device(self.device),
            "asked_device": self.device,
            "dtype": self.dtype,
            "trust_remote_code": self.trust_remote_code,
        }


@dataclass(frozen=True, kw_only=True)
class PlanningOptions(LoadingOptions):
    """What a command that plans stages reads."""

    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change a setting: KEY=VALUE. Keys: objective.*, recipe.*, generation.*, mauve.*, "
            "oracle.*, coherence.*, surrogate.*, icl.*, lm_eval.*, instruct.*, judge.*, tasks, corpus, protocol. "
            "`emobench settings` explains each. Repeatable.",
        ),
    ] = None
    data_dir: options.DataDirs = None
    runs: options.Runs = options.DEFAULT_RUNS

    def request(self, *, protocol: str | None = None, **more: Any) -> Request:
        """Return what the options ask for; `more` has fields of the request that are the command's own."""
        if world_size() > 1:  # `run` and `train` have joined the others before
            raise ConfigError(
                "torchrun started several processes, and each would do all of this command's work: only `emobench run` "
                "and `emobench train` train under it. Start this one alone, and give it the GPUs: --devices auto."
            )
        for name, value in more.items():
            if isinstance(value, list):
                more[name] = tuple(value)
        settings = list(self.set_ or ())
        if protocol:
            settings.append(f"protocol={protocol}")
        more.setdefault("command", shlex.join(["emobench", *sys.argv[1:]]))
        return Request(
            settings=parse_overrides(settings),
            data_dirs=tuple(self.data_dir or ()),
            runs=self.runs,
            **self.loading(),
            **more,
        )


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(PlanningOptions):
    """The objectives, model and seeds of trainings."""

    objective: Annotated[
        list[str] | None,
        typer.Option(
            "--objective",
            help='The training objective: a name, "name(key=value)", ./file.py:Class, or a sum such as '
            '"0.5*emo + 0.5*mle". Repeatable. Default: objectives of the suite; `evaluate` takes the untrained model.',
        ),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="The model: an alias (`emobench models list`), a local folder, or a Hugging Face id. Default: the "
            "suite's model.",
        ),
    ] = None
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer",
            help="Take the tokenizer of this model or folder, in place of the tokenizer of --model.",
        ),
    ] = None
    seed: options.Seeds = None
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Train from random weights, with the model's configuration.")
    ] = False

    def training(self, **more: Any) -> Request:
        """Return what the options ask for; `more` has fields of the request that are the command's own."""
        own = {
            "objectives": self.objective or [],
            "model": self.model,
            "tokenizer": self.tokenizer,
            "seeds": self.seed or [],
            "from_scratch": self.from_scratch,
        }
        return self.request(**{**own, **more})


@dataclass(frozen=True, kw_only=True)
class PlaceOptions:
    """By how many processes a command works, and where."""

    devices: Annotated[
        str | None,
        typer.Option(
            "--devices",
            help="Several GPUs: 0,1,2,3 or auto (all). A process on each trains and evaluates, so that seeds and "
            "objectives run at the same time.",
        ),
    ] = None
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes",
            help="The same on the CPU: the number of processes. They share its cores.",
            min=1,
            max=1024,
        ),
    ] = None

    def places(self, device: str) -> list[Place]:
        """Return where worker processes compute, given `--device`; none without the options.

        Call it before the device is resolved, which hides the other GPUs.
        """
        if self.devices is None and self.processes is None:
            return []
        if self.devices is not None and self.processes is not None:
            raise ConfigError("--devices gives each GPU a process, and --processes is for the CPU; give one of them.")
        if self.processes is not None:
            if device not in (AUTO, "cpu"):
                raise ConfigError(f"--processes is for the CPU, and --device is {device}; give --devices for GPUs.")
            return several_processes(self.processes)
        if device != AUTO:
            raise ConfigError(f"--device {device} is one device, and --devices several; give one of them.")
        return several_devices(self.devices or "")


@dataclass(frozen=True, kw_only=True)
class ParallelOptions(TrainingOptions, PlaceOptions):
    """Trainings and evaluations, and the number of their processes."""

    def planned(self, **more: Any) -> tuple[Request, list[Place]]:
        """Return what the options ask for, and where worker processes compute."""
        places = self.places(self.device)
        own = replace(self, device=places[0].device) if places else self
        return own.training(**more), places


@dataclass(frozen=True, kw_only=True)
class LaunchOptions(ParallelOptions):
    """Trainings and evaluations, by processes that each train a model, or that train one together."""

    launch: Annotated[
        str | None,
        typer.Option(
            "--launch",
            help="ddp, fsdp, zero2 or zero3: the processes of --devices or --processes train one model together. With "
            "ddp, each has the full model; with fsdp (FSDP2) and zero3 (DeepSpeed), a share of it; with zero2, a "
            "share of the gradients and of the optimizer's state. One process does the evaluations.",
        ),
    ] = None

    def launched(self) -> Launch | None:
        """Return the processes that train together, of these options or of the user's launcher, if any.

        Call it before the device is resolved, which hides the other GPUs.
        """
        if self.launch not in (None, *LAUNCHERS):
            raise ConfigError(f"--launch is {self.launch}; expected {', '.join(LAUNCHERS[:-1])} or {LAUNCHERS[-1]}.")
        if self.launch in ZERO and find_spec("deepspeed") is None:
            raise MissingPackageError("deepspeed", "deepspeed", "--no-build-isolation ")
        if world_size() > 1:
            if self.devices is not None or self.processes is not None:
                raise ConfigError("torchrun has started the processes; drop --devices and --processes.")
            return JoinedLaunch(self.launch)
        if self.launch is None:
            return None
        places = self.places(self.device)
        if len(places) < 2:
            raise ConfigError(
                f"--launch {self.launch} trains one model by several processes; give --devices 0,1,2,3 or --devices "
                "auto, or on the CPU --processes N."
            )
        return LocalLaunch(self.launch, places)


@dataclass(frozen=True, kw_only=True)
class CheckpointOptions:
    """The training of a checkpoint by another program, as the user declares it."""

    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="The base that --model was trained from: an alias, a folder, or a Hugging Face id.",
        ),
    ] = None
    trained_with: Annotated[
        str | None,
        typer.Option(
            "--trained-with",
            help="The objective with which another program trained --model, such as emo or tailr(gamma=0.2); with "
            "--seed, the seed of that training.",
        ),
    ] = None
    recipe_name: Annotated[
        str | None,
        typer.Option(
            "--recipe-name",
            help="With --trained-with: your name for everything else in that training. Only checkpoints with the same "
            f"name and base are compared. Default: {UNNAMED}.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class SweepOptions(LoadingOptions, PlaceOptions):
    """How a sweep loads models, and by how many processes."""

    def placed(self) -> tuple[RequestFields, list[Place]]:
        """Return fields of a request, and where worker processes compute: by default all GPUs, or one process."""
        places = self.places(self.device) or default_places(self.device)
        return replace(self, device=places[0].device).loading(), places


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """How settings are tuned."""

    tune: Annotated[
        list[str] | None,
        typer.Option(
            "--tune",
            help="Tune a setting for each objective, on validation data: NAME=LOW..HIGH or NAME=[A, B, C], such as "
            "recipe.learning_rate=1e-6..1e-4. A range whose ends differ by a factor of 10 or more is searched on a log "
            "scale. objective.* tunes the main parameter of each objective. Repeatable.",
        ),
    ] = None
    trials: Annotated[
        int | None,
        typer.Option("--trials", help="With --tune: the trials of each objective. Default: 8."),
    ] = None
    trial_seeds: Annotated[
        int | None,
        typer.Option(
            "--trial-seeds",
            help="With --tune: the trainings of each trial, each with its own seed. Default: 1. With more, a repeated "
            "search is more likely to choose the same.",
        ),
    ] = None
    sampler: Annotated[
        str | None,
        typer.Option(
            "--sampler",
            help="With --tune: random, grid, or tpe (optuna's). Default: random.",
        ),
    ] = None

    def search(self) -> RequestFields:
        """Return these options as fields of a request."""
        if not self.tune:
            if (self.trials, self.trial_seeds, self.sampler) != (None, None, None):
                raise ConfigError("--trials, --trial-seeds and --sampler are for --tune; add --tune NAME=LOW..HIGH.")
            return {}
        space: dict[str, str] = {}
        for text in self.tune:
            name, _, values = text.partition("=")
            if name in space:
                raise ConfigError(f"--tune {name} is given twice; keep one.")
            space[name] = values
        fields: dict[str, Any] = {"space": space, "trials": 8}
        given = {"trials": self.trials, "seeds": self.trial_seeds, "sampler": self.sampler}
        for name, value in given.items():
            if value is not None:
                fields[name] = value
        return {"search": build(Search, fields, "--tune")}


@dataclass(frozen=True, kw_only=True)
class BudgetOptions:
    """Limits of a command; none by default. They decide no result."""

    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            help="Do not start if the trainings have more target tokens, summed over epochs, objectives and seeds.",
            min=1,
        ),
    ] = None
    max_hours: Annotated[
        float | None,
        typer.Option(
            "--max-hours",
            help="Stop after this many hours, with a checkpoint, as at Ctrl-C. The same command continues.",
        ),
    ] = None
    max_memory: Annotated[
        str | None,
        typer.Option(
            "--max-memory",
            help="Largest GPU memory of each process, such as 16GB. A training that needs more continues "
            "with smaller micro-batches.",
        ),
    ] = None

    @property
    def memory(self) -> int | None:
        """Bytes of --max-memory."""
        if self.max_memory is None:
            return None
        size = 0
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]I?)?B?\s*", self.max_memory.upper())
        if match is not None:
            number, unit = match.groups(default="")
            size = int(float(number) * UNITS[unit])
        if not 0 < size < 2**60:
            raise ConfigError(f"--max-memory is {self.max_memory}; expected a size, such as 16GB or 500MB.")
        return size

    def check_tokens(self, requests: Sequence[Request]) -> None:
        """Raise ConfigError where the unfinished trainings of these requests read more than --max-tokens."""
        if self.max_tokens is None:
            return
        read = Read()
        tokens = 0
        for request in requests:
            outline = tuned_outline(request, read=read)
            totals = outline.totals()
            tokens += totals.tokens["train"]
        if tokens > self.max_tokens:
            raise ConfigError(
                f"This would train on {tokens:,} target tokens, and --max-tokens is {self.max_tokens:,}. Train on less "
                "with --set recipe.max_tokens=N, which is for each training, or with fewer objectives and seeds."
            )

    @contextmanager
    def in_time(self) -> Iterator[None]:
        """End the command after --max-hours, as a scheduler's signal does."""
        if self.max_hours is None:
            yield
            return
        if not 0 < self.max_hours < 10**6:
            raise ConfigError(f"--max-hours is {self.max_hours:g}; expected a number above 0.")

        def stop() -> None:
            remark(f"The {self.max_hours:g} hours of --max-hours are over.")
            os.kill(os.getpid(), signal.SIGTERM)

        timer = threading.Timer(3600 * self.max_hours, stop)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
