"""What one request may ask for. Anything larger is refused with a clear problem document before any work."""

BODY_BYTES = 8 * 2**20
"""Most bytes of a request's body."""
BASKET_ITEMS = 500
"""Most items of a basket."""
LISTED_ITEMS = 100_000
"""Most items of ``exclude`` and of ``candidates``."""
HISTORY = 1000
"""Most baskets of a history."""
BASKET_LIMITS = 100
"""Most limits of a request."""
CATEGORIES = 500
"""Most different words of a column that the description of a model lists."""
SAMPLES = 1000
"""Most baskets drawn by one request."""
DRAWN_ITEMS = 100_000
"""Most items of all these baskets together."""
RESULTS = 1000
"""Most items that a search, a recommendation or a list of related items returns."""
BATCH_BASKETS = 10_000
"""Most baskets of one batch."""
CONTEXT_COLUMNS = 20
"""Columns of context of a request."""
LABEL_LENGTH = 1000
"""Most characters of a label."""
BODY_SECONDS = 10.0
"""How long a client may take to send a request."""
DISCARD_SECONDS = 1.0
"""How long the rest of a refused request is read, so that its client can read the answer."""
SEND_SECONDS = 30.0
"""How long a client may take to read a part of the answer."""
HEAD_BYTES = 64 * 2**10
"""Most bytes of the request line and the headers together."""
HEAD_LINES = 100
"""Most headers."""
HEADER_SECONDS = 10.0
"""How long a connection may stay open without a complete request line and headers."""
