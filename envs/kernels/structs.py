"""The structs that kernels and Python share, read from the kernels' sources, so that neither side lists them twice."""

import ctypes
import functools
import re
from collections.abc import Mapping
from types import MappingProxyType

import torch

from lockstep.reading import nearest

EIGHT_BYTES = {"i64": ctypes.c_longlong, "u64": ctypes.c_ulonglong, "double": ctypes.c_double}
KEPT_AS = {"float": torch.float32, "double": torch.float64, "int": torch.int32, "i64": torch.int64, "u64": torch.uint64}
KEPT_AS |= {"u8": torch.uint8, "u16": torch.uint16, "u32": torch.uint32}
NUMBER = re.compile(r"(?:const )?(?:struct )?(\w+)(\*?) (\w+);")
FUNCTION = re.compile(r"\w+ \(\*(\w+)\)\(.*\);")


def lines(name: str, text: str) -> list[str]:
    """The lines of a struct's declaration; ValueError where the source has no such struct."""
    body = re.search(rf"^struct {name} \{{\n(.*?)\n\}};", text, re.DOTALL | re.MULTILINE)
    if body is None:
        raise ValueError(f"the source declares no struct {name}")
    return [line.strip() for line in body[1].splitlines()]


@functools.cache
def fields(name: str, text: str) -> MappingProxyType[str, type]:
    """The fields of a struct in order, each of eight bytes: pointers, `i64`, `u64`, `double`, and structs of such.

    Args:
        text: source that declares the struct, and those that it has as fields, with one field a line.

    Returns:
        ctypes by name, of a struct within the struct those of its fields; pointers are integers.

    Raises:
        ValueError: no such struct, or a field that is not eight bytes.
    """
    found = {}
    for line in lines(name, text):
        if not line or line.startswith("//"):
            continue
        number, function = NUMBER.match(line), FUNCTION.match(line)
        if function or (number and number[2]):
            found[function[1] if function else number[3]] = ctypes.c_longlong
        elif number and number[1] in EIGHT_BYTES:
            found[number[3]] = EIGHT_BYTES[number[1]]
        elif number and f"struct {number[1]} {{" in text:
            inner = fields(number[1], text)
            if both := sorted(set(found) & set(inner)):
                raise ValueError(f"struct {number[1]}: {', '.join(both)} are fields of struct {name} as well")
            found |= inner
        else:
            raise ValueError(f"struct {name}: {line!r} is not a field of eight bytes")
    return MappingProxyType(found)


def struct(name: str, text: str, **values) -> ctypes.Structure:
    """A struct of a source with the values given, all else zero; see `fields` and `fill`."""
    body = {"_fields_": list(fields(name, text).items()), "__slots__": ()}  # so that no other attribute can be set
    made = type(name, (ctypes.Structure,), body)()
    fill(made, **values)
    return made


def fill(made: ctypes.Structure, **values):
    """Sets fields of a struct; a tensor by its address, and the caller keeps it alive.

    Raises:
        AttributeError: the struct has no such field.
    """
    for field, value in values.items():
        setattr(made, field, value.data_ptr() if isinstance(value, torch.Tensor) else value)


def require_tables(text: str, tables: Mapping[str, torch.Tensor]):
    """Checks that tensors are the pointers of `struct Tables`; those to a type of the source's own, by name alone.

    Raises:
        ValueError: a pointer without a tensor, a tensor without a pointer, or one of numbers of another type.
    """
    declared = {found[3]: found[1] for found in map(NUMBER.match, lines("Tables", text)) if found}
    real = re.search(r"^#define REAL (\w+)$", text, re.MULTILINE)[1]
    if tables and (left := [name for name in declared if name not in tables]):
        raise ValueError(f"struct Tables: no table for {', '.join(left)}")
    for name, table in tables.items():
        if name not in declared:
            raise ValueError(f"struct Tables has no {name!r}{nearest(name, declared)}")
        kind = KEPT_AS.get(real if declared[name] == "real" else declared[name], table.dtype)
        if table.dtype != kind:
            raise ValueError(f"struct Tables: {name} is {declared[name]}, {kind}; the table is {table.dtype}")
