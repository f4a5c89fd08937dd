"""Convolutional network for images; fully connected layers combine image features and other observations."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from rl4sys.errors import ConfigError
from rl4sys.networks.base import Blueprint, Tensors, concat_observations, observation_names
from rl4sys.networks.body_writer import Body, BodyWriter
from rl4sys.networks.images import Channels, Image, Impala, Nature
from rl4sys.networks.layers import HIDDEN_GAIN, Activation, Hidden, LayersConfig, initialize


class CNNConfig(LayersConfig):
    """Options of the `cnn` network."""

    type: str = "cnn"
    """Network type."""
    architecture: Literal["nature", "impala"] = "nature"
    """Image encoder: nature (three convolutions, Mnih et al. 2015) or impala (fifteen convolutions in residual
    blocks, Espeholt et al. 2018)."""
    channels: Channels = "auto"
    """Channel axis of images; auto picks the shorter of the first and the last axis."""
    hidden_dims: list[int] = Field(default=[512])
    """Width of each fully connected layer after the convolutions, first to last."""
    activation: Activation = "relu"
    """Activation after every hidden layer; convolutions always use ReLU."""


class CNN(nn.Module):
    """Convolutional network; every observation with 3 axes is an image. uint8 images are scaled to 0..1."""

    Config = CNNConfig

    def __init__(self, config: CNNConfig, blueprint: Blueprint) -> None:
        super().__init__()
        self._spec = blueprint.spec
        boxes = {name: blueprint.spec.observation[name] for name in observation_names(blueprint.spec)}
        self._images = [Image(n, box, config.channels) for n, box in boxes.items() if len(box.shape) == 3]
        self._others = [name for name, box in boxes.items() if len(box.shape) != 3]
        if not self._images:
            shapes = ", ".join(f"{name} with shape {box.shape}" for name, box in boxes.items())
            raise ConfigError(
                "a network of type cnn needs an image (an observation with 3 axes), but the observations are "
                f"{shapes}; use mlp"
            )
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
            features.append(concat_observations(observation, self._others))
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
