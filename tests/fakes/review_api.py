"""The comments of pull requests, as GitHub, Gitea and GitLab serve them: recorded, paged, limited."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit


class ReviewApi:
    """One pull request's comments, number 7 of owner/fleet, or of GitLab's project 12."""

    def __init__(self, *, most: int = 65_536) -> None:
        self.comments: list[dict[str, Any]] = []
        self.asked: list[tuple[str, str]] = []
        """Method and path of each request."""
        self.token = "secret-token"
        self.may_write = True
        self.answers: list[tuple[int, dict[str, str]]] = []
        """Given before anything else, one to each request."""
        self.most = most
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def environment(self, on: str) -> dict[str, str]:
        """What CI says there."""
        if on == "gitlab":
            said = {"GITLAB_CI": "true", "CI_API_V4_URL": f"{self.url}/api/v4"}
            return {**said, "CI_PROJECT_ID": "12", "CI_MERGE_REQUEST_IID": "7", "LLMGW_COMMENT_TOKEN": self.token}
        more = {"GITEA_ACTIONS": "true"} if on == "gitea" else {}
        return {
            **more,
            "GITHUB_API_URL": f"{self.url}/api/v1" if on == "gitea" else self.url,
            "GITHUB_REPOSITORY": "owner/fleet",
            "GITHUB_REF": "refs/pull/7/merge",
            "LLMGW_COMMENT_TOKEN": self.token,
        }

    def answer(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, dict[str, str], object]:
        self.asked.append((method, path))
        if self.answers:
            status, more = self.answers.pop(0)
            return status, more, {}
        given = (headers.get("Authorization", "").split(" ")[-1], headers.get("Private-Token", ""))
        if self.token not in given:
            return 401, {}, {"message": "bad credentials"}
        parts = urlsplit(path)
        known = re.fullmatch(
            r"(?:/api/v1)?/repos/owner/fleet/issues(?:/7)?/comments(/\d+)?"
            r"|/api/v4/projects/12/merge_requests/7/notes(/\d+)?",
            parts.path,
        )
        if known is None:
            return 404, {}, {"message": "not found"}
        if method == "GET":
            query = parse_qs(parts.query)
            page, most = int(query["page"][0]), int(query["per_page"][0])
            return 200, {}, self.comments[(page - 1) * most : page * most]
        if not self.may_write:
            return 403, {}, {"message": "resource not accessible by integration"}
        text = json.loads(body)["body"]
        if len(text) > self.most:
            return 422, {}, {"message": "body is too long"}
        number = known[1] or known[2]
        if method == "POST" and number is None:
            self.comments.append({"id": 1000 + len(self.comments), "body": text})
            return 201, {}, self.comments[-1]
        (mine,) = [c for c in self.comments if f"/{c['id']}" == number]
        assert method == ("PUT" if known[2] else "PATCH")
        mine["body"] = text
        return 200, {}, mine


def _handler(api: ReviewApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, headers, value = api.answer(self.command, self.path, self.headers, body)
            data = json.dumps(value).encode()
            self.send_response(status)
            for name, text in {**headers, "Content-Type": "application/json", "Content-Length": str(len(data))}.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(data)

        # As the library calls them.
        do_GET = do_POST = do_PATCH = do_PUT = _serve  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    return Handler
