"""Looking into an algorithm while it learns: which layer spoils the numbers, how layers do, where time goes.

Nothing here changes what is learnt: values are looked at, none are made, and no random number is drawn.
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
from rl4sys.algorithms.health import Finding, Gradients, Inputs, Outputs, not_finite
from rl4sys.algorithms.parts import describe, find_parts
from rl4sys.algorithms.stopwatch import Stopwatch
from rl4sys.buffers.base import Batch, Buffer
from rl4sys.errors import NumericalError
from rl4sys.networks.base import to_array
from rl4sys.policy.base import Policy
from rl4sys.spec import Array, State

FORWARD, BACKWARD, OPTIMIZER, CHECKS = "update: forward", "update: backward", "update: optimiser", "checks of --debug"
_UNTRACED_UPDATES, _TRACED_STEPS = 2, 10
_REMEDY = "lower algorithm.lr, or scale what it learns from (environment.normalize_obs, environment.normalize_reward)"


@dataclass(frozen=True)
class Report:
    """How the layers did since the last one."""

    values: dict[str, Array]
    """What histograms are made of: weights, gradients and activations by layer."""
    measured: dict[str, float]
    findings: list[Finding]


class Inspection:
    """An algorithm that is looked into: use `algorithm` in its place while `installed`."""

    def __init__(self, algorithm: Algorithm, watch: Stopwatch) -> None:
        self._parts, self._watch = find_parts(algorithm), watch
        self._layers, self._weights = self._parts.layers(), self._parts.weights()
        moved = set(self._parts.learnt())
        self._learnt = {weight: name for weight, name in self._weights.items() if weight in moved and weight.numel()}
        # Copies that only follow, such as target networks, are checked and not measured.
        self._learning = [root for root in self._parts.networks.values() if moved & set(root.parameters())]
        self._inputs = Inputs()
        self._outputs = Outputs()
        self._gradients = Gradients(list(self._learnt.values()))
        self._trace = _Trace()
        self._steps = 0
        self._loss_is_finite = True
        self.algorithm = _Inspected(algorithm, self)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Within, layers and optimisers report here; afterwards all is as it was."""
        with ExitStack() as stack:
            for handle in self._hooks():
                stack.callback(handle.remove)
            stack.enter_context(_instead(torch.autograd, "backward", self._backward))
            stack.enter_context(_instead(torch.autograd, "grad", self._grad))
            yield

    def report(self) -> Report:
        """Of what was seen since the last one."""
        with self._watch.phase(CHECKS):
            findings = [*self._inputs.findings(), *self._outputs.findings(), *self._gradients.findings()]
            measured = {**self._outputs.measured(), **self._gradients.measured()}
            report = Report(self._values(), measured, findings)
            for part in (self._inputs, self._outputs, self._gradients):
                part.begin()
            return report

    def save_trace(self, path: Path) -> bool:
        """Write what was traced in the form that Chrome and Perfetto show; false while there is nothing to write."""
        return self._trace.save(path)

    def update(self, algorithm: Algorithm, batch: Batch, steps: int) -> Update:
        """One update, with everything that goes in and comes out looked at."""
        self._steps = steps
        with self._watch.phase(CHECKS):
            self._inputs.see(batch, steps)
            before = algorithm.state()
            self._trace.begin_update()
        with ExitStack() as stack:
            if self._trace.running:
                # Under the profiler everything is slow, so the time of it says nothing.
                stack.enter_context(self._watch.all_to(CHECKS))
            stack.enter_context(self._watch.phase(FORWARD))
            update = self._explained(algorithm, batch, before)
        with self._watch.phase(CHECKS):
            self._trace.end_update()
            self._check_result(update)
        return update

    def _explained(self, algorithm: Algorithm, batch: Batch, before: State) -> Update:
        try:
            return algorithm.update(batch, self._steps)
        except _GradientError as problem:
            operation = self._operation(algorithm, batch, before)
            raise NumericalError(f"{problem}. {operation}The remedy: {_REMEDY}") from problem
        except NumericalError as problem:
            if self._loss_is_finite:
                raise
            raise NumericalError(f"{problem}. {self._outputs.extremes()}") from problem

    def _operation(self, algorithm: Algorithm, batch: Batch, before: State) -> str:
        """Which operation gave the first NaN: the update is done again, while torch keeps account of each."""
        algorithm.restore(before)
        try:
            # It also warns with the lines of code that the operation came from, which is for the user to see.
            with torch.autograd.set_detect_anomaly(True):
                algorithm.update(batch, self._steps)
        except RuntimeError as found:
            return f"Torch says: {str(found).partition('.')[0]}. "
        except NumericalError:
            # An infinity, which torch does not look for.
            return ""
        return ""

    def _check_result(self, update: Update) -> None:
        """Weights must be numbers still; what the buffer is told too."""
        for weight, name in self._weights.items():
            if not torch.isfinite(weight).all():
                raise NumericalError(f"the weight {name} {not_finite(weight)} after the update at step {self._steps:,}")
        for name, column in update.feedback.items():
            if column.dtype.kind == "f" and not math.isfinite(float(column.sum())):
                raise NumericalError(f"what the buffer is told of {name} is not finite at step {self._steps:,}")

    def _hooks(self) -> Iterator[Any]:
        measured = {id(module) for root in self._learning for module in root.modules()}
        for layer, name in self._layers.items():
            yield layer.register_forward_hook(self._on_forward(name, watched=id(layer) in measured))
        for weight, name in self._learnt.items():
            yield weight.register_post_accumulate_grad_hook(self._on_gradient(name))  # type: ignore[no-untyped-call]
        for optimizer in self._parts.optimizers.values():
            yield optimizer.register_step_pre_hook(lambda *_: self._watch.enter(OPTIMIZER))
            yield optimizer.register_step_post_hook(lambda *_: self._after_step())

    def _on_forward(self, name: str, *, watched: bool) -> Callable[[nn.Module, Any, Any], None]:
        def look(layer: nn.Module, given: Any, output: Any) -> None:
            with self._watch.phase(CHECKS), torch.no_grad():
                for tensor in _tensors(output):
                    self._check_output(name, layer, given, tensor)
                    if watched:
                        self._outputs.see(name, layer, tensor)

        return look

    def _on_gradient(self, name: str) -> Callable[[Tensor], None]:
        def look(weight: Tensor) -> None:
            with self._watch.phase(CHECKS):
                assert weight.grad is not None  # as the hook is called when it has come
                if self._loss_is_finite and not torch.isfinite(weight.grad).all():
                    raise _GradientError(
                        f"the gradient of {name} {not_finite(weight.grad)} at step {self._steps:,}, and the loss is "
                        f"finite. {self._gradients.last()}. {self._outputs.extremes()}"
                    )
                self._gradients.see(name, weight)

        return look

    def _check_output(self, name: str, layer: nn.Module, given: Any, output: Tensor) -> None:
        if torch.isfinite(output).all():
            return
        weights = [n for n, weight in layer.named_parameters(recurse=False) if not torch.isfinite(weight).all()]
        inputs = [tensor for tensor in _tensors(given) if tensor.is_floating_point()]
        if weights:
            cause = f"its {weights[0]} is not finite; {_REMEDY}"
        elif any(not torch.isfinite(tensor).all() for tensor in inputs):
            cause = "what it is given is not finite already"
        else:
            reach = max((float(tensor.abs().max()) for tensor in inputs), default=0.0)
            cause = f"what it is given is finite, and reaches {reach:.3g}; {_REMEDY}"
        raise NumericalError(
            f"the layer {name} ({describe(layer)}) gives numbers of which {not_finite(output, 'them')}, at step "
            f"{self._steps:,}: {cause}"
        )

    def _backward(self, original: Callable[..., Any], tensors: Any, *arguments: Any, **options: Any) -> Any:
        """A loss that is not finite is the algorithm's to name: what its gradients are then tells nothing."""
        self._loss_is_finite = all(bool(torch.isfinite(tensor).all()) for tensor in _tensors(tensors))
        with self._watch.phase(BACKWARD):
            return original(tensors, *arguments, **options)

    def _grad(self, original: Callable[..., Any], outputs: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        """For algorithms that take gradients into their own hands."""
        with self._watch.phase(BACKWARD):
            gradients = original(outputs, inputs, *arguments, **options)
        for weight, gradient in zip(_tensors(inputs), gradients, strict=True):
            if gradient is not None and not torch.isfinite(gradient).all():
                name = self._weights.get(weight, "what is learnt")  # type: ignore[call-overload]
                raise _GradientError(f"the gradient of {name} {not_finite(gradient)} at step {self._steps:,}")
        return gradients

    def _after_step(self) -> None:
        self._watch.leave()
        self._trace.count_step()

    def _values(self) -> dict[str, Array]:
        measured = {weight for root in self._learning for weight in root.parameters() if weight.numel()}
        weights = {weight: name for weight, name in self._weights.items() if weight in measured}
        values = {f"weights/{name}": to_array(weight) for weight, name in weights.items()}
        gradients = {name: weight.grad for weight, name in weights.items()}
        values |= {f"gradients/{name}": to_array(grad) for name, grad in gradients.items() if grad is not None}
        return values | {f"activations/{name}": to_array(output) for name, output in self._outputs.newest.items()}


class _GradientError(NumericalError):
    """A gradient is not finite though the loss is."""


class _Inspected:
    """The algorithm, with `Inspection` around its updates."""

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
    """The torch profiler over a few gradient steps, once the first updates have warmed everything up."""

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
        """A few are enough: one update of PPO may have thousands."""
        self._gradient_steps += self.running
        if self.running and self._gradient_steps >= _TRACED_STEPS:
            self._stop()

    def end_update(self) -> None:
        """An algorithm without an optimiser is traced for one update."""
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
def _instead(module: Any, name: str, replacement: Callable[..., Any]) -> Iterator[None]:
    """Within, calls of the function go to ``replacement``, which is given the original first."""
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
