"""Client of a training server, configured by arguments instead of a file. Does not import torch or Gymnasium."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl4sys.client.agent import RL4SysAgent
from rl4sys.client.fallback import FallbackFunction


class Agent(RL4SysAgent):
    """Client of a training server: `RL4SysAgent` without a config file.

    >>> import rl4sys
    >>> with rl4sys.serve(port=0) as server:
    ...     with rl4sys.Agent(server.address, observation=8, action=4, algorithm={"name": "dqn"}) as agent:
    ...         trajectory, action = agent.request_for_action(None, [0.0] * 8)
    >>> action.version
    0

    ``observation`` is the length of a vector, a mapping of names to shapes or a Gymnasium space. ``action`` is the
    number of discrete actions, a mapping as in a client config or a Gymnasium space. Other keyword arguments are
    settings of the client config, by name or dotted name.
    """

    def __init__(
        self,
        address: str = "localhost:50051",
        *,
        observation: Any = None,
        action: Any = None,
        algorithm: str | Mapping[str, Any] = "ppo",
        fallback: FallbackFunction | None = None,
        **settings: Any,
    ) -> None:
        name = {"name": algorithm} if isinstance(algorithm, str) else dict(algorithm)
        content: dict[str, Any] = {"client_id": "agent", "algorithm": name}
        spaces: dict[str, Any] = {}
        for key, space in (("observation", observation), ("action", action)):
            is_object = hasattr(space, "sample") or hasattr(space, "to_json")
            (spaces if is_object else content)[f"{key}_space" if is_object else key] = space
        super().__init__(
            {key: value for key, value in content.items() if value is not None},
            server_address=address,
            settings=settings,
            fallback=fallback,
            **spaces,
        )
