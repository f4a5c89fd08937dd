"""Export and description of a trained policy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

import rl4sys
from rl4sys.errors import ConfigError, ExportError, RunError

from ..policy.test_golden import GOLDEN

ROWS = np.random.default_rng(1).standard_normal((20, 8)).astype(np.float32)


@pytest.fixture
def policy() -> rl4sys.Policy:
    return rl4sys.load_policy(GOLDEN / "squashed_gaussian.safetensors", seed=1)


def greedy(policy: rl4sys.Policy) -> np.ndarray:
    return policy.act({"grid": ROWS[:, :2].reshape(-1, 2, 1), "state": ROWS[:, 2:]}, deterministic=True)


def test_exported_safetensors_file_equals_saved_file(policy: rl4sys.Policy, tmp_path: Path) -> None:
    exported = policy.export(tmp_path / "new" / "policy.safetensors")
    assert exported.read_bytes() == policy.save(tmp_path / "saved.safetensors").read_bytes()


def test_onnx_model_and_policy_return_equal_actions(policy: rl4sys.Policy, tmp_path: Path) -> None:
    session = onnxruntime.InferenceSession(policy.export(tmp_path / "policy.onnx"), providers=["CPUExecutionProvider"])
    (action,) = session.run(["action"], {"observation": ROWS})
    np.testing.assert_allclose(action, greedy(policy), rtol=0, atol=1e-5)
    assert action.std() > 0.1


def test_pt2_model_and_policy_return_equal_actions(policy: rl4sys.Policy, tmp_path: Path) -> None:
    module = torch.export.load(str(policy.export(str(tmp_path / "policy.pt2")))).module()
    with torch.no_grad():
        action = module(torch.from_numpy(ROWS))["action"].numpy()
    np.testing.assert_allclose(action, greedy(policy), rtol=0, atol=1e-5)


def test_policy_with_noise_is_exported_only_as_deterministic_policy(tmp_path: Path) -> None:
    noisy = rl4sys.load_policy(GOLDEN / "noise.safetensors")
    with pytest.raises(ExportError, match=r"noise \(operation 1\).*deterministic=True"):
        noisy.export(tmp_path / "policy.onnx")
    assert not (tmp_path / "policy.onnx").exists()
    assert noisy.export(tmp_path / "policy.onnx", deterministic=True).stat().st_size > 500
    plain = rl4sys.load_policy(noisy.export(tmp_path / "policy.safetensors", deterministic=True))
    assert np.array_equal(greedy(plain), greedy(noisy))
    assert plain.snapshot.program == noisy.snapshot.program.greedy()


def test_unknown_suffix_is_rejected(policy: rl4sys.Policy, tmp_path: Path) -> None:
    for name in ("policy.pth", "policy"):
        with pytest.raises(ConfigError, match=r"is not a format; expected \.safetensors, \.onnx, \.pt2"):
            policy.export(tmp_path / name)


def test_file_that_cannot_be_written_is_reported(policy: rl4sys.Policy, tmp_path: Path) -> None:
    (tmp_path / "policy.onnx").mkdir()
    with pytest.raises(RunError, match=r"cannot write the policy to .*policy\.onnx: Is a directory"):
        policy.export(tmp_path / "policy.onnx")


def test_description_has_version_and_operations(policy: rl4sys.Policy) -> None:
    text = policy.describe()
    assert f"version       {policy.version}\n" in text
    assert "squashed_gaussian" in text.splitlines()[-1]
    assert repr(text) == str(text)


def test_description_and_onnx_export_do_not_import_torch(tmp_path: Path) -> None:
    code = f"""
import rl4sys, sys
policy = rl4sys.load_policy({str(GOLDEN / "squash.safetensors")!r})
policy.describe(), policy.export({str(tmp_path / "policy.onnx")!r})
print(*sys.modules)
"""
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "onnx" in loaded
    assert not {"torch", "gymnasium"} & set(loaded)
