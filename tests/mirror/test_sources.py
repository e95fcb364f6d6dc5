"""Where the mirror may read from."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from llmgw.errors import Refused
from llmgw.mirror import sources
from llmgw.mirror.sources import Sources
from llmgw_agent.fetch.download import DownloadFailed


@pytest.mark.parametrize(
    "url",
    [
        "https://huggingface.co/a/b/resolve/main/c.gguf",
        "https://HuggingFace.co:443/x",
        "https://huggingface.co./x",
        "https://cdn-lfs-us-1.hf.co/x?sig=1",
        "https://cas-bridge.xethub.hf.co/x",
    ],
)
def test_hugging_face_and_its_cdn_are_allowed_where_nothing_is_said(url: str):
    assert Sources().problem(url) == ""


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://example.org/x", "example.org is not among the hosts"),
        ("https://huggingface.co.evil.org/x", "huggingface.co.evil.org is not among"),
        ("https://evilhuggingface.co/x", "evilhuggingface.co is not among"),
        ("https://hf.co/x", "hf.co is not among"),
        ("https://huggingface.co:8443/x", "start it with --allow-host huggingface.co:8443"),
        ("http://huggingface.co/x", "huggingface.co is read over https only"),
        ("https://huggingface.co@evil.org/x", "it carries a user name"),
        ("https://ana:key@huggingface.co/x", "it carries a user name or a password"),
        ("https://169.254.169.254/latest/meta-data", "169.254.169.254 is not among"),
        ("ftp://huggingface.co/x", "it is none of hf://, https://, http:// and file://"),
        ("hf://a/b", "a file of a hub is named by its commit"),
        ("https://[::1/x", "it is not a URL"),
        ("https://huggingface.co:port/x", "it is not a URL"),
        ("", "it is none of"),
        ("https:///x", "is not among"),
        ("file:///etc/shadow", "the mirror reads no files; start it with --allow-files DIR"),
    ],
)
def test_everything_else_is_not(url: str, said: str):
    assert said in Sources().problem(url)


def test_named_hosts_stand_beside_the_usual_ones_and_may_speak_plain_http():
    allowed = Sources(hosts=["models.corp", "127.0.0.1:8000", "[::1]:8000"])

    assert allowed.problem("http://models.corp/x") == ""
    assert allowed.problem("https://models.corp/x") == ""
    assert allowed.problem("http://127.0.0.1:8000/x") == ""
    assert allowed.problem("http://[::1]:8000/x") == ""
    assert "8001 is not among" in allowed.problem("http://127.0.0.1:8001/x")
    assert allowed.problem("https://huggingface.co/x") == ""
    assert "over https only" in allowed.problem("http://huggingface.co/x"), "nobody named it"


def test_the_usual_hosts_can_be_left_out():
    allowed = Sources(hosts=["models.corp"], usual=False)

    assert allowed.problem("https://models.corp/x") == ""
    assert "not among" in allowed.problem("https://huggingface.co/x")


@pytest.mark.parametrize("host", ["", "http://x", "x/y", "x:port", "a@b", "x?y"])
def test_a_host_that_is_none_is_refused_at_the_start(host: str):
    with pytest.raises(Refused, match="is not a host"):
        Sources(hosts=[host])


class TestFiles:
    """file:// only below what is allowed, wherever links lead."""

    @pytest.fixture
    def allowed(self, tmp_path: Path) -> Sources:
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "m.gguf").touch()
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "secret").touch()
        (tmp_path / "in" / "link").symlink_to(tmp_path / "out" / "secret")
        (tmp_path / "in" / "way").symlink_to(tmp_path / "out")
        (tmp_path / "in" / "fine").symlink_to(tmp_path / "in" / "m.gguf")
        (tmp_path / "door").symlink_to(tmp_path / "in")
        return Sources(folders=[tmp_path / "in"])

    @pytest.mark.parametrize("path", ["in/m.gguf", "in/fine", "door/m.gguf", "in/not-there-yet"])
    def test_below_it(self, allowed: Sources, tmp_path: Path, path: str):
        assert allowed.problem(f"file://{tmp_path}/{path}") == ""

    @pytest.mark.parametrize(
        "path", ["out/secret", "in/link", "in/way/secret", "in/../out/secret", "in/%2e%2e/out/secret", "in-other/x"]
    )
    def test_not_below_it(self, allowed: Sources, tmp_path: Path, path: str):
        problem = allowed.problem(f"file://{tmp_path}/{path}")

        assert problem == f"it is not below {tmp_path}/in; start the mirror with --allow-files DIR"

    @pytest.mark.parametrize("url", ["file://otherhost/x", "file:x", "file:///a%00b"])
    def test_no_file_of_this_machine(self, allowed: Sources, url: str):
        assert "file:// URL names" in allowed.problem(url)


class TestAddresses:
    """Case 26: a name that leads to a metadata service, or into this network."""

    @pytest.fixture
    def resolved(self, monkeypatch: pytest.MonkeyPatch):
        """What the system's resolver would say: the one thing here that no test can have for real."""
        answers: list[str] = []

        def look_up(_: str, port: int) -> list[tuple[int, tuple[str, int]]]:
            return [(socket.AF_INET6 if ":" in ip else socket.AF_INET, (ip, port)) for ip in answers]

        monkeypatch.setattr(sources, "system_addresses", look_up)
        return answers

    @pytest.mark.parametrize(
        "ip",
        [
            "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
            "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1",
            "::ffff:169.254.169.254", "64:ff9b::a00:1", "2002:7f00:1::",
        ],
    )  # fmt: skip
    def test_a_name_that_leads_inside_is_refused(self, resolved: list[str], ip: str):
        resolved += ["8.8.8.8", ip]

        with pytest.raises(DownloadFailed, match="could not be fetched") as failed:
            Sources().addresses("huggingface.co", 443)

        assert failed.value.cause == "refused"
        assert ip in failed.value.why

    @pytest.mark.parametrize("ip", ["8.8.8.8", "2606:4700::1", "64:ff9b::808:808"])
    def test_a_public_one_is_what_is_connected_to(self, resolved: list[str], ip: str):
        resolved.append(ip)

        assert [address[0] for _, address in Sources().addresses("huggingface.co", 443)] == [ip]

    @pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.7", "localhost"])
    def test_an_address_that_somebody_named_is_meant(self, host: str):
        assert Sources(hosts=[host]).addresses(host, 80)
