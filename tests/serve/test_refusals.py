"""Every error is a problem document with the library's words, and none of them is a 500."""

from __future__ import annotations

import pytest

import ndpp
from ndpp.serve import limits, problems


def detail_of(error: type[Exception], call) -> str:
    with pytest.raises(error) as raised:
        call()
    return str(raised.value)


def test_an_unknown_label_is_told_with_a_suggestion(api, kernel):
    problem = api.post("/api/recommend", json={"basket": ["bred"]}).json()
    assert problem["type"] == "urn:ndpp:problem:unknown-label"
    assert problem["detail"] == detail_of(ndpp.errors.UnknownLabelError, lambda: kernel.ids(["bred"]))
    assert (problem["label"], problem["suggestions"]) == ("bred", ["bread"])
    far = api.post("/api/recommend", json={"basket": ["xyzzy"]}).json()
    assert far["detail"] == detail_of(ndpp.errors.UnknownLabelError, lambda: kernel.ids(["xyzzy"]))


@pytest.mark.parametrize(
    ("path", "body", "kind", "words"),
    [
        ("recommend", {"basket": [99]}, "unknown-item", "basket must lie in 0..17; unknown item id 99"),
        ("recommend", {"basket": ["tea", "tea"]}, "invalid-input", "basket must not repeat an item; item 11 "),
        ("recommend", {"basket": [], "exclude": ["soap"]}, "unknown-label", "unknown label 'soap'"),
        ("recommend", {"basket": [], "candidates": [77]}, "unknown-item", "candidates must lie in 0..17"),
        ("complete", {"basket": ["tea", "jam"], "size": 1}, "impossible-size", "size counts the given items; 2 are given"),
        ("complete", {"basket": ["tea"], "exclude": ["tea"]}, "invalid-input", "'tea' is both given and excluded"),
        ("sample", {"size": 19}, "impossible-size", "no set is larger than the rank of the kernel, 18"),
        ("sample", {"size": 3, "candidates": ["tea"]}, "impossible-size", "larger than the rank"),
        ("why", {"basket": ["tea"], "item": "tea"}, "invalid-input", "item is in the basket already"),
        ("batch", {"task": "recommend", "baskets": [[]], "exclude": ["soap"]}, "unknown-label", "unknown label 'soap'"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_told_in_the_words_of_the_library(api, path, body, kind, words):
    response = api.post(f"/api/{path}", json=body)
    assert response.status_code == 422
    assert response.json()["type"] == f"urn:ndpp:problem:{kind}"
    assert words in response.json()["detail"]


def test_a_size_above_the_rank_comes_with_what_lifts_it():
    with pytest.raises(ndpp.errors.ImpossibleSizeError) as raised:
        ndpp.LowRankKernel([[1.0], [2.0]]).check_size(2)
    problem = problems.of(raised.value)
    assert problem is not None
    assert problem["detail"].endswith("Larger sets need another model: a kernel of a larger rank, or a mixture.")


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("recommend", {"basket": [True]}, "/body/basket/0"),
        ("recommend", {"basket": [1.5]}, "/body/basket/0"),
        ("recommend", {"basket": [-1]}, "/body/basket/0"),
        ("recommend", {"basket": [""]}, "/body/basket/0"),
        ("recommend", {"basket": [None]}, "/body/basket/0"),
        ("recommend", {"basket": "bread"}, "/body/basket"),
        ("recommend", {"basket": [10**30]}, "/body/basket/0"),
        ("recommend", {"baskets": []}, "/body/baskets"),
        ("recommend", {"n": 0}, "/body/n"),
        ("recommend", {"ranking": "next"}, "/body/ranking"),
        ("recommend", {"by": "next"}, "/body/by"),
        ("recommend", {"damping": 1.5}, "/body/damping"),
        ("recommend", {"support": -0.1}, "/body/support"),
        ("recommend", {"basket": list(range(limits.BASKET_ITEMS + 1))}, "/body/basket"),
        ("recommend", {"n": limits.RESULTS + 1}, "/body/n"),
        ("sample", {"n": limits.SAMPLES + 1}, "/body/n"),
        ("sample", {"seed": -1}, "/body/seed"),
        ("sample", {"size": "3"}, "/body/size"),
        ("why", {"basket": []}, "/body/item"),
        ("batch", {"baskets": []}, "/body/task"),
        ("batch", {"task": "recommend", "baskets": [[]] * (limits.BATCH_BASKETS + 1)}, "/body/baskets"),
    ],
)
def test_a_request_of_another_shape_is_told_where(api, path, body, pointer):
    response = api.post(f"/api/{path}", json=body)
    assert response.status_code == 422
    assert [error["pointer"] for error in response.json()["errors"]] == [pointer]
    assert pointer in response.json()["detail"]


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"[" * 100_000, b'{"basket": ["\\ud800"]}', b'{"n": NaN}', b""])
def test_a_body_that_is_no_json_object_is_refused(api, body):
    response = api.post("/api/recommend", content=body, headers={"content-type": "application/json"})
    assert response.status_code in (400, 422)


@pytest.mark.parametrize("header", [None, "application/x-www-form-urlencoded", "text/plain"])
def test_a_body_that_is_not_said_to_be_json_is_told_what_is_missing(api, header):
    headers = {} if header is None else {"content-type": header}
    response = api.post("/api/recommend", content=b'{"basket": ["bread"]}', headers=headers)
    assert response.status_code == 415
    assert "content-type: application/json" in response.json()["detail"]
    assert (header or "no content type") in response.json()["detail"]
    vendor = {"content-type": "application/vnd.shop+json; charset=utf-8"}
    assert api.post("/api/recommend", content=b'{"basket": ["bread"]}', headers=vendor).status_code == 200


@pytest.mark.parametrize(
    "query", ["", "item=bread&id=1", "id=-1", "id=x", "item=", f"item={'x' * 1001}", "item=bread&n=0"]
)
def test_related_needs_one_item(api, query):
    assert api.get(f"/api/related?{query}").status_code == 422


@pytest.mark.parametrize("query", [f"q={'x' * 1001}", "limit=0", "limit=1001", "offset=-1", "ids=perhaps"])
def test_a_search_within_bounds(api, query):
    assert api.get(f"/api/items?{query}").status_code == 422


@pytest.mark.parametrize(
    "path", ["/nothing", "/api/nothing", "/static/../app.py", "/static/%2e%2e/app.py", "/static/nothing.js"]
)
def test_what_is_not_there_is_not_found(api, path):
    assert api.get(path).status_code == 404


def test_another_method_is_not_allowed(api):
    response = api.get("/api/recommend")
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"


def test_a_body_that_is_too_large_is_refused_before_it_is_read(api):
    response = api.post("/api/recommend", content=b" " * (limits.BODY_BYTES + 1))
    assert response.status_code == 413
    assert response.headers["connection"] == "close"


def test_chunks_that_are_too_large_together_are_refused(api):
    response = api.post("/api/recommend", content=(b" " * 2**20 for _ in range(limits.BODY_BYTES // 2**20 + 2)))
    assert response.status_code == 413
