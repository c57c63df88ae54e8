"""How texts are cut for streaming, and how parts fall into blocks."""

import pytest

from holdfast.testing import Answer, Gate, Pause, Text, Thinking, ToolCall
from holdfast.testing.layout import lay_out


@pytest.mark.parametrize("text", ["one two  three", " lead and trail ", "", "\n\nnew\tlines\n"])
def test_the_words_of_a_text_make_the_text_again(text: str) -> None:
    assert "".join(Text(text).pieces) == text


def test_chunks_are_streamed_as_given() -> None:
    text = Text(chunks=["Hel", "lo"])
    assert (text.text, text.pieces) == ("Hello", ["Hel", "lo"])


def test_chunks_that_do_not_make_the_text_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="the chunks make 'ab', not 'abc'"):
        Text("abc", chunks=["a", "b"])


def test_arguments_are_cut_into_several_fragments_but_not_into_very_many() -> None:
    small = ToolCall("roll", {"num_sides": 16})
    assert len(small.fragments) > 1
    assert "".join(small.fragments) == '{"num_sides":16}'
    large = ToolCall("write", {"text": "x" * 100_000})
    assert len(large.fragments) <= 16
    assert "".join(large.fragments) == large.arguments_text


def test_a_gate_inside_a_text_does_not_make_it_two() -> None:
    gate = Gate()
    (block,) = lay_out(Answer("One ", gate, "two.")).blocks
    assert block.content == Text("One two.")
    assert block.flow == ["One", " ", gate, "two."]


def test_a_delay_comes_before_each_chunk() -> None:
    (block,) = lay_out(Answer(Text(chunks=["a", "b"], delay_seconds=0.5))).blocks
    assert block.flow == [Pause(0.5), "a", Pause(0.5), "b"]


def test_different_kinds_are_different_blocks() -> None:
    pause = Pause(1)
    layout = lay_out(Answer(pause, Thinking("hm"), "Yes.", ToolCall("a"), ToolCall("b")))
    assert layout.before == [pause]
    kinds = [type(block.content) for block in layout.blocks]
    assert kinds == [Thinking, Text, ToolCall, ToolCall]
