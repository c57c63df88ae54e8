"""Pictures that are given by their address (wire-v1 §3.8): fetched when they are sent, from where a caller may."""

from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from httpx import AsyncClient
from tests.doubles.http_receiver import CannedResponse, Receiver, run_receiver

from holdfast.adapters.outgoing.guarded import GuardedOutgoing
from holdfast.core.addresses import parse_allowed
from holdfast.core.messages import Image, Text
from holdfast.ports.services import Services
from holdfast.usecases import images

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


@pytest.fixture
async def services(services: Services) -> Services:
    """One whose operator lets callers reach 127.0.0.1."""
    return replace(services, outgoing=GuardedOutgoing(parse_allowed(["127.0.0.1"])))


@pytest.fixture
async def gallery() -> AsyncIterator[Receiver]:
    async with run_receiver() as receiver:
        yield receiver


def image_body(url: str, count: int = 1) -> dict[str, Any]:
    picture = {"type": "image", "source": {"type": "url", "url": url}}
    content = [{"type": "text", "text": "What is this?"}, *[picture] * count]
    return {"messages": [{"role": "user", "content": content}]}


async def test_the_model_sees_the_picture_and_the_history_keeps_it(
    client: AsyncClient, agent_id: str, model: Any, gallery: Receiver
) -> None:
    gallery.answers = [CannedResponse(200, {"content-type": "text/html"}, PNG)]
    model.says("A dot.")

    sent = await client.post(
        f"/v1/agents/{agent_id}/messages", json=image_body(f"{gallery.url}/dot.png")
    )

    assert sent.status_code == 200, sent.text
    image = Image("image/png", b64encode(PNG).decode())
    assert model.questions[0].history[-1].content == (Text("What is this?"), image)
    rows = (await client.get(f"/v1/agents/{agent_id}/messages")).json()
    (source,) = [
        part["source"]
        for row in rows
        if row["message_type"] == "user_message"
        for part in row["content"]
        if part["type"] == "image"
    ]
    assert b64decode(source["data"]) == PNG
    assert len(gallery.all_requests) == 1


async def test_a_conversation_takes_pictures_too(
    client: AsyncClient, agent_id: str, model: Any, gallery: Receiver
) -> None:
    gallery.answers = [CannedResponse(200, {}, b"RIFF\0\0\0\0WEBPVP8 ")]
    model.says("A dot.")
    thread = (
        await client.post("/v1/conversations/", params={"agent_id": agent_id}, json={})
    ).json()

    sent = await client.post(
        f"/v1/conversations/{thread['id']}/messages",
        json=image_body(gallery.url) | {"streaming": False},
    )

    assert sent.status_code == 200, sent.text
    assert model.questions[0].history[-1].content[1].media_type == "image/webp"


async def test_a_redirect_is_followed_as_far_as_a_caller_may_go(
    client: AsyncClient, agent_id: str, model: Any, gallery: Receiver
) -> None:
    gallery.answers = [
        CannedResponse(302, {"location": "/there.gif"}),
        CannedResponse(200, {}, b"GIF89a" + bytes(9)),
    ]
    model.says("A dot.")

    sent = await client.post(f"/v1/agents/{agent_id}/messages", json=image_body(gallery.url))

    assert sent.status_code == 200, sent.text
    assert [heard.target for heard in gallery.all_requests] == ["/", "/there.gif"]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (CannedResponse(404), "status 404"),
        (
            CannedResponse(200, {"content-type": "image/png"}, b"<svg/>"),
            "no PNG, JPEG, GIF or WebP",
        ),
        (
            CannedResponse(302, {"location": "http://169.254.169.254/latest"}),
            "not a public address",
        ),
        (CannedResponse(302, {"location": "file:///etc/passwd"}), "cannot be used"),
        (CannedResponse(302, {"location": "/round"}), "redirected more than 3 times"),
    ],
)
async def test_what_is_no_picture_is_refused_and_no_run_is_made(
    client: AsyncClient, agent_id: str, gallery: Receiver, answer: CannedResponse, says: str
) -> None:
    gallery.answers = [answer]

    refused = await client.post(f"/v1/agents/{agent_id}/messages", json=image_body(gallery.url))

    assert refused.status_code == 400
    assert says in refused.text
    assert (await client.get("/v1/runs/", params={"agent_id": agent_id})).json() == []


async def test_a_picture_that_is_too_large_is_not_read_to_its_end(
    client: AsyncClient, agent_id: str, gallery: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "MAX_IMAGE_BYTES", len(PNG) - 1)
    gallery.answers = [CannedResponse(200, {}, PNG)]

    refused = await client.post(f"/v1/agents/{agent_id}/messages", json=image_body(gallery.url))

    assert refused.status_code == 400
    assert "larger than" in refused.text


async def test_too_many_pictures_are_refused_before_any_is_fetched(
    client: AsyncClient, agent_id: str, gallery: Receiver
) -> None:
    body = image_body(gallery.url, images.MAX_IMAGES + 1)

    refused = await client.post(f"/v1/agents/{agent_id}/messages", json=body)

    assert refused.status_code == 400
    assert "at most 20 pictures" in refused.text
    assert gallery.all_requests == []


async def test_the_pictures_of_a_request_have_one_limit_together(
    client: AsyncClient, agent_id: str, gallery: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "MAX_TOTAL_BYTES", 2 * len(PNG))
    gallery.answers = [CannedResponse(200, {}, PNG)] * 3

    refused = await client.post(f"/v1/agents/{agent_id}/messages", json=image_body(gallery.url, 3))

    assert refused.status_code == 400
    assert "together" in refused.text


async def test_an_agent_may_begin_with_a_picture(
    client: AsyncClient, model: Any, gallery: Receiver
) -> None:
    gallery.answers = [CannedResponse(200, {}, PNG)]
    body = {
        "model": "openai/gpt-x",
        "initial_message_sequence": image_body(gallery.url)["messages"],
    }

    made = await client.post("/v1/agents/", json=body)

    assert made.status_code == 200, made.text
    model.says("A dot.")
    sent = {"messages": [{"role": "user", "content": "Well?"}]}
    await client.post(f"/v1/agents/{made.json()['id']}/messages", json=sent)
    parts = [part for row in model.questions[0].history for part in row.content]
    assert Image("image/png", b64encode(PNG).decode()) in parts


async def test_a_private_address_is_refused(
    client: AsyncClient, agent_id: str, gallery: Receiver
) -> None:
    for url in (f"http://127.0.0.2:{gallery.port}/", "http://10.0.0.1/x.png", "http://[::1]/"):
        refused = await client.post(f"/v1/agents/{agent_id}/messages", json=image_body(url))
        assert refused.status_code == 400
        assert "HOLDFAST_ALLOWED_PRIVATE_HOSTS" in refused.text
    assert gallery.all_requests == []
