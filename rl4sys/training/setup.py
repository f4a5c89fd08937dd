"""Build the actor and the learner of a local run from its config."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rl4sys.algorithms.device import available_device
from rl4sys.buffers.base import NO_RESOURCES, AutoSize, BufferResources, GoalReward
from rl4sys.buffers.her import DESIRED_GOAL
from rl4sys.dataset import load_dataset
from rl4sys.environments.actor_factory import AnyActor, make_actor
from rl4sys.environments.check import check_environment
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.dataset_actor import DatasetActor
from rl4sys.environments.encoding import Encoding
from rl4sys.environments.factory import make_environment
from rl4sys.environments.families.goal import goal_reward
from rl4sys.errors import SpecError
from rl4sys.learner.footprint import buffer_footprint, choose_size
from rl4sys.learner.learner import Learner, build_learner
from rl4sys.machine import available_memory, format_bytes
from rl4sys.runs.config import ExperimentConfig
from rl4sys.spec import Spec
from rl4sys.training.progress import Observer

_LARGE_BUFFER = 10**9


def check_before_training(config: ExperimentConfig, observer: Observer) -> None:
    """Test the environment with random steps. Raises `SpecError` for errors; warnings are sent to the observer."""
    environment = config.environment
    if environment.family in ("live", "pettingzoo"):
        return
    found = check_environment(lambda: make_environment(environment), remake=environment.remake)
    errors = [finding.text for finding in found if finding.severity == "error"]
    if errors:
        raise SpecError(f"the environment '{environment.name}' cannot be used for training:\n" + "\n".join(errors))
    for finding in found:
        if finding.severity == "warning":
            observer.note(f"{environment.name}: {finding.text}")


def build_actor(config: ExperimentConfig) -> AnyActor | DatasetActor:
    """Build the source of experience: an actor that steps environments, or an actor that replays the dataset."""
    seed = np.random.SeedSequence([config.experiment.seed, 0])
    if config.dataset is not None:
        return DatasetActor(load_dataset(config.dataset, _evaluation_spec(config.environment)), seed)
    return make_actor(config.environment, seed)


def _evaluation_spec(config: EnvironmentConfig) -> Spec | None:
    """Return the spec of the evaluation environment, or None for a live system, which has no environment."""
    if config.family == "live":
        return None
    environment = make_environment(config)
    try:
        return Encoding(environment).spec
    finally:
        environment.close()


def with_fitting_buffer(config: ExperimentConfig, spec: Spec, observer: Observer) -> ExperimentConfig:
    """Replace the buffer size `auto` by a size that fits into RAM. Configs with another size are returned unchanged."""
    if not isinstance(config.buffer.size, AutoSize):
        return config
    size, message = choose_size(buffer_footprint(spec, config.learner("cpu")), available_memory())
    observer.note(message)
    return config.with_buffer_size(size)


def build_local_learner(
    config: ExperimentConfig,
    actor: AnyActor | DatasetActor,
    observer: Observer,
    resources: BufferResources = NO_RESOURCES,
) -> Learner:
    """Build the learner on the requested device, or on the CPU with a note if this machine lacks that device."""
    wanted = config.experiment.device
    device = available_device(wanted)
    if wanted not in (device, "auto"):
        observer.note(f"experiment.device is '{wanted}', but this machine has no such device; training on {device}")
    learner_config = config.learner(device)
    needs = buffer_footprint(actor.spec, learner_config)
    needs.check(available_memory())
    if needs.cost.buffer_bytes > _LARGE_BUFFER:
        observer.note(f"the buffer takes {format_bytes(needs.cost.buffer_bytes)} when full")
    resources = replace(resources, goal_reward=_goal_reward(config, actor.spec))
    return build_learner(actor.spec, learner_config, config.experiment.seed, resources)


def _goal_reward(config: ExperimentConfig, spec: Spec) -> GoalReward | None:
    """Return the reward function of a new goal environment, or None for an environment without goals."""
    # The environments of the actor may run in other processes.
    return goal_reward(make_environment(config.environment)) if DESIRED_GOAL in spec.observation else None
