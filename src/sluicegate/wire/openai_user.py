"""The client's name for its user, as OpenAI's formats take it: 64 characters at most.

Agents send longer ones (a device, an account and a session as JSON), and a provider refuses the whole request for that.
Source: OpenAI's API reference, `safety_identifier` and `user`, November 2026.
"""

from hashlib import sha256

from sluicegate.wire.translation import Notes

MAX_USER_CHARS = 64


def provider_user(user: str, notes: Notes) -> str:
    """Return a user's id, or where it is too long its hash: still one id a user."""
    if len(user) <= MAX_USER_CHARS:
        return user
    notes.drop("user", "sent as a hash: too long for this format")
    return sha256(user.encode(errors="replace")).hexdigest()
