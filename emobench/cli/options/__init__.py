"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emobench.cli.terminal.console import stdout_for_json_alone
from emobench.core.errors import ConfigError
from emobench.leaderboard.boards import board_folder, own_board
from emobench.leaderboard.store import Leaderboard
from emobench.models.device import AUTO

DEFAULT_DEVICE = AUTO
DEFAULT_SUITE = "oracle-language"
DEFAULT_RUNS = Path("runs")
DEFAULT_BOARD = Path("leaderboards/measured")
ENTRY = (
    "An objective (emo), an id or its first digits, a query (model=gpt2,objective=emo), an entry of a study that ships "
    "(studies:smollm2/emo), or a row of a paper (published:emo-table3/llama-7b/emo)."
)


def json_alone(context: typer.Context, value: bool) -> bool:
    """Keep stdout for the document, as long as the command runs."""
    if value and not context.resilient_parsing:
        context.with_resource(stdout_for_json_alone())
    return value


def existing_board(text: str) -> Path:
    """Return the folder of a board. Raises DataError if it does not exist."""
    folder = board_folder(text)
    Leaderboard(folder).require_folder()
    return folder


def seed_of(text: str) -> int:
    """Return the seed that a text is. Raises ConfigError for other text."""
    try:
        return int(text)
    except ValueError:
        raise ConfigError(
            f"--seed is {text}; expected a whole number. For several seeds repeat the option: --seed 0 --seed 1."
        ) from None


Suite = Annotated[
    str,
    typer.Option(
        "--suite",
        help="The suite of trainings and tasks: a name from `emobench suites list`, or the file of a suite or of one "
        "task: ./mine.yaml.",
    ),
]
Seeds = Annotated[
    list[int] | None,
    typer.Option(
        "--seed",
        help="A training seed. Repeatable. Default: the seeds of the suite.",
        parser=seed_of,
        metavar="INTEGER",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        help="The largest number of evaluation examples: prompts, texts, and blocks of PPL_test. This "
        "makes another protocol.",
    ),
]
Protocol = Annotated[
    str | None, typer.Option("--protocol", help="A protocol of the task. Default: its first protocol.")
]
Seed = Annotated[int | None, typer.Option("--seed", help="The training seed. Default: the entry's first seed.")]
Tasks = Annotated[list[str] | None, typer.Option("--task", help="Only this task. Repeatable. Default: all tasks.")]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric", help='Only these metrics: sst2/accuracy, accuracy (of all tasks), or "sst2/*". Repeatable.'
    ),
]
OfSuite = Annotated[str | None, typer.Option("--suite", help="Only entries of this suite: nlu, or nlu@1.")]
Entries = Annotated[list[str], typer.Argument(metavar="ENTRY [ENTRY ...]", help=f"{ENTRY} Several are shown together.")]
EntriesOrNewest = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ENTRY ...]",
        help=f"{ENTRY} Several are shown together. Default: the entries of the newest table.",
    ),
]
All = Annotated[bool, typer.Option("--all", help="Show older groups of comparable entries, too.")]
Runs = Annotated[Path, typer.Option("--runs", help="The folder of finished stages.")]
Board = Annotated[
    Path,
    typer.Option(
        "--leaderboard",
        parser=board_folder,
        metavar="DIRECTORY",
        help="The folder of recorded entries, or a board that ships: published:, studies:smollm2.",
    ),
]
OwnBoard = Annotated[
    Path, typer.Option("--leaderboard", parser=own_board, metavar="DIRECTORY", help="The folder of recorded entries.")
]
Boards = Annotated[
    list[Path] | None,
    typer.Option(
        "--leaderboard",
        parser=existing_board,
        metavar="DIRECTORY",
        help="A board's folder, or a board that ships: published:, studies:smollm2. Repeatable. "
        f"Default: {DEFAULT_BOARD}.",
    ),
]
Offline = Annotated[bool, typer.Option("--offline", help="Use only files on disk, and no network.")]
Device = Annotated[
    str,
    typer.Option("--device", help="auto (a CUDA or ROCm GPU if any, else the CPU), cpu, cuda, cuda:N or mps."),
]
Trackers = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        help="Log the training with a tracker of transformers' `report_to`. Repeatable. tensorboard "
        "writes to a folder in --runs. Default: none.",
    ),
]
Push = Annotated[
    str | None,
    typer.Option(
        "--push",
        metavar="OWNER/NAME",
        help="Send the trained model with a card and its results to a model repository of the Hugging Face hub. With "
        "--offline the files are only written.",
    ),
]
DataDirs = Annotated[
    list[Path] | None,
    typer.Option(
        "--data-dir",
        help="A folder with your data, as <corpus>.<split>.jsonl. It is used instead of a download. Repeatable.",
    ),
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code", help="Allow Python code of a hub model, or of the folder lm_eval.include, to run."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan, its cost and the finished stages, and stop.")]
Probe = Annotated[
    bool,
    typer.Option(
        "--probe", help="With --dry-run: do some steps and some examples first, and estimate time and memory from them."
    ),
]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown.")]
Latex = Annotated[bool, typer.Option("--latex", help="Print LaTeX tables (booktabs).")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.", callback=json_alone)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress on stderr.")]
