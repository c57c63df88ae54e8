"""The server URL that commands use by default."""

import pytest

from holdfast.cli.api import default_url
from holdfast.errors import SettingInvalid


@pytest.mark.parametrize(
    ("environ", "url"),
    [
        ({}, "http://127.0.0.1:8283"),
        ({"HOLDFAST_PORT": "9000"}, "http://127.0.0.1:9000"),
        ({"HOLDFAST_PORT": ""}, "http://127.0.0.1:8283"),
        ({"HOLDFAST_HOST": "holdfast.example"}, "http://holdfast.example:8283"),
        ({"HOLDFAST_HOST": "0.0.0.0", "HOLDFAST_PORT": "80"}, "http://127.0.0.1:80"),
        ({"HOLDFAST_HOST": "::"}, "http://[::1]:8283"),
        ({"HOLDFAST_HOST": "fd00::1"}, "http://[fd00::1]:8283"),
    ],
)
def test_the_address_follows_the_settings_of_the_server(environ: dict[str, str], url: str) -> None:
    assert default_url(environ) == url


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http"])
def test_a_port_that_cannot_be_connected_to_is_refused(port: str) -> None:
    with pytest.raises(SettingInvalid, match=r"HOLDFAST_PORT is .* with --url or HOLDFAST_URL"):
        default_url({"HOLDFAST_PORT": port})
