"""Which examples are one sampling unit, against a plain search for connected components."""

from __future__ import annotations

import random
from itertools import combinations

from emobench.data.sampling_units import content_digest, joined_units, text_digest


def components(contents: dict[str, list[str]], named: dict[str, str]) -> set[frozenset[str]]:
    """Return the sets of two or more examples that a chain of common contents or names connects."""
    found = [{example} for example in {*contents, *named}]

    def touch(left: set[str], right: set[str]) -> bool:
        for a in left:
            for b in right:
                same_name = a in named and named[a] == named.get(b)
                if same_name or set(contents.get(a, ())) & set(contents.get(b, ())):
                    return True
        return False

    while pair := next(((a, b) for a, b in combinations(found, 2) if touch(a, b)), None):
        found = [one for one in found if one not in pair] + [pair[0] | pair[1]]
    return {frozenset(one) for one in found if len(one) > 1}


def grouped(units: dict[str, str]) -> set[frozenset[str]]:
    return {frozenset(e for e, unit in units.items() if unit == name) for name in units.values()}


def test_units_are_the_connected_components_of_contents_and_names() -> None:
    draw = random.Random(0)
    for _ in range(200):
        examples = [str(i) for i in range(draw.randint(0, 12))]
        contents = {e: draw.sample("abcdefgh", draw.randint(0, 2)) for e in examples}
        named = {e: draw.choice("ABCDEFGH") for e in examples if draw.random() < 0.5}
        units = joined_units(contents, named)
        assert grouped(units) == components(contents, named)


def test_a_unit_has_the_first_of_its_names_whatever_the_order_of_the_examples() -> None:
    contents = {"1": ["x"], "2": ["x"], "3": ["y"], "4": ["z"], "5": ["y"]}
    named = {"2": "passage b", "4": "passage b", "1": "passage a"}
    want = {"1": "passage a", "2": "passage a", "4": "passage a", "3": "text y", "5": "text y"}
    assert joined_units(contents, named) == want
    backwards = dict(reversed(contents.items())), dict(reversed(named.items()))
    assert joined_units(*backwards) == want


def test_a_content_that_is_called_as_a_name_or_an_example_is_not_taken_for_it() -> None:
    assert joined_units({"a": ["b"], "b": ["c"]}, {"c": "d"}) == {}


def test_texts_differ_by_their_words_and_by_where_fields_end() -> None:
    texts = [("a", "b"), ("ab",), ("a b",), ("a", "b", ""), ("\ud800",)]
    assert len({text_digest(*one) for one in texts}) == len(texts)


def test_case_and_white_space_make_no_other_content() -> None:
    copies = ["One film.", " one  film.\n", "ONE\tFILM.", "One\u00a0film."]
    assert len({text_digest(copy) for copy in copies}) == 1
    assert len({content_digest([{"role": "user", "content": [copy, 1]}]) for copy in copies}) == 1
    assert content_digest(["a", 1]) != content_digest(["a", "1"])
