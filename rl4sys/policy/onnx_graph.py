"""Writer of ONNX graphs: nodes and constants, without torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl4sys.spec import Array, Columns

OPSET, IR_VERSION = 17, 8
"""ONNX operator set and file format version: old enough for runtimes of 2022, with LayerNormalization."""

BATCH = "batch"
"""Name of the dynamic batch axis."""

LOWEST = float(np.finfo(np.float32).min)
"""Lowest finite float32: the score of masked keys and actions where -infinity would give NaN."""

_FLOAT, _INT64, _BOOL = 1, 7, 9
"""Codes of element types in the ONNX format."""

_ELEMENT_TYPES = {"float32": _FLOAT, "int64": _INT64, "bool": _BOOL}


@dataclass(frozen=True)
class ValueInfo:
    """Name, type, row shape and description of an input or output of the model."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    description: str = ""

    def to_onnx(self) -> Any:
        from onnx import helper

        element_type = _ELEMENT_TYPES[self.dtype]
        return helper.make_tensor_value_info(self.name, element_type, [BATCH, *self.shape], self.description)


class OnnxGraph:
    """Writer of an ONNX graph. Methods add nodes or constants and return the names of the resulting values."""

    def __init__(self, weights: Columns) -> None:
        self._weights = weights
        self._nodes: list[Any] = []
        self._initializers: dict[str, Array] = {}
        self._anonymous_names: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._scope, self._count = "", 0

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Context manager that adds the prefix ``name/`` to the names of new nodes."""
        before = self._scope, self._count
        self._scope, self._count = f"{name}/", 0
        yield
        self._scope, self._count = before

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of an ONNX operator with one result."""
        return self.add_several(kind, 1, *inputs, **attributes)[0]

    def add_several(self, kind: str, results: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node with several results and return their names."""
        from onnx import helper

        name = f"{self._scope}{kind}_{self._count}"
        self._count += 1
        outputs = [f"{name}.{index}" for index in range(results)] if results > 1 else [name]
        self._nodes.append(helper.make_node(kind, inputs, outputs, name=name, **attributes))
        return outputs

    def weight(self, name: str, axes: tuple[int, ...] | None = None) -> str:
        """Return a weight of the snapshot as a float32 constant, with its axes reordered."""
        array, label = self._weights[name], f"weights.{name}"
        if axes is None:
            return self._initializer(label, array, np.float32)
        return self._initializer(f"{label}.{''.join(map(str, axes))}", array.transpose(axes), np.float32)

    def constant(self, values: Any) -> str:
        """Return a float32 constant."""
        return self._anonymous(np.asarray(values, np.float32))

    def integers(self, *values: int) -> str:
        """Return a constant vector of integers, such as a shape."""
        return self._anonymous(np.asarray(values, np.int64))

    def reshape(self, value: str, *shape: int) -> str:
        """Reshape a value. In ``shape``, 0 keeps the length of an axis and -1 infers it."""
        return self.add("Reshape", value, self.integers(*shape))

    def slice(self, value: str, start: int, end: int) -> str:
        """Return the elements from ``start`` to ``end`` of each row."""
        return self.add("Slice", value, self.integers(start), self.integers(end), self.integers(1))

    def concat(self, values: Sequence[str], axis: int = 1) -> str:
        return values[0] if len(values) == 1 else self.add("Concat", *values, axis=axis)

    def clip(self, value: str, low: float, high: float) -> str:
        return self.add("Clip", value, self.constant(low), self.constant(high))

    def split(self, value: str, sizes: Sequence[int]) -> list[str]:
        """Split each row into parts of the given sizes."""
        if len(sizes) == 1:
            return [value]
        return self.add_several("Split", len(sizes), value, self.integers(*sizes), axis=1)

    def number(self, flags: str) -> str:
        """Convert booleans to float32."""
        return self.add("Cast", flags, to=_FLOAT)

    def rows_like(self, value: str, row: Array) -> str:
        """Repeat the constant ``row`` as often as ``value`` has rows."""
        batch = self.add("Shape", value, start=0, end=1)
        shape = self.add("Concat", batch, self.integers(len(row)), axis=0)
        return self.add("Expand", self.constant(row[None]), shape)

    def model(self, inputs: Sequence[ValueInfo], outputs: Mapping[ValueInfo, str]) -> Any:
        """Return the graph as an ``onnx.ModelProto``; ``outputs`` maps each output to the name of its value."""
        from onnx import helper, numpy_helper

        copies = [helper.make_node("Identity", [value], [info.name], info.name) for info, value in outputs.items()]
        graph = helper.make_graph(
            [*self._nodes, *copies],
            "policy",
            [info.to_onnx() for info in inputs],
            [info.to_onnx() for info in outputs],
            [numpy_helper.from_array(array, name) for name, array in self._initializers.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)

    def _anonymous(self, array: Array) -> str:
        """Return a constant with a generated name; equal constants are stored once."""
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._anonymous_names:
            self._anonymous_names[key] = f"constant_{len(self._anonymous_names)}"
        return self._initializer(self._anonymous_names[key], array, array.dtype)

    def _initializer(self, name: str, array: Array, dtype: Any) -> str:
        # `ascontiguousarray` turns a scalar into a vector, so the original shape is restored.
        self._initializers[name] = np.ascontiguousarray(array, dtype).reshape(array.shape)
        return name
