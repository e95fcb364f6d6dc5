"""Bytes from the mirror, beside nginx serving the same file."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from bench.gateway import free_port, listens, spent
from bench.row import Row

SIZE = 512 << 20


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        version = root / "mirror/m/1"
        version.mkdir(parents=True)
        block = hashlib.sha256(b"block").digest() * 32768
        with (version / "m.gguf").open("wb") as file:
            file.write(b"GGUF\x03\x00\x00\x00" + block[8:])
            for _ in range(SIZE // len(block) - 1):
                file.write(block)
        ours = asyncio.run(_ours(root))
        theirs = asyncio.run(_theirs(root)) if shutil.which("nginx") else None
        yield Row("mirror: a gigabyte served", ours, "s CPU", "nginx" if theirs else "", theirs)


async def _ours(root: Path) -> float:
    port = free_port()
    words = ("--root", str(root / "mirror"), "--listen", f"127.0.0.1:{port}", "--api", f"127.0.0.1:{free_port()}")
    return await _cost([sys.executable, "-m", "llmgw", "mirror", "serve", *words], port, "/m/1/m.gguf")


async def _theirs(root: Path) -> float:
    port = free_port()
    config = root / "nginx.conf"
    config.write_text(
        f"worker_processes 1; daemon off; pid {root}/pid; error_log /dev/null; user root;\nevents {{}}\n"
        f"http {{ access_log off; sendfile on; client_body_temp_path {root}/b; proxy_temp_path {root}/p;\n"
        f"fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;\n"
        f"server {{ listen 127.0.0.1:{port}; root {root}/mirror; }} }}\n"
    )
    return await _cost(["nginx", "-c", str(config), "-p", str(root)], port, "/m/1/m.gguf")


async def _cost(words: list[str], port: int, path: str) -> float:
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await listens(port)
        watched = [psutil.Process(process.pid), *psutil.Process(process.pid).children()]
        await _get(port, path)
        best = float("inf")
        for _ in range(3):
            before = spent(watched)
            await _get(port, path)
            best = min(best, spent(watched) - before)
        return best * (1 << 30) / SIZE
    finally:
        process.terminate()
        process.wait()


async def _get(port: int, path: str) -> None:
    for _ in range(600):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 503 " in head.split(b"\r\n")[0] or b" 404 " in head.split(b"\r\n")[0]:
            writer.close()  # the mirror is still hashing what it found
            await asyncio.sleep(0.1)
            continue
        while await reader.read(1 << 20):
            pass
        writer.close()
        return
    raise TimeoutError("the file was not served")
