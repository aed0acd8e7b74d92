"""Extras: which of them brings a package that is not installed.

`pip install emobench` brings `compare`, `leaderboard` and results, without torch. The rest is in the extras of
pyproject.toml.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from emobench.core.errors import ConfigError
from emobench.core.versions import OWN

EXTRAS = ("frames", "hub", "eval", "site", "judges", "models", "trackers", "train", "tune")
"""The extras that users need, in the order in which they are proposed."""
DISTRIBUTIONS = {
    "faiss": "faiss-cpu",
    "mauve": "mauve-text",
    "pkg_resources": "setuptools",
    "sklearn": "scikit-learn",
    "vl_convert": "vl-convert-python",
}
"""Modules whose packages have other names, apart from hyphens."""


class MissingPackageError(ConfigError):
    """A package of an extra is not installed.

    >>> str(MissingPackageError("bm25s", "eval"))
    "This needs the package bm25s, which is not installed: pip install 'emobench[eval]'"
    """

    def __init__(self, package: str, extra: str, how: str = "") -> None:
        super().__init__(f"This needs the package {package}, which is not installed: pip install {how}'{OWN}[{extra}]'")


def require(module: str) -> ModuleSpec:
    """Return where a top-level module of an extra's package is; raises MissingPackageError."""
    spec = find_spec(module)
    if spec is None:
        package = DISTRIBUTIONS.get(module, module)
        raise MissingPackageError(package, extra_of(package) or "all")
    return spec


def extra_of(package: str, first: str = "") -> str | None:
    """Return an extra that brings a package: `first`, else the first of EXTRAS. None if no extra brings it."""
    named = canonicalize_name(package)
    markers = []
    for requirement in map(Requirement, requires(OWN) or ()):
        if canonicalize_name(requirement.name) == named:
            if requirement.marker is None or "extra" not in str(requirement.marker):
                return None
            markers.append(requirement.marker)
    for extra in (first, *EXTRAS):
        if any(marker.evaluate({"extra": extra}) for marker in markers):
            return extra
    return None


@contextmanager
def missing_packages_explained(first: str = "") -> Iterator[None]:
    """Turn the error of Python for a module or package of an extra into MissingPackageError; others pass.

    `first` is the extra to propose if it brings the package.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        package = module if isinstance(error, PackageNotFoundError) else DISTRIBUTIONS.get(module, module)
        extra = extra_of(package, first) if package else None
        if extra is None:
            raise
        raise MissingPackageError(package, extra) from error
