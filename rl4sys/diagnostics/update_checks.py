"""Checks for any update function: inputs, gradients, weights and results must be finite. A profile is optional."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch

from rl4sys.diagnostics.health import describe_nonfinite
from rl4sys.diagnostics.parts import find_parts
from rl4sys.errors import NumericalError

_log = logging.getLogger("rl4sys.debug")

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class UpdateChecks:
    """Checks of the updates of one algorithm, which can be any object with torch modules as attributes.

    Set an attribute to False to disable a check. A failed check raises `NumericalError` with the name of the value.
    """

    def __init__(self, algorithm: Any) -> None:
        self.algorithm = algorithm
        self.enable_gradient_checking = True
        """Check that the gradients of all weights are finite."""
        self.log_network_weights = True
        """Log the norm of each weight and its gradient after an update."""
        self.check_nan_inf = True
        """Check that inputs, results and weights are finite."""
        self.profile_performance = True
        """Run torch's profiler during an update; see `profile`."""
        self.profile: torch.profiler.profile | None = None
        """Torch profile of the last update; None before the first update."""
        self.diagnostics: dict[str, float] = {}
        """Norms of weights and gradients after the last update."""

    def wrap_update(self, update: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        """Return a function that calls ``update`` with all checks and returns its result unchanged."""

        @wraps(update)
        def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            self.check_gradients()
            self.check_inputs(*args, **kwargs)
            with self._profiled():
                result = update(*args, **kwargs)
            self.check_gradients()
            self.check_outputs(result)
            self.log_diagnostics()
            return result

        return checked

    def check_gradients(self) -> None:
        """Check that all gradients are finite. Weights without a gradient are skipped."""
        if not self.enable_gradient_checking:
            return
        for weight, name in self._weights().items():
            if weight.grad is not None:
                _check_finite(weight.grad, f"the gradient of {name}")

    def check_inputs(self, *args: Any, **kwargs: Any) -> None:
        """Check that all floating-point values in the arguments of an update are finite."""
        if self.check_nan_inf:
            _check_tree({**{str(index): value for index, value in enumerate(args)}, **kwargs}, "argument ")

    def check_outputs(self, result: Any) -> None:
        """Check that the result of an update and all weights are finite."""
        if not self.check_nan_inf:
            return
        _check_tree({"result": result}, "")
        for weight, name in self._weights().items():
            _check_finite(weight.detach(), f"the weight {name}")

    def log_diagnostics(self) -> None:
        """Store the norms of weights and gradients, and write them to Python's log at level INFO."""
        if not self.log_network_weights:
            return
        weights = self._weights()
        self.diagnostics = {f"weight_norm/{name}": float(weight.detach().norm()) for weight, name in weights.items()}
        gradients = {name: weight.grad for weight, name in weights.items() if weight.grad is not None}
        self.diagnostics |= {f"gradient_norm/{name}": float(gradient.norm()) for name, gradient in gradients.items()}
        for name, norm in self.diagnostics.items():
            _log.info("%s: %.6g", name, norm)

    def _weights(self) -> Mapping[torch.nn.Parameter, str]:
        return find_parts(self.algorithm).weights()

    def _profiled(self) -> Any:
        if not self.profile_performance:
            return nullcontext()
        self.profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
        return self.profile


def _check_tree(tree: Any, path: str) -> None:
    if isinstance(tree, Mapping):
        for name, value in tree.items():
            _check_tree(value, f"{path}{name}" if path.endswith((" ", ".")) or not path else f"{path}.{name}")
    elif isinstance(tree, list | tuple):
        _check_tree({str(index): value for index, value in enumerate(tree)}, path)
    elif isinstance(tree, torch.Tensor):
        _check_finite(tree.detach(), path)
    elif isinstance(tree, float | np.ndarray | np.floating):
        values = np.asarray(tree)
        if values.dtype.kind == "f":
            _check_finite(torch.from_numpy(values.copy()), path)


def _check_finite(values: torch.Tensor, name: str) -> None:
    if not torch.isfinite(values).all():
        raise NumericalError(f"{name} {describe_nonfinite(values)}; lower the learning rate, or scale the inputs")
