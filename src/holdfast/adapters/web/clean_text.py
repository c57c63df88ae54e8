"""Text that came from a model, an engine or a site, without what can be neither stored nor sent."""


def clean_text(text: str) -> str:
    """Without NUL, and with a replacement character for each half of a surrogate pair, which UTF-8 does not have."""
    if text.isascii():
        return text.replace("\0", "")
    return text.replace("\0", "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
