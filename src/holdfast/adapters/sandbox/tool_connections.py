"""Finds out which connections to the server may come from its own tools, or from those of servers beside it (Linux).

Servers beside it are the other processes of the same server, which accept connections from the same socket, and other
servers of the same user on this machine. A connection is looked at once. Its other end is a socket, and the socket belongs to a user and to processes. What
cannot be found out counts as a tool: a tool may hide its socket, or pass it on and exit before anybody looks.
"""

import asyncio
import os
import socket
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from holdfast.adapters.sandbox.peer_sockets import (
    PeerSocket,
    find_peer_socket,
    is_on_this_machine,
)
from holdfast.adapters.sandbox.process_table import find_sockets, list_pids
from holdfast.adapters.sandbox.tool_processes import (
    CallProcesses,
    ToolProcesses,
    may_be_tool_process,
)
from holdfast.ports.tool_connections import Connection

_REMEMBERED_CALLERS: Final = 32
"""How many programs that have connected are looked at first the next time."""


class ProcToolConnections:
    def __init__(
        self, processes: ToolProcesses, tool_uids: frozenset[int], *, is_alone: bool
    ) -> None:
        """``tool_uids`` are the users that tools may run as. With ``is_alone`` no other server has the same database:
        while no tool of this one lives, there is nothing to find out."""
        self._is_alone = is_alone
        self._processes = processes
        self._tool_uids = tool_uids
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="tool-connections")
        self._callers: deque[int] = deque(maxlen=_REMEMBERED_CALLERS)
        self._searched: dict[int, asyncio.Future[bool]] = {}
        self._search_task: asyncio.Task[None] | None = None

    async def may_be_tool(self, connection: Connection) -> bool:
        if connection.may_be_tool is None:
            connection.may_be_tool = await self._find_out(connection)
        return connection.may_be_tool

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _find_out(self, connection: Connection) -> bool:
        if sys.platform != "linux":
            return False
        if self._is_alone and not self._processes.may_have_lived(connection.accepted_at):
            return False
        if not is_on_this_machine(connection.peer[0]):
            return False
        found = find_peer_socket(connection.peer, connection.local)
        if found is None or found.inode == 0:  # whoever opened it has closed it
            return True
        if found.uid not in self._tool_uids:
            return False
        # No await since the socket was found, so if tools have none now, they had none then. A user that is there for
        # tools could have sent it to another program, which keeps it until it reads it.
        is_ours = found.uid == os.geteuid()
        if self._is_alone and is_ours and not self._processes.may_have_sockets:
            return False
        return await self._search(found)

    async def _search(self, found: PeerSocket) -> bool:
        """Many connections share one search, so that a tool that opens thousands delays nobody else for long."""
        if found.inode not in self._searched:
            self._searched[found.inode] = asyncio.get_running_loop().create_future()
        future = self._searched[found.inode]
        if self._search_task is None or self._search_task.done():
            self._search_task = asyncio.create_task(self._search_all())
        return await asyncio.shield(future)

    async def _search_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._searched:
            batch, self._searched = self._searched, {}
            calls = self._processes.list_recent()
            inodes, callers = frozenset(batch), list(self._callers)
            ordinary: dict[int, int] = {}
            try:
                ordinary = await loop.run_in_executor(
                    self._executor, _find_ordinary, inodes, callers, calls
                )
            finally:
                for inode, future in batch.items():
                    future.set_result(inode not in ordinary)
            self._callers.extendleft(set(ordinary.values()) - set(self._callers))


def can_find_owners() -> bool:
    """Whether this system tells which process is at the other end of a connection, tried with one of our own."""
    if sys.platform != "linux":
        return False
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            socket.create_connection(listener.getsockname()) as client,
        ):
            found = find_peer_socket(client.getsockname(), listener.getsockname())
            return found is not None and bool(find_sockets(frozenset({found.inode}), [os.getpid()]))
    except OSError:
        return False


def _find_ordinary(
    inodes: frozenset[int], callers: list[int], calls: list[CallProcesses]
) -> dict[int, int]:
    """The sockets that a program which is no tool has open, each with its process."""
    holders = find_sockets(inodes, callers)
    if missing := inodes - holders.keys():
        holders |= find_sockets(missing, list_pids())
    # The second look: the process may have ended before its ancestors were read, and its pid may be another one's now.
    return {
        inode: pid
        for inode, pid in holders.items()
        if not may_be_tool_process(pid, calls) and find_sockets(frozenset({inode}), [pid])
    }
