"""What the client's format needs to know of its request when the answer is written."""

from collections.abc import Callable, Mapping

import msgspec

_NONE: Mapping[str, str] = {}
_NO_NAMESPACES: Mapping[str, tuple[str, str]] = {}
_NO_MEMBERS: Mapping[str, msgspec.Raw] = {}
_NO_TOOLS: frozenset[str] = frozenset()

_FIELDS = (
    "array",
    "close_id",
    "continuous_usage",
    "created",
    "custom_tools",
    "echo",
    "hide_provider",
    "id",
    "input_estimate",
    "kept",
    "legacy_functions",
    "model",
    "namespaces",
    "previous_id",
    "raw",
    "search_sources",
    "search_tool",
    "tool_names",
    "usage_shown",
)


class Asked:
    """One attempt's."""

    __slots__ = _FIELDS

    def __init__(
        self,
        *,
        model: str,
        id: str,
        created: int,
        hide_provider: bool = False,
        input_estimate: int = 0,
        usage_shown: bool = True,
        continuous_usage: bool = False,
        array: bool = False,
        legacy_functions: bool = False,
        echo: tuple[str, ...] = (),
        tool_names: Mapping[str, str] = _NONE,
        custom_tools: frozenset[str] = _NO_TOOLS,
        namespaces: Mapping[str, tuple[str, str]] = _NO_NAMESPACES,
        search_tool: str = "",
        raw: Mapping[str, msgspec.Raw] = _NO_MEMBERS,
    ) -> None:
        self.model = model
        """The public id that was asked for."""
        self.id = id
        """24 or more characters of [0-9a-f], new for each request: codecs put their prefix before it."""
        self.created = created
        """Seconds since 1970."""
        self.hide_provider = hide_provider
        """Nothing in the answer may tell which provider served it: ids are minted, fingerprints dropped."""
        self.input_estimate = input_estimate
        """Tokens (bytes / 4), for a format that tells input before the provider has."""
        self.usage_shown = usage_shown
        """The client gets usage where its format makes it optional."""
        self.continuous_usage = continuous_usage
        self.array = array
        """Gemini without `alt=sse`: the client gets a JSON array, written as it grows."""
        self.legacy_functions = legacy_functions
        self.echo = echo
        """Legacy completions: by choice, the prompt that the answer repeats."""
        self.tool_names = tool_names
        """Names that were changed for the provider, back to the client's."""
        self.custom_tools = custom_tools
        """Tools the client declared as free-form."""
        self.namespaces = namespaces
        """Namespace and name that a tool's joined name stands for."""
        self.search_sources = False
        """Responses: what a search of the web found is told with it."""
        self.search_tool = search_tool
        """The tool by which the client searches its tools."""
        self.raw = raw
        """The request's top-level members, for formats that repeat some of them in the answer."""
        self.close_id: Callable[[str], str] | None = None
        """Turns an id that the provider keeps into the client's; None where it keeps nothing of this answer."""
        self.previous_id: str | None = None
        """Of the answer that the client goes on from, as it spelled it."""
        self.kept = False
        """We keep the answer ourselves."""

    def under(self, id: str) -> "Asked":
        """Return the same, for an answer with another id."""
        other = Asked(model=self.model, id=id, created=self.created)
        for field in _FIELDS:
            if field != "id":
                setattr(other, field, getattr(self, field))
        return other
