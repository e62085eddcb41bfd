"""Keeps what C++ libraries say about their input out of the service's logs.

xgrammar, for example, warns of a pattern that it does not support and quotes it. Such libraries write to the streams of
the C++ library. Python does not, nor do the traces of a crash: they go to the descriptors themselves.
"""

import ctypes

_STREAMS = ("_ZSt4cout", "_ZSt4cerr", "_ZSt4clog")
_SET_BUFFER = "_ZNSt9basic_iosIcSt11char_traitsIcEE5rdbufEPSt15basic_streambufIcS1_E"  # std::ios::rdbuf(streambuf*)
_OFFSET_OF_IOS = -3 * ctypes.sizeof(ctypes.c_void_p)
"""Where the table of a stream's class says how far behind the stream's begin its `std::ios` is."""


def quiet_libraries() -> None:
    """Take the buffers away from the streams of the C++ library in this process, so that nothing is written to them."""
    library = ctypes.CDLL("libstdc++.so.6")
    set_buffer = library[_SET_BUFFER]
    set_buffer.argtypes, set_buffer.restype = [ctypes.c_void_p, ctypes.c_void_p], ctypes.c_void_p
    for name in _STREAMS:
        stream = ctypes.addressof(ctypes.c_char.in_dll(library, name))
        table = ctypes.c_size_t.from_address(stream).value
        set_buffer(stream + ctypes.c_ssize_t.from_address(table + _OFFSET_OF_IOS).value, None)
