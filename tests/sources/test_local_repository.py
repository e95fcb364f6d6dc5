"""A repository on this machine, read in place while others push to it and pack it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fakes.real_git import SERVER_YAML, Fleet, Git
from llmgw.errors import OperatorError, Refused, Unreachable
from llmgw.sources.git import Source, open_source

pytestmark = pytest.mark.needs_git


def follow(path: Path | str, branch: str = "main") -> Source:
    return open_source(str(path), branch=branch, state=Path("/nonexistent/state"))


def test_a_path_a_file_url_and_a_working_copy_are_one_repository(fleet: Fleet):
    ways = [
        fleet.path,
        f"file://{fleet.path}",
        f"file://localhost{fleet.path}",
        fleet.clone.at,
        fleet.clone.at / ".git",
    ]

    assert len({follow(way).poll().commit for way in ways}) == 1


def test_a_push_is_seen_at_the_next_poll(fleet: Fleet):
    source = follow(fleet.path)
    source.poll()

    commit = fleet.push({"catalog/b.yaml": b"name: b\n"})

    found = source.poll()
    assert (found.commit, found.rewritten) == (commit, False)
    assert source.held() == found


def test_packed_refs_and_packed_objects_are_read(fleet: Fleet):
    source = follow(fleet.path)
    before = source.poll()

    fleet.bare("pack-refs", "--all")
    fleet.bare("gc", "-q", "--prune=now")

    assert not (fleet.path / "refs/heads/main").exists()
    assert source.poll() == before == follow(fleet.path).poll()


def test_case_1_a_rewritten_branch_is_followed_and_said_once(fleet: Fleet):
    source = follow(fleet.path)
    source.poll()

    fleet.clone("commit", "-q", "--amend", "-m", "amended")
    commit = fleet.push({})

    found = source.poll()
    assert (found.commit, found.rewritten) == (commit, True)
    assert not source.poll().rewritten


def test_a_merge_is_not_a_rewrite(fleet: Fleet):
    source = follow(fleet.path)
    source.poll()

    fleet.clone("checkout", "-q", "-b", "side", "HEAD")
    fleet.clone.commit({"catalog/b.yaml": b"name: b\n"})
    fleet.clone("checkout", "-q", "main")
    fleet.clone("merge", "-q", "--no-ff", "side")
    fleet.push({})

    assert not source.poll().rewritten


def test_a_branch_deleted_is_refused_and_made_again_is_followed(fleet: Fleet):
    source = follow(fleet.path)
    before = source.poll()
    fleet.bare("branch", "other", "main")
    fleet.bare("update-ref", "-d", "refs/heads/main")

    with pytest.raises(Refused) as refused:
        source.poll()

    assert refused.value.why == "its branches are other"
    assert source.held() == before
    fleet.bare("branch", "main", "other")
    assert source.poll().commit == before.commit


def test_a_repository_without_commits_says_what_to_do(tmp_path: Path):
    with pytest.raises(Refused) as refused:
        follow(Fleet(tmp_path).path).poll()

    assert (refused.value.why, refused.value.do) == ("it has no commits yet", "commit and push to main")


def test_many_branches_are_not_all_listed(fleet: Fleet):
    for n in range(12):
        fleet.bare("branch", f"b{n:02}", "main")

    with pytest.raises(Refused) as refused:
        follow(fleet.path, "mian").poll()

    assert refused.value.why.endswith("b08, b09 and 3 more")


def test_what_is_not_a_repository_says_why(fleet: Fleet, tmp_path: Path):
    (tmp_path / "plain").mkdir()

    for path, error, why in (
        (tmp_path / "gone", Unreachable, "the path does not exist"),
        (tmp_path / "plain", Refused, "it has neither .git nor objects and refs"),
        (fleet.clone.at / "catalog", Refused, f"it is a folder of the one at {fleet.clone.at}"),
    ):
        with pytest.raises(error) as raised:
            follow(path).poll()
        assert raised.value.why == why


@pytest.mark.parametrize(
    ("url", "said"),
    [
        pytest.param("git://host/fleet.git", "git", id="git's own protocol"),
        pytest.param("file://elsewhere/fleet.git", "file", id="a file of another machine"),
        pytest.param("http:///fleet.git", "http", id="no host"),
        pytest.param("http://[::1/fleet.git", "it", id="half an address"),
        pytest.param("http://host:port/fleet.git", "it", id="no port"),
    ],
)
def test_an_address_that_is_not_followed_is_refused(url: str, said: str):
    with pytest.raises(Refused) as refused:
        follow(url)

    assert refused.value.why.startswith(said)


@pytest.mark.parametrize("branch", ["", "a..b", "x.lock", "-d", "a b", "feature/"])
def test_a_name_that_git_has_not_is_refused(branch: str):
    with pytest.raises(Refused, match="cannot be a branch"):
        follow("/tmp", branch)


def test_a_mode_that_does_not_exist_is_refused(fleet: Fleet):
    with pytest.raises(Refused, match="unknown"):
        open_source(str(fleet.path), branch="main", state=Path("/nonexistent"), mode="index")
    with pytest.raises(Refused, match="no working copy here"):
        open_source("http://host/fleet.git", branch="main", state=Path("/nonexistent"), mode="worktree")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        pytest.param("packed-refs", b"", id="an empty packed-refs"),
        pytest.param("packed-refs", b"^peeled\nx y\n", id="a packed-refs with a tag's line first"),
        pytest.param("packed-refs", b"\x00garbage\nmore", id="a packed-refs that is none"),
        pytest.param("config", b"[core\n\trepositoryformatversion = 0\n", id="a broken config"),
        pytest.param("config", b"[core]\n\trepositoryformatversion = 7\n", id="a format of the future"),
        pytest.param("config", b"[core]\n\trepositoryformatversion = 1\n[extensions]\n\tx = 1\n", id="an extension"),
        pytest.param("refs/heads/main", b"", id="an empty ref"),
        pytest.param("refs/heads/main", b"zzzz\n", id="a ref that is no id"),
        pytest.param("refs/heads/main", b"f" * 40 + b"\n", id="a ref to nothing"),
        pytest.param("refs/heads/main", b"ref: refs/heads/main\n", id="a ref to itself"),
    ],
)
def test_a_damaged_repository_is_a_sentence_and_never_a_traceback(fleet: Fleet, name: str, data: bytes):
    (fleet.path / name).write_bytes(data)
    if name == "packed-refs":
        (fleet.path / "refs/heads/main").unlink()
    source = follow(fleet.path)

    with pytest.raises(OperatorError) as raised:
        source.poll()

    assert str(fleet.path) in raised.value.what
    assert raised.value.why
    assert raised.value.do


def test_a_missing_object_is_a_sentence(fleet: Fleet):
    source = follow(fleet.path)
    before = source.poll()
    fleet.push({"catalog/b.yaml": b"name: b\n"})
    blob = fleet.bare("rev-parse", "main:catalog/b.yaml")
    (fleet.path / "objects" / blob[:2] / blob[2:]).unlink()

    with pytest.raises(Unreachable, match="cannot be read") as raised:
        source.poll()

    assert raised.value.why == f"object {blob} cannot be read"
    assert source.held() == before


def test_a_rewrite_that_could_not_be_read_is_said_once_it_can(fleet: Fleet):
    source = follow(fleet.path)
    source.poll()
    fleet.clone("commit", "-q", "--amend", "-m", "amended")
    fleet.push({"catalog/b.yaml": b"name: b\n"})
    blob = fleet.bare("rev-parse", "main:catalog/b.yaml")
    held = fleet.path / "objects" / blob[:2] / blob[2:]
    held.rename(tmp := held.with_suffix(".away"))
    with pytest.raises(Unreachable):
        source.poll()

    tmp.rename(held)

    assert [source.poll().rewritten for _ in range(2)] == [True, False]


def test_the_same_bytes_under_other_ids_are_not_read_twice(fleet: Fleet):
    source = follow(fleet.path)
    source.poll()
    blob = fleet.bare("rev-parse", "main:catalog/a.yaml")
    fleet.push({"catalog/b.yaml": b"name: b\n"})

    # What is not needed can be gone.
    (fleet.path / "objects" / blob[:2] / blob[2:]).unlink()

    assert list(source.poll().files) == ["catalog/a.yaml", "catalog/b.yaml", "server.yaml"]


def test_a_sha256_repository_is_read(tmp_path: Path):
    copy = Git(tmp_path / "sha256")
    copy.at.mkdir()
    copy("init", "--object-format=sha256", "-b", "main", ".")
    commit = copy.commit({"server.yaml": SERVER_YAML})

    assert follow(copy.at).poll().commit == commit


def test_reading_goes_on_while_others_push_pack_and_collect(fleet: Fleet):
    for n in range(20):
        fleet.clone.write({f"catalog/m{n}.yaml": b"name: m%d\n" % n})
    fleet.push({})
    stop, polls = threading.Event(), 0
    lock = threading.Lock()

    def read() -> None:
        nonlocal polls
        source = follow(fleet.path)
        while not stop.is_set():
            found = source.poll()
            assert len(found.files) == 22
            assert len(follow(fleet.path).at("HEAD").files) == 22
            with lock:
                polls += 1

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read) for _ in range(4)]
        try:
            for n in range(12):
                fleet.push({"catalog/a.yaml": b"name: a\n# %d\n" % n})
                fleet.bare("repack", "-adq")
                fleet.bare("pack-refs", "--all")
            fleet.bare("gc", "-q")
        finally:
            stop.set()
        for reader in readers:
            reader.result()
    assert polls > 20


def test_no_descriptor_is_kept_between_polls(fleet: Fleet):
    source = follow(fleet.path)
    source.poll()
    before = len(list(Path("/proc/self/fd").iterdir()))

    for n in range(10):
        fleet.push({"catalog/a.yaml": b"# %d\n" % n})
        fleet.bare("repack", "-q")
        source.poll()

    # Others' may have been closed meanwhile, as their objects went.
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
