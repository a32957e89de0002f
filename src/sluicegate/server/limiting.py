"""The worker's side of limits: admits requests out of slices that the supervisor cut from the limits of the gate.

What is limited by the minute may be used within one second of the clock that all processes of a machine share, and goes
back after it; places for streams stay until they are not needed. Who is not limited never comes here. What a slice does
not cover is asked for at once, for all limits of a request together: it is admitted under all of them, or none is
touched. A refusal is remembered for a moment, so that callers who hammer do not reach the supervisor.
"""

import asyncio
import time
from typing import Final, NamedTuple

from sluicegate.billing.accounts import KeyRecord
from sluicegate.billing.limits import Grant, Kind, Return, Want
from sluicegate.errors import RateLimited, StoreUnavailable
from sluicegate.routing.catalog_shapes import Limits
from sluicegate.server.control import ANSWER_S
from sluicegate.server.control_messages import Sliced, SlicesAsked, SlicesBack
from sluicegate.server.deadlines import Deadlines
from sluicegate.server.limit_headers import USUAL_RESET_S, LimitLines
from sluicegate.server.supervisor_link import SupervisorLink

REMEMBER_S = 0.05
"""How long a refusal stands without asking again."""
GATHER_S: Final = 0.05
"""Corrections of tokens are gathered for so long."""
MAX_TRIES = 4
"""A slice that arrives when its second is over is asked for again so often."""
MAX_KNOWN: Final = 20_000
"""Keys and limits remembered, before all are looked at anew."""

_WHOSE = {"key": "this API key", "account": "this account", "model": "this model", "route": "the provider"}


class KnownKey:
    """What a key is held to."""

    __slots__ = ("limits", "record", "spending")

    def __init__(self, record: KeyRecord, limits: tuple[Limits, ...]) -> None:
        """Args: limits: its own, and its account's."""
        self.record = record
        self.spending = bool(record.spending)
        """It has spending limits, which are counted elsewhere (`tab`)."""
        self.limits = limits


class _Held:
    """What this worker holds of one limit."""

    __slots__ = (
        "asking",
        "corrections",
        "denied",
        "denied_until",
        "idle",
        "keep",
        "kind",
        "left",
        "limit",
        "lines",
        "name",
        "of_streams",
        "of_tokens",
        "second",
    )

    def __init__(self, name: str, kind: Kind, limit: int) -> None:
        self.name = name
        self.kind = kind
        self.of_tokens = kind == "tokens"
        self.of_streams = kind == "streams"
        self.limit = limit
        self.lines = LimitLines(kind, limit)
        self.corrections: dict[int, int] = {}
        """By the second, what is to be told of it soon."""
        self.asking = 0
        """Questions on their way. Only the first of those at once asks for more than it needs: else a burst would book
        the whole limit, and what idles here would be refused elsewhere.
        """
        self.idle = 0
        self.second = 0
        """In which alone what is idle may be used; nothing to streams."""
        self.keep = 0
        self.left = limit
        """What the supervisor had when it was last asked."""
        self.denied_until = 0.0
        self.denied: _Refusal | None = None
        """What the supervisor said last, as long as it stands."""


class _Refusal(NamedTuple):
    held: _Held
    need: int
    at: float
    wait_s: float
    reset_s: float


def _need(held: _Held, tokens: int) -> int:
    """Return what a request takes of a limit."""
    return tokens if held.of_tokens else 1


def _is_of_route(held: _Held) -> bool:
    """Whether it is a limit of what a provider is asked."""
    return held.name.startswith("route:")


class _Question:
    """Somebody waits for slices."""

    __slots__ = ("answer", "holding", "tokens")

    def __init__(
        self, holding: tuple[_Held, ...], tokens: int, answer: "asyncio.Future[_Refusal | int | None]"
    ) -> None:
        self.holding = holding
        self.tokens = tokens
        self.answer = answer
        """Why not; or the second in which what was needed has been taken; None: that was over when it came."""


class Ticket:
    """What one request was admitted to; released exactly once."""

    __slots__ = ("_clerk", "_more", "_second", "_taken", "estimate")

    def __init__(self, clerk: "LimitClerk", taken: tuple[_Held, ...], second: int, estimate: int) -> None:
        self._clerk = clerk
        self._taken = taken
        self._second = second
        self.estimate = estimate
        self._more: tuple[tuple[int, int], ...] = ()
        """Second and estimate of the calls beyond the first."""

    def add_call(self, tokens: int) -> None:
        """Count one call more of its provider, under limits of routes alone: the client made one request.

        It is made whatever they leave, as its answer has begun; who comes after it finds less.

        Args:
            tokens: the estimate of what it will use beyond what was estimated before.
        """
        second = int(time.monotonic())
        self._more = (*self._more, (second, tokens))
        for held in self._taken:
            if held.kind != "streams" and _is_of_route(held):
                self._clerk.correct(held, second, -_need(held, tokens))

    def release(self, used: int) -> None:
        """End it: places are free, and tokens are what was used instead of what was estimated."""
        taken, self._taken = self._taken, ()
        for held in taken:
            if held.of_streams:
                self._clerk.free_place(held)
            elif held.of_tokens:
                if self._more and _is_of_route(held):
                    self._correct_all(held, used)
                elif used != self.estimate:
                    self._clerk.correct(held, self._second, self.estimate - used)

    def _correct_all(self, held: "_Held", used: int) -> None:
        """Book what all calls together have used: what was estimated too much comes off the oldest first."""
        booked = [(self._second, self.estimate), *self._more]
        unused = sum(tokens for _, tokens in booked) - used
        for second, tokens in booked[:-1]:
            back = max(0, min(unused, tokens))
            if back:
                self._clerk.correct(held, second, back)
                unused -= back
        if unused:
            self._clerk.correct(held, booked[-1][0], unused)

    def undo(self) -> None:
        """Give all of it back: the request was not served."""
        taken, self._taken = self._taken, ()
        for held in taken:
            if held.kind == "streams":
                self._clerk.free_place(held)
            else:
                self._clerk.correct(held, self._second, _need(held, self.estimate))

    def header_lines(self, *, messages: bool) -> bytes:
        """Return what tells the client of its limits, the tightest of each kind.

        Args:
            messages: in the words of the Messages format, else in those of OpenAI's.
        """
        return _lines(self._taken, None, USUAL_RESET_S, messages)


class LimitClerk:
    """The limits of one worker process."""

    def __init__(self, link: SupervisorLink, deadlines: Deadlines, account_limits: dict[str, Limits]) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._account_limits = account_limits
        self._keys: dict[str, KnownKey] = {}
        self._held: dict[str, tuple[Limits, tuple[_Held, ...]]] = {}
        self._questions: dict[int, _Question] = {}
        self._corrected: list[_Held] = []
        """Those with corrections."""
        self.on_freed: dict[str, asyncio.Event] = {}
        """By the name of a limit: set when something of it is free again."""
        self.asked = 0
        """Questions to the supervisor, for the metrics."""
        link.on_sliced = self._sliced
        self._deadlines = deadlines
        self.due_at = 0.0
        self._watching = False

    def apply(self, account_limits: dict[str, Limits]) -> None:
        """Go on with other limits of accounts."""
        self._account_limits = account_limits
        self._keys.clear()

    def known(self, key: KeyRecord) -> KnownKey:
        """Return what a key is held to."""
        known = self._keys.get(key.id)
        if known is not None and known.record is key:
            return known
        limits = []
        if not key.rpm is key.tpm is key.max_streams is None:
            limits.append(Limits(name=f"key:{key.id}", rpm=key.rpm, tpm=key.tpm, max_streams=key.max_streams))
        account = self._account_limits.get(key.account_id)
        if account is not None:
            limits.append(account)
        if len(self._keys) >= MAX_KNOWN:
            self._keys.clear()
        known = self._keys[key.id] = KnownKey(key, tuple(limits))
        return known

    # ---- admission --------------------------------------------------------------------------------------------------

    async def admit(self, limits: tuple[Limits, ...], tokens: int, *, messages: bool) -> Ticket:
        """Admit a request under all of its limits.

        Args:
            tokens: the estimate of what it will use.
            messages: tell the limits in the words of the Messages format.
        Raises:
            RateLimited: one of them leaves too little; it says when to come back.
            StoreUnavailable: the supervisor did not answer in time.
        """
        ticket = self.admit_now(limits, tokens, messages=messages)
        if ticket is not None:
            return ticket
        holding = self._holding(limits)
        for _ in range(MAX_TRIES):
            done = await self._ask(holding, tokens)
            if isinstance(done, int):
                return Ticket(self, holding, done, tokens)
            if done is not None:
                raise self._refused(done, holding, messages=messages)
        raise StoreUnavailable("the limits could not be looked up in time")

    def admit_now(self, limits: tuple[Limits, ...], tokens: int, *, messages: bool) -> Ticket | None:
        """Admit a request by what is here; None where that does not cover it.

        Raises:
            RateLimited: it was refused as much a moment ago.
        """
        holding = self._holding(limits)
        now = time.monotonic()
        second = int(now)
        covered = True
        for held in holding:
            need = tokens if held.of_tokens else 1
            if held.idle < need or (held.second != second and not held.of_streams):
                covered = False
                denied = held.denied if held.denied_until > now else None
                if denied is not None and need >= denied.need:
                    raise self._refused(denied, holding, messages=messages)
        if not covered:
            return None
        for held in holding:
            held.idle -= tokens if held.of_tokens else 1
        return Ticket(self, holding, second, tokens)

    def _holding(self, limits: tuple[Limits, ...]) -> tuple[_Held, ...]:
        """Return what this worker holds of some limits; of one alone, what all its requests share."""
        if len(limits) == 1:
            (only,) = limits
            known = self._held.get(only.name)
            return known[1] if known is not None and known[0] is only else self._held_of(only)
        return tuple(held for one in limits for held in self._held_of(one))

    def _held_of(self, limits: Limits) -> tuple[_Held, ...]:
        known = self._held.get(limits.name)
        if known is not None and known[0] is limits:
            return known[1]
        before = {} if known is None else {held.kind: held for held in known[1]}
        holding = []
        kinds: list[tuple[Kind, int | None]] = [
            ("requests", limits.rpm),
            ("tokens", limits.tpm),
            ("streams", limits.max_streams),
        ]
        for kind, limit in kinds:
            held = before.pop(kind, None)
            if limit is None:
                if held is not None:
                    self._return(held)
                continue
            held = held or _Held(limits.name, kind, limit)
            if held.limit != limit:
                held.limit, held.denied_until = limit, 0.0
                held.lines = LimitLines(kind, limit)
            holding.append(held)
        self._held[limits.name] = (limits, tuple(holding))
        return self._held[limits.name][1]

    def _refused(self, refusal: _Refusal, holding: tuple[_Held, ...], *, messages: bool) -> RateLimited:
        held = refusal.held
        passed_s = time.monotonic() - refusal.at
        wait_s = max(1.0, refusal.wait_s - passed_s)
        reset_s = max(1.0, refusal.reset_s - passed_s)
        whose = _WHOSE[held.name.partition(":")[0]]
        if held.kind == "streams":
            told = f"Too many requests at once: {whose} may run {held.limit}."
        else:
            told = f"Rate limit reached: {held.limit} {held.kind} a minute for {whose}."
        error = RateLimited(told, wait_s)
        error.limit = held.name
        error.header_lines = _lines(holding, held, reset_s, messages)
        return error

    # ---- questions --------------------------------------------------------------------------------------------------

    async def _ask(self, holding: tuple[_Held, ...], tokens: int) -> _Refusal | int | None:
        """Ask for all of it; return why not, or the second in which it was taken, or None where that was over."""
        if self._link.lost.is_set():
            raise StoreUnavailable("the supervisor is gone")
        self.asked += 1
        number = self._link.next_question()
        wants = []
        for held in holding:
            back = 0 if held.kind == "streams" else held.idle
            wants.append(
                Want(
                    held.name,
                    held.kind,
                    held.limit,
                    _need(held, tokens),
                    back,
                    held.second,
                    bare=held.asking > 0,
                )
            )
        self._link.send(SlicesAsked(number, wants))
        for held, want in zip(holding, wants, strict=True):
            held.idle -= want.back
            held.asking += 1
        question = self._questions[number] = _Question(holding, tokens, self._loop.create_future())
        try:
            async with asyncio.timeout(ANSWER_S):
                return await question.answer
        except TimeoutError:
            if question.answer.done() and not question.answer.cancelled():
                return question.answer.result()
            raise StoreUnavailable("the limits could not be looked up in time") from None
        except asyncio.CancelledError:
            if question.answer.done() and not question.answer.cancelled():
                done = question.answer.result()
                if isinstance(done, int):
                    Ticket(self, holding, done, tokens).undo()
            raise
        finally:
            for held in holding:
                held.asking -= 1

    def _sliced(self, message: Sliced) -> None:
        """Take what came, and what was needed of it; what nobody waits for any more goes back."""
        question = self._questions.pop(message.question, None)
        if question is None:
            return
        grant, now = message.grant, time.monotonic()
        waiting = not question.answer.done()
        if grant.refused >= 0:
            self._note_refusal(question, grant, now)
            return
        in_time = grant.second == int(now) or all(held.kind == "streams" for held in question.holding)
        taken = waiting and in_time
        for held, got in zip(question.holding, grant.slices, strict=True):
            held.left, held.keep, held.denied_until = got.left, got.keep, 0.0
            amount = got.amount - _need(held, question.tokens) if taken else got.amount
            if held.kind != "streams" and held.second != grant.second:
                self._return(held)
                held.second = grant.second
            held.idle += amount
            if held.kind == "streams" and held.idle > held.keep:
                self._return(held, held.idle - held.keep)
        if not self._watching:
            self._watch()
        if waiting:
            question.answer.set_result(grant.second if taken else None)

    def _note_refusal(self, question: _Question, grant: Grant, now: float) -> None:
        for held, left in zip(question.holding, grant.slices, strict=True):
            held.left = left.left
        held = question.holding[grant.refused]
        need = _need(held, question.tokens)
        held.denied_until = now + min(REMEMBER_S, grant.wait_s)
        held.denied = refusal = _Refusal(held, need, now, grant.wait_s, grant.reset_s)
        if not question.answer.done():
            question.answer.set_result(refusal)

    # ---- what goes back ---------------------------------------------------------------------------------------------

    def free_place(self, held: _Held) -> None:
        """Take back a place for a stream."""
        held.idle += 1
        held.denied_until = 0.0
        if held.idle > held.keep:
            self._return(held, held.idle - held.keep)
        if held.idle and not self._watching:
            self._watch()
        freed = self.on_freed.get(held.name)
        if freed is not None:
            freed.set()

    def correct(self, held: _Held, second: int, unused: int) -> None:
        """Book that less was used than was booked; below 0: more."""
        corrections = held.corrections
        if not corrections:
            if not self._corrected:
                self._loop.call_later(GATHER_S, self._send_corrections)
            self._corrected.append(held)
        corrections[second] = corrections.get(second, 0) + unused
        if unused > 0:
            held.denied_until = 0.0

    def _send_corrections(self) -> None:
        corrected, self._corrected = self._corrected, []
        back = []
        for held in corrected:
            for second, unused in held.corrections.items():
                back.append(Return(held.name, held.kind, unused, second))
            held.corrections = {}
        self._link.send(SlicesBack(back))
        for held in corrected:
            freed = self.on_freed.get(held.name)
            if freed is not None:
                freed.set()

    def _return(self, held: _Held, amount: int | None = None) -> None:
        amount = held.idle if amount is None else amount
        if amount:
            held.idle -= amount
            self._link.send(SlicesBack([Return(held.name, held.kind, amount, held.second)]))

    def _watch(self) -> None:
        self._watching = True
        self.due_at = 0.0
        self._deadlines.add(self)

    def expire(self, now: float) -> None:
        """Give back what is idle of a second that is over, and places that nobody took since the last time."""
        second = int(time.monotonic())
        back, idle = [], False
        for name, (_, holding) in list(self._held.items()):
            for held in holding:
                if held.idle and (held.kind == "streams" or held.second != second):
                    back.append(Return(name, held.kind, held.idle, held.second))
                    held.idle = 0
                idle = idle or bool(held.idle)
        if back:
            self._link.send(SlicesBack(back))
        if len(self._held) > MAX_KNOWN:
            self._held.clear()  # tickets keep what they need
        self._watching = idle
        if idle:
            self.due_at = now + 0.25
        else:
            self._deadlines.discard(self)


def _lines(holding: tuple[_Held, ...], refused: _Held | None, reset_s: float, messages: bool) -> bytes:
    """Return the lines of the tightest limit of requests and of tokens; streams have no names for theirs.

    Args:
        refused: which of them will be whole again after `reset_s`; the others have a minute.
    """
    requests: _Held | None = None
    tokens: _Held | None = None
    requests_left = tokens_left = 0
    for held in holding:
        if held.of_streams:
            continue
        left = held.left + held.idle
        if left < 0:
            left = 0
        if held.of_tokens:
            if tokens is None or left < tokens_left or (left == tokens_left and held.limit < tokens.limit):
                tokens, tokens_left = held, left
        elif (
            requests is None
            or left < requests_left
            or (left == requests_left and held.limit < requests.limit)
        ):
            requests, requests_left = held, left
    lines = b""
    if requests is not None:
        whole_s = reset_s if requests is refused else USUAL_RESET_S
        lines = requests.lines.write(requests_left, whole_s, messages=messages)
    if tokens is not None:
        whole_s = reset_s if tokens is refused else USUAL_RESET_S
        lines += tokens.lines.write(tokens_left, whole_s, messages=messages)
    return lines
