"""A bank and several workers' credit, joined by real control sockets in one loop."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

from sluicegate.billing.leases import LeaseBook
from sluicegate.server.bank import Bank
from sluicegate.server.control import Channel, open_supervisor_end
from sluicegate.server.control_messages import FromWorker, GivenBack, LeaseAsked
from sluicegate.server.credit import Credit
from sluicegate.server.supervisor_link import SupervisorLink


class CreditWorld:
    """Worker n is `credits[n]`; numbers count from 1."""

    def __init__(self, balances: dict[str, int]) -> None:
        self.live: dict[int, Channel[FromWorker]] = {}
        self.credits: dict[int, Credit] = {}
        self.links: dict[int, SupervisorLink] = {}
        self.book = LeaseBook(balances)
        self.bank = Bank(self.book, self)
        self.stuck = False
        """The supervisor answers nothing."""

    def send(self, worker: int, message: object) -> None:
        if worker in self.live:
            self.live[worker].send(message)

    async def add_worker(self) -> Credit:
        number = len(self.credits) + 1
        ours, theirs = socket.socketpair()

        def heard(message: FromWorker) -> None:
            match message:
                case LeaseAsked() if self.stuck:
                    return
                case LeaseAsked():
                    self.bank.asked(number, message)
                case GivenBack():
                    self.bank.given_back(number, message)

        self.live[number] = await open_supervisor_end(ours, heard, lambda error: None)
        self.links[number] = await SupervisorLink.open(theirs)
        self.credits[number] = credit = Credit(self.links[number])
        return credit

    async def settled(self) -> None:
        """Let every frame that is under way arrive."""
        for _ in range(3):
            await asyncio.sleep(0.002)

    def spend(self, worker: int, account_id: str, reserved: int, charged: int) -> None:
        """Settle as a worker does, and book the charge as the drain does."""
        self.credits[worker].settle(account_id, reserved, charged)
        self.book.book(account_id, worker, charged)


@contextlib.asynccontextmanager
async def credit_world(workers: int, **balances: int) -> AsyncIterator[CreditWorld]:
    world = CreditWorld(dict(balances))
    for _ in range(workers):
        await world.add_worker()
    try:
        yield world
    finally:
        for link in world.links.values():
            link.close()
        for channel in world.live.values():
            channel.close()
        await asyncio.sleep(0.002)
