"""Text to documents, to tokens, to shards, to batches.

    files/       files here and in stores -> documents             (pyarrow; Polars and fsspec where they are needed)
    generators/  rules -> documents                                (numpy)
    encoding/    documents -> tokens, and back                     (tokenizers, tiktoken)
    preparing/   the stages between, each a task of its own        (numpy, pyarrow)
    prepare      all of it: a folder of shards with a manifest
    manifest     what a prepared corpus is                         (pydantic)
    reading      a split of it, mapped into memory                 (numpy, pyarrow)
    batches      the batch at a step, and the exam                 (numpy)

The invariant: what a training process imports, the last three, needs neither tokenizers nor Polars, which
do not survive a fork. This file imports nothing, so that each pays only for what it takes.
"""
