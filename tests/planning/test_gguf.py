"""A GGUF header is read as its own writer wrote it, from as few bytes as can be."""

import struct

import pytest
from gguf import GGUFReader
from headers import LLAMA, Counted, write_header

from llmgw.cli.demo import model_file
from llmgw.planning.gguf import MOST_TEXTS, Passed, read_header
from llmgw.planning.gguf_bytes import FIRST_BYTES, MOST_HEADER_BYTES, Damaged
from llmgw.planning.source import Bytes

TENSORS = (
    ("token_embd.weight", (256, 1000), "Q4_K"),
    ("blk.0.attn_q.weight", (256, 256), "Q6_K"),
    ("output_norm.weight", (256,), "F32"),
)


@pytest.mark.parametrize("big", [False, True], ids=["little", "big"])
def test_keys_and_tensors_are_what_the_writer_wrote_in_either_byte_order(tmp_path, big):
    keys = {**LLAMA, "attention.head_count_kv": [2, 0, 2, 0], "rope.freq_base": 1e5, "attention.causal": False}

    header = read_header(Bytes(write_header(tmp_path / "m.gguf", keys, TENSORS, big=big)))

    assert header.architecture == "llama"
    assert header.values["llama.attention.head_count_kv"] == (2, 0, 2, 0)
    assert header.values["llama.rope.freq_base"] == 1e5
    assert header.values["llama.attention.causal"] is False
    assert [(t.name, t.shape) for t in header.tensors] == [(name, shape) for name, shape, _ in TENSORS]


def test_version_2_differs_in_nothing_that_is_read(tmp_path):
    data = write_header(tmp_path / "m.gguf", tensors=TENSORS)

    two = read_header(Bytes(data[:4] + struct.pack("<I", 2) + data[8:]))

    assert (two.version, two.values) == (2, read_header(Bytes(data)).values)


def test_the_tensors_are_those_the_package_s_own_reader_finds(tmp_path):
    data = write_header(tmp_path / "m.gguf", tensors=TENSORS)
    (tmp_path / "m.gguf").write_bytes(data + bytes(1 << 20))

    header = read_header(Bytes(data), tensors=True)

    theirs = {t.name: (tuple(int(n) for n in t.shape), int(t.n_bytes)) for t in GGUFReader(tmp_path / "m.gguf").tensors}
    assert {t.name: (t.shape, t.bytes) for t in header.tensors} == theirs


def test_a_real_file_s_tensors_lie_behind_its_vocabulary():
    header = read_header(Bytes(model_file().read_bytes()[: 4 << 20]), tensors=True)

    assert len(header.tensors) == 272
    assert sum(t.bytes for t in header.tensors) == 96_576_768
    # Rounded up to the file's alignment of 32 this is where its data begins.
    assert 1_785_632 < header.bytes <= 1_785_664


def test_the_shape_costs_one_read_and_the_vocabulary_is_left_where_it_is():
    source = Counted(model_file().read_bytes()[: 4 << 20])

    header = read_header(source)

    assert (source.requests, source.bytes) == (1, FIRST_BYTES)
    assert header.values["tokenizer.ggml.tokens"] == Passed(49152)
    assert header.tensors is None


def test_a_needed_key_behind_the_vocabulary_is_read_on_for(tmp_path):
    late = {name: value for name, value in LLAMA.items() if name != "context_length"}
    data = write_header(tmp_path / "m.gguf", late, tokens=20_000)
    # The writer puts keys in the order they come: this one is moved to the end by hand.
    name = b"llama.context_length"
    moved = struct.pack("<Q", len(name)) + name + struct.pack("<II", 4, 8192)
    count = struct.unpack("<Q", data[16:24])[0]
    end = len(read_prefix(data))
    data = data[:16] + struct.pack("<Q", count + 1) + data[24:end] + moved + data[end:]
    source = Counted(data)

    header = read_header(source)

    assert header.values["llama.context_length"] == 8192
    assert source.requests > 1


def read_prefix(data):
    """The part of a header without tensors that its keys take."""
    return data[: read_header(Bytes(data), tensors=True).bytes]


def test_what_is_small_is_read_whole_with_its_tensors(tmp_path):
    source = Counted(write_header(tmp_path / "m.gguf", tensors=TENSORS, tokens=10))

    assert len(read_header(source).tensors) == 3
    assert source.requests == 1


@pytest.mark.parametrize(
    ("general", "architecture", "kind"),
    [
        ({}, "llama", "model"),
        ({"general.type": "adapter", "adapter.type": "lora"}, "llama", "adapter"),
        ({}, "clip", "mmproj"),
    ],
)
def test_adapters_and_projectors_are_told_apart_by_the_first_bytes(tmp_path, general, architecture, kind):
    data = write_header(tmp_path / "m.gguf", {}, general=general, architecture=architecture)

    assert read_header(Bytes(data[:FIRST_BYTES])).kind == kind


def test_a_set_says_how_many_parts_it_has(tmp_path):
    data = write_header(tmp_path / "m.gguf", general={"split.count": 3, "split.no": 0})

    assert read_header(Bytes(data)).parts == 3


def head(keys=1, tensors=0, version=3):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


def key(name, kind):
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind)


def nested(depth):
    """Arrays in arrays, each of one part."""
    return key("a", 9) + struct.pack("<IQ", 9, 1) * depth + struct.pack("<IQ", 0, 1) + b"\0"


HOSTILE = {
    "nothing": b"",
    "another format": b"PK\x03\x04" + bytes(100),
    "version 1": b"GGUF" + struct.pack("<I", 1) + bytes(16),
    "more keys than bytes": head(keys=1 << 60),
    "more tensors than bytes": head(keys=0, tensors=1 << 60),
    "a name of 2^63 bytes": head() + struct.pack("<Q", 1 << 63),
    "a name of no bytes": head() + struct.pack("<Q", 0),
    "a text longer than any file": head() + key("a", 8) + struct.pack("<Q", 1 << 62) + head(),
    "an array longer than any file": head() + key("a", 9) + struct.pack("<IQ", 4, 1 << 62),
    "texts without end": head() + key("a", 9) + struct.pack("<IQ", 8, 1 << 40),
    "a text that reaches past the end": head() + key("a", 9) + struct.pack("<IQQ", 8, 2, 1 << 63),
    "an unknown type": head() + key("a", 99),
    "an array of an unknown type": head() + key("a", 9) + struct.pack("<IQ", 77, 1),
    "a hundred arrays in each other": head() + nested(100),
    "a tensor of nine dimensions": head(0, 1) + struct.pack("<Q", 1) + b"t" + struct.pack("<I", 9) + bytes(200),
    "a tensor of 2^120 numbers": head(0, 1)
    + struct.pack("<Q", 1)
    + b"t"
    + struct.pack("<I", 4)
    + struct.pack("<QQQQ", *[1 << 30] * 4)
    + bytes(50),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_header_is_refused_with_what_to_do(data):
    source = Counted(data)

    with pytest.raises(Damaged) as refused:
        read_header(source, tensors=True)

    assert refused.value.do
    assert "Traceback" not in str(refused.value)
    assert source.requests < 20


def test_a_header_cut_anywhere_is_refused_and_never_a_crash(tmp_path):
    data = write_header(tmp_path / "m.gguf", tensors=TENSORS, tokens=3)
    whole = read_header(Bytes(data), tensors=True).bytes

    for length in range(0, whole - 8, 7):
        with pytest.raises(Damaged):
            read_header(Bytes(data[:length]), tensors=True)


def test_a_source_that_never_ends_is_given_up_on():
    class Endless:
        asked = 0

        def read(self, offset, size):
            self.asked += size
            # Very many empty texts, and then a key without a name.
            start = head(keys=4096) + key("a", 9) + struct.pack("<IQ", 8, MOST_TEXTS // 8) if offset == 0 else b""
            return (start + bytes(size))[:size]

    source = Endless()

    with pytest.raises(Damaged):
        read_header(source, tensors=True)

    assert source.asked <= MOST_HEADER_BYTES
