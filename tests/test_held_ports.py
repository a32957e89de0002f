"""The ports that tests give to servers which they start, or on which nobody may listen (`tests/gate.py`)."""

import socket

import pytest

from tests.gate import held_port


def test_a_held_port_is_given_to_nobody_and_its_own_server_may_listen() -> None:
    with held_port() as port:
        where = ("127.0.0.1", port)
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(where)
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(where)
            with socket.create_server(where) as server, socket.create_connection(where):
                server.accept()[0].close()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(where)
