"""What a verdict needs: its level, and how many seeds and items."""

from __future__ import annotations

ALPHA = 0.05
"""The two-sided level of every test and, as 1 - ALPHA, of every interval."""
POWER = 0.8
"""The power at which a true difference counts as detectable."""
MIN_SEEDS = 3
"""Fewer cannot tell an objective from a lucky seed: with 2, one degree of freedom is left."""
MIN_ITEMS = 10
"""With 5 and many seeds, up to 9 % of true nulls are rejected at a nominal 5 % (simulated); from 10 on at most 7 %."""
SMALL_N_FLAG = "small_n"
"""Flags a metric of too few examples for a verdict or a rank."""
