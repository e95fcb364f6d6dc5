"""What a mirror refuses to start with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmgw.errors import Refused
from llmgw.mirror.app import MirrorConfig, serve

KEY_SHA = hashlib.sha256(b"key").hexdigest()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "mirror.lan"])
async def test_beyond_loopback_its_api_wants_a_key(tmp_path: Path, host: str):
    config = MirrorConfig(tmp_path / "models", ("127.0.0.1", 0), (host, 0))

    with pytest.raises(Refused) as refused:
        await serve(config)

    assert refused.value.what == f"the management API does not listen on {host} without a key"
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("allowed", [{"api_key_sha256": KEY_SHA}, {"insecure": True}])
async def test_with_one_or_with_insecure_it_listens_there(start: Callable[..., Any], allowed: dict[str, Any]):
    mirror = await start(api=("0.0.0.0", 0), **allowed)

    assert mirror.api.startswith("http://0.0.0.0:")


@pytest.mark.parametrize("key", ["", "abc", KEY_SHA.upper(), KEY_SHA + "0"])
async def test_a_key_that_is_no_sum_is_refused(tmp_path: Path, key: str):
    config = MirrorConfig(tmp_path, ("127.0.0.1", 0), ("127.0.0.1", 0), api_key_sha256=key)

    with pytest.raises(Refused, match="sha256 of the management API's key cannot be used"):
        await serve(config)


async def test_an_address_that_is_not_here_is_refused(tmp_path: Path):
    config = MirrorConfig(tmp_path, ("192.0.2.1", 8081), ("127.0.0.1", 0))

    with pytest.raises(Refused) as refused:
        await serve(config)

    assert refused.value.what == "the mirror's byte port cannot listen on 192.0.2.1:8081"
    assert refused.value.do == "give an address of this machine with --listen"
    assert not (tmp_path / "_state/instance.json").exists()


async def test_it_can_be_served_over_ipv6(start: Callable[..., Any]):
    await start(listen=("::1", 0), api=("::1", 0))
