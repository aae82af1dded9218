"""The four names of `timm` that LiteMedSAM's code asks for, where the real package does not import.

`timm` needs torchvision, which has no build for a CPU torch of another version. At inference the four names do next to
nothing, so plain ones stand in for them while the code is imported, and are taken away again.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TypeVar

import torch

_NEEDED = ("timm.models.layers", "timm.models.registry")
_Builder = TypeVar("_Builder", bound=Callable[..., object])


class _DropPath(torch.nn.Module):
    """Stochastic depth: the identity at inference, which is all that is done here."""

    def __init__(self, drop_prob: float | None = None) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and self.drop_prob:
            raise NotImplementedError("this stand-in drops no paths; install timm to train")
        return x


def _to_2tuple(value: int | tuple[int, int]) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)


def _register_model(build: _Builder) -> _Builder:
    return build


def _stand_ins() -> dict[str, ModuleType]:
    timm, models = ModuleType("timm"), ModuleType("timm.models")
    layers, registry = ModuleType("timm.models.layers"), ModuleType("timm.models.registry")
    # A module without a path is no package, and submodules could not be imported from it.
    timm.__path__, models.__path__ = [], []
    vars(layers).update(DropPath=_DropPath, to_2tuple=_to_2tuple, trunc_normal_=torch.nn.init.trunc_normal_)
    vars(registry).update(register_model=_register_model)
    return {module.__name__: module for module in (timm, models, layers, registry)}


def _timm_modules() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name == "timm" or name.startswith("timm.")}


def _real_timm_imports() -> bool:
    before = _timm_modules()
    try:
        for name in _NEEDED:
            importlib.import_module(name)
    except (ImportError, RuntimeError):
        # RuntimeError: a torchvision built for another torch fails so while it registers its operators.
        # What half an import left behind would hide the stand-ins and confuse a later import.
        for name in _timm_modules().keys() - before.keys():
            del sys.modules[name]
        return False
    return True


@contextmanager
def timm_names() -> Iterator[None]:
    """Within this context the four names import: from the real `timm` where it does, else from stand-ins."""
    if _real_timm_imports():
        yield
        return
    stand_ins = _stand_ins()
    hidden = _timm_modules()
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name in stand_ins:
            del sys.modules[name]
        sys.modules.update(hidden)
