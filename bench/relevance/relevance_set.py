"""Reading the texts and questions, and computing how many of the answers a search finds."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LANGUAGES = ("english", "german", "chinese")
# How many of the best texts are looked at.
TOP = 10

_FOLDER = Path(__file__).parent
# A text that answers a question has a label in front.
_LABELLED = re.compile(r"\[(\S+)\] (.+)")

# Returns the keys of the best texts, best first.
Search = Callable[[str, int], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Question:
    language: str
    text: str
    # The keys of the texts that answer it.
    answers: frozenset[str]


@dataclass(frozen=True, slots=True)
class RelevanceSet:
    """The texts by key, and the questions."""

    texts: Mapping[str, str]
    questions: Sequence[Question]


def load() -> RelevanceSet:
    texts = {key: text for language in LANGUAGES for key, text in _read_texts(language)}
    return RelevanceSet(texts, _read_questions())


async def measure_recall(
    questions: Sequence[Question], search: Search, top: int = TOP
) -> Mapping[str, float]:
    """The recall by language, and of all questions under ``all``."""
    found = {question: await search(question.text, top) for question in questions}
    by_language = {
        language: recall({q: keys for q, keys in found.items() if q.language == language})
        for language in sorted({question.language for question in questions})
    }
    return by_language | {"all": recall(found)}


def recall(found: Mapping[Question, Sequence[str]]) -> float:
    """The average share of the answers of a question that were found."""
    shares = [len(q.answers.intersection(keys)) / len(q.answers) for q, keys in found.items()]
    return sum(shares) / len(shares) if shares else 0.0


def _read_texts(language: str) -> Sequence[tuple[str, str]]:
    found = []
    for number, line in enumerate(_read_lines(language), 1):
        labelled = _LABELLED.fullmatch(line)
        label, text = labelled.groups() if labelled else (str(number), line)
        found.append((f"{language}-{label}", text))
    return found


def _read_questions() -> Sequence[Question]:
    found = []
    language = ""
    for line in _read_lines("questions"):
        if line.startswith("# "):
            language = line.removeprefix("# ")
            continue
        text, _, labels = line.partition(" => ")
        answers = frozenset(f"{language}-{label}" for label in labels.split(", "))
        found.append(Question(language, text, answers))
    return found


def _read_lines(name: str) -> Sequence[str]:
    return (_FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
