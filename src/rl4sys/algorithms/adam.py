"""Adam with the step taken by the native core, in one pass over each parameter; RMSprop for whole updates there."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from rl4sys.networks.native import addresses
from rl4sys.policy.draws import NATIVE

Place: TypeAlias = tuple[int, int, int, int]
"""Addresses of a parameter's values, of their means, of their squares and of the number of steps; 0 for none."""

_EPSILON = 1e-6
"""Added to the norm by torch's clipping."""


def clipped_step(optimizer: torch.optim.Optimizer, max_norm: float) -> float:
    """A step along gradients shortened to ``max_norm`` at most; gives their length, and takes none if not finite."""
    if isinstance(optimizer, CoreAdam) and (groups := optimizer.prepared()) is not None:
        return _core_step(optimizer, groups, max_norm)
    # One norm over all groups, so that clipping shortens the gradient and does not turn it.
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    norm = float(nn.utils.clip_grad_norm_(parameters, max_norm))
    if math.isfinite(norm):
        optimizer.step()
    return norm


def _core_step(optimizer: CoreAdam, groups: list[_Group], max_norm: float) -> float:
    total = 0.0
    for group in groups:
        total = group.see(total)
    norm = math.sqrt(total)
    if not math.isfinite(norm):
        return norm
    shorten = min(1.0, max_norm / (norm + _EPSILON))
    # Whoever watches steps of torch's optimisers is told of these too.
    for before in optimizer._optimizer_step_pre_hooks.values():
        before(optimizer, (), {})
    for group in groups:
        group.step(shorten)
    for after in optimizer._optimizer_step_post_hooks.values():
        after(optimizer, (), {})
    return norm


class CoreAdam(torch.optim.Adam):
    """torch's Adam, and all that it remembers, but for who computes the step."""

    def __init__(self, groups: Iterable[dict[str, Any]], lr: float, eps: float) -> None:
        # Where the core cannot be used, the fused form does in one pass what the default does in a dozen.
        super().__init__(groups, lr=lr, eps=eps, fused=True)
        self._ready: list[_Group] | None = None
        self._made_for: list[list[tuple[int, int]]] = []
        self.loads = 0
        """How often what it keeps was replaced by what was loaded, which lies elsewhere."""
        self.register_load_state_dict_post_hook(CoreAdam._forget)

    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def prepared(self) -> list[_Group] | None:
        """The parameters that have a gradient, for the core to step; None where torch has to, as on another device."""
        learnt = [[p for p in group["params"] if p.grad is not None] for group in self.param_groups]
        if not fit_core(parameter for group in learnt for parameter in group):
            return None
        # A parameter can be given other storage, and another one can have the gradient.
        made_for = [[(id(parameter), parameter.data_ptr()) for parameter in group] for group in learnt]
        if self._ready is None or made_for != self._made_for:
            self._ready = [self._group(*of_group) for of_group in zip(self.param_groups, learnt, strict=True)]
            self._made_for = made_for
        return self._ready if all(group.in_step() for group in self._ready) else None

    def _group(self, settings: dict[str, Any], parameters: list[nn.Parameter]) -> _Group:
        return _Group(settings, parameters, [self.remembered(parameter) for parameter in parameters])

    def remembered(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        """What it keeps of a parameter, as torch has it: ``step``, ``exp_avg`` and ``exp_avg_sq``."""
        if parameter not in self.state:
            self.state[parameter] = _nothing_yet(parameter)
        kept: dict[str, Tensor] = self.state[parameter]
        return kept

    def place(self, parameter: nn.Parameter) -> Place:
        """Where the core finds its values, and what is kept of them."""
        kept = self.remembered(parameter)
        return parameter.data_ptr(), kept["exp_avg"].data_ptr(), kept["exp_avg_sq"].data_ptr(), kept["step"].data_ptr()

    def core_settings(self, group: int) -> tuple[float, float, float, float]:
        """Of a group of parameters, as the core takes them."""
        settings = self.param_groups[group]
        return settings["lr"], *settings["betas"], settings["eps"]

    @staticmethod
    def _forget(optimizer: torch.optim.Optimizer) -> None:
        assert isinstance(optimizer, CoreAdam)
        optimizer._ready = None
        optimizer.loads += 1


class CoreRMSprop(torch.optim.RMSprop):
    """torch's RMSprop, and all that it remembers, which whole updates in the core find and change."""

    def place(self, parameter: nn.Parameter) -> Place:
        """Where the core finds its values, and what is kept of them, which is no mean."""
        if parameter not in self.state:
            self.state[parameter] = {"step": torch.zeros(()), "square_avg": torch.zeros_like(parameter)}
        kept = self.state[parameter]
        return parameter.data_ptr(), 0, kept["square_avg"].data_ptr(), kept["step"].data_ptr()

    def core_settings(self, group: int) -> tuple[float, float, float, float]:
        """Of a group of parameters, as the core takes them."""
        settings = self.param_groups[group]
        return settings["lr"], 0.0, settings["alpha"], settings["eps"]


class _Group:
    """Parameters that take the same steps."""

    def __init__(
        self, settings: dict[str, Any], parameters: list[nn.Parameter], remembered: list[dict[str, Tensor]]
    ) -> None:
        from rl4sys._core import AdamGroup

        self._settings, self.parameters = settings, parameters
        self._steps = [entry["step"] for entry in remembered]
        # Held, since the core knows but their addresses.
        self._means, self._squares = ([entry[name] for entry in remembered] for name in ("exp_avg", "exp_avg_sq"))
        self._core = AdamGroup(
            [parameter.numel() for parameter in self.parameters],
            *(addresses(tensors) for tensors in (self.parameters, self._means, self._squares)),
        )

    def in_step(self) -> bool:
        """Whether all have taken as many steps; the core corrects them alike."""
        return len({step.item() for step in self._steps}) <= 1

    def see(self, total: float) -> float:
        """Take note of the gradients, and add their squares to ``total``."""
        # Those of the core are in C order; torch's own may be anything.
        self._gradients = [p.grad.contiguous() for p in self.parameters if p.grad is not None]
        return self._core.see(addresses(self._gradients), total)

    def step(self, shorten: float) -> None:
        if not self.parameters:
            return
        torch._foreach_add_(self._steps, 1)
        beta1, beta2 = self._settings["betas"]
        steps = float(self._steps[0])
        self._core.step(self._settings["lr"], beta1, beta2, self._settings["eps"], steps, shorten)


def fit_core(tensors: Iterable[Tensor]) -> bool:
    """Whether the core is there and can take them as they lie."""
    return NATIVE and all(t.device.type == "cpu" and t.dtype == torch.float32 and t.is_contiguous() for t in tensors)


def _nothing_yet(parameter: nn.Parameter) -> dict[str, Tensor]:
    """As torch has it before the first step."""
    return {"step": torch.zeros(()), "exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}
