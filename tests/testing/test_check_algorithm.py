"""Each rule of algorithms is followed by the algorithms of the tutorial, and catches an algorithm that breaks it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from pydantic import ConfigDict

from rl4sys.algorithms.actions import ALL_ACTIONS
from rl4sys.algorithms.base import AlgorithmConfig, Update
from rl4sys.algorithms.optimization import make_adam
from rl4sys.algorithms.reinforce import Reinforce
from rl4sys.components import BaseAlgorithm
from rl4sys.errors import ConfigError, ContractError, ExportError, RL4SysError
from rl4sys.learner.config import LearnerConfig, parse_buffer, parse_networks
from rl4sys.networks.base import Blueprint, build_network
from rl4sys.networks.state import parts_state, restore_parts
from rl4sys.networks.torch_policy import TorchPolicy
from rl4sys.policy.base import Decision
from rl4sys.policy.program import Operation
from rl4sys.registry import ALGORITHMS, Registry
from rl4sys.spec import MASK, Box, Discrete, Spec
from rl4sys.testing import check_algorithm, learners, policies
from rl4sys.testing.algorithms import class_has_all_parts
from rl4sys.testing.configs import config_class_is_frozen_and_typed, config_is_restored_from_its_settings
from rl4sys.testing.learners import LearnerCase
from rl4sys.testing.rules import Rule
from rl4sys.testing.task import STEPS

from .tutorial import component

Good: Any = component("An algorithm in the portable form", "MyPortableAlgorithm")
Easy: Any = component("An algorithm derived from BaseAlgorithm", "MyAlgorithm")

PORTABLE_RULES = {
    class_has_all_parts,
    config_class_is_frozen_and_typed,
    config_is_restored_from_its_settings,
    learners.algorithm_can_be_built,
    learners.update_returns_finite_metrics,
    learners.global_generators_are_left_alone,
    learners.seed_determines_the_learner,
    learners.restored_learner_continues,
    learners.learners_are_independent,
    learners.policy_is_exported_or_gives_the_reason,
    policies.decisions_fit_the_spec,
    policies.decisions_depend_on_the_draws_alone,
    policies.batched_decisions_equal_single_decisions,
    policies.greedy_policy_ignores_the_draws,
    policies.illegal_actions_are_never_taken,
    learners.rewarded_action_is_learned,
}


def test_algorithm_of_the_tutorial_follows_all_rules() -> None:
    report = check_algorithm(Good)
    assert set(report.rules) == {rule.statement for rule in PORTABLE_RULES}
    assert report.remarks == ()
    assert str(report).startswith(f"MyPortableAlgorithm follows all {len(PORTABLE_RULES)} rules:\n  - ")


def test_easy_algorithm_of_the_tutorial_follows_all_rules_but_is_not_exported() -> None:
    report = check_algorithm(Easy, {"lr": 1e-2})
    assert set(report.rules) == {r.statement for r in PORTABLE_RULES - {policies.illegal_actions_are_never_taken}}
    assert any("the policy is not exported: MyAlgorithm chooses actions in its own act()" in r for r in report.remarks)
    assert any("without action masks" in remark for remark in report.remarks)


def test_shipped_algorithm_is_checked_with_each_kind_of_action(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("rl4sys.testing.algorithms._check_learner", lambda check, case, learns: seen.append(case.spec))
    check_algorithm(Reinforce)
    assert len(seen) == len(ALL_ACTIONS)
    assert len({str(spec.action) for spec in seen}) == len(ALL_ACTIONS)


def test_registered_algorithm_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ALGORITHMS, "_own", {})
    ALGORITHMS.register("mine")(Good)
    with ALGORITHMS.under_a_name(Good) as name:
        assert name == "mine"
    with ALGORITHMS.under_a_name(Reinforce) as name:
        assert name == "reinforce"
    assert ALGORITHMS.own_names() == ["mine"]


def test_unregistered_component_is_registered_only_during_the_check() -> None:
    registry = Registry("network", {"mine": "nowhere:Mine"})
    mine = type("mine", (), {})
    with registry.under_a_name(mine) as name:
        assert registry.get(name) is mine
        assert name not in ("mine", "")
    assert registry.own_names() == []


class Unfrozen(Good.Config):  # type: ignore[misc,name-defined]
    model_config = ConfigDict(frozen=False)


class Open(Good.Config):  # type: ignore[misc,name-defined]
    model_config = ConfigDict(extra="allow")


class Untyped(Good.Config):  # type: ignore[misc,name-defined]
    layers: Any = 3


class WrongDefault(Good.Config):  # type: ignore[misc,name-defined]
    layers: int = "three"


def with_config(kind: type) -> type:
    return type("WithConfig", (Good,), {"Config": kind})


class NoRestore:
    Config, roles, default_buffer = Good.Config, ("actor",), Good.default_buffer
    make_buffer, policy, update, state = Good.make_buffer, Good.policy, Good.update, Good.state


class FailsToBuild(Good):  # type: ignore[misc]
    def __init__(self, setup: Any) -> None:
        raise RuntimeError("one action is missing")


class DictOfMetrics(Good):  # type: ignore[misc]
    def update(self, batch: Any, steps: int) -> Any:
        return dict(super().update(batch, steps).metrics)


class NanMetric(Good):  # type: ignore[misc]
    def update(self, batch: Any, steps: int) -> Update:
        return Update({**super().update(batch, steps).metrics, "loss/extra": float("nan")})


class TensorMetric(Good):  # type: ignore[misc]
    def update(self, batch: Any, steps: int) -> Update:
        super().update(batch, steps)
        return Update({"loss": torch.ones(())})  # type: ignore[dict-item]


class NeverDue(Good):  # type: ignore[misc]
    def make_buffer(self) -> Any:
        buffer = super().make_buffer()
        buffer.batches = lambda rng: iter(())
        return buffer


class GlobalNumbers(Good):  # type: ignore[misc]
    def update(self, batch: Any, steps: int) -> Update:
        noise = np.random.normal(size=batch["reward"].shape)  # noqa: NPY002
        return super().update({**batch, "reward": batch["reward"] + 1e-3 * noise}, steps)


class GlobalSeed(Good):  # type: ignore[misc]
    def __init__(self, setup: Any) -> None:
        torch.manual_seed(0)
        super().__init__(setup)


class EntropyOfTheMachine(Good):  # type: ignore[misc]
    def __init__(self, setup: Any) -> None:
        super().__init__(setup)
        self.rng = np.random.default_rng()

    def update(self, batch: Any, steps: int) -> Update:
        noise = self.rng.normal(size=batch["reward"].shape)
        return super().update({**batch, "reward": batch["reward"] + 1e-3 * noise}, steps)


class OptimizerForgotten(Good):  # type: ignore[misc]
    def state(self) -> Any:
        return parts_state(actor=self.actor)

    def restore(self, state: Any) -> None:
        restore_parts(state, actor=self.actor)


class CounterForgotten(Good):  # type: ignore[misc]
    updates = 0

    def update(self, batch: Any, steps: int) -> Update:
        self.updates += 1
        self.optimizer.param_groups[0]["lr"] = 1e-2 / self.updates
        return super().update(batch, steps)


class TensorInState(Good):  # type: ignore[misc]
    def state(self) -> Any:
        return {**super().state(), "average": torch.zeros(3)}


class NumbersAsKeys(Good):  # type: ignore[misc]
    def state(self) -> Any:
        return {**super().state(), "counts": {0: 1, 1: 2}}

    def restore(self, state: Any) -> None:
        super().restore(state)
        self.first = state["counts"][0]


class SharedArray(Good):  # type: ignore[misc]
    def __init__(self, setup: Any) -> None:
        super().__init__(setup)
        self.average = np.zeros(1, np.float32)

    def update(self, batch: Any, steps: int) -> Update:
        self.average += batch["reward"].mean()
        return super().update(batch, steps)

    def state(self) -> Any:
        return {**super().state(), "average": self.average}

    def restore(self, state: Any) -> None:
        super().restore(state)
        self.average = state["average"]


class StateOfTheClass(Good):  # type: ignore[misc]
    """Every second update uses a number of the update before, which may be that of another learner."""

    newest: ClassVar[dict[str, float]] = {}

    def update(self, batch: Any, steps: int) -> Update:
        if (steps // 256) % 2 == 1:
            self.newest["reward"] = 0.0
        self.optimizer.param_groups[0]["lr"] = 1e-2 * (1 + self.newest["reward"])
        self.newest["reward"] = float(batch["reward"].mean())
        return super().update(batch, steps)


class Unlearning(Good):  # type: ignore[misc]
    def update(self, batch: Any, steps: int) -> Update:
        return super().update({**batch, "reward": -batch["reward"]}, steps)


def with_policy(kind: type[TorchPolicy]) -> type:
    """Return the good algorithm with a policy of another class."""

    def policy(self: Any, steps: int) -> TorchPolicy:
        return kind(self.setup.spec, self.actor, Operation("categorical"))

    return type("WithPolicy", (Good,), {"policy": policy})


class ExportFails(TorchPolicy):
    def snapshot(self, version: int) -> Any:
        raise KeyError("weights")


class ExportsOtherWeights(TorchPolicy):
    def snapshot(self, version: int) -> Any:
        snapshot = super().snapshot(version)
        return dataclasses.replace(snapshot, weights={name: 2 * w for name, w in snapshot.weights.items()})


class NotExported(TorchPolicy):
    """Base class of policies without a snapshot, so that the learner acts with the class itself."""

    def snapshot(self, version: int) -> Any:
        raise ExportError("the network is in another program")


class WrongShape(NotExported):
    def act(self, *arguments: Any) -> Decision:
        action, log_prob, memory = super().act(*arguments)
        return Decision(action, log_prob[:, None], memory)


class CountsDecisions(NotExported):
    def act(self, observation: Any, memory: Any, draws: Any) -> Decision:
        action, log_prob, memory = super().act(observation, memory, draws)
        self.network.calls = getattr(self.network, "calls", 0) + len(action)  # type: ignore[assignment,operator]
        shift = np.float32(self.network.calls if len(action) > STEPS else 0)  # type: ignore[arg-type]
        return Decision(action, log_prob + np.float32(1e-3) * shift, memory)


class MixesRows(NotExported):
    def act(self, observation: Any, memory: Any, draws: Any) -> Decision:
        centered = observation["state"] - observation["state"].mean(axis=0)
        return super().act({**observation, "state": centered}, memory, draws)


class NeverGreedy(NotExported):
    def greedy(self) -> Any:
        return self


class IgnoresMask(NotExported):
    def act(self, observation: Any, memory: Any, draws: Any) -> Decision:
        return super().act({n: c if n != MASK else np.ones_like(c) for n, c in observation.items()}, memory, draws)


BROKEN: dict[str, tuple[Callable[[], Any], Rule[Any], str]] = {
    "function": (lambda: lambda setup: setup, class_has_all_parts, "is not a class"),
    "no restore": (lambda: NoRestore, class_has_all_parts, "has no restore"),
    "other config": (
        lambda: with_config(dict),
        config_class_is_frozen_and_typed,
        "expected a class derived from AlgorithmConfig",
    ),
    "config can change": (lambda: with_config(Unfrozen), config_class_is_frozen_and_typed, "can be changed"),
    "unknown settings": (lambda: with_config(Open), config_class_is_frozen_and_typed, "accepts unknown settings"),
    "field without type": (lambda: with_config(Untyped), config_class_is_frozen_and_typed, "no type: layers"),
    "wrong default": (lambda: with_config(WrongDefault), config_is_restored_from_its_settings, "layers"),
    "constructor": (lambda: FailsToBuild, learners.algorithm_can_be_built, "RuntimeError: one action is missing"),
    "dict of metrics": (lambda: DictOfMetrics, learners.update_returns_finite_metrics, "update returned dict"),
    "NaN metric": (lambda: NanMetric, learners.update_returns_finite_metrics, "'loss/extra' is nan"),
    "tensor metric": (
        lambda: TensorMetric,
        learners.update_returns_finite_metrics,
        "'loss' is of type Tensor; expected a number",
    ),
    "no update": (lambda: NeverDue, learners.update_returns_finite_metrics, "^0 updates"),
    "global numbers": (lambda: GlobalNumbers, learners.global_generators_are_left_alone, "generator of numpy"),
    "global seed": (lambda: GlobalSeed, learners.global_generators_are_left_alone, "generator of torch"),
    "entropy": (lambda: EntropyOfTheMachine, learners.seed_determines_the_learner, "differ in algorithm/actor/"),
    "optimizer": (
        lambda: OptimizerForgotten,
        learners.restored_learner_continues,
        "its checkpoint differs in",
    ),
    "counter": (lambda: CounterForgotten, learners.restored_learner_continues, "differs in algorithm/actor/"),
    "tensor in state": (lambda: TensorInState, learners.seed_determines_the_learner, "state at /algorithm/average has"),
    "numbers as keys": (lambda: NumbersAsKeys, learners.restored_learner_continues, "KeyError: 0"),
    "shared array": (lambda: SharedArray, learners.restored_learner_continues, "ValueError: output array is read-only"),
    "state of the class": (lambda: StateOfTheClass, learners.learners_are_independent, "trained in turns"),
    "export fails": (lambda: with_policy(ExportFails), learners.update_returns_finite_metrics, "KeyError: 'weights'"),
    "other weights": (
        lambda: with_policy(ExportsOtherWeights),
        learners.policy_is_exported_or_gives_the_reason,
        "the exported policy has a different (action|log-probability) in",
    ),
    "wrong shape": (lambda: with_policy(WrongShape), policies.decisions_fit_the_spec, r"\(50, 1\)"),
    "counts": (lambda: with_policy(CountsDecisions), policies.decisions_depend_on_the_draws_alone, "log-probability"),
    "mixes rows": (lambda: with_policy(MixesRows), policies.batched_decisions_equal_single_decisions, "single rows"),
    "never greedy": (lambda: with_policy(NeverGreedy), policies.greedy_policy_ignores_the_draws, "uses draws"),
    "ignores mask": (lambda: with_policy(IgnoresMask), policies.illegal_actions_are_never_taken, "its mask forbids"),
    "wrong sign": (
        lambda: Unlearning,
        learners.rewarded_action_is_learned,
        r"after 3000 episodes .* more than 0\.\d+ ",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_algorithm_is_caught_by_its_rule(case: str) -> None:
    make, rule, observed = BROKEN[case]
    with pytest.raises(ContractError) as caught:
        check_algorithm(make())
    broken, _, rest = str(caught.value).partition("\n  observed: ")
    assert f"breaks a rule: {rule.statement}" in broken
    found, _, remedy = rest.partition("\n  remedy: ")
    assert re.search(observed, found), found
    assert remedy


def test_every_rule_catches_a_broken_algorithm() -> None:
    assert {rule.statement for _, rule, _ in BROKEN.values()} == {rule.statement for rule in PORTABLE_RULES}


class Drifts(BaseAlgorithm):
    """Easy algorithm with an attribute that it does not save."""

    default_buffer: ClassVar[dict[str, Any]] = {"type": "trajectory", "size": 64}

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.epsilon = 1.0
        self.networks["policy"] = torch.nn.Linear(4, 2)

    def act(self, observation: Any, deterministic: bool = False) -> Any:
        return int(self.networks["policy"](torch.as_tensor(observation)).argmax())

    def update(self, batch: Any) -> dict[str, float]:
        self.epsilon *= 0.9
        with torch.no_grad():
            self.networks["policy"].weight.mul_(self.epsilon)  # type: ignore[operator,union-attr]
        return {"epsilon": self.epsilon}


def test_attribute_that_an_easy_algorithm_does_not_save_is_caught() -> None:
    with pytest.raises(ContractError, match="restored from its checkpoint differs in algorithm/checkpoint/networks/"):
        check_algorithm(Drifts)


def test_missing_setting_of_an_easy_algorithm_is_reported_with_its_name() -> None:
    with pytest.raises(ContractError, match=r"algorithm\.lr is missing; algorithm 'MyAlgorithm' needs it"):
        check_algorithm(Easy)


def test_invalid_setting_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.lrr is not a setting; did you mean lr"):
        check_algorithm(Good, {"lrr": 1e-2})


def test_algorithm_without_online_learning_skips_the_learning_rule() -> None:
    report = check_algorithm(Unlearning, learns=False)
    assert learners.rewarded_action_is_learned.statement not in report.rules
    assert any("learns=False" in remark for remark in report.remarks)


def test_spec_selects_observations_and_actions() -> None:
    spec = Spec({"pixels": Box((3, 2), "uint8"), "speed": Box((1,), low=(-1.0,), high=(1.0,))}, Discrete(3))
    report = check_algorithm(
        Good, {"lr": 2e-2}, buffer={"size": 128}, network={"actor": {"hidden_dims": []}}, spec=spec
    )
    assert learners.rewarded_action_is_learned.statement in report.rules
    assert policies.illegal_actions_are_never_taken.statement not in report.rules


def test_algorithm_without_actions_is_checked_with_discrete_actions_only() -> None:
    report = check_algorithm(type("AnyAction", (Good,), {"actions": ()}), learns=False)
    assert any("discrete actions only" in remark for remark in report.remarks)


def test_seed_that_has_no_effect_is_a_remark() -> None:
    def init(self: Any, setup: Any) -> None:
        Good.__init__(self, setup)
        self.actor = build_network(setup.network("actor"), Blueprint(setup.spec, 4), seed=0)
        self.optimizer = make_adam(self.actor, 1e-2)

    report = check_algorithm(type("FixedSeed", (Good,), {"__init__": init}), learns=False)
    assert any("the same with every seed" in remark for remark in report.remarks)


def test_contract_error_is_an_assertion_error_and_an_error_of_rl4sys() -> None:
    with pytest.raises(AssertionError) as caught:
        check_algorithm(DictOfMetrics)
    assert isinstance(caught.value, RL4SysError)
    assert str(caught.value).startswith("DictOfMetrics (with actions Discrete(4)) breaks a rule: ")


def test_normalization_is_restored_too() -> None:
    with ALGORITHMS.under_a_name(Good) as name:
        options: AlgorithmConfig = Good.Config(name=name)
        config = LearnerConfig(algorithm=options, networks=parse_networks({}, name), buffer=parse_buffer({}, name))
        case = LearnerCase(Spec({"state": Box((4,))}, Discrete(2)), config, episodes=300)
        learners.restored_learner_continues(case, normalize=True)
