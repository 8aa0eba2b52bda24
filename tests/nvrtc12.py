"""NVRTC of CUDA 12 with the functions of CuPy's binding, so that `compile` can be given it instead of CUDA 13's."""

import ctypes
import functools
from importlib import metadata

from cupy.cuda import nvrtc


class NVRTCError(RuntimeError):
    """A refused program."""


@functools.cache
def library() -> ctypes.CDLL:
    nvrtc.getVersion()  # loads CuPy's first: it would take this one, were it already there
    files = metadata.files("nvidia-cuda-nvrtc-cu12")
    (path,) = (file.locate() for file in files if file.name == "libnvrtc.so.12")
    loaded = ctypes.CDLL(str(path))
    loaded.nvrtcGetErrorString.restype = ctypes.c_char_p
    return loaded


def call(function: str, *arguments) -> None:
    status = library()[function](*arguments)
    if status:
        raise NVRTCError(library().nvrtcGetErrorString(status).decode())


def getVersion() -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def createProgram(text: str, name: str, headers: tuple, include_names: tuple) -> ctypes.c_void_p:
    assert not headers and not include_names
    program = ctypes.c_void_p()
    call("nvrtcCreateProgram", ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
    return program


def compileProgram(program: ctypes.c_void_p, options: tuple[str, ...]) -> None:
    call("nvrtcCompileProgram", program, len(options), (ctypes.c_char_p * len(options))(*map(str.encode, options)))


def destroyProgram(program: ctypes.c_void_p) -> None:
    call("nvrtcDestroyProgram", ctypes.byref(program))


def read(what: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    call(f"nvrtcGet{what}", program, buffer)
    return buffer.raw[:-1]  # as CuPy does


def getCUBIN(program: ctypes.c_void_p) -> bytes:
    return read("CUBIN", program)


def getProgramLog(program: ctypes.c_void_p) -> str:
    return read("ProgramLog", program).decode()
