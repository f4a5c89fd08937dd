"""Convolutional image encoders of DQN (Mnih et al. 2015) and IMPALA (Espeholt et al. 2018)."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, TypeAlias

from torch import Tensor, nn

from rl4sys.errors import ConfigError
from rl4sys.networks.body_writer import BodyWriter
from rl4sys.policy.shape_rules import window_positions
from rl4sys.spec import Box

Channels: TypeAlias = Literal["first", "last", "auto"]

_IMPALA_CHANNELS = (16, 32, 32)


class Image:
    """Layout of an image observation: channel axis, size and scale."""

    def __init__(self, name: str, box: Box, channels: Channels) -> None:
        self.name = name
        self.first = channels == "first" or (channels == "auto" and box.shape[0] < box.shape[2])
        first, middle, last = box.shape
        self.channels, self.height, self.width = (first, middle, last) if self.first else (last, first, middle)
        self._factor = 1 / 255 if box.dtype == "uint8" else 1.0

    def prepare(self, pixels: Tensor) -> Tensor:
        """Scale the pixels and reorder the axes to (rows, channels, height, width)."""
        scaled = pixels.float() * self._factor
        return scaled if self.first else scaled.permute(0, 3, 1, 2)

    def write(self, writer: BodyWriter, source: int) -> int:
        """Add the operations that correspond to `prepare`; images in policy programs have channels last."""
        if self.first:
            source = writer.add("transpose", source, rows=self.channels)
        return writer.add("scale", source, factor=self._factor) if self._factor != 1.0 else source


class _Convolution(nn.Conv2d):
    """Convolution with a fixed input size, which the exported operation needs."""

    def __init__(
        self, inputs: int, outputs: int, size: tuple[int, int], kernel: int, stride: int, padding: int
    ) -> None:
        super().__init__(inputs, outputs, kernel, stride, padding)
        self._options = {"height": size[0], "width": size[1], "stride": stride, "padding": padding}
        self.size = window_positions(size[0], kernel, self._options), window_positions(size[1], kernel, self._options)

    def write(self, writer: BodyWriter, label: str, source: int) -> int:
        weights = {f"{label}.weight": self.weight.permute(0, 2, 3, 1), f"{label}.bias": _bias(self)}
        return writer.add("conv2d", source, weights=weights, **self._options)


def _bias(layer: nn.Conv2d) -> Tensor:
    assert layer.bias is not None  # every convolution here has a bias
    return layer.bias


class Nature(nn.Module):
    """Image encoder of DQN: three convolutions, each followed by a ReLU."""

    def __init__(self, image: Image) -> None:
        super().__init__()
        size, layers = (image.height, image.width), []
        plan = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
        for (inputs, *_), (outputs, kernel, stride) in pairwise(((image.channels, 0, 0), *plan)):
            layers.append(_Convolution(inputs, outputs, size, kernel, stride, padding=0))
            size = layers[-1].size
        if min(size) < 1:
            raise ConfigError(
                f"the observation {image.name!r} is an image of {image.height} x {image.width}, but the architecture "
                "'nature' needs at least 36 x 36; use architecture: impala, or set channels if this size is wrong"
            )
        self.layers = nn.ModuleList(layers)
        self.outputs = size[0] * size[1] * plan[-1][0]

    def forward(self, pixels: Tensor) -> Tensor:
        for layer in self.layers:
            pixels = layer(pixels).relu()
        return _channels_last(pixels)

    def convolutions(self) -> list[_Convolution]:
        return [layer for layer in self.layers if isinstance(layer, _Convolution)]

    def write(self, writer: BodyWriter, label: str, source: int) -> int:
        for index, layer in enumerate(self.convolutions()):
            source = writer.add("relu", layer.write(writer, f"{label}.{index}", source))
        return source


class Impala(nn.Module):
    """Image encoder of IMPALA: three stages, each a convolution, a max pool with stride 2 and two residual blocks."""

    def __init__(self, image: Image) -> None:
        super().__init__()
        size, stages = (image.height, image.width), []
        for inputs, outputs in pairwise((image.channels, *_IMPALA_CHANNELS)):
            stages.append(_Stage(inputs, outputs, size))
            size = stages[-1].size
        self.stages = nn.ModuleList(stages)
        self.outputs = size[0] * size[1] * _IMPALA_CHANNELS[-1]

    def forward(self, pixels: Tensor) -> Tensor:
        for stage in self.stages:
            pixels = stage(pixels)
        return _channels_last(pixels.relu())

    def convolutions(self) -> list[_Convolution]:
        return [module for module in self.modules() if isinstance(module, _Convolution)]

    def write(self, writer: BodyWriter, label: str, source: int) -> int:
        for index, stage in enumerate(self.stages):
            assert isinstance(stage, _Stage)
            source = stage.write(writer, f"{label}.{index}", source)
        return writer.add("relu", source)


class _Stage(nn.Module):
    def __init__(self, inputs: int, outputs: int, size: tuple[int, int]) -> None:
        super().__init__()
        self.first = _Convolution(inputs, outputs, size, 3, 1, 1)
        self._pool = {"height": size[0], "width": size[1], "stride": 2, "padding": 1}
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.size = window_positions(size[0], 3, self._pool), window_positions(size[1], 3, self._pool)
        self.blocks = nn.ModuleList(_Block(outputs, self.size) for _ in range(2))

    def forward(self, pixels: Tensor) -> Tensor:
        pixels = self.pool(self.first(pixels))
        for block in self.blocks:
            pixels = block(pixels)
        return pixels

    def write(self, writer: BodyWriter, label: str, source: int) -> int:
        source = self.first.write(writer, f"{label}.first", source)
        source = writer.add("max_pool", source, weights={}, size=3, **self._pool)
        for index, block in enumerate(self.blocks):
            assert isinstance(block, _Block)
            source = block.write(writer, f"{label}.block{index}", source)
        return source


class _Block(nn.Module):
    def __init__(self, channels: int, size: tuple[int, int]) -> None:
        super().__init__()
        self.one, self.two = (_Convolution(channels, channels, size, 3, 1, 1) for _ in range(2))

    def forward(self, pixels: Tensor) -> Tensor:
        changed: Tensor = self.two(self.one(pixels.relu()).relu())
        return pixels + changed

    def write(self, writer: BodyWriter, label: str, source: int) -> int:
        one = self.one.write(writer, f"{label}.one", writer.add("relu", source))
        two = self.two.write(writer, f"{label}.two", writer.add("relu", one))
        return writer.add("add", source, two)


def _channels_last(pixels: Tensor) -> Tensor:
    """Flatten images to one vector per row, with channels last as in policy programs."""
    return pixels.permute(0, 2, 3, 1).flatten(1)
