"""What a debugged run shows in TensorBoard beside its metrics: histograms, and figures of its own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rl4sys.errors import MissingExtraError
from rl4sys.spec import Array

_BINS = 50


class HistogramWriter:
    """Event files in a folder of their own, so that the run's metrics read the same with and without."""

    def __init__(self, folder: Path) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ModuleNotFoundError as problem:
            raise MissingExtraError(
                f"histograms need {problem.name}, which is not installed: pip install 'rl4sys[train]'"
            ) from problem
        self._event, self._summary, self._histogram = Event, Summary, HistogramProto
        self._writer = EventFileWriter(str(folder))

    def write(self, step: int, values: Mapping[str, Array], measured: Mapping[str, float]) -> None:
        """A histogram of each array that has anything finite in it, and each figure."""
        rows = [self._summary.Value(tag=name, simple_value=value) for name, value in measured.items()]
        for name, array in values.items():
            finite = array[np.isfinite(array)].astype(np.float64)
            if len(finite):
                rows.append(self._summary.Value(tag=name, histo=self._counted(finite)))
        self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=self._summary(value=rows)))

    def close(self) -> None:
        self._writer.close()

    def _counted(self, values: Array) -> object:
        counts, edges = np.histogram(values, bins=_BINS)
        return self._histogram(
            min=values.min(),
            max=values.max(),
            num=len(values),
            sum=values.sum(),
            sum_squares=np.square(values).sum(),
            bucket_limit=edges[1:].tolist(),
            bucket=counts.tolist(),
        )
