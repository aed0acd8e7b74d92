"""`emobench objectives`: what is installed, what each one computes, its contract, its speed, and a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from emobench.cli import options
from emobench.cli.objectives.new import KINDS, write_package
from emobench.cli.objectives.views import WIDE, checked, listing, measured, shown
from emobench.cli.scaffold import module_name
from emobench.cli.terminal.console import print_json, print_out, reporter, stdout_width
from emobench.core.errors import ConfigError, EmobenchError
from emobench.models.device import check_device, resolve_device
from emobench.registry import load_objective, objective_class, objective_names

app = typer.Typer(help="Training objectives: list, show, check, bench, new.", no_args_is_help=True)
CALL = 'A name, "name(key=value)", or ./file.py:Class.'
DTYPES = ("float32", "bfloat16", "float16")


@app.command("list")
def list_(json: options.Json = False) -> None:
    """List the installed objectives.

    An objective that does not import is listed with its error.
    """
    from emobench.cli.objectives.facts import facts, unusable

    rows: list[dict[str, Any]] = []
    for name in objective_names():
        try:
            rows.append(facts(objective_class(name), name))
        except EmobenchError as error:
            rows.append(unusable(name, error))
    if json:
        print_json(rows)
        return
    print_out(*listing(rows, wide=stdout_width() >= WIDE))
    print_out("`emobench objectives show NAME` says more; `emobench objectives new NAME` begins one of your own.")


@app.command()
def show(
    name: Annotated[str, typer.Argument(help=f"{CALL} A sum is shown term by term.")],
    json: options.Json = False,
) -> None:
    """Show an objective: equation, source, parameters."""
    from emobench.cli.objectives.facts import term_facts

    found = term_facts(name)
    if json:
        print_json(found if len(found) > 1 or "weight" in found[0] else found[0])
        return
    for one in found:
        print_out(*([""] if one is not found[0] else []), *shown(one))


@app.command()
def check(
    names: Annotated[list[str], typer.Argument(help=f"{CALL} A sum is allowed, too.")],
    json: options.Json = False,
) -> None:
    """Check that objectives keep the contract.

    It prints one line for each check. A failure comes with what it usually means.
    """
    from emobench.testing import run_checks
    from emobench.testing.subject import level

    # All are loaded first, so that an unknown name is reported before the checks.
    objectives = [load_objective(name).objective for name in names]
    found: list[dict[str, Any]] = []
    for objective in objectives:
        outcomes = run_checks(objective)
        ok = all(o.status != "failed" for o in outcomes)
        head = {"objective": objective.name, "parameters": objective.params, "level": level(objective)}
        found.append({**head, "ok": ok, "checks": outcomes})
        if not json:
            print_out(*([""] if len(found) > 1 else []), *checked(str(objective), outcomes))
    if json:
        print_json(found if len(found) > 1 else found[0])
    if not all(one["ok"] for one in found):
        raise typer.Exit(1)


@app.command()
def bench(
    names: Annotated[
        list[str], typer.Argument(help='Objectives: a name, "name(key=value)", ./file.py:Class, or a sum.')
    ],
    shape: Annotated[
        str | None,
        typer.Option(help="TOKENS,VOCABULARY,WIDTH. Default: 512,32000,512; on a GPU 8192,50257,768."),
    ] = None,
    device: options.Device = options.DEFAULT_DEVICE,
    dtype: Annotated[
        str | None, typer.Option(help="float32, bfloat16 or float16. Default: float32; on a GPU bfloat16.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="The number of measurements. Default: 5; on a GPU 11.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Measure time and memory of objectives, compared with cross-entropy."""
    from emobench.testing.bench import measure

    device = resolve_device(device)
    cuda = device.startswith("cuda")
    sizes = _sizes(shape or ("8192,50257,768" if cuda else "512,32000,512"))
    dtype = dtype or ("bfloat16" if cuda else "float32")
    if dtype not in DTYPES:
        raise ConfigError(f"--dtype is {dtype}; expected {', '.join(DTYPES[:-1])} or {DTYPES[-1]}.")
    check_device(device)
    objectives = {name: load_objective(name).objective for name in names}
    with reporter(quiet=json).work("measuring", "step") as progress:
        found = measure(
            objectives, sizes, device=device, dtype=dtype, rounds=rounds or (11 if cuda else 5), progress=progress
        )
    if json:
        print_json(found)
        return
    print_out(*measured(found))


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="The name of the objective, such as my-loss.")],
    kind: Annotated[str, typer.Option("--kind", help=f"What the loss reads: {', '.join(KINDS)}.")] = next(iter(KINDS)),
    directory: Annotated[
        Path, typer.Option("--directory", help="The folder in which the package's folder is created.")
    ] = Path(),
) -> None:
    """Write a package with an objective of your own."""
    if kind not in KINDS:
        raise ConfigError(f"--kind is '{kind}'; expected one of {', '.join(KINDS)}.")
    folder = write_package(name, kind, directory)
    print_out(
        f"Wrote {folder}: an objective that works. Make it yours in {folder / module_name(name)}.py.",
        "",
        f"pip install -e {folder.resolve()}",
        f"emobench objectives check {name}",
        f"emobench run --objective mle --objective {name}",
    )


def _sizes(shape: str) -> tuple[int, int, int]:
    found = [int(part) if part.strip().isdecimal() else 0 for part in shape.split(",")]
    if len(found) != 3 or min(found) < 1 or found[1] < 2:
        raise ConfigError(
            f"--shape is '{shape}'; expected TOKENS,VOCABULARY,WIDTH as whole numbers, such as 512,32000,512."
        )
    return found[0], found[1], found[2]
