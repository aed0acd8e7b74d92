"""A family of the kind `beginnings`: how much the loss of a token counts, by its place in the text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import emobench


class Weighting(ABC):
    """Weights of the tokens of a beginning. A subclass is a dataclass if it has parameters."""

    name: ClassVar[str]

    @abstractmethod
    def weight(self, place: int) -> float:
        """Return the weight, from 0 to 1, of the token at a place; the first predicted one is at 0."""


WEIGHTINGS: emobench.Family[Weighting] = emobench.Family(
    name="weighting",
    title="Weightings of tokens",
    bases=("emobench_beginnings.weighting:Weighting",),
    checks="emobench_beginnings.weighting:checks",
    facts="emobench_beginnings.weighting:facts",
    columns=("third",),
    templates=Path(__file__).parent / "templates",
    usage=('emobench run --suite beginnings --set "beginnings.weighting=$name"',),
)


class Even(Weighting):
    """All tokens count alike. Own."""

    name = "even"

    def weight(self, place: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Fading(Weighting):
    """Each token counts a part of the one before it. Own."""

    name = "fading"
    part: float = 0.5

    def weight(self, place: int) -> float:
        return self.part**place


def facts(cls: type[Weighting]) -> dict[str, Any]:
    """Return the weight of the third token, for `emobench weightings list`."""
    return {"third": f"{cls().weight(2):g}"}


def checks(weighting: Weighting) -> tuple[Sequence[Any], Any]:
    """Return the checks of a weighting and their subject."""
    from emobench.testing import Broken, check

    @check("Return a number from 0 to 1 for every place.")
    def weights(subject: Weighting) -> None:
        """Its weights are from 0 to 1."""
        for place in range(100):
            if not 0 <= subject.weight(place) <= 1:
                raise Broken(f"its weight at {place} is {subject.weight(place)}")

    return [weights], weighting


@emobench.hookimpl
def emobench_weightings() -> list[type[Weighting]]:
    return [Even, Fading]
