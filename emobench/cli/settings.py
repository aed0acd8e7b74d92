"""`emobench settings`: what `--set` takes."""

from __future__ import annotations

import json as json_text
from typing import Annotated

import typer

from emobench.cli import options
from emobench.cli.terminal.console import print_json, print_out
from emobench.runs.inspect.settings import Setting
from emobench.runs.inspect.settings import settings as all_settings


def settings(
    section: Annotated[
        str | None, typer.Argument(help="The first word of the settings, such as recipe. Default: all.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Show the settings of --set: type, default, and meaning with its unit.

    A recipe's or a task's file may have another value than the default: `emobench suites show` and `emobench tasks
    show` print the values in force.
    """
    found = all_settings(section)
    if json:
        print_json([setting._asdict() for setting in found])
        return
    for setting in found:
        print_out(f"{setting.name} ({setting.type}{_default(setting)})", f"    {setting.meaning}")


def _default(setting: Setting) -> str:
    """Return the default as `--set` takes it; nothing where the meaning or a file has it."""
    if setting.required:
        return ", from the file"
    if setting.default is None and "null" not in setting.type:
        return ""
    return f"; default {json_text.dumps(setting.default, ensure_ascii=False)}"
