"""A policy's module as others run it: exported, and as an ONNX graph under ONNX's own reference evaluator."""

import pytest
import torch


def exported(module: torch.nn.Module, obs: torch.Tensor, folder) -> torch.Tensor:
    """Actions of the exported program, which was saved, loaded, and made with another batch size."""
    program = _program(module, obs)
    torch.export.save(program, folder / "policy.pt2")
    return torch.export.load(folder / "policy.pt2").module()(obs)


def in_onnx(module: torch.nn.Module, obs: torch.Tensor, folder) -> torch.Tensor:
    """Actions of the ONNX file, which was made with another batch size."""
    onnx = pytest.importorskip("onnx", reason="needs ONNX: pip install onnx onnxscript")
    pytest.importorskip("onnxscript", reason="needs ONNX: pip install onnx onnxscript")
    from onnx.reference import ReferenceEvaluator

    torch.onnx.export(_program(module, obs), f=folder / "policy.onnx", verbose=False)
    evaluator = ReferenceEvaluator(onnx.load(folder / "policy.onnx"))
    (action,) = evaluator.run(None, {evaluator.input_names[0]: obs.numpy()})
    return torch.from_numpy(action)


def _program(module: torch.nn.Module, obs: torch.Tensor) -> torch.export.ExportedProgram:
    return torch.export.export(module, (obs[:2],), dynamic_shapes=({0: torch.export.Dim("batch")},))
