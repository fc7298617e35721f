"""The inputs of a case: finding, reading, checking, making and writing them."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx_ir import serde

from onnxreduce.case import InputValue, declared_inputs
from onnxreduce.errors import UsageError
from onnxreduce.files import check_regular, replacing, write_atomically
from onnxreduce.modelcheck import check_tensor
from onnxreduce.npz import read_npz, write_npz
from onnxreduce.shapes import is_size, symbol
from onnxreduce.tensors import Array
from onnxreduce.wire import parse

DATA_SET = "test_data_set_0"
"""The directory beside a model that holds its inputs, in the layout of ONNX's backend tests."""


def find_inputs(
    model_path: Path,
    model: ir.Model,
    given: Path | None,
    seed: int = 0,
    dims: Mapping[str, int] | None = None,
) -> tuple[dict[str, InputValue], str]:
    """The inputs to start from, checked, and a few words on where they come from.

    Raises:
        UsageError: `given` cannot be read or does not fit the model's signature.
    """
    if given is not None:
        found = load_inputs(given, model)
        check_inputs(model, found)
        return found, f"--inputs {given}"
    beside = model_path.parent / DATA_SET
    note = ""
    if beside.is_dir():
        try:
            found = load_inputs(beside, model)
            check_inputs(model, found)
        except UsageError as error:
            note = f" ({DATA_SET} beside the model does not fit: {error})"
        else:
            return found, f"{DATA_SET} beside the model"
    sizes = bind_dims(model, dims or {})
    made = make_inputs(model, seed, dims)
    bound = "".join(f", {name}={size}" for name, size in sizes.items())
    return made, f"made from the signature, seed {seed}{bound}{note}"


def load_inputs(path: Path, model: ir.Model | None = None) -> dict[str, InputValue]:
    """Inputs from an ``.npz`` or a data-set directory, typed by the model's signature if given.

    A directory that holds ``test_data_set_0`` stands for that.

    In an ``.npz`` the elements of a sequence input ``s`` are ``s[0]``, ``s[1]``, ..., ``s[]``
    stands for an empty one; an optional input without entry is empty. Nothing is checked against
    the signature yet: see `check_inputs`.

    Raises:
        UsageError: it cannot be read.
    """
    if path.is_dir():
        if model is None:
            raise UsageError(f"{path} names no inputs: it takes the model to read them")
        inner = path / DATA_SET  # the directory of a backend test, or of a result
        whole = (path / "input_0.pb").exists() or not inner.is_dir()
        return _load_data_set(path if whole else inner, model)
    inputs = _group(read_npz(path), model)
    for value in model.graph.inputs if model is not None else ():
        name = value.name or ""
        content = inputs.get(name)
        if isinstance(content, np.ndarray):
            inputs[name] = _as_declared(content, value.type)
        elif isinstance(content, list):
            inputs[name] = [_as_declared(part, value.type) for part in content]
        elif _is_optional(value.type):
            inputs[name] = None
    return inputs


_ELEMENT = re.compile(r"(?P<name>.+)\[(?P<index>\d*)\]", re.DOTALL)


def _group(arrays: Mapping[str, Array], model: ir.Model | None) -> dict[str, InputValue]:
    """Elements of sequences brought together; without a model every ``s[0]`` is an element."""
    tensors = {v.name for v in model.graph.inputs if not _is_sequence(v.type)} if model else set()
    inputs: dict[str, InputValue] = {}
    sequences: dict[str, dict[int, Array]] = {}
    for key, array in arrays.items():
        match = None if key in tensors else _ELEMENT.fullmatch(key)
        if match is None:
            inputs[key] = _texts(array) if array.dtype.kind in "SU" else array
            continue
        parts = sequences.setdefault(match["name"], {})
        if match["index"]:
            parts[int(match["index"])] = array
    for name, parts in sequences.items():
        inputs[name] = [parts[index] for index in sorted(parts)]
    return inputs


def save_npz(inputs: Mapping[str, InputValue], path: Path) -> None:
    """Write an ``.npz`` that `load_inputs` reads back; the file appears whole.

    Raises:
        OSError: it cannot be written.
    """
    with replacing(path) as temporary:
        write_npz(temporary, flat_inputs(inputs))


def flat_inputs(inputs: Mapping[str, InputValue]) -> dict[str, Array]:
    """The arrays of inputs by the name that they have in an ``.npz``."""
    arrays: dict[str, Array] = {}
    for name, value in inputs.items():
        if isinstance(value, list):
            arrays.update({f"{name}[{index}]": part for index, part in enumerate(value)})
            if not value:
                arrays[f"{name}[]"] = np.zeros(0, np.float32)
        elif value is not None:
            arrays[name] = value
    return arrays


def save_test_data_set(
    directory: Path,
    model: ir.Model,
    inputs: Mapping[str, InputValue],
    outputs: Mapping[str, InputValue] | None = None,
) -> None:
    """Write ``input_0.pb``, ... and ``output_0.pb``, ... in the order of the model's signature."""
    directory.mkdir(parents=True, exist_ok=True)
    groups: list[tuple[str, Iterable[ir.Value], Mapping[str, InputValue]]] = [
        ("input", [v for v in model.graph.inputs if v.name in inputs], inputs),
        ("output", [v for v in model.graph.outputs if v.name in (outputs or {})], outputs or {}),
    ]
    for prefix, values, content in groups:
        for index, value in enumerate(values):
            name = value.name or ""
            proto = value_proto(name, content[name], value.type)
            file = directory / f"{prefix}_{index}.pb"
            write_atomically(file, proto.SerializeToString(deterministic=True))


def value_proto(
    name: str, value: InputValue, declared: ir.TypeProtocol | None
) -> onnx.TensorProto | onnx.SequenceProto | onnx.OptionalProto:
    """A value as ONNX's test data stores it: a tensor, sequence or optional message."""
    if isinstance(declared, ir.OptionalType):
        optional = onnx.OptionalProto(name=name)
        if value is None:
            optional.elem_type = onnx.OptionalProto.UNDEFINED
        elif isinstance(value, list):
            optional.elem_type = onnx.OptionalProto.SEQUENCE
            optional.sequence_value.CopyFrom(_sequence_proto(name, value))
        else:
            optional.elem_type = onnx.OptionalProto.TENSOR
            optional.tensor_value.CopyFrom(_tensor_proto(name, value))
        return optional
    if isinstance(value, list):
        return _sequence_proto(name, value)
    if value is None:
        raise UsageError(f"input {name!r} is empty but not optional")
    return _tensor_proto(name, value)


def _sequence_proto(name: str, parts: list[Array]) -> onnx.SequenceProto:
    proto = onnx.SequenceProto(name=name, elem_type=onnx.SequenceProto.TENSOR)
    proto.tensor_values.extend(_tensor_proto("", part) for part in parts)
    return proto


def _tensor_proto(name: str, array: Array) -> onnx.TensorProto:
    if array.dtype.kind in "OSU":
        items = [i if isinstance(i, bytes) else str(i).encode() for i in array.reshape(-1).tolist()]
        shape = ir.Shape(array.shape)
        return serde.serialize_tensor(ir.StringTensor(items, shape=shape, name=name))
    return serde.serialize_tensor(ir.Tensor(np.asarray(array, order="C"), name=name))


def _load_data_set(directory: Path, model: ir.Model) -> dict[str, InputValue]:
    count = 0
    while (file := directory / f"input_{count}.pb").exists():
        check_regular(file)
        count += 1
    values = declared_inputs(model)
    if count > len(values):  # data for initializers too, as old models allow
        values = list(model.graph.inputs)
    if count > len(values) or (count == 0 and values):
        raise UsageError(
            f"{directory} holds {count} inputs (input_0.pb, ...), the model has {len(values)}"
        )
    files = [directory / f"input_{index}.pb" for index in range(count)]
    return {
        value.name or "": _load_value(file, value)
        for value, file in zip(values, files, strict=False)
    }


def _load_value(path: Path, value: ir.Value) -> InputValue:
    try:
        content = path.read_bytes()
        if _is_optional(value.type):
            optional = onnx.OptionalProto()
            parse(path, content, optional)
            if optional.HasField("tensor_value"):
                return _load_tensor(path, optional.tensor_value)
            if optional.HasField("sequence_value"):
                return _load_sequence(path, optional.sequence_value)
            if optional.elem_type not in (0, 1, 3):
                raise UsageError(f"{path} holds an optional of a kind that is not supported")
            return None
        if _is_sequence(value.type):
            sequence = onnx.SequenceProto()
            parse(path, content, sequence)
            return _load_sequence(path, sequence)
        tensor = onnx.TensorProto()
        parse(path, content, tensor)
        return _load_tensor(path, tensor)
    except DecodeError:
        raise UsageError(f"{path} is not the ONNX message that {value.name!r} needs") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def _load_sequence(path: Path, proto: onnx.SequenceProto) -> list[Array]:
    if proto.elem_type not in (0, onnx.SequenceProto.TENSOR):
        raise UsageError(f"{path} holds a sequence of something other than tensors")
    return [_load_tensor(path, tensor) for tensor in proto.tensor_values]


def _load_tensor(path: Path, proto: onnx.TensorProto) -> Array:
    if check_tensor(path, proto) is not None:
        raise UsageError(f"{path} keeps its data elsewhere, which test data may not")
    array: Array = serde.deserialize_tensor(proto).numpy()
    return _texts(array) if array.dtype.kind in "OS" else array


def _texts(array: Array) -> Array:
    """A string array in the form that runtimes take: Python strings in an object array."""
    items = [
        item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else str(item)
        for item in array.reshape(-1).tolist()
    ]
    texts = np.empty(len(items), object)
    texts[:] = items
    return texts.reshape(array.shape)


def _as_declared(array: Array, declared: ir.TypeProtocol | None) -> Array:
    """Bit patterns viewed as the declared type, text as Python strings; else as it is."""
    if array.dtype.kind in "SU":
        return _texts(array)
    dtype = _element(declared)
    if dtype is None or dtype == ir.DataType.STRING or dtype == ir.DataType.UNDEFINED:
        return array
    wanted = np.dtype(dtype.numpy())
    bits = array.dtype.kind in "uV" and array.dtype.itemsize == wanted.itemsize
    return array.view(wanted) if bits and wanted.isbuiltin != 1 else array


def _element(declared: ir.TypeProtocol | None) -> ir.DataType | None:
    """The element type at the bottom of a tensor, sequence or optional type."""
    while isinstance(declared, ir.SequenceType | ir.OptionalType):
        declared = declared.elem_type
    return declared.dtype if isinstance(declared, ir.TensorType) else None


def _is_optional(declared: ir.TypeProtocol | None) -> bool:
    return isinstance(declared, ir.OptionalType)


def _is_sequence(declared: ir.TypeProtocol | None) -> bool:
    if isinstance(declared, ir.OptionalType):
        declared = declared.elem_type
    return isinstance(declared, ir.SequenceType)


def check_inputs(model: ir.Model, inputs: Mapping[str, InputValue]) -> None:
    """That inputs fit the model's signature.

    Raises:
        UsageError: a name is unknown or missing, or a dtype, rank or static dim differs.
    """
    known = {value.name or "": value for value in model.graph.inputs}
    for name in inputs:
        if name not in known:
            folded = {other.casefold(): other for other in known}
            near = difflib.get_close_matches(name.casefold(), folded, n=1)
            hint = f"did you mean {folded[near[0]]!r}?" if near else f"it has {_listing(known)}"
            raise UsageError(f"the model has no input {name!r}; {hint}")
    for value in declared_inputs(model):
        name = value.name or ""
        if name not in inputs:
            raise UsageError(f"input {name!r} ({_declaration(value)}) is missing: add it")
    for name, content in inputs.items():
        _check_value(known[name], content)


def _check_value(value: ir.Value, content: InputValue) -> None:
    if content is None:
        if not _is_optional(value.type):
            raise UsageError(f"input {value.name!r}: declared {_declaration(value)}, given nothing")
        return
    if isinstance(content, list) != _is_sequence(value.type):
        given = "a sequence" if isinstance(content, list) else "a tensor"
        raise UsageError(f"input {value.name!r}: declared {_declaration(value)}, given {given}")
    for array in content if isinstance(content, list) else [content]:
        wrong = _mismatch(value, array)
        if wrong:
            dims = ",".join(map(str, array.shape))
            raise UsageError(
                f"input {value.name!r}: declared {_declaration(value)}, given "
                f"{array.dtype.name}[{dims}]: the {wrong} differs"
            )


def _mismatch(value: ir.Value, array: Array) -> str | None:
    dtype = _element(value.type)
    if dtype is not None and dtype != ir.DataType.UNDEFINED:
        text = array.dtype.kind in "OSU"
        if text != (dtype == ir.DataType.STRING):
            return "dtype"
        if not text and array.dtype != np.dtype(dtype.numpy()):
            return "dtype"
    if value.shape is None:
        return None
    if len(value.shape) != array.ndim:
        return "rank"
    pairs = zip(value.shape, array.shape, strict=True)
    for axis, (declared, given) in enumerate(pairs):
        if is_size(declared) and declared != given:
            return f"size of axis {axis}"
    return None


def _declaration(value: ir.Value) -> str:
    dtype = _element(value.type)
    name = "unknown" if dtype is None else dtype.name.lower()
    if dtype not in (None, ir.DataType.STRING, ir.DataType.UNDEFINED):
        name = np.dtype(dtype.numpy()).name
    if value.shape is not None:
        dims = (d if is_size(d) else symbol(d) or "?" for d in value.shape)
        name += f"[{','.join(map(str, dims))}]"
    if _is_sequence(value.type):
        name = f"sequence of {name}"
    return f"optional {name}" if _is_optional(value.type) else name


def _listing(names: Iterable[str]) -> str:
    listed = ", ".join(map(repr, names))
    return f"inputs {listed}" if listed else "no inputs"


BATCH = re.compile(r"n|b|bs|.*batch.*", re.IGNORECASE)
OTHER = 8
"""The size that a symbolic dim gets when nothing says otherwise."""

MOST = 1 << 27
"""Inputs with more elements together are not made up: a file of a few bytes may ask for any."""


def bind_dims(model: ir.Model, given: Mapping[str, int]) -> dict[str, int]:
    """Sizes for the symbolic dims of a model's inputs, by name: what is given, 1 for a first dim
    called like a batch, 8 for the rest.

    Raises:
        UsageError: a given name is no dim of the inputs, or a size is negative.
    """
    symbols: dict[str, int] = {}
    for value in declared_inputs(model):
        for axis, dim in enumerate(value.shape or ()):
            if not isinstance(dim, int) and dim.value and dim.value not in symbols:
                batch = axis == 0 and BATCH.fullmatch(dim.value)
                symbols[dim.value] = 1 if batch else OTHER
    for name, size in given.items():
        if name not in symbols:
            listed = ", ".join(symbols) or "none"
            raise UsageError(f"no input has a dim called {name!r}; symbolic dims: {listed}")
        if size < 0:
            raise UsageError(f"dim {name!r} cannot be {size}")
        symbols[name] = size
    return symbols


def make_inputs(
    model: ir.Model, seed: int = 0, dims: Mapping[str, int] | None = None
) -> dict[str, InputValue]:
    """Inputs made up from the signature: floats standard normal, integers 0 to 3.

    Every input has a random stream of its own, so removing one changes no other.

    Raises:
        UsageError: a type of which no values can be made, or an absurd number of elements.
    """
    sizes = bind_dims(model, dims or {})
    made: dict[str, InputValue] = {}
    elements = 0.0
    for value in declared_inputs(model):
        name = value.name or ""
        shape = [
            dim if is_size(dim) else sizes.get(symbol(dim), OTHER if axis else 1)
            for axis, dim in enumerate(value.shape if value.shape is not None else [1])
        ]
        elements += np.prod(shape, dtype=float)
        if elements > MOST:
            raise UsageError(f"input {name!r} is too large to make up: give it with --inputs")
        spread = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
        rng = np.random.default_rng([seed, spread])
        dtype = _element(value.type)
        if dtype is None or dtype == ir.DataType.UNDEFINED:
            raise UsageError(f"input {name!r} has no tensor type: give it with --inputs")
        parts = [
            random_array(rng, dtype, shape) for _ in range(2 if _is_sequence(value.type) else 1)
        ]
        made[name] = parts if _is_sequence(value.type) else parts[0]
    return made


def random_array(rng: np.random.Generator, dtype: ir.DataType, shape: Sequence[int]) -> Array:
    """An array of a type: standard normal, 0 to 3, true or false, or one-letter strings."""
    if dtype == ir.DataType.STRING:
        return _texts(rng.choice(list("abcd"), shape))
    wanted: np.dtype[Any] = np.dtype(dtype.numpy())
    if dtype == ir.DataType.BOOL:
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.is_integer():
        top = 2 if dtype.bitwidth == 2 else 4
        return np.asarray(rng.integers(0, top, shape)).astype(wanted)
    if wanted.kind == "c":
        both = rng.standard_normal((2, *shape))
        return np.asarray(both[0] + 1j * both[1]).astype(wanted)
    normal = np.asarray(rng.standard_normal(shape))
    if dtype == ir.DataType.FLOAT8E8M0:  # powers of two, no sign
        normal = np.abs(normal)
    return normal.astype(wanted)
