"""Token ids as in Keras' IMDB arrays, with a vocabulary of the training texts."""

import numpy as np
import pytest
import small_sources as sources
from conftest import compose_config

from dpexp import features
from dpexp.config import ConfigError, ExtractorConfig
from dpexp.data import Split
from dpexp.features import extractors, tokens
from dpexp.features.extraction import encode

TRAIN = ["the film, the plot", "The end", "a film"]  # the 3, film 2, then by first occurrence: plot, end, a


def config(**settings) -> ExtractorConfig:
    return ExtractorConfig(name="tokens", **({"vocabulary": 20, "max_length": 6} | settings))


def ids(texts: list[str], train: list[str] = TRAIN, **settings) -> list[list[int]]:
    """Ids of texts under the vocabulary of others."""
    chosen = config(**settings)
    extractors.check(chosen)
    encoder = extractors.encoder(chosen, "cpu", train)
    return encode(encoder, Split(samples=texts, labels=np.zeros(len(texts), np.int64)), 2).x.astype(int).tolist()


def test_words_are_what_keras_filters_leave():
    assert tokens.words("Don't!  it's<br /><br />A 9/10\tfilm\n(very)") == [
        "don't", "it's", "br", "br", "a", "9", "10", "film", "very"
    ]  # fmt: skip
    assert tokens.words(tokens.PUNCTUATION + "  ") == []


def test_ids_are_ranks_by_training_frequency_plus_three_and_ties_keep_their_first_occurrence():
    assert tokens.vocabulary(TRAIN, 20) == {"the": 4, "film": 5, "plot": 6, "end": 7, "a": 8}


def test_a_text_starts_with_1_ends_with_padding_and_unknown_words_are_2():
    assert ids(["The plot: new", "", "a"]) == [[1, 4, 6, 2, 0, 0], [1, 0, 0, 0, 0, 0], [1, 8, 0, 0, 0, 0]]


def test_ids_from_the_vocabularys_size_on_are_unknown():
    assert ids(["the film plot end a"], vocabulary=7) == [[1, 4, 5, 6, 2, 2]]
    assert tokens.vocabulary(TRAIN, 5) == {"the": 4}


def test_texts_are_cut_at_the_end_and_counted():
    encoder = extractors.encoder(config(max_length=3), "cpu", TRAIN)
    fitting, longer = "the film", "the film the plot"
    shard = encode(encoder, Split(samples=[fitting, longer, longer], labels=np.zeros(3, np.int64)), 8)
    assert shard.x.tolist() == [[1, 4, 5]] * 3
    assert shard.truncated == 2


def test_the_weights_digest_is_that_of_the_fitted_vocabulary():
    def digest(train):
        return extractors.encoder(config(), "cpu", train).weights

    assert digest(TRAIN) == digest([*TRAIN])
    assert digest(TRAIN) == digest([text.upper() for text in TRAIN])
    assert digest(TRAIN) != digest([*TRAIN, "a new word"])
    assert digest(["ab c"]) != digest(["a bc"])


def test_ids_up_to_the_largest_vocabulary_are_exact_as_float32():
    assert float(np.float32(2**24 - 1)) == 2**24 - 1
    extractors.check(config(vocabulary=2**24))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vocabulary": 4}, r"extractor.vocabulary must be a whole number from 5 to 2\^24, got 4"),
        ({"vocabulary": None}, r"extractor.vocabulary must be a whole number from 5"),
        ({"vocabulary": 2**24 + 1}, r"to 2\^24, got 16777217"),
        ({"max_length": 1}, r"extractor.max_length must be a whole number >= 2, got 1"),
        ({"pooling": "cls"}, r"extractor.pooling must stay None for extractor=tokens"),
        ({"weights": "w"}, r"extractor.weights must stay None for extractor=tokens"),
    ],
)
def test_settings_that_cannot_be_used_are_named(settings, message):
    with pytest.raises(ConfigError, match=message):
        extractors.check(config(**settings))


@pytest.fixture
def imdb(tmp_path):
    """Settings of a small IMDB: the test texts hold a word that the training texts do not."""
    parts = {"train": (TRAIN, [0, 1, 0]), "test": (["the end", "unseen plot"], [1, 0])}
    sources.write_texts(tmp_path / "imdb" / "plain_text", parts)
    return ["dataset=imdb", "dataset.sizes=any", "extractor=tokens", f"data_root={tmp_path}",
            f"features_dir={tmp_path / 'f'}"]  # fmt: skip


def test_the_vocabulary_comes_from_the_training_split_alone(imdb):
    found = features.load(compose_config(*imdb, "extractor.max_length=4"))
    assert found.test.x.tolist() == [[1, 4, 7, 0], [1, 2, 6, 0]]
    assert found.train.x[0].tolist() == [1, 4, 5, 4]


def test_a_cache_hit_counts_no_vocabulary(imdb, monkeypatch):
    built = features.load(compose_config(*imdb))
    monkeypatch.setattr(tokens, "vocabulary", lambda *_: pytest.fail("counted again"))
    assert features.load(compose_config(*imdb)).digest == built.digest


def test_another_training_set_has_another_vocabulary(imdb, tmp_path):
    first = features.load(compose_config(*imdb))
    parts = {"train": (["plot plot end"], [0]), "test": (["the end", "unseen plot"], [1, 0])}
    sources.write_texts(tmp_path / "imdb" / "plain_text", parts)
    second = features.load(compose_config(*imdb))
    assert first.test.x.tolist() != second.test.x.tolist()
    assert second.test.x[:, :4].tolist() == [[1, 2, 5, 0], [1, 2, 4, 0]]
