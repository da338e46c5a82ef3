// The kernels of one wire format, a kernel an output: unpack_422_10_p210 and so on. Wanted are GD_WIRE (444, 422, 420,
// or 400 for keys) and GD_BITS; with GD_OUT, a number of write.cuh, there is that one kernel alone.
#include "unpack.cuh"

#define NAME_(wire, bits, output) unpack_##wire##_##bits##_##output
#define NAME(wire, bits, output) NAME_(wire, bits, output)
#define KERNEL(OUT, output)                                                                                             \
    extern "C" __global__ void __launch_bounds__(BLOCK) NAME(GD_WIRE, GD_BITS, output)(const __grid_constant__ Launch l) { \
        unpack<OUT, GD_WIRE, GD_BITS>(l);                                                                               \
    }
#ifndef GD_OUT
#define WANTED(OUT) 1
#else
#define WANTED(OUT) (GD_OUT == OUT)
#endif

#if WANTED(PLANAR)
KERNEL(PLANAR, planar)
#endif
#if WANTED(RGBA)
KERNEL(RGBA, rgba)
#endif
#if WANTED(RGB16F)
KERNEL(RGB16F, rgb16f)
#endif
// A key has no colour.
#if GD_WIRE != KEY
#if WANTED(P010)
KERNEL(P010, p010)
#endif
#if WANTED(P210)
KERNEL(P210, p210)
#endif
#if WANTED(NV12)
KERNEL(NV12, nv12)
#endif
#if WANTED(UYVY)
KERNEL(UYVY, uyvy)
#endif
#if WANTED(V210)
KERNEL(V210, v210)
#endif
#endif
