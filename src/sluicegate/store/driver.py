"""Statements that go to the database's driver as they are, inside a transaction that SQLAlchemy has begun.

For what runs thousands of times a second: the toolkit's own way, statement by statement and row by row, takes longer
than the database does. Statements are still written in its words, once for each dialect, and the driver's errors
become the toolkit's, so that who catches them need not know the difference.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql import ClauseElement

Values = Sequence[Any]


class Driver:
    """The driver beneath one connection, for the transaction that is open."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._dialect = connection.dialect
        assert self._dialect.loaded_dbapi is not None
        self._error: type[Exception] = self._dialect.loaded_dbapi.Error
        self._cursor = connection.connection.cursor()

    def run(self, statement: ClauseElement, values: Values = ()) -> None:
        """Run a statement; values stand in the order of its places.

        Raises:
            DBAPIError: of the kind that the driver's error is.
        """
        try:
            self._cursor.execute(_written(statement, self._dialect), values)
        except self._error as error:
            raise self._translated(error) from error

    def run_for_each(self, statement: ClauseElement, rows: Sequence[Values]) -> None:
        """Run a statement for each of many rows of values; raises as `run` does."""
        if not rows:
            return
        try:
            self._cursor.executemany(_written(statement, self._dialect), rows)
        except self._error as error:
            raise self._translated(error) from error

    def rows(self, statement: ClauseElement, values: Values = ()) -> Sequence[Values]:
        """Return all that a statement finds; raises as `run` does."""
        self.run(statement, values)
        found: Sequence[Values] = self._cursor.fetchall()
        return found

    def _translated(self, error: Exception) -> BaseException:
        dialect, beneath = self._dialect, self._connection.connection
        lost = dialect.is_disconnect(error, beneath, self._cursor)  # type: ignore[arg-type]
        if lost:
            self._connection.invalidate(error)
        return DBAPIError.instance(
            None,
            None,
            error,
            self._error,
            hide_parameters=True,
            connection_invalidated=lost,
            dialect=dialect,
        )


@lru_cache(maxsize=64)
def _written(statement: ClauseElement, dialect: Dialect) -> str:
    """Write a statement as the dialect's driver takes it, its values by position."""
    return statement.compile(dialect=dialect).string
