"""How a chat answer names itself to the client."""


class Identity:
    """What stands in place of what the provider says of an answer, or where it says nothing."""

    __slots__ = ("created", "fallback_id", "hide_provider", "model")

    def __init__(self, model: str, fallback_id: str, created: int, hide_provider: bool = False) -> None:
        """Take what an answer is called.

        Args:
            model: the id the client asked for.
            fallback_id: used where the provider gives no id, or where its id is hidden.
            created: used where the provider gives none; seconds since 1970.
            hide_provider: nothing may tell which provider it was.
        """
        self.model = model
        self.fallback_id = fallback_id
        self.created = created
        self.hide_provider = hide_provider
