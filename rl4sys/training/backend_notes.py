"""Notes at the start of a run: the backend that computes the networks of the user in training and for actions."""

from __future__ import annotations

from rl4sys.learner.learner import Learner
from rl4sys.networks.native import ACTIVATIONS
from rl4sys.policy.draws import NATIVE


def backend_notes(learner: Learner, export_error: str) -> list[str]:
    """Return the notes for a learner; none if RL4Sys contains all its networks and the policy can be exported.

    ``export_error`` is the result of `Learner.export_error`.
    """
    own = learner.own_networks()
    is_native = bool(own) and all(placed.is_native for placed in own)
    training = f"training uses {'the native core' if is_native else 'torch'}"
    if export_error:
        return [
            f"actions are computed by torch, not by the native core: {export_error}",
            f"{training}; a policy in the native core decides several times faster. No policy.safetensors is written, "
            "so clients, load_policy and ONNX export are not available",
        ]
    if not own:
        return []
    acting = f"actions use {'the native core' if NATIVE else 'numpy'}"
    return [f"own networks: {training}, {acting}{_advice(is_native=is_native)}"]


def _advice(*, is_native: bool) -> str:
    if is_native or not NATIVE:
        return ""
    return (
        ". The core trains an nn.Sequential of Linear layers, each followed by an optional LayerNorm and the same "
        f"activation ({', '.join(ACTIVATIONS)}), on the CPU, if the algorithm and experiment.backend allow this"
    )
