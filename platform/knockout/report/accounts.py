"""An architecture's account for a terminal."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from knockout.account import Account

PARTS = ("embedding", "position", "attention", "feed_forward", "norm", "head")


def number(value: float) -> str:
    """A count in words: 1,234 · 124.4 M · 405.9 B."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if value >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value:,.0f}"


def num_bytes(value: float) -> str:
    """Bytes in words, decimal units."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value:,.0f} B"


def account_table(account: Account, *, activations: int, dtype: str, title: str) -> RenderableType:
    """Parameters by part, and what a token costs; weights, cache and activations (in bytes) are in `dtype`."""
    parameters = account.to_dict()["parameters"]
    total = parameters["total"]
    table = _table("part", "parameters", "share", title=title)
    for part in PARTS:
        table.add_row(part, f"{parameters[part]:,}", _share(parameters[part], total=total))
    table.add_section()
    table.add_row("total", f"{total:,}", "")
    table.add_row("active per token", f"{parameters['active']:,}", _share(parameters["active"], total=total))
    cost = _table("per token", "")
    cost.add_row("FLOPs, forward", number(account.flops_per_token.forward))
    cost.add_row("FLOPs, training", number(account.flops_per_token.training))
    cost.add_row(f"KV cache in {dtype}", num_bytes(account.kv_cache.bytes_per_token))
    cost.add_section()
    cost.add_row("KV cache at the context", num_bytes(account.kv_cache.bytes))
    cost.add_row(f"weights in {dtype}", num_bytes(account.bytes.weights))
    cost.add_row("Adam's moments in float32", num_bytes(account.bytes.optimizer))
    cost.add_row("activations for backward, about", num_bytes(activations))
    return Group(table, cost)


def _share(value: int, *, total: int) -> str:
    return f"{value / total:.3%}" if total else ""


def _table(*columns: str, title: str | None = None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False, padding=(0, 1))
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", no_wrap=True)
    return table
