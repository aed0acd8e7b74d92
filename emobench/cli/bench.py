"""`emobench objectives bench`: time and memory of objectives, beside cross-entropy."""

from __future__ import annotations

from typing import Annotated

import typer

from emobench.cli import options
from emobench.cli.terminal.console import print_json, print_out, reporter
from emobench.cli.terminal.tables import TextTable
from emobench.core.errors import ConfigError
from emobench.models.device import check_device, refuse_mps, resolve_device
from emobench.registry import load_objective

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
    json: options.Json = False,
) -> None:
    """Measure time and memory of objectives, compared with cross-entropy."""
    from emobench.testing.bench import ROUNDS, measure

    device = resolve_device(device)
    usual_shape = "512,32000,512"
    usual_dtype = "float32"
    if device.startswith("cuda"):
        usual_shape = "8192,50257,768"
        usual_dtype = "bfloat16"
    shape = shape or usual_shape
    dtype = dtype or usual_dtype
    try:
        sizes = list(map(int, shape.split(",")))
    except ValueError:
        sizes = []
    if len(sizes) != 3 or min(sizes) < 1 or sizes[1] < 2:
        raise ConfigError(f"--shape is '{shape}'; expected TOKENS,VOCABULARY,WIDTH, such as 512,32000,512.")
    if dtype not in DTYPES:
        raise ConfigError(f"--dtype is {dtype}; expected {', '.join(DTYPES[:-1])} or {DTYPES[-1]}.")
    refuse_mps(device)
    check_device(device)
    objectives = {name: load_objective(name).objective for name in names}
    with reporter(quiet=json).work("measuring", "step") as progress:
        costs = measure(objectives, (sizes[0], sizes[1], sizes[2]), device=device, dtype=dtype, progress=progress)
    if json:
        print_json({"shape": sizes, "device": device, "dtype": dtype, "losses": costs})
        return
    rows = []
    for cost in costs:
        times = [f"{cost.milliseconds:,.1f}", f"{cost.spread:.0%}", f"{cost.x_cross_entropy:.2f}"]
        rows.append([cost.loss, *times, f"{cost.step_bytes / MIB:,.1f}", f"{cost.held_bytes / MIB:,.1f}"])
    header = ("loss", "ms", "spread", "x cross-entropy", "MiB a step", "MiB held")
    title = f"{sizes[0]:,} tokens, vocabulary {sizes[1]:,}, width {sizes[2]:,}, {dtype}, {device}"
    print_out(
        TextTable(title, header, rows, header),
        "",
        f"Head and loss, forward and backward: median wall time of {ROUNDS} alternating rounds.",
        "MiB a step: peak beyond inputs and their gradients. MiB held: frozen tensors, such as costs.",
        "Side data, such as a teacher's hidden states, are prepared before. Compare numbers of one table only.",
    )
