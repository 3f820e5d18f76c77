import inspect
from types import SimpleNamespace


class KernelInterface:
    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)


class JITFunction(KernelInterface):
    def __init__(self, fn):
        self.fn, self.arg_names = fn, list(inspect.signature(fn).parameters)
        self.params = [SimpleNamespace(name=name, is_constexpr=False) for name in self.arg_names]
        self.__name__ = fn.__name__

    def run(self, *args, grid, warmup, **kwargs):
        raise RuntimeError("0 active drivers")


jit = JITFunction
