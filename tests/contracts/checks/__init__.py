"""The contracts as functions that raise AssertionError if a contract is violated, one module per contract.

The tests in `tests/contracts` apply them to every member of every table; the tests in `tests/contracts/planted` show
that each of them fails on a defect that it is meant to catch.
"""
