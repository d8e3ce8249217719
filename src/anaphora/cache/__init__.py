"""The prefix cache: digests, pages, index and page tables, in plain Python.

Pure: standard library only, no clock, no randomness, no I/O. Rules: docs/cache-semantics.md.
"""
