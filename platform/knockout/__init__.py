"""knockout: declarative ablation studies of language-model architectures.

Importing this package imports none of the engines; each room imports what it needs when it is used.
"""

__version__ = "0.1.0"
