"""What a request asks of this machine: its device and its trackers, checked while it is planned."""

from __future__ import annotations

from emobench.errors import ConfigError, UnknownNameError
from emobench.pipeline.planning.request import Request


def check_machine(request: Request) -> None:
    """Raise a UserError for a device that is not here, or a tracker that is unknown or not installed."""
    from emobench.models.device import check_device

    check_device(request.device)
    if request.trackers:
        _check_trackers(request.trackers)


def _check_trackers(names: tuple[str, ...]) -> None:
    from transformers.integrations.integration_utils import (
        INTEGRATION_TO_CALLBACK,
        get_available_reporting_integrations,
    )

    installed = get_available_reporting_integrations()
    for name in names:
        if name not in INTEGRATION_TO_CALLBACK:
            raise UnknownNameError("tracker", name, INTEGRATION_TO_CALLBACK, where="--track: ")
        if name not in installed:
            raise ConfigError(
                f"--track {name}: the tracker is not installed; pip install {name}, or 'emobench[trackers]' for "
                "tensorboard, trackio and wandb."
            )
        try:
            INTEGRATION_TO_CALLBACK[name]()
        except Exception as error:
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise ConfigError(f"--track {name}: the tracker cannot be started ({said}).") from error
