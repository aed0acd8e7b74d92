"""`list`, `show`, `check` and `new` of every family of plugins: objectives, kinds, metrics, judges, retrievers."""

from __future__ import annotations

import dataclasses
import inspect
import re
import shlex
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from string import Template
from typing import Annotated, Any

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from emobench.cli import options
from emobench.cli.terminal.console import print_json, print_out, print_table
from emobench.core.conformance import Outcome
from emobench.core.errors import ConfigError, EmobenchError, StorageError, UnknownNameError
from emobench.core.family import Family
from emobench.core.settings import PRETRAINED, describe_range, parse_call
from emobench.registry import families

PACKAGE = Path(inspect.getfile(families)).parent / "templates" / "package"
"""The files that packages of all families have."""
SIGNS = {"ok": "ok", "failed": "FAILED", "skipped": "skipped"}
MORE = {
    "objectives": {
        "show": "emobench.cli.show.objective:show",
        "check": "emobench.cli.check:check",
        "bench": "emobench.cli.bench:bench",
    },
    "judges": {"score": "emobench.cli.judge:score"},
}
"""Further commands of a family. One with the name of a general command takes its place."""
NOT_LABELLED = {
    "name", "version", "summary", "about", "equation", "group", "parameters",
    "title", "definition", "higher_is_better", "secondary", "fewest",  # of a metric; others repeat them
}  # fmt: skip
"""Facts that `show` prints at the top or at the end, without a label."""
Facts = dict[str, Any]
"""What `list` and `show` tell of a plugin, by name."""
CALL = 'A name of `list`, or "name(key=value)"; of an objective also ./file.py:Class, or a sum.'


def commands(plural: str) -> typer.Typer | None:
    """Return the commands of a family, by its plural; None if there is no such family."""
    family = families().get(plural)
    if family is None:
        return None
    more = MORE.get(plural, {})
    verbs = ", ".join(dict.fromkeys(["list", "show", "check", *more, "new"]))
    app = typer.Typer(help=f"{family.title}: {verbs}.", no_args_is_help=True)
    what = family.title[0].lower() + family.title[1:]

    own, line = f"my-{family.name}", f"emobench {plural}"
    some = next(iter(family.names()), own)

    @app.command(
        "list",
        epilog=f"{line} list",
        help=f"List the installed {what}.\n\nA plugin that cannot be used is listed with its error.",
    )
    def list_(json: options.Json = False) -> None:
        _list(family, json)

    @app.command(
        epilog=f"{line} show {some}",
        help=f"Show one of the {what}: its description, its parameters, and where it comes from.",
    )
    def show(name: Annotated[str, typer.Argument(help=CALL)], json: options.Json = False) -> None:
        print_facts(facts_of_call(family, name), json)

    @app.command(
        epilog=f"{line} check {own}",
        help=f"Check that {what} keep the contract.\n\n"
        "It prints one line for each check. A failure comes with its usual cause.",
    )
    def check(names: Annotated[list[str], typer.Argument(help=CALL)], json: options.Json = False) -> None:
        # All are loaded first, so that an unknown name is reported before the checks.
        report_checks(family.name, {name: family.load(name).plugin for name in names}, json)

    for verb, reference in more.items():
        app.command(verb)(resolve_name(reference))

    @app.command(epilog=f"{line} new {own}", help=f"Write a package with a {family.name} of your own.")
    def new(
        name: Annotated[str, typer.Argument(help="The name of the plugin, such as my-loss.")],
        kind: Annotated[
            str | None,
            typer.Option("--kind", help="The example to begin with; of objectives statistics, logits or model."),
        ] = None,
        directory: Annotated[
            Path, typer.Option("--directory", help="The folder in which the package's folder is created.")
        ] = Path(),
    ) -> None:
        folder = write_package(family, name, kind, directory)
        module = module_name(name)
        print_out(f"Wrote {folder}: a {family.name} that works. Make it yours in {folder / module}*.", "")
        print_out(f"pip install -e {folder.resolve()}", f"{line} check {name}")
        for use in family.usage:
            print_out(Template(use).substitute(name=name, module=module))

    return app


# list and show: the facts of a class.


def facts_of(family: Family[Any], name: str) -> Facts:
    """Return the facts of a plugin's class; of a plugin that cannot be used, its error."""
    known: Facts = {"name": name, "origin": family.origin(name)}
    try:
        cls: Any = family.class_of(name)
    except EmobenchError as error:
        return {**known, "group": "Unusable", "summary": f"unusable: {error}", "error": str(error), "parameters": []}
    about = inspect.cleandoc(cls.__dict__.get("__doc__") or "")
    summary, _, _ = about.partition("\n")
    known |= {
        "name": cls.name,
        "file": inspect.getfile(cls),
        "summary": summary.rstrip("."),
        "about": about,
        "parameters": _parameters(cls),
    }
    if family.facts:
        known |= resolve_name(family.facts)(cls)
    return known


def _parameters(cls: Any) -> list[Facts]:
    """Return the parameters of a plugin's class: the fields of a dataclass."""
    if not dataclasses.is_dataclass(cls):
        return []
    parameters = []
    for field in dataclasses.fields(cls):
        kind = getattr(field.type, "__name__", field.type)
        default = None if field.default is dataclasses.MISSING else field.default
        meaning = {"range": describe_range(field), "help": field.metadata.get("help", "")}
        parameters.append({"name": field.name, "type": kind, "default": default, **meaning})
    return parameters


def _list(family: Family[Any], json: bool) -> None:
    entries = [facts_of(family, name) for name in family.names()]
    others = dict(resolve_name(family.glossary)()) if family.glossary else {}
    if json:
        print_json(entries)
        return
    groups: dict[str, list[Facts]] = {}
    for entry in entries:
        groups.setdefault(entry.get("group", family.title), []).append(entry)
    for title in sorted(groups, key=lambda title: (title == "Unusable", title)):
        columns = []
        for column in family.columns:
            if any(entry.get(column) for entry in groups[title]):
                columns.append(column)
        rows = []
        for entry in groups[title]:
            summary = entry["summary"]
            if not entry["origin"].startswith("emobench "):
                summary += f" [{entry['origin']}]"
            facts = [_cell(entry.get(column)) for column in columns]
            rows.append([entry["name"], *facts, summary])
        print_table(title, ("name", *columns, "what"), rows, unbroken=("name",))
        print_out("")
    for entry in entries:
        others.pop(entry["name"], None)
        for measure in entry.get("measures", ()):
            others.pop(measure, None)
    rows = []
    for name, info in others.items():
        rows.append([name, info["unit"], info["better"], info["range"], info["definition"]])
    if rows:
        print_table("Other names in entries", ("name", "unit", "better", "range", "what"), rows, unbroken=("name",))
        print_out("")
    print_out(
        f"`emobench {family.plural} show NAME` shows one; `emobench {family.plural} new NAME` writes a template of one."
    )


def _cell(value: Any) -> str:
    """Return a fact as a table shows it."""
    if isinstance(value, Mapping):
        lines = [f"{key}: {_cell(item)}" for key, item in value.items()]
        separator = "\n" if all(isinstance(item, Mapping) for item in value.values()) else ", "
        return separator.join(lines)
    if isinstance(value, list):
        if value and isinstance(value[0], Mapping):
            if "default" in value[0]:
                return ", ".join(f"{parameter['name']}={parameter['default']}" for parameter in value)
            return "\n".join(": ".join(item.values()) for item in value)
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def facts_of_call(family: Family[Any], text: str) -> list[Facts]:
    """Return the facts of a plugin, of the terms of a sum, or of another name that the family defines."""
    shown: list[Facts] = []
    if family.glossary and text not in family.names():  # such as a metric of another kind of task
        for facts in resolve_name(family.glossary)(text).values():
            shown.append({**facts, "summary": facts["title"], "about": facts["definition"], "parameters": []})
    shown = shown or facts_of_terms(family, text)
    for facts in shown:
        if family.example:
            facts |= resolve_name(family.example)(family.load(text).plugin)
    return shown


def print_facts(shown: Sequence[Facts], json: bool) -> None:
    """Print the facts of plugins, as text or as JSON."""
    if json:
        print_json(shown if len(shown) > 1 or "weight" in shown[0] else shown[0])
        return
    for place, facts in enumerate(shown):
        if place:
            print_out("")
        print_out(*_page(facts))


def facts_of_terms(family: Family[Any], text: str) -> list[Facts]:
    """Return the facts of a plugin, or of each term of a sum with its weight.

    A call such as `focal(gamma=9)` has the values of its parameters, and its use.
    """
    shown = []
    for call, weight in family.terms(text):
        name, given = parse_call(call)
        family.class_of(name)  # an error is told as it is
        facts = facts_of(family, name)
        plugin = family.load(call).plugin if given else None
        for parameter in facts["parameters"]:
            parameter["value"] = getattr(plugin, parameter["name"]) if given else parameter["default"]
        facts["use"] = Template(family.usage[-1]).safe_substitute(name=shlex.quote(call), module=module_name(name))
        if weight:
            facts["weight"] = weight
        shown.append(facts)
    return shown


def _page(facts: Facts) -> list[Any]:
    """Return the facts of a plugin as `show` prints them."""
    title = Text(facts["name"], style="bold")
    if "version" in facts:
        title.append(f" (version {facts['version']})", style="not bold")
    if not facts["about"].startswith(facts["summary"]):
        title.append(f": {facts['summary']}", style="not bold")
    parts: list[Any] = [title, ""]
    for text in (Text(facts.get("equation", ""), style="cyan"), Text(facts["about"])):
        if text:
            parts += [Padding(text, (0, 0, 0, 2)), ""]
    rows = []
    for name, value in facts.items():
        if name not in NOT_LABELLED and (text := _cell(value)):
            rows.append((name.replace("_", " "), text))
    parts.append(_labelled(rows))
    rows = []
    for parameter in facts["parameters"]:
        label = f"{parameter['name']}: {parameter['type']} = {parameter['value']}"
        if parameter["value"] != parameter["default"]:
            label += f" (default {parameter['default']})"
        meaning = parameter["help"]
        if parameter["range"]:
            meaning += f" [{parameter['range']}]"
        rows.append((label, meaning))
    if rows:
        parts += ["", _labelled(rows)]
    return parts


def _labelled(rows: Sequence[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for label, text in rows:
        table.add_row(Text(label, style="bold"), Text(text))
    return table


# check: the conformance kit.


def report_checks(kind: str, plugins: Mapping[str, Any], json: bool) -> None:
    """Check plugins, and print the outcomes. Exits with 1 if a check failed."""
    from emobench.testing import run_checks

    reports: list[dict[str, Any]] = []
    all_ok = True
    for name, plugin in plugins.items():
        outcomes = run_checks(plugin)
        ok = all(outcome.status != "failed" for outcome in outcomes)
        all_ok &= ok
        report: dict[str, Any] = {kind: name, "ok": ok, "checks": outcomes}
        note = getattr(plugin, "description", "")  # of a loss of another program
        if note:
            report["note"] = note
        reports.append(report)
        if json:
            continue
        if len(reports) > 1:
            print_out("")
        if note:
            print_out(note, "")
        print_out(*_checked(name, outcomes))
    if json:
        print_json(reports if len(reports) > 1 else reports[0])
    if not all_ok:
        raise typer.Exit(1)


def _checked(name: str, outcomes: Sequence[Outcome]) -> list[Any]:
    """Return a line for each check, the problem of each failed one with the fix, and the counts of each status."""
    table = Table.grid()
    for width in (8, 14, None):
        table.add_column(width=width, overflow="fold")
    problems: list[Any] = []
    for outcome in outcomes:
        promise = outcome.promise
        if outcome.status == "skipped":
            promise += f" ({outcome.found})"
        table.add_row(SIGNS[outcome.status], Text(outcome.name), Text(promise))
        if outcome.status == "failed":
            problem = Table.grid(padding=(0, 1, 0, 0))
            problem.add_row(Text(f"{outcome.name}:"), Text(outcome.found))
            if outcome.usually:
                problem.add_row("", Text(f"Usually: {outcome.usually}"))
            problems += ["", problem]
    counts = []
    states = [outcome.status for outcome in outcomes]
    for status in SIGNS:
        number = states.count(status)
        if number:
            counts.append(f"{number} {status}")
    return [table, *problems, "", f"{name}: {', '.join(counts)}."]


# new: a package from templates.


def write_package(family: Family[Any], name: str, variant: str | None, directory: Path) -> Path:
    """Write the package of a plugin into a new folder `directory/name`, and return the folder.

    Raises ConfigError if the name is taken or not in kebab case, or if its module or the folder exists.
    """
    variants = family.variants or ("",)
    if variant is not None and variant not in family.variants:
        raise UnknownNameError("kind", variant, family.variants, where="--kind: ")
    if name == PRETRAINED:
        raise ConfigError(f"'{name}' stands for a model as it is; give the {family.name} another name.")
    if name in family.names():
        raise ConfigError(f"'{name}' is taken, by {family.origin(name)}; give the {family.name} another name.")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise ConfigError(
            f"'{name}' cannot name a plugin; expected small letters, digits and hyphens: my-{family.name}."
        )
    module = module_name(name)
    if find_spec(module) is not None:
        raise ConfigError(f"The module {module} is installed already; give another name.")
    folder = directory / name
    if folder.exists():
        raise ConfigError(f"{folder} exists; give another name, or another place with --directory.")
    words = {
        "name": name,
        "module": module,
        "class_name": "".join(word.capitalize() for word in name.split("-")),
        "family": family.name,
        "plural": family.plural,
        "points": family.points,
    }
    words["usage"] = "\n".join(Template(line).substitute(words) for line in family.usage)
    try:
        for root in (PACKAGE, family.templates / (variant or variants[0])):  # a family's own file takes precedence
            for template in root.rglob("*.tmpl"):
                place = Template(str(template.relative_to(root).with_suffix(""))).substitute(words)
                (folder / place).parent.mkdir(parents=True, exist_ok=True)
                (folder / place).write_text(Template(template.read_text()).substitute(words))
    except OSError as error:
        raise StorageError(f"{folder} could not be written: {error.strerror}.") from None
    return folder


def module_name(name: str) -> str:
    """Return the module of a plugin's package, with a prefix that no other package has."""
    return f"emobench_{name.replace('-', '_')}"
