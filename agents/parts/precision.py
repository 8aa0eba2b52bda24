"""The precision of matrix products; numbers, losses and what leaves a network stay float32."""

import contextlib
from collections.abc import Iterator

import torch

PRECISIONS = ("fp32", "tf32", "bf16")


def require(precision: str, device: torch.device) -> None:
    """Raises ValueError for a precision that the device has not."""
    if precision == "tf32" and device.type != "cuda":
        raise ValueError("precision='tf32' needs device='cuda'; the cpu has 'fp32' and 'bf16'")


def arithmetic(precision: str, device: torch.device) -> contextlib.AbstractContextManager:
    """Within it products have this precision; a captured graph keeps what held at its capture."""
    if precision == "bf16":
        return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)
    return _of_float32(precision) if device.type == "cuda" else contextlib.nullcontext()


@contextlib.contextmanager
def _of_float32(precision: str) -> Iterator[None]:
    """Within it a GPU's products of float32 factors have this precision; the factors stay float32."""
    products = torch.backends.cuda.matmul
    before = products.fp32_precision
    products.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    try:
        yield
    finally:
        products.fp32_precision = before
