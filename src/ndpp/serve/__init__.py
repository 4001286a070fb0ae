"""The service and the page of ``ndpp serve``: one model, asked over HTTP.

``create_app`` (:mod:`ndpp.serve.app`) makes the ASGI application of a model file, ``run`` (:mod:`ndpp.serve.run`) serves it.
Nothing here is imported by ``import ndpp``; the packages it needs come with the extra ``serve``.
"""
