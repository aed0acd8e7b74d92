"""Renders chat templates in a process of its own, with limits: a template is a program of strangers.

Reads one JSON object a line, {"template", "values", "longest", "seconds"}, and answers with one: {"texts"}, a text for
each of the values, or {"error", "message"}: the template refused the messages, is invalid, or writes a large text.
The environment equals that of transformers' chat templates, but it is the same in each run: the date is fixed, and
nothing is random. The limits: `seconds` of processor time for a text, after which the process ends, `MEMORY` bytes, and
`longest` characters. This file is run as a script and imports jinja2 and the standard library alone.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

DAY = datetime(2024, 7, 26)
"""The date in chat templates: Llama 3.2's template has it if there is no clock."""
MEMORY = 2**29


class Generation(jinja2.ext.Extension):
    """`{% generation %}`, which marks responses: its content is written as it is."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_written"), [], [], body).set_lineno(line)

    def _written(self, caller: Any) -> str:
        return str(caller())


class Namespace(jinja2.utils.Namespace):
    """A namespace without attributes that begin with an underscore, which lead into Python."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"a template cannot set {name}")
        super().__setitem__(name, value)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


ENVIRONMENT = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
)
ENVIRONMENT.filters["tojson"] = _json
ENVIRONMENT.globals |= {"raise_exception": _raise, "strftime_now": DAY.strftime, "namespace": Namespace}
del ENVIRONMENT.filters["random"], ENVIRONMENT.globals["lipsum"]


@lru_cache(maxsize=8)
def _compiled(template: str) -> jinja2.Template:
    return ENVIRONMENT.from_string(template)


def render(template: str, values: dict[str, Any], longest: int) -> str:
    """Return the text of a template. Raises OverflowError for a long one, and any error of the template."""
    text = _compiled(template).render(**values)
    if len(text) > longest:
        raise OverflowError
    return text


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to one request."""
    texts = []
    try:
        for values in request["values"]:
            signal.setitimer(signal.ITIMER_PROF, request["seconds"])  # its signal ends the process, whatever it does
            texts.append(render(request["template"], values, request["longest"]))
    except (MemoryError, OverflowError):
        return {"error": "large", "message": ""}
    except (jinja2.TemplateSyntaxError, jinja2.TemplateAssertionError) as error:
        return {"error": "invalid", "message": f"line {error.lineno}: {error.message}"}
    except Exception as error:  # a template raises what it wants
        return {"error": "refused", "message": str(error).strip().partition("\n")[0][:500] or type(error).__name__}
    return {"texts": texts}


def main() -> None:
    """Answer until standard input ends."""
    with suppress(ValueError, OSError):  # some systems have no such limits
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for line in sys.stdin:
        answered = json.dumps(answer(json.loads(line)))
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(answered, flush=True)


if __name__ == "__main__":
    main()
