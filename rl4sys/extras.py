"""Optional packages, and the error message with the command that installs a missing package."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

from rl4sys.errors import MissingExtraError

_TRAIN = (
    "Box2D",
    "dm_control",
    "grpc_health",
    "grpc_reflection",
    "grpc_tools",
    "gymnasium",
    "imageio",
    "matplotlib",
    "mujoco",
    "prometheus_client",
    "pygame",
    "rich",
    "tensorboard",
    "torch",
    "typer",
    "wandb",
)
"""Packages that are always installed with `rl4sys`, but not with `rl4sys-client`."""

_EXTRAS = {
    **dict.fromkeys(_TRAIN, "train"),
    "ale_py": "atari",
    "cv2": "atari",
    "envpool": "envpool",
    "pettingzoo": "pettingzoo",
    "mpe2": "pettingzoo",
    "minari": "minari",
    "imageio_ffmpeg": "video",
    "mlflow": "mlflow",
    "sqlalchemy": "mlflow",
    "alembic": "mlflow",
    "optuna": "tune",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "pandas": "datasets",
    "pyarrow": "datasets",
}
"""Optional packages by import name, mapped to the extra of `rl4sys` that installs the package."""


def extra_of(module: str | None) -> str | None:
    """Return the extra that installs the package of a module; None if no extra installs this package."""
    return _EXTRAS.get(_package(module))


def missing_package(user: str, module: str, remedy: str = "") -> MissingExtraError:
    """Return the error for a missing package that ``user`` needs. ``remedy`` is an alternative to installing it."""
    alternative = f"{remedy}, or " if remedy else ""
    command = f"pip install -e '.[{_EXTRAS.get(_package(module), 'train')}]'"
    return MissingExtraError(
        f"{user} needs {_package(module)}, which is not installed; {alternative}install it in a checkout of RL4Sys: "
        f"{command}"
    )


@contextmanager
def needed_by(user: str, remedy: str = "") -> Iterator[None]:
    """Context that raises `MissingExtraError` if an import fails because an optional package is not installed."""
    try:
        yield
    except ModuleNotFoundError as problem:
        if extra_of(problem.name) is None:
            raise
        raise missing_package(user, str(problem.name), remedy) from problem


def check_installed(user: str, *packages: str, remedy: str = "") -> None:
    """Raise `MissingExtraError` if one of the packages is not installed. Does not import the packages."""
    with needed_by(user, remedy):
        for package in packages:
            if importlib.util.find_spec(package) is None:
                raise missing_package(user, package, remedy)


def _package(module: str | None) -> str:
    return str(module).partition(".")[0]
