"""Datasets in .npz, CSV and Parquet files: contents, columns, episodes and errors."""

from __future__ import annotations

import csv
import pickle
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from rl4sys.config import parse
from rl4sys.dataset import Dataset, DatasetConfig, load_dataset
from rl4sys.errors import ConfigError, MissingExtraError
from rl4sys.spec import Array, Box, Discrete, MultiDiscrete, Spec, mask_box

VECTOR = Spec({"state": Box((2,))}, Discrete(3))
TORQUE = Spec({"state": Box((2,))}, Box((1,), low=(-2.0,), high=(2.0,)))

Write = Callable[[Path, Mapping[str, Array]], Path]


def steps(**changes: Any) -> dict[str, Array]:
    """Return seven steps of two episodes: three that terminate, and four that are truncated."""
    columns = {
        "observations": np.arange(14, dtype=np.float32).reshape(7, 2) / 8,
        "actions": np.array([0, 1, 2, 0, 1, 2, 0]),
        "rewards": np.arange(7, dtype=np.float64) / 4,
        "terminals": np.array([0, 0, 1, 0, 0, 0, 0], bool),
        "timeouts": np.array([0, 0, 0, 0, 0, 0, 1], bool),
    }
    return {name: value for name, value in (columns | changes).items() if value is not None}


def write_npz(folder: Path, columns: Mapping[str, Array]) -> Path:
    np.savez(folder / "steps.npz", **columns)
    return folder / "steps.npz"


def write_csv(folder: Path, columns: Mapping[str, Array]) -> Path:
    flat: dict[str, Any] = {}
    for name, column in columns.items():
        flat |= {name: column} if column.ndim == 1 else {f"{name}_{i}": column[:, i] for i in range(column.shape[1])}
    with (folder / "steps.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(flat)
        writer.writerows(zip(*(column.tolist() for column in flat.values()), strict=True))
    return folder / "steps.csv"


def write_parquet(folder: Path, columns: Mapping[str, Array]) -> Path:
    parquet.write_table(pa.table({name: column.tolist() for name, column in columns.items()}), folder / "steps.parquet")
    return folder / "steps.parquet"


def write_folder(folder: Path, columns: Mapping[str, Array]) -> Path:
    """Write two files in the layout of Hugging Face datasets. The second begins in the middle of an episode."""
    (folder / "hub/data").mkdir(parents=True)
    (folder / "hub/README.md").write_text("# Steps")
    for number, rows in enumerate((slice(0, 5), slice(5, None))):
        path = write_parquet(folder, {name: column[rows] for name, column in columns.items()})
        path.rename(folder / f"hub/data/train-{number:05d}-of-00002.parquet")
    parquet.write_table(pa.table({"other": [1]}), folder / "hub/data/test-00000-of-00001.parquet")
    return folder / "hub"


FORMATS = pytest.mark.parametrize("write", [write_npz, write_csv, write_parquet, write_folder])


def read(path: Path, spec: Spec | None = VECTOR, **settings: Any) -> Dataset:
    return load_dataset(parse(DatasetConfig, {"type": "file", "path": str(path), **settings}, "dataset"), spec)


def columns_of(dataset: Dataset, name: str) -> list[Any]:
    return [trajectory.columns[name].tolist() for trajectory in dataset.trajectories]


@FORMATS
def test_every_format_contains_the_recorded_steps(tmp_path: Path, write: Write) -> None:
    recorded = steps()
    dataset = read(write(tmp_path, recorded))
    assert dataset.spec == VECTOR
    first, second = dataset.trajectories
    assert (first.terminated, first.truncated, second.terminated, second.truncated) == (True, False, False, True)
    assert first.episode != second.episode
    np.testing.assert_array_equal(first.columns["obs.state"][:3], recorded["observations"][:3])
    # The last row of the truncated episode only provides its final observation.
    np.testing.assert_array_equal(second.columns["obs.state"], recorded["observations"][3:])
    assert columns_of(dataset, "action") == [[0, 1, 2], [0, 1, 2]]
    assert columns_of(dataset, "reward") == [[0.0, 0.25, 0.5], [0.75, 1.0, 1.25]]
    assert first.columns["obs.state"].dtype == first.columns["reward"].dtype == np.float32
    assert first.columns["action"].dtype == np.int64


@FORMATS
def test_observations_after_steps_complete_truncated_episodes(tmp_path: Path, write: Write) -> None:
    recorded = steps()
    following = recorded["observations"] + 0.25
    dataset = read(write(tmp_path, recorded | {"next_observations": following}))
    assert columns_of(dataset, "action") == [[0, 1, 2], [0, 1, 2, 0]]
    assert dataset.trajectories[1].columns["obs.state"][-1].tolist() == following[6].tolist()


def test_missing_steps_start_a_new_trajectory(tmp_path: Path) -> None:
    recorded = steps()
    recorded["next_observations"] = recorded["observations"] + 0.25
    order = [4, 0, 1, 6]
    dataset = read(write_npz(tmp_path, {name: column[order] for name, column in recorded.items()}))
    assert columns_of(dataset, "action") == [[1], [0, 1], [0]]
    assert [t.ended for t in dataset.trajectories] == [False, False, True]


def test_columns_can_be_renamed_and_combined(tmp_path: Path) -> None:
    text = "ep,x,v,push,r,done,limit\nb,1,2,0,0.5,False,False\nb,3,4,2,1,True,False\na,5,6,1,0,false,false\n"
    (tmp_path / "log.csv").write_text(text + "\na,7,8,1,0,true,true\n")
    columns = {
        "observation": ["v", "x"],
        "action": "push",
        "reward": "r",
        "terminated": "done",
        "truncated": "limit",
        "episode": "ep",
    }
    dataset = read(tmp_path / "log.csv", columns=columns)
    assert columns_of(dataset, "obs.state") == [[[2, 1], [4, 3], [4, 3]], [[6, 5], [8, 7]]]
    assert columns_of(dataset, "action") == [[0, 2], [1]]
    assert [(t.terminated, t.truncated) for t in dataset.trajectories] == [(True, False), (False, True)]


def test_prefix_selects_columns_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    recorded = {f"s{i}": np.full(2, i) for i in (10, 2, 1)} | {"actions": np.zeros(2), "terminals": np.ones(2)}
    spec = Spec({"state": Box((3,))}, Discrete(1))
    dataset = read(write_npz(tmp_path, recorded), spec, columns={"observation": "s*", "reward": 0})
    assert dataset.trajectories[0].columns["obs.state"][0].tolist() == [1, 2, 10]
    assert columns_of(dataset, "reward") == [[0.0], [0.0]]


def test_episode_numbers_divide_rows_without_flags(tmp_path: Path) -> None:
    recorded = steps(terminals=None, timeouts=None, episode_index=np.array([4, 4, 4, 9, 9, 9, 2]))
    dataset = read(write_npz(tmp_path, recorded), columns={"terminated": False})
    assert columns_of(dataset, "action") == [[0, 1], [0, 1]]
    assert [t.truncated for t in dataset.trajectories] == [True, True]


NAMED = Spec({"camera": Box((2, 2), "uint8"), "speed": Box((1,)), "mask": mask_box(Discrete(2))}, Discrete(2))


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (("obs.camera", "obs.speed", "action_mask"), None),
        (("a.camera", "a.speed", "masks"), {"observation": "a.*"}),
        (("image", "v", "allowed"), {"observation": {"camera": "image", "speed": "v", "mask": "allowed"}}),
    ],
)
def test_named_observations_and_masks_are_read(tmp_path: Path, names: tuple[str, ...], columns: Any) -> None:
    camera = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    mask = np.array([[1, 0], [1, 1], [0, 1]])
    parts = dict(zip(names, (camera, np.array([1.0, 2.0, 3.0]), mask), strict=True))
    recorded = steps(observations=None, actions=np.array([0, 0, 1]))
    path = write_parquet(tmp_path, parts | {name: column[:3] for name, column in recorded.items()})
    (trajectory,) = read(path, NAMED, columns=columns).trajectories
    np.testing.assert_array_equal(trajectory.columns["obs.camera"][:3], camera)
    assert trajectory.columns["obs.camera"].dtype == np.uint8
    assert trajectory.columns["obs.speed"].tolist() == [[1.0], [2.0], [3.0], [3.0]]
    assert trajectory.columns["obs.mask"][:3].tolist() == mask.astype(bool).tolist()


def test_spaces_follow_from_the_file_and_the_action_setting_without_an_environment(tmp_path: Path) -> None:
    path = write_npz(tmp_path, steps())
    assert read(path, None, action=5).spec == Spec({"state": Box((2,))}, Discrete(5))
    two = write_npz(tmp_path, steps(actions=np.array([[0, 1]] * 7)))
    assert read(two, None, action=[2, 3]).spec.action == MultiDiscrete((2, 3))
    with pytest.raises(ConfigError, match=r"dataset\.action is missing; .*such as action: 4"):
        read(path, None)
    with pytest.raises(ConfigError, match=r"dataset\.action is 'four'; .*the number of discrete actions"):
        read(path, None, action="four")


def changed(name: str, row: int, value: Any) -> dict[str, Array]:
    columns = {key: column.astype(np.float64) for key, column in steps().items()}
    columns[name][row] = value
    return columns


@pytest.mark.parametrize(
    ("recorded", "message"),
    [
        (changed("rewards", 5, np.nan), "'rewards' is nan; expected finite numbers"),
        (changed("observations", 5, np.inf), r"'observations\S*' is .*inf.*; expected finite numbers"),
        (changed("actions", 5, 3), r"the action 3 is outside Discrete\(3\); expected integers from 0 to 2"),
        (changed("actions", 5, 0.5), r"the action 0\.5 is outside Discrete"),
        (changed("terminals", 5, 2), "'terminals' is 2; expected 0, 1, true or false"),
    ],
)
@FORMATS
def test_invalid_value_is_reported_with_its_row(
    tmp_path: Path, write: Write, recorded: dict[str, Array], message: str
) -> None:
    place = {write_csv: "line 7", write_folder: "row 0 of train-00001-of-00002.parquet"}.get(write, "row 5")
    with pytest.raises(ConfigError, match=f"in {place}, {message}"):
        read(write(tmp_path, recorded))


def test_continuous_action_outside_its_bounds_is_rejected(tmp_path: Path) -> None:
    torques = np.array([0.0, -2.0, 2.0, 2.5, 0.0, 3.0, 0.0])
    with pytest.raises(ConfigError, match=r"in row 3, the action \[2\.5\] is outside its bounds.*\(2 such rows\)"):
        read(write_npz(tmp_path, steps(actions=torques)), TORQUE)


@pytest.mark.parametrize(
    ("recorded", "message"),
    [
        (steps(rewards=np.zeros(6)), r"different numbers of rows \(.*actions has 7, rewards has 6"),
        (
            steps(observations=np.zeros((7, 3))),
            r"observation \(observations\) has the shape \(3,\) .*; expected \(2,\)",
        ),
        (steps(actions=np.zeros((7, 2))), r"the action \(actions\) has the shape \(2,\) per row; expected \(\)"),
        ({name: column[:0] for name, column in steps().items()}, "is empty: its columns have no rows"),
        (steps(actions=np.array([None] * 7)), "'actions' contains Python objects, and reading them could run code"),
        (steps(rewards=np.zeros(7, complex)), "'rewards' is complex128"),
        (steps(rewards=None, reward=np.zeros(7), rew=np.zeros(7)), "several columns for reward: reward, rew"),
        (steps(episode=np.array([1, 1, 1, 2, 2, 1, 1])), "in row 5, episode 1.* continues after another episode"),
        (steps(rewards=np.array(["1"] * 6 + ["x"])), "in row 6, 'rewards' is 'x'; expected a number"),
    ],
)
def test_unusable_arrays_are_rejected(tmp_path: Path, recorded: dict[str, Array], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(write_npz(tmp_path, recorded))


def test_missing_columns_are_listed_with_the_columns_of_the_file(tmp_path: Path) -> None:
    path = write_npz(tmp_path, steps(actions=None, acton=np.zeros(7), terminals=None))
    with pytest.raises(ConfigError) as raised:
        read(path, columns={"truncated": "timeout"})
    text = str(raised.value)
    assert "no column for action (usual names: action, actions, act); did you mean acton?" in text
    assert "no column for terminated" in text
    assert "or to false if no step ended its episode" in text
    assert "dataset.columns.truncated is 'timeout', which is not a column" in text
    assert "did you mean timeouts?" in text
    assert text.endswith("Columns of " + str(path) + ": observations, rewards, timeouts, acton.")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"observation": "s*"}, "no column of .* begins with 's'"),
        ({"observation": []}, "observation is an empty list"),
        (
            {"observation": {"stat": "observations"}},
            r"observation\.stat is not an observation; did you mean state",
        ),
        ({"terminated": True}, "terminated is true; expected a column"),
        ({"reward": True}, "reward"),
        ({"rewards": "x"}, r"columns\.rewards is not a setting; did you mean reward\?"),
    ],
)
def test_invalid_column_settings_are_rejected(tmp_path: Path, columns: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(write_npz(tmp_path, steps()), columns=columns)


def test_missing_named_observation_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no column for the observation camera, speed; .*such as dataset\.columns"):
        read(write_npz(tmp_path, steps()), NAMED)
    with pytest.raises(ConfigError, match=r"columns\.observation has no column for mask, speed"):
        read(write_npz(tmp_path, steps()), NAMED, columns={"observation": {"camera": "observations"}})


def test_action_that_the_mask_forbids_is_rejected(tmp_path: Path) -> None:
    spec = Spec({"state": Box((2,)), "mask": mask_box(Discrete(3))}, Discrete(3))
    mask = np.ones((7, 3))
    mask[4, 1] = 0
    with pytest.raises(ConfigError, match="in row 4, the action mask does not allow the action 1"):
        read(write_npz(tmp_path, steps(mask=mask)), spec)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.npz", b"", "a.npz cannot be read; it is damaged"),
        ("a.npz", b"PK\x03\x04 not a zip", "a.npz cannot be read; it is damaged"),
        ("a.npz", pickle.dumps([1]), "a.npz cannot be read; it is damaged or not an .npz file"),
        ("a.csv", b"", "is empty; expected a header"),
        ("a.csv", b"\xff\xfe\x00", "a.csv cannot be read; it is damaged or not a CSV file in UTF-8"),
        ("a.csv", b"x,x\n1,2\n", "several columns named 'x'"),
        ("a.csv", b"observations_0,observations_1,actions,rewards,terminals\n", "is empty: its columns have no rows"),
        (
            "a.csv",
            b"obs0,obs1,act,rew,terminal\n1,2,0,0,0\n1,2,0,0\n",
            "in line 3, there are 4 values; the header has",
        ),
        ("a.csv", b"obs0;obs1;act;rew;terminal\n1;2;0;;0\n", "in line 2, 'rew' is empty; expected a number"),
        ("a.parquet", b"", "a.parquet cannot be read; it is damaged or not a Parquet file"),
        ("a.parquet", b"PAR1 and nothing", "a.parquet cannot be read; it is damaged"),
        ("a.pkl", pickle.dumps([1]), r"the format \.pkl, which is not supported; expected one of \.npz, \.csv"),
    ],
)
def test_damaged_or_unknown_file_is_rejected(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read(tmp_path / name)


def test_truncated_archive_is_rejected(tmp_path: Path) -> None:
    path = write_npz(tmp_path, steps())
    whole = path.read_bytes()
    position = whole.index(b"rewards.npy") + 200
    path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
    with pytest.raises(ConfigError, match="cannot be read; it is damaged"):
        read(path)


def test_text_far_down_a_numeric_column_is_reported_with_its_line(tmp_path: Path) -> None:
    lines = [f"{i / 9},0,0,0,0" for i in range(25_000)]
    lines[20_000] = "1,0,0,oops,0"
    (tmp_path / "long.csv").write_text("obs0,obs1,act,rew,terminal\n" + "\n".join(lines))
    with pytest.raises(ConfigError, match="in line 20002, 'rew' is oops; expected a number"):
        read(tmp_path / "long.csv")


def test_missing_and_uneven_cells_of_parquet_are_reported_with_their_row(tmp_path: Path) -> None:
    columns: dict[str, Any] = {name: column.tolist() for name, column in steps().items()}
    for name, row, value, message in (
        ("rewards", 2, None, "in row 2, 'rewards' has no value"),
        ("observations", 3, [1.0], "in row 3, 'observations' has 1 values; the first row has 2"),
        ("observations", 4, [1.0, None], "in row 4, 'observations' has no value"),
    ):
        wrong = {**columns, name: [value if i == row else cell for i, cell in enumerate(columns[name])]}
        parquet.write_table(pa.table(wrong), tmp_path / "a.parquet")
        with pytest.raises(ConfigError, match=message):
            read(tmp_path / "a.parquet")


def test_lists_of_fixed_size_and_extension_types_of_parquet_are_read(tmp_path: Path) -> None:
    recorded = steps()
    tensor = pa.fixed_shape_tensor(pa.float32(), [2])
    flat = pa.array(recorded["observations"].ravel())
    lists = pa.FixedSizeListArray.from_arrays(flat, 2)
    for column in (lists, pa.ExtensionArray.from_storage(tensor, lists)):
        columns = {name: pa.array(values) for name, values in recorded.items() if name != "observations"}
        parquet.write_table(pa.table({"observations": column, **columns}), tmp_path / "a.parquet")
        dataset = read(tmp_path / "a.parquet")
        assert columns_of(dataset, "obs.state")[1] == recorded["observations"][3:].tolist()


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_parquet(tmp_path, steps())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        MissingExtraError, match=r"needs pyarrow.*save the dataset as \.npz or \.csv, or .*\[datasets\]"
    ):
        read(path)
    assert read(write_npz(tmp_path, steps())).steps == read(write_csv(tmp_path, steps())).steps == 6


def test_folder_without_parquet_files_or_with_different_columns_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no Parquet files; expected files such as .*/data/\*\.parquet"):
        read(tmp_path)
    (tmp_path / "data").mkdir()
    write_parquet(tmp_path, steps()).rename(tmp_path / "data/a.parquet")
    write_parquet(tmp_path, steps(rewards=None)).rename(tmp_path / "data/b.parquet")
    with pytest.raises(ConfigError, match=r"b\.parquet and a\.parquet have different columns \(rewards\)"):
        read(tmp_path)


def test_settings_of_files_are_rejected_for_other_types() -> None:
    for setting in ({"columns": {"reward": "r"}}, {"action": 3}):
        with pytest.raises(ConfigError, match="a dataset of type journal has no setting"):
            parse(DatasetConfig, {"type": "journal", "path": "x", **setting}, "dataset")
