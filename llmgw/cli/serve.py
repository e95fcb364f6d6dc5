"""`llmgw control`, `llmgw gateway` and `llmgw mirror serve`: each runs one process until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import typer

from llmgw.net.listen import parse_address
from llmgw.sources.access import Access, OnRewrite, Verify
from llmgw_agent.log import setup

log = logging.getLogger("llmgw")

Level = Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")]


def control(
    repo: Annotated[
        list[str],
        typer.Option(
            help="The fleet's repository: a path, file://, http(s):// or ssh. May be repeated: the next is followed "
            "while the ones before are away. The status goes to the first."
        ),
    ],
    cluster: Annotated[str, typer.Option(help="The fleet's name, as server.yaml has it.")],
    state: Annotated[Path, typer.Option(help="A folder for caches; nothing in it is missed.")],
    branch: Annotated[str, typer.Option(help="The branch that is followed.")] = "main",
    worktree: Annotated[
        bool, typer.Option("--worktree", help="Follow the files of a working copy as they are, uncommitted ones too.")
    ] = False,
    listen: Annotated[str, typer.Option(help="HOST:PORT for agents, gateways and operators.")] = "127.0.0.1:8083",
    local_keys: Annotated[Path | None, typer.Option(help="Hashes of keys that are not in server.yaml.")] = None,
    git_token_file: Annotated[
        Path | None, typer.Option(help="Holds the token for the repository. Or LLMGW_GIT_TOKEN.")
    ] = None,
    git_ssh_key_file: Annotated[Path | None, typer.Option(help="The private key for a repository over ssh.")] = None,
    git_known_hosts: Annotated[
        Path | None, typer.Option(help="Keys of the hosts that are believed over ssh; else those that ssh knows.")
    ] = None,
    git_proxy: Annotated[
        str | None, typer.Option(help="Where http(s) goes through. Or HTTPS_PROXY and NO_PROXY.")
    ] = None,
    verify: Annotated[
        Verify, typer.Option(help="Whose signature a commit needs: the last one's, or every one's since the last.")
    ] = Verify.OFF,
    signers: Annotated[
        list[Path] | None,
        typer.Option(help="Whose signatures count: allowed signers of ssh, or OpenPGP public keys. May be repeated."),
    ] = None,
    revoked_signers: Annotated[Path | None, typer.Option(help="SSH keys that count no more.")] = None,
    on_rewrite: Annotated[
        OnRewrite, typer.Option(help="Whether a branch whose history was made anew is followed.")
    ] = OnRewrite.FOLLOW,
    hook_secret_file: Annotated[
        Path | None, typer.Option(help="Holds what git servers sign their calls of /hooks/git with.")
    ] = None,
    notify_dir: Annotated[
        Path | None, typer.Option(help="Holds the URLs and programs that notifications of server.yaml name.")
    ] = None,
    mirror_key_file: Annotated[Path | None, typer.Option(help="Holds the key for the mirror's API.")] = None,
    status_sign_key: Annotated[
        Path | None, typer.Option(help="The private SSH key that commits of the status are signed with.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate to listen with.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Listen beyond loopback without TLS.")] = False,
    poll: Annotated[float, typer.Option(help="Seconds between looks at the repository.", min=1)] = 30.0,
    log_level: Level = "info",
) -> None:
    """Run control: follow the repository, and make the fleet as it asks."""
    from llmgw.control.app import DEFAULT_PORT, ControlConfig, serve
    from llmgw.sources.signatures import Signers

    setup(log_level)
    config = ControlConfig(
        repo=repo[0],
        also=tuple(repo[1:]),
        cluster=cluster,
        state=state,
        branch=branch,
        mode="worktree" if worktree else "head",
        listen=parse_address(listen, port=DEFAULT_PORT),
        local_keys=local_keys,
        access=Access(
            token_file=git_token_file,
            token=os.environ.get("LLMGW_GIT_TOKEN") or None,
            proxy=git_proxy or _proxy(repo[0]),
            ssh_key_file=git_ssh_key_file,
            known_hosts_file=git_known_hosts,
        ),
        verify=verify,
        signers=Signers(tuple(signers or ()), revoked_signers) if signers else None,
        on_rewrite=on_rewrite,
        hook_secret_file=hook_secret_file,
        notify_dir=notify_dir,
        mirror_key_file=mirror_key_file,
        status_sign_key=status_sign_key,
        tls_cert=tls_cert,
        tls_key=tls_key,
        insecure=insecure,
        poll_s=poll,
    )
    asyncio.run(serve(config, ready=lambda at: _listening("control", at)))


def _proxy(repo: str) -> str | None:
    """Where the environment has this address go through, as other programs take it."""
    parts = urlsplit(repo)
    if parts.scheme not in ("http", "https") or proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)


def gateway(
    control: Annotated[str, typer.Option(help="Where control is: http(s)://HOST:PORT.")],
    name: Annotated[str, typer.Option(help="This gateway's name, as server.yaml has it.")],
    key_file: Annotated[Path, typer.Option(help="Holds its key.")],
    state: Annotated[Path, typer.Option(help="A folder for the last table.")],
    listen: Annotated[str, typer.Option(help="HOST:PORT for clients.")] = "127.0.0.1:8080",
    open_to_all: Annotated[
        bool, typer.Option("--open", help="Serve other machines while there are no client keys.")
    ] = False,
    ca_file: Annotated[Path | None, typer.Option(help="Certificates to trust for control.")] = None,
    log_level: Level = "info",
) -> None:
    """Run a gateway: one OpenAI-compatible endpoint for every model of the fleet."""
    from llmgw.gateway.app import GatewayConfig, serve

    setup(log_level)
    config = GatewayConfig(
        control=control,
        name=name,
        key_file=key_file,
        state=state,
        listen=parse_address(listen, port=8080),
        open=open_to_all,
        ca_file=ca_file,
    )
    asyncio.run(serve(config, ready=lambda at: _listening("gateway", at)))


def mirror(
    root: Annotated[Path, typer.Option(help="Where versions are kept: one filesystem with room for all.")],
    listen: Annotated[str, typer.Option(help="HOST:PORT where nodes get bytes.")] = "127.0.0.1:8081",
    api: Annotated[str, typer.Option(help="HOST:PORT where control asks.")] = "127.0.0.1:8082",
    allow_files: Annotated[
        list[Path] | None, typer.Option(help="A folder below which file:// sources may be. May be repeated.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A host to fetch from, beside Hugging Face's. May be repeated.")
    ] = None,
    no_usual_hosts: Annotated[
        bool, typer.Option("--no-usual-hosts", help="Fetch from no host of Hugging Face that is not named.")
    ] = False,
    hub: Annotated[str | None, typer.Option(help="Where hf:// leads. Or HF_ENDPOINT; else Hugging Face.")] = None,
    hub_token_file: Annotated[Path | None, typer.Option(help="Holds the token for the hub.")] = None,
    api_key_sha256: Annotated[str | None, typer.Option(help="sha256 of the key that the API asks for.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Open the API beyond loopback without a key.")] = False,
    log_level: Level = "info",
) -> None:
    """Run the mirror: fetch versions of weights when asked to, and serve their bytes."""
    from llmgw.mirror.app import MirrorConfig, serve
    from llmgw.sources.hub import ENDPOINT

    setup(log_level)
    config = MirrorConfig(
        root=root,
        listen=parse_address(listen, port=8081),
        api=parse_address(api, port=8082),
        allow_files=tuple(allow_files or ()),
        allow_hosts=tuple(allow_host or ()),
        usual_hosts=not no_usual_hosts,
        hub=hub or os.environ.get("HF_ENDPOINT") or ENDPOINT,
        hub_token_file=hub_token_file,
        api_key_sha256=api_key_sha256,
        insecure=insecure,
    )
    asyncio.run(serve(config, ready=lambda at: _listening("mirror", at["api"])))


def _listening(who: str, address: tuple[str, int]) -> None:
    log.info("%s listens on %s:%d", who, *address)
