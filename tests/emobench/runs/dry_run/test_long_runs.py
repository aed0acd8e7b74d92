"""What is said of a run that is long on a CPU."""

from __future__ import annotations

from emobench.runs.dry_run.outline import LONG, UNCERTAIN, too_long


def test_a_run_that_is_not_long_is_not_spoken_of() -> None:
    assert too_long(UNCERTAIN * LONG, 1.0, "a smaller --model", asked=False) is None


def test_what_is_known_of_a_long_run_is_said() -> None:
    said = too_long(10 * 86400.0, 7200.0, "a smaller --model", asked=False, unknown=3) or ""
    assert "about 10.0 days (5.0 days to 20.0 days) on this machine's CPU, not counting 3 stages whose size" in said
    assert "whose size is not known; on one H100" in said
    assert "H100-class GPU about 2.0 h. Give --device cpu to run it here all the same, or --device cuda" in said
    assert said.endswith("for less work, a smaller --model.")


def test_a_cpu_that_was_asked_for_is_not_asked_for_again() -> None:
    said = too_long(UNCERTAIN * LONG + 1, None, "--train N", asked=True) or ""
    assert said.startswith(
        "Long: this takes about 8.0 h (4.0 h to 16.0 h) on this machine's CPU. For a GPU give --device cuda"
    )
