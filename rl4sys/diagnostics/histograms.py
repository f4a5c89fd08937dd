"""TensorBoard histograms and scalars of a debug run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rl4sys.extras import needed_by
from rl4sys.spec import Array

_BINS = 50


class HistogramWriter:
    """Writer of TensorBoard event files to a separate directory, so that the metrics of the run stay unchanged."""

    def __init__(self, folder: Path) -> None:
        with needed_by("a histogram"):
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        self._event, self._summary, self._histogram = Event, Summary, HistogramProto
        self._writer = EventFileWriter(str(folder))

    def write(self, step: int, values: Mapping[str, Array], scalars: Mapping[str, float]) -> None:
        """Write a histogram of the finite values of each array, and all scalars."""
        rows = [self._summary.Value(tag=name, simple_value=value) for name, value in scalars.items()]
        for name, array in values.items():
            finite = array[np.isfinite(array)].astype(np.float64)
            if len(finite):
                rows.append(self._summary.Value(tag=name, histo=self._make_histogram(finite)))
        self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=self._summary(value=rows)))

    def close(self) -> None:
        self._writer.close()

    def _make_histogram(self, values: Array) -> object:
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
