"""The servers of a deployment over real HTTP (wire-v1 §2.16)."""

import httpx
import pytest
from tests.support.server_process import ServerProcess

from holdfast import __version__

pytestmark = pytest.mark.slow


@pytest.mark.both_databases
def test_any_server_lists_all_of_them_in_both_spellings(
    http: httpx.Client, servers: list[ServerProcess], database: str
) -> None:
    for path in ("/v1/servers", "/v1/servers/"):
        answer = http.get(path, follow_redirects=False)

        assert answer.status_code == 200, answer.text
        listed = answer.json()["servers"]
        assert {shown["pid"] for shown in listed} == {server.pid for server in servers}
        assert [shown["is_this"] for shown in listed].count(True) == 1
        for shown in listed:
            assert (shown["role"], shown["is_alive"]) == ("all", True)
            assert shown["version"] == __version__
            assert shown["started_at"] <= shown["heartbeat_at"] <= answer.json()["now"]
            # With SQLite nobody else could take its runs over.
            assert (shown["lease_ends_at"] is None) is (database == "sqlite")
