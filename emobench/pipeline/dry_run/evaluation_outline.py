"""The dry run of a command that trains nothing."""

from __future__ import annotations

from dataclasses import replace

from emobench.pipeline.dry_run.make_outline import make_outline
from emobench.pipeline.dry_run.outline import DONE, Outline
from emobench.pipeline.planning.request import Request


def make_evaluation_outline(request: Request, *, exact: bool = True) -> Outline:
    """Return the outline of a request that trains nothing: a training that is not finished is named, not estimated."""
    found = make_outline(request, exact=exact)
    missing = [line for line in found.lines if line.stage == "train" and line.objective and line.state != DONE]
    if not missing:
        return found
    kept = tuple(line for line in found.lines if line not in missing)
    said = (
        f"Not trained yet: {missing[0].what}{f', and {len(missing) - 1} more' if missing[1:] else ''}. "
        "`emobench evaluate` trains nothing and would stop here; give its options to `emobench run`."
    )
    return replace(found, lines=kept, ahead=(*found.ahead, said))
