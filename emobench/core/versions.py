"""Versions of packages for stage keys: minor versions, because a patch release should not change results.

The version of a third-party plugin is complete: any of its modules may change results.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import metadata
from importlib.metadata import Distribution, PackageNotFoundError

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

OWN = "emobench"


@cache
def version(name: str) -> str:
    """Return the version of a package; read once, as every stage of a plan asks for it."""
    return metadata.version(name)


def minor_versions(*packages: str) -> dict[str, str]:
    """Return the minor version of each package: "2.11" for 2.11.3. Raises PackageNotFoundError."""
    return {name: ".".join(version(name).split(".")[:2]) for name in packages}


def brought_versions(distribution: Distribution | None) -> Mapping[str, str]:
    """Return the version of a plugin's distribution, and the minor versions of its requirements.

    Empty for a built-in plugin, which names its packages itself, and for a plugin without a distribution.
    """
    if distribution is None or (own := canonicalize_name(name_of(distribution))) == OWN:
        return {}
    versions = {}
    for text in distribution.requires or ():
        with suppress(InvalidRequirement, PackageNotFoundError):
            requirement = Requirement(text)
            name, marker = canonicalize_name(requirement.name), requirement.marker
            applies = marker is None or marker.evaluate({"extra": ""})  # not that of an extra, or of another platform
            if applies and name != OWN:
                versions |= minor_versions(name)
    return {**versions, own: distribution.version}


@cache
def name_of(distribution: Distribution) -> str:
    """Return the name of a distribution; read once."""
    return distribution.name
