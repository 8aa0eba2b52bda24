"""A policy's module as others run it: exported, and as an ONNX graph under ONNX's own reference evaluator."""

import pytest
import torch


def program(module: torch.nn.Module, obs: torch.Tensor) -> torch.export.ExportedProgram:
    """The exported program, which is made with another batch size."""
    return torch.export.export(module, (obs[:2],), dynamic_shapes=({0: torch.export.Dim("batch")},))


def exported(program: torch.export.ExportedProgram, obs: torch.Tensor, folder) -> torch.Tensor:
    """Actions of a program that was saved and loaded."""
    torch.export.save(program, folder / "policy.pt2")
    return torch.export.load(folder / "policy.pt2").module()(obs)


def in_onnx(program: torch.export.ExportedProgram, obs: torch.Tensor, folder) -> torch.Tensor:
    """Actions of a program as an ONNX file."""
    onnx = pytest.importorskip("onnx", reason="needs ONNX: pip install onnx onnxscript")
    pytest.importorskip("onnxscript", reason="needs ONNX: pip install onnx onnxscript")
    from onnx.reference import ReferenceEvaluator

    torch.onnx.export(program, f=folder / "policy.onnx", verbose=False)
    evaluator = ReferenceEvaluator(onnx.load(folder / "policy.onnx"))
    (action,) = evaluator.run(None, {evaluator.input_names[0]: obs.numpy()})
    return torch.from_numpy(action)
