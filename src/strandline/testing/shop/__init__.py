"""A made-up shop under load: writers in processes of their own, ledgers of what they were told, and a checker that
compares what a journal shows with them. Any of them may be killed at any moment. The demo and the kill tests use it.
"""
