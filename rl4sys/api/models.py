"""Algorithm classes with the interface of Stable-Baselines3: ``rl4sys.PPO("MlpPolicy", env).learn(10_000)``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

from rl4sys.api.execution import ROOT
from rl4sys.api.loading import load_policy
from rl4sys.api.policy import Policy
from rl4sys.api.run import RunHandle
from rl4sys.api.runs import load_run
from rl4sys.api.sb3_settings import translate
from rl4sys.api.train import train
from rl4sys.environments.evaluation import Evaluation
from rl4sys.environments.provided import is_recorded
from rl4sys.errors import ConfigError

_POLICIES = ("MlpPolicy", "CnnPolicy", "MultiInputPolicy")
_OFFLINE = ("bc", "iql")
"""Names of the algorithms that learn from a dataset instead of an environment."""


class Model:
    """Algorithm with an environment and settings; `learn` trains it. Base class of `rl4sys.PPO` and the others.

    Keyword arguments are settings of the algorithm, such as ``lr``. The argument names of Stable-Baselines3, such as
    ``learning_rate``, are also accepted. Dotted names change other settings: ``**{"network.all.hidden_dims": [32]}``.

    >>> import rl4sys
    >>> model = rl4sys.PPO("MlpPolicy", "CartPole-v1", n_steps=256, seed=1).learn(512, progress_bar=False)
    >>> model.run.steps
    512
    """

    algorithm: ClassVar[str]

    def __init__(self, policy: Any = None, env: Any = None, **settings: Any) -> None:
        if env is None and not (isinstance(policy, str) and policy in _POLICIES):
            policy, env = None, policy
        if policy is not None and policy not in _POLICIES:
            raise ConfigError(
                f"policy is {policy!r:.80}; expected one of {', '.join(_POLICIES)}, or only an environment, "
                f'such as {type(self).__name__}("CartPole-v1")'
            )
        if env is None:
            raise ConfigError(
                f'{type(self).__name__} needs an environment, such as {type(self).__name__}("CartPole-v1")'
            )
        if self.algorithm in _OFFLINE and "dataset" not in settings:
            raise ConfigError(
                f"{type(self).__name__} learns from recorded experience; give it as dataset=, such as "
                f'{type(self).__name__}(env, dataset={{"type": "minari", "path": "D4RL/door/human-v2"}})'
            )
        self._environment = env
        self._settings = translate(self.algorithm, settings)
        self._run: RunHandle | None = None
        self._loaded: Policy | None = None

    @classmethod
    def load(cls, source: str | Path) -> Self:
        """Load a model from a run, to continue learning, or from a policy file, to act only."""
        model = cls.__new__(cls)
        model._environment, model._settings, model._run, model._loaded = None, {}, None, None
        if Path(source).is_file():
            model._loaded = load_policy(source)
        else:
            model._run = load_run(source)
        return model

    @property
    def run(self) -> RunHandle:
        """Run that `learn` created. Raises `ConfigError` before the first call of `learn`."""
        if self._run is None:
            raise ConfigError(f"this {type(self).__name__} model has no run yet; call learn() first")
        return self._run

    @property
    def policy(self) -> Policy:
        """Policy of the newest checkpoint of the run, or of the policy file that `load` has read."""
        if self._loaded is None:
            self._loaded = self.run.policy()
        return self._loaded

    def learn(
        self,
        total_timesteps: int,
        callback: Any = (),
        *,
        progress_bar: bool = True,
        reset_num_timesteps: bool = False,
        root: str | Path = ROOT,
    ) -> Self:
        """Train for ``total_timesteps`` more steps and return the model; ``reset_num_timesteps`` starts a new run."""
        callbacks = () if callback is None else callback
        if self._run is not None and not reset_num_timesteps:
            length, provided = self._run.steps + total_timesteps, None
            if not is_recorded(self._run.config.environment):
                provided = self._environment
            self._run.resume(length, environment=provided, callbacks=callbacks, progress=progress_bar)
        elif self._environment is None:
            raise ConfigError("this model was loaded from a policy file and cannot learn; load its run directory")
        else:
            self._run = train(
                algorithm=self.algorithm,
                environment=self._environment,
                total_timesteps=total_timesteps,
                root=root,
                callbacks=callbacks,
                progress=progress_bar,
                **self._settings,
            )
        self._loaded = None
        return self

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, Any]:
        """Return ``(action, state)`` for one observation or a batch."""
        return self.policy.predict(observation, state, episode_start, deterministic)

    def evaluate(self, episodes: int = 10, *, deterministic: bool = True) -> Evaluation:
        """Play whole episodes in the environment and return their returns and lengths."""
        return self.run.evaluate(episodes, deterministic=deterministic)

    def save(self, path: str | Path) -> Path:
        """Write the policy to a ``.safetensors`` file. Learning continues from the run, not from this file."""
        target = Path(path)
        return self.policy.save(target if target.suffix else target.with_suffix(".safetensors"))

    def __repr__(self) -> str:
        state = "not trained" if self._run is None else repr(self._run)
        return f"{type(self).__name__}({state})"


class A2C(Model):
    """Advantage actor-critic; see `Model`.

    >>> import rl4sys
    >>> rl4sys.A2C("CartPole-v1", n_steps=8)
    A2C(not trained)
    """

    algorithm = "a2c"


class BC(Model):
    """Behavior cloning from a dataset; see `Model`.

    >>> import rl4sys
    >>> rl4sys.BC("Pendulum-v1", dataset={"type": "journal", "path": "live/pendulum"})
    BC(not trained)
    """

    algorithm = "bc"


class C51(Model):
    """Categorical DQN; see `Model`.

    >>> import rl4sys
    >>> rl4sys.C51("CartPole-v1", gamma=0.98)
    C51(not trained)
    """

    algorithm = "c51"


class DDPG(Model):
    """Deep deterministic policy gradient; see `Model`.

    >>> import rl4sys
    >>> rl4sys.DDPG("Pendulum-v1", buffer_size=100_000)
    DDPG(not trained)
    """

    algorithm = "ddpg"


class DQN(Model):
    """Deep Q-learning; see `Model`.

    >>> import rl4sys
    >>> rl4sys.DQN("CartPole-v1", exploration_fraction=0.2)
    DQN(not trained)
    """

    algorithm = "dqn"


class IQL(Model):
    """Implicit Q-learning from a dataset; see `Model`.

    >>> import rl4sys
    >>> rl4sys.IQL("Pendulum-v1", dataset={"type": "journal", "path": "live/pendulum"})
    IQL(not trained)
    """

    algorithm = "iql"


class PPO(Model):
    """Proximal policy optimization; see `Model`.

    >>> import rl4sys
    >>> rl4sys.PPO("CartPole-v1", n_steps=256)
    PPO(not trained)
    """

    algorithm = "ppo"


class QRDQN(Model):
    """Quantile regression DQN; see `Model`.

    >>> import rl4sys
    >>> rl4sys.QRDQN("CartPole-v1")
    QRDQN(not trained)
    """

    algorithm = "qr_dqn"


class Rainbow(Model):
    """Rainbow DQN; see `Model`.

    >>> import rl4sys
    >>> rl4sys.Rainbow("CartPole-v1")
    Rainbow(not trained)
    """

    algorithm = "rainbow"


class Reinforce(Model):
    """REINFORCE; see `Model`.

    >>> import rl4sys
    >>> rl4sys.Reinforce("CartPole-v1")
    Reinforce(not trained)
    """

    algorithm = "reinforce"


class RPO(Model):
    """PPO with uniform noise added to the action mean; see `Model`.

    >>> import rl4sys
    >>> rl4sys.RPO("Pendulum-v1", n_steps=1024)
    RPO(not trained)
    """

    algorithm = "rpo"


class SAC(Model):
    """Soft actor-critic; see `Model`.

    >>> import rl4sys
    >>> rl4sys.SAC("Pendulum-v1", learning_rate=1e-3)
    SAC(not trained)
    """

    algorithm = "sac"


class SQL(Model):
    """Soft Q-learning; see `Model`.

    >>> import rl4sys
    >>> rl4sys.SQL("Pendulum-v1")
    SQL(not trained)
    """

    algorithm = "sql"


class TD3(Model):
    """Twin delayed DDPG; see `Model`.

    >>> import rl4sys
    >>> rl4sys.TD3("Pendulum-v1", batch_size=128)
    TD3(not trained)
    """

    algorithm = "td3"


class TRPO(Model):
    """Trust region policy optimization; see `Model`.

    >>> import rl4sys
    >>> rl4sys.TRPO("CartPole-v1")
    TRPO(not trained)
    """

    algorithm = "trpo"
