"""GGUF headers for tests, written by the package that llama.cpp's own converters use."""

import numpy as np
from gguf import GGMLQuantizationType, GGUFEndian, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES

LLAMA = {
    "block_count": 4,
    "context_length": 8192,
    "embedding_length": 256,
    "feed_forward_length": 1024,
    "attention.head_count": 8,
    "attention.head_count_kv": 2,
    "vocab_size": 1000,
}


def write_header(path, keys=None, tensors=(), *, architecture="llama", general=None, tokens=0, big=False):
    """A header as a converter writes it: keys, then the vocabulary, then the tensors' infos; no data."""
    writer = GGUFWriter(path, architecture, endianess=GGUFEndian.BIG if big else GGUFEndian.LITTLE)
    for name, value in (general or {}).items():
        add(writer, name, value)
    for name, value in (LLAMA if keys is None else keys).items():
        add(writer, f"{architecture}.{name}", value)
    if tokens:
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list([f"token{n}" for n in range(tokens)])
        writer.add_chat_template("x" * 5000)
    for name, shape, kind in tensors:
        number = GGMLQuantizationType[kind]
        block, size = GGML_QUANT_SIZES[number]
        count = int(np.prod(shape)) // block * size
        writer.add_tensor_info(name, list(reversed(shape)), np.dtype("float32"), count, raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    return path.read_bytes()


def add(writer, name, value):
    """One key, in the type its value has in Python."""
    kinds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    kinds.get(type(value), writer.add_array)(name, value)


class Counted:
    """Bytes that count how they are asked for."""

    def __init__(self, data):
        self.data, self.requests, self.bytes = data, 0, 0

    def read(self, offset, size):
        got = self.data[offset : offset + size]
        self.requests += 1
        self.bytes += len(got)
        return got
