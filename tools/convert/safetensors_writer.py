"""Writes safetensors one tensor at a time, so that a model may be larger than memory."""

import json
import math

import numpy as np

_FORMATS = {"float32": ("F32", 4), "bfloat16": ("BF16", 2)}


def to_bfloat16(array):
    """Returns the bfloat16 bits of a float32 array, rounded to nearest even.

    Infinities stay infinite. REQUIRES: no value is NaN.
    """
    bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_safetensors(path, tensors, dtype, progress=lambda done, total: None):
    """Writes a safetensors file. Raises ValueError if a tensor has a wrong shape or is not finite.

    `tensors` are (name, shape, function that returns the float32 array, or bfloat16 bits as
    uint16). Calls progress(bytes done, bytes in total) after each tensor.
    """
    label, element_bytes = _FORMATS[dtype]
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape, _ in tensors:
        begin, end = end, end + math.prod(shape) * element_bytes
        header[name] = {"dtype": label, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # keeps the data aligned
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape, load in tensors:
            array = load()
            is_bits = array.dtype == np.uint16
            if array.shape != shape or not (is_bits or np.isfinite(array).all()):
                raise ValueError(f"tensor {name!r}: expected finite values of shape {shape}, got {array.shape}")
            file.write(array if is_bits else (to_bfloat16(array) if dtype == "bfloat16" else array.astype("<f4")).tobytes())
            progress(header[name]["data_offsets"][1], end)
