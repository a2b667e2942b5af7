"""Text to documents, to tokens, to shards, to batches.

    prepare     text -> a folder of shards with a manifest        (numpy, pyarrow, tokenizers)
    files/      files here and in stores -> documents             (pyarrow; Polars and fsspec where they are needed)
    manifest    what a prepared corpus is                         (pydantic)
    reading     a split of it, mapped into memory                 (numpy, pyarrow)
    batches     the batch at a step, and the exam                 (numpy)

The invariant: what a training process imports, the last three, needs neither tokenizers nor Polars, which
do not survive a fork. This file imports nothing, so that each pays only for what it takes.
"""
