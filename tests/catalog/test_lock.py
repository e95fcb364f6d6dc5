"""Locks: one form, read with every problem where it stands, and of the model they are called after."""

from __future__ import annotations

import pytest
from catalog.written import GONE, MODEL, SERVER, as_yaml, changed
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.catalog.check import read_fleet, read_lock
from llmgw.catalog.lock import Lock, LockedFile, lock_path, write
from llmgw.catalog.origin import origin

COMMIT = "0f" * 20
HUB = "hf://Qwen/Qwen3-8B-GGUF@main/*Q4_K_M*.gguf"


def locked(**changes) -> Lock:
    return Lock.model_validate(
        {
            "model": "coder",
            "source": {"from": HUB, "version": "2026-11"},
            "commit": COMMIT,
            "license": "apache-2.0",
            "files": [{"path": "q-Q4_K_M.gguf", "bytes": 5_000_000_000, "sha256": "ab" * 32}],
            "facts": {"architecture": "qwen3", "layers": 36, "kv_heads": 8, "windowed": [True, False]},
            **changes,
        }
    )


def fleet(lock: bytes | None, *changes, name: str = "coder", **more: bytes):
    """What is wrong in a fleet whose model is from the hub, or as it is changed."""
    model = changed(MODEL, (("source", "from"), HUB), (("source", "sha256"), GONE), *changes)
    files = {"server.yaml": as_yaml(SERVER), "catalog/coder.yaml": as_yaml(model), **more}
    return read_fleet(files if lock is None else files | {f"locks/{name}.yaml": lock})


def problems(catalog) -> list[tuple[str, str, str]]:
    return [(problem.where, problem.what, problem.do) for problem in catalog.problems]


def test_the_written_form_is_a_page_people_can_read():
    assert write(locked()).decode() == (
        "# Written by `llmgw lock`. Change the model and lock it again rather than this file.\n"
        "model: coder\n"
        "source:\n"
        '  from: "hf://Qwen/Qwen3-8B-GGUF@main/*Q4_K_M*.gguf"\n'
        "  version: 2026-11\n"
        f"commit: {COMMIT}\n"
        "license: apache-2.0\n"
        "files:\n"
        "  - path: q-Q4_K_M.gguf\n"
        "    bytes: 5000000000\n"
        f"    sha256: {'ab' * 32}\n"
        "facts:\n"
        "  architecture: qwen3\n"
        "  kv_heads: 8\n"
        "  layers: 36\n"
        "  windowed: [true, false]\n"
    )


TEXTS = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_categories=["Cc", "Zl", "Zp"]), max_size=20
)
FIGURES = st.one_of(
    st.booleans(), st.integers(-(2**53), 2**53), TEXTS, st.floats(allow_nan=False, allow_infinity=False)
)
FACTS = st.dictionaries(
    st.from_regex(r"\A[a-z][a-z0-9_.]{0,8}\Z"), FIGURES | st.lists(FIGURES, min_size=1, max_size=4), max_size=5
)
SUMS = st.none() | st.from_regex(r"\A[0-9a-f]{64}\Z") | st.sampled_from(["1" * 64, "0" * 64, "1e" + "1" * 62])
PATHS = st.sampled_from(["m.gguf", "1e5", "null", "a/b/c.safetensors", "-x", "007", "true"])
FILES = st.lists(
    st.builds(LockedFile, path=PATHS, bytes=st.none() | st.integers(0, 2**53), sha256=SUMS),
    min_size=1,
    unique_by=lambda file: file.path,
)
SOURCES = st.fixed_dictionaries(
    {"from": TEXTS.filter(bool)}, optional={"files": st.lists(TEXTS.filter(bool), min_size=1)}
)


@settings(max_examples=min(400, settings().max_examples))
@given(FACTS, FILES, SOURCES, TEXTS)
def test_what_is_written_is_read_back_as_it_was(facts, files, source, license_):
    ordered = sorted(files, key=lambda file: file.path)
    lock = Lock(model="coder", source=source, files=tuple(ordered), facts=facts, license=license_)

    read = read_lock("locks/coder.yaml", write(lock))

    assert read.problems == ()
    assert read.entry.lock == lock
    assert write(read.entry.lock) == write(lock)


@given(st.permutations(range(4)), st.permutations(["b", "a", "c"]))
def test_the_order_things_were_found_in_does_not_matter(order, keys):
    files = [LockedFile(path=f"m{n}.gguf", bytes=n) for n in order]
    facts = dict.fromkeys(keys, 1)

    assert write(locked(files=files, facts=facts)) == write(
        locked(files=sorted(files, key=lambda f: f.path), facts=dict(sorted(facts.items())))
    )


@pytest.mark.parametrize(
    ("broken", "where", "what"),
    [
        (b"", "1:1", "the file holds no lock"),
        (b"model: coder\n", "1:1", None),
        (write(locked()).replace(b"bytes: 5000000000", b"bytes: -1"), "10:12", "`files[0].bytes` cannot be `-1`"),
        (write(locked()).replace(b"q-Q4", b"../q-Q4"), "9:11", "`files[0].path` cannot be `../q-Q4_K_M.gguf`"),
        (write(locked()).replace(b"commit: 0f0f", b"commit: main"), "6:9", None),
        (write(locked()).replace(b"license", b"licence"), "7:1", None),
        (b"\xff", "1:1", "the file is not UTF-8"),
    ],
)
def test_a_lock_that_cannot_be_used_says_where_and_why(broken, where, what):
    read = read_lock("locks/coder.yaml", broken)

    assert read.entry is None
    assert f"locks/coder.yaml:{where}" in [problem.where for problem in read.problems]
    assert what is None or what in [problem.what for problem in read.problems]
    assert {problem.model for problem in read.problems} == {"coder"}
    assert {problem.do for problem in read.problems} <= {"llmgw lock coder", "save it as UTF-8"}


def test_a_model_whose_lock_belongs_to_it_is_good():
    catalog = fleet(write(locked()))

    assert problems(catalog) == []
    assert catalog.locks == {"coder": locked()}


def test_a_moving_revision_without_a_lock_is_a_problem():
    catalog = fleet(None)

    assert problems(catalog) == [
        ("catalog/coder.yaml:12:11", "the revision of coder moves", "pin it: llmgw lock coder")
    ]
    assert catalog.frozen == ("coder",)
    assert catalog.problems[0].why == "main may be another commit tomorrow, and nothing says which one was meant"


def test_a_pattern_of_a_commit_needs_a_lock_and_one_file_of_it_does_not():
    pattern = fleet(None, (("source", "from"), f"hf://Qwen/Qwen3-8B-GGUF@{COMMIT}/*.gguf"))
    exact = fleet(None, (("source", "from"), f"hf://Qwen/Qwen3-8B-GGUF@{COMMIT}/q.gguf"))

    assert [problem.what for problem in pattern.problems] == ["the files of coder are not known"]
    assert problems(exact) == []


def test_a_url_needs_no_lock():
    assert problems(fleet(None, (("source", "from"), "https://example.com/q.gguf"))) == []


def test_a_lock_of_an_earlier_source_is_a_problem_of_the_lock():
    catalog = fleet(write(locked()), (("source", "version"), "2026-12"))

    assert problems(catalog) == [
        ("locks/coder.yaml:3:1", "the lock of coder is of another source", "llmgw lock coder"),
    ]
    assert catalog.problems[0].why == "`version` was 2026-11 when it was locked and is 2026-12 now"
    assert catalog.frozen == ("coder",)
    assert catalog.locks == {}


def test_a_sum_that_a_model_writes_is_not_the_locks():
    one = {"source": {"from": "https://example.com/q.gguf", "version": "2026-11"}, "commit": None}
    url = (("source", "from"), "https://example.com/q.gguf")
    catalog = fleet(write(locked(**one)), url, (("source", "sha256"), "cd" * 32))
    listed = fleet(write(locked(**one)), url, (("source", "checksums"), {"q-Q4_K_M.gguf": "cd" * 32}))

    assert listed.problems == catalog.problems
    assert [problem.what for problem in catalog.problems] == ["the lock of coder has another sha256 than its source"]


def test_a_lock_of_no_model_is_a_problem_that_freezes_nothing():
    other = locked(model="gone")
    catalog = fleet(write(locked()), **{"locks/gone.yaml": write(other)})

    assert problems(catalog) == [
        ("locks/gone.yaml:2:1", "no model is called gone", "remove locks/gone.yaml, or bring the model back")
    ]
    assert [entry.model.name for entry in catalog.models] == ["coder"]


def test_a_lock_of_a_model_that_cannot_be_read_is_not_said_to_be_of_none():
    catalog = fleet(write(locked()), (("state",), "stoped"))

    assert [problem.path for problem in catalog.problems] == ["catalog/coder.yaml"]


def test_a_lock_is_found_by_its_files_name():
    catalog = fleet(write(locked(model="other")))

    assert problems(catalog) == [
        (
            "locks/coder.yaml:2:1",
            "the lock of other is in locks/coder.yaml",
            "rename it to locks/other.yaml, or lock again",
        )
    ]
    assert catalog.frozen == ("coder",)


def test_a_broken_lock_freezes_its_model_and_no_other():
    other = changed(MODEL, (("name",), "other"), (("aliases",), []))
    catalog = fleet(b"model: [", **{"catalog/other.yaml": as_yaml(other)})

    assert catalog.frozen == ("coder",)
    assert [entry.model.name for entry in catalog.models] == ["other"]
    assert {problem.path for problem in catalog.problems} == {"locks/coder.yaml"}


def test_two_files_that_one_disk_could_not_hold_are_refused():
    files = [{"path": "A.gguf", "bytes": 1}, {"path": "a.gguf", "bytes": 1}]

    (problem,) = read_lock("locks/coder.yaml", write(locked(files=files))).problems

    assert problem.what == "a.gguf is there twice"


@pytest.mark.parametrize(
    ("written", "repository", "revision", "patterns"),
    [
        ("hf://a/b", "a/b", "main", ()),
        ("hf://a/b/c.gguf", "a/b", "main", ("c.gguf",)),
        ("hf://a/b@v1", "a/b", "v1", ()),
        ("hf://a/b@v1/", "a/b", "v1", ()),
        ("hf://a/b@v1/x/*.gguf", "a/b", "v1", ("x/*.gguf",)),
        ("hf://a/b@refs%2Fpr%2F3/c%20d", "a/b", "refs/pr/3", ("c d",)),
    ],
)
def test_a_repository_is_written_with_a_revision_and_a_pattern(written, repository, revision, patterns):
    read = origin({"from": written})

    assert (read.at, read.revision, read.patterns) == (repository, revision, patterns)


@pytest.mark.parametrize("written", ["hf://", "hf://a", "hf://a/", "hf:///b", "hf://a/b@", "hf://a/b@/c", "hf://../b"])
def test_what_names_no_repository_is_none(written):
    assert origin({"from": written}) is None


def test_a_lock_is_called_after_its_model():
    assert lock_path("qwen3-8b") == "locks/qwen3-8b.yaml"


def test_a_model_that_is_served_elsewhere_has_nothing_to_lock():
    external = {"base_url": "https://api.example.com/v1", "key_ref": "example"}
    model = {"name": "coder", "context_length": 4096, "external": external}
    files = {"server.yaml": as_yaml(SERVER), "catalog/coder.yaml": as_yaml(model)}

    catalog = read_fleet(files | {"locks/coder.yaml": write(locked())})

    assert [p.what for p in catalog.problems] == ["coder is served elsewhere, and has no source to lock"]
    assert [entry.model.name for entry in catalog.models] == ["coder"]


UNWRITTEN = (("profiles", 0, "memory_gib"), GONE)


def test_memory_that_is_not_written_is_worked_out_from_the_lock():
    assert problems(fleet(write(locked()), UNWRITTEN)) == []


@pytest.mark.parametrize(
    "lock",
    [None, write(locked(facts={})), write(locked(files=[{"path": "q.gguf"}]))],
    ids=["no lock", "no header", "no sizes"],
)
def test_memory_that_is_neither_written_nor_to_be_worked_out_is_a_problem(lock):
    catalog = fleet(lock, (("source", "from"), f"hf://Qwen/Qwen3-8B-GGUF@{COMMIT}/q.gguf"), UNWRITTEN)
    if lock is not None:
        catalog = fleet(lock, UNWRITTEN)

    assert [(p.where, p.do) for p in catalog.problems] == [
        ("catalog/coder.yaml:1:1", "give memory_gib, or run llmgw lock coder")
    ]
    assert catalog.frozen == ("coder",)


def test_a_models_stale_lock_is_the_only_thing_said_of_its_memory():
    assert len(fleet(write(locked()), (("source", "version"), "2026-12"), UNWRITTEN).problems) == 1
