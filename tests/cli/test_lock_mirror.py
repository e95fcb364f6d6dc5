"""`llmgw lock --via mirror`: the mirror looks, where this machine cannot."""

from __future__ import annotations

import asyncio
import hashlib
from urllib.parse import urlsplit

import pytest
from catalog.written import MODEL, SERVER, as_yaml, changed
from mirror.conftest import serving

from fakes.gguf_bytes import gguf_header
from fakes.hub import TOKEN, Sized
from llmgw.catalog.check import read_lock
from llmgw.cli.main import run
from llmgw.errors import Exit

REPO = "org/coder-GGUF"


@pytest.fixture
async def site(hub, tmp_path):
    """A fleet whose mirror has the token and the folder, and runs with a key."""
    for name, text in (("token", TOKEN), ("key", "k1"), ("wrong", "k2")):
        (tmp_path / name).write_text(text)
    (tmp_path / "src").mkdir()
    hub.put(REPO, {"m-Q4.gguf": Sized(gguf_header(), 5_000_000_000)}, private=True)
    settings = {
        "allow_files": (tmp_path / "src",),
        "allow_hosts": (urlsplit(hub.cdn).netloc,),
        "hub": hub.endpoint,
        "hub_token_file": tmp_path / "token",
        "api_key_sha256": hashlib.sha256(b"k1").hexdigest(),
    }
    async with serving(tmp_path / "models", **settings) as mirror:
        fleet = tmp_path / "fleet"
        (fleet / "catalog").mkdir(parents=True)
        (fleet / "server.yaml").write_bytes(
            as_yaml(changed(SERVER, (("mirror",), {"base": mirror.base, "api": mirror.api})))
        )
        yield fleet


def model(fleet, written: str, version: str | None = "v1") -> None:
    words = {"from": written, **({"version": version} if version else {})}
    (fleet / "catalog/coder.yaml").write_bytes(as_yaml(changed(MODEL, (("source",), words))))


async def lock(fleet, *words: str, key: str = "key") -> int:
    flags = ("--via", "mirror", "--mirror-key-file", str(fleet.parent / key), "--repo", str(fleet))
    return int(await asyncio.to_thread(run, ["lock", *flags, *words]))


def locked(fleet):
    return read_lock("locks/coder.yaml", (fleet / "locks/coder.yaml").read_bytes()).entry.lock


async def test_the_mirror_reads_with_its_own_token(site, hub):
    model(site, f"hf://{REPO}@main/*.gguf")

    assert await lock(site) == Exit.DONE

    assert locked(site).commit == hub.repositories[REPO].refs["main"]
    assert locked(site).facts["architecture"] == "llama"


async def test_a_path_that_the_mirror_sees_is_locked_by_the_mirror(site):
    path = site.parent / "src" / "m.gguf"
    path.write_bytes(gguf_header())
    model(site, str(path), None)

    assert await lock(site, "coder") == Exit.DONE
    assert locked(site).files[0].bytes == len(gguf_header())


async def test_what_the_mirror_refuses_is_refused_in_its_words(site, capsys):
    model(site, "hf://org/none@main/*.gguf")

    assert await lock(site) == Exit.REFUSED
    assert "hf://org/none@main is not there" in capsys.readouterr().out


async def test_a_wrong_key_is_refused(site, capsys):
    model(site, f"hf://{REPO}@main/*.gguf")

    assert await lock(site, key="wrong") == Exit.REFUSED
    assert "the key is missing or wrong" in capsys.readouterr().out


async def test_validate_asks_through_the_mirror_too(site, capsys):
    model(site, f"hf://{REPO}@main/*.gguf")
    await lock(site)
    flags = ["--online", "--via", "mirror", "--mirror-key-file", str(site.parent / "key")]
    capsys.readouterr()

    assert await asyncio.to_thread(run, ["validate", str(site), *flags]) == Exit.DONE
    assert capsys.readouterr().out.startswith("asked for 1 source\n")


@pytest.mark.parametrize(("via", "code"), [("http://127.0.0.1:1", Exit.UNREACHABLE), ("nonsense", Exit.USAGE)])
async def test_a_mirror_that_is_not_there_is_said_to_be(site, via, code):
    model(site, f"hf://{REPO}@main/*.gguf")

    assert await asyncio.to_thread(run, ["lock", "--via", via, "--repo", str(site)]) == code
