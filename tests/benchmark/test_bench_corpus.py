"""Memories and queries of the benchmark: the same for a seed, and no two alike."""

from itertools import islice

from lorebank_server.bench.corpus import Corpus, examples, queries, texts
from lorebank_server.domain import limits

SOME = 2000


def test_a_memory_depends_on_seed_and_position_alone():
    assert Corpus(3).draft(1234) == Corpus(3).draft(1234)
    assert Corpus(3).draft(1234) != Corpus(4).draft(1234)


def test_no_two_memories_say_the_same():
    corpus = Corpus(3)
    assert SOME == len({corpus.draft(position).content for position in range(SOME)})
    assert SOME == len({corpus.parts(position) for position in range(SOME)})


def test_there_are_more_memories_than_anybody_will_load():
    corpus = Corpus(3)
    assert corpus.limit > 10_000_000
    assert corpus.parts(0) == corpus.parts(corpus.limit)


def test_every_example_has_its_share_in_a_small_corpus_already():
    corpus = Corpus(3)
    count = len(examples())
    begun = [corpus.parts(position)[0] for position in range(count * 4)]
    shares = [begun.count(number) for number in range(count)]
    assert min(shares) >= 2
    assert max(shares) <= 6


def test_memories_are_in_the_form_in_which_they_are_kept():
    corpus = Corpus(3)
    drafts = [corpus.draft(position) for position in range(200)]
    assert drafts == [limits.normalize(draft) for draft in drafts]


def test_the_indexed_text_does_not_depend_on_the_day_of_loading():
    text = Corpus(3).text(5)
    assert " 2025" in text.partition(":")[0]
    assert Corpus(3).draft(5).content in text


def test_queries_and_texts_are_the_same_for_a_seed_and_all_different():
    for recombined in (queries, texts):
        first = list(islice(recombined(3), SOME))
        assert first == list(islice(recombined(3), SOME))
        assert first != list(islice(recombined(4), SOME))
        assert len(set(first)) > SOME * 0.98
