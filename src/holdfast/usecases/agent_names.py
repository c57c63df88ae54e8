"""Generated names for agents that are created without one."""

_ADJECTIVES = (
    "Amber Brave Bright Calm Clear Coral Crisp Eager Early Fair Fleet Gentle Golden Green Hardy Honest Jolly Keen "
    "Kind Lively Loyal Lucky Mellow Merry Mild Nimble Noble Patient Plain Proud Quick Quiet Ready Silver Steady "
    "Sunny Swift Tidy True Warm Wise Witty"
)
_NOUNS = (
    "Anchor Badger Beacon Birch Brook Cedar Cliff Comet Crane Curlew Dolphin Dune Falcon Fern Finch Harbor Heron "
    "Island Juniper Kelp Kestrel Lantern Lark Limpet Marten Meadow Otter Pebble Pilot Plover Puffin Reef River "
    "Robin Rowan Sable Sparrow Summit Tern Thistle Tide Willow Wren"
)


def make_name(number: int) -> str:
    """Make a name of two words from a random number."""
    firsts, seconds = _ADJECTIVES.split(), _NOUNS.split()
    rest, first = divmod(number, len(firsts))
    return f"{firsts[first]} {seconds[rest % len(seconds)]}"
