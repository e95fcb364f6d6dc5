"""Who may ask, and for what."""

from __future__ import annotations

import pytest

from fakes.table_server import hashed, model, table
from llmgw.core.table import TableKey
from llmgw.gateway import keys
from llmgw.gateway.openai import ApiError

KEYS = {
    hashed("sk-ana"): TableKey(name="ana"),
    hashed("sk-bo"): TableKey(name="bo", models=("small", "coder")),
}


def asks(*headers: tuple[str, str], peer: str = "10.0.0.9", known=KEYS, open_to_all: bool = False) -> str:
    def header(name: str) -> list[str]:
        return [value for n, value in headers if n == name]

    return keys.caller(table(keys=known), header, peer=peer, open_to_all=open_to_all).name


@pytest.mark.parametrize(
    "headers",
    [
        [("authorization", "Bearer sk-ana")],
        [("authorization", "bearer   sk-ana ")],
        [("x-api-key", "sk-ana")],
        [("api-key", "sk-ana")],
        [("authorization", "Bearer sk-ana"), ("x-api-key", "sk-ana"), ("api-key", "sk-ana")],
        [("authorization", "Basic eDp5"), ("x-api-key", "sk-ana")],
    ],
)
def test_a_key_is_found_in_any_of_the_three_headers(headers):
    assert asks(*headers) == "ana"


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ([], "carries no key"),
        ([("authorization", "Bearer ")], "carries no key"),
        ([("authorization", "Basic sk-ana")], "carries no key"),
        ([("authorization", "Bearer sk-eve")], "not one of"),
        ([("authorization", "Bearer sk-ana\udcff")], "not one of"),
        ([("authorization", "Bearer sk-ana"), ("x-api-key", "sk-bo")], "several keys"),
        ([("x-api-key", "sk-ana"), ("x-api-key", "sk-eve")], "several keys"),
    ],
)
def test_no_key_a_wrong_one_and_two_that_differ_are_refused(headers, message):
    with pytest.raises(ApiError, match=message) as refused:
        asks(*headers)

    assert refused.value.status == 401
    assert "sk-" not in refused.value.message


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_without_any_keys_this_machine_is_served(peer):
    assert asks(("authorization", "Bearer whatever"), peer=peer, known={}) == ""


@pytest.mark.parametrize(
    ("peer", "headers"),
    [
        pytest.param("10.0.0.9", [], id="another machine"),
        pytest.param("::ffff:10.0.0.9", [], id="another machine, mapped"),
        pytest.param("", [], id="nobody knows"),
        pytest.param("127.0.0.1", [("x-forwarded-for", "10.0.0.9")], id="another machine, by a proxy on this one"),
        pytest.param("127.0.0.1", [("forwarded", "for=10.0.0.9")], id="likewise, in the standard's words"),
    ],
)
def test_without_any_keys_others_are_not_served_unless_open(peer, headers):
    with pytest.raises(ApiError, match="--open"):
        asks(*headers, peer=peer, known={})

    assert asks(*headers, peer=peer, known={}, open_to_all=True) == ""


def test_with_keys_this_machine_needs_one_too_and_open_changes_nothing():
    with pytest.raises(ApiError):
        asks(peer="127.0.0.1", open_to_all=True)


def test_a_key_may_use_the_models_it_names_by_name_or_alias():
    ana, bo = KEYS.values()

    assert keys.allowed(ana, model("big"))
    assert keys.allowed(bo, model("small"))
    assert keys.allowed(bo, model("qwen", aliases=("coder",)))
    assert not keys.allowed(bo, model("big"))
