"""Run directory of a policy on the server: open or create it, and build the policy's learner."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from rl4sys.algorithms.device import available_device
from rl4sys.buffers.base import AutoSize, BufferResources
from rl4sys.errors import ExportError, RunError
from rl4sys.learner.footprint import buffer_footprint, choose_size
from rl4sys.learner.learner import Learner, build_learner
from rl4sys.machine import available_memory
from rl4sys.policy.draws import Draws
from rl4sys.runs.config import ExperimentConfig
from rl4sys.runs.directory import VERSIONS, RunDirectory
from rl4sys.runs.run import Run
from rl4sys.server.acting import decide_without_memory
from rl4sys.server.config import ServerConfig
from rl4sys.server.journal import FILE, Journal
from rl4sys.server.live_config import check_cost, check_model_size, check_spec, live_config, live_learner_config
from rl4sys.server.task import TENSORBOARD_LINKS, LearnerTask
from rl4sys.spec import Array, Spec
from rl4sys.training.warm_start import load_pools, warm_start


def open_or_create(task: LearnerTask, log_message: Callable[[str], None]) -> tuple[Run, dict[str, Any]]:
    """Return the run of a policy and the contents of its `live.json`.

    Raises `ConfigError` if a new policy is invalid or exceeds the limits of the server.
    """
    if Run.exists(task.path):
        live = RunDirectory(task.path).live_config()
        _create_journal(task.path)
        return Run.open(task.path), live
    spec, settings = Spec.from_json(json.loads(task.spec)), json.loads(task.settings)
    settings = task.server.policies.get(task.policy_id, settings)
    config = live_config(task.policy_id, settings, task.server)
    config = _with_fitting_buffer(spec, config, task.server, log_message)
    memory_size = _check_new_policy(spec, config, task)
    live = {"lineage": secrets.token_hex(8), "spec": spec.to_json(), "settings": settings}
    live["memory_size"] = memory_size
    return _create(task.path, config, live), live


def link_event_files(run: Run, root: Path) -> None:
    """Link a policy's TensorBoard event files in the directory of its algorithm, and remove all its other links."""
    folder = root / TENSORBOARD_LINKS.format(algorithm=run.config.algorithm.name)
    folder.mkdir(exist_ok=True)
    for link in root.glob(TENSORBOARD_LINKS.format(algorithm="*") + f"/{run.path.name}"):
        if link.is_symlink():
            link.unlink()
    (folder / run.path.name).symlink_to(Path("..", run.path.name, run.logs.name), target_is_directory=True)


def build_policy_learner(spec: Spec, run: Run) -> Learner:
    """Build the learner of a run. Datasets for its buffer are loaded only if the run has no checkpoint."""
    config, device = run.config, available_device(run.config.experiment.device)
    pools = {} if run.checkpoints.names() else load_pools(config.buffer, spec)
    resources = BufferResources(scratch=run.path, pools=pools)
    return build_learner(spec, live_learner_config(config, device), config.experiment.seed, resources)


def max_staleness(run: Run, live: Mapping[str, Any]) -> int | None:
    """Return the maximum staleness from the buffer config, else from the client's settings; None means no limit."""
    limit: int | None = getattr(run.config.buffer, "max_staleness", live["settings"].get("max_staleness"))
    return limit


def _with_fitting_buffer(
    spec: Spec, config: ExperimentConfig, server: ServerConfig, log_message: Callable[[str], None]
) -> ExperimentConfig:
    """Replace the buffer size `auto` in the config by a size within the server's limits."""
    if not isinstance(config.buffer.size, AutoSize):
        return config
    needs = buffer_footprint(spec, live_learner_config(config, "cpu"))
    size, message = choose_size(needs, available_memory(), server.limits.max_buffer_bytes)
    log_message(message)
    return config.with_buffer_size(size)


def _check_new_policy(spec: Spec, config: ExperimentConfig, task: LearnerTask) -> int:
    """Check a new policy by building its learner before any file is written; return the size of its recurrent state."""
    check_spec(spec, task.server.limits)
    learner_config = live_learner_config(config, "cpu")
    check_cost(spec, learner_config, task.server.limits)
    buffer_footprint(spec, learner_config).check(available_memory())
    resources = BufferResources(pools=load_pools(config.buffer, spec))
    learner = build_learner(spec, learner_config, config.experiment.seed, resources)
    warm_start(learner, spec, config)
    return _check_client_can_act(learner, spec, task)


def _check_client_can_act(learner: Learner, spec: Spec, task: LearnerTask) -> int:
    """Check that the client can run the model or request decisions; return the size of the recurrent state."""
    model = learner.snapshot_or_none()
    if model is not None:
        check_model_size(model)
        return model.memory_size
    if not task.remote:
        raise ExportError(learner.export_error())
    ones: dict[str, Array] = {name: np.ones((1, *box.shape), box.dtype) for name, box in spec.observation.items()}
    decide_without_memory(learner.policy(), 0, ones, Draws(0))
    return 0


def _create(path: Path, config: ExperimentConfig, live: Mapping[str, Any]) -> Run:
    try:
        for folder in ("configs", VERSIONS):
            (path / folder).mkdir(parents=True, exist_ok=True)
        RunDirectory(path).write_live_config(live)
        _create_journal(path)
    except OSError as error:
        raise RunError(f"cannot create the policy directory {path}: {error.strerror}") from error
    return Run.create_at(path, config, datetime.now())


def _create_journal(path: Path) -> None:
    """Create an empty journal if none exists, because the learner opens the journal before the server writes to it."""
    if not (path / FILE).is_file():
        Journal(path / FILE).close()
