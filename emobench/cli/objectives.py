"""`emobench objectives`: what is installed, what each one computes, its contract, its speed, and a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from emobench.cli import options
from emobench.cli.console import print_json, print_out, print_table, reporter
from emobench.cli.new_objective import KINDS, module_name, write_package
from emobench.config import parse_call
from emobench.errors import ConfigError, EmobenchError

app = typer.Typer(help="Training objectives: list, show, check, bench, new.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help='A name, "name(key=value)", or ./file.py:Class.')]
DTYPES = ("float32", "bfloat16", "float16")
MIB = 2**20
SIGNS = {"ok": "ok", "failed": "FAILED", "skipped": "skipped"}


@app.command("list")
def list_(json: options.Json = False) -> None:
    """List the installed objectives; one that does not import is named with its error, and the others still work."""
    from emobench.cli.objective_facts import LEVELS, facts, unusable
    from emobench.registry import objective_class, objective_names

    rows: list[dict[str, Any]] = []
    for name in objective_names():
        try:
            rows.append(facts(objective_class(name), name))
        except EmobenchError as error:
            rows.append(unusable(name, error))
    if json:
        print_json(rows)
        return
    levels = [*LEVELS, ""]
    for group in dict.fromkeys(r["group"] for r in sorted(rows, key=lambda r: (levels.index(r["level"]), r["group"]))):
        print_table(group, ("name", "parameters", "loss", "what"), [_cells(r) for r in rows if r["group"] == group])
        print_out("")
    print_out("`emobench objectives show NAME` says more; `emobench objectives new NAME` begins one of your own.")


@app.command()
def show(name: Name, json: options.Json = False) -> None:
    """Show an objective: its equation and source, its parameters, what it reads, and how to use it."""
    from emobench.cli.objective_facts import facts
    from emobench.objectives.expression import parse_terms
    from emobench.registry import objective_class

    first, *more = parse_terms(name)
    if more or first.weight is not None:
        raise ConfigError(f"'{name}' combines objectives; show one, such as `emobench objectives show {first.call}`.")
    called = parse_call(name)[0]
    found = facts(objective_class(called), called)
    use = f"emobench run --objective {_quoted(called, found['parameters'])}"
    if json:
        print_json({**found, "use": use})
        return
    print_out(*_shown(found, use))


@app.command()
def check(name: Name, json: options.Json = False) -> None:
    """Run the conformance kit on an objective: what holds, what does not, and what that usually means."""
    from emobench.registry import load_objective
    from emobench.testing import run_checks
    from emobench.testing.subject import level

    objective = load_objective(name).objective
    kind = level(objective)
    outcomes = run_checks(objective)
    failed = [o for o in outcomes if o.status == "failed"]
    if json:
        head = {"objective": objective.name, "parameters": objective.params, "level": kind}
        print_json({**head, "ok": not failed, "checks": outcomes})
    else:
        for o in outcomes:
            print_out(
                f"{SIGNS[o.status]:<8}{o.name:<14}{o.promise}" + (f" ({o.found})" if o.status == "skipped" else "")
            )
        for o in failed:
            print_out("", f"{o.name}: {o.found}", f"  Usually: {o.usually}")
        counts = ", ".join(f"{n} {s}" for s in SIGNS if (n := sum(o.status == s for o in outcomes)))
        print_out("", f"{objective}: {counts}.")
    if failed:
        raise typer.Exit(1)


@app.command()
def bench(
    names: Annotated[list[str], typer.Argument(help='Names, "name(key=value)", ./file.py:Class, or combinations.')],
    shape: Annotated[
        str | None,
        typer.Option(help="TOKENS,VOCABULARY,WIDTH. Default: 512,32000,512, and 8192,50257,768 on a GPU."),
    ] = None,
    device: options.Device = "cpu",
    dtype: Annotated[
        str | None, typer.Option(help="float32, bfloat16 or float16. Default: float32, and bfloat16 on a GPU.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Default: 5, and 11 on a GPU.")] = None,
    json: options.Json = False,
) -> None:
    """Measure how fast objectives are beside cross-entropy on this machine, and how much memory they take."""
    from emobench.models.load import check_device
    from emobench.registry import load_objective
    from emobench.testing.bench import measure

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
    print_out(*_bench_lines(found))


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="The objective's name, such as my-loss.")],
    kind: Annotated[str, typer.Option("--kind", help=f"What the loss reads: {', '.join(KINDS)}.")] = next(iter(KINDS)),
    directory: Annotated[Path, typer.Option("--directory", help="Where the package's folder is made.")] = Path(),
) -> None:
    """Write an installable package with an objective of your own, its test and its README."""
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


def _bench_lines(found: Any) -> list[Any]:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("loss", overflow="fold")
    for name in ("ms", "spread", "x CE", "x mle", "MiB a step", "MiB held"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in found.losses:
        table.add_row(
            row.loss,
            f"{row.milliseconds:,.1f}",
            f"{row.spread:.0%}",
            f"{row.x_cross_entropy:.2f}",
            f"{row.x_mle:.2f}",
            f"{row.step_bytes / MIB:,.1f}",
            f"{row.held_bytes / MIB:,.1f}",
        )
    return [
        f"{found.tokens:,} tokens, vocabulary {found.vocabulary:,}, width {found.width:,}, {found.dtype}; "
        f"U/N {found.distinct_share:.2f} (distinct targets)",
        f"{found.device} ({found.hardware}), threads: {found.threads}",
        "",
        table,
        "",
        f"Head and loss, forward and backward: medians of {found.rounds} rounds in alternating order.",
        "x CE: over cross-entropy on whole logits; x mle: over -log q_t in the engine.",
        f"ms: {found.clock}. MiB a step: peak beyond inputs, dX and dW",
        f"({found.memory}). Held: frozen tensors, such as costs.",
        "Labels and side data (a teacher's hidden states) are prepared beforehand.",
        "The numbers are of this machine, now: compare those of one table only.",
    ]


def _sizes(shape: str) -> tuple[int, int, int]:
    found = [int(part) if part.strip().isdecimal() else 0 for part in shape.split(",")]
    if len(found) != 3 or min(found) < 1 or found[1] < 2:
        raise ConfigError(
            f"--shape is '{shape}'; expected TOKENS,VOCABULARY,WIDTH as whole numbers, such as 512,32000,512."
        )
    return found[0], found[1], found[2]


def _cells(row: dict[str, Any]) -> list[str]:
    parameters = ", ".join(f"{p['name']}={p['default']}" for p in row["parameters"])
    # Where a stranger's is from; most come with emobench itself.
    stranger = row["origin"] and not row["origin"].startswith("emobench ")
    return [row["name"], parameters, row["equation"], row["summary"] + (f" [{row['origin']}]" if stranger else "")]


def _shown(found: dict[str, Any], use: str) -> list[Any]:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    def grid(rows: list[tuple[str, str]]) -> Table:
        table = Table.grid(padding=(0, 2, 0, 0))
        for label, text in rows:
            table.add_row(Text(label, style="bold"), Text(text))
        return table

    reads = found["statistics"] + [f"{name} (side data)" for name in found["side_data"]]
    slopes = f", slopes by {found['slopes']}" if found["slopes"] else ""
    rows = [
        ("level", found["level"] + slopes),
        ("reads", ", ".join(reads) or f"the {found['level']}"),
        ("source", found["source"] or "not said"),
        ("from", found["origin"] if found["origin"] == found["file"] else f"{found['origin']} ({found['file']})"),
        ("use", use),
    ]
    parameters = [
        (f"{p['name']}: {p['type']} = {p['default']}", p["help"] + (f" [{p['range']}]" if p["range"] else ""))
        for p in found["parameters"]
    ]
    title = Text.assemble((found["name"], "bold"), f" (version {found['version']})")
    texts = [Text(found["equation"], style="cyan"), Text(found["about"])]
    return [
        title.append(f": {found['summary']}" if found["summary"] else ""),
        "",
        *(part for text in texts if text for part in (Padding(text, (0, 0, 0, 2)), "")),
        grid(rows),
        *(["", grid(parameters)] if parameters else []),
    ]


def _quoted(name: str, parameters: list[dict[str, Any]]) -> str:
    if not parameters:
        return name
    first = parameters[0]
    return f'"{name}({first["name"]}={first["default"]})"'
