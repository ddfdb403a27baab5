"""Builds the package. The build adds a descriptor that protoc makes from inference.proto."""

import pathlib

from grpc_tools import protoc
from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithProtocol(build_py):
    def run(self):
        super().run()
        if self.editable_mode:
            # An editable package makes the descriptor at import, with the protoc on the PATH.
            return
        package = pathlib.Path(self.build_lib) / "baton_client"
        arguments = ["protoc", f"--proto_path={package}", "--include_imports",
                     f"--descriptor_set_out={package / 'inference.binpb'}"]
        if protoc.main([*arguments, "inference.proto"]) != 0:
            raise SystemExit("protoc failed on inference.proto")


setup(cmdclass={"build_py": BuildWithProtocol})
