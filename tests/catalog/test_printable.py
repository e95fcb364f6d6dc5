"""What a plan may print of the files: what is listed, and nothing that was forgotten."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from llmgw.catalog.model import Model
from llmgw.catalog.planned import types_in
from llmgw.catalog.printable import PRINTABLE, is_printable, public_url, shown
from llmgw.catalog.server import Server

KEPT_BACK = {
    "source.token_ref",
    "external.base_url",
    "external.key_ref",
    "profile.command",
    "profile.env",
    "profile.env_from",
    "parameters.set",
    "server.yaml.defaults",
    "server.yaml.blocks",
    "server.yaml.notifications",
    "node.key_sha256",
    "node.ssh",
    "caller.key_sha256",
    "mirror.base",
    "mirror.api",
    "mirror.former_bases",
    "engine build.from",
}
"""Fields whose values are never printed: they are, or may carry, what lets somebody in."""


def types(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A type, and every type of what is in it that may be printed."""
    yield kind
    for name, field in kind.model_fields.items():
        if (field.alias or name) in PRINTABLE.get(str(kind.model_config["title"]), ()):
            for inner in types_in(field.annotation):
                yield from types(inner)


def test_each_field_is_listed_as_printable_or_kept_back_on_purpose() -> None:
    every = {
        f"{kind.model_config['title']}.{field.alias or name}"
        for top in (Model, Server)
        for kind in types(top)
        for name, field in kind.model_fields.items()
    }
    listed = {f"{title}.{key}" for title, keys in PRINTABLE.items() for key in keys}

    assert every - listed == KEPT_BACK & every
    assert listed - every == set(), "no field is listed that there is not"
    assert every >= KEPT_BACK


@pytest.mark.parametrize(
    ("way", "printed"),
    [
        (("profiles", "a.b", "replicas"), True),
        (("profiles", "cpu", "env", "TOKEN"), False),
        (("routing", "parameters", "set", "api_key"), False),
        (("a field of tomorrow",), False),
        (("profiles", "cpu", "a field of tomorrow"), False),
    ],
)
def test_a_field_is_printed_only_when_it_is_listed(way, printed) -> None:
    assert is_printable(way) is printed


@pytest.mark.parametrize(
    ("args", "printed"),
    [
        (["--jinja", "-ngl", "99"], True),
        (["--override-kv", "a=int:3", "/models/a-very-long-path/to/a-file-Q4_K_M.gguf"], True),
        (["--hf-token", "x"], False),
        (["-H", "Authorization: x"], False),
        (["--x", "ghp0123456789abcdefghij0123456789"], False),
    ],
)
def test_arguments_that_look_like_secrets_are_not_printed(args, printed) -> None:
    assert shown(("profiles", "cpu", "args"), args) == ((args, True) if printed else (None, False))


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("https://me:pass@host/m.gguf?sig=x", "https://…@host/m.gguf?…"),
        ("hf://org/name@main/*Q4*.gguf", "hf://org/name@main/*Q4*.gguf"),
        ("/models/m.gguf", "/models/m.gguf"),
        ("s3://bucket/key", "s3://bucket/key"),
    ],
)
def test_a_url_is_printed_without_who_asks_and_without_its_query(url, public) -> None:
    assert public_url(url) == public
