"""Pages of the web as Markdown."""

import io
import itertools

import pytest

from holdfast.adapters.documents import markdown_text
from holdfast.adapters.documents.plain_text import choose_encoding, find_codec, read_text
from holdfast.adapters.documents.text_output import TextOutput

URL = "https://site.example/docs/page.html"


def convert(page: str | bytes, encoding: str | None = None) -> str:
    written = io.BytesIO()
    data = page.encode() if isinstance(page, str) else page
    markdown_text.read(io.BytesIO(data), TextOutput(written), encoding, URL)
    return written.getvalue().decode()


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<title>T</title><body>x", "# T\n\nx\n"),
        ("<h1>A</h1><h3>B</h3>c", "# A\n\n### B\n\nc\n"),
        ("<h1></h1>plain", "plain\n"),
        ("<p>a\n  b<p>c<br>d", "a b\n\nc\nd\n"),
        ("<a href='/x'>go</a>!", "[go](https://site.example/x)!\n"),
        ("<a href='next.html?a=1&amp;b=2'>n</a>", "[n](https://site.example/docs/next.html?a=1&b=2)\n"),
        ("<base href='https://other.example/y/'><a href=z>z</a>", "[z](https://other.example/y/z)\n"),
        ("<a href='a b(c)'>x</a>", "[x](https://site.example/docs/a%20b%28c%29)\n"),
        ("<a href='javascript:alert(1)'>x</a>", "x\n"),
        ("<a href='data:text/html,x'>x</a>", "x\n"),
        ("<a href='#top'>up</a>", "up\n"),
        ("<a href='http://[x'>broken</a>", "broken\n"),
        ("<a href='/x'></a>empty", "empty\n"),
        ("<a href='/x'><div>two</div><div>lines</div></a>", "[two lines](https://site.example/x)\n"),
        ("<a href='/x'>one<a href='/y'>two", "[one](https://site.example/x)[two](https://site.example/y)\n"),
        ("<ul><li>a<li>b<ul><li>c</ul></ul>d", "- a\n- b\n  - c\n\nd\n"),
        ("<ol><li><p>a</p><li>b</ol>", "1. a\n2. b\n"),
        ("<table><tr><td>a<td>b</tr><tr><td>c<td>d</table>", "a | b\nc | d\n"),
        ("<pre>x = 1\n  y\n</pre>z", "```\nx = 1\n  y\n```\n\nz\n"),
        ("<pre><a href='/x'>f</a>()", "```\nf()\n```\n"),
        ("<img src='/i.png' alt='A cat'>", "![A cat](https://site.example/i.png)\n"),
        ("<img src='/i.png'>x", "x\n"),
        ("<nav>menu</nav><script>code()</script><style>p{}</style>x", "x\n"),
        ("a &amp; b &lt;c&gt; &#x41;", "a & b <c> A\n"),
    ],
)  # fmt: skip
def test_what_a_page_shows_is_written_as_markdown(page: str, text: str) -> None:
    assert convert(page) == text


@pytest.mark.parametrize(
    ("page", "text"),
    [
        # What was open before ends it, as in browsers.
        ("<div><nav>menu<a href=x>y</a></div>text", "text\n"),
        ("<header>a<nav><ul><li>menu</ul></header><p>text", "a\n\ntext\n"),
        ("<li>a <button>press</li><li>b", "- a\n- b\n"),
        ("<form><select><option>x</form>text", "text\n"),
        ("<td><svg><path></td>text", "text\n"),
        ("<p>a <object><p>b</p></p>c</object>d", "a d\n"),
        ("<div>a</div><nav>menu</div>menu</nav>text", "a\ntext\n"),
        ("<br>a<nav>menu</br>menu</nav>b", "ab\n"),
        # So do the parts of a page that are not in a menu.
        ("<nav>menu<main>text", "text\n"),
        ("<dialog>cookies<article>text</article>", "text\n"),
        ("<body><canvas>x</body>text", "text\n"),
        # A button ends the one before.
        ("<button>a<button>b</button>text", "text\n"),
        ("<select><option>a<select><option>b</select>text", "text\n"),
        # Menus may be nested.
        ("<nav>a<nav>b</nav>c</nav>text", "text\n"),
        ("<nav>a<div>b</div>c</nav>text", "text\n"),
        # These hold no elements in a browser, or none that it shows.
        ("<div><script>a</div><main>b</script>text", "text\n"),
        ("<div><textarea>a</div><main>b</textarea>text", "text\n"),
        ("<div><template>a</div><article>b</article></template>text", "text\n"),
        ("<nav/>menu<svg/>text", "menutext\n"),
    ],
)  # fmt: skip
def test_what_is_not_shown_ends_where_browsers_end_it(page: str, text: str) -> None:
    assert convert(page) == text


@pytest.mark.parametrize("tag", ["nav", "button", "dialog", "script", "textarea"])
def test_a_hidden_element_that_does_not_end_is_told(tag: str) -> None:
    written = io.BytesIO()
    page = io.BytesIO(f"<p>text<{tag}>menu<p>more".encode())

    problem = markdown_text.read(page, TextOutput(written), None, URL)

    assert problem == f"The page does not end its element <{tag}>, whose text is not shown."
    assert written.getvalue() == b"text\n"


def test_a_page_without_text_says_why() -> None:
    written = io.BytesIO()
    page = io.BytesIO(b"<html><script>build()</script><div id=app></div>")

    problem = markdown_text.read(page, TextOutput(written), None, URL)

    assert problem is not None
    assert "scripts" in problem


@pytest.mark.parametrize(
    ("declared", "head", "encoding"),
    [
        ("shift_jis", "", "shift_jis"),
        (None, "<meta charset=shift_jis>", "shift_jis"),
        # A site that knows nothing of its files says UTF-8 or Latin-1 for all of them.
        ("utf-8", "<meta charset=shift_jis>", "shift_jis"),
        ("iso-8859-1", "", "utf-8"),
        # It lies.
        ("shift_jis", "", "utf-8"),
        ("windows-1251", "<meta charset=koi8-r>", "utf-8"),
        ("utf-16", "", "utf-8"),
        ("zip", "<meta charset=base64>", "utf-8"),
        ("punycode", "", "utf-8"),
        ("no such thing", "", "utf-8"),
        (None, "", "utf-16"),
    ],
)
def test_the_encoding_is_the_one_that_can_be_meant(
    declared: str | None, head: str, encoding: str
) -> None:
    page = f"{head}<p>漢字</p>".encode(encoding)

    assert convert(page, declared) == "漢字\n"


@pytest.mark.parametrize(
    "name",
    [
        *("zip", "bz2", "base64", "hex", "rot13", "idna", "", "\0", "x" * 9999),
        # They are of text, but no browser knows them: a page could say in them what nobody else sees.
        *("utf-7", "unicode_escape", "raw_unicode_escape", "hz", "iso-2022-kr", "cp037", "mbcs"),
    ],
)
def test_what_is_no_encoding_of_pages_is_not_used(name: str) -> None:
    assert find_codec(name) is None
    assert choose_encoding(b"text", name) is None


@pytest.mark.parametrize(
    "name",
    [
        *("windows-1250", "windows-1252", "windows-1258", "cp1251", "iso-8859-2", "latin2", "l9"),
        *("koi8-r", "koi8-u", "ibm866", "macintosh", "mac-cyrillic", "gb2312", "gbk", "gb18030"),
        *("big5", "big5-hkscs", "euc-jp", "iso-2022-jp", "shift_jis", "sjis", "ms932"),
        *("euc-kr", "ks_c_5601-1987", "tis-620", "iso-8859-11"),
    ],
)
def test_the_encodings_of_pages_are_used_and_give_text_that_can_be_stored(name: str) -> None:
    codec = find_codec(name)
    assert codec is not None
    every = bytes(range(256)) + bytes(
        b for pair in itertools.product(range(128, 256), repeat=2) for b in pair
    )
    text = read_text(io.BytesIO(every), codec)

    assert text.encode().decode() == text
