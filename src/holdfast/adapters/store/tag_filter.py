"""Filtering by tags: the same for agents, blocks, steps and passages."""

from collections.abc import Collection

from sqlalchemy import Column, ColumnElement, distinct, func, select


def has_tags(
    identity: ColumnElement[str],
    owner: Column[str],
    tags: Collection[str],
    *,
    every: bool,
    among: ColumnElement[bool] | None = None,
) -> ColumnElement[bool]:
    """Return the condition that an object has one of the tags, or every one. ``owner`` is the tag table's column with
    the object's id; ``among``: a condition on the tag table that all objects in question fulfil."""
    links = owner.table
    owners = select(owner).where(links.c.tag.in_(tags))
    if among is not None:
        owners = owners.where(among)
    if every:
        owners = owners.group_by(owner).having(func.count(distinct(links.c.tag)) == len(set(tags)))
    return identity.in_(owners)
