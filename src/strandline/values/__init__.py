"""Frozen values: keys, events, actions, heads, answers. No input or output; nothing of them imports a back-end."""
