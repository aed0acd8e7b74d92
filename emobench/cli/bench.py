"""`emobench objectives bench`: time and memory of objectives, compared with cross-entropy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from emobench.cli import options
from emobench.cli.terminal.console import print_json, print_out, reporter
from emobench.cli.terminal.tables import TextTable
from emobench.core.errors import ConfigError
from emobench.models.device import check_device, resolve_device
from emobench.registry import load_objective

if TYPE_CHECKING:
    from emobench.testing.bench import BenchResult

DTYPES = ("float32", "bfloat16", "float16")
MIB = 2**20


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
    rounds = rounds or (11 if cuda else 5)
    with reporter(quiet=json).work("measuring", "step") as progress:
        result = measure(objectives, sizes, device=device, dtype=dtype, rounds=rounds, progress=progress)
    if json:
        print_json(result)
        return
    print_out(*_measured(result))


def _sizes(shape: str) -> tuple[int, int, int]:
    sizes = [int(part) for part in shape.split(",") if part.strip().isdecimal()]
    if len(sizes) != 3 or shape.count(",") != 2 or min(sizes) < 1 or sizes[1] < 2:
        raise ConfigError(
            f"--shape is '{shape}'; expected TOKENS,VOCABULARY,WIDTH as whole numbers, such as 512,32000,512."
        )
    return sizes[0], sizes[1], sizes[2]


def _measured(result: BenchResult) -> list[Any]:
    """Return the table of a measurement, and what its columns mean."""
    numbers = ("ms", "spread", "x CE", "x mle", "MiB a step", "MiB held")
    rows = []
    for cost in result.losses:
        times = [f"{cost.milliseconds:,.1f}", f"{cost.spread:.0%}"]
        ratios = [f"{cost.x_cross_entropy:.2f}", f"{cost.x_mle:.2f}"]
        memory = [f"{cost.step_bytes / MIB:,.1f}", f"{cost.held_bytes / MIB:,.1f}"]
        rows.append([cost.loss, *times, *ratios, *memory])
    sizes = f"{result.tokens:,} tokens, vocabulary {result.vocabulary:,}, width {result.width:,}, {result.dtype}"
    return [
        f"{sizes}; U/N {result.distinct_share:.2f} (distinct targets)",
        f"{result.device} ({result.hardware}), threads: {result.threads}",
        "",
        TextTable("", ("loss", *numbers), rows, numbers, right=True),
        "",
        f"Head and loss, forward and backward: medians of {result.rounds} rounds in alternating order.",
        "x CE: over cross-entropy on whole logits; x mle: over -log q_t in the engine.",
        f"ms: {result.clock}. MiB a step: peak beyond inputs, dX and dW",
        f"({result.memory}). Held: frozen tensors, such as costs.",
        "Labels and side data (a teacher's hidden states) are prepared beforehand. Compare numbers of one table only.",
    ]
