"""`llmgw lock` and `llmgw validate --online`, as a person and as CI run them, against a hub."""

from __future__ import annotations

import json
import shutil
import socket
from itertools import permutations
from pathlib import Path

import pytest
from catalog.written import MODEL, SERVER, as_yaml, changed

from fakes.gguf_bytes import gguf_header
from fakes.hub import TOKEN, Answer, Sized
from fakes.real_git import Git
from llmgw.catalog.check import read_lock
from llmgw.cli.main import run
from llmgw.errors import Exit

REPO = "org/coder-GGUF"
WEIGHTS = Sized(gguf_header(), 5_000_000_000)


def model(name: str, written: str, version: str | None = "v1", **source) -> bytes:
    """A model of the catalog with this source."""
    words = {"from": written, **({"version": version} if version else {}), **source}
    return as_yaml(changed(MODEL, (("name",), name), (("aliases",), [f"{name}-alias"]), (("source",), words)))


class Site:
    """A working copy, and the commands in it."""

    def __init__(self, root: Path, endpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.endpoint, self._capsys = root, endpoint, capsys
        self.put("server.yaml", as_yaml(SERVER))

    def put(self, path: str, data: bytes) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes(data)

    def lock(self, *words: str) -> tuple[int, str]:
        code = run(["lock", *words, "--repo", str(self.root), "--hub", self.endpoint])
        said = self._capsys.readouterr()
        return int(code), said.out + said.err

    def validate(self, *words: str) -> tuple[int, str]:
        code = run(["validate", str(self.root), *words, *(["--hub", self.endpoint] if "--online" in words else [])])
        return int(code), self._capsys.readouterr().out

    def locked(self, name: str = "coder"):
        path = f"locks/{name}.yaml"
        return read_lock(path, (self.root / path).read_bytes()).entry.lock


@pytest.fixture
def site(hub, tmp_path, capsys, monkeypatch):
    """With one model of the hub, not locked yet."""
    for name in ("HF_ENDPOINT", "HF_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    hub.put(REPO, {"coder-Q4_K_M.gguf": WEIGHTS}, license="mit", base_model="org/coder")
    made = Site(tmp_path / "fleet", hub.endpoint, capsys)
    made.put("catalog/coder.yaml", model("coder", f"hf://{REPO}@main/*Q4_K_M*.gguf"))
    return made


def test_a_model_is_locked_and_then_valid(site, hub):
    commit = hub.repositories[REPO].refs["main"]
    assert site.validate()[0] == Exit.PROBLEM

    assert site.lock() == (
        Exit.DONE,
        f"coder: locked: at {commit[:12]}, 1 file, 5.0 GB\n1 locked, 0 as they were\n",
    )

    assert site.validate() == (Exit.DONE, "no problems: 1 model, 2 nodes, 0 keys\n")
    lock = site.locked()
    assert (lock.commit, lock.license, lock.base_model, lock.facts["layers"]) == (commit, "mit", "org/coder", 2)
    assert (lock.files[0].path, lock.files[0].bytes) == ("coder-Q4_K_M.gguf", 5_000_000_000)


def test_what_is_locked_is_left_alone_and_asked_of_nobody(site, hub):
    site.lock()
    before = site.root.joinpath("locks/coder.yaml").stat().st_mtime_ns
    hub.put(REPO, {"coder-Q4_K_M.gguf": Sized(gguf_header(), 6_000_000_000)})
    hub.asked.clear()

    assert site.lock() == (Exit.DONE, "1 as they were\n")
    assert hub.asked == []
    assert site.root.joinpath("locks/coder.yaml").stat().st_mtime_ns == before


def test_a_lock_that_is_named_is_read_anew_and_stays_at_its_commit(site, hub):
    site.lock()
    first = site.locked()
    hub.put(REPO, {"coder-Q4_K_M.gguf": Sized(gguf_header(), 6_000_000_000)}, license="other")

    assert site.lock("coder-alias")[0] == Exit.DONE

    assert site.locked().commit == first.commit
    assert site.locked().files == first.files
    assert site.locked().license == "other"


def test_a_new_version_is_what_the_branch_is_now(site, hub):
    site.lock()
    later = hub.put(REPO, {"coder-Q4_K_M.gguf": Sized(gguf_header(), 6_000_000_000)})
    site.put("catalog/coder.yaml", model("coder", f"hf://{REPO}@main/*Q4_K_M*.gguf", "v2"))
    assert site.lock("--check")[0] == Exit.PROBLEM

    assert site.lock()[0] == Exit.DONE

    assert site.locked().commit == later
    assert site.lock("--check") == (Exit.DONE, "no problems: 1 lock\n")


def test_check_opens_no_connection(site, monkeypatch):
    def refuse(*_: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)

    code, out = site.lock("--check")

    assert code == Exit.PROBLEM
    assert out == (
        "catalog/coder.yaml:12:11: the revision of coder moves\n"
        "  because main may be another commit tomorrow, and nothing says which one was meant\n"
        "  next: pin it: llmgw lock coder\n"
        "1 problem\n"
    )


def test_one_that_cannot_be_locked_keeps_none_of_the_others(site, hub):
    site.put("catalog/gone.yaml", model("gone", "hf://org/none"))

    code, out = site.lock()

    assert code == Exit.REFUSED
    assert site.locked().commit
    assert not (site.root / "locks/gone.yaml").exists()
    assert "gone: failed: hf://org/none@main is not there\n  because " in out
    assert out.endswith("1 locked, 1 failed, 0 as they were\n")


def test_a_hub_that_is_away_is_exit_3_and_one_that_refuses_is_4(site, hub):
    assert run(["lock", "--repo", str(site.root), "--hub", "http://127.0.0.1:1"]) == Exit.UNREACHABLE
    hub.repositories[REPO].gated = "manual"
    assert site.lock()[0] == Exit.REFUSED


def test_a_gated_model_is_locked_with_a_token_from_a_file(site, hub, tmp_path, monkeypatch):
    hub.repositories[REPO].gated = "manual"
    (tmp_path / "token").write_text(f"{TOKEN}\n")

    code, out = site.lock("--token-file", str(tmp_path / "token"))

    assert code == Exit.DONE
    assert "5.0 GB, gated" in out
    assert TOKEN not in (site.root / "locks/coder.yaml").read_text()
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "token"))
    assert site.lock("coder")[0] == Exit.DONE


def test_the_endpoint_may_come_from_the_environment(site, hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", f"{hub.endpoint}/")

    assert run(["lock", "--repo", str(site.root)]) == Exit.DONE
    assert site.locked().commit


def test_every_form_of_source_is_locked(site, hub, tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_header() + bytes(1000))
    size = path.stat().st_size
    site.put("catalog/url.yaml", model("url", hub.url(REPO, "coder-Q4_K_M.gguf")))
    site.put("catalog/file.yaml", model("file", path.as_uri()))
    site.put("catalog/path.yaml", model("path", str(path), None))

    assert site.lock()[0] == Exit.DONE

    (url,) = site.locked("url").files
    assert (url.path, url.bytes, url.sha256) == ("coder-Q4_K_M.gguf", 5_000_000_000, site.locked().files[0].sha256)
    for name in ("file", "path"):
        assert [(f.path, f.bytes) for f in site.locked(name).files] == [("m.gguf", size)]
        assert site.locked(name).facts["architecture"] == "llama"


def test_a_path_that_is_not_here_is_left_and_said(site):
    site.put("catalog/path.yaml", model("path", "/nowhere/m.gguf", None))

    code, out = site.lock()

    assert code == Exit.DONE
    assert "path: left: not locked: no such file or directory; lock where the file is" in out
    assert site.lock("path")[0] == Exit.REFUSED


def test_a_model_that_is_read_with_something_wrong_is_said_to_be_so_and_not_to_be_missing(site):
    server = (site.root / "server.yaml").read_bytes()
    site.put("server.yaml", server + b"defaults: {owner: 7}\n")

    code, out = site.lock("coder")

    assert code == Exit.REFUSED
    assert "coder cannot be locked\n  because server.yaml:" in out


def test_a_form_that_nobody_looks_at_yet_is_left_and_said(site):
    site.put("catalog/bucket.yaml", model("bucket", "s3://bucket/m.gguf"))

    code, out = site.lock()

    assert code == Exit.DONE
    assert "bucket: left: not locked: there is no client for its scheme yet" in out
    assert site.validate("--online")[0] == Exit.DONE


def test_a_sum_that_the_source_writes_is_held_against_what_is_there(site, hub):
    url = hub.url(REPO, "coder-Q4_K_M.gguf")
    site.put("catalog/coder.yaml", model("coder", url, sha256="ab" * 32))

    code, out = site.lock()

    assert code == Exit.REFUSED
    assert "its source says sha256 abababababab…" in out


def test_the_lock_of_a_model_that_is_gone_is_removed(site):
    site.lock()
    site.put("catalog/coder.yaml", model("other", f"hf://{REPO}@main/*Q4_K_M*.gguf"))

    code, out = site.lock()

    assert code == Exit.DONE
    assert "coder: removed: no model has this name any more\n" in out
    assert not (site.root / "locks/coder.yaml").exists()


def test_while_a_file_cannot_be_read_no_lock_is_removed(site):
    site.lock()
    site.put("catalog/coder.yaml", b"name: [")

    assert site.lock()[0] == Exit.DONE
    assert (site.root / "locks/coder.yaml").exists()


def test_a_model_with_problems_is_not_locked_and_says_where_they_are(site):
    site.put("catalog/coder.yaml", model("coder", f"hf://{REPO}").replace(b'"running"', b'"runing"'))

    code, out = site.lock("coder")

    assert code == Exit.REFUSED
    assert "catalog/coder.yaml:" in out
    assert site.lock("codr")[0] == Exit.REFUSED


def test_programs_get_a_list(site, hub):
    code = site.lock("--json")

    (one,) = json.loads(code[1])
    assert (one["model"], one["state"], one["path"], one["files"]) == ("coder", "locked", "locks/coder.yaml", 1)
    assert one["commit"] == hub.repositories[REPO].refs["main"]


def test_a_link_in_place_of_the_folder_is_not_written_through(site, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (site.root / "locks").symlink_to(tmp_path / "elsewhere")

    assert site.lock()[0] == Exit.REFUSED
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.needs_git
@pytest.mark.parametrize("order", list(permutations(["one", "two"])), ids="-".join)
def test_two_pull_requests_that_add_a_model_each_merge_in_either_order(site, hub, order):
    git = Git(site.root)
    git("init", "--template=", "-b", "main", ".")
    git("config", "user.name", "Ana")
    git("config", "user.email", "ana@lab")
    site.lock()
    git("add", ".")
    git("commit", "-m", "A fleet")
    for name in ("one", "two"):
        git("checkout", "-b", name, "main")
        site.put(f"catalog/{name}.yaml", model(name, f"hf://{REPO}@main/*.gguf"))
        assert site.lock()[0] == Exit.DONE
        git("add", ".")
        git("commit", "-m", name)
    git("checkout", "main")
    for name in order:
        git("merge", "--no-edit", name)

    assert site.lock("--check") == (Exit.DONE, "no problems: 3 locks\n")
    assert site.validate()[0] == Exit.DONE


def test_online_says_of_each_source_that_it_is_there(site):
    site.lock()
    site.put("catalog/path.yaml", model("path", "/nowhere/m.gguf", None))

    assert site.validate("--online") == (
        Exit.DONE,
        "asked for 1 source; 1 that cannot be looked at from here\nno problems: 2 models, 2 nodes, 0 keys\n",
    )


def test_online_finds_a_typing_error_where_it_is_written(site, hub):
    site.put("catalog/typo.yaml", model("typo", hub.url(REPO, "coder-Q4_K_N.gguf")))
    site.lock("coder")

    code, out = site.validate("--online")

    line = (
        (site.root / "catalog/typo.yaml")
        .read_text()
        .splitlines()
        .index('  "from": "' + hub.url(REPO, "coder-Q4_K_N.gguf") + '",')
    )
    assert code == Exit.PROBLEM
    assert f"catalog/typo.yaml:{line + 1}:" in out
    assert "is not there\n  because it answers 404\n" in out


def test_online_says_what_is_gated_and_what_changed_since_it_was_locked(site, hub):
    site.lock()
    repo = hub.repositories[REPO]
    commit = repo.refs["main"]
    repo.commits[commit] = {}
    assert "matches no weights" in site.validate("--online")[1]

    hub.forget(REPO, commit)
    assert "is gone" in site.validate("--online")[1]

    hub.put(REPO, {"coder-Q4_K_M.gguf": WEIGHTS}, gated="manual")
    site.put("catalog/gated.yaml", model("gated", f"hf://{REPO}@{repo.refs['main']}/coder-Q4_K_M.gguf"))
    assert "is gated" in site.validate("--online")[1]


def test_online_notices_that_a_url_gives_another_file_than_was_locked(site, hub):
    site.put("catalog/coder.yaml", model("coder", hub.url(REPO, "coder-Q4_K_M.gguf")))
    site.lock()
    hub.put(REPO, {"coder-Q4_K_M.gguf": Sized(gguf_header(), 6_000_000_000)})

    code, out = site.validate("--online")

    assert code == Exit.PROBLEM
    assert "locks/coder.yaml:" in out
    assert "coder-Q4_K_M.gguf has 6000000000 bytes\n  because it had 5000000000 when it was locked\n" in out


def test_online_ends_when_its_time_is_over_and_says_who_was_not_asked(site, hub):
    site.lock()
    hub.answers["/revision/"] = [Answer(silent=True)]

    code, out = site.validate("--online", "--within", "1")

    assert code == Exit.UNREACHABLE
    assert "it was not answered for in time\n  because all sources together have 1 s\n" in out


def test_the_first_lock_of_a_fleet_makes_the_folder(site):
    shutil.rmtree(site.root / "locks", ignore_errors=True)

    assert site.lock()[0] == Exit.DONE
    assert (site.root / "locks/coder.yaml").stat().st_mode & 0o777 == 0o644
