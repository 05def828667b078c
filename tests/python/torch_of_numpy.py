"""What the documents' examples use of torch, on NumPy: for machines without torch."""

import numpy

uint8 = numpy.uint8
float32 = numpy.float32


class Tensor(numpy.ndarray):
    def data_ptr(self):
        return self.ctypes.data

    def numel(self):
        return self.size

    def is_contiguous(self):
        return self.flags["C_CONTIGUOUS"]


def arange(end, dtype):
    return numpy.arange(end, dtype=dtype).view(Tensor)


def ones(shape, dtype):
    return numpy.ones(shape, dtype).view(Tensor)


def zeros(shape, dtype):
    return numpy.zeros(shape, dtype).view(Tensor)
