"""Adam and RMSprop optimizers for training in the native core. Adam steps are computed by the core."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from rl4sys.networks.native import addresses
from rl4sys.policy.draws import NATIVE

ParameterAddresses: TypeAlias = tuple[int, int, int, int]
"""Data addresses of a parameter, its first moment, second moment and step count; 0 if there is no first moment."""

_EPSILON = 1e-6
"""Constant added to the gradient norm when clipping, as in torch."""


def clipped_step(optimizer: torch.optim.Optimizer, max_norm: float) -> float:
    """Take an optimizer step with gradients clipped to ``max_norm``; return the gradient norm before clipping.

    If the norm is not finite, no step is taken.
    """
    if isinstance(optimizer, CoreAdam) and (groups := optimizer.core_groups()) is not None:
        return _core_step(optimizer, groups, max_norm)
    # One norm over all groups, so that clipping keeps the direction of the gradient.
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    norm = float(nn.utils.clip_grad_norm_(parameters, max_norm))
    if math.isfinite(norm):
        optimizer.step()
    return norm


def _core_step(optimizer: CoreAdam, groups: list[_Group], max_norm: float) -> float:
    total = 0.0
    for group in groups:
        total = group.set_gradients(total)
    norm = math.sqrt(total)
    if not math.isfinite(norm):
        return norm
    scale = min(1.0, max_norm / (norm + _EPSILON))
    # Call the step hooks of the optimizer, as torch does.
    for before in optimizer._optimizer_step_pre_hooks.values():
        before(optimizer, (), {})
    for group in groups:
        group.step(scale)
    for after in optimizer._optimizer_step_post_hooks.values():
        after(optimizer, (), {})
    return norm


class CoreAdam(torch.optim.Adam):
    """torch.optim.Adam with the same state, but with steps computed by the native core."""

    def __init__(self, groups: Iterable[dict[str, Any]], lr: float, eps: float) -> None:
        # If torch has to compute the step, the fused form needs one pass over the parameters instead of a dozen.
        super().__init__(groups, lr=lr, eps=eps, fused=True)
        self._ready: list[_Group] | None = None
        self._made_for: list[list[tuple[int, int]]] = []
        self.loads = 0
        """Number of times an optimizer state was loaded; each load moves the state tensors to other data addresses."""
        self.register_load_state_dict_post_hook(CoreAdam._on_load)

    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def core_groups(self) -> list[_Group] | None:
        """Return the parameter groups prepared for a step in the core; None if torch has to compute the step."""
        trained = [[p for p in group["params"] if p.grad is not None] for group in self.param_groups]
        if not are_core_compatible(parameter for group in trained for parameter in group):
            return None
        # Prepare again if a parameter was moved to other storage or if other parameters have gradients.
        made_for = [[(id(parameter), parameter.data_ptr()) for parameter in group] for group in trained]
        if self._ready is None or made_for != self._made_for:
            self._ready = [self._group(*of_group) for of_group in zip(self.param_groups, trained, strict=True)]
            self._made_for = made_for
        return self._ready if all(group.has_equal_step_counts() for group in self._ready) else None

    def _group(self, settings: dict[str, Any], parameters: list[nn.Parameter]) -> _Group:
        return _Group(settings, parameters, [self.parameter_state(parameter) for parameter in parameters])

    def parameter_state(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        """Return the Adam state of a parameter (``step``, ``exp_avg``, ``exp_avg_sq``), created on first use."""
        if parameter not in self.state:
            self.state[parameter] = _initial_state(parameter)
        state: dict[str, Tensor] = self.state[parameter]
        return state

    def addresses_of(self, parameter: nn.Parameter) -> ParameterAddresses:
        """Return the data addresses of a parameter and its optimizer state."""
        state = self.parameter_state(parameter)
        return (
            parameter.data_ptr(),
            state["exp_avg"].data_ptr(),
            state["exp_avg_sq"].data_ptr(),
            state["step"].data_ptr(),
        )

    def core_settings(self, group: int) -> tuple[float, float, float, float]:
        """Return learning rate, beta1, beta2 and epsilon of a parameter group."""
        settings = self.param_groups[group]
        return settings["lr"], *settings["betas"], settings["eps"]

    @staticmethod
    def _on_load(optimizer: torch.optim.Optimizer) -> None:
        assert isinstance(optimizer, CoreAdam)
        optimizer._ready = None
        optimizer.loads += 1


class CoreRMSprop(torch.optim.RMSprop):
    """torch.optim.RMSprop whose optimizer state the native core reads and updates in place."""

    def addresses_of(self, parameter: nn.Parameter) -> ParameterAddresses:
        """Return the data addresses of a parameter and its optimizer state; the first moment is 0 (none)."""
        if parameter not in self.state:
            self.state[parameter] = {"step": torch.zeros(()), "square_avg": torch.zeros_like(parameter)}
        state = self.state[parameter]
        return parameter.data_ptr(), 0, state["square_avg"].data_ptr(), state["step"].data_ptr()

    def core_settings(self, group: int) -> tuple[float, float, float, float]:
        """Return learning rate, 0 (RMSprop has no beta1), alpha and epsilon of a parameter group."""
        settings = self.param_groups[group]
        return settings["lr"], 0.0, settings["alpha"], settings["eps"]


class _Group:
    """Parameter group with its optimizer state, prepared for Adam steps in the native core."""

    def __init__(
        self, settings: dict[str, Any], parameters: list[nn.Parameter], states: list[dict[str, Tensor]]
    ) -> None:
        from rl4sys._core import AdamGroup

        self._settings, self.parameters = settings, parameters
        self._steps = [state["step"] for state in states]
        # Keep references, because the core stores only the addresses of these tensors.
        self._means, self._squares = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
        self._core = AdamGroup(
            [parameter.numel() for parameter in self.parameters],
            *(addresses(tensors) for tensors in (self.parameters, self._means, self._squares)),
        )

    def has_equal_step_counts(self) -> bool:
        """Return True if all parameters have the same step count, which the core requires."""
        return len({step.item() for step in self._steps}) <= 1

    def set_gradients(self, total: float) -> float:
        """Store the gradients of the parameters and return ``total`` plus the sum of the squared gradients."""
        # Gradients from the core are contiguous; those from torch may not be.
        self._gradients = [p.grad.contiguous() for p in self.parameters if p.grad is not None]
        return self._core.set_gradients(addresses(self._gradients), total)

    def step(self, scale: float) -> None:
        if not self.parameters:
            return
        torch._foreach_add_(self._steps, 1)
        beta1, beta2 = self._settings["betas"]
        steps = float(self._steps[0])
        self._core.step(self._settings["lr"], beta1, beta2, self._settings["eps"], steps, scale)


def are_core_compatible(tensors: Iterable[Tensor]) -> bool:
    """Return True if the core is available and can read and write the tensors in place."""
    return NATIVE and all(t.device.type == "cpu" and t.dtype == torch.float32 and t.is_contiguous() for t in tensors)


def _initial_state(parameter: nn.Parameter) -> dict[str, Tensor]:
    """Return the Adam state of a parameter before the first step."""
    return {"step": torch.zeros(()), "exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}
