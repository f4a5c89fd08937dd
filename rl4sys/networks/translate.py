"""Export of plain torch networks (nn.Sequential of common modules) to policy programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

import torch
from torch import Tensor, nn

from rl4sys.errors import ExportError
from rl4sys.networks.body_writer import Body, BodyWriter
from rl4sys.networks.contained import find_contained
from rl4sys.networks.native import CoreLayers
from rl4sys.networks.noisy import NoisyLinear
from rl4sys.networks.sequential import ACTIVATION_NAMES, core_form, is_plain, is_row_flatten, is_standard_activation
from rl4sys.policy.program import ROW
from rl4sys.policy.shape_rules import window_positions
from rl4sys.spec import MASK, Spec


class Translated(nn.Module):
    """Plain torch network with named observations as input.

    The network receives a single observation unchanged (flattened if ``is_flat``), or several observations flattened
    and concatenated. The names of its weights start with ``name``.
    """

    def __init__(self, network: nn.Module, spec: Spec, name: str = "network", *, is_flat: bool = False) -> None:
        super().__init__()
        self.add_module(name, network)
        self._name = name
        self._boxes = {name: box for name, box in spec.observation.items() if name != MASK}
        self._is_flat = is_flat or len(self._boxes) > 1
        self._core: tuple[CoreLayers, list[nn.Parameter]] | None = None
        self._parts = list(self.modules())

    def forward(self, observation: Mapping[str, Tensor]) -> Tensor:
        core = self.core_layers()
        if core is not None:
            layers, weights = core
            return layers(self.row(observation).contiguous(), weights)
        outputs: Tensor = self._network()(self._joined(observation))
        return outputs

    def row(self, observation: Mapping[str, Tensor]) -> Tensor:
        return self._joined(observation).flatten(1)

    def core_layers(self) -> tuple[CoreLayers, list[nn.Parameter]] | None:
        if self._core is None or self._core[1][0].device.type != "cpu" or self._has_forward_hooks():
            return None
        return self._core

    def compute_natively(self) -> bool:
        self._core = core_form(self._network(), self._shape())
        return self._core is not None

    def export(self, prefix: str) -> Body:
        writer = _Translation(BodyWriter(prefix), self._shape())
        writer.write(self._network(), "")
        return writer.body()

    def _network(self) -> nn.Module:
        return self.get_submodule(self._name)

    def _joined(self, observation: Mapping[str, Tensor]) -> Tensor:
        values = [observation[name].float() for name in self._boxes]
        if self._is_flat:
            values = [value.flatten(1) for value in values]
        return values[0] if len(values) == 1 else torch.cat(values, dim=1)

    def _shape(self) -> tuple[int, ...]:
        """Return the shape of one row of the input of the network."""
        shapes = [box.shape for box in self._boxes.values()]
        return (sum(math.prod(shape) for shape in shapes),) if self._is_flat else shapes[0]

    def _has_forward_hooks(self) -> bool:
        return any(part._forward_hooks or part._forward_pre_hooks for part in self._parts)


def is_own(module: nn.Module) -> bool:
    """Return True for a network of the user: a plain network, or a class outside of RL4Sys and torch."""
    package = type(module).__module__.partition(".")[0]
    return isinstance(module, Translated) or package not in ("rl4sys", "torch")


def with_named_observations(network: nn.Module, spec: Spec) -> nn.Module:
    """Return a plain network as a `Translated`, also if it is the only content of ``network``; else ``network``."""
    if is_plain(network):
        return Translated(network, spec)
    contained = find_contained(network, spec)
    if contained is None:
        return network
    return Translated(network.get_submodule(contained.name), spec, contained.name, is_flat=contained.is_flat)


class _Translation:
    """Translates modules to operations; tracks the shape of a row and the axis order of images."""

    def __init__(self, writer: BodyWriter, shape: tuple[int, ...]) -> None:
        self._writer, self._shape, self._source = writer, shape, ROW
        self._channels_last = False

    def body(self) -> Body:
        self._put_channels_first()
        if self._source == ROW:
            self._source = self._writer.add("scale", ROW, factor=1.0)
        return self._writer.body()

    def write(self, module: nn.Module, at: str) -> None:
        if is_plain(module):
            # Unlike named_children(), this yields a module again if the network contains it twice.
            for name, child in module._modules.items():
                if child is not None:
                    self.write(child, f"{at}.{name}" if at else name)
            return
        rule = _RULES.get(type(module))
        if rule is None:
            _reject(at, module, "it has no equivalent among the operations of a policy program")
        rule(self, module, at)

    def linear(self, module: Any, at: str) -> None:
        self._put_channels_first()
        *leading, _ = self._shape
        self._source = self._writer.linear(at, module, self._source, rows=math.prod(leading))
        self._shape = (*leading, module.out_features)

    def layer_norm(self, module: Any, at: str) -> None:
        self._put_channels_first()
        width = math.prod(module.normalized_shape)
        scale = module.weight if module.weight is not None else torch.ones(width)
        bias = module.bias if module.bias is not None else torch.zeros(width)
        rows = math.prod(self._shape) // width
        self._source = self._writer.layer_norm(at, (scale, bias), module.eps, self._source, rows)

    def activation(self, module: nn.Module, at: str) -> None:
        if not is_standard_activation(module):
            _reject(at, module, "only alpha=1 and approximate='none' are supported")
        self._source = self._writer.add(ACTIVATION_NAMES[type(module)], self._source)

    def convolution(self, module: Any, at: str) -> None:
        if module.groups != 1 or module.padding_mode != "zeros":
            _reject(at, module, "only groups=1 and padding_mode='zeros' are supported")
        weight = module.weight.permute(0, 2, 3, 1)
        bias = module.bias if module.bias is not None else torch.zeros(len(weight))
        options = self._window_options(module, at)
        self._source = self._writer.add(
            "conv2d", self._source, weights={f"{at}.weight": weight, f"{at}.bias": bias}, **options
        )
        self._move_window(weight.shape[1:3], len(weight), options)

    def max_pool(self, module: Any, at: str) -> None:
        if module.ceil_mode or module.return_indices:
            _reject(at, module, "only ceil_mode=False and return_indices=False are supported")
        size = _square(module, "kernel_size", at)
        options = self._window_options(module, at)
        self._source = self._writer.add("max_pool", self._source, weights={}, size=size, **options)
        self._move_window((size, size), self._shape[0], options)

    def flatten(self, module: Any, at: str) -> None:
        if not is_row_flatten(module):
            _reject(at, module, "only start_dim=1 and end_dim=-1 are supported")
        self._put_channels_first()
        self._shape = (math.prod(self._shape),)

    def identity(self, module: nn.Module, at: str) -> None:
        """Translate nn.Identity, which needs no operation."""

    def _window_options(self, module: Any, at: str) -> dict[str, int]:
        if len(self._shape) != 3:
            _reject(at, module, f"it needs an image with 3 axes, got shape {self._shape}")
        if any(n != 1 for n in _pair(module.dilation)):
            _reject(at, module, "only dilation=1 is supported")
        self._put_channels_last()
        stride, padding = (_square(module, name, at) for name in ("stride", "padding"))
        return {"height": self._shape[1], "width": self._shape[2], "stride": stride, "padding": padding}

    def _move_window(self, window: tuple[int, int], channels: int, options: dict[str, int]) -> None:
        along = (window_positions(n, size, options) for n, size in zip(self._shape[1:], window, strict=True))
        self._shape = (channels, *along)

    def _put_channels_last(self) -> None:
        if not self._channels_last:
            self._source = self._writer.add("transpose", self._source, rows=self._shape[0])
            self._channels_last = True

    def _put_channels_first(self) -> None:
        if self._channels_last:
            self._source = self._writer.add("transpose", self._source, rows=self._shape[1] * self._shape[2])
            self._channels_last = False


_Rule: TypeAlias = Callable[[_Translation, Any, str], None]
_RULES: dict[type[nn.Module], _Rule] = {
    nn.Linear: _Translation.linear,
    NoisyLinear: _Translation.linear,
    nn.LayerNorm: _Translation.layer_norm,
    nn.Conv2d: _Translation.convolution,
    nn.MaxPool2d: _Translation.max_pool,
    nn.Flatten: _Translation.flatten,
    nn.Identity: _Translation.identity,
    **dict.fromkeys(ACTIVATION_NAMES, _Translation.activation),
}


def _square(module: nn.Module, name: str, at: str) -> int:
    """Return the option ``name`` of a module, such as its stride; the value must be the same for both image axes."""
    value = getattr(module, name)
    if isinstance(value, str) or len({*_pair(value)}) != 1:
        _reject(at, module, f"only a single number is supported as {name}, got {value!r}")
    return int(_pair(value)[0])


def _pair(value: Any) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)


def _reject(at: str, module: nn.Module, why: str) -> NoReturn:
    raise ExportError(
        f"module {at} of the network, {module!s:.80}, cannot be run by clients without torch: {why}. Use another "
        "module, add an export(prefix) method to the network, or set `inference: remote` in the clients to let the "
        "server act"
    )
