"""One run, from its spec to a sealed result.

The part that trains needs only torch, pytorch-lightning, pyarrow, numpy and pydantic.
"""
