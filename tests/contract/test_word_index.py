"""The index of words means the same on both databases: what is found, in which order, and that nothing is a syntax error."""

from collections.abc import Sequence
from datetime import datetime
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from tests.support.values import Make, moment

from holdfast.adapters.store.sql_store import SqlStore
from holdfast.core.archives import Archive
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.message_search import MessageFilter
from holdfast.core.messages import Message, Role
from holdfast.core.passages import PassageFilter
from holdfast.core.search import MAX_INDEXED_CHARS
from holdfast.core.threads import Thread
from holdfast.errors import InvalidArgument
from holdfast.ports.store import Store, Transaction

ORG = DEFAULT_ORGANIZATION_ID


async def new_archive(store: Store, make: Make) -> Archive:
    archive = make.archive()
    await store.write(lambda tx: tx.archives.add(archive))
    return archive


async def fill(
    store: Store, make: Make, texts: Sequence[str], archive: Archive | None = None, **fields: Any
) -> Archive:
    """An archive with these passages."""
    archive = archive or await new_archive(store, make)
    passages = [make.passage(archive, text=text, **fields) for text in texts]
    await store.write(lambda tx: tx.passages.add(passages))
    return archive


async def search(
    store: Store, query: str, *archives: Archive, limit: int = 10, **fields: Any
) -> list[str]:
    """The texts that are found, best first."""
    ids = tuple(archive.id for archive in archives)
    where = PassageFilter(archive_ids=ids or None, **fields)
    found = await store.read(lambda tx: tx.passages.search(ORG, where, query, limit))
    return [item.passage.text for item in found]


async def new_thread(store: Store, make: Make) -> Thread:
    agent = make.agent()
    thread = make.thread(agent)

    def work(tx: Transaction) -> None:
        tx.agents.add(agent)
        tx.threads.add(thread)

    await store.write(work)
    return thread


async def search_messages(store: Store, query: str, limit: int = 10, **fields: Any) -> list[str]:
    where = MessageFilter(**fields)
    found = await store.read(lambda tx: tx.messages.search(ORG, where, query, limit))
    return [item.message.text for item in found]


async def append(store: Store, *messages: Message) -> None:
    await store.write(lambda tx: tx.messages.append(messages))


async def test_each_word_is_optional_and_more_of_them_rank_higher(
    any_store: Store, make: Make
) -> None:
    texts = ["the pie is done", "pie of apple", "a walk by the sea", "recipe: pie, apple, cream"]
    archive = await fill(any_store, make, texts)
    found = await search(any_store, "apple pie recipe", archive)
    assert found == [texts[3], texts[1], texts[0]]


async def test_rarer_words_rank_higher(any_store: Store, make: Make) -> None:
    common = [f"budget of week {number}" for number in range(20)]
    archive = await fill(any_store, make, [*common, "the giraffe of week 21", *common])
    found = await search(any_store, "giraffe budget", archive, limit=3)
    assert found[0] == "the giraffe of week 21"
    assert set(found[1:]) <= set(common)


async def test_a_word_that_others_use_often_is_rare_where_it_is_rare(
    any_store: Store, make: Make
) -> None:
    """The words of other archives do not change the order in this one."""
    await fill(any_store, make, [f"zebra number {number}" for number in range(300)])
    mine = await fill(any_store, make, ["plan plan", "plan for monday", "zebra monday"])
    await fill(any_store, make, [f"plan {number}" for number in range(9)], mine)
    assert (await search(any_store, "plan zebra", mine))[0] == "zebra monday"


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("The Quick Brown FOX", "fox quick"),
        ("Ein Café in Zürich", "cafe zurich"),
        ("cafe in zurich", "Café Zürich"),
        ("She owns two cats", "cat"),
        ("one city", "cities"),
        ("las casas blancas", "casa blanca"),
        ("call getUserName() here", "user"),
        ("call getUserName() here", "getusername"),
        ("the value of MAX_RETRY_COUNT", "retry"),
        ("HTTPServer2 starts", "server"),
        ("HTTPServer2 starts", "http"),
        ("Go to it", "go"),
        ("room B7", "b7"),
        ("order 4711 arrived", "4711"),
        ("at 12:45 o'clock", "45"),
        ("pi is 3.14159", "14159"),
        ("write to ada.lovelace@example.org", "lovelace"),
        ("write to ada.lovelace@example.org", "ada.lovelace@example.org"),
        ("see https://docs.example.com/install?os=linux#step-2", "install linux"),
        ("file /etc/nginx/nginx.conf", "nginx.conf"),
        ("我住在北京市朝阳区", "北京"),
        ("我住在北京市朝阳区", "区"),
        ("我住在北京市朝阳区", "京"),
        ("東京タワーに行きました", "東京タワー"),
        ("カタカナとひらがな", "ひらがな"),
        ("ﾊﾝｶｸ", "ハンカク"),
        ("저는 서울에서 살아요", "서울"),
        ("กรุงเทพมหานครเป็นเมืองหลวง", "กรุงเทพ"),
        ("مرحبا بالعالم", "مرحبا"),
        ("كِتَابٌ جديد", "كِتَابٌ"),
        ("मेरा घर दिल्ली में है", "दिल्ली"),
        ("Москва — столица", "МОСКВА"),  # noqa: RUF001 - Cyrillic and Greek are meant
        ("ёлка в лесу", "елка"),
        ("ΑΘΗΝΑ και Σπάρτη", "αθηνα"),
        ("שלום עולם", "שלום"),
        ("Straße nach Gießen", "strasse"),
        ("ﬁne print", "fine"),
        ("Iphone１５", "iphone15"),  # noqa: RUF001 - Cyrillic and Greek are meant
        ("born in 東京, lives in Berlin", "berlin 東京"),
    ],
)
async def test_a_word_is_found_in_its_forms(
    any_store: Store, make: Make, text: str, query: str
) -> None:
    archive = await fill(any_store, make, ["zzz", text, "yyy"])
    assert await search(any_store, query, archive) == [text]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("100 % sure", "%"),
        ("snake_case", "_"),
        ("what?!", "?!"),
        ("C:\\temp", ":\\"),
        ('it\'s "so"', '"'),
        ("party 🎉 tonight", "🎉"),
        ("a -> b", "->"),
        ("1 < 2", " < "),
        ("it's", "'"),
        ("x* AND y", "*"),
    ],
)
async def test_a_query_without_words_must_be_contained(
    any_store: Store, make: Make, text: str, query: str
) -> None:
    archive = await fill(any_store, make, ["zzz", text, "yyy"])
    assert await search(any_store, query, archive) == [text]
    thread = await new_thread(any_store, make)
    await append(any_store, make.message(thread, "zzz"), make.message(thread, text))
    assert await search_messages(any_store, query, agent_id=thread.agent_id) == [text]


@pytest.mark.parametrize(
    "query",
    [
        'AND "',
        "NEAR(a b)",
        "terms:fox",
        "fox*",
        "^fox",
        "-fox",
        "(fox",
        "fox & !dog",
        "fox:*",
        "fox <-> dog",
        "'fox'",
        "fox\\",
        "{fox} : +",
        "fox OR",
        "\ue000fox",
        "a" * 5_000 + " fox",
        " ".join(f"w{number}" for number in range(60)) + " fox",
    ],
)
async def test_no_query_is_a_syntax_error(any_store: Store, make: Make, query: str) -> None:
    archive = await fill(any_store, make, ["the quick fox", "and a near b"])
    assert await search(any_store, query, archive) != []


async def test_a_scope_is_not_a_word(any_store: Store, make: Make) -> None:
    archive = await fill(any_store, make, ["something"])
    for query in (archive.id, archive.id.replace("-", ""), f"\ue000{archive.id.replace('-', '')}"):
        assert await search(any_store, query, archive) == []


async def test_equally_good_texts_are_listed_newest_first(any_store: Store, make: Make) -> None:
    archive = await fill(any_store, make, ["same words one", "same words two", "same words six"])
    expected = ["same words six", "same words two", "same words one"]
    assert await search(any_store, "same words", archive) == expected
    assert await search(any_store, "same", archive, limit=2) == expected[:2]
    assert await search(any_store, "same", archive, limit=0) == []


async def test_words_that_are_often_in_a_short_text_rank_higher(
    any_store: Store, make: Make
) -> None:
    long = "tea " + " ".join(f"filler{number}" for number in range(200))
    archive = await fill(any_store, make, ["green tea, black tea, tea", "a cup of tea", long])
    found = await search(any_store, "tea", archive)
    assert found == ["green tea, black tea, tea", "a cup of tea", long]


@pytest.mark.parametrize("has_statistics", [False, True], ids=["new", "analyzed"])
async def test_frequent_words_do_not_hide_rare_ones_nor_the_other_way_round(
    any_store: SqlStore, make: Make, has_statistics: bool
) -> None:
    """Beyond a limit only the rarer words choose the rows; the frequent ones fill the list. What is frequent, PostgreSQL
    learns from its statistics."""
    archive = await new_archive(any_store, make)
    await fill(any_store, make, ["everywhere seldom", "seldom alone"], archive)
    await fill(any_store, make, [f"everywhere {number}" for number in range(4_500)], archive)
    await fill(any_store, make, ["everywhere tagged"], archive, tags=("t",))
    await fill(any_store, make, [f"everywhere {number}" for number in range(1_200)], archive)
    small = await fill(any_store, make, ["everywhere here", "here alone", "everywhere"])
    if has_statistics:
        with any_store._writer.connect() as connection:
            connection.execute(text("ANALYZE"))
            connection.commit()
    found = await search(any_store, "everywhere seldom", archive, limit=5)
    assert found[0] == "everywhere seldom"
    assert len(found) == 5
    assert "seldom alone" in found
    assert len(await search(any_store, "everywhere", archive, limit=7)) == 7
    tagged = await search(any_store, "everywhere", archive, limit=1, tags=("t",))
    assert tagged == ["everywhere tagged"]
    assert (await search(any_store, "everywhere here", small))[0] == "everywhere here"
    assert len(await search(any_store, "everywhere here", small)) == 3


async def test_filters_apply_before_the_limit(any_store: Store, make: Make) -> None:
    archive, other = await new_archive(any_store, make), await new_archive(any_store, make)
    await fill(any_store, make, ["bread old"], archive, tags=("a", "b"), created_at=moment(1))
    await fill(any_store, make, ["bread b"], archive, tags=("b",), created_at=moment(2))
    await fill(any_store, make, ["bread"] * 10, archive, created_at=moment(3))
    await fill(any_store, make, ["bread elsewhere"], other, created_at=moment(4))

    async def find(*archives: Archive, **fields: Any) -> list[str]:
        return await search(any_store, "bread", *archives, limit=1, **fields)

    assert await find(archive, tags=("a",)) == ["bread old"]
    assert await find(archive, tags=("a", "b")) == ["bread b"]
    assert await find(archive, tags=("a", "b"), match_all_tags=True) == ["bread old"]
    assert await find(archive, until=moment(1)) == ["bread old"]
    assert await find(archive, since=moment(2), until=moment(2)) == ["bread b"]
    assert await find(archive, since=moment(5)) == []
    assert await find(other) == ["bread elsewhere"]
    assert len(await search(any_store, "bread", limit=99)) == 13
    assert len(await search(any_store, "bread", archive, other, limit=99)) == 13
    where = PassageFilter(archive_ids=())
    assert await any_store.read(lambda tx: tx.passages.search(ORG, where, "bread", 9)) == []
    where = PassageFilter()
    assert await any_store.read(lambda tx: tx.passages.search("org-x", where, "bread", 9)) == []


async def test_messages_are_found_by_agent_thread_role_and_time(
    any_store: Store, make: Make
) -> None:
    thread, other = await new_thread(any_store, make), await new_thread(any_store, make)
    rows = [
        make.message(thread, "bread one", role=Role.USER, created_at=moment(1)),
        make.message(thread, "bread two", role=Role.ASSISTANT, created_at=moment(2)),
        make.message(other, "bread three", created_at=moment(3)),
        make.message(thread, "bread four", role=Role.SYSTEM),
    ]
    await append(any_store, *rows)

    async def find(**fields: Any) -> list[str]:
        return await search_messages(any_store, "bread", **fields)

    assert await find() == ["bread three", "bread two", "bread one"]
    assert await find(agent_id=thread.agent_id) == ["bread two", "bread one"]
    assert await find(thread_id=other.id) == ["bread three"]
    assert await find(agent_id=thread.agent_id, roles=(Role.USER,), limit=1) == ["bread one"]
    assert await find(until=moment(1)) == ["bread one"]
    assert await find(agent_id=other.agent_id, thread_id=thread.id) == []


async def test_a_summary_is_found(any_store: Store, make: Make) -> None:
    thread = await new_thread(any_store, make)
    rows = [make.message(thread), make.message(thread)]
    await append(any_store, *rows)
    summary = make.message(thread, "They talked about zebras.", role=Role.SUMMARY)
    await any_store.write(lambda tx: tx.messages.replace_in_context(summary, [rows[1].id]))
    assert await search_messages(any_store, "zebra") == [summary.text]


@pytest.mark.parametrize(
    "text",
    [
        "needle " + "hay " * 1_300_000,
        "needle " + " ".join(f"word{number}x" for number in range(100_000)),
        "needle " + "x" * 5_000_000,
        "needle " + "針山" * 1_000_000,
        "needle " + "".join(map(chr, Random(1).choices(range(0x4E00, 0x9FFF), k=190_000))),
        "needle " + " ".join("e\u0301" * 3 + chr(0x400 + n % 80) * n for n in range(500)),
    ],
    ids=["long", "many words", "one word", "pairs", "many pairs", "accents"],
)
async def test_a_huge_message_is_indexed_in_part(any_store: Store, make: Make, text: str) -> None:
    thread = await new_thread(any_store, make)
    await append(any_store, make.message(thread, text), make.message(thread, "small needle"))
    found = await search_messages(any_store, "needle", agent_id=thread.agent_id)
    assert found == ["small needle", text]


async def test_what_is_beyond_the_indexed_part_is_not_found(any_store: Store, make: Make) -> None:
    thread = await new_thread(any_store, make)
    text = "hay " * (MAX_INDEXED_CHARS // 4) + "needle"
    await append(any_store, make.message(thread, text))
    assert await search_messages(any_store, "needle") == []
    assert await search_messages(any_store, "hay") == [text]


async def test_deleted_texts_are_not_found(any_store: Store, make: Make) -> None:
    archive = await fill(any_store, make, ["bread"])
    passage = make.passage(archive, text="bread, gone")
    await any_store.write(lambda tx: tx.passages.add([passage]))
    await any_store.write(lambda tx: tx.passages.delete(ORG, passage.id))
    assert await search(any_store, "bread", archive) == ["bread"]
    await any_store.write(lambda tx: tx.archives.delete(ORG, archive.id))
    assert await search(any_store, "bread") == []
    # A position is not used again: the words of the old passage are not those of the new one.
    await fill(any_store, make, ["butter"])
    assert await search(any_store, "bread") == []


async def test_a_nul_is_removed_and_half_a_character_refused(any_store: Store, make: Make) -> None:
    archive = await fill(any_store, make, ["left\x00right"])
    assert await search(any_store, "leftright", archive) == ["leftright"]
    assert await search(any_store, "left\x00right", archive) == ["leftright"]
    assert await search(any_store, "\x00", archive) == await search(any_store, "", archive)
    with pytest.raises(InvalidArgument, match="lone surrogate"):
        await fill(any_store, make, ["half \ud83c"])
    with pytest.raises(InvalidArgument, match="lone surrogate"):
        await search(any_store, "\ud83c", archive)


EDGES = st.text(
    st.one_of(
        st.characters(codec="utf-8"),
        st.sampled_from("aAzé ßǆİıς'\"\\%_*:&|!()<->\x00\ue000\u0301\u200d東京กา한글ाक्"),
    ),
    max_size=40,
)


@pytest.mark.slow
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(text=EDGES, query=EDGES)
@example(text="ŉ ǰ ΐ ﬃ", query="ŉ ǰ ΐ ﬃ")
@example(text="a\u0301\u0301\u0301", query="\u0301")
@example(text="İstanbul", query="istanbul")
async def test_any_text_can_be_stored_and_searched(
    any_store: Store, make: Make, text: str, query: str
) -> None:
    """Any text is found by itself, unless it is blank; and no query fails."""
    archive = await fill(any_store, make, [text])
    stored = text.replace("\x00", "")
    await search(any_store, query, archive)
    if stored.strip():
        assert await search(any_store, stored, archive) == [stored]


async def test_times_of_creation_do_not_matter_for_the_order(any_store: Store, make: Make) -> None:
    """Of equally good ones the one that was stored last comes first, whatever time the caller gave."""
    archive = await new_archive(any_store, make)

    async def add(text: str, at: datetime) -> None:
        await fill(any_store, make, [text], archive, created_at=at)

    await add("bread b", moment(9))
    await add("bread a", moment(1))
    assert await search(any_store, "bread", archive) == ["bread a", "bread b"]
