"""Inspection of an algorithm during training: source of NaN and infinity, health of layers, time by phase.

Inspection only reads values and draws no random numbers, so training results do not change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rl4sys.algorithms.base import Algorithm, Update
from rl4sys.buffers.base import Batch, Buffer
from rl4sys.diagnostics.health import (
    Finding,
    GradientStatistics,
    InputStatistics,
    OutputStatistics,
    describe_nonfinite,
)
from rl4sys.diagnostics.parts import describe, find_parts
from rl4sys.diagnostics.stopwatch import Stopwatch
from rl4sys.errors import NumericalError
from rl4sys.networks.base import to_array
from rl4sys.policy.base import Policy
from rl4sys.spec import Array, State

FORWARD, BACKWARD, OPTIMIZER, CHECKS = "update: forward", "update: backward", "update: optimizer", "checks of --debug"
_UNTRACED_UPDATES, _TRACED_STEPS = 2, 10
_REMEDY = "lower algorithm.lr, or scale the inputs (environment.normalize_obs, environment.normalize_reward)"


@dataclass(frozen=True)
class Report:
    """Statistics and findings since the last report."""

    values: dict[str, Array]
    """Arrays for histograms: weights, gradients and activations by layer."""
    scalars: dict[str, float]
    findings: list[Finding]


class Inspection:
    """Inspects the updates of an algorithm. Within `installed`, use the wrapper `algorithm` instead of the original."""

    def __init__(self, algorithm: Algorithm, watch: Stopwatch) -> None:
        self._parts, self._watch = find_parts(algorithm), watch
        self._layers, self._weights = self._parts.layers(), self._parts.weights()
        optimized = set(self._parts.optimized_parameters())
        self._optimized = {w: name for w, name in self._weights.items() if w in optimized and w.numel()}
        # Networks without an optimizer, such as target networks, are checked for NaN but not measured.
        self._trained_networks = [root for root in self._parts.networks.values() if optimized & set(root.parameters())]
        self._inputs = InputStatistics()
        self._outputs = OutputStatistics()
        self._gradients = GradientStatistics(list(self._optimized.values()))
        self._trace = _Trace()
        self._steps = 0
        self._loss_is_finite = True
        self.algorithm = _InspectedAlgorithm(algorithm, self)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Install hooks on layers, gradients and optimizers, and remove the hooks at the end of the context."""
        with ExitStack() as stack:
            for handle in self._hooks():
                stack.callback(handle.remove)
            stack.enter_context(_patched(torch.autograd, "backward", self._backward))
            stack.enter_context(_patched(torch.autograd, "grad", self._grad))
            yield

    def report(self) -> Report:
        """Return statistics and findings since the last call, and reset all statistics."""
        with self._watch.phase(CHECKS):
            findings = [*self._inputs.findings(), *self._outputs.findings(), *self._gradients.findings()]
            scalars = {**self._outputs.scalars(), **self._gradients.scalars()}
            report = Report(self._arrays(), scalars, findings)
            for part in (self._inputs, self._outputs, self._gradients):
                part.reset()
            return report

    def save_trace(self, path: Path) -> bool:
        """Write the profiler trace for Chrome or Perfetto. Return False if there is no trace, or the file exists."""
        return self._trace.save(path)

    def update(self, algorithm: Algorithm, batch: Batch, steps: int) -> Update:
        """Run one update and check its inputs and results."""
        self._steps = steps
        with self._watch.phase(CHECKS):
            self._inputs.add(batch, steps)
            before = algorithm.state()
            self._trace.begin_update()
        with ExitStack() as stack:
            if self._trace.running:
                # The profiler slows this update down, so the whole update is charged to the checks.
                stack.enter_context(self._watch.charge_all_to(CHECKS))
            stack.enter_context(self._watch.phase(FORWARD))
            update = self._update_with_diagnosis(algorithm, batch, before)
        with self._watch.phase(CHECKS):
            self._trace.end_update()
            self._check_result(update)
        return update

    def _update_with_diagnosis(self, algorithm: Algorithm, batch: Batch, before: State) -> Update:
        try:
            return algorithm.update(batch, self._steps)
        except _GradientError as problem:
            operation = self._find_operation(algorithm, batch, before)
            raise NumericalError(f"{problem}. {operation}To fix this, {_REMEDY}") from problem
        except NumericalError as problem:
            if self._loss_is_finite:
                raise
            raise NumericalError(f"{problem}. {self._outputs.describe_largest()}") from problem

    def _find_operation(self, algorithm: Algorithm, batch: Batch, before: State) -> str:
        """Repeat the update with torch's anomaly detection and return a sentence that names the failing operation."""
        algorithm.restore(before)
        try:
            # Torch also prints a warning with the source lines of the operation, meant for the user.
            with torch.autograd.set_detect_anomaly(True):
                algorithm.update(batch, self._steps)
        except RuntimeError as found:
            return f"Torch reports: {str(found).partition('.')[0]}. "
        except NumericalError:
            # The gradient is infinite. Anomaly detection finds only NaN.
            return ""
        return ""

    def _check_result(self, update: Update) -> None:
        """Raise `NumericalError` if a weight or the feedback for the buffer is not finite."""
        for weight, name in self._weights.items():
            if not torch.isfinite(weight).all():
                raise NumericalError(
                    f"weight {name} {describe_nonfinite(weight)} after the update at step {self._steps:,}"
                )
        for name, column in update.feedback.items():
            if column.dtype.kind == "f" and not math.isfinite(float(column.sum())):
                raise NumericalError(f"feedback '{name}' for the buffer is not finite at step {self._steps:,}")

    def _hooks(self) -> Iterator[Any]:
        trained = {id(module) for root in self._trained_networks for module in root.modules()}
        for layer, name in self._layers.items():
            yield layer.register_forward_hook(self._on_forward(name, measured=id(layer) in trained))
        for weight, name in self._optimized.items():
            yield weight.register_post_accumulate_grad_hook(self._on_gradient(name))  # type: ignore[no-untyped-call]
        for optimizer in self._parts.optimizers.values():
            yield optimizer.register_step_pre_hook(lambda *_: self._watch.enter(OPTIMIZER))
            yield optimizer.register_step_post_hook(lambda *_: self._after_step())

    def _on_forward(self, name: str, *, measured: bool) -> Callable[[nn.Module, Any, Any], None]:
        def check(layer: nn.Module, inputs: Any, output: Any) -> None:
            with self._watch.phase(CHECKS), torch.no_grad():
                for tensor in _tensors(output):
                    self._check_output(name, layer, inputs, tensor)
                    if measured:
                        self._outputs.add(name, layer, tensor)

        return check

    def _on_gradient(self, name: str) -> Callable[[Tensor], None]:
        def check(weight: Tensor) -> None:
            with self._watch.phase(CHECKS):
                assert weight.grad is not None  # the hook is called after the gradient is accumulated
                if self._loss_is_finite and not torch.isfinite(weight.grad).all():
                    raise _GradientError(
                        f"the gradient of {name} {describe_nonfinite(weight.grad)} at step {self._steps:,}, although "
                        f"the loss is finite. {self._gradients.describe_last()}. {self._outputs.describe_largest()}"
                    )
                self._gradients.add(name, weight)

        return check

    def _check_output(self, name: str, layer: nn.Module, given: Any, output: Tensor) -> None:
        if torch.isfinite(output).all():
            return
        weights = [n for n, weight in layer.named_parameters(recurse=False) if not torch.isfinite(weight).all()]
        inputs = [tensor for tensor in _tensors(given) if tensor.is_floating_point()]
        if weights:
            cause = f"its {weights[0]} is not finite; {_REMEDY}"
        elif any(not torch.isfinite(tensor).all() for tensor in inputs):
            cause = "its input is not finite"
        else:
            largest = max((float(tensor.abs().max()) for tensor in inputs), default=0.0)
            cause = f"its input is finite, with values up to {largest:.3g}; {_REMEDY}"
        raise NumericalError(
            f"the output of layer {name} ({describe(layer)}) {describe_nonfinite(output)} at step {self._steps:,}: "
            f"{cause}"
        )

    def _backward(self, original: Callable[..., Any], tensors: Any, *arguments: Any, **options: Any) -> Any:
        """Time the backward pass. Gradients of a non-finite loss are not checked: the algorithm reports the loss."""
        self._loss_is_finite = all(bool(torch.isfinite(tensor).all()) for tensor in _tensors(tensors))
        with self._watch.phase(BACKWARD):
            return original(tensors, *arguments, **options)

    def _grad(self, original: Callable[..., Any], outputs: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        """Check gradients of algorithms that call `torch.autograd.grad` themselves."""
        with self._watch.phase(BACKWARD):
            gradients = original(outputs, inputs, *arguments, **options)
        for weight, gradient in zip(_tensors(inputs), gradients, strict=True):
            if gradient is not None and not torch.isfinite(gradient).all():
                name = self._weights.get(weight, "a tensor")  # type: ignore[call-overload]
                raise _GradientError(f"the gradient of {name} {describe_nonfinite(gradient)} at step {self._steps:,}")
        return gradients

    def _after_step(self) -> None:
        self._watch.exit()
        self._trace.count_step()

    def _arrays(self) -> dict[str, Array]:
        measured = {weight for root in self._trained_networks for weight in root.parameters() if weight.numel()}
        weights = {weight: name for weight, name in self._weights.items() if weight in measured}
        values = {f"weights/{name}": to_array(weight) for weight, name in weights.items()}
        gradients = {name: weight.grad for weight, name in weights.items()}
        values |= {f"gradients/{name}": to_array(grad) for name, grad in gradients.items() if grad is not None}
        return values | {f"activations/{name}": to_array(output) for name, output in self._outputs.newest.items()}


class _GradientError(NumericalError):
    """Raised if a gradient is not finite although the loss is finite."""


class _InspectedAlgorithm:
    """Algorithm wrapper that runs updates through an `Inspection`."""

    def __init__(self, algorithm: Algorithm, inspection: Inspection) -> None:
        self._algorithm, self._inspection = algorithm, inspection

    def make_buffer(self) -> Buffer:
        return self._algorithm.make_buffer()

    def policy(self, steps: int) -> Policy:
        return self._algorithm.policy(steps)

    def update(self, batch: Batch, steps: int) -> Update:
        return self._inspection.update(self._algorithm, batch, steps)

    def state(self) -> State:
        return self._algorithm.state()

    def restore(self, state: State) -> None:
        self._algorithm.restore(state)


class _Trace:
    """Torch profiler that skips the first updates and then records a few gradient steps."""

    def __init__(self) -> None:
        self._profiler: Any = None
        self._updates = self._gradient_steps = 0
        self.running = False

    def begin_update(self) -> None:
        self._updates += 1
        if self._updates > _UNTRACED_UPDATES and self._profiler is None:
            self._profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
            self._profiler.start()
            self.running = True

    def count_step(self) -> None:
        """Count a gradient step. Profiling stops after ten steps, because one PPO update may have thousands."""
        self._gradient_steps += self.running
        if self.running and self._gradient_steps >= _TRACED_STEPS:
            self._stop()

    def end_update(self) -> None:
        """Stop profiling after one update if the algorithm takes no optimizer steps."""
        if self.running and self._gradient_steps == 0:
            self._stop()

    def save(self, path: Path) -> bool:
        if self.running:
            self._stop()
        if self._profiler is None or path.exists():
            return False
        self._profiler.export_chrome_trace(str(path))
        return True

    def _stop(self) -> None:
        self.running = False
        self._profiler.stop()


@contextmanager
def _patched(module: Any, name: str, replacement: Callable[..., Any]) -> Iterator[None]:
    """Replace a function temporarily. `replacement` receives the original as its first argument."""
    original = getattr(module, name)
    setattr(module, name, lambda *arguments, **options: replacement(original, *arguments, **options))
    try:
        yield
    finally:
        setattr(module, name, original)


def _tensors(values: Any) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, dict):
        yield from _tensors(list(values.values()))
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _tensors(value)
