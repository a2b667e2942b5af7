"""The closed forms of recurrent cells, selective state spaces and retention.

The invariant: equal to what the parts of `model/` build, and to torch's FlopCounterMode on them. That counts products of
matrices and convolutions; element by element work (the cells' gates, a state space's recurrence, the fading of
retention's state) counts nothing here as there.
"""

from __future__ import annotations

from knockout.account.cost import Cost, linear, table
from knockout.declare.architecture import Architecture
from knockout.declare.parts import CellMixer, RetentionMixer, SelectiveSsmMixer, cell_width, step_rank


def cell_cost(mixer: CellMixer, *, width: int, bias: bool) -> Cost:
    """A cell's maps of input and state, each with a bias of its own as in torch, and the map that reads it out."""
    hidden = cell_width(mixer, width=width)
    of_input = linear(width, mixer.gates * hidden, bias=bias)
    of_state = linear(hidden, mixer.gates * hidden, bias=bias)
    return of_input + of_state + linear(hidden, width, bias=bias)


def state_space_cost(mixer: SelectiveSsmMixer, *, width: int, bias: bool) -> Cost:
    """Maps, convolution, rates and skip (Gu & Dao 2023, figure 3); reading the state is a product, updating it is not."""
    inner, rank = mixer.expansion * width, step_rank(mixer, width=width)
    maps = linear(width, 2 * inner, bias=bias) + linear(inner, width, bias=bias)
    selection = linear(inner, rank + 2 * mixer.state, bias=False) + linear(rank, inner, bias=True)
    convolution = linear(mixer.convolution, inner, bias=bias)
    rates_and_skip = table(inner, mixer.state + 1)
    return maps + selection + convolution + rates_and_skip + Cost(flops_per_token=2 * inner * mixer.state)


def retention_cost(mixer: RetentionMixer, *, architecture: Architecture, context: int) -> Cost:
    """Five maps, and in every head the scores within a chunk and the state between chunks.

    A chunk of C tokens costs 2 C (K + V) FLOPs a token within, and 4 K V to read and to extend the state. The last chunk
    of a context may be shorter; the FLOPs a token are then rounded down.
    """
    width, heads, bias = architecture.width, architecture.heads, architecture.bias
    key_width = width // heads
    value_width = mixer.value_expansion * key_width
    inner = heads * value_width
    maps = linear(width, width, bias=bias) * 2 + linear(width, inner, bias=bias) * 2 + linear(inner, width, bias=bias)
    whole, rest = divmod(context, mixer.chunk)
    num_pairs = whole * mixer.chunk**2 + rest**2
    within = 2 * num_pairs * (key_width + value_width)
    between = 4 * context * key_width * value_width
    return maps + Cost(flops_per_token=heads * (within + between) // context)


def cell_state(mixer: CellMixer, *, width: int) -> int:
    """Numbers that a cell remembers of a sequence: its state, and for LSTM the cell's own beside it."""
    return cell_width(mixer, width=width) * mixer.state_tensors


def state_space_state(mixer: SelectiveSsmMixer, *, width: int) -> tuple[int, int]:
    """Numbers that a state space remembers of a sequence: the convolution's last inputs, and the state itself."""
    inner = mixer.expansion * width
    return inner * (mixer.convolution - 1), inner * mixer.state


def retention_state(mixer: RetentionMixer, *, width: int, heads: int) -> int:
    """Numbers that retention remembers of a sequence: a key-value product a head."""
    return mixer.value_expansion * width * (width // heads)
