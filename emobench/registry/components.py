"""Names to the components that a protocol's rules name: retrievers of shots, metrics of generated texts, judges."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import is_dataclass
from importlib.metadata import PackageNotFoundError
from typing import TYPE_CHECKING, Any

from emobench.core.errors import ConfigError, PluginError
from emobench.core.extras import extra_of
from emobench.core.settings import build, parse_call
from emobench.core.versions import OWN, minor_versions
from emobench.kinds.interface import LoadedComponent
from emobench.registry.plugin_checks import check_arguments
from emobench.registry.plugins import JUDGES, METRICS, RETRIEVERS, brought, class_of, files_digest, origin, plugin_names

if TYPE_CHECKING:
    from emobench.kinds.generation.metric import MetricGroup
    from emobench.kinds.icl.retrieval.retriever import Retriever
    from emobench.kinds.instruct.judging.judge import Judge


def retriever_names() -> list[str]:
    """Return the names of the installed retrievers, without importing them."""
    return plugin_names(RETRIEVERS)


def metric_names() -> list[str]:
    """Return the names of the installed metrics of generated texts, without importing them."""
    return plugin_names(METRICS)


def judge_names() -> list[str]:
    """Return the names of the installed judges of responses, without importing them."""
    return plugin_names(JUDGES)


def judge_origin(name: str) -> str:
    """Return the distribution that brings a judge, and its version."""
    return origin(JUDGES, name)


def metric_origin(name: str) -> str:
    """Return the distribution that brings a metric, and its version."""
    return origin(METRICS, name)


def retriever_class(name: str) -> type[Retriever]:
    """Return the class of an installed retriever; raises PluginError where it does not keep the contract."""
    from emobench.kinds.icl.retrieval.retriever import Retriever

    cls = class_of(RETRIEVERS, name, "emobench_retrievers", Retriever, "retriever")
    _check_method(cls, Retriever, "retrieve")
    return cls


def metric_class(name: str) -> type[MetricGroup]:
    """Return the class of an installed metric; raises PluginError where it does not keep the contract."""
    from emobench.kinds.generation.metric import Metric, MetricGroup

    cls = class_of(METRICS, name, "emobench_metrics", MetricGroup, "metric")
    base, method = (Metric, "values") if issubclass(cls, Metric) else (MetricGroup, "score")
    _check_method(cls, base, method)
    if not getattr(cls, "measures", None):
        missing = "`higher_is_better` and `unit`" if base is Metric else "`measures`"
        raise PluginError(f"The plugin '{name}': {cls.__name__} does not define {missing}.")
    return cls


def judge_class(name: str) -> type[Judge]:
    """Return the class of an installed judge; raises PluginError where it does not keep the contract."""
    from emobench.kinds.instruct.judging.judge import GradeJudge, Judge, PairJudge

    cls = class_of(JUDGES, name, "emobench_judges", Judge, "judge")
    base, method = (PairJudge, "preference") if issubclass(cls, PairJudge) else (GradeJudge, "grade")
    if not issubclass(cls, base):
        raise PluginError(f"The plugin '{name}': {cls.__name__} is neither a PairJudge nor a GradeJudge.")
    _check_method(cls, base, "request")
    _check_method(cls, base, method)
    return cls


def _check_method(cls: type, base: type, method: str) -> None:
    label = f"The plugin '{cls.name}': {cls.__name__}"  # type: ignore[attr-defined]
    if inspect.isabstract(cls):
        arguments = ", ".join(inspect.signature(getattr(base, method)).parameters)
        raise PluginError(f"{label} does not define {method}; write `def {method}({arguments}):`.")
    check_arguments(getattr(object.__new__(cls), method), base, method, label)


def load_retriever(text: str) -> LoadedComponent[Retriever]:
    """Build the retriever that a protocol names: `dense`, or with parameters, `bm25(k1=1.2)`.

    A retriever refuses a parameter's value with a ValueError in its `__post_init__`.
    """
    name, given = parse_call(text)
    return _loaded(RETRIEVERS, retriever_class(name), given, "retriever")


def load_metric(text: str) -> LoadedComponent[MetricGroup]:
    """Build the metric that a protocol names: `fluency`, or with parameters, `fluency(judge=gpt2-large)`.

    A metric refuses a parameter's value with a ValueError in its `__post_init__`.
    """
    name, given = parse_call(text)
    return _loaded(METRICS, metric_class(name), given, "metric")


def load_judge(text: str) -> LoadedComponent[Judge]:
    """Build a judge by name: `pandalm`, or with parameters, `alpaca-eval(config=alpaca_eval_gpt4)`.

    A judge refuses a parameter's value with a ValueError in its `__post_init__`.
    """
    name, given = parse_call(text)
    return _loaded(JUDGES, judge_class(name), given, "judge")


def _loaded(group: str, cls: Any, given: Mapping[str, Any], kind: str) -> LoadedComponent[Any]:
    name, has_parameters = cls.name, is_dataclass(cls)
    if given and not has_parameters:
        raise ConfigError(f"The {kind} '{name}' has no parameters; expected {name} alone.")
    try:
        named = minor_versions(*cls.packages)
    except PackageNotFoundError as error:
        extra = extra_of(str(error.name))
        install = f": pip install '{OWN}[{extra}]'" if extra else "."
        raise PluginError(f"The {kind} '{name}' needs {error.name}, which is not installed{install}") from None
    try:
        component = build(cls, given, f"{kind} {name}") if has_parameters else cls()
    except ValueError as error:
        raise ConfigError(f"{kind} {name}: {error}") from None
    return LoadedComponent(component, files_digest([cls]), {**named, **brought(group, name)})


class _Installed:
    """The installed components, as kinds ask for them."""

    def retriever(self, text: str) -> LoadedComponent[Retriever]:
        return load_retriever(text)

    def metric(self, text: str) -> LoadedComponent[MetricGroup]:
        return load_metric(text)

    def judge(self, text: str) -> LoadedComponent[Judge]:
        return load_judge(text)


COMPONENTS = _Installed()
