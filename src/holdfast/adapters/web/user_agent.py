"""How Holdfast names itself to search engines and to the sites whose pages an agent reads."""

from typing import Final

from holdfast import __version__

USER_AGENT: Final = f"Holdfast/{__version__}"
