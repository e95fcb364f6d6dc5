"""What a hub means by an answer of 400 and above, and what to do about it."""

from __future__ import annotations

from urllib.parse import urlsplit

from llmgw.errors import OperatorError, Refused, Unreachable
from llmgw.sources.web import Said

_DISABLED = "Access to this resource is disabled."


def refusal(said: Said, at: str, *, page: str, token_at: str) -> OperatorError:
    """The error of an answer. The hub says which it is in X-Error-Code, and others that speak its API in the status.

    Args:
        said: the answer.
        at: what was asked for, as a source writes it.
        page: of the repository, for people.
        token_at: where the token is from that was sent; empty: none was.
    """
    code, who, status = said.headers.get("X-Error-Code", ""), urlsplit(page).netloc, said.status
    give = "" if token_at else ", or give the token of somebody who may: --token-file"
    if code == "GatedRepo":
        account = " with the account of the token" if token_at else ""
        return Refused(
            f"{at} is gated", why="its owner decides who may have it", do=f"accept its terms at {page}{account}{give}"
        )
    if said.headers.get("X-Error-Message", "") == _DISABLED:
        return Refused(f"{at} is disabled", why=f"{who} gives it to nobody", do="use another repository")
    if code == "RevisionNotFound":
        why = f"{who} has the repository and no such revision: it was never there, or history was rewritten"
        return Refused(f"{at} is gone", why=why, do="write a branch, a tag or a commit that is there, and lock again")
    if code == "EntryNotFound":
        return Refused(f"{at} is not there", why="the repository has no such file", do="correct the name")
    if status == 401 and token_at and not code:
        return Refused(f"{at} may not be read", why=f"{who} does not know the token", do=f"renew it in {token_at}")
    if code == "RepoNotFound" or status in {401, 404, 410}:
        private = "or the token may not see it" if token_at else "or it is private"
        return Refused(
            f"{at} is not there", why=f"{who} has no such repository, {private}", do=f"correct the name{give}"
        )
    if status == 403:
        return Refused(f"{at} may not be read", why=f"{who} answers 403", do=f"ask its owner{give}")
    if status >= 500:
        return Unreachable(f"{at} cannot be read", why=f"{who} answers {status}", do="call again later")
    return OperatorError(f"{at} cannot be read", why=f"{who} answers {status}", do="see that the endpoint is a hub")
