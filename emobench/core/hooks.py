"""The markers of hooks and of their implementations; `emobench.core.family` names the hooks."""

from __future__ import annotations

import pluggy

PROJECT = "emobench"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
