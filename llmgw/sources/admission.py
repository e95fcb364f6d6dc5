"""Which commits of a branch are followed: those that are signed as asked, and lead on from the last one."""

from __future__ import annotations

from dulwich.objects import ObjectID
from dulwich.repo import Repo

from llmgw.errors import Refused
from llmgw.sources.access import OnRewrite, Verify
from llmgw.sources.history import between
from llmgw.sources.signatures import Signers, check


class NotAdmitted(Refused):
    """A commit is there and is not followed: what was wanted before still is."""


class Admission:
    """Judges each new tip of one branch, and remembers which it let through."""

    def __init__(
        self,
        *,
        signers: Signers | None = None,
        verify: Verify = Verify.OFF,
        on_rewrite: OnRewrite = OnRewrite.FOLLOW,
        since: str | None = None,
    ) -> None:
        """Judge nothing yet.

        Args:
            signers: whose signatures count. Their files are read at each look.
            verify: which commits need one.
            on_rewrite: whether a branch may be made anew.
            since: the commit that was followed before this process began.

        Raises:
            Refused: signatures are asked for, and nobody's count.
        """
        if verify is not Verify.OFF and (signers is None or not signers.files):
            raise Refused(
                f"--verify {verify} has nobody to believe",
                why="no file of signers is named",
                do="give --signers FILE: allowed signers as ssh-keygen reads them, or OpenPGP public keys",
            )
        self._signers = signers if verify is not Verify.OFF else None
        self._every = verify is Verify.RANGE
        self._hold = on_rewrite is OnRewrite.HOLD
        self._last = ObjectID(since.encode()) if since else None
        self._judged = ("", "")

    def needs(self) -> ObjectID | None:
        """The commit whose descendants have to be held for the next look to be judged. None: the tip will do."""
        return self._last if self._every or self._hold else None

    def has_let(self, tip: ObjectID) -> bool:
        """Whether this tip was let through, by the keys as they are now."""
        return self._judged == (tip.decode(), self._keys())

    def judge(self, repo: Repo, tip: ObjectID, shown: str) -> None:
        """Let a tip through, or say why not.

        Raises:
            NotAdmitted: it is not followed.
            Damaged: a commit on the way cannot be had.
        """
        if self.has_let(tip):
            return
        last = self._last
        way = between(repo, last, tip) if last is not None else None
        if way is not None and self._hold and not way.forward:
            assert last is not None
            raise NotAdmitted(
                f"{shown} was rewritten, and is not followed",
                why=f"commit {last.decode()[:12]}, which was carried out, does not come before {tip.decode()[:12]}",
                do="push a commit that comes after it, or start control once with --on-rewrite follow",
            )
        if self._signers is not None:
            new = [c.id for c in way.commits] if way is not None and self._every else []
            for commit in dict.fromkeys((tip, *new)):
                try:
                    check(repo, commit, self._signers)
                except Refused as e:
                    raise NotAdmitted(e.what, why=e.why, do=e.do) from None
        self._last, self._judged = tip, (tip.decode(), self._keys())

    def _keys(self) -> str:
        return self._signers.digest() if self._signers else ""
