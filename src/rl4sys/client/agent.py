"""What a system under control talks to: decisions in microseconds, everything else behind its back.

    agent = RL4SysAgent("client.yaml")
    trajectory = None
    while running:
        trajectory, action = agent.request_for_action(trajectory, observation)
        observation, reward, done = system.apply(action.act)
        agent.add_to_trajectory(trajectory, action)
        action.update_reward(reward)
        if done:
            agent.mark_end_of_trajectory(trajectory, action)

An episode reaches the server in *fragments*, trajectories that each come from one version of the policy.
"""

from __future__ import annotations

import atexit
import json
import logging
import math
import secrets
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import getuid
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from rl4sys.client.episodes import Episodes
from rl4sys.client.fallback import Fallback, FallbackFunction
from rl4sys.client.fragments import Layout
from rl4sys.client.link import Identity, Link
from rl4sys.client.outbox import Outbox
from rl4sys.client.pace import Episode, Pace
from rl4sys.client.recorder import NumpyRecorder, Recorder
from rl4sys.client.remote import RemotePolicy
from rl4sys.client.spaces import Sizes, Spaces, make_spaces
from rl4sys.client.spool import Spool
from rl4sys.client.stream import Endpoint
from rl4sys.errors import NumericalError, SpecError
from rl4sys.policy.draws import Draws
from rl4sys.spec import Array, Box, numbers_of
from rl4sys.wire.messages import Hello
from rl4sys.wire.service import PROTOCOL

if TYPE_CHECKING:
    from rl4sys.client.config import ClientConfig

_log = logging.getLogger("rl4sys.client")

_FRAGMENT_BYTES = 4 * 2**20
"""Fragments are cut before they grow beyond it, so that no message, and no copy of one, is large."""


class RL4SysAction:
    """A decision: ``act`` is what the system is to be given, the rest is for the learner."""

    __slots__ = ("_episode", "_step", "act", "fallback_reason", "log_prob", "reward", "version")

    def __init__(self, episode: Episode | None, act: Any, log_prob: float | None, version: int | None) -> None:
        self._episode = episode
        self._step: int | None = None
        self.act = act
        """An int for a choice, an array of them for several at once; else an array within the action's bounds."""
        self.log_prob = log_prob
        """Logarithm of the probability of the action as it was drawn; None if it is a fallback."""
        self.version = version
        """The policy version that decided; None if it is a fallback."""
        self.reward: float | None = None
        """As last given."""
        self.fallback_reason: str | None = None
        """Why the policy did not decide; None if it did."""

    def update_reward(self, reward: float) -> None:
        """Set the reward of this step, as often as need be until its trajectory ends or is cut.

        Later than that it is counted and ignored. `NumericalError` if it is not a finite number.
        """
        step = self._step
        if step is None:
            if not math.isfinite(reward):
                raise NumericalError(f"a reward is a finite number, got {reward}")
        elif not self._episode.reward(step, reward):  # type: ignore[union-attr]  # what has a step has an episode
            self._episode.late()  # type: ignore[union-attr]
        self.reward = reward

    def __repr__(self) -> str:
        why = f", fallback_reason={self.fallback_reason!r}" if self.fallback_reason else ""
        return f"RL4SysAction(act={self.act!r}, version={self.version}, reward={self.reward}{why})"


class RL4SysTrajectory:
    """A handle of the episode under way; it may be used again for the next."""

    __slots__ = ("_abandon", "_episode")

    def __init__(self, abandon: Callable[[Episode], None]) -> None:
        self._abandon = abandon
        self._episode: Episode | None = None

    def __del__(self) -> None:
        # Nobody will end it any more, but what it has can be learnt from.
        if self._episode is not None:
            self._abandon(self._episode)

    def __repr__(self) -> str:
        episode = self._episode
        if episode is None:
            return "RL4SysTrajectory(no episode under way)"
        steps = episode.recorder.offset + episode.recorder.steps
        return f"RL4SysTrajectory(episode={episode.number}, steps={steps}, version={episode.version})"


@dataclass(frozen=True)
class Statistics:
    """How a client is doing, since it was made."""

    decisions: int
    """Steps recorded, and fallbacks."""
    fallback_decisions: int
    version: int | None
    """The newest model that is here; None before the first."""
    versions_adopted: int
    """Models that were acted by."""
    steps_sent: int
    """Counted again where they had to be sent again."""
    steps_acknowledged: int
    """On the server's disk."""
    steps_waiting: int
    """To be sent or acknowledged."""
    dropped_steps: int
    """Given up, because outbox and spool were full."""
    late_rewards: int
    trajectories_refused: int
    connected: bool
    last_problem: str | None


class RL4SysAgent:
    """A policy that learns, in the hands of a running system.

    ``conf_path`` names a JSON or YAML file (or is a mapping of the same content); see `ClientConfig` for what it may
    hold. The keyword arguments replace what it says: the spaces (Gymnasium's or our own), ``client_id``,
    ``server_address``, and anything else by its dotted name in ``settings``. ``fallback(observation, mask)`` gives the
    action where there is no model. Waits up to ``server.timeout_seconds`` for the first model and goes on without;
    raises `ConfigError` if the server refuses these settings.

    Threads may share an agent, each with trajectories of its own. Nothing but the constructor, `wait_for_model`,
    `flush` and `close` waits for the network, unless ``patience_seconds`` or ``inference: remote`` ask for it.
    """

    def __init__(  # noqa: PLR0913 - two are promised, the rest goes by name
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
        # What reads files takes longer to import than all else, and is needed only here.
        from rl4sys.client.config import load_client_config

        config = self._config = load_client_config(conf_path, _changes(settings, client_id, server_address))
        spaces = make_spaces(Sizes(config.observation, config.action, config.mask), observation_space, action_space)
        layout = self._layout = Layout(spaces.spec)
        self._named = layout.named
        self._legal = _legalizer(spaces)
        self._fallback = Fallback(spaces, config.fallback_action, fallback)
        self._draws = Draws(_draws_key(config.seed))
        longest = min(config.max_traj_length, max(1, _FRAGMENT_BYTES // layout.step_bytes))
        self._pace = Pace(longest, config.max_staleness)
        identity = _identity(config, spaces)
        self._outbox = Outbox(config.outbox.memory_bytes, _spool(config, identity))
        endpoint = Endpoint.of(config.server)
        self._link = Link(identity, endpoint.open, self._outbox, self._pace, config.send_frequency)
        remote = config.inference == "remote"
        act_seconds = config.server.act_timeout_seconds
        self._remote = RemotePolicy(self._link, identity.hello, spaces.spec, act_seconds) if remote else None
        self._episodes = Episodes(
            self._pace,
            layout,
            self._outbox,
            _recorder_maker(spaces, layout, remote=remote),
            self._link.wake,
            0.0 if remote else config.patience_seconds,
        )
        self._closing = threading.Lock()
        self._closed = False
        self._start()

    @property
    def version(self) -> int | None:
        """The newest model that is here; None before the first."""
        model = self._pace.model
        return None if model is None else model.version

    def request_for_action(
        self, traj: RL4SysTrajectory | None, obs: Any, mask: Any = None
    ) -> tuple[RL4SysTrajectory, RL4SysAction]:
        """Decide what to do about an observation. None for ``traj``, or one that has ended, starts a new episode.

        The action is always legal; where the policy cannot decide it is the fallback and says why. `SpecError` if
        observation or mask are not of the declared shape. A decision that is not added is no part of the trajectory.
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
                act, legal = decision[0], self._legal
                if legal is not None:
                    act = legal(act)
                episode.pending = action = RL4SysAction(episode, act, decision[1], episode.version)
                return traj, action
        if traj is None:
            traj = RL4SysTrajectory(self._episodes.abandon)
        return traj, self._decide_slowly(traj, obs, self._layout.row(row), mask)

    def add_to_trajectory(self, traj: RL4SysTrajectory, action: RL4SysAction) -> None:
        """Make the latest decision a step of the trajectory; its reward may come before or after."""
        episode = action._episode
        if episode is None or action._step is not None:
            return
        if episode.pending is not action:
            self._refuse_superseded()
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
        """The episode is over with ``action``, which is added if it was not.

        It terminated, unless it is ``truncated``: cut off while it could have gone on, so that the learner estimates
        what would have followed, from ``final_observation`` if that is given.
        """
        if action._episode is not None and traj._episode is not None and action._episode is not traj._episode:
            raise SpecError("the action is of another trajectory than the one that is to end with it")
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
        """Wait for a model, of at least that version if one is given; whether it is there."""
        return self._pace.wait_for_model(timeout_seconds, version)

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until all trajectories that ended or were cut are acknowledged; whether they are."""
        return self._link.flush(timeout_seconds)

    def statistics(self) -> Statistics:
        figures, state = self._pace.figures(), self._link.state
        return Statistics(
            decisions=figures.decisions,
            fallback_decisions=figures.fallback_decisions,
            version=self.version,
            versions_adopted=figures.versions_adopted,
            steps_sent=state.steps_sent,
            steps_acknowledged=self._outbox.acknowledged_steps,
            steps_waiting=self._outbox.waiting_steps,
            dropped_steps=self._outbox.dropped_steps,
            late_rewards=figures.late_rewards,
            trajectories_refused=state.trajectories_refused,
            connected=state.connected,
            last_problem=state.last_problem,
        )

    def close(self) -> None:
        """Hand over what was recorded, wait ``flush_seconds`` for the server to have it, keep the rest on disk.

        Decisions can still be asked for, by the model that is here; they are no longer recorded for anybody.
        """
        with self._closing:
            if self._closed:
                return
            self._closed = True
            atexit.unregister(self.close)
            self._episodes.break_off_all()
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
        """Begin to talk to the server, and wait a little for what it says."""
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
            _log.warning("the training server at %s is away (%s); going on without", config.server.address, why)
        elif self._remote is None and self._pace.model is None:
            _log.warning("the training server at %s has no model yet; going on without", config.server.address)

    def _decide_slowly(self, traj: RL4SysTrajectory, obs: Any, row: Array, mask: Array | None) -> RL4SysAction:
        """The decision where something else comes with it: a beginning, a cut, or a reason against it."""
        self._layout.check_mask(mask)
        if not np.isfinite(row).all():
            self._break_off(traj)
            return self._fall_back(obs, mask, "the observation has a NaN or an infinity")
        if self._remote is not None:
            return self._decide_remotely(self._remote, traj, obs, row, mask)
        if self._pace.model is None:
            return self._fall_back(obs, mask, "no model has arrived yet")
        episode = self._episode_at(traj, row, mask)
        decision = episode.decide(episode.core, row, mask, self._draws)
        while decision is None and episode.is_full:
            # Another thread, or a newer model, has just asked for a cut.
            self._episodes.go_on(episode, row, mask)
            decision = episode.decide(episode.core, row, mask, self._draws)
        if decision is None:
            self._break_off(traj, row, mask)
            return self._fall_back(obs, mask, f"version {episode.version} of the policy gave NaN")
        return self._decided(episode, *decision)

    def _decide_remotely(
        self, remote: RemotePolicy, traj: RL4SysTrajectory, obs: Any, row: Array, mask: Array | None
    ) -> RL4SysAction:
        try:
            answer = remote.ask(row, mask, self._draws)
        except ConnectionError as problem:
            self._break_off(traj, row, mask)
            return self._fall_back(obs, mask, str(problem))
        if self._pace.is_news(answer.model):
            self._pace.publish(answer.model)
        episode = self._episode_at(traj, row, mask, version=answer.model.version)
        # Another thread may have been answered by a newer version meanwhile.
        episode.version = answer.model.version
        episode.recorder.pend(row, mask, answer.action, answer.log_prob)
        return self._decided(episode, answer.action, answer.log_prob)

    def _episode_at(
        self, traj: RL4SysTrajectory, row: Array, mask: Array | None, version: int | None = None
    ) -> Episode:
        """The trajectory's episode, begun or cut where it is time; by ``version`` if one is given."""
        episode = traj._episode
        if episode is None:
            episode = traj._episode = self._episodes.begin()
        elif episode.is_full or version not in (None, episode.version):
            self._episodes.go_on(episode, row, mask, must_cut=version not in (None, episode.version))
        return episode

    def _decided(self, episode: Episode, drawn: Any, log_prob: float) -> RL4SysAction:
        act = drawn if self._legal is None else self._legal(drawn)
        episode.pending = action = RL4SysAction(episode, act, log_prob, episode.version)
        return action

    def _fall_back(self, observation: Any, mask: Array | None, reason: str) -> RL4SysAction:
        act, reason = self._fallback.choose(observation, mask, reason)
        self._pace.count_fallback()
        action = RL4SysAction(None, act, None, None)
        action.fallback_reason = reason
        return action

    def _break_off(self, traj: RL4SysTrajectory, row: Array | None = None, mask: Array | None = None) -> None:
        episode, traj._episode = traj._episode, None
        if episode is not None:
            self._episodes.break_off(episode, row, mask)

    def _refuse_superseded(self) -> None:
        if not self._closed:
            raise SpecError(
                "this decision is not the latest of its trajectory; add each action before the next is requested"
            )


def _changes(settings: Mapping[str, Any] | None, client_id: str | None, server_address: str | None) -> dict[str, Any]:
    named = {"client_id": client_id, "server.address": server_address}
    return {**(settings or {}), **{key: value for key, value in named.items() if value is not None}}


def _as_mask(mask: Any) -> Array:
    """As bool; what comes as 0 and 1, as Gymnasium gives it, is taken by its truth."""
    if type(mask) is np.ndarray and mask.dtype == np.bool_:
        return mask
    return np.asarray(mask.detach().cpu() if hasattr(mask, "detach") else mask).astype(np.bool_)


def _legalizer(spaces: Spaces) -> Callable[[Any], Any] | None:
    """What makes of a drawn action one that the system may be given; None if nothing has to be done."""
    action = spaces.spec.action
    if isinstance(action, Box):
        low, high = action.bounds()
        shape = action.shape
        # A third of the time that np.clip takes.
        return lambda drawn: np.minimum(np.maximum(drawn.reshape(shape), low), high)
    start = spaces.start
    if isinstance(start, int):
        return (lambda choice: choice + start) if start else None
    return spaces.to_system


def _draws_key(seed: int | None) -> int:
    """As a local run of the same seed has it, so that both can be compared draw by draw."""
    if seed is None:
        return secrets.randbits(64)
    return int(np.random.SeedSequence([seed, 0]).generate_state(2, np.uint64)[1])


def _recorder_maker(spaces: Spaces, layout: Layout, *, remote: bool) -> Callable[[], Recorder]:
    action = spaces.spec.action
    choices = 0 if isinstance(action, Box) else numbers_of(action)
    kind = NumpyRecorder if remote else Recorder
    return lambda: kind(layout.size, choices, action.size, spaces.spec.masked)


def _identity(config: ClientConfig, spaces: Spaces) -> Identity:
    hello = Hello(
        protocol=PROTOCOL,
        client_id=config.client_id,
        instance=secrets.randbits(64),
        policy_id=config.policy_id,
        spec=json.dumps(spaces.spec.to_json()),
        settings=json.dumps(config.learner_settings()),
        pinned_version=config.pin_version,
        remote=config.inference == "remote",
    )
    home = config.outbox.spool or Path(tempfile.gettempdir()) / f"rl4sys-{getuid()}"
    return Identity(hello, spaces.spec, home / config.client_id)


def _spool(config: ClientConfig, identity: Identity) -> Spool:
    directory = identity.spools / f"{identity.hello.instance:016x}"
    return Spool(directory, config.outbox.spool_bytes, identity.hello.SerializeToString())


def _log_to_stderr() -> None:
    logger = logging.getLogger("rl4sys.client")
    logger.setLevel(logging.DEBUG)
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
