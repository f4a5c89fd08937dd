"""Behavior of the agent API, with a scripted server over a real socket."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl4sys.client import RL4SysAction, RL4SysAgent, RL4SysTrajectory
from rl4sys.errors import ConfigError, NumericalError, SpecError
from rl4sys.policy.draws import Draws
from rl4sys.policy.snapshot_policy import SnapshotPolicy
from rl4sys.spec import Box, Discrete, MultiDiscrete, Spec, in_range, is_allowed, mask_box
from rl4sys.trajectory import Trajectory
from tests.client.scripted import SPEC, TIMEOUT_SECONDS, ScriptedServer, Session, make_snapshot

MakeAgent = Callable[..., RL4SysAgent]
MakeServer = Callable[..., ScriptedServer]


def observation(number: int) -> np.ndarray[Any, Any]:
    return np.array([number, number + 0.5, -number], np.float32)


class System:
    """Host program with numbered observations; the reward of each step is the step number."""

    def __init__(self, agent: RL4SysAgent) -> None:
        self.agent, self.trajectory, self.now = agent, None, 0
        self.actions: list[RL4SysAction] = []

    trajectory: RL4SysTrajectory | None

    def step(self, *, reward: bool = True) -> RL4SysAction:
        self.trajectory, action = self.agent.request_for_action(self.trajectory, observation(self.now))
        self.agent.add_to_trajectory(self.trajectory, action)
        if reward:
            action.update_reward(float(self.now))
        self.now += 1
        self.actions.append(action)
        return action

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def end(self, **how: Any) -> None:
        assert self.trajectory is not None
        self.agent.mark_end_of_trajectory(self.trajectory, self.actions[-1], **how)

    def episode(self, steps: int, **how: Any) -> None:
        self.run(steps)
        self.end(**how)


def received(server: ScriptedServer, agent: RL4SysAgent) -> list[Trajectory]:
    assert agent.flush(TIMEOUT_SECONDS)
    return [trajectory for session in server.sessions for _, trajectory in session.trajectories]


def first_numbers(trajectory: Trajectory) -> list[float]:
    return list(trajectory.columns["obs.state"][:, 0])


def test_documented_loop_runs_as_written(server: ScriptedServer, make_agent: MakeAgent) -> None:
    class Application:
        def __init__(self) -> None:
            self.rlagent = make_agent(server)
            self.rl4sys_traj = None
            self.rl4sys_action = None

        def run_application(self, num_iterations: int, max_moves: int) -> None:
            for iteration in range(num_iterations):
                obs_tensor = observation(100 * iteration)
                done = False
                moves = 0
                while not done and moves < max_moves:
                    self.rl4sys_traj, self.rl4sys_action = self.rlagent.request_for_action(self.rl4sys_traj, obs_tensor)
                    obs_tensor, reward = observation(100 * iteration + moves + 1), 1.0
                    self.rlagent.add_to_trajectory(self.rl4sys_traj, self.rl4sys_action)
                    self.rl4sys_action.update_reward(reward)
                    moves += 1
                self.rlagent.mark_end_of_trajectory(self.rl4sys_traj, self.rl4sys_action)

    application = Application()
    application.run_application(3, 5)
    trajectories = received(server, application.rlagent)
    assert [t.episode for t in trajectories] == [0, 1, 2]
    assert [len(t) for t in trajectories] == [5, 5, 5]
    assert all(t.terminated and not t.truncated and t.offset == 0 and t.version == 1 for t in trajectories)
    assert first_numbers(trajectories[1]) == [100, 101, 102, 103, 104, 104]
    assert (trajectories[2].columns["reward"] == 1.0).all()


def test_agent_and_policy_select_same_actions_from_same_draws(server: ScriptedServer, make_agent: MakeAgent) -> None:
    agent = make_agent(server, seed=5)
    system = System(agent)
    system.episode(50)
    policy = SnapshotPolicy(make_snapshot(SPEC, 1))
    draws = Draws(int(np.random.SeedSequence([5, 0]).generate_state(2, np.uint64)[1]))
    expected = [policy.decide(observation(number), None, draws) for number in range(50)]
    assert [(a.act, a.log_prob) for a in system.actions] == expected
    assert len({a.act for a in system.actions}) > 1
    (trajectory,) = received(server, agent)
    assert list(trajectory.columns["action"]) == [action for action, _ in expected]
    assert list(trajectory.columns["log_prob"]) == [np.float32(log_prob) for _, log_prob in expected]
    assert {a.version for a in system.actions} == {1}
    assert {a.fallback_reason for a in system.actions} == {None}


MULTI_DISCRETE = Spec({"mask": mask_box(MultiDiscrete((3, 2))), "state": Box((3,))}, MultiDiscrete((3, 2)))


@pytest.mark.parametrize("inference", ["local", "remote"])
def test_multi_discrete_actions_are_recorded(make_server: MakeServer, make_agent: MakeAgent, inference: str) -> None:
    server = make_server() if inference == "local" else make_server(lambda session: session.welcome())
    policy = server.policy = SnapshotPolicy(make_snapshot(MULTI_DISCRETE, 1))
    patient = {"act_timeout_seconds": 10.0}
    agent = make_agent(server, action=[3, 2], mask=True, seed=5, inference=inference, server=patient)
    draws = Draws(int(np.random.SeedSequence([5, 0]).generate_state(2, np.uint64)[1]))
    rng, trajectory, actions, masks = np.random.default_rng(0), None, [], []
    for number in range(40):
        mask = rng.random(5) < 0.5
        mask[[rng.integers(3), 3 + rng.integers(2)]] = True
        trajectory, action = agent.request_for_action(trajectory, observation(number), mask)
        agent.add_to_trajectory(trajectory, action)
        expected, log_prob = policy.decide(observation(number), mask, draws)
        assert (action.act.dtype, action.act.tolist()) == (np.int64, np.asarray(expected).tolist())
        assert action.log_prob == pytest.approx(log_prob, abs=1e-6)
        actions.append(action.act)
        masks.append(mask)
    agent.mark_end_of_trajectory(trajectory, action)
    (sent,) = received(server, agent)
    assert sent.columns["action"].tolist() == np.array(actions).tolist()
    assert sent.columns["obs.mask"][:-1].tolist() == np.array(masks).tolist()
    assert len(np.unique(actions, axis=0)) > 3


def test_multi_discrete_fallback_is_legal_in_each_dimension(make_agent: MakeAgent) -> None:
    wanted: list[Any] = [[2, 1]]
    agent = make_agent(
        "127.0.0.1:1",
        action=[3, 2],
        mask=True,
        fallback_action=[1, 0],
        server={"timeout_seconds": 0.01},
        arguments={"fallback": lambda observation, mask: wanted[0]},
    )

    def choose(*mask: bool) -> list[int]:
        _, action = agent.request_for_action(None, observation(0), np.array(mask))
        assert action.fallback_reason is not None
        assert in_range(MULTI_DISCRETE.action, action.act[None])
        assert is_allowed(MULTI_DISCRETE.action, action.act[None], np.array([mask]))
        return list(action.act)

    assert choose(True, True, True, True, True) == [2, 1]
    assert choose(True, True, True, True, False) == [1, 0]
    assert choose(False, False, True, False, True) == [2, 1]
    for wrong in ([3, 0], [0], 0, [0.5, 1], "xy", None):
        wanted[0] = wrong
        assert choose(True, True, True, True, True) == [1, 0]
        assert choose(True, False, True, False, True) == [0, 1]


def test_mask_without_legal_action_in_one_dimension_is_rejected(server: ScriptedServer, make_agent: MakeAgent) -> None:
    agent = make_agent(server, action=[3, 2], mask=True)
    for trajectory in (None, agent.request_for_action(None, observation(0))[0]):
        with pytest.raises(SpecError, match=r"each (action dimension|part) needs at least one legal action"):
            agent.request_for_action(trajectory, observation(0), np.array([True, True, True, False, False]))


def test_reward_may_be_set_before_or_after_adding_step(server: ScriptedServer, make_agent: MakeAgent) -> None:
    agent = make_agent(server)
    trajectory, first = agent.request_for_action(None, observation(0))
    first.update_reward(1.5)
    agent.add_to_trajectory(trajectory, first)
    trajectory, second = agent.request_for_action(trajectory, observation(1))
    agent.add_to_trajectory(trajectory, second)
    trajectory, third = agent.request_for_action(trajectory, observation(2))
    third.update_reward(3)
    agent.add_to_trajectory(trajectory, third)
    second.update_reward(np.float64(2.25))
    first.update_reward(1.75)
    agent.mark_end_of_trajectory(trajectory, third)
    assert list(received(server, agent)[0].columns["reward"]) == [1.75, 2.25, 3.0]
    assert first.reward == 1.75


def test_late_reward_is_counted_and_logged_once(
    server: ScriptedServer, make_agent: MakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    system = System(make_agent(server))
    system.run(2)
    late = system.step(reward=False)
    system.end()
    system.step()
    late.update_reward(1.0)
    late.update_reward(2.0)
    assert system.agent.statistics().late_rewards == 2
    assert caplog.text.count("a reward arrived after its trajectory had ended") == 1
    assert list(received(server, system.agent)[0].columns["reward"]) == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), np.float32("-inf")])
@pytest.mark.parametrize("added", [True, False])
def test_non_finite_reward_is_rejected(
    server: ScriptedServer, make_agent: MakeAgent, reward: float, added: bool
) -> None:
    agent = make_agent(server)
    trajectory, action = agent.request_for_action(None, observation(0))
    if added:
        agent.add_to_trajectory(trajectory, action)
    with pytest.raises(NumericalError, match="a reward must be a finite"):
        action.update_reward(reward)


def test_action_not_added_is_not_recorded(server: ScriptedServer, make_agent: MakeAgent) -> None:
    system = System(make_agent(server))
    system.step()
    _, unwanted = system.agent.request_for_action(system.trajectory, observation(50))
    system.step()
    with pytest.raises(SpecError, match="not the latest of its trajectory"):
        system.agent.add_to_trajectory(system.trajectory, unwanted)  # type: ignore[arg-type]
    system.end()
    assert first_numbers(received(server, system.agent)[0]) == [0, 1, 1]


def test_end_of_trajectory_adds_last_action_once(server: ScriptedServer, make_agent: MakeAgent) -> None:
    agent = make_agent(server)
    trajectory, action = agent.request_for_action(None, observation(0))
    action.update_reward(4.0)
    agent.mark_end_of_trajectory(trajectory, action)
    agent.mark_end_of_trajectory(trajectory, action)
    (only,) = received(server, agent)
    assert list(only.columns["reward"]) == [4.0]


def test_final_observation_is_sent_with_truncated_episode(server: ScriptedServer, make_agent: MakeAgent) -> None:
    system = System(make_agent(server))
    system.episode(2, truncated=True, final_observation=[9, 9, 9])
    system.episode(2, truncated=True)
    system.episode(2, truncated=True, final_observation=[np.nan, 9, 9])
    system.episode(2, final_observation=np.array([8, 8, 8]))
    known, unknown, invalid, terminated = received(server, system.agent)
    assert (known.truncated, known.terminated) == (True, False)
    assert first_numbers(known) == [0, 1, 9]
    assert first_numbers(unknown) == [2, 3, 3]
    assert first_numbers(invalid) == [4, 5, 5]
    assert (terminated.truncated, terminated.terminated, first_numbers(terminated)) == (False, True, [6, 7, 8])


def test_long_episode_is_cut_at_max_traj_length(server: ScriptedServer, make_agent: MakeAgent) -> None:
    system = System(make_agent(server, max_traj_length=4))
    system.episode(10)
    trajectories = received(server, system.agent)
    assert [len(t) for t in trajectories] == [4, 4, 2]
    assert [t.offset for t in trajectories] == [0, 4, 8]
    assert [t.terminated for t in trajectories] == [False, False, True]
    assert {t.episode for t in trajectories} == {0}
    assert [first_numbers(t)[-1] for t in trajectories] == [4, 8, 9], (
        "the next observation is the final one of a cut recording"
    )


def wants(steps: int, **fields: Any) -> Callable[[Session], None]:
    def script(session: Session) -> None:
        session.welcome(**fields)
        session.model(make_snapshot(session.spec, 1), wants=steps)

    return script


def test_recordings_are_cut_when_next_update_is_due(make_server: MakeServer, make_agent: MakeAgent) -> None:
    server = make_server(wants(10))
    system = System(make_agent(server, send_frequency=100))
    system.episode(7)
    system.run(14)
    assert [len(t) for t in received(server, system.agent)] == [7, 3, 10]


def test_cut_waits_for_rewards_up_to_max_traj_length(make_server: MakeServer, make_agent: MakeAgent) -> None:
    server = make_server(wants(5))
    system = System(make_agent(server, max_traj_length=9))
    system.run(3)
    waiting = system.step(reward=False)
    system.run(3)
    waiting.update_reward(-1.0)
    system.run(1)
    system.step(reward=False)
    system.run(20)
    first, second, *_ = received(server, system.agent)
    assert len(first) == 7
    assert first.columns["reward"][3] == -1.0
    assert len(second) == 9


def test_newer_model_is_used_from_next_decision(server: ScriptedServer, make_agent: MakeAgent) -> None:
    system = System(make_agent(server))
    system.run(3)
    server.session.model(make_snapshot(SPEC, 2))
    assert system.agent.wait_for_model(TIMEOUT_SECONDS, version=2)
    system.episode(2)
    assert [a.version for a in system.actions] == [1, 1, 1, 2, 2]
    old, new = received(server, system.agent)
    assert ((old.version, len(old), old.ended), (new.version, new.offset)) == ((1, 3, False), (2, 3))
    assert system.agent.statistics().versions_adopted == 2
    server.wait_for(lambda: any(report.adopted_version == 2 for report in server.session.reports))


def test_patience_makes_decisions_wait_for_the_newest_model(make_server: MakeServer, make_agent: MakeAgent) -> None:
    """With max_staleness 0, each round uses the model trained on the previous round."""
    server = make_server(wants(10, max_staleness=0))
    learned: list[int] = []

    def learn(session: Session) -> None:
        session.ack(session.sequences[-1])
        if session.steps >= 10 * (len(learned) + 1):
            learned.append(session.sequences[-1])
            session.model(make_snapshot(SPEC, 1 + len(learned)), wants=10, taken=learned[-1])

    server.on_trajectories = learn
    system = System(make_agent(server, patience_seconds=TIMEOUT_SECONDS))
    for _ in range(5):
        system.episode(7)
    received(server, system.agent)
    assert [a.version for a in system.actions] == [1 + number // 10 for number in range(35)]


def test_patience_times_out_with_one_warning(
    make_server: MakeServer, make_agent: MakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server(wants(2, max_staleness=1))
    system = System(make_agent(server, patience_seconds=0.01))
    system.run(4)
    assert "no newer model arrived" not in caplog.text
    system.run(4)
    assert caplog.text.count("no newer model arrived within patience_seconds (0.01 s)") == 1


def test_zero_patience_never_waits(make_server: MakeServer, make_agent: MakeAgent) -> None:
    server = make_server(wants(2, max_staleness=0))
    system = System(make_agent(server))
    system.episode(50)
    assert sum(len(t) for t in received(server, system.agent)) == 50


@pytest.mark.parametrize("kind", ["list", "float64", "matrix", "torch", "gradient"])
def test_lists_arrays_and_tensors_are_accepted_as_observations(
    server: ScriptedServer, make_agent: MakeAgent, kind: str
) -> None:
    torch = pytest.importorskip("torch")
    forms: dict[str, Callable[[], Any]] = {
        "list": lambda: [1.0, 2, 3],
        "float64": lambda: np.array([1.0, 2.0, 3.0]),
        "matrix": lambda: np.array([[1, 2, 3]], np.float32),
        "torch": lambda: torch.tensor([1.0, 2.0, 3.0]),
        "gradient": lambda: torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True),
    }
    agent = make_agent(server)
    trajectory = None
    for _ in range(3):
        trajectory, action = agent.request_for_action(trajectory, forms[kind]())
        agent.add_to_trajectory(trajectory, action)
    agent.mark_end_of_trajectory(trajectory, action)
    assert received(server, agent)[0].columns["obs.state"].tolist() == [[1.0, 2.0, 3.0]] * 4


def test_observation_of_wrong_size_is_rejected(server: ScriptedServer, make_agent: MakeAgent) -> None:
    agent = make_agent(server)
    with pytest.raises(SpecError, match=r"the row is .* of shape \(4,\); expected"):
        agent.request_for_action(None, np.zeros(4))
    with pytest.raises(SpecError, match="the spec has no mask"):
        agent.request_for_action(None, np.zeros(3), mask=[True] * 4)


def test_named_observations_and_masks_keep_shape_and_dtype(server: ScriptedServer, make_agent: MakeAgent) -> None:
    image = {"shape": [2, 2], "dtype": "uint8", "low": 0, "high": 255}
    agent = make_agent(server, observation={"image": image, "depth": 2}, mask=True)
    seen = {"image": np.arange(4, dtype=np.uint8).reshape(2, 2), "depth": [0.5, 1.5]}
    trajectory, action = agent.request_for_action(None, seen, mask=np.array([0, 0, 1, 0], np.int8))
    assert action.act == 2
    agent.add_to_trajectory(trajectory, action)
    trajectory, action = agent.request_for_action(trajectory, {**seen, "mask": [False, True, False, False]})
    assert action.act == 1
    agent.mark_end_of_trajectory(trajectory, action, True, seen, [True, True, False, False])
    columns = received(server, agent)[0].columns
    assert columns["obs.image"].dtype == np.uint8
    assert columns["obs.image"].tolist() == [[[0, 1], [2, 3]]] * 3
    assert columns["obs.depth"].tolist() == [[0.5, 1.5]] * 3
    assert columns["obs.mask"].tolist() == [
        [False, False, True, False],
        [False, True, False, False],
        [True, True, False, False],
    ]


def test_mask_in_final_observation_is_recorded_and_checked(server: ScriptedServer, make_agent: MakeAgent) -> None:
    agent = make_agent(server, observation={"depth": 2}, mask=True)
    seen = {"depth": [0.5, 1.5], "mask": [False, True, False, False]}
    trajectory, action = agent.request_for_action(None, seen)
    with pytest.raises(SpecError, match="the action mask allows no action"):
        agent.mark_end_of_trajectory(trajectory, action, True, {**seen, "mask": [False] * 4})
    agent.mark_end_of_trajectory(trajectory, action, True, {**seen, "mask": [True, False, False, True]})
    assert received(server, agent)[0].columns["obs.mask"].tolist()[-1] == [True, False, False, True]


def test_ending_trajectory_with_action_of_another_trajectory_is_rejected(
    server: ScriptedServer, make_agent: MakeAgent
) -> None:
    agent = make_agent(server)
    one, action = agent.request_for_action(None, observation(0))
    agent.add_to_trajectory(one, action)
    other, mistaken = agent.request_for_action(None, observation(1))
    with pytest.raises(SpecError, match="belongs to another trajectory"):
        agent.mark_end_of_trajectory(one, mistaken)
    agent.mark_end_of_trajectory(one, action)
    agent.mark_end_of_trajectory(other, mistaken)
    assert [len(trajectory) for trajectory in received(server, agent)] == [1, 1]


def test_continuous_actions_are_clipped_for_host_and_recorded_unclipped(
    server: ScriptedServer, make_agent: MakeAgent
) -> None:
    agent = make_agent(server, action={"size": 2, "low": [-0.1, 0.2], "high": [0.1, 0.3]})
    system = System(agent)
    system.episode(20)
    given = np.array([a.act for a in system.actions])
    drawn = received(server, agent)[0].columns["action"]
    assert given.shape == drawn.shape == (20, 2)
    assert (given == np.clip(drawn, np.float32([-0.1, 0.2]), np.float32([0.1, 0.3]))).all()
    assert (given != drawn).any()


def test_discrete_start_offset_is_applied(server: ScriptedServer, make_agent: MakeAgent) -> None:
    class DiscreteSpace:
        n, start = 4, 10

    system = System(make_agent(server, arguments={"action_space": DiscreteSpace()}))
    system.episode(30)
    assert {a.act for a in system.actions} <= {10, 11, 12, 13}
    drawn = received(server, system.agent)[0].columns["action"]
    assert [a.act - 10 for a in system.actions] == list(drawn)


def unreachable_address(make_server: MakeServer) -> str:
    """Return an address at which no server runs."""
    server = make_server()
    server.stop()
    return server.address


def test_unreachable_server_gives_warning_and_legal_fallback(
    make_server: MakeServer, make_agent: MakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    agent = make_agent(unreachable_address(make_server), mask=True, server={"timeout_seconds": 0.05}, fallback_action=3)
    assert caplog.text.count("is not reachable") == 1
    trajectory, action = agent.request_for_action(None, observation(0))
    assert (action.act, action.version, action.log_prob) == (3, None, None)
    assert action.fallback_reason == "no model has arrived yet"
    agent.add_to_trajectory(trajectory, action)
    action.update_reward(1.0)
    agent.mark_end_of_trajectory(trajectory, action)
    _, masked = agent.request_for_action(trajectory, observation(1), mask=[False, True, True, False])
    assert masked.act == 1
    with pytest.raises(SpecError, match="the action mask allows no action"):
        agent.request_for_action(trajectory, observation(1), mask=[False] * 4)
    statistics = agent.statistics()
    assert (statistics.decisions, statistics.fallback_decisions, statistics.version) == (2, 2, None)
    assert not statistics.connected
    assert statistics.last_problem


@pytest.mark.parametrize(
    ("function", "act", "error"),
    [
        (lambda observation, mask: 2, 2, None),
        (lambda observation, mask: 7, 0, "ValueError"),
        (lambda observation, mask: "left", 0, "TypeError"),
        (lambda observation, mask: 1 / 0, 0, "ZeroDivisionError"),
    ],
)
def test_fallback_function_may_fail_or_return_illegal_action(
    make_server: MakeServer, make_agent: MakeAgent, function: Any, act: int, error: str | None
) -> None:
    agent = make_agent(
        unreachable_address(make_server), server={"timeout_seconds": 0.05}, arguments={"fallback": function}
    )
    _, action = agent.request_for_action(None, observation(0))
    assert action.act == act
    assert action.fallback_reason is not None
    assert (error in action.fallback_reason) if error else "failed" not in action.fallback_reason


def test_continuous_fallback_is_within_bounds(make_server: MakeServer, make_agent: MakeAgent) -> None:
    bounded = {"size": 2, "low": [0.5, -1.0], "high": [2.0, 1.0]}
    address = unreachable_address(make_server)
    agent = make_agent(address, action=bounded, server={"timeout_seconds": 0.05})
    assert agent.request_for_action(None, observation(0))[1].act.tolist() == [0.5, 0.0]
    other = make_agent(address, action=bounded, server={"timeout_seconds": 0.05}, fallback_action=[1.0, 0.5])
    assert other.request_for_action(None, observation(0))[1].act.tolist() == [1.0, 0.5]
    with pytest.raises(ConfigError, match=r"fallback_action is \[9, 9\]; expected an array of shape \(2,\)"):
        make_agent(address, action=bounded, fallback_action=[9, 9])


def test_model_arriving_during_episode_replaces_fallback(make_server: MakeServer, make_agent: MakeAgent) -> None:
    server = make_server(lambda session: session.welcome())
    system = System(make_agent(server, server={"timeout_seconds": 0.05}))
    system.run(3)
    server.wait_for(lambda: bool(server.sessions))
    server.session.model(make_snapshot(SPEC, 4))
    assert system.agent.wait_for_model(TIMEOUT_SECONDS)
    system.episode(3)
    assert [a.version for a in system.actions] == [None] * 3 + [4] * 3
    (trajectory,) = received(server, system.agent)
    assert (first_numbers(trajectory), trajectory.offset) == ([3, 4, 5, 5], 0)
    assert system.agent.statistics().decisions == 6


def test_non_finite_observation_ends_trajectory(server: ScriptedServer, make_agent: MakeAgent) -> None:
    system = System(make_agent(server))
    system.run(3)
    _, action = system.agent.request_for_action(system.trajectory, [np.nan, 0, 0])
    assert action.fallback_reason == "the observation contains NaN or infinity"
    assert action.act in range(4)
    system.agent.add_to_trajectory(system.trajectory, action)  # type: ignore[arg-type]
    action.update_reward(5.0)
    system.episode(2)
    before, after = received(server, system.agent)
    assert (first_numbers(before), before.ended) == ([0, 1, 2], False), "the outcome of the last action is unknown"
    assert (first_numbers(after), after.offset, after.terminated) == ([3, 4, 4], 0, True)
    assert before.episode != after.episode


def test_fallback_is_used_if_policy_returns_nan(server: ScriptedServer, make_agent: MakeAgent) -> None:
    system = System(make_agent(server))
    system.run(2)
    server.session.model(make_snapshot(SPEC, 2, bias=float("nan")))
    assert system.agent.wait_for_model(TIMEOUT_SECONDS, 2)
    system.run(2)
    server.session.model(make_snapshot(SPEC, 3))
    assert system.agent.wait_for_model(TIMEOUT_SECONDS, 3)
    system.episode(2)
    assert [a.version for a in system.actions] == [1, 1, None, None, 3, 3]
    assert system.actions[2].fallback_reason == "version 2 of the policy returned NaN"
    before, after = received(server, system.agent)
    assert (first_numbers(before), first_numbers(after)) == ([0, 1, 2], [4, 5, 5])


def test_several_threads_can_use_one_agent(make_server: MakeServer, make_agent: MakeAgent) -> None:
    server = make_server(wants(100))
    versions = itertools.count(2)

    def learn(session: Session) -> None:
        session.ack(session.sequences[-1])
        session.model(make_snapshot(SPEC, next(versions)), wants=100, taken=session.sequences[-1])

    server.on_trajectories = learn
    agent = make_agent(server)
    systems = [System(agent) for _ in range(4)]

    def work(number: int) -> None:
        system = systems[number]
        system.now = 1_000_000 * number
        while len({action.version for action in system.actions}) < 5:
            system.episode(37)

    with ThreadPoolExecutor(len(systems)) as pool:
        assert list(pool.map(work, range(len(systems)))) == [None] * len(systems)
    trajectories = received(server, agent)
    steps = sum(len(system.actions) for system in systems)
    assert sum(len(t) for t in trajectories) == steps
    assert sorted(s for s, _ in server.session.trajectories) == server.session.sequences, (
        "trajectories are sent in the order of their sequence numbers"
    )
    for trajectory in trajectories:
        differences = np.diff(trajectory.columns["obs.state"][:, 0][:-1])
        assert (differences == 1).all(), "a trajectory contains steps of one episode only"
    assert len({t.episode for t in trajectories}) == steps // 37
    statistics = agent.statistics()
    assert (statistics.decisions, statistics.fallback_decisions) == (steps, 0)
    assert statistics.versions_adopted >= 5


def test_deleted_trajectory_handle_loses_only_last_step(server: ScriptedServer, make_agent: MakeAgent) -> None:
    system = System(make_agent(server))
    system.run(5)
    system.trajectory = None
    system.episode(2)
    first, second = received(server, system.agent)
    assert (first_numbers(first), first.ended) == ([0, 1, 2, 3, 4], False)
    assert (first_numbers(second), second.terminated) == ([5, 6, 6], True)


def test_close_sends_recorded_steps_and_agent_still_decides(server: ScriptedServer, make_agent: MakeAgent) -> None:
    agent = make_agent(server)
    system = System(agent)
    system.run(5)
    agent.close()
    agent.close()
    assert [len(t) for _, t in server.session.trajectories] == [4]
    assert system.step().version == 1
    system.end()
    statistics = agent.statistics()
    assert (statistics.steps_acknowledged, statistics.dropped_steps, statistics.steps_waiting) == (4, 1, 0)


def test_action_requested_before_close_can_be_added_after_close(server: ScriptedServer, make_agent: MakeAgent) -> None:
    agent = make_agent(server)
    trajectory, action = agent.request_for_action(None, observation(0))
    agent.close()
    agent.add_to_trajectory(trajectory, action)
    action.update_reward(1.0)


def test_process_exit_delivers_recorded_steps(server: ScriptedServer, tmp_path: Path) -> None:
    script = f"""
from rl4sys.client import RL4SysAgent
agent = RL4SysAgent({{"client_id": "hasty", "observation": 3, "action": 4, "server": {{"address": {server.address!r}}},
    "outbox": {{"spool": {str(tmp_path)!r}}}, "send_frequency": 100}})
trajectory = None
for step in range(10):
    trajectory, action = agent.request_for_action(trajectory, [step, 0, 0])
    agent.add_to_trajectory(trajectory, action)
"""
    ended = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, timeout=TIMEOUT_SECONDS)
    assert (ended.stdout, ended.stderr) == (b"", b"")
    assert server.all_steps() == 9


def test_agent_imports_no_torch_and_uses_little_ram(server: ScriptedServer, tmp_path: Path) -> None:
    script = f"""
import sys
from rl4sys.client import RL4SysAgent
assert "pydantic" not in sys.modules
with RL4SysAgent({{"client_id": "light", "observation": 3, "action": 4, "server": {{"address": {server.address!r}}},
    "outbox": {{"spool": {str(tmp_path)!r}}}}}) as agent:
    trajectory = None
    for step in range(10_000):
        trajectory, action = agent.request_for_action(trajectory, [step, 0, 0])
        agent.add_to_trajectory(trajectory, action)
        action.update_reward(1.0)
    assert action.version == 1
    assert not set(sys.modules) & {{"torch", "gymnasium", "pandas", "typer", "rich"}}
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    print(int(status["VmRSS"].split()[0]) / 1024)
"""
    ended = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, timeout=TIMEOUT_SECONDS)
    assert float(ended.stdout) <= 75, "limit in MB; usage was 68 MB when this test was written"


def test_agent_is_a_context_manager(server: ScriptedServer, make_agent: MakeAgent) -> None:
    with make_agent(server) as agent:
        System(agent).episode(3)
    assert server.session.steps == 3


def test_arguments_override_config(make_server: MakeServer, make_agent: MakeAgent) -> None:
    server = make_server()
    arguments = {
        "client_id": "another",
        "server_address": server.address,
        "observation_space": Box((3,), low=(-1.0,), high=(1.0,)),
        "settings": {"policy_id": "shared", "algorithm.lr": 0.5, "max_staleness": 2},
    }
    make_agent("nowhere:1", arguments=arguments)
    hello = server.session.hello
    assert (hello.client_id, hello.policy_id) == ("another", "shared")
    assert server.session.spec == Spec({"state": Box((3,), low=(-1.0,), high=(1.0,))}, Discrete(4))
    assert '"lr": 0.5' in hello.settings
    assert '"max_staleness": 2' in hello.settings


def remote_server(make_server: MakeServer, version: int = 1) -> ScriptedServer:
    server = make_server(lambda session: session.welcome())
    server.policy = SnapshotPolicy(make_snapshot(SPEC, version))
    return server


def test_remote_decisions_equal_local_decisions(
    make_server: MakeServer, server: ScriptedServer, make_agent: MakeAgent
) -> None:
    remote_host = remote_server(make_server)
    remote, local = (
        System(make_agent(remote_host, inference="remote", seed=3, max_traj_length=8)),
        System(make_agent(server, seed=3, max_traj_length=8)),
    )
    assert remote_host.session.hello.remote
    for system in (remote, local):
        system.episode(20)
    assert [a.act for a in remote.actions] == [a.act for a in local.actions]
    theirs, ours = received(remote_host, remote.agent), received(server, local.agent)
    assert [len(t) for t in theirs] == [len(t) for t in ours] == [8, 8, 4]
    for one, other in zip(theirs, ours, strict=True):
        assert one.version == other.version == 1
        for name, column in one.columns.items():
            assert np.array_equal(column, other.columns[name])


def test_new_remote_version_cuts_trajectory(make_server: MakeServer, make_agent: MakeAgent) -> None:
    server = remote_server(make_server)
    system = System(make_agent(server, inference="remote"))
    system.run(3)
    server.policy = SnapshotPolicy(make_snapshot(SPEC, 2))
    system.episode(2)
    assert [a.version for a in system.actions] == [1, 1, 1, 2, 2]
    assert [(t.version, len(t), t.offset) for t in received(server, system.agent)] == [(1, 3, 0), (2, 2, 3)]


def test_remote_client_ignores_models(make_server: MakeServer, make_agent: MakeAgent) -> None:
    server = remote_server(make_server)
    system = System(make_agent(server, inference="remote"))
    server.session.model(make_snapshot(SPEC, 5))
    system.episode(2)
    received(server, system.agent)  # The model arrived before the acknowledgement.
    system.episode(3)
    assert [a.version for a in system.actions] == [1] * 5
    assert [(t.version, len(t)) for t in received(server, system.agent)] == [(1, 2), (1, 3)]


def test_fallback_is_used_if_remote_decision_fails(make_server: MakeServer, make_agent: MakeAgent) -> None:
    server = remote_server(make_server)
    system = System(make_agent(server, inference="remote"))
    system.run(2)
    policy, server.policy = server.policy, None
    failed = system.step()
    assert failed.version is None
    assert failed.fallback_reason == "the server returned no action: no model yet (UNAVAILABLE)"
    server.policy = policy
    system.episode(2)
    before, after = received(server, system.agent)
    assert (first_numbers(before), first_numbers(after)) == ([0, 1, 2], [3, 4, 4])
    server.stop()
    action = system.step()
    while action.fallback_reason != "not connected to the server":
        action = system.step()


def test_debug_logs_to_stderr(
    server: ScriptedServer, make_agent: MakeAgent, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import logging

    logger = logging.getLogger("rl4sys.client")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "level", logger.level)
    make_agent(server, arguments={"debug": True}).close()
    assert "welcomed by" in capfd.readouterr().err
    logger.setLevel(logging.NOTSET)


def test_repr_of_action_and_trajectory_shows_state(server: ScriptedServer, make_agent: MakeAgent) -> None:
    system = System(make_agent(server))
    action = system.step()
    assert repr(system.trajectory) == "RL4SysTrajectory(episode=0, steps=1, version=1)"
    assert repr(action) == f"RL4SysAction(act={action.act}, version=1, reward=0.0)"
    system.end()
    assert repr(system.trajectory) == "RL4SysTrajectory(no episode in progress)"
