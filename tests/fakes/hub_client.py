"""What the Hugging Face client itself makes of a hub: run as a program, since it reads its settings at import.

It is called with an endpoint and a token, and prints one JSON object of what each call gave.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_download, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError


def main() -> None:
    endpoint, token = sys.argv[1:]
    api, known = HfApi(endpoint=endpoint, token=False), HfApi(endpoint=endpoint, token=token)
    repo = "org/model-GGUF"

    def metadata(path: str) -> Any:
        url = hf_hub_url(repo, path, endpoint=endpoint)
        found = get_hf_file_metadata(url, endpoint=endpoint, token=False)
        return [found.commit_hash, found.etag, found.size]

    def downloaded(path: str) -> Any:
        with TemporaryDirectory() as folder:
            where = hf_hub_download(repo, path, endpoint=endpoint, cache_dir=folder, token=token)
            return Path(where).stat().st_size

    def search(**asked: Any) -> Any:
        return [found.id for found in api.list_models(**asked)]

    def refs() -> Any:
        found = api.list_repo_refs(repo)
        return [[branch.name for branch in found.branches], [tag.name for tag in found.tags]]

    def blobs() -> Any:
        siblings = api.model_info(repo, files_metadata=True).siblings or []
        return {s.rfilename: [s.size, s.lfs.sha256 if s.lfs else None] for s in siblings}

    def expanded() -> Any:
        found = api.model_info(repo, expand=["gated", "cardData", "gguf", "sha"])
        return [found.sha, found.gated, found.card_data.get("license"), found.gguf]

    calls: dict[str, Callable[[], Any]] = {
        "info": lambda: api.model_info(repo).sha,
        "info of a tag": lambda: api.model_info(repo, revision="v1").sha,
        "blobs": blobs,
        "expand": expanded,
        "tree": lambda: {f.path: getattr(f, "size", None) for f in api.list_repo_tree(repo, recursive=True)},
        "paths": lambda: [f.lfs.sha256 for f in api.get_paths_info(repo, ["model.gguf"])],
        "refs": refs,
        "large": lambda: metadata("model.gguf"),
        "small": lambda: metadata("config.json"),
        "download": lambda: downloaded("model.gguf"),
        "exists": lambda: api.file_exists(repo, "none.gguf"),
        "filter": lambda: search(filter="gguf", sort="downloads", limit=2),
        "pages": lambda: len(search(search="page", limit=25)),
        "author": lambda: search(author="org", sort="created_at"),
        "who": lambda: known.whoami()["name"],
        "gated": lambda: get_hf_file_metadata(hf_hub_url("org/gated", "m.gguf", endpoint=endpoint), token=False).etag,
        "gated, known": lambda: (
            get_hf_file_metadata(hf_hub_url("org/gated", "m.gguf", endpoint=endpoint), token=token).size
        ),
        "private": lambda: api.model_info("org/private").sha,
        "private, known": lambda: known.model_info("org/private").id,
        "gone": lambda: known.model_info("org/none").id,
        "revision": lambda: api.model_info(repo, revision="none").id,
        "entry": lambda: metadata("none.gguf"),
        "disabled": lambda: api.model_info("org/disabled").id,
        "limited": lambda: api.model_info("org/limited").id,
        "moved": lambda: api.model_info("org/old").id,
    }
    found: dict[str, Any] = {}
    for name, call in calls.items():
        try:
            found[name] = call()
        except HfHubHTTPError as e:
            found[name] = type(e).__name__
    print(json.dumps(found))  # noqa: T201 - it is what the test reads


if __name__ == "__main__":
    main()
