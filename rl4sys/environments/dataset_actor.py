"""Actor that replays a recorded dataset instead of stepping environments."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import numpy as np

from rl4sys.dataset import Dataset
from rl4sys.environments.actor import Episode
from rl4sys.policy.base import Policy
from rl4sys.spec import Spec, State
from rl4sys.trajectory import Trajectory


class DatasetActor:
    """Replays all episodes of a dataset repeatedly, each time in a new random order.

    After each pass, a replay buffer as large as the dataset contains every recorded step exactly once.
    """

    def __init__(self, dataset: Dataset, seed: np.random.SeedSequence) -> None:
        self._dataset, self._rng = dataset, np.random.default_rng(seed)
        self._episodes = [tuple(pieces) for _, pieces in groupby(dataset.trajectories, lambda piece: piece.episode)]
        self._pass = -1
        self._begin_pass()
        self._finished: list[Episode] = []

    @property
    def spec(self) -> Spec:
        return self._dataset.spec

    def collect(self, policy: Policy, version: int, steps: int) -> list[Trajectory]:
        """Return the next whole episodes, with at least ``steps`` steps in total, labeled with ``version``."""
        trajectories: list[Trajectory] = []
        taken = 0
        while taken < steps:
            if self._next == len(self._order):
                self._begin_pass()
            number = int(self._order[self._next])
            self._next += 1
            pieces = self._episodes[number]
            # Episode numbers differ between passes, so that the buffer does not join the copies of an episode.
            episode = self._pass * len(self._episodes) + number
            trajectories += [replace(piece, version=version, episode=episode) for piece in pieces]
            length = sum(map(len, pieces))
            taken += length
            if pieces[-1].ended:
                self._finished.append(Episode(float(sum(piece.columns["reward"].sum() for piece in pieces)), length))
        return trajectories

    def take_finished(self) -> list[Episode]:
        """Return the recorded episodes completed since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def close(self) -> None:
        """Do nothing; there are no environments to close."""

    def state(self) -> State:
        return {"pass": self._pass, "order": self._order, "next": self._next, "rng": self._rng.bit_generator.state}

    def restore(self, state: State) -> None:
        self._pass, self._order, self._next = int(state["pass"]), np.array(state["order"]), int(state["next"])
        self._rng.bit_generator.state = state["rng"]

    def _begin_pass(self) -> None:
        self._pass += 1
        self._order = self._rng.permutation(len(self._episodes))
        self._next = 0
