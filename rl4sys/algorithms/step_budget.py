"""Budget of actor and critic gradient steps in one update; the networks may take different numbers of steps."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Trained(IntEnum):
    """Networks that a gradient step trains. The native core uses the same enum values."""

    BOTH = 0
    ACTOR = 1
    CRITIC = 2


@dataclass
class StepBudget:
    """Number of gradient steps left in an update. Actor and critic are trained jointly while both have steps left."""

    actor: int
    critic: int

    @property
    def trained(self) -> Trained:
        """Networks that the next gradient step trains."""
        if self.actor and self.critic:
            return Trained.BOTH
        return Trained.ACTOR if self.actor else Trained.CRITIC

    @property
    def consecutive(self) -> int:
        """Number of upcoming steps in a row that train the same networks; 0 if no steps are left."""
        return min(self.actor, self.critic) or max(self.actor, self.critic)

    def take(self, steps: int = 1) -> None:
        """Subtract ``steps`` from the networks in `trained`; ``steps`` must be at most `consecutive`."""
        trained = self.trained
        if trained is not Trained.CRITIC:
            self.actor -= steps
        if trained is not Trained.ACTOR:
            self.critic -= steps

    def stop_actor(self) -> None:
        """Set the actor's remaining steps to 0; the critic continues only if it has more steps left than the actor."""
        self.critic = self.critic if self.critic > self.actor else 0
        self.actor = 0
