"""A dry run: a plan as lines, with amounts and estimates.

Nothing is downloaded and no hub is asked. If all files of a request are on this machine, the plan has all its checks,
exact counts and finished stages; otherwise names are checked, and sizes come from the catalog and the task files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from emobench.core.errors import Missing
from emobench.runs.dry_run.costs import Costs
from emobench.runs.dry_run.outline import ABSENT, DONE, ORDER, TO_DO, Outline, StageLine, run_words
from emobench.runs.planning.estimate import H100, gigabytes
from emobench.runs.planning.ingredients import Ingredients
from emobench.runs.planning.make_plan import Planner
from emobench.runs.planning.plan import Plan
from emobench.runs.planning.prospects import prospects
from emobench.runs.planning.request import Request
from emobench.runs.stages.corpora import PackedCorpora
from emobench.runs.stages.stage import Stages

if TYPE_CHECKING:
    from emobench.runs.probe import Probe


@dataclass
class Read:
    """What outlines have read, so that the next one of the same folders does not read it again."""

    ingredients: Ingredients | None = None
    corpora: PackedCorpora | None = None


def make_outline(
    request: Request,
    *,
    exact: bool = True,
    timed: Callable[[Plan], Probe] | None = None,
    read: Read | None = None,
    planner: Planner | None = None,
) -> Outline:
    """Return the outline of a request; raises a UserError for a name or a setting that is wrong.

    Without `exact` no corpus is tokenized and nothing counts as finished: what it takes at most, at once. With
    `timed`, which times a part of the plan's work, estimates come from that. `read` is shared by outlines, and
    `planner` has looked up the names of this request.
    """
    read = read or Read()
    if planner is None or planner.request != request:
        planner = Planner(request)
    plan = planner.plan(look=True, check=exact, known=read.ingredients)
    probe = timed(plan) if timed is not None and exact else None
    costs = Costs(plan, exact=exact, timed=probe, corpora=read.corpora)
    read.ingredients, read.corpora = plan.ingredients, costs.corpora
    runs = _run_lines(plan, costs)
    downloads = [_download(download, request.offline) for download in plan.ingredients.downloads]
    lines = [*downloads, *_shared_lines(plan, costs, runs), *runs]
    lines.sort(key=lambda line: ORDER.index(line.stage))
    by_hand = [missing.how for missing in plan.ingredients.missing.values() if missing.by_hand]
    ahead = [*by_hand, *plan.warnings()]
    if request.offline and downloads:
        ahead.insert(0, _would_stop(plan.ingredients.downloads))
    assumptions = [*_rates(plan, costs)] if probe is None else [probe.note]
    verdicts = []
    if plan.tasks():
        verdicts.append(prospects(plan, _seconds_of_a_run(runs)))
    return Outline(
        title=f"{plan.suite.name} v{plan.suite.version} with {plan.model.name}",
        lines=tuple(lines),
        machine=costs.machine,
        assumptions=(*assumptions, *_circumstances(plan, costs)),
        ahead=tuple(ahead),
        verdicts=tuple(verdicts),
    )


def _run_lines(plan: Plan, costs: Costs) -> list[StageLine]:
    """Return a line for each stage of each run that has a cost of its own."""
    stages, keyed, lines = Stages(plan.request.runs), plan.ready and plan.model.has_identity, []
    for row, run in plan.rows_and_runs():
        for stage in run.stages():
            line = stage.cost(costs)
            if line is not None:
                if keyed and stages.is_finished(stage):
                    line = replace(line, state=DONE)
                what = run_words("", row.asked, f"seed {run.seed}", line.group)
                lines.append(replace(line, what=what, objective=row.asked, seed=run.seed))
    return sorted(lines, key=lambda line: ORDER.index(line.stage))


def _shared_lines(plan: Plan, costs: Costs, runs: Sequence[StageLine]) -> Iterator[StageLine]:
    """Yield lines for a base model and vectors for retrieval, which are made once for all rows, if a run needs them."""
    left, stages = {line.stage for line in runs if line.state != DONE}, Stages(plan.request.runs)
    for stage in plan.model.stages:
        state = TO_DO if left and not stages.is_finished(stage) else DONE
        what = f"pre-train {plan.model.name} on {stage.recipe.corpus}, once"
        yield replace(stage.cost(costs), what=what, state=state, group="")
    for planned in plan.evaluated():
        line = costs.embedding(planned)
        if line is not None:
            yield replace(line, state=TO_DO if "evaluate" in left else DONE)


def _seconds_of_a_run(lines: Sequence[StageLine]) -> float | None:
    """Return the mean time of a training with its evaluations; None without trainings, or if a time is unknown."""
    trained, total = {(line.objective, line.seed) for line in lines if line.stage == "train"}, 0.0
    for line in lines:
        if (line.objective, line.seed) in trained:
            if line.seconds is None:
                return None
            total += line.seconds
    return total / len(trained) if trained else None


def make_evaluation_outline(request: Request, *, exact: bool = True, planner: Planner | None = None) -> Outline:
    """Return the outline of a request that trains nothing: a training that is not finished is named, not estimated."""
    whole = make_outline(request, exact=exact, planner=planner)
    kept, missing = [], []
    for line in whole.lines:
        untrained = line.stage == "train" and line.objective and line.state != DONE
        (missing if untrained else kept).append(line)
    if not missing:
        return whole
    more = f", and {len(missing) - 1} more" if missing[1:] else ""
    advice = (
        f"Not trained yet: {missing[0].what}{more}. `emobench evaluate` trains nothing and would stop here; give its "
        "options to `emobench run`."
    )
    return replace(whole, lines=tuple(kept), ahead=(*whole.ahead, advice))


def _would_stop(missing: Sequence[Missing]) -> str:
    """Return that a run stops at once, and what it lacks."""
    shown = ", ".join(download.item for download in missing[:3])
    if missing[3:]:
        shown += " ..."
    are = "1 download is" if len(missing) == 1 else f"{len(missing)} downloads are"
    return (
        f"With --offline this run would stop: {are} missing ({shown}). Drop --offline, or give local files (--data-dir "
        "DIR, --model FOLDER)."
    )


def _download(download: Missing, offline: bool) -> StageLine:
    size = "size not known" if download.size is None else gigabytes(download.size)
    group = ""
    for kind in ("data set ", "corpus "):
        if download.item.startswith(kind):
            group = download.item.removeprefix(kind)
    what = f"{download.item} from {download.source}"
    stage, state = ("missing", ABSENT) if offline else ("download", TO_DO)
    return StageLine(stage=stage, what=what, amount=size, state=state, download_bytes=download.size, group=group)


def _rates(plan: Plan, costs: Costs) -> Iterator[str]:
    """Yield the assumptions of estimates by arithmetic."""
    dtype, machine = plan.request.weights, costs.machine
    elsewhere = ", of which this machine has none" if machine is H100 else ""
    yield f"Times are rough, for {machine.name}{elsewhere}:"
    for precision, weights in costs.precisions:
        rate = f"{machine.rate(precision) / 1e12:.3g} TFLOP/s"
        kept = "" if weights == precision else f", weights in {weights}"
        yield f"  training in {precision}{kept}, at {machine.training:.0%} of {rate};"
    yield f"  scoring in {dtype}, at {machine.scoring:.0%} of {machine.rate(dtype) / 1e12:.3g} TFLOP/s."
    yield (
        "N parameters take 6 N operations a trained token (4 N with LoRA) and 2 N a scored one; what this leaves "
        "out, and what is guessed, may double or halve a time."
    )
    if any(costs.count(planned).steps for planned in plan.evaluated()):
        yield (
            f"A step of sampling, a token of a batch, is assumed to take {1000 * machine.step:.0f} ms at least. "
            "MAUVE's clusters and ROUGE, which the processor computes, come besides."
        )


def _circumstances(plan: Plan, costs: Costs) -> Iterator[str]:
    """Yield notes on other programs, a faster precision, and unknown sizes and keys."""
    dtype, machine, model = plan.request.weights, costs.machine, plan.model
    for recipe in plan.recipes:
        for name, value in (recipe.trainer or {}).items():
            yield f"Recipe {recipe.name} passes {name}={value} to transformers' TrainingArguments."
    for planned in plan.evaluated():
        program, name = planned.kind.generated_by(planned.task, plan.request.device), planned.task.name
        if program is not None:
            yield f"{name}: {program.name} generates, and no time is known of it; the estimate is the harness's own."
    if machine is H100 and dtype == "float32":
        faster = machine.rate("bfloat16") / machine.rate(dtype)
        rounds = ", and round what was trained" if plan.trainings() else ""
        yield f"--dtype bfloat16: evaluations need half the memory, are {faster:.0f} times as fast{rounds}."
    if dtype != "float32" and plan.trainings():
        yield f"Evaluations round the trained weights to {dtype} (--dtype), which loses small changes; see the guide."
    if costs.size is None:
        yield f"The size of {model.name} is not known here: no time or memory is given."
    here = model.is_local
    if here and not model.has_identity:
        yield f"What is finished is known once {model.name} is made: its weights are part of every key."
    if here and model.source.kind == "hub":
        yield "The hub was not asked: what is here of it is taken as it was downloaded."
    if plan.ingredients.downloads:
        yield "What is not here was not looked at: counts with '~' are from the catalog and the task files."
