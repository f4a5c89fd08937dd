"""Fixture that runs a test with the numpy and the native form of a policy program."""

from __future__ import annotations

from typing import TypeAlias

import pytest

from rl4sys.policy.native_program import NATIVE, NativeProgram
from rl4sys.policy.numpy_program import NumpyProgram

Form: TypeAlias = type[NumpyProgram] | type[NativeProgram]


@pytest.fixture(params=[NumpyProgram, NativeProgram], ids=["numpy", "native"])
def form(request: pytest.FixtureRequest) -> Form:
    if request.param is NativeProgram and not NATIVE:
        pytest.skip("the native core is not installed, or RL4SYS_NUMPY=1")
    chosen: Form = request.param
    return chosen
