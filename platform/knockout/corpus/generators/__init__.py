"""Corpora that are drawn by a rule: their documents, and what counting and theory say of them."""
