"""How commands are loaded and explained: groups that import a command when it is called, and the text of `--help`.

Help is plain text: it needs no import of rich, and none of a command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pkgutil import resolve_name
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from emobench.cli.terminal.completion import complete_names
from emobench.core.errors import ConfigError

OPTIONS_FILE = "options_file"
"""The parameter of a command that takes a file of options."""
WHAT = "What"
"""The group of the command's own options, which no other group names."""
GROUPS = {
    "Where": (
        *("--runs", "--leaderboard", "--data-dir", "--out", "--offline", "--device", "--devices", "--processes"),
        *("--on", "--directory", "--launch"),
    ),
    "How": ("--set", "--protocol", "--limit", "--from-scratch", "--dtype", "--trust-remote-code", "--track", "--batch"),
    "Limits": ("--max-tokens", "--max-hours", "--max-memory"),
    "Output": ("--dry-run", "--markdown", "--latex", "--csv", "--format", "--plot", "--json", "--quiet"),
}
FEW = 6
"""The largest number of options without groups."""
EXAMPLES = {  # the examples of families are their epilogs
    "run": "emobench run --objective emo --objective mle --model gpt2 --dry-run",
    "train": "emobench train --objective emo --model gpt2 --set recipe.epochs=1",
    "evaluate": "emobench evaluate --model gpt2 --suite nlu --limit 100",
    "prompts": "emobench prompts sst2 --model gpt2 --count 1",
    "answers": "emobench answers emo --task sst2 --worst 3",
    "samples": "emobench samples emo mle --count 2",
    "figures": "emobench figures emo mle --out figures",
    "compare": "emobench compare emo mle --explain",
    "plan": "emobench plan --suite nlu --detect 2 --objective emo --objective mle",
    "curves": "emobench curves emo",
    "sweep run": "emobench sweep run sweep.toml --dry-run",
    "sweep status": "emobench sweep status sweep.toml",
    "rerun": "emobench rerun 3fa9c1 --dry-run",
    "reproduce": "emobench reproduce table-1 --dry-run",
    "sample-corpus": "emobench sample-corpus gpt2 --out corpora/gpt2 --train 1000",
    "judge": "emobench judge emo mle --set judge.name=mt-bench-pair",
    "stage run": "emobench stage run 3fa9c1",
    "runs list": "emobench runs list",
    "runs prune": "emobench runs prune --dry-run",
    "doctor": "emobench doctor",
    "leaderboard show": "emobench leaderboard show --suite nlu --baseline mle",
    "leaderboard site": "emobench leaderboard site site --open",
    "leaderboard view": "emobench leaderboard view --open",
    "leaderboard export": "emobench leaderboard export emo --to model-card",
    "leaderboard verify": "emobench leaderboard verify",
    "leaderboard pack": "emobench leaderboard pack",
    "leaderboard push": "emobench leaderboard push ../shared-board",
    "leaderboard pull": "emobench leaderboard pull ../shared-board",
    "leaderboard import": "emobench leaderboard import results.json",
    "objectives show": "emobench objectives show emo --plot emo.svg",
    "objectives check": "emobench objectives check ./their_loss.py:loss --like eaft",
    "objectives bench": "emobench objectives bench mle emo",
    "judges score": "emobench judges score annotations.json --data-dir DIR",
    "tasks list": "emobench tasks list",
    "tasks show": "emobench tasks show sst2 --protocol paper",
    "tasks new": "emobench tasks new stanfordnlp/imdb:text:label",
    "tasks export": "emobench tasks export trec exported",
    "suites list": "emobench suites list",
    "suites show": "emobench suites show nlu",
    "settings": "emobench settings recipe",
    "models list": "emobench models list",
    "models path": "emobench models path smollm2-135m-instruct",
    "models convert": "emobench models convert ./downloaded ./converted",
}


class Command(TyperCommand):
    """A command whose help has its options in groups and an example, and that says what to type for a stray word."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        for parameter in self.params:
            complete_names(parameter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given, ctx.allow_extra_args = list(args), True
        try:
            if not ctx.resilient_parsing and any(parameter.name == OPTIONS_FILE for parameter in self.params):
                from emobench.cli.options.file import expanded

                args = expanded(self, ctx, args)
                ctx.meta[OPTIONS_FILE] = list(args)
            super().parse_args(ctx, args)
        except Exception as error:
            if option := getattr(error, "option_name", None):  # an option that the command does not have
                refuse_foreign_option(option, ctx)
            raise
        if not ctx.resilient_parsing:
            if stray := ctx.params.get(OPTIONS_FILE):  # not the name of a file
                ctx.args.insert(0, stray)
            refuse_strays(ctx, given)
        return ctx.args

    def format_options(self, ctx: Any, formatter: Any) -> None:
        options: list[tuple[str, Any]] = []
        arguments = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and parameter.param_type_name == "argument":
                arguments.append(record)
            elif record is not None:
                options.append((group_of(parameter.opts), record))
        grouped = {"Arguments": arguments}
        if len(options) <= FEW:
            grouped["Options"] = [record for _, record in options]
        else:
            for title in (WHAT, *GROUPS):
                grouped[title] = [record for group, record in options if group == title]
        for title, records in grouped.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        example = self.epilog or EXAMPLES.get(ctx.command_path.partition(" ")[2])
        if example:
            with formatter.section("Example"):
                formatter.write(f"  {example}\n")  # one line, which is not wrapped: to be copied


def group_of(names: list[str]) -> str:
    """Return the group of an option, by its names."""
    if "--help" in names:
        return "Output"
    return next((title for title, members in GROUPS.items() if set(names) & set(members)), WHAT)


def refuse_strays(context: Any, given: Sequence[str]) -> None:
    """Raise ConfigError if words are left over; `given` are all words after the command."""
    if context.args:
        called = context.command_path
        meant = _meant(context, given) or f"see `{called} --help`."
        raise ConfigError(f"`{called}` does not take the argument {' '.join(context.args)}; {meant}")


def refuse_foreign_option(option: str, context: Any) -> None:
    """Raise ConfigError for an option that has another name here, or that is a setting."""
    from emobench.runs.inspect.settings import own_names  # reads what is installed, which takes a moment

    known: list[str] = []
    for parameter in context.command.params:
        known += parameter.opts
    usable = []
    for own in own_names(option, known):
        word = own if own.startswith("--") else f"--set {own}=VALUE"
        if word.split()[0] in known:
            usable.append(word)
    if usable:
        raise ConfigError(f"There is no option {option}; use {' or '.join(usable)} instead.")


def _meant(context: Any, given: Sequence[str]) -> str | None:
    from emobench.registry import objective_names  # reads what is installed, which takes a moment

    stray = context.args[0]
    for option, key, word in zip(given, given[1:], given[2:], strict=False):
        if (option, word) == ("--set", stray) and "=" not in key:
            return f"write --set KEY=VALUE: --set {key}={stray}."
    takes_objectives = any("--objective" in parameter.opts for parameter in context.command.params)
    return f"write --objective {stray}." if takes_objectives and stray in objective_names() else None


def lazy_group(
    package: str,
    commands: Mapping[str, tuple[str, str]],
    others: Callable[[str], typer.Typer | None] = lambda name: None,
    names: Callable[[], list[str]] = list,
) -> type[TyperGroup]:
    """Return a class for `typer.Typer(cls=...)`.

    `commands` gives each command's `module:attribute` in the package, and the first sentence of its help. An attribute
    is a function or a Typer group. `others` returns the group of any other command by its name, and `names` the names
    of the commands that are not in `commands`.
    """

    class LazyGroup(TyperGroup):
        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            # Enough for the list of commands, for completion, and for what is suggested after a typing error.
            self.commands = {name: TyperCommand(name, help=summary) for name, (_, summary) in commands.items()}

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            command = super().get_command(ctx, cmd_name)
            if command is None:
                group = others(cmd_name)
                return group and TyperCommand(cmd_name, help=group.info.help)
            return command

        def list_commands(self, ctx: Any) -> list[str]:
            return [*super().list_commands(ctx), *names()]

        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
            name, command, rest = super().resolve_command(ctx, args)
            return name, command and self.load(str(name)), rest

        def load(self, name: str) -> Any:
            """Import a command."""
            reference, _ = commands.get(name, ("", ""))
            return _command(name, resolve_name(f"{package}.{reference}") if reference else others(name))

    return LazyGroup


def _command(name: str, target: Any) -> Any:
    if isinstance(target, typer.Typer):
        target.rich_markup_mode, target._add_completion = None, False  # the group above has completion
        for registered in target.registered_commands:
            registered.cls = Command
        group = typer.main.get_command(target)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, cls=Command, context_settings={"help_option_names": ["-h", "--help"]})(target)
    return typer.main.get_command(alone)
