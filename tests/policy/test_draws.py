"""Random draws of policies: the stream of uniform numbers."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl4sys.errors import SpecError
from rl4sys.policy.draws import NATIVE, Draws, PythonDraws

WORDS = st.integers(0, 2**64 - 1)


@pytest.fixture(params=[PythonDraws, Draws], ids=["python", "chosen"])
def kind(request: pytest.FixtureRequest) -> type[PythonDraws]:
    chosen: type[PythonDraws] = request.param
    return chosen


def test_draws_match_published_splitmix64(kind: type[PythonDraws]) -> None:
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert kind(1234567).uniforms(5).tolist() == [(word >> 11) * 2.0**-53 for word in published]


@pytest.mark.skipif(not NATIVE, reason="the native core is not installed, or RL4SYS_NUMPY=1")
@given(key=WORDS, counter=WORDS, count=st.integers(0, 20))
def test_native_and_python_draws_are_equal(key: int, counter: int, count: int) -> None:
    native, python = Draws(key, counter), PythonDraws(key, counter)
    assert Draws is not PythonDraws
    assert native.uniforms(count).tolist() == python.uniforms(count).tolist()
    assert native.state() == python.state() == {"key": key, "counter": (counter + count) % 2**64}


def test_draws_do_not_depend_on_chunk_sizes(kind: type[PythonDraws]) -> None:
    whole, cut = kind(7), kind(7)
    parts = [cut.uniforms(count) for count in (3, 0, 1, 6)]
    assert np.concatenate(parts).tolist() == whole.uniforms(10).tolist()
    assert (cut.key, cut.counter) == (7, 10)


def test_restored_stream_continues_with_the_same_draws(kind: type[PythonDraws]) -> None:
    draws, other = kind(3, 5), kind(0)
    other.restore(draws.state())
    assert other.uniforms(4).tolist() == draws.uniforms(4).tolist()


def test_copies_and_pickles_are_independent_streams(kind: type[PythonDraws]) -> None:
    draws = kind(2**64 - 1, 9)
    copies = [copy.deepcopy(draws), pickle.loads(pickle.dumps(draws))]
    expected = draws.uniforms(3).tolist()
    assert [c.uniforms(3).tolist() for c in copies] == [expected, expected]


def test_neighboring_keys_give_uncorrelated_draws(kind: type[PythonDraws]) -> None:
    table = np.stack([kind(key).uniforms(2000) for key in range(20)])
    assert 0.0 <= table.min() < 0.001
    assert 0.999 < table.max() < 1.0
    assert abs(table.mean() - 0.5) < 0.01
    assert np.abs(np.corrcoef(table) - np.eye(20)).max() < 0.1


@pytest.mark.parametrize(("key", "counter", "name"), [(-1, 0, "key"), (2**64, 0, "key"), (0, -1, "counter")])
def test_key_or_counter_beyond_64_bits_is_rejected(kind: type[PythonDraws], key: int, counter: int, name: str) -> None:
    with pytest.raises(SpecError, match=rf"the {name} of draws must be in 0\.\.2\*\*64-1, got"):
        kind(key, counter)


def test_negative_number_of_draws_is_rejected(kind: type[PythonDraws]) -> None:
    with pytest.raises(SpecError, match="the count of draws must be at least 0, got -1"):
        kind(0).uniforms(-1)
