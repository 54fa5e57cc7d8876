"""Extractor of texts: token ids by training frequency, as the IMDB arrays that Keras distributes.

An id below `vocabulary` is a word's rank by frequency in the training texts (from 1) plus 3; 0 is padding, 1 the start
of a text, 2 any other word, 3 is unused. A text is its start token and its words, cut after `max_length` ids, padded
with 0 at the end. Words are what is left between spaces of the lower-case text once punctuation is turned to spaces.

Differences from Keras' `imdb` arrays (num_words=20000, pad_sequences padding="post", truncating="post"):
- Keras ships its ranks; here they are counted anew, on the training texts, words of equal frequency being ranked by
  their first occurrence. Of the first 80 ids of Keras' first training text (num_words=10000, as widely printed) 67 are
  the same here and the others at most 15 ranks away.
- Keras drops words of test texts that no training text holds; here they are unknown words, 2, like all other rare ones.
- Keras shuffles the texts; here they keep the order of the source, and so do the labels.
- `<br />`, the line break of the source, becomes the word `br`, as in Keras' index.

Privacy: the vocabulary is computed from the training texts WITHOUT privacy. A word's presence or rank can reveal a
text, and no epsilon of a model trained on these ids covers that.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable

import numpy as np
import torch

from dpexp.config import ConfigError, ExtractorConfig
from dpexp.data.splits import Samples, Split
from dpexp.features.encoders import Batch, Encoder

PADDING, START, UNKNOWN = 0, 1, 2
OFFSET = 3  # a word's id is its rank, from 1, plus this
KEYS = ("vocabulary", "max_length")
PUNCTUATION = '!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n'  # Keras' filters: the apostrophe stays in its word
TO_SPACES = str.maketrans(dict.fromkeys(PUNCTUATION, " "))


def words(text: str) -> list[str]:
    """The words of a text: lower case, between spaces, without punctuation (but for the apostrophe)."""
    return [word for word in text.lower().translate(TO_SPACES).split(" ") if word]


def vocabulary(texts: Iterable[str], size: int) -> dict[str, int]:
    """Ids of the most frequent words, {word: id < size}; of equally frequent words the first to occur comes first.

    NOT private: counted on the texts as they are.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(words(text))
    return {word: OFFSET + rank for rank, (word, _) in enumerate(counts.most_common(size - OFFSET - 1), start=1)}


def token_ids(text: str, known: dict[str, int], length: int) -> tuple[np.ndarray, bool]:
    """Ids float32 [length] of a text, and whether it was cut."""
    ids = [START, *(known.get(word, UNKNOWN) for word in words(text))]
    found = np.full(length, PADDING, dtype=np.float32)
    found[: min(len(ids), length)] = ids[:length]
    return found, len(ids) > length


def check_tokens(config: ExtractorConfig) -> None:
    """Check the sizes. Ids are kept as float32, which holds whole numbers up to 2^24 exactly."""
    if config.vocabulary is None or not OFFSET + 1 < config.vocabulary <= 2**24:
        raise ConfigError(
            f"extractor.vocabulary must be a whole number from {OFFSET + 2} to 2^24, got {config.vocabulary}"
        )
    if config.max_length is None or config.max_length < 2:
        raise ConfigError(f"extractor.max_length must be a whole number >= 2, got {config.max_length}")


def fit_tokens(config: ExtractorConfig, train: Samples) -> Encoder:
    """The encoder [n, max_length] whose vocabulary is counted on the training texts; its digest is the weights'.

    NOT private: see above.
    """
    assert config.vocabulary is not None
    assert config.max_length is not None
    length = config.max_length
    known = vocabulary((str(text) for text in train), config.vocabulary)

    def prepare(split: Split) -> Batch:
        rows, cut = zip(*(token_ids(str(text), known, length) for text in split.samples), strict=True)
        return Batch(inputs={"x": torch.from_numpy(np.stack(rows))}, truncated=sum(cut))

    digest = hashlib.sha256("\n".join(known).encode()).hexdigest()
    return Encoder(prepare=prepare, forward=lambda inputs: inputs["x"], weights=digest)
