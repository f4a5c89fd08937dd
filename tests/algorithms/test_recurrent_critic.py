"""Rejection of recurrent critics, with a message that suggests valid settings."""

from __future__ import annotations

import pytest

from rl4sys.errors import ConfigError
from rl4sys.learner.config import LearnerConfig, parse_algorithm, parse_buffer, parse_networks
from rl4sys.learner.learner import build_learner
from rl4sys.spec import Box, Discrete, Spec

SPEC = Spec({"state": Box((4,))}, Discrete(2))


@pytest.mark.parametrize("actor", ["mlp", "gru"])
@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_recurrent_critic_is_rejected(actor: str, kind: str) -> None:
    config = LearnerConfig(
        algorithm=parse_algorithm({"name": "ppo"}),
        networks=parse_networks({"actor": {"type": actor}, "critic": {"type": kind}}, "ppo"),
        buffer=parse_buffer({"size": 16}, "ppo"),
    )
    expected = (
        f"network.critic.type is '{kind}', but the critic cannot be recurrent: .* recurrent state of the actor.* "
        f"Set network.actor.type: {kind} and network.critic.type: mlp"
    )
    with pytest.raises(ConfigError, match=expected):
        build_learner(SPEC, config, seed=1)
