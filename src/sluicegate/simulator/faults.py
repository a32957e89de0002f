"""The catalogue of model names: what `sim-…` models answer, healthy or faulty.

A name is `sim-WORD`, then options after commas: `sim-text,tokens=5,pace_ms=20`, `sim-cut,after=2`,
`sim-429,retry_after=3`. `sluicegate simulate --list` prints the table. Any of 400 to 599 works as a word.
Options of every word: `tokens`, `first_ms`, `pace_ms`, `input`, `cached`, `written`, `usage` (asked, always,
never, running, with_finish), `choices`; faults also: `after` (events before the fault), `bytes`, `status`,
`retry_after`, `s`.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

import msgspec

from sluicegate.simulator.answer import Answer, ToolCall, UsageWhen, of_tokens
from sluicegate.simulator.script import (
    Close,
    CutAt,
    Cuts,
    Done,
    Drip,
    EndlessLine,
    Error,
    Event,
    Flood,
    Head,
    Huge,
    Informational,
    Play,
    Raw,
    Reset,
    Script,
    Send,
    Stall,
    Wait,
)

HTML = "<!doctype html><html><head><title>502 Bad Gateway</title></head><body><h1>Bad</h1></body></html>\n"

WEATHER = ToolCall(name="get_weather", arguments=('{"city":', ' "Paris"', "}"))
CLOCK = ToolCall(name="get_time", arguments=('{"zone"', ': "CET"}'))

ANSWERS: Mapping[str, tuple[str, Answer]] = {
    "text": ("plain words", of_tokens(16)),
    "tools": (
        "two parallel tool calls",
        Answer(tool_calls=(WEATHER, CLOCK), finish="tool_calls", input_tokens=20),
    ),
    "tool": ("one tool call", Answer(tool_calls=(WEATHER,), finish="tool_calls", input_tokens=20)),
    "text-tool": (
        "some text, then a tool call",
        Answer(text=(" let", " me", " look"), tool_calls=(WEATHER,), finish="tool_calls"),
    ),
    "reasoning": (
        "reasoning with a signature, then text",
        Answer(reasoning=("Let", " me", " think"), signature="U0lHTkFUVVJF", text=("42", " it", " is")),
    ),
    "reasoning-tool": (
        "reasoning, then a tool call",
        Answer(reasoning=("Look", " up"), signature="U0lH", tool_calls=(WEATHER,), finish="tool_calls"),
    ),
    "paused": (
        "text that is paused every four tokens, where the format can be",
        msgspec.structs.replace(of_tokens(16), pause_after=4),
    ),
    "refusal": ("a refusal", Answer(refusal=("I", " can't", " help."))),
    "length": ("text cut by the token limit", msgspec.structs.replace(of_tokens(8), finish="length")),
    "filter": (
        "text cut by the content filter",
        msgspec.structs.replace(of_tokens(4), finish="content_filter"),
    ),
    "empty": ("no content at all, a proper end", Answer()),
    "unicode": (
        "text of many scripts",
        Answer(text=("naïve ", "日本", "語 ", "👩‍👩‍👧 ", "\U0001d518\u2028", "\x85 end")),
    ),
    "cached": (
        "text with cache reads and writes in its usage",
        msgspec.structs.replace(
            of_tokens(8), input_tokens=5600, cache_read_tokens=4000, cache_write_tokens=600
        ),
    ),
}


class Options(NamedTuple):
    """The numbers of a fault's name."""

    after: int = 3
    bytes: int = 0
    status: int = 500
    retry_after: str = ""
    s: float = 2.0

    def headers(self) -> tuple[tuple[str, str], ...]:
        """Return `retry-after` where it was asked for."""
        return (("retry-after", self.retry_after),) if self.retry_after else ()


class FaultEntry(NamedTuple):
    """One word of the catalogue."""

    help: str
    script: Callable[[Options], Script]


def _changed(**changes: object) -> Answer:
    return msgspec.structs.replace(of_tokens(16), **changes)


def _play_then(*steps: Stall | Reset | Close | Error | Send) -> Callable[[Options], Script]:
    return lambda o: Script(steps=(Play(stop=o.after), *steps))


FAULTS: Mapping[str, FaultEntry] = {
    # before the head
    "silent": FaultEntry("takes the request and never answers", lambda o: Script(steps=(Stall(),))),
    "slow": FaultEntry("waits `s` seconds before the first byte", lambda o: Script(first_token_s=o.s)),
    "gone": FaultEntry("closes the connection instead of answering", lambda o: Script(steps=(Close(),))),
    "reset-first": FaultEntry(
        "resets the connection instead of answering", lambda o: Script(steps=(Reset(),))
    ),
    "garbage": FaultEntry(
        "answers with something that is not HTTP",
        lambda o: Script(steps=(Raw(text="\x16\x03\x01 not http\r\n\r\n"), Close())),
    ),
    # the head
    "half-head": FaultEntry(
        "sends 40 bytes of the head, then nothing", lambda o: Script(steps=(Head(stop=40), Stall()))
    ),
    "cut-head": FaultEntry("closes within the head", lambda o: Script(steps=(Head(stop=40), Close()))),
    "slow-head": FaultEntry(
        "sends the head byte by byte, 2 ms apart",
        lambda o: Script(steps=(Head(drip=1, every_s=0.002), Play())),
    ),
    "head-only": FaultEntry("sends 200 and nothing more", lambda o: Script(steps=(Head(), Stall()))),
    "early-head": FaultEntry(
        "sends the head, waits `s` seconds, then answers",
        lambda o: Script(steps=(Head(), Wait(s=o.s), Play())),
    ),
    "1xx": FaultEntry(
        "sends three 103 before the answer", lambda o: Script(steps=(Informational(count=3), Play()))
    ),
    "1xx-storm": FaultEntry(
        "sends 100,000 heads with 103, then nothing",
        lambda o: Script(steps=(Informational(count=100_000), Stall())),
    ),
    "redirect": FaultEntry(
        "answers 307 to another place",
        lambda o: Script(status=307, headers=(("location", "http://127.0.0.1:9/elsewhere"),), body=""),
    ),
    "http10": FaultEntry(
        "answers in HTTP/1.0, ended by closing", lambda o: Script(http10=True, steps=(Play(),))
    ),
    "close-framed": FaultEntry(
        "frames the body by closing the connection", lambda o: Script(framing="close", steps=(Play(),))
    ),
    # the body stops
    "stall": FaultEntry("falls silent after some events", _play_then(Stall())),
    "stall-mid": FaultEntry(
        "falls silent within an event", lambda o: Script(steps=(Play(stop=o.after, plus_bytes=30), Stall()))
    ),
    "cut": FaultEntry("closes between two events", _play_then(Close())),
    "cut-mid": FaultEntry(
        "closes within an event", lambda o: Script(steps=(Play(stop=o.after, plus_bytes=30), Close()))
    ),
    "cut-at": FaultEntry(
        "closes when the body has `bytes` bytes",
        lambda o: Script(steps=(CutAt(bytes=o.bytes or 200, how="close"), Play())),
    ),
    "reset": FaultEntry("resets between two events", _play_then(Reset())),
    "reset-mid": FaultEntry(
        "resets within an event", lambda o: Script(steps=(Play(stop=o.after, plus_bytes=30), Reset()))
    ),
    "end-mid": FaultEntry(
        "ends the body cleanly within an event", lambda o: Script(steps=(Play(stop=o.after, plus_bytes=30),))
    ),
    "no-end": FaultEntry(
        "ends the body cleanly without finish and marker", lambda o: Script(steps=(Play(before="finish"),))
    ),
    "no-marker": FaultEntry(
        "sends the finish, but no end marker", lambda o: Script(steps=(Play(before="end"),))
    ),
    "no-finish": FaultEntry(
        "sends the end marker, but no finish", lambda o: Script(steps=(Play(skip=("finish",)),))
    ),
    "end-only": FaultEntry("sends nothing but the end marker", lambda o: Script(steps=(Done(),))),
    "nothing": FaultEntry("an empty body, properly ended", lambda o: Script(steps=(Head(),))),
    # errors inside a 200
    "error-first": FaultEntry(
        "an error event as the first event", lambda o: Script(steps=(Error(status=o.status),))
    ),
    "error-mid": FaultEntry(
        "an error event after some events",
        lambda o: Script(steps=(Play(stop=o.after), Error(status=o.status))),
    ),
    "error-stall": FaultEntry(
        "an error event, then silence with the socket open",
        lambda o: Script(steps=(Play(stop=o.after), Error(status=o.status), Stall())),
    ),
    "error-json": FaultEntry(
        "an error object as JSON under status 200",
        lambda o: Script(
            headers=(("content-type", "application/json"),),
            body='{"error":{"message":"Overloaded.","type":"server_error","param":null,"code":null}}',
        ),
    ),
    "error-text": FaultEntry(
        "an event whose error is a string", lambda o: Script(steps=(Event(data='{"error":"overloaded"}'),))
    ),
    # the wrong body
    "html": FaultEntry(
        "an HTML page under 200", lambda o: Script(headers=(("content-type", "text/html"),), body=HTML)
    ),
    "html-502": FaultEntry(
        "an HTML page under 502",
        lambda o: Script(status=502, headers=(("content-type", "text/html"),), body=HTML),
    ),
    "empty-502": FaultEntry("status 502 without a body", lambda o: Script(status=502, body="")),
    "json": FaultEntry(
        "a proper stream called application/json",
        lambda o: Script(headers=(("content-type", "application/json"),), steps=(Play(),)),
    ),
    "latin1": FaultEntry(
        "a proper stream that claims charset=iso-8859-1",
        lambda o: Script(
            headers=(("content-type", "text/event-stream; charset=iso-8859-1"),), steps=(Play(),)
        ),
    ),
    "no-type": FaultEntry(
        "a proper stream without content type",
        lambda o: Script(headers=(("content-type", ""),), steps=(Play(),)),
    ),
    "gzip": FaultEntry("a gzip body nobody asked for", lambda o: Script(gzip=True)),
    "not-json": FaultEntry(
        "an event that is not JSON after some events",
        lambda o: Script(steps=(Play(stop=o.after), Event(data="{not json"), Play(start=o.after))),
    ),
    "not-utf8": FaultEntry(
        "an event with bytes that are not UTF-8",
        lambda o: Script(
            steps=(
                Play(stop=o.after),
                Send(data=b'data: {"choices":[],"x":"\xff\xfe"}\n\n'),
                Play(start=o.after),
            )
        ),
    ),
    # odd but right, or nearly
    "drip": FaultEntry("one byte a write", lambda o: Script(steps=(Drip(bytes=1), Play()))),
    "cuts": FaultEntry(
        "writes that end every seventh byte", lambda o: Script(steps=(Cuts(every=7, gap_s=0.0), Play()))
    ),
    "comments": FaultEntry(
        "comments, blank lines, ids and retry lines between events",
        lambda o: Script(
            steps=(
                Send(text=": hello\n\nretry: 10\n\n"),
                Play(stop=o.after),
                Send(text="\r\n: x\n\nid: 7\n\n"),
                Play(start=o.after),
            )
        ),
    ),
    "done-twice": FaultEntry("the end marker twice", lambda o: Script(steps=(Play(), Done()))),
    "after-done": FaultEntry(
        "events after the end marker", lambda o: Script(steps=(Play(), Play(start=1, stop=3)))
    ),
    "open": FaultEntry("never ends the body after the end marker", lambda o: Script(steps=(Play(), Stall()))),
    "reset-done": FaultEntry("resets after the end marker", lambda o: Script(steps=(Play(), Reset()))),
    "huge": FaultEntry(
        "one event of `bytes` bytes",
        lambda o: Script(
            steps=(Play(stop=o.after + 2), Huge(bytes=o.bytes or 1 << 20), Play(start=o.after + 2))
        ),
    ),
    "endless": FaultEntry("a line that never ends", lambda o: Script(steps=(EndlessLine(),))),
    "flood": FaultEntry(
        "content as fast as it is read, for ever", lambda o: Script(steps=(Play(stop=1), Flood()))
    ),
    # framing lies
    "long-length": FaultEntry(
        "a Content-Length that is too large, then closes",
        lambda o: Script(content_length=100_000, steps=(Play(), Close())),
    ),
    "short-length": FaultEntry(
        "a Content-Length that is too small",
        lambda o: Script(content_length=o.bytes or 200, steps=(Play(), Close())),
    ),
    "long-chunk": FaultEntry(
        "a chunk that promises more than comes",
        lambda o: Script(steps=(Play(stop=o.after), Raw(text="ffff\r\nshort\r\n"), Close())),
    ),
    "bad-chunk": FaultEntry(
        "a chunk size that is no number",
        lambda o: Script(steps=(Play(stop=o.after), Raw(text="zz\r\nlie\r\n"), Close())),
    ),
    # counts
    "no-usage": FaultEntry("never tells usage", lambda o: Script(answer=_changed(usage="never"))),
    "negative-usage": FaultEntry(
        "tells negative counts",
        lambda o: Script(answer=_changed(input_tokens=-9, output_tokens=-1, usage="always")),
    ),
    # connections
    "close": FaultEntry("announces that the connection closes", lambda o: Script(close=True)),
    "hang-up": FaultEntry("closes after the answer, unannounced", lambda o: Script(hang_up=True)),
}

_ANSWER_OPTIONS = {
    "input": "input_tokens",
    "cached": "cache_read_tokens",
    "written": "cache_write_tokens",
    "output": "output_tokens",
    "choices": "choices",
}


@lru_cache(maxsize=1024)
def script_of_model(model: str) -> Script | None:
    """Return what a model's name asks for, or None where it is not one of ours.

    Raises: ValueError for a `sim-` name with a word or an option that does not exist.
    """
    if not model.startswith("sim-"):
        return None
    word, *given = model[4:].split(",")
    options = {name: value for name, _, value in (option.partition("=") for option in given)}
    timing = {name: float(options.pop(key)) / 1000 for key, name in TIMING.items() if key in options}
    answer = _answer(word, options)
    script = _script(word, options)
    if options:
        raise ValueError(f"model {model!r}: unknown option {next(iter(options))!r}")
    if script is None:
        raise ValueError(f"model {model!r}: unknown word {word!r}")
    return msgspec.structs.replace(script, name=model, answer=answer or script.answer, **timing)


TIMING = {"first_ms": "first_token_s", "pace_ms": "interval_s"}


def _answer(word: str, options: dict[str, str]) -> Answer | None:
    tokens = options.pop("tokens", None)
    usage = options.pop("usage", None)
    changes: dict[str, object] = {
        name: int(options.pop(key)) for key, name in _ANSWER_OPTIONS.items() if key in options
    }
    answer = ANSWERS[word][1] if word in ANSWERS else None
    if tokens is not None:
        answer = of_tokens(int(tokens))
    if usage is not None:
        changes["usage"] = msgspec.convert(usage, UsageWhen)
    if changes:
        answer = msgspec.structs.replace(answer or of_tokens(16), **changes)
    return answer


def _script(word: str, options: dict[str, str]) -> Script | None:
    picked = Options(
        after=int(options.pop("after", "3")),
        bytes=int(options.pop("bytes", "0")),
        status=int(options.pop("status", "500")),
        retry_after=options.pop("retry_after", ""),
        s=float(options.pop("s", "2")),
    )
    if word in ANSWERS:
        return Script()
    if word in FAULTS:
        return FAULTS[word].script(picked)
    if word.isdigit() and 400 <= int(word) <= 599:
        return Script(status=int(word), headers=picked.headers())
    return None
