"""`emobench sample-corpus`: the training data of the oracle experiment, from any model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emobench.cli import options
from emobench.cli.options.request import LoadingOptions, takes_groups
from emobench.cli.terminal.console import print_json, print_lines, reporter
from emobench.models.device import resolve_dtype
from emobench.registry import suite_names
from emobench.reproduce import sample_corpus as corpora


@takes_groups
def sample_corpus(
    model: Annotated[str, typer.Argument(help="An alias, a local folder, or a Hugging Face id.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="The folder to write the files to.", show_default=False)],
    loading: LoadingOptions,
    train: Annotated[int, typer.Option("--train", help="Number of texts in the training split.")] = 250_000,
    validation: Annotated[int, typer.Option("--validation", help="Number of texts in the validation split.")] = 5_000,
    test: Annotated[int, typer.Option("--test", help="Number of texts in the test split.")] = 5_000,
    length: Annotated[
        int | None, typer.Option("--length", help="Most tokens of a text. Default: 1024, or the model's context.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="The files are NAME.<split>.jsonl.")] = "gpt2-oracle",
    seed: Annotated[int, typer.Option("--seed", help="The seed of the random numbers.")] = 0,
    batch: Annotated[
        int | None, typer.Option("--batch", help="Number of texts that are sampled at once. Default: 16; on a GPU 64.")
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Sample a corpus from a model, to be used with --data-dir.

    Each text starts from nothing and runs until the model ends it. Use it for the suite of its name with an oracle of
    your own. If the command was stopped, give it again: it continues where it stopped.
    """
    how = loading.loading()
    how |= {"dtype": resolve_dtype(loading.dtype)}  # nothing is trained
    request = corpora.CorpusRequest(
        model=model,
        out=out,
        texts={"train": train, "validation": validation, "test": test},
        length=length,
        name=name,
        seed=seed,
        batch=batch,
        **how,
    )
    facts = corpora.sample_corpus(request, reporter(quiet))
    if json:
        print_json(facts)
        return
    for split, counts in facts["splits"].items():
        numbers = f"{counts['texts']:,} texts, {counts['tokens']:,} tokens, {counts['ended']:,} ended"
        print_lines(f"{request.file(split)}: {numbers}, {counts['blank']:,} blank")
    if name in suite_names():
        print_lines(f"emobench run --suite {name} --data-dir {out} --set oracle.model={model} --model MODEL")
