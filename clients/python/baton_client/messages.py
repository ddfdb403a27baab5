"""The message classes of the protocol.

An installed package contains a descriptor of the protocol. In a checkout, protoc makes it at
import. REQUIRES there: protoc is on the PATH. A descriptor works with every version of protobuf,
and generated code does not."""

import pathlib
import subprocess
import tempfile
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = pathlib.Path(__file__).resolve().parent


def _description() -> bytes:
    installed = _PACKAGE / "inference.binpb"
    if installed.exists():
        return installed.read_bytes()
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["protoc", f"--proto_path={_PACKAGE}", "--include_imports",
                        f"--descriptor_set_out={out.name}", "inference.proto"], check=True)
        return pathlib.Path(out.name).read_bytes()


def _load() -> dict[str, Any]:
    files = descriptor_pb2.FileDescriptorSet.FromString(_description()).file
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    return {message.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{message.name}"))
            for file in files for message in file.message_type}


# Classes by name, e.g. MESSAGES["GenerateRequest"].
MESSAGES = _load()
