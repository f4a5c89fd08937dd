"""User-defined algorithms derived from `BaseAlgorithm`."""

# ruff: noqa: NPY002 - these tests are about numpy's global generator

from __future__ import annotations

import random
import re
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from rl4sys.algorithms.base_algorithm import BaseAlgorithmConfig
from rl4sys.components import ALGORITHM_REGISTRY, BaseAlgorithm, register_algorithm
from rl4sys.errors import ConfigError, ExportError, SpecError
from rl4sys.learner.config import LearnerConfig, parse_algorithm, parse_buffer, parse_networks
from rl4sys.learner.learner import Learner, build_learner
from rl4sys.policy.draws import Draws
from rl4sys.registry import ALGORITHMS
from rl4sys.runs.metrics import read_metrics
from rl4sys.runs.state_tree import split_state
from rl4sys.spec import Box, Discrete, MultiDiscrete, Spec, mask_box
from rl4sys.trajectory import Trajectory

from ..cli.conftest import Rl4sys, rl4sys, runs_in  # noqa: F401 - a fixture
from ..cli.test_commands import start, wait_for_steps

TUTORIAL = Path(__file__).parents[2] / "docs" / "own_algorithm.md"
CARTPOLE = Spec({"state": Box((4,))}, Discrete(2))
MASKED = Spec({"state": Box((4,)), "mask": mask_box(Discrete(3))}, Discrete(3))
PENDULUM = Spec({"state": Box((3,))}, Box((1,), low=(-2.0,), high=(2.0,)))


class Gaussian(BaseAlgorithm):
    """Algorithm that draws from all three global random generators, in act and in update."""

    default_buffer = {"type": "uniform", "size": 500}  # noqa: RUF012

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.networks["policy"] = torch.nn.Linear(self.observation_space.shape[0], self.action_space.shape[0])
        self.optimizers["policy"] = torch.optim.Adam(self.networks["policy"].parameters(), lr=config["lr"])
        self.noise = torch.ones(())
        self.batches: list[Any] = []

    def act(self, observation: Any, deterministic: bool = False) -> Any:
        mean = self.networks["policy"](torch.as_tensor(observation))
        if deterministic:
            return mean
        return mean + torch.randn(1) + np.random.normal() + random.gauss(0, 1), -1.5

    def update(self, batch: Any) -> dict[str, Any]:
        self.batches.append(batch)
        noise = torch.randn(()) + np.random.normal() + random.random()
        loss = (self.networks["policy"](torch.as_tensor(batch["observation"])) - noise).square().mean()
        self.optimizers["policy"].zero_grad()
        loss.backward()
        self.optimizers["policy"].step()
        for group in self.optimizers["policy"].param_groups:
            group["lr"] *= 0.99
        self.noise = self.noise * 0.9
        self.step += 1
        return {"loss": loss, "noise": noise}

    def save_checkpoint(self, path: None = None) -> dict[str, Any]:
        return super().save_checkpoint(path) | {"noise": self.noise, "betas": (1, 2.5), "counts": {3: np.arange(2)}}

    def load_checkpoint(self, checkpoint: Any) -> None:
        super().load_checkpoint(checkpoint)
        self.noise = checkpoint["noise"]
        assert checkpoint["betas"] == (1, 2.5)
        assert checkpoint["counts"][3].tolist() == [0, 1]


class Scripted(BaseAlgorithm):
    """Algorithm whose act and update return values from the config."""

    def act(self, observation: Any) -> Any:
        self.seen = observation
        return self.config.get("action", 0)

    def update(self, batch: Any) -> Any:
        self.batch = batch
        return self.config.get("result")

    def save_checkpoint(self, path: Any) -> dict[str, Any]:
        return {**super().save_checkpoint(path), "parameter": path}

    def get_metrics(self) -> dict[str, float]:
        return {"from/get_metrics": 1.0}


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ALGORITHMS, "_own", {"gaussian": Gaussian, "scripted": Scripted})


def make_learner(spec: Spec, settings: dict[str, Any], buffer: dict[str, Any] | None = None, seed: int = 0) -> Learner:
    name = settings["name"]
    config = LearnerConfig(
        algorithm=parse_algorithm(settings),
        networks=parse_networks({}, name),
        buffer=parse_buffer(buffer or {}, name),
    )
    return build_learner(spec, config, seed)


def trajectory(learner: Learner, spec: Spec, draws: Draws, steps: int = 20, **ends: bool) -> Trajectory:
    """Return a trajectory of the current policy on random observations."""
    policy, rows = learner.policy(), []
    observation = {
        name: draws.uniforms((steps + 1) * box.size).reshape(steps + 1, *box.shape).astype(box.dtype)
        for name, box in spec.observation.items()
    }
    for step in range(steps):
        rows.append(policy.act({name: column[step : step + 1] for name, column in observation.items()}, {}, draws))
    columns = {f"obs.{name}": column for name, column in observation.items()}
    columns["action"] = np.concatenate([row.action for row in rows])
    columns["log_prob"] = np.concatenate([row.log_prob for row in rows])
    columns["reward"] = draws.uniforms(steps).astype(np.float32)
    return Trajectory(learner.version, columns, **ends)


REPLAY = {"name": "gaussian", "lr": 1e-2, "learning_starts": 40, "train_frequency": 10, "batch_size": 16}


def plain(learner: Learner) -> tuple[Any, dict[str, list[Any]]]:
    document, arrays = split_state(learner.state())
    return document, {name: array.tolist() for name, array in arrays.items()}


def test_restored_learner_continues_bit_for_bit(registered: None) -> None:
    straight, first, draws = make_learner(PENDULUM, REPLAY), make_learner(PENDULUM, REPLAY), Draws(5)
    for _ in range(3):
        straight.learn([trajectory(straight, PENDULUM, draws)])
    assert plain(first) != plain(straight), "learning should change the state"
    first.restore(straight.state())
    at = draws.counter
    metrics = straight.learn([trajectory(straight, PENDULUM, draws)])
    assert first.learn([trajectory(first, PENDULUM, Draws(5, at))]) == metrics
    assert len({row["noise"] for row in metrics}) > 1, "the updates should draw random numbers"
    assert plain(first) == plain(straight)


def test_learning_rate_and_subclass_state_are_restored(registered: None) -> None:
    learner, draws = make_learner(PENDULUM, REPLAY), Draws(5)
    for _ in range(3):
        learner.learn([trajectory(learner, PENDULUM, draws)])
    again = make_learner(PENDULUM, REPLAY, seed=1)
    again.restore(learner.state())
    algorithm, other = learner.algorithm._algorithm, again.algorithm._algorithm  # type: ignore[attr-defined]
    assert (
        other.optimizers["policy"].param_groups[0]["lr"] == algorithm.optimizers["policy"].param_groups[0]["lr"] < 1e-2
    )
    assert other.noise == algorithm.noise < 1
    assert other.step == algorithm.step > 0


def test_training_does_not_change_the_global_random_states(registered: None) -> None:
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()
    learner, draws = make_learner(PENDULUM, REPLAY), Draws(5)
    for _ in range(3):
        learner.learn([trajectory(learner, PENDULUM, draws)])
    assert learner.version > 0
    assert torch.equal(torch.get_rng_state(), before[0])
    assert all(np.array_equal(one, other) for one, other in zip(np.random.get_state(), before[1], strict=True))
    assert random.getstate() == before[2]


def test_results_do_not_depend_on_the_global_random_states(registered: None) -> None:
    states = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        learner, draws = make_learner(PENDULUM, REPLAY), Draws(5)
        for _ in range(3):
            learner.learn([trajectory(learner, PENDULUM, draws)])
        states.append(plain(learner))
    assert states[0] == states[1]
    assert states[0] != plain(make_learner(PENDULUM, REPLAY, seed=1))


def test_replay_batches_have_the_documented_columns(registered: None) -> None:
    learner, draws = make_learner(PENDULUM, REPLAY | {"gamma": 0.5}), Draws(5)
    for _ in range(3):
        learner.learn([trajectory(learner, PENDULUM, draws, terminated=True)])
    batch = learner.algorithm._algorithm.batches[0]  # type: ignore[attr-defined]
    names = {"observation", "action", "reward", "next_observation", "terminated", "done", "discount"}
    assert set(batch) == names
    assert batch["observation"].shape == batch["next_observation"].shape == (16, 3)
    assert batch["action"].shape == (16, 1)
    assert (batch["done"] == batch["terminated"]).all()
    assert (batch["discount"] == 0.5).all()


def test_rollout_batches_have_the_documented_columns(registered: None) -> None:
    learner, draws = make_learner(MASKED, {"name": "scripted"}, {"size": 60}), Draws(5)
    parts = [trajectory(learner, MASKED, draws, terminated=end == 0, truncated=end == 1) for end in range(3)]
    learner.learn(parts)
    batch = learner.algorithm._algorithm.batch  # type: ignore[attr-defined]
    names = "observation action reward next_observation terminated truncated done last log_prob staleness"
    assert set(batch) == set(names.split())
    assert {name: column.shape for name, column in batch["observation"].items()} == {"state": (60, 4), "mask": (60, 3)}
    assert np.flatnonzero(batch["terminated"]).tolist() == [19]
    assert np.flatnonzero(batch["truncated"]).tolist() == [39]
    assert np.flatnonzero(batch["done"]).tolist() == [19, 39]
    assert np.flatnonzero(batch["last"]).tolist() == [19, 39, 59]


def test_log_probability_returned_by_act_is_recorded(registered: None) -> None:
    learner = make_learner(PENDULUM, REPLAY)
    assert (trajectory(learner, PENDULUM, Draws(5)).columns["log_prob"] == -1.5).all()


def test_spaces_are_set_before_init(registered: None) -> None:
    algorithm = make_learner(MASKED, {"name": "scripted"}).algorithm._algorithm  # type: ignore[attr-defined]
    assert algorithm.action_space == gymnasium.spaces.Discrete(3)
    assert set(algorithm.observation_space.spaces) == {"state", "mask"}
    assert algorithm.device == torch.device("cpu")
    images = Spec({"state": Box((2, 2, 3), "uint8", (0.0,), (255.0,))}, MultiDiscrete((2, 3)))
    algorithm = make_learner(images, {"name": "scripted"}).algorithm._algorithm  # type: ignore[attr-defined]
    assert algorithm.observation_space == gymnasium.spaces.Box(0, 255, (2, 2, 3), np.uint8)
    assert algorithm.action_space == gymnasium.spaces.MultiDiscrete([2, 3])
    unbounded = Spec({"state": Box((2,), "int64")}, Discrete(2))
    algorithm = make_learner(unbounded, {"name": "scripted"}).algorithm._algorithm  # type: ignore[attr-defined]
    assert algorithm.observation_space.low.tolist() == [np.iinfo(np.int64).min] * 2


def test_get_metrics_is_used_if_update_returns_none(registered: None) -> None:
    learner = make_learner(CARTPOLE, {"name": "scripted"}, {"size": 20})
    assert learner.learn([trajectory(learner, CARTPOLE, Draws(1))]) == [{"from/get_metrics": 1.0}]
    learner = make_learner(CARTPOLE, {"name": "scripted", "result": 3}, {"size": 20})
    with pytest.raises(SpecError, match=r"Scripted\.update returned int; return a dict of metrics"):
        learner.learn([trajectory(learner, CARTPOLE, Draws(1))])


@pytest.mark.parametrize("action", [None, 2, 0.5, [0, 1], "left"])
def test_action_outside_the_space_is_rejected(registered: None, action: Any) -> None:
    learner = make_learner(CARTPOLE, {"name": "scripted", "action": action})
    with pytest.raises(SpecError, match=r"Scripted\.act returned .*; expected an element of Discrete\(2\)"):
        trajectory(learner, CARTPOLE, Draws(1))


def test_save_checkpoint_with_or_without_path_parameter_is_accepted(registered: None) -> None:
    class Short(Scripted):
        def save_checkpoint(self) -> dict[str, Any]:  # type: ignore[override]
            return super().save_checkpoint(None)

        def get_metrics(self) -> Any:
            return None

    register_algorithm("short")(Short)
    for name in ("scripted", "short"):
        learner = make_learner(CARTPOLE, {"name": name})
        assert learner.state()["algorithm"]["checkpoint"]["config"]["name"] == name
        learner.restore(learner.state())
    learner = make_learner(CARTPOLE, {"name": "short"}, {"size": 20})
    assert learner.learn([trajectory(learner, CARTPOLE, Draws(1))]) == [{}]


def test_save_checkpoint_rejects_a_path(registered: None) -> None:
    algorithm = make_learner(PENDULUM, REPLAY).algorithm._algorithm  # type: ignore[attr-defined]
    with pytest.raises(
        ConfigError,
        match=r"was called with the path 'a\.pt', but .* writes no file; to write files, use .*CheckpointManager",
    ):
        algorithm.save_checkpoint("a.pt")


def test_export_error_explains_that_act_needs_torch(registered: None) -> None:
    learner = make_learner(CARTPOLE, {"name": "scripted"})
    with pytest.raises(ExportError, match="Scripted chooses actions in its own act"):
        learner.snapshot()


def test_greedy_policy_acts_deterministically(registered: None) -> None:
    policy, seen = make_learner(PENDULUM, REPLAY).policy(), {"state": np.ones((1, 3), np.float32)}
    sampled = {float(policy.act(seen, {}, Draws(1, counter)).action.item()) for counter in range(5)}
    greedy = {float(policy.greedy().act(seen, {}, Draws(1, counter)).action.item()) for counter in range(5)}
    assert (len(sampled), len(greedy)) == (5, 1)


def test_config_keys_are_available_as_attributes_and_items() -> None:
    config = BaseAlgorithmConfig(name="mine", lr=3e-4, layers=[64, 64])
    assert (config.lr, config["lr"], config.get("lr")) == (3e-4, 3e-4, 3e-4)
    assert config.get("epsilon", 0.1) == 0.1
    assert "layers" in config
    assert not hasattr(config, "epsilon")
    with pytest.raises(ConfigError, match=r"algorithm\.epsilon is missing; algorithm 'mine' needs it"):
        config.epsilon  # noqa: B018


def test_registry_returns_the_registered_class(registered: None) -> None:
    assert ALGORITHM_REGISTRY["gaussian"] is Gaussian
    assert "gaussian" in ALGORITHM_REGISTRY
    assert "ppo" in set(ALGORITHM_REGISTRY)
    assert ALGORITHM_REGISTRY.get("gaussian").Config is BaseAlgorithmConfig
    ALGORITHM_REGISTRY["again"] = Gaussian
    assert ALGORITHM_REGISTRY["again"] is Gaussian


LACKING = {
    "no act": (
        {"act": BaseAlgorithm.act},
        r"'Mine' does not define act\(self, observation, deterministic=False\); define act",
    ),
    "neither": (
        {"act": BaseAlgorithm.act, "update": BaseAlgorithm.update},
        r"does not define act\(self, observation, deterministic=False\) and update\(self, batch\)",
    ),
    "signature of act": (
        {"act": lambda self: 0},
        r"'Mine' defines act\(self\); expected act\(self, observation, determin",
    ),
    "signature of update": (
        {"update": lambda self, batch, steps: {}},
        r"'Mine' defines update\(self, batch, steps\); expected update\(self, batch\)",
    ),
    "signature of init": (
        {"__init__": lambda self: None},
        r"'Mine' defines __init__\(self\); expected __init__\(self, config\)",
    ),
    "attribute": ({"get_metrics": {}}, r"'Mine' defines get_metrics = \{\}; expected get_metrics\(self\)"),
}


@pytest.mark.parametrize(("changes", "expected"), LACKING.values(), ids=LACKING)
def test_class_with_missing_or_invalid_method_is_rejected_at_registration(
    changes: dict[str, Any], expected: str
) -> None:
    methods = {"act": lambda self, observation: 0, "update": lambda self, batch: {}}
    with pytest.raises(ConfigError, match=expected):
        register_algorithm("mine")(type("Mine", (BaseAlgorithm,), methods | changes))
    assert "mine" not in ALGORITHM_REGISTRY


def test_class_that_is_not_an_algorithm_is_rejected_at_registration() -> None:
    class Mine:
        def act(self, observation: Any) -> int:
            return 0

        def update(self, batch: Any) -> None: ...

    with pytest.raises(
        ConfigError,
        match=r"Mine, registered as 'mine', has no Config, roles, default_buffer, make_buffer, policy, state, "
        r"restore\. Add them, or derive the class from rl4sys\.components\.BaseAlgorithm",
    ):
        register_algorithm("mine")(Mine)


@pytest.fixture
def tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the first algorithm of docs/own_algorithm.md and its config; return the config."""
    monkeypatch.setattr(ALGORITHMS, "_own", {})
    easy = TUTORIAL.read_text().partition("the portable form\n")[0]
    blocks = dict(re.findall(r"```(python|yaml)\n(.*?)```", easy, re.DOTALL))
    (tmp_path / "my_algorithm.py").write_text(blocks["python"])
    (tmp_path / "my_experiment.yaml").write_text(blocks["yaml"])
    return tmp_path / "my_experiment.yaml"


def test_first_tutorial_algorithm_has_at_most_20_lines(tutorial: Path) -> None:
    lines = (tutorial.parent / "my_algorithm.py").read_text().splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 20


def test_first_tutorial_algorithm_reaches_195_on_cartpole(rl4sys: Rl4sys, tutorial: Path, tmp_path: Path) -> None:  # noqa: F811
    settings = ["training.total_timesteps=30000", "training.num_eval_episodes=5", "logging.tensorboard=false"]
    outcome = rl4sys("train", tutorial, *settings)
    assert outcome.exit_code == 0, outcome.err
    assert (
        "actions are computed by torch, not by the native core: MyAlgorithm chooses actions in its own act()"
        in outcome.out
    )
    run = runs_in(tmp_path / "experiments")[0]
    returns = [row["evaluation/return"] for row in read_metrics(run / "metrics.jsonl") if "evaluation/return" in row]
    assert max(returns) >= 195
    best = rl4sys("evaluate", run, "--checkpoint", "best", "--episodes", "5", "--json")
    assert f'"mean_return": {max(returns)}' in best.out
    elsewhere = rl4sys("evaluate", run, "--environment", "CartPole-v1", "--episodes", "2", "--json")
    assert elsewhere.exit_code == 0, elsewhere.err


def test_first_tutorial_algorithm_resumes_bit_exactly(rl4sys: Rl4sys, tutorial: Path, tmp_path: Path) -> None:  # noqa: F811
    arguments = ["training.total_timesteps=4000", "buffer.size=200", "training.checkpoint_frequency=400"]
    arguments += ["training.eval_frequency=2000", "logging.frequency=200", "logging.tensorboard=false"]
    assert start("train", tutorial, *arguments, "--root", tmp_path / "straight").wait() == 0
    process = start("train", tutorial, *arguments, "--root", tmp_path / "killed")
    wait_for_steps(tmp_path / "killed", 1400, process)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    killed = runs_in(tmp_path / "killed")[0]
    assert (killed / "checkpoints" / "latest").readlink().name != "step_000000004000"
    assert rl4sys("train", "--resume", killed).exit_code == 0
    straight = runs_in(tmp_path / "straight")[0]
    for name in ("metrics.jsonl", "checkpoints/latest/state.json", "checkpoints/latest/state.safetensors"):
        assert (killed / name).read_bytes() == (straight / name).read_bytes(), name
    verified = rl4sys("verify", killed)
    assert verified.exit_code == 0, verified.out


MISTAKES = {
    "missing option": ("algorithm.lr=null", "algorithm: {name: my_algorithm}", "algorithm.lr is missing"),
    "network block": ("network.actor.hidden_dims=[8]", "", "network.actor has no effect, because my_algorithm builds"),
    "pipeline": ("training.pipeline=true", "", "training.pipeline does not support this network"),
    "buffer": (
        "buffer.type=prioritized",
        "",
        "buffer.type is 'prioritized', but my_algorithm does not support this buffer",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_config_mistakes_are_reported_without_traceback(rl4sys: Rl4sys, tutorial: Path, mistake: str) -> None:  # noqa: F811
    setting, line, expected = MISTAKES[mistake]
    if line:
        tutorial.write_text(re.sub(r"algorithm: .*", line, tutorial.read_text()))
    outcome = rl4sys("train", tutorial, *([] if line else [setting]))
    assert outcome.exit_code == 2
    assert expected in outcome.err


SKELETON = """
from rl4sys.components import BaseAlgorithm, register_algorithm

@register_algorithm("my_skeleton")
class MyAlgorithm(BaseAlgorithm):
    def act(self, observation):
        # Your implementation
        pass

    def update(self, batch):
        # Your implementation
        pass
"""


def test_act_that_returns_none_is_reported_without_traceback(rl4sys: Rl4sys, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "my_skeleton.py").write_text(SKELETON)
    (tmp_path / "a.yaml").write_text(
        "plugins: [my_skeleton.py]\nalgorithm: {name: my_skeleton}\nenvironment: {name: CartPole-v1}\n"
    )
    outcome = rl4sys("train", "a.yaml")
    assert outcome.exit_code == 2
    assert "MyAlgorithm.act returned None; expected an element of Discrete(2)" in outcome.err


def test_debug_run_writes_a_profile(rl4sys: Rl4sys, tutorial: Path, tmp_path: Path) -> None:  # noqa: F811
    outcome = rl4sys("train", tutorial, "--debug", "training.total_timesteps=3000", "training.eval_frequency=3000")
    assert outcome.exit_code == 0, outcome.err
    run = runs_in(tmp_path / "experiments")[0]
    assert (run / "logs" / "debug" / "profile.json").is_file()
