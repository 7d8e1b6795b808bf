"""Protobuf messages from proto3 text at import time: no generated code, any protobuf runtime, no shared packages.

Generated stubs tie a release to one runtime version, and stub collections overwrite files of other packages. The few
messages that the adapters exchange are written down as proto3 text beside the code that uses them, and registered here
in a descriptor pool of their own. The text is real proto3: the tests compile it with protoc and compare.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any

from swarmx.errors import BadInput

_TOKEN = re.compile(r"//[^\n]*|\"[^\"]*\"|[A-Za-z_][\w.]*|\d+|[{}=;<>,]")
_SCALARS = {"double": 1, "int64": 3, "int32": 5, "bool": 8, "string": 9, "bytes": 12}
_MESSAGE, _OPTIONAL, _REPEATED = 11, 1, 3
_WELL_KNOWN = {"google.protobuf.Struct": "struct", "google.protobuf.Duration": "duration"}


def messages(file_name: str, text: str) -> SimpleNamespace:
    """Message classes by name, from proto3 text with `message`, `oneof`, `repeated`, `map`, scalars and messages.

    Services and options are skipped; Struct and Duration are the runtime's own.
    Raises BadInput naming the extra when protobuf is missing, ValueError for text outside this subset.
    """
    try:
        from google.protobuf import descriptor_pool, duration_pb2, message_factory, struct_pb2
    except ImportError:
        raise BadInput(
            "this needs protobuf and grpcio; install them with: pip install 'swarmx-scheduler[k8s]'"
        ) from None
    pool = descriptor_pool.DescriptorPool()
    for module in (struct_pb2, duration_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    file = parse(file_name, text)
    pool.Add(file)
    names = [f"{file.package}.{message.name}" for message in file.message_type]
    found = {n.rsplit(".", 1)[1]: message_factory.GetMessageClass(pool.FindMessageTypeByName(n)) for n in names}
    found["Struct"] = message_factory.GetMessageClass(pool.FindMessageTypeByName("google.protobuf.Struct"))
    return SimpleNamespace(**found)


def parse(file_name: str, text: str) -> Any:
    """The FileDescriptorProto of proto3 text, as protoc would make it (without options and services)."""
    from google.protobuf import descriptor_pb2

    tokens = (t for t in _TOKEN.findall(text) if not t.startswith("//"))
    file = descriptor_pb2.FileDescriptorProto(name=file_name, syntax="proto3")
    for word in tokens:
        if word == "package":
            file.package = next(tokens)
        elif word == "import":
            file.dependency.append(next(tokens).strip('"'))
        elif word == "message":
            _message(file.message_type.add(name=next(tokens)), tokens, file.package)
        elif word == "service":
            _skip_block(tokens)
    return file


def _message(message: Any, tokens: Iterator[str], package: str) -> None:
    if next(tokens) != "{":
        raise ValueError(f"expected {{ after message {message.name}")
    group: int | None = None
    for word in tokens:
        if word == "}":
            if group is None:
                return
            group = None
        elif word == "oneof":
            message.oneof_decl.add(name=next(tokens))
            group = len(message.oneof_decl) - 1
            next(tokens)
        else:
            _field(message, word, tokens, package, group)


def _field(message: Any, word: str, tokens: Iterator[str], package: str, group: int | None) -> None:
    label, kind = _OPTIONAL, word
    entry: tuple[str, str] | None = None
    if word == "repeated":
        label, kind = _REPEATED, next(tokens)
    elif word == "map":
        _, key, _, value, _ = islice(tokens, 5)  # < key , value >
        label, entry = _REPEATED, (key, value)
    rest = list(islice(tokens, 4))
    if rest[1:2] != ["="] or rest[3:] != [";"]:
        raise ValueError(f"expected `name = number;` after {kind!r} in message {message.name}")
    name, number = rest[0], rest[2]
    if entry is not None:
        kind = f"{message.name}.{_entry(message, name, entry, package)}"
    field = message.field.add(name=name, number=int(number), label=label, json_name=_camel(name))
    _typed(field, kind, package)
    if group is not None:
        field.oneof_index = group


def _entry(message: Any, name: str, entry: tuple[str, str], package: str) -> str:
    nested = message.nested_type.add(name=_camel("_" + name) + "Entry")
    nested.options.map_entry = True
    for number, (part, kind) in enumerate(zip(("key", "value"), entry, strict=True), 1):
        _typed(nested.field.add(name=part, number=number, label=_OPTIONAL, json_name=part), kind, package)
    return str(nested.name)


def _typed(field: Any, kind: str, package: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = _MESSAGE
        field.type_name = f".{kind}" if kind in _WELL_KNOWN else f".{package}.{kind}"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _skip_block(tokens: Iterator[str]) -> None:
    depth = 0
    for word in tokens:
        depth += (word == "{") - (word == "}")
        if word == "}" and depth == 0:
            return
