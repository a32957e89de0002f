"""Answers that are kept: whole conversations, for a while, within a bound of bytes."""

from sluicegate.store import KeptResponse, Store


def kept(id: str, previous: str | None = None, account: str = "a", size: int = 10) -> KeptResponse:
    return KeptResponse(id=id, account_id=account, previous=previous, input=b"[]", response=b"x" * (size - 2))


async def found(store: Store, id: str, now: float, *, whole: bool = True, account: str = "a") -> list[str]:
    return [one.id for one in await store.find_responses(account, id, now, whole=whole)]


async def test_a_conversation_comes_in_its_order_and_stays_whole(store: Store) -> None:
    for now, (id, previous) in enumerate([("1", None), ("2", "1"), ("3", "2"), ("other", None)]):
        assert await store.keep_response(kept(id, previous), now, now + 10, 1000)
    assert await found(store, "3", 5) == ["1", "2", "3"]
    assert await found(store, "3", 5, whole=False) == ["3"]
    assert await found(store, "3", 11) == ["1", "2", "3"], "going on renews what was before"
    assert await found(store, "other", 13) == []
    assert await found(store, "3", 5, account="b") == []
    await store.expire_responses(13)
    assert await found(store, "3", 5) == []


async def test_a_conversation_that_lost_its_beginning_is_gone(store: Store) -> None:
    await store.keep_response(kept("1"), 0, 10, 1000)
    await store.keep_response(kept("2", "1"), 0, 10, 1000)
    assert not await store.drop_response("b", "1")
    assert await store.drop_response("a", "1")
    assert await found(store, "2", 1) == []
    assert await found(store, "2", 1, whole=False) == ["2"]


async def test_the_oldest_make_room(store: Store) -> None:
    for number in range(5):
        assert await store.keep_response(kept(str(number), size=40), number, number + 100, 100)
    assert [await found(store, str(number), 5) for number in range(5)] == [[], [], [], ["3"], ["4"]]
    assert not await store.keep_response(kept("big", size=101), 6, 200, 100)
    assert await found(store, "4", 6) == ["4"]
