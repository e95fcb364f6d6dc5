"""`llmgw init`: a new fleet repository that is valid as it stands."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import llmgw
from llmgw.catalog import schema
from llmgw.cli.program import called
from llmgw.errors import Refused

_SERVER = """\
# yaml-language-server: $schema=schema/server.schema.json
# The fleet. Every machine that may run models is a node here.
schema: 1
cluster: {cluster}   # the status branch is llmgw/status/{cluster}

nodes:
  # This machine, for `llmgw up`. For another one run `llmgw key new node NAME`
  # and write down the hash that it prints:
  #   - {{name: n1, address: 10.0.0.5, key_sha256: …}}
  - name: here
    address: 127.0.0.1

gateways:
  - name: here

mirror:
  base: http://127.0.0.1:8081   # where nodes get weights
  api: http://127.0.0.1:8082    # where control asks for them
"""

_MODEL = """\
# yaml-language-server: $schema=../schema/model.schema.json
# One model. To make it your own: copy this file, and change `name`, `source`,
# `context_length` and what one replica needs. The file's name means nothing.
name: smollm2-135m
description: A very small model that answers on any machine. Good for trying things out.
source:
  # The URL of one GGUF file. With a commit in it the file cannot change.
  from: https://huggingface.co/bartowski/SmolLM2-135M-Instruct-GGUF/resolve/09816acd5d99df7be770d85ea30822623dab342c/SmolLM2-135M-Instruct-Q4_K_M.gguf
  version: q4-k-m               # give other files another version
  # Of exactly that file. With another `from` write its own, or take this line out:
  # then what arrives is taken as it is.
  sha256: 2e8040ceae7815abe0dcb3540b9995eaa1fa0d2ca9e797d0a635ae4433c68c2d
context_length: 2048            # tokens one request may use, prompt and answer together

profiles:
  - name: cpu
    engine: llamacpp
    replicas: 1
    parallel: 2                 # requests at the same time
    memory_gib: 1
    cpu_cores: 1
  # The same model on a card, filled before the CPUs. `llmgw status` lists the classes.
  # - name: gpu
  #   engine: llamacpp
  #   gpu: {class: l40s-48g, count: 1}
  #   replicas: 1
  #   parallel: 8
  #   priority: 200
  #   memory_gib: 2
"""

_README = """\
# The fleet {cluster}

What runs is what this repository says: `server.yaml` names the machines, and each
file in `catalog/` is a model. Nothing else is changed by hand.

| to | do |
|---|---|
| see whether it is valid | `llmgw validate` |
| run all of it on this machine | `llmgw up .` |
| change how many replicas run | edit `replicas` in the model's file, and commit |
| stop a model and keep it | write `state: stopped` in its file, and commit |
| see what a change would do | `llmgw plan` |
| see what is | `llmgw status`, or the branch `llmgw/status/{cluster}` |
| have every commit checked first | `git config core.hooksPath hooks` |

`schema/` is for editors; `llmgw schema --write` renews it after an update of llmgw.
No secret belongs in here: keys are written down by their hash.
"""

_IGNORED = """\
# No secret belongs in this repository.
*.key
*.pem
.env
.llmgw/
"""

_EDITOR = {
    "yaml.schemas": {
        "./schema/server.schema.json": "server.yaml",
        "./schema/model.schema.json": ["catalog/**/*.yaml", "catalog/**/*.yml"],
        "./schema/keys.schema.json": "keys/*.yaml",
    },
    "yaml.yamlVersion": "1.2",
    "files.encoding": "utf8",
}
_EXTENSIONS = {"recommendations": ["redhat.vscode-yaml"]}


CI = {
    "github": (".github/workflows/llmgw.yml", "github.yml"),
    "gitea": (".gitea/workflows/llmgw.yml", "gitea.yml"),
    "gitlab": (".gitlab-ci.yml", "gitlab.yml"),
}
"""Where each server looks for its jobs, and which file of hooks/ci that is. Forgejo reads Gitea's."""


class Ci(StrEnum):
    """The git server whose CI plans pull requests."""

    GITHUB = "github"
    GITEA = "gitea"
    GITLAB = "gitlab"
    NONE = "none"


def hook(name: str) -> str:
    """A file of hooks/: beside the package in a checkout, inside it when installed."""
    package = Path(llmgw.__file__).parent
    root = next(p for p in (package / "hooks", package.parent / "hooks") if p.is_dir())
    return (root / name).read_text(encoding="utf-8")


def files(cluster: str, ci: Iterable[Ci] = (Ci.GITHUB,)) -> dict[str, str]:
    """Every file of a new fleet repository, by path."""
    jobs = (CI[name] for name in ci if name is not Ci.NONE)
    return {
        **{path: hook(f"ci/{name}") for path, name in jobs},
        "hooks/pre-commit": hook("pre-commit"),
        ".gitignore": _IGNORED,
        ".vscode/extensions.json": _pretty(_EXTENSIONS),
        ".vscode/settings.json": _pretty(_EDITOR),
        "README.md": _README.format(cluster=cluster),
        "catalog/smollm2-135m.yaml": _MODEL,
        "server.yaml": _SERVER.format(cluster=cluster),
        **{f"schema/{name}": text for name, text in schema.documents().items()},
    }


def init(
    directory: Annotated[Path, typer.Argument(help="A new directory, or one with nothing but .git in it.")],
    ci: Annotated[
        list[Ci] | None, typer.Option(help="Whose CI says in a pull request what it would do; else GitHub's.")
    ] = None,
) -> None:
    """Write a new fleet repository that is valid as it stands."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        there = sorted(path.name for path in directory.iterdir() if path.name != ".git")
        if there:
            shown = ", ".join(there[:3])
            raise Refused(f"{directory} is not empty", why=f"it has {shown} in it", do="name a new directory")
        for name, text in files("home", ci or (Ci.GITHUB,)).items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            if text.startswith("#!"):
                path.chmod(0o755)
    except OSError as e:
        raise Refused(f"{directory} was not written", why=str(e.strerror), do="name another directory") from None
    print(f"wrote a fleet of one machine and one small model to {directory}")
    print("next:")
    here = shlex.quote(str(directory))
    if not (directory / ".git").exists():
        print(f"  git -C {here} init -b main && git -C {here} add . && git -C {here} commit -m 'A new fleet'")
    print(f"  {called()} validate {here}")
    print(f"  {called()} up {here}")


def _pretty(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"
