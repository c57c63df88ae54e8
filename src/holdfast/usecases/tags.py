"""The tags in use on agents and blocks. The paging cursor is the tag itself."""

from collections.abc import Sequence

from holdfast.core.agents import Actor
from holdfast.core.paging import Order, Page
from holdfast.ports.services import Services


async def list_page(
    services: Services,
    actor: Actor,
    page: Page,
    *,
    name: str | None = None,
    text: str | None = None,
) -> Sequence[str]:
    """List tags. ``name`` matches the whole tag, ``text`` a part of it, ignoring case."""
    tags = await services.store.read(lambda tx: tx.agents.all_tags(actor.organization_id))
    wanted = [
        tag
        for tag in tags
        if (name is None or tag == name) and (text is None or text.casefold() in tag.casefold())
    ]
    return _select_page(wanted, page)


def _select_page(tags: Sequence[str], page: Page) -> list[str]:
    low, high = (page.after, page.before) if page.order is Order.ASC else (page.before, page.after)
    between = [tag for tag in tags if (low is None or tag > low) and (high is None or tag < high)]
    ordered = sorted(between, reverse=page.order is Order.DESC)
    # ``before`` without ``after`` asks for the tags directly before it.
    if page.before is not None and page.after is None:
        return ordered[-page.limit :]
    return ordered[: page.limit]
