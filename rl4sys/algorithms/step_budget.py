"""Gradient steps of actor and critic within one update, where their numbers may differ."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Trained(IntEnum):
    """Networks that a gradient step changes; numbered as in the core."""

    BOTH = 0
    ACTOR = 1
    CRITIC = 2


@dataclass
class StepBudget:
    """Gradient steps left in an update. Actor and critic step jointly while both have steps left."""

    actor: int
    critic: int

    @property
    def trained(self) -> Trained:
        """Networks that the next step changes."""
        if self.actor and self.critic:
            return Trained.BOTH
        return Trained.ACTOR if self.actor else Trained.CRITIC

    @property
    def consecutive(self) -> int:
        """Steps until other networks are trained; 0 if no steps are left."""
        return min(self.actor, self.critic) or max(self.actor, self.critic)

    def take(self, steps: int = 1) -> None:
        """Subtract steps of the networks in `trained`; at most `consecutive`."""
        trained = self.trained
        if trained is not Trained.CRITIC:
            self.actor -= steps
        if trained is not Trained.ACTOR:
            self.critic -= steps

    def stop_actor(self) -> None:
        """End the steps of the actor and the joint ones; a critic with more steps continues alone."""
        self.critic = self.critic if self.critic > self.actor else 0
        self.actor = 0
