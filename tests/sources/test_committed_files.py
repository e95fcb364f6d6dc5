"""What is read of a commit, and what is said of entries that cannot be read."""

from __future__ import annotations

import pytest

from fakes.real_git import SERVER_YAML, Fleet
from llmgw.errors import Refused
from llmgw.sources.git import Source, open_source
from llmgw.sources.snapshot import Snapshot

pytestmark = pytest.mark.needs_git

MODEL = b"name: a\n"


def follow(fleet: Fleet) -> Source:
    return open_source(str(fleet.path), branch="main", state=fleet.path.parent / "state")


def raw(*entries: tuple[str, bytes, str]) -> bytes:
    """A tree object's bytes, with whatever git itself would not write."""
    return b"".join(mode.encode() + b" " + name + b"\0" + bytes.fromhex(blob) for mode, name, blob in entries)


def put(fleet: Fleet, kind: str, data: bytes) -> str:
    return fleet.bare("hash-object", "-t", kind, "--literally", "-w", "--stdin", stdin=data)


def snapshot_of_catalog(fleet: Fleet, *entries: tuple[str, bytes, str]) -> Snapshot:
    """The snapshot of a commit whose catalog/ has exactly these entries."""
    catalog = put(fleet, "tree", raw(*entries))
    root = put(fleet, "tree", raw(("40000", b"catalog", catalog)))
    fleet.bare("update-ref", "refs/heads/main", fleet.bare("commit-tree", root, "-m", "hostile"))
    return follow(fleet).poll()


def said(snapshot: Snapshot) -> dict[str, str]:
    return {entry.path: entry.why for entry in snapshot.bad}


def test_a_commit_is_its_files_author_time_and_subject(fleet: Fleet):
    commit = fleet.push({"catalog/team/b.yml": b"name: b\n", "keys/k.yaml": b"k", "locks/a.yaml": b"l"}, "add b\n\nwhy")

    found = follow(fleet).poll()

    assert found.commit == commit
    assert (found.committed_at, found.author, found.subject) == (fleet.time, "Ana <ana@lab>", "add b")
    assert {path: blob.data for path, blob in found.files.items()} == {
        "catalog/a.yaml": MODEL,
        "catalog/team/b.yml": b"name: b\n",
        "keys/k.yaml": b"k",
        "locks/a.yaml": b"l",
        "server.yaml": SERVER_YAML,
    }
    assert list(found.files) == sorted(found.files)
    assert found.files["catalog/a.yaml"].id == fleet.bare("rev-parse", "main:catalog/a.yaml")
    assert (found.bad, found.dirty, found.rewritten) == ((), False, False)


def test_files_that_are_none_of_the_fleets_change_nothing(fleet: Fleet):
    source = follow(fleet)
    before = source.poll()

    fleet.push(
        {"README.md": b"hello", "catalog/README.md": b"models", "catalog/.hidden.yaml": b"x", ".ci/a.yaml": b"y"}
    )
    after = source.poll()

    assert after.commit != before.commit
    assert (after.identity, after.files, after.bad) == (before.identity, before.files, ())


def test_a_renamed_file_is_another_identity(fleet: Fleet):
    source = follow(fleet)
    before = source.poll().identity

    fleet.push({"catalog/a.yaml": None, "catalog/b.yaml": MODEL})

    assert source.poll().identity != before


def test_what_is_no_regular_file_is_said_and_the_rest_is_read(fleet: Fleet):
    (fleet.clone.at / "catalog/link.yaml").symlink_to("a.yaml")
    (fleet.clone.at / "catalog/folder").symlink_to("/etc")
    fleet.push(
        {
            "catalog/lfs.yaml": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n",
            "catalog/large.yaml": b"#" * (256 * 1024 + 1),
            "catalog/largest.yaml": b"#" * (256 * 1024),
            "keys/team/k.yaml": b"k",
            "locks/a.yml": b"l",
        }
    )

    found = follow(fleet).poll()

    assert said(found) == {
        "catalog/folder": "is a symbolic link, which is not followed",
        "catalog/large.yaml": "is larger than 256 KiB",
        "catalog/lfs.yaml": "is kept in Git LFS, and only its pointer is here",
        "catalog/link.yaml": "is a symbolic link, which is not followed",
        "keys/team": "is a folder, and keys/ is read without folders",
        "locks/a.yml": "ends in .yml, and only .yaml is read in locks/",
    }
    assert sorted(found.files) == ["catalog/a.yaml", "catalog/largest.yaml", "server.yaml"]
    assert all(entry.do for entry in found.bad)


def test_a_submodule_is_said(fleet: Fleet):
    commit = fleet.bare("rev-parse", "main")

    found = snapshot_of_catalog(fleet, ("160000", b"models", commit))

    assert said(found) == {"catalog/models": "is a submodule, which is not followed"}


def test_names_that_no_file_can_safely_have_are_said(fleet: Fleet):
    blob = put(fleet, "blob", MODEL)

    found = snapshot_of_catalog(
        fleet,
        ("100644", b"..", blob),
        ("100644", b"a/../../../b.yaml", blob),
        ("100644", b"caf\xe9.yaml", blob),
        ("100644", b"good.yaml", blob),
        ("100644", b"two\nlines.yaml", blob),
        ("100644", b"\x1b[2Jclear.yaml", blob),
    )

    assert said(found) == {
        "catalog/..": "has a name no file can safely have",
        "catalog/a/../../../b.yaml": "has a name no file can safely have",
        "catalog/caf\\xe9.yaml": "has a name that is not UTF-8",
        "catalog/two\\nlines.yaml": "has a name no file can safely have",
        "catalog/\\x1b[2Jclear.yaml": "has a name no file can safely have",
    }
    assert list(found.files) == ["catalog/good.yaml"]


def test_names_of_other_alphabets_and_with_spaces_are_names(fleet: Fleet):
    fleet.push({"catalog/modèle 你好.yaml": MODEL})

    assert "catalog/modèle 你好.yaml" in follow(fleet).poll().files


def test_a_file_where_a_folder_belongs_is_said(fleet: Fleet):
    fleet.push({"keys": b"k", "server.yaml": None})
    fleet.push({"server.yaml/x.yaml": b"x"})

    assert said(follow(fleet).poll()) == {
        "keys": "is a file, and a folder belongs there",
        "server.yaml": "is a folder",
    }


def test_a_tree_that_holds_itself_many_times_over_is_refused(fleet: Fleet):
    inner = put(fleet, "tree", raw(("100644", b"a.yaml", put(fleet, "blob", MODEL))))
    for _ in range(6):
        inner = put(fleet, "tree", raw(*(("40000", b"d%d" % n, inner) for n in range(10))))

    with pytest.raises(Refused, match="was not read"):
        snapshot_of_catalog(fleet, ("40000", b"bomb", inner))


def test_folders_deeper_than_anybody_needs_are_said(fleet: Fleet):
    inner = put(fleet, "tree", raw(("100644", b"a.yaml", put(fleet, "blob", MODEL))))
    for _ in range(20):
        inner = put(fleet, "tree", raw(("40000", b"d", inner)))

    found = snapshot_of_catalog(fleet, ("40000", b"d", inner))

    assert list(said(found).values()) == ["is more than 16 folders deep"]
    assert found.files == {}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("tree {tree}\n\nno author at all", id="no author"),
        pytest.param(
            "tree {tree}\nauthor A <a> 99999999999999999 +0000\ncommitter A <a> 99999999999999999 +0000\n",
            id="a time past all calendars, no message",
        ),
        pytest.param(
            "tree {tree}\nauthor \udcff <\udcff> 5 +0000\ncommitter B <b> 5 +0000\n\n\udcff\udcfe", id="not UTF-8"
        ),
    ],
)
def test_a_commit_that_lacks_what_commits_have_is_read_all_the_same(fleet: Fleet, text: str):
    tree = fleet.bare("rev-parse", "main^{tree}")
    commit = put(fleet, "commit", text.format(tree=tree).encode("utf-8", "surrogateescape"))
    (fleet.path / "refs/heads/main").write_text(commit + "\n")

    found = follow(fleet).poll()

    assert found.commit == commit
    assert 0 <= found.committed_at < 253_402_300_800
    assert "catalog/a.yaml" in found.files


def test_content_that_is_not_text_is_handed_on_byte_by_byte(fleet: Fleet):
    fleet.clone("config", "core.autocrlf", "true")
    data = b"\xef\xbb\xbfname: a\r\n\x00\xff"
    fleet.clone.write({".gitattributes": b"*.yaml -text\n"})
    fleet.push({"catalog/a.yaml": data})

    assert follow(fleet).poll().files["catalog/a.yaml"].data == data
