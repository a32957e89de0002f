"""Credit is never overspent, never stranded, and a wait for it always ends."""

import asyncio
import random

import pytest

from sluicegate.errors import InsufficientBalance, StoreUnavailable
from sluicegate.server.control_messages import GivenBack, Leased
from tests.server.credit_world import credit_world


async def test_a_lease_covers_many_reservations_where_there_is_plenty() -> None:
    async with credit_world(2, acme=1_000_000) as world:
        credit = world.credits[1]
        await credit.reserve("acme", 100)
        assert credit.waits == 1
        reserved = 1
        while credit.try_reserve("acme", 100):
            reserved += 1
        assert reserved == 64
        assert world.book.leased_to("acme", 1) == 6_400


async def test_a_lease_is_one_reservation_where_credit_is_short() -> None:
    async with credit_world(2, acme=20 * 2 * 100 - 1) as world:
        await world.credits[1].reserve("acme", 100)
        assert not world.credits[1].try_reserve("acme", 1)
        assert world.book.leased_to("acme", 1) == 100


async def test_b4_a_refusal_tells_what_is_available() -> None:
    async with credit_world(1, acme=70) as world:
        with pytest.raises(InsufficientBalance) as refused:
            await world.credits[1].reserve("acme", 100)
        assert refused.value.available_nano == 70
        assert "0.0000001 USD" in refused.value.message
        assert world.book.leased_to("acme", 1) == 0


async def test_b4_an_account_nobody_knows_has_nothing() -> None:
    async with credit_world(1) as world:
        with pytest.raises(InsufficientBalance):
            await world.credits[1].reserve("nobody", 1)


async def test_idle_leases_of_others_are_called_back() -> None:
    async with credit_world(3, acme=1_000_000) as world:
        for worker in (1, 2):
            await world.credits[worker].reserve("acme", 2_000)
        assert world.credits[1].idle("acme") > 50_000
        await world.credits[3].reserve("acme", 1_000_000 - 4_000)
        assert world.credits[1].idle("acme") == 0
        assert world.book.free("acme") == 0


async def test_what_the_asking_worker_has_idle_counts_too() -> None:
    async with credit_world(1, acme=1_000_000) as world:
        credit = world.credits[1]
        await credit.reserve("acme", 10_000)
        assert credit.idle("acme") > 0
        await credit.reserve("acme", 990_000)
        assert world.book.free("acme") == 0


async def test_freed_reservations_are_usable_at_once_elsewhere() -> None:
    async with credit_world(3, acme=100) as world:
        for _ in range(200):
            held_by, wanted_by = random.sample((1, 2, 3), 2)
            await world.credits[held_by].reserve("acme", 100)
            with pytest.raises(InsufficientBalance):
                await world.credits[wanted_by].reserve("acme", 100)
            world.credits[held_by].settle("acme", 100, 0)
            await world.credits[wanted_by].reserve("acme", 100)
            world.credits[wanted_by].settle("acme", 100, 0)


async def test_the_spent_part_is_free_only_by_the_commit_that_books_it() -> None:
    async with credit_world(2, acme=100) as world:
        await world.credits[1].reserve("acme", 100)
        world.credits[1].settle("acme", 100, 60)
        with pytest.raises(InsufficientBalance) as refused:
            await world.credits[2].reserve("acme", 50)
        assert refused.value.available_nano == 40
        world.book.book("acme", 1, 60)
        assert world.book.free("acme") == 40
        await world.credits[2].reserve("acme", 40)
        assert world.book.free("acme") == 0


async def test_x6_credit_is_never_overspent_by_hundreds_at_once() -> None:
    """Every request that was let in is paid in full, and none is refused while there is enough for it."""
    balance = 50_000
    async with credit_world(3, acme=balance, other=balance) as world:
        chance = random.Random(7)
        held = {"acme": 0, "other": 0}
        spent = {"acme": 0, "other": 0}
        refused = 0

        async def request(worker: int, account: str) -> None:
            nonlocal refused
            need = chance.randint(1, 600)
            credit = world.credits[worker]
            try:
                if not credit.try_reserve(account, need):
                    await credit.reserve(account, need)
            except InsufficientBalance:
                refused += 1
                return
            except StoreUnavailable:
                return  # a machine too busy to answer within a second
            held[account] += need
            assert spent[account] + held[account] <= balance
            await asyncio.sleep(chance.random() * 0.01)
            charge = chance.randint(0, need)
            held[account] -= need
            spent[account] += charge
            world.credits[worker].settle(account, need, charge)
            await asyncio.sleep(chance.random() * 0.01)
            world.book.book(account, worker, charge)

        requests = [request(n % 3 + 1, ("acme", "other")[n % 2]) for n in range(900)]
        await asyncio.gather(*requests)
        await world.settled()
        assert refused > 100
        for account in held:
            assert 0 <= spent[account] <= balance
            idle = sum(credit.idle(account) for credit in world.credits.values())
            assert world.book.free(account) + idle == balance - spent[account]
            left = balance - spent[account]
            await world.credits[1].reserve(account, left)  # nothing is stranded anywhere
            with pytest.raises(InsufficientBalance):
                await world.credits[2].reserve(account, 1)


async def test_a_dead_workers_lease_is_waited_for_and_comes_free_with_its_journal() -> None:
    async with credit_world(2, acme=100) as world:
        await world.credits[1].reserve("acme", 100)
        world.live.pop(1).close()
        asking = asyncio.create_task(world.credits[2].reserve("acme", 100))
        await asyncio.sleep(0.03)
        assert not asking.done()
        world.bank.release_worker(1)
        await asking


async def test_a_lease_nobody_can_give_back_yet_is_unavailable_and_never_freed_by_a_clock() -> None:
    """Its worker is dead and its journal not committed: whether the credit was spent is not known."""
    async with credit_world(2, acme=100) as world:
        await world.credits[1].reserve("acme", 60)
        world.live.pop(1).close()
        await world.credits[2].reserve("acme", 40)
        with pytest.raises(StoreUnavailable):
            await world.credits[2].reserve("acme", 60)
        with pytest.raises(InsufficientBalance) as refused:
            await world.credits[2].reserve("acme", 61)
        assert refused.value.available_nano == 0
        assert await world.credits[2].cover("acme", 10) == 0


async def test_a_stuck_worker_keeps_nobody_from_what_is_free() -> None:
    async with credit_world(2, acme=100_000) as world:
        await world.credits[1].reserve("acme", 100)
        world.links[1].on_recall = lambda recall: None  # it hears nothing any more
        await world.credits[2].reserve("acme", world.book.free("acme") - 50)
        waiting = asyncio.create_task(world.credits[2].reserve("acme", 100))
        await asyncio.sleep(0.01)
        started = asyncio.get_running_loop().time()
        await world.credits[2].reserve("acme", 50)
        assert asyncio.get_running_loop().time() - started < 0.8
        with pytest.raises(StoreUnavailable):
            await waiting


async def test_cover_takes_the_idle_part_then_one_refill() -> None:
    async with credit_world(2, acme=1_000) as world:
        await world.credits[1].reserve("acme", 100)
        await world.credits[2].reserve("acme", 300)
        assert await world.credits[1].cover("acme", 400) == 400
        world.spend(1, "acme", 500, 500)
        assert world.book.free("acme") == 200
        assert await world.credits[2].cover("acme", 900) == 200
        assert await world.credits[2].cover("acme", 1) == 0


async def test_cover_ends_after_its_time_and_a_late_refill_goes_back() -> None:
    async with credit_world(2, acme=1_000) as world:
        await world.credits[1].reserve("acme", 100)
        world.stuck = True
        started = asyncio.get_running_loop().time()
        assert await world.credits[1].cover("acme", 50) == 0
        assert 0.2 < asyncio.get_running_loop().time() - started < 0.6
        question = world.links[1].next_question() - 1
        grant = world.book.lease_part("acme", 1, 50)
        world.send(1, Leased(question, "acme", grant.amount_nano, 900, True))
        await world.settled()
        assert world.book.leased_to("acme", 1) == 100


async def test_a_wait_ends_after_a_second_as_unavailable_never_as_402() -> None:
    async with credit_world(1, acme=1_000) as world:
        world.stuck = True
        started = asyncio.get_running_loop().time()
        with pytest.raises(StoreUnavailable):
            await world.credits[1].reserve("acme", 1)
        assert 0.9 < asyncio.get_running_loop().time() - started < 1.5


async def test_a_wait_ends_at_once_when_the_supervisor_goes() -> None:
    async with credit_world(1, acme=1_000) as world:
        world.stuck = True
        waiting = asyncio.create_task(world.credits[1].reserve("acme", 1))
        await asyncio.sleep(0.01)
        world.live[1].close()
        started = asyncio.get_running_loop().time()
        with pytest.raises(StoreUnavailable):
            await waiting
        with pytest.raises(StoreUnavailable):
            await world.credits[1].reserve("acme", 1)
        assert await world.credits[1].cover("acme", 1) == 0
        assert asyncio.get_running_loop().time() - started < 0.2


async def test_a_client_that_leaves_while_it_waits_strands_nothing() -> None:
    async with credit_world(2, acme=500) as world:
        chance = random.Random(3)
        for _ in range(100):
            waiting = [asyncio.create_task(world.credits[1].reserve("acme", 100)) for _ in range(3)]
            for _ in range(chance.randint(0, 4)):
                await asyncio.sleep(0)
            chance.choice(waiting).cancel()
            done = await asyncio.gather(*waiting, return_exceptions=True)
            for result in done:
                if result is None:
                    world.credits[1].settle("acme", 100, 0)
            await world.settled()
        await world.credits[2].reserve("acme", 500)


async def test_what_a_settlement_gives_back_never_passes_its_reservation() -> None:
    async with credit_world(1, acme=500) as world:
        await world.credits[1].reserve("acme", 100)
        with pytest.raises(AssertionError):
            world.credits[1].settle("acme", 100, 101)


async def test_giving_back_more_than_was_leased_is_a_fault() -> None:
    async with credit_world(1, acme=500) as world:
        with pytest.raises(AssertionError):
            world.bank.given_back(1, GivenBack("acme", 1))


async def test_a_debit_by_hand_takes_free_credit_only_and_calls_idle_leases_back() -> None:
    async with credit_world(2, acme=1_000_000) as world:
        await world.credits[1].reserve("acme", 1_000)
        assert not await world.bank.hold("acme", 999_001)
        assert await world.bank.hold("acme", 999_000)
        with pytest.raises(InsufficientBalance):
            await world.credits[2].reserve("acme", 1)
        world.book.set_balance("acme", 1_000)
        world.book.release("acme", 999_000)
        assert world.book.free("acme") == 0


async def test_one_lease_round_serves_all_who_wait() -> None:
    async def round_of_five() -> list[BaseException | None]:
        async with credit_world(3, acme=300) as world:
            await world.credits[1].reserve("acme", 100)
            return await asyncio.gather(
                *(world.credits[worker].reserve("acme", 100) for worker in (1, 2, 3, 1, 2)),
                return_exceptions=True,
            )

    outcomes = await round_of_five()
    if any(isinstance(outcome, StoreUnavailable) for outcome in outcomes):
        outcomes = await round_of_five()  # the machine stood still for the second that anybody waits
    assert sum(outcome is None for outcome in outcomes) == 2, outcomes
    assert all(outcome is None or isinstance(outcome, InsufficientBalance) for outcome in outcomes)
