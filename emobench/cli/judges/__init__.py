"""`emobench judges`: who compares responses, the contract, and a judge of your own."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from emobench.cli import options, scaffold
from emobench.cli.objectives.views import checked
from emobench.cli.terminal.console import print_json, print_out, print_table
from emobench.core.errors import ConfigError, EmobenchError
from emobench.registry import judge_class, judge_names, judge_origin, load_judge

app = typer.Typer(help="Judges of responses: list, show, check, score, new.", no_args_is_help=True)
TEMPLATES = Path(__file__).parent / "templates"


@app.command("list")
def list_(json: options.Json = False) -> None:
    """List the installed judges of responses.

    A judge that does not import is listed with its error.
    """
    found = [_facts(name) for name in judge_names()]
    if json:
        print_json(found)
        return
    rows = [
        (one["name"], one.get("reads", ""), one.get("model", ""), one.get("about") or one["error"]) for one in found
    ]
    print_table("Judges of responses", ("name", "reads", "model", "what"), rows, unbroken=("name",))
    print_out("`emobench judges show NAME` prints a prompt; `emobench judges new NAME` begins one of your own.")


@app.command()
def show(
    name: Annotated[str, typer.Argument(help='A name from the list, or "name(key=value)".')],
    json: options.Json = False,
) -> None:
    """Show a judge: its source, its model, and the prompt of an example."""
    from emobench.kinds.instruct.judging.judge import GradeJudge, Pair, PairJudge

    judge = load_judge(name).component
    pair = Pair("Name a prime number.", "Seven is prime.", "Nine is prime.")
    if isinstance(judge, PairJudge):
        request = judge.request(pair)
    else:
        assert isinstance(judge, GradeJudge)
        request = judge.request(pair.instruction, pair.first)
    prompt = request.prompt if isinstance(request.prompt, str) else [dict(one) for one in request.prompt]
    found = {**_facts(judge.name), "model": judge.model, "options": dict(request.options), "prompt": prompt}
    if json:
        print_json(found)
        return
    print_out(f"{found['name']}: {found['about']}", "", f"model {judge.model}, reads {found['reads']}")
    for key, default in found["parameters"].items():
        print_out(f"parameter {key}, default {default!r}")
    print_out(", ".join(f"{key}={value}" for key, value in request.options.items()), "")
    for role, text in [("", prompt)] if isinstance(prompt, str) else [(one["role"], one["content"]) for one in prompt]:
        print_out(*([f"[{role}]"] if role else []), text, "")
    print_out(f"from {found['origin']}")


@app.command()
def check(
    names: Annotated[list[str], typer.Argument(help='A name, or "name(key=value)".')],
    json: options.Json = False,
) -> None:
    """Check that judges keep the contract. No model is asked.

    It prints one line for each check. A failure comes with what it usually means.
    """
    from emobench.testing.judge_checks import run_judge_checks

    judges = {name: load_judge(name).component for name in names}
    found: list[dict[str, Any]] = []
    for name, judge in judges.items():
        outcomes = run_judge_checks(judge)
        found.append({"judge": name, "ok": all(o.status != "failed" for o in outcomes), "checks": outcomes})
        if not json:
            print_out(*([""] if len(found) > 1 else []), *checked(name, outcomes))
    if json:
        print_json(found if len(found) > 1 else found[0])
    if not all(one["ok"] for one in found):
        raise typer.Exit(1)


@app.command()
def score(
    judged: Annotated[
        list[str],
        typer.Argument(
            metavar="JUDGED ...",
            help="Files of AlpacaEval's annotations, .json or .jsonl, or entries of runs with a judge of pairs.",
        ),
    ],
    task: options.Tasks = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="The training seed. Default: the entry's first seed.")
    ] = None,
    data_dir: Annotated[
        list[Path] | None, typer.Option("--data-dir", help="A folder that may hold df_gamed.csv. Repeatable.")
    ] = None,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    runs: options.Runs = options.DEFAULT_RUNS,
    offline: options.Offline = False,
    json: options.Json = False,
) -> None:
    """Compute AlpacaEval's metrics of judged pairs: win rate, standard error, length-controlled win rate.

    The pairs are annotations in a file, or the kept judgements of an entry; there, both orders count. The last metric
    needs the file df_gamed.csv, from a data folder or the hub. Without it, there is the win rate at equal lengths by
    the lengths alone, which is another number.
    """
    from emobench.kinds.instruct.judging.annotations import rates, read_annotations
    from emobench.runs.inspect.annotated import annotations_of, has_judgements
    from emobench.runs.inspect.recorded_runs import newest_of

    pairs: list[tuple[dict[str, str], list[dict[str, Any]]]] = []
    for word in judged:
        if Path(word).suffix in (".json", ".jsonl"):
            pairs.append(({"file": word}, read_annotations(Path(word))))
            continue
        ((entry, *_),) = newest_of([word], leaderboard, lambda one: has_judgements(one, runs))
        found_of = annotations_of(entry, runs, task, seed)
        pairs += [({"entry": entry.id, "task": name}, rows) for name, rows in found_of.items()]
    found = [(origin, rates(rows, data_dir or (), offline=offline)) for origin, rows in pairs]
    if json:
        print_json([{**origin, **dataclasses.asdict(one)} for origin, one in found])
        return
    rows = [
        (
            one.model or Path(origin["file"]).name,
            origin.get("task", "-"),
            str(one.count),
            f"{one.win_rate:.2%}",
            f"{one.standard_error:.2%}",
            "-" if one.length_controlled is None else f"{one.length_controlled:.2%}",
            "-" if one.length_controlled_minimal is None else f"{one.length_controlled_minimal:.2%}",
        )
        for origin, one in found
    ]
    header = ("model", "task", "n", "win rate", "standard error", "length-controlled", "on lengths alone")
    print_table("AlpacaEval's metrics", header, rows)
    print_out("", *dict.fromkeys(one.missing for _, one in found if one.missing))


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="The name of the judge, such as my-judge.")],
    directory: Annotated[
        Path, typer.Option("--directory", help="The folder in which the package's folder is created.")
    ] = Path(),
) -> None:
    """Write a package with a judge of your own."""
    if name in judge_names():
        raise ConfigError(f"'{name}' is taken, by {judge_origin(name)}; give the judge another name.")
    templates = {
        "pyproject.toml": TEMPLATES / "pyproject.toml.tmpl",
        "README.md": TEMPLATES / "README.md.tmpl",
        "$module.py": TEMPLATES / "judge.py.tmpl",
        "tests/test_$module.py": TEMPLATES / "test_judge.py.tmpl",
    }
    folder = scaffold.write_package(name, directory, templates, {}, what="a judge")
    print_out(
        f"Wrote {folder}: a judge that works. Make it yours in {folder / scaffold.module_name(name)}.py.",
        "",
        f"pip install -e {folder.resolve()}",
        f"emobench judges check {name}",
        f"emobench judges show {name}",
    )


def _facts(name: str) -> dict[str, Any]:
    """Return what is known of a judge; of one that cannot be used, its error."""
    from emobench.kinds.instruct.judging.judge import PairJudge

    known = {"name": name, "origin": judge_origin(name)}
    try:
        cls = judge_class(name)
    except EmobenchError as error:
        return {**known, "error": str(error)}
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    return {
        **known,
        "about": inspect.cleandoc(cls.__doc__ or "").partition("\n")[0],
        "reads": "two responses" if issubclass(cls, PairJudge) else "one response",
        "model": cls.model if isinstance(cls.model, str) else "by its parameters",
        "parameters": {one.name: one.default for one in fields},
    }
