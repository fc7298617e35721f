"""Search strategies: which subsets of a list of items to try to remove, and in what order.

Pure: a strategy sees opaque items and a function that turns a set of items into a question (an
edit, for the reducer; a set of integers, in the tests). It yields questions and is sent a truthy
answer when what it proposed was accepted, ``None`` otherwise.
"""

from __future__ import annotations
