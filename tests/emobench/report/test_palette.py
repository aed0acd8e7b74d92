"""One colour for each objective and each verdict, apart for colour-blind readers, on page, paper and terminal."""

from __future__ import annotations

import itertools

import numpy as np

from emobench.report.palette import (
    BETTER,
    OBJECTIVES,
    WORSE,
    in_terminal,
    on_paper,
    slots,
)

# Viénot, Brettel and Mollon (1999): what a dichromat's eye makes of linear RGB.
DICHROMATS = {
    "protan": [[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]],
    "deutan": [[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]],
}


def lab(colour: str, eye: str | None = None) -> np.ndarray:
    """Return CIELAB of a colour "#rrggbb", as a dichromat sees it where `eye` names one."""
    srgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.array(DICHROMATS[eye]) @ linear, 0, 1) if eye else linear
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    f = np.cbrt(xyz / [0.9505, 1.0, 1.089])
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_better_and_worse_are_apart_for_every_eye() -> None:
    for eye, tone in itertools.product((None, *DICHROMATS), ("light", "dark")):
        better, worse = (lab(getattr(of, tone), eye) for of in (BETTER, WORSE))
        assert np.linalg.norm(better - worse) > 40


def test_no_two_objectives_look_alike_to_any_eye() -> None:
    for eye, tone in itertools.product((None, *DICHROMATS), ("light", "dark")):
        colours = [lab(getattr(of, tone), eye) for of in OBJECTIVES]
        assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(colours, 2)) > 8


def test_an_objective_keeps_its_colour_whatever_else_is_there() -> None:
    papers = ("mle", "tailr", "mixce", "emo", "pretrained")
    alone = [slots([name])[name] for name in papers]
    assert [slots(papers)[name] for name in papers] == alone
    assert len({*alone}) == len(papers)
    assert len({*slots(f"objective-{n}" for n in range(8)).values()}) == 8
    assert on_paper(["tailr(gamma=0.2)", "emo [77aa11]"]) == on_paper(["tailr", "emo"])


def test_names_in_a_terminal_can_be_read_on_black_and_on_white() -> None:
    for tone in OBJECTIVES:
        light = ((lab(tone.either)[0] + 16) / 116) ** 3  # relative luminance, of L*
        assert 1.05 / (light + 0.05) >= 3
        assert (light + 0.05) / 0.05 >= 3
    assert in_terminal(["emo"]) == {"emo": OBJECTIVES[slots(["emo"])["emo"]].either}
