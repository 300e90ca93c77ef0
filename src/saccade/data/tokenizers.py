"""Tokenizers: raw text → ids → raw text. The first four ids are the same in every vocabulary.

A kind, such as `WordKind`, is a class with options; its `learn(texts)` returns a Tokenizer, which is stored in the run
as one file.
sentencepiece's default normalizer changes some text (double spaces, ligatures, decomposed accents);
`normalizer = "identity"` leaves it unchanged.
"""

import base64
import io
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Annotated, Literal, Protocol

from saccade.config import Count, Slot
from saccade.errors import DataError, RunError
from saccade.inputs import Tokens

PAD, UNKNOWN, START, END = 0, 1, 2, 3
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
SENTENCEPIECE_THREADS = 4  # fixed, because the learned model depends on it
MIN_TEXTS_FOR_THREADS = 32  # sentencepiece starts threads for a list; for fewer texts, that costs more than it saves
MAX_TRAINING_TEXTS = 2_000_000  # of more, a sample is used: all would need memory and hardly change what is learned


_encoding_threads = -1  # one for each core


def set_encoding_threads(count: int) -> None:
    """Set the number of threads in which the tokenizers of this process encode many texts, as torch.set_num_threads
    does for tensors. At first there is one for each core."""
    global _encoding_threads
    _encoding_threads = count


class Tokenizer(Protocol):
    """A learned tokenizer. `encode` adds no special tokens; `decode` leaves them out."""

    size: int

    @property
    def input(self) -> Tokens: ...
    def encode(self, texts: Sequence[str]) -> list[list[int]]: ...
    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """The ids of each word of a sentence. Concatenated, they are the ids of the words joined by single spaces."""
        ...

    def decode(self, ids: Sequence[int]) -> str: ...
    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The text of each id. A leading space starts a word."""
        ...

    def vocabulary(self) -> list[str]:
        """A unique name for each id, as exported to other programs. The first four are SPECIAL."""
        ...

    def dump(self) -> bytes: ...


class TokenizerKind(Protocol):
    """A kind of tokenizer: learns one from texts, or reads a stored one, which does not depend on the options."""

    def learn(self, texts: Iterable[str]) -> Tokenizer: ...
    def read(self, data: bytes) -> Tokenizer: ...


class _TokenInput:
    """Describes what a model reads from a tokenizer."""

    size: int

    @property
    def input(self) -> Tokens:
        return Tokens(self.size)


# ── sentencepiece ─────────────────────────────────────────────────────────────────────────────────


class SentencePieceTokenizer(_TokenInput):
    """A learned sentencepiece model (Kudo & Richardson 2018)."""

    def __init__(self, proto: bytes):
        import sentencepiece

        self._proto = proto
        self._model = sentencepiece.SentencePieceProcessor()
        self._model.LoadFromSerializedProto(proto)
        self.size: int = self._model.GetPieceSize()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        if len(texts) < MIN_TEXTS_FOR_THREADS:
            return [self._model.EncodeAsIds(text) for text in texts]
        return self._model.EncodeAsIds(list(texts), num_threads=_encoding_threads)

    def cut(self, text: str) -> list[str]:
        """The pieces of a text, including unknown ones."""
        return self._model.EncodeAsPieces(text)

    def join(self, pieces: Sequence[str]) -> str:
        return self._model.DecodePieces(list(pieces))

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        return self.encode(words)  # each word starts with the space symbol, and no piece extends over one

    def decode(self, ids: Sequence[int]) -> str:
        return self._model.DecodeIds([i for i in ids if i not in (PAD, START, END)])

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._shown[i] for i in ids]

    @cached_property
    def _shown(self) -> list[str]:
        return [*SPECIAL, *(name.replace("▁", " ") for name in self.vocabulary()[len(SPECIAL) :])]

    def vocabulary(self) -> list[str]:
        return self._model.IdToPiece(list(range(self.size)))

    def dump(self) -> bytes:
        return self._proto


class SentencePieceKind:
    """Subwords learned by sentencepiece: `bpe` (Sennrich, Haddow & Birch 2016) or `unigram` (Kudo 2018)."""

    def __init__(
        self,
        *,
        algorithm: Literal["bpe", "unigram"] = "bpe",
        size: Count = 8000,
        normalizer: Literal["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"] = "nmt_nfkc",
        split_digits: bool = False,
        byte_fallback: bool = False,
    ):
        self.algorithm, self.size, self.normalizer = algorithm, size, normalizer
        self.split_digits, self.byte_fallback = split_digits, byte_fallback

    def learn(self, texts: Iterable[str]) -> Tokenizer:
        import sentencepiece

        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.Train(
                sentence_iterator=_consumed(_sample(texts, MAX_TRAINING_TEXTS)),
                model_writer=model,
                model_type=self.algorithm,
                vocab_size=self.size,
                hard_vocab_limit=False,  # little text gives a smaller vocabulary
                character_coverage=1.0,
                normalization_rule_name=self.normalizer,
                split_digits=self.split_digits,
                byte_fallback=self.byte_fallback,
                remove_extra_whitespaces=self.normalizer != "identity",
                pad_id=PAD,
                unk_id=UNKNOWN,
                bos_id=START,
                eos_id=END,
                num_threads=SENTENCEPIECE_THREADS,
                minloglevel=2,
            )
        except RuntimeError as error:
            reason = str(error).split("] ")[-1].strip() or "the text is too small"
            raise DataError(
                f"data.tokenizer.size: sentencepiece cannot learn {self.size} pieces from this text: {reason}; "
                "lower data.tokenizer.size or give more text"
            ) from None
        return SentencePieceTokenizer(model.getvalue())

    def read(self, data: bytes) -> Tokenizer:
        try:
            return SentencePieceTokenizer(data)
        except RuntimeError as error:
            raise RunError(f"the tokenizer is not a sentencepiece model: {error}") from None


def _sample(texts: Iterable[str], count: int) -> list[str]:
    """All texts in their order if there are at most `count`; otherwise a sample of `count` texts, always the same one:
    reservoir sampling (Vitter 1985, algorithm R), so that it takes one pass and the memory of the sample."""
    iterator = iter(texts)
    sample = [*itertools.islice(iterator, count)]
    draw = random.Random(0).random  # the only method for which Python guarantees the same values in all versions
    for seen, text in enumerate(iterator, start=count + 1):
        place = int(draw() * seen)
        if place < count:
            sample[place] = text
    return sample


def _consumed(texts: list[str]) -> Iterator[str]:
    """Iterate and forget each text, because sentencepiece keeps a copy."""
    for i, text in enumerate(texts):
        texts[i] = ""
        yield text


# ── sentencepiece with a separate list of pieces (Marian) ─────────────────────────────────────────


class PieceListTokenizer(_TokenInput):
    """A sentencepiece model that segments text, and a separate list that assigns the ids, as in Marian: both languages
    may share one list although each has its own model. A language code such as >>de<< before the text is one piece."""

    def __init__(self, proto: bytes, pieces: Sequence[str]):
        self._segmenter = SentencePieceTokenizer(proto)
        self._proto, self._names = proto, (*SPECIAL, *pieces)
        self._ids = {piece: i for i, piece in enumerate(self._names) if i >= len(SPECIAL)}
        self.size = len(self._names)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [[self._ids.get(piece, UNKNOWN) for piece in self._segment(text)] for text in texts]

    def _segment(self, text: str) -> list[str]:
        end = text.find("<<") + 2 if text.startswith(">>") else 1  # 1: no code, or one that is not closed (−1 + 2)
        code = text[:end] if end > 1 else ""
        return [code, *self._segmenter.cut(text[end:])] if code else self._segmenter.cut(text)

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        return self.encode(words)

    def decode(self, ids: Sequence[int]) -> str:
        shown = ["▁⁇" if i == UNKNOWN else self._names[i] for i in ids if i not in (PAD, START, END)]
        return self._segmenter.join(shown)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._names[i].replace("▁", " ") for i in ids]

    def vocabulary(self) -> list[str]:
        return list(self._names)

    @property
    def proto(self) -> bytes:
        """The sentencepiece model."""
        return self._proto

    def dump(self) -> bytes:
        model = base64.b64encode(self._proto).decode()
        return json.dumps({"pieces": self._names[len(SPECIAL) :], "sentencepiece": model}, ensure_ascii=False).encode()


class PieceListKind:
    """sentencepiece with a separate list of pieces, as in Marian models; learned like `sentencepiece`."""

    def __init__(self, *, size: Count = 8000):
        self.size = size

    def learn(self, texts: Iterable[str]) -> Tokenizer:
        learned = SentencePieceKind(size=self.size).learn(texts)
        return PieceListTokenizer(learned.dump(), learned.vocabulary()[len(SPECIAL) :])

    def read(self, data: bytes) -> Tokenizer:
        try:
            tree = json.loads(data)
            pieces, proto = tree["pieces"], base64.b64decode(tree["sentencepiece"], validate=True)
            if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
                raise TypeError("'pieces' must be a list of strings")
            if len({*pieces, *SPECIAL}) < len(pieces) + len(SPECIAL):
                raise ValueError("a piece is listed twice")
            return PieceListTokenizer(proto, pieces)
        except (ValueError, KeyError, TypeError, RuntimeError) as error:
            raise RunError(f"the tokenizer is damaged: {error}") from None


# ── vocabularies of symbols ───────────────────────────────────────────────────────────────────────


class SymbolTokenizer(_TokenInput):
    """A tokenizer with a list of symbols. `split` cuts text into symbols; `separator` joins them again."""

    def __init__(self, symbols: Sequence[str], split: Callable[[str], list[str]], separator: str):
        self._symbols = (*SPECIAL, *symbols)
        self._ids = {symbol: i for i, symbol in enumerate(self._symbols) if i >= len(SPECIAL)}
        self._split, self._separator = split, separator
        self.size = len(self._symbols)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [[self._ids.get(symbol, UNKNOWN) for symbol in self._split(text)] for text in texts]

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        return self.encode(words if self._separator else with_spaces(words))

    def decode(self, ids: Sequence[int]) -> str:
        shown = ("⁇" if i == UNKNOWN else self._symbols[i] for i in ids if i not in (PAD, START, END))
        return self._separator.join(shown)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._symbols[i] if i < len(SPECIAL) else self._separator + self._symbols[i] for i in ids]

    def vocabulary(self) -> list[str]:
        """A symbol of the text that is equal to a special token gets another name."""
        names = [f"{symbol}▁" if symbol in SPECIAL else symbol for symbol in self._symbols[len(SPECIAL) :]]
        return [*SPECIAL, *names]

    def dump(self) -> bytes:
        return json.dumps(self._symbols[len(SPECIAL) :], ensure_ascii=False).encode()


def _learn_symbols(
    texts: Iterable[str], split: Callable[[str], list[str]], separator: str, min_frequency: int, max_size: int
) -> SymbolTokenizer:
    counts = Counter(symbol for text in texts for symbol in split(text))
    frequent = sorted((s for s, count in counts.items() if count >= min_frequency), key=lambda s: (-counts[s], s))
    return SymbolTokenizer(frequent[:max_size], split, separator)


def _read_symbols(data: bytes, split: Callable[[str], list[str]], separator: str) -> SymbolTokenizer:
    symbols = json.loads(data)
    if not isinstance(symbols, list) or not all(isinstance(s, str) for s in symbols):
        raise RunError("the tokenizer is damaged: expected a list of symbols")
    return SymbolTokenizer(symbols, split, separator)


class CharacterKind:
    """One id for each Unicode character of the training text."""

    def __init__(self, *, size: Count = 10_000):
        self.size = size

    def learn(self, texts: Iterable[str]) -> Tokenizer:
        return _learn_symbols(texts, list, "", 1, self.size)

    def read(self, data: bytes) -> Tokenizer:
        return _read_symbols(data, list, "")


class WordKind:
    """One id for each word, separated by white space, that occurs at least `min_frequency` times."""

    def __init__(self, *, size: Count = 50_000, min_frequency: Count = 1):
        self.size, self.min_frequency = size, min_frequency

    def learn(self, texts: Iterable[str]) -> Tokenizer:
        return _learn_symbols(texts, str.split, " ", self.min_frequency, self.size)

    def read(self, data: bytes) -> Tokenizer:
        return _read_symbols(data, str.split, " ")


class ByteTokenizer(_TokenInput):
    """The bytes of UTF-8: id = byte + 4. Nothing is unknown, and any text round-trips."""

    size = 256 + len(SPECIAL)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [[byte + len(SPECIAL) for byte in text.encode()] for text in texts]

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        return self.encode(with_spaces(words))

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i - len(SPECIAL) for i in ids if i >= len(SPECIAL)).decode(errors="replace")

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [SPECIAL[i] if i < len(SPECIAL) else _byte_text(i - len(SPECIAL)) for i in ids]

    def vocabulary(self) -> list[str]:
        return self.pieces(range(self.size))

    def dump(self) -> bytes:
        return b"bytes\n"


def _byte_text(byte: int) -> str:
    return chr(byte) if 0x20 <= byte < 0x7F else f"<{byte:02X}>"


class ByteKind:
    """The bytes of UTF-8: there is nothing to learn."""

    def learn(self, texts: Iterable[str]) -> Tokenizer:
        return ByteTokenizer()

    def read(self, data: bytes) -> Tokenizer:
        return ByteTokenizer()


TOKENIZERS: dict[str, Callable[..., TokenizerKind]] = {
    "sentencepiece": SentencePieceKind,
    "piece_list": PieceListKind,
    "bytes": ByteKind,
    "characters": CharacterKind,
    "words": WordKind,
}

TokenizerSlot = Annotated[Callable[..., TokenizerKind], Slot(TOKENIZERS)]


def with_spaces(words: Sequence[str]) -> list[str]:
    """Each word but the first with a space before it, for tokenizers in which a space is a symbol."""
    return [f" {word}" if number else word for number, word in enumerate(words)]


def word_of(pieces: Sequence[str]) -> list[int]:
    """The word number of each piece: a leading space starts a word, and each special token is a word of its own."""
    words: list[int] = []
    after_special = True
    for piece in pieces:
        special = piece in SPECIAL
        words.append((words[-1] if words else -1) + (after_special or special or piece.startswith(" ")))
        after_special = special
    return words
