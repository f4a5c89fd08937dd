"""Loading of trained policies from files, checkpoints and runs. Policy files need neither torch nor Gymnasium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl4sys.api.policy import Policy
from rl4sys.errors import ConfigError
from rl4sys.policy.snapshot_policy import load_policy as load_snapshot


def load_policy(source: Any, *, checkpoint: str | int | None = None, seed: int | None = None) -> Policy:
    """Load a policy from a file, a checkpoint directory or a run. ``seed`` seeds the sampling of actions.

    >>> import rl4sys
    >>> run = rl4sys.train("ppo_cartpole", total_timesteps=512, progress=False)
    >>> file = run.policy().save("cartpole.safetensors")
    >>> rl4sys.load_policy(file)
    Policy(observations state (4,); actions Discrete(2), version 2)
    """
    if not isinstance(source, str | Path):
        # `RunHandle` is detected by its method `policy`, because importing the class would import torch.
        if not callable(getattr(source, "policy", None)):
            raise ConfigError(
                f"cannot load a policy from {source!r:.80}; expected a policy file, a checkpoint directory or a run"
            )
        loaded: Policy = source.policy(checkpoint, seed=seed)
        return loaded
    if not Path(source).is_file():
        return _policy_of_run(str(source), checkpoint, seed)
    if checkpoint is not None:
        raise ConfigError(
            f"checkpoint is {checkpoint!r}, but {source} is a policy file; remove checkpoint, which is only for runs"
        )
    return Policy(load_snapshot(source), seed=seed)


def _policy_of_run(source: str, checkpoint: str | int | None, seed: int | None) -> Policy:
    """Load the policy of a run or a checkpoint directory. Imports torch."""
    from rl4sys.api.run import load_policy_of

    return load_policy_of(source, checkpoint, seed)
