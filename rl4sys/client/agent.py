"""Client API for a host program. Decisions take microseconds; a background thread communicates with the server.

    agent = RL4SysAgent("client.yaml")
    trajectory = None
    while running:
        trajectory, action = agent.request_for_action(trajectory, observation)
        observation, reward, done = system.apply(action.act)
        agent.add_to_trajectory(trajectory, action)
        action.update_reward(reward)
        if done:
            agent.mark_end_of_trajectory(trajectory, action)

An episode is sent as one or more trajectories; each comes from one version of the policy.
"""

from __future__ import annotations

import atexit
import logging
import secrets
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from rl4sys.client.episode import Episode
from rl4sys.client.episodes import Episodes
from rl4sys.client.fallback import Fallback, FallbackFunction
from rl4sys.client.handles import RL4SysAction, RL4SysTrajectory, Statistics
from rl4sys.client.identity import make_identity, make_spool
from rl4sys.client.layout import Layout
from rl4sys.client.link import Link
from rl4sys.client.outbox import Outbox
from rl4sys.client.pace import Pace
from rl4sys.client.recorder import NumpyRecorder, Recorder
from rl4sys.client.remote import RemotePolicy
from rl4sys.client.spaces import Sizes, Spaces, make_legalizer, make_spaces
from rl4sys.client.stream import Endpoint
from rl4sys.errors import SpecError
from rl4sys.policy.draws import Draws
from rl4sys.spec import Array, Box, encoded_size

__all__ = ["RL4SysAction", "RL4SysAgent", "RL4SysTrajectory", "Statistics"]

_log = logging.getLogger("rl4sys.client")

_MAX_RECORDING_BYTES = 4 * 2**20
"""Maximum size of a recording in bytes. Larger recordings are cut, which limits the size of messages."""


class RL4SysAgent:
    """Client of a training server: returns actions of a policy and records steps to train it.

    ``conf_path`` is the path of a JSON or YAML file, or a mapping with the same content; `ClientConfig` lists the
    settings. The keyword arguments ``client_id``, ``server_address`` and ``settings`` (a mapping from dotted names to
    values) override the file. ``observation_space`` and ``action_space`` are spaces of Gymnasium or `rl4sys.spec`; they
    must have the same shapes as the spaces in the file, if it has any. ``fallback(observation, mask)`` returns the
    action if the policy cannot decide, for example before the first model arrives.

    The constructor waits up to ``server.timeout_seconds`` for the first model and then continues without a model. It
    raises `ConfigError` if the server refuses the settings.

    Thread-safe if each thread uses its own trajectories. Only the constructor, `wait_for_model`, `flush` and `close`
    wait for the network, unless the config sets ``patience_seconds`` or ``inference: remote``.
    """

    def __init__(  # noqa: PLR0913 - two positional arguments, the rest by keyword
        self,
        conf_path: str | Path | Mapping[str, Any],
        debug: bool = False,
        *,
        observation_space: Any = None,
        action_space: Any = None,
        client_id: str | None = None,
        server_address: str | None = None,
        fallback: FallbackFunction | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        if debug:
            _log_to_stderr()
        # Slow import (pydantic), needed only here.
        from rl4sys.client.config import load_client_config

        config = self._config = load_client_config(conf_path, _overrides(settings, client_id, server_address))
        spaces = make_spaces(Sizes(config.observation, config.action, config.mask), observation_space, action_space)
        layout = self._layout = Layout(spaces.spec)
        self._named = layout.named
        self._legalize = make_legalizer(spaces)
        self._fallback = Fallback(spaces, config.fallback_action, fallback)
        self._draws = Draws(_draws_key(config.seed))
        max_steps = min(config.max_traj_length, max(1, _MAX_RECORDING_BYTES // layout.step_bytes))
        self._pace = Pace(max_steps, config.max_staleness)
        identity = make_identity(config, spaces.spec)
        spool = make_spool(identity, config.outbox.spool_bytes)
        self._outbox = Outbox(config.outbox.memory_bytes, spool, layout.encode)
        endpoint = Endpoint.from_config(config.server)
        self._link = Link(identity, endpoint.open, self._outbox, self._pace, config.send_frequency)
        remote = config.inference == "remote"
        act_seconds = config.server.act_timeout_seconds
        self._remote = RemotePolicy(self._link, identity.hello, spaces.spec, act_seconds) if remote else None
        self._episodes = Episodes(
            self._pace,
            self._outbox,
            _recorder_maker(spaces, layout, remote=remote),
            self._link.wake,
            0.0 if remote else config.patience_seconds,
        )
        self._close_lock = threading.Lock()
        self._closed = False
        self._start()

    @property
    def version(self) -> int | None:
        """Version of the newest model received; None before the first model."""
        model = self._pace.model
        return None if model is None else model.version

    def request_for_action(
        self, traj: RL4SysTrajectory | None, obs: Any, mask: Any = None
    ) -> tuple[RL4SysTrajectory, RL4SysAction]:
        """Return an action for an observation. A new episode starts if ``traj`` is None or has ended.

        The action is always legal. If the policy cannot decide, the method returns the fallback action and sets its
        ``fallback_reason``. Raises `SpecError` if the observation or mask does not have the declared shape. An action
        becomes part of the trajectory only by `add_to_trajectory`.
        """
        row = obs
        if self._named:
            row = self._layout.row(obs)
            mask = self._layout.mask_within(obs) if mask is None else mask
        if mask is not None:
            mask = _as_mask(mask)
        if traj is not None and (episode := traj._episode) is not None:
            decision = episode.decide(episode.core, row, mask, self._draws)
            if decision is not None:
                act, legalize = decision[0], self._legalize
                if legalize is not None:
                    act = legalize(act)
                episode.pending = action = RL4SysAction(episode, act, decision[1], episode.version)
                return traj, action
        if traj is None:
            traj = RL4SysTrajectory(self._episodes.abandon_later)
        return traj, self._decide_slow(traj, obs, self._layout.row(row), mask)

    def add_to_trajectory(self, traj: RL4SysTrajectory, action: RL4SysAction) -> None:
        """Add the latest action as a step of the trajectory. Its reward may be set before or after this call."""
        episode = action._episode
        if episode is None or action._step is not None:
            return
        if episode.pending is not action:
            self._reject_superseded()
            return
        episode.pending = None
        step = action._step = episode.commit()
        if action.reward is not None:
            episode.reward(step, action.reward)

    def mark_end_of_trajectory(
        self,
        traj: RL4SysTrajectory,
        action: RL4SysAction,
        truncated: bool = False,
        final_observation: Any = None,
        final_mask: Any = None,
    ) -> None:
        """End the episode. Its last action, ``action``, is added to the trajectory if this has not been done yet.

        The episode terminated unless ``truncated`` is set. For truncated episodes the learner bootstraps from
        ``final_observation``, or from the last observation if ``final_observation`` is None.
        """
        if action._episode is not None and traj._episode is not None and action._episode is not traj._episode:
            raise SpecError("the action belongs to another trajectory; end a trajectory with its own last action")
        row, mask = None, None
        if final_observation is not None:
            row = self._layout.row(final_observation)
            if final_mask is None:
                final_mask = self._layout.mask_within(final_observation)
            mask = None if final_mask is None else _as_mask(final_mask)
            self._layout.check_mask(mask)
        self.add_to_trajectory(traj, action)
        episode, traj._episode = traj._episode, None
        if episode is None:
            return
        if row is not None and not np.isfinite(row).all():
            row, mask = None, None
        self._episodes.end(episode, row, mask, truncated=truncated)

    def wait_for_model(self, timeout_seconds: float, version: int | None = None) -> bool:
        """Wait for a model, or for a model of at least ``version`` if given. Returns False on timeout."""
        return self._pace.wait_for_model(timeout_seconds, version)

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until the server has acknowledged all ended and cut trajectories. Returns False on timeout."""
        return self._link.flush(timeout_seconds)

    def statistics(self) -> Statistics:
        decisions, state = self._pace.statistics(), self._link.state
        return Statistics(
            decisions=decisions.decisions,
            fallback_decisions=decisions.fallback_decisions,
            version=self.version,
            versions_adopted=decisions.versions_adopted,
            steps_sent=state.steps_sent,
            steps_acknowledged=self._outbox.acknowledged_steps,
            steps_waiting=self._outbox.waiting_steps,
            dropped_steps=self._outbox.dropped_steps,
            late_rewards=decisions.late_rewards,
            trajectories_refused=state.trajectories_refused,
            connected=state.connected,
            last_problem=state.last_problem,
        )

    def close(self) -> None:
        """Send all recorded steps and wait up to ``flush_seconds`` until the server acknowledges them.

        Unacknowledged steps are written to disk. A closed agent can still make decisions with its last model, but does
        not record them.
        """
        with self._close_lock:
            if self._closed:
                return
            self._closed = True
            atexit.unregister(self.close)
            self._episodes.submit_all()
            if self._link.state.connected:
                self._link.flush(self._config.flush_seconds)
            self._link.close()

    def __enter__(self) -> RL4SysAgent:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        """Start the link and wait up to ``server.timeout_seconds`` for the first answer of the server."""
        config = self._config
        self._link.start()
        atexit.register(self.close)
        self._link.wait_until_answered(config.server.timeout_seconds, model=self._remote is None)
        refusal = self._link.state.refusal
        if refusal is not None:
            self.close()
            raise refusal
        if not self._link.state.connected:
            why = self._link.state.last_problem or "no answer yet"
            _log.warning(
                "the training server at %s is not reachable (%s); continuing with the fallback action",
                config.server.address,
                why,
            )
        elif self._remote is None and self._pace.model is None:
            _log.warning(
                "the training server at %s has no model yet; continuing with the fallback action", config.server.address
            )

    def _decide_slow(self, traj: RL4SysTrajectory, obs: Any, row: Array, mask: Array | None) -> RL4SysAction:
        """Return an action if the fast path cannot: for a new episode, a cut, remote inference or a fallback action."""
        self._layout.check_mask(mask)
        if not np.isfinite(row).all():
            self._abandon_episode(traj)
            return self._use_fallback(obs, mask, "the observation contains NaN or infinity")
        if self._remote is not None:
            return self._decide_remote(self._remote, traj, obs, row, mask)
        if self._pace.model is None:
            return self._use_fallback(obs, mask, "no model has arrived yet")
        episode = self._current_episode(traj, row, mask)
        decision = episode.decide(episode.core, row, mask, self._draws)
        while decision is None and episode.is_full:
            # Another thread or a newer model requested a cut in the meantime.
            self._episodes.cut_if_due(episode, row, mask)
            decision = episode.decide(episode.core, row, mask, self._draws)
        if decision is None:
            self._abandon_episode(traj, row, mask)
            return self._use_fallback(obs, mask, f"version {episode.version} of the policy returned NaN")
        return self._make_action(episode, *decision)

    def _decide_remote(
        self, remote: RemotePolicy, traj: RL4SysTrajectory, obs: Any, row: Array, mask: Array | None
    ) -> RL4SysAction:
        try:
            reply = remote.decide(row, mask, self._draws)
        except ConnectionError as problem:
            self._abandon_episode(traj, row, mask)
            return self._use_fallback(obs, mask, str(problem))
        if self._pace.is_newer(reply.model):
            self._pace.publish(reply.model)
        episode = self._current_episode(traj, row, mask, version=reply.model.version)
        # Another thread may have received a newer version in the meantime.
        episode.version = reply.model.version
        episode.recorder.pend(row, mask, reply.action, reply.log_prob)
        return self._make_action(episode, reply.action, reply.log_prob)

    def _current_episode(
        self, traj: RL4SysTrajectory, row: Array, mask: Array | None, version: int | None = None
    ) -> Episode:
        """Return the episode of a trajectory, or begin a new episode.

        The recording is cut if it is full and `Pace.should_cut` returns True, or if ``version`` is a new version.
        """
        episode = traj._episode
        if episode is None:
            episode = traj._episode = self._episodes.begin()
        elif episode.is_full or version not in (None, episode.version):
            self._episodes.cut_if_due(episode, row, mask, must_cut=version not in (None, episode.version))
        return episode

    def _make_action(self, episode: Episode, drawn: Any, log_prob: float) -> RL4SysAction:
        act = drawn if self._legalize is None else self._legalize(drawn)
        episode.pending = action = RL4SysAction(episode, act, log_prob, episode.version)
        return action

    def _use_fallback(self, observation: Any, mask: Array | None, reason: str) -> RL4SysAction:
        act, reason = self._fallback.choose(observation, mask, reason)
        self._pace.count_fallback()
        action = RL4SysAction(None, act, None, None)
        action.fallback_reason = reason
        return action

    def _abandon_episode(self, traj: RL4SysTrajectory, row: Array | None = None, mask: Array | None = None) -> None:
        episode, traj._episode = traj._episode, None
        if episode is not None:
            self._episodes.abandon(episode, row, mask)

    def _reject_superseded(self) -> None:
        if not self._closed:
            raise SpecError(
                "the action is not the latest of its trajectory; add each action before requesting the next"
            )


def _overrides(settings: Mapping[str, Any] | None, client_id: str | None, server_address: str | None) -> dict[str, Any]:
    named = {"client_id": client_id, "server.address": server_address}
    return {**(settings or {}), **{key: value for key, value in named.items() if value is not None}}


def _as_mask(mask: Any) -> Array:
    """Convert an action mask to a bool array; the masks of Gymnasium contain 0 and 1."""
    if type(mask) is np.ndarray and mask.dtype == np.bool_:
        return mask
    return np.asarray(mask.detach().cpu() if hasattr(mask, "detach") else mask).astype(np.bool_)


def _draws_key(seed: int | None) -> int:
    """Return the key of the random draws: random without a seed, else the key of a local run with this seed."""
    if seed is None:
        return secrets.randbits(64)
    return int(np.random.SeedSequence([seed, 0]).generate_state(2, np.uint64)[1])


def _recorder_maker(spaces: Spaces, layout: Layout, *, remote: bool) -> Callable[[], Recorder]:
    action = spaces.spec.action
    mask_size = 0 if isinstance(action, Box) else encoded_size(action)
    kind = NumpyRecorder if remote else Recorder
    return lambda: kind(layout.size, mask_size, action.size, spaces.spec.masked)


def _log_to_stderr() -> None:
    logger = logging.getLogger("rl4sys.client")
    logger.setLevel(logging.DEBUG)
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
