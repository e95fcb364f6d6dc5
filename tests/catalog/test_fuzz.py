"""Whatever a working copy holds, `llmgw validate` lists problems and does nothing else."""

from __future__ import annotations

import contextlib
import io
import os
import random
import time
from pathlib import Path

import pytest
from catalog.written import KEY, LOCK, MODEL, SERVER, WIDE, WIDE_KEY, WIDE_SERVER, as_yaml, changed
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from llmgw.cli.main import run
from llmgw.errors import Exit

SECONDS = float(os.environ.get("LLMGW_FUZZ_S", "2"))
"""How long new repositories are made up: a minute in `make fuzz`."""

EXAMPLES = Path(__file__).parents[2] / "examples"
CORPUS = [as_yaml(value) for value in (MODEL, WIDE, SERVER, WIDE_SERVER, KEY, WIDE_KEY, LOCK, [MODEL, WIDE])]
CORPUS += [path.read_bytes() for path in sorted(EXAMPLES.rglob("*.yaml"))]

PIECES = [
    *b"*a|&a |!t |<<: |- |: |---|{|}|[|]|\"|'|\xff|\0|null|~|1e9|1e999|-.inf|.nan|0x|#|%|\t|\n".split(b"|"),
    *b"80GB..|..|99999999999999999999TiB|1y|999999999999w|{}|[[]]|true|/../|hf://|mirror:|@|\xe2\x80\xa8".split(b"|"),
    *b"extends: small|defaults: {|blocks: {a: {profile: {gpu: {|scaling: {max: 0}|external: {}|profile: 3".split(b"|"),
    b"9" * 99,
    b"name: " * 9,
]
PATHS = [
    *("server.yaml", "catalog/a.yaml", "catalog/b.yml", "catalog/deep/c.yaml", "keys/k.yaml", "locks/a.yaml"),
    *("catalog/.hidden.yaml", "README.md", "locks/coder.yaml"),
]


def words(value: object) -> list[str]:
    """Every key inside a value."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [word for key, part in parts for word in ([key] if isinstance(key, str) else []) + words(part)]


KEYS = sorted({word for value in (MODEL, WIDE, SERVER, WIDE_SERVER, KEY, WIDE_KEY, LOCK) for word in words(value)})


@st.composite
def damaged(draw):
    """A file that was good once."""
    data = draw(st.sampled_from(CORPUS))
    for _ in range(draw(st.integers(0, 4))):
        begin = draw(st.integers(0, len(data)))
        end = draw(st.integers(begin, min(len(data), begin + 40)))
        piece = draw(
            st.sampled_from(PIECES)
            | st.binary(max_size=4)
            | st.sampled_from(KEYS).map(lambda key: f"\n{key}: ".encode())
        )
        data = data[:begin] + piece + data[end:]
    return data


def repositories() -> st.SearchStrategy[dict[str, bytes]]:
    return st.dictionaries(st.sampled_from(PATHS), damaged(), max_size=5)


def validate(root: Path, files: dict[str, bytes]) -> tuple[int, str, str]:
    """The code and what is printed."""
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(["validate", str(root)])
    for path in files:
        (root / path).unlink()
    return code, out.getvalue(), err.getvalue()


def test_whatever_a_repository_holds_validate_lists_problems(tmp_path):
    tried = 0

    @settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(repositories())
    def once(files):
        nonlocal tried
        code, out, err = validate(tmp_path, files)

        assert (code, err) in {(Exit.DONE, ""), (Exit.PROBLEM, "")}
        assert "internal error" not in out
        lines = out.splitlines()
        assert lines[-1].startswith(
            "no problems: " if code == Exit.DONE else ("1 problem in", f"{lines[-1].split()[0]} ")
        )
        assert out.replace("\n", "").isprintable()
        tried += 1

    began, dice = time.monotonic(), random.Random(7)
    while time.monotonic() - began < SECONDS:
        seed(dice.getrandbits(64))(once)()

    assert tried


@pytest.mark.parametrize("part", range(8))
def test_every_key_may_have_any_value(tmp_path, part):
    wrong = (None, True, -1, "", "x" * 300, [], [None], {}, {"": None}, "80GB..", [[{}]])
    files = {"server.yaml": as_yaml(SERVER)}
    for key in KEYS[part::8]:
        # All of them in CI; elsewhere four of each key, others for the next.
        turn = KEYS.index(key) + 1 if settings().max_examples <= 100 else 0
        for index, value in enumerate(wrong if not turn else [wrong[(turn + n) % len(wrong)] for n in range(4)]):
            name = f"{key.strip('_').lower() or 'x'}-{index}"
            files[f"catalog/{name}.yaml"] = as_yaml(
                changed(MODEL, (("name",), name), (("aliases",), []), ((key,), value))
            )
            files[f"locks/{name}.yaml"] = as_yaml(changed(LOCK, ((key,), value)))
            files[f"locks/facts-{name}.yaml"] = as_yaml(changed(LOCK, (("facts", key), value)))
        files[f"keys/{key}.yaml"] = as_yaml(changed(KEY, ((key,), wrong[len(key) % len(wrong)])))

    code, out, err = validate(tmp_path, files)

    assert (code, err) == (Exit.PROBLEM, "")
    assert "internal error" not in out
    assert out.splitlines()[-1].partition(" ")[2].startswith("problems in")


@pytest.mark.parametrize("key", KEYS[::5])
def test_every_default_may_have_any_value(tmp_path, key):
    for value in (None, [[{}]], {"a": "80GB.."}):
        server = as_yaml(changed(SERVER, (("defaults",), {key: value}), (("blocks",), {key: value})))

        code, out, err = validate(tmp_path, {"server.yaml": server, "catalog/a.yaml": as_yaml(MODEL)})

        assert (code, err) == (Exit.PROBLEM, "")
        assert out
