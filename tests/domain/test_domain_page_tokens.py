"""Page tokens: they come back as they went, and nothing else passes for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorebank_server.domain.errors import InvalidArgumentError
from lorebank_server.operations import paging

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
POSITIONS = st.dictionaries(st.text(min_size=2, max_size=6), JSON, max_size=4)


def decoded(token):
    try:
        return paging.decode(token, query=[])
    except InvalidArgumentError as error:
        return error.reason


@given(position=POSITIONS, query=JSON)
def test_a_token_comes_back_as_it_went(position, query):
    assert position == paging.decode(paging.encode(position, query=query), query=query)


@given(position=POSITIONS, query=JSON, other=JSON)
def test_a_token_continues_its_own_query_alone(position, query, other):
    token = paging.encode(position, query=query)
    if paging.digest(query) != paging.digest(other):
        with pytest.raises(InvalidArgumentError):
            paging.decode(token, query=other)


@given(text=st.text(min_size=1) | st.text("ABCabc012_-=", min_size=1))
def test_any_other_text_is_refused(text):
    with pytest.raises(InvalidArgumentError) as caught:
        paging.decode(text, query=["list"])
    assert ("INVALID_PAGE_TOKEN", "page_token") == (caught.value.reason, caught.value.field)


@given(position=POSITIONS, data=st.data())
def test_a_token_with_one_letter_changed_is_refused_or_means_the_same(position, data):
    token = paging.encode(position, query=[])
    at = data.draw(st.integers(0, len(token) - 1))
    changed = token[:at] + data.draw(st.sampled_from("ABab01-_")) + token[at + 1 :]
    assert decoded(changed) in (position, "INVALID_PAGE_TOKEN")


def test_no_token_is_the_first_page():
    assert paging.decode("", query=[]) is None


@pytest.mark.parametrize(("requested", "size"), [(0, 50), (1, 1), (500, 500), (501, 500), (2**31 - 1, 500)])
def test_a_page_is_as_large_as_asked_up_to_the_largest(requested, size):
    assert size == paging.page_size(requested)
