"""Who may see and use what of a host that several people use (W65)."""

from __future__ import annotations

from mlxnb.link.proof import Identity, owner
from mlxnb.records.turn import TurnRecord

_OTHERS = "jupyter:"


class Sight:
    """What one of Jupyter's users sees.

    Everybody sees what is theirs. The user whom the process runs for also sees what its own
    notebooks did, which have no caller, and what clients with this user's keys did. The sessions
    of all others have their user's name before their own.
    """

    def __init__(self, identity: Identity) -> None:
        self._caller = identity.caller
        self.is_owner = identity == owner()

    @property
    def caller(self) -> str:
        """What this user's requests are filed under; the owner's are the process's own."""
        return "" if self.is_owner else self._caller

    def sees(self, caller: str) -> bool:
        """Whether what ``caller`` asked and was answered may be seen."""
        return caller == self._caller or (self.is_owner and not caller.startswith(_OTHERS))

    def sees_turn(self, record: TurnRecord) -> bool:
        """Whether a turn may be seen."""
        if record.session is not None and not record.caller:
            return self.owns(record.session)  # a session's own name; of a response it is the id
        return self.sees(record.caller)

    # --- sessions -----------------------------------------------------------------------------

    @property
    def _prefix(self) -> str:
        return "" if self.is_owner else f"{self._caller}/"

    def owns(self, session: str) -> bool:
        """Whether a session, by its full name, is this user's."""
        return (
            not session.startswith(_OTHERS) if self.is_owner else session.startswith(self._prefix)
        )

    def full(self, name: str) -> str:
        """The full name of a session of this user."""
        return self._prefix + name

    def short(self, session: str) -> str:
        """The name that this user gave it."""
        return session.removeprefix(self._prefix)

    def salt(self, cache_salt: str) -> str:
        """The salt of a session of this user: nobody else's KV is shared with it (W22)."""
        return self._prefix + cache_salt
