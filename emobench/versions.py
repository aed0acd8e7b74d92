"""Versions of packages, for content keys: minor ones, since a patch mends and decides no number.

Of a stranger's plugin it is the whole version: it may keep in any of its modules what decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import Distribution, PackageNotFoundError, version

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

OWN = "emobench"


def minor_versions(*packages: str) -> dict[str, str]:
    """Return "2.11" of a package's version 2.11.3, by its name. Raises PackageNotFoundError."""
    return {name: ".".join(version(name).split(".")[:2]) for name in packages}


def brought_versions(distribution: Distribution | None) -> Mapping[str, str]:
    """Return the version of the distribution that a plugin is from, and the minor ones of what it requires.

    Nothing of a built-in, which names what it computes with, nor of what is in no distribution.
    """
    if distribution is None or canonicalize_name(distribution.name) == OWN:
        return {}
    found = {}
    for text in distribution.requires or ():
        if (name := _required(text)) is not None:
            found |= _if_installed(name)
    return {**found, canonicalize_name(distribution.name): distribution.version}


def _required(text: str) -> str | None:
    """Return the package that a requirement names; None for emobench, and for one of an extra or another machine."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    name = canonicalize_name(requirement.name)
    applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    return name if applies and name != OWN else None


def _if_installed(name: str) -> dict[str, str]:
    try:
        return minor_versions(name)
    except PackageNotFoundError:
        return {}
