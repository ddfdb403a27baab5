"""Baton's gRPC messages for Python, from proto/inference.proto by way of protoc: independent of protobuf's Python version."""

import pathlib
import subprocess
import tempfile

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PROTO = pathlib.Path(__file__).resolve().parent.parent / "proto"


def load():
    """Message classes by name, e.g. load()["GenerateRequest"]."""
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["protoc", f"--proto_path={PROTO}", f"--descriptor_set_out={out.name}", "inference.proto"],
                       check=True)
        file = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(out.name).read_bytes()).file[0]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {message.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{message.name}"))
            for message in file.message_type}
