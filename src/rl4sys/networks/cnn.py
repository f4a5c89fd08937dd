"""Convolutions over images, and fully connected layers over what they give and all other observations."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from rl4sys.errors import ConfigError
from rl4sys.networks.base import Blueprint, Tensors, seen_names, side_by_side
from rl4sys.networks.images import Channels, Image, Impala, Nature
from rl4sys.networks.layers import HIDDEN_GAIN, Activation, Hidden, LayersConfig, initialize
from rl4sys.networks.writing import Body, BodyWriter


class CNNConfig(LayersConfig):
    """Options of the `cnn` network."""

    type: str = "cnn"
    """Which network."""
    architecture: Literal["nature", "impala"] = "nature"
    """Convolutions: three plain ones (Mnih et al. 2015), or fifteen in residual blocks (Espeholt et al. 2018)."""
    channels: Channels = "auto"
    """Which axis of an image is that of its channels; auto takes the shorter of the first and the last."""
    hidden_dims: list[int] = Field(default=[512])
    """Width of each layer after the convolutions, first to last."""
    activation: Activation = "relu"
    """Applied after every hidden layer; convolutions have ReLU."""


class CNN(nn.Module):
    """Every observation of 3 axes is an image; those of bytes are scaled to 0..1."""

    Config = CNNConfig

    def __init__(self, config: CNNConfig, blueprint: Blueprint) -> None:
        super().__init__()
        self._spec = blueprint.spec
        boxes = {name: blueprint.spec.observation[name] for name in seen_names(blueprint.spec)}
        self._images = [Image(n, box, config.channels) for n, box in boxes.items() if len(box.shape) == 3]
        self._others = [name for name, box in boxes.items() if len(box.shape) != 3]
        if not self._images:
            shapes = ", ".join(f"{name} of {box.shape}" for name, box in boxes.items())
            raise ConfigError(f"a cnn needs an observation with 3 axes, an image; there is {shapes}. Use mlp")
        make = Nature if config.architecture == "nature" else Impala
        encoders = [make(image) for image in self._images]
        features = sum(e.outputs for e in encoders) + sum(boxes[name].size for name in self._others)
        self.encoders = nn.ModuleList(encoders)
        self.hidden = Hidden(features, config)
        self.output = nn.Linear(self.hidden.width, blueprint.outputs)
        for encoder in encoders:
            initialize(config, encoder.convolutions(), HIDDEN_GAIN)
        initialize(config, self.hidden.linears(), HIDDEN_GAIN)
        initialize(config, [self.output], blueprint.output_gain)

    def forward(self, observation: Tensors) -> Tensor:
        pairs = zip(self._images, self.encoders, strict=True)
        features = [encoder(image.prepare(observation[image.name])) for image, encoder in pairs]
        if self._others:
            features.append(side_by_side(observation, self._others))
        outputs: Tensor = self.output(self.hidden(torch.cat(features, dim=1)))
        return outputs

    def export(self, prefix: str) -> Body:
        writer, features = BodyWriter(prefix), []
        for index, (image, encoder) in enumerate(zip(self._images, self.encoders, strict=True)):
            assert isinstance(encoder, Nature | Impala)
            pixels = image.write(writer, writer.observations(self._spec, [image.name]))
            features.append(encoder.write(writer, f"image{index}", pixels))
        if self._others:
            features.append(writer.observations(self._spec, self._others))
        writer.linear("output", self.output, self.hidden.write(writer, writer.concat(features)))
        return writer.body()
