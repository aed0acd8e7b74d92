"""What a model is trained on: the first rows of a recipe, token by token, with the tokens that carry loss."""

from __future__ import annotations

from dataclasses import dataclass

from emobench.core.errors import ConfigError
from emobench.data.conversations import FORMATS
from emobench.registry import find_suite, recipe_names, suite_names
from emobench.runs.planning.find_model import base_model
from emobench.runs.planning.ingredients import Ingredients
from emobench.runs.planning.request import Request
from emobench.runs.planning.resolve import recipe_of
from emobench.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class ShownToken:
    """One token of a row."""

    id: int
    text: str
    loss: bool


@dataclass(frozen=True, kw_only=True)
class ShownRow:
    """One conversation as a recipe trains on it, before it is packed with others."""

    recipe: str
    where: str
    tokens: tuple[ShownToken, ...]
    cut: int
    """Tokens at the end that are more than the recipe's max_length."""
    weight: float = 1.0
    """The conversation's weight in the loss."""


def show_training_rows(request: Request, name: str, *, count: int) -> list[ShownRow]:
    """Return the first rows of each recipe on conversations of a suite, or of one recipe. Raises a UserError."""
    suite = find_suite(name) if name in suite_names() or name not in recipe_names() else None
    runs = [(name, {})] if suite is None else [(run.recipe, run.settings) for run in suite.runs]
    model = request.model or (suite.model if suite is not None else None)
    if model is None:
        raise ConfigError(f"The tokens of {name} are those of a model; add --model NAME, see `emobench models list`.")
    recipes = [found for recipe, settings in runs if (found := recipe_of(request, recipe, settings)).template != "none"]
    if not recipes:
        raise ConfigError(
            f"{name} trains on texts, where every token carries loss; expected a recipe on conversations, such as one "
            "with --set recipe.template=alpaca --set recipe.packing=rows."
        )
    return [row for recipe in recipes for row in _rows(request, recipe, model, count)]


def _rows(request: Request, recipe: Recipe, model: str, count: int) -> list[ShownRow]:
    tokenizer = base_model(model, request).tokenizer
    given = Ingredients(request, look=False).conversations(recipe, "train")
    assert given is not None
    rows = []
    for i in range(min(count, len(given))):
        one = given.conversation(i)
        ids_T, counts_T = FORMATS[recipe.template](tokenizer).tokens(one, recipe.responses)
        shown = list(zip(ids_T, counts_T, strict=True))[: recipe.max_length]
        tokens = tuple(ShownToken(id=t, text=tokenizer.decode([t]), loss=counts) for t, counts in shown)
        cut = len(ids_T) - len(tokens)
        rows.append(ShownRow(recipe=recipe.name, where=one.where, tokens=tokens, cut=cut, weight=one.weight))
    return rows
