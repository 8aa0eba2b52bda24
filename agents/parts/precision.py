"""The precision of matrix products; numbers, losses and what leaves a network stay float32."""

import contextlib
from collections.abc import Iterator

import torch

PRECISIONS = ("fp32", "tf32", "bf16")


def require(precision: str, device: torch.device) -> None:
    """Raises ValueError for a precision that the device has not."""
    if precision == "tf32" and device.type != "cuda":
        raise ValueError("precision='tf32' needs device='cuda'; the cpu has 'fp32' and 'bf16'")


@contextlib.contextmanager
def arithmetic(precision: str, device: torch.device) -> Iterator[None]:
    """Within it products have this precision; a captured graph keeps what held at its capture."""
    products = torch.backends.cuda.matmul if device.type == "cuda" else None
    before = products and products.fp32_precision
    if products:
        products.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    try:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16", cache_enabled=False):
            yield
    finally:
        if products:
            products.fp32_precision = before
