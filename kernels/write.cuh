// From samples to the frame. Columns begin at a multiple of their number (of v210's unit where it is whole), and planes
// and strides are multiples of 64 octets, so every store here is aligned.
#pragma once
#include "read.cuh"

#define WIRE 0
#define PLANAR 1
#define P010 2
#define P210 3
#define NV12 4
#define UYVY 5
#define V210 6
#define RGBA 7
#define RGB16F 8

// Frames are read next by somebody else, much later: they need not stay in the cache.
__device__ __forceinline__ void store(u8* p, uint4 v) { __stcs(reinterpret_cast<uint4*>(p), v); }
__device__ __forceinline__ void store(u8* p, uint2 v) { __stcs(reinterpret_cast<uint2*>(p), v); }

template <int N>
__device__ __forceinline__ void put32(u8* p, const u32 (&v)[N]) {
    if constexpr (N % 4 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 4) store(p + 4 * i, make_uint4(v[i], v[i + 1], v[i + 2], v[i + 3]));
    } else if constexpr (N % 2 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 2) store(p + 4 * i, make_uint2(v[i], v[i + 1]));
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) reinterpret_cast<u32*>(p)[i] = v[i];
    }
}

// Values that fit 16 bits.
template <int N>
__device__ __forceinline__ void put16(u8* p, const u32 (&v)[N]) {
    if constexpr (N == 1) {
        *reinterpret_cast<u16*>(p) = v[0];
    } else {
        u32 w[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++) w[i] = v[2 * i] | v[2 * i + 1] << 16;
        put32<N / 2>(p, w);
    }
}

// Values that fit 8 bits.
template <int N>
__device__ __forceinline__ void put8(u8* p, const u32 (&v)[N]) {
    if constexpr (N == 1) {
        *p = v[0];
    } else if constexpr (N == 2) {
        *reinterpret_cast<u16*>(p) = v[0] | v[1] << 8;
    } else {
        u32 w[N / 4];
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
            w[i] = __byte_perm(v[4 * i] | v[4 * i + 1] << 8, v[4 * i + 2] | v[4 * i + 3] << 8, 0x5410);
        }
        put32<N / 4>(p, w);
    }
}

template <int SIZE, int N>
__device__ __forceinline__ void put(u8* p, const u32 (&v)[N]) {
    if constexpr (SIZE == 2) put16<N>(p, v);
    else put8<N>(p, v);
}

// Samples of ten bits from sample `start` of a row on, three in a word; words that are covered in part keep their
// other samples, which somebody else may be writing at the same time.
template <int N>
__device__ __forceinline__ void merge_v210(u8* row, u32 start, const u32 (&v)[N], u32 count) {
    u32* word = reinterpret_cast<u32*>(row) + start / 3;
    u32 shift = start % 3 * 10, mask = 0, bits = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (i >= count) break;
        mask |= 0x3ffu << shift;
        bits |= v[i] << shift;
        shift += 10;
        if (shift == 30 || i + 1 == count) {
            if (mask == 0x3fffffff) {
                *word = bits;
            } else {
                atomicAnd(word, ~mask & 0x3fffffff);
                atomicOr(word, bits);
            }
            word++;
            shift = mask = bits = 0;
        }
    }
}

// The colour row of a 4:2:0 output that a wire row fills; -1 when it fills none.
template <int S>
__device__ __forceinline__ i32 colour_row(const Geometry& g, u32 row) {
    if constexpr (S == QUARTER) return row;
    if (g.interlaced) return row & 2 ? -1 : (i32)((row >> 2) * 2 + (row & 1));
    return row & 1 ? -1 : (i32)(row >> 1);
}

__device__ __forceinline__ u32 clip255(i32 v) { return min(max(v, 0), 255); }

__device__ __forceinline__ u32 half_of(i32 sum) {
    const float v = __saturatef(__fmul_rn(__int2float_rn(sum), __int_as_float(0x34008081)));
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v));
    return bits;
}

// Writes `N` columns from column `x` of wire row `row` on.
template <int OUT, int S, int BITS, int N>
__device__ __forceinline__ void write(const Geometry& g, u8* frame, u32 row, u32 x, const Samples<S, N>& s) {
    constexpr int top = 16 - BITS;
    constexpr int rows = S == QUARTER ? 2 : 1;
    constexpr bool odd = N == 1;  // the column may be an odd one
    const auto line = [&](int plane, u32 row) { return frame + g.plane[plane] + (u64)row * g.stride[plane]; };

    if constexpr (OUT == PLANAR) {
        constexpr int size = BITS == 8 ? 1 : 2;
#pragma unroll
        for (int i = 0; i < rows; i++) {
            if (i == 0 || row * 2 + 1 < g.height) put<size, N>(line(0, row * rows + i) + x * size, s.y[i]);
        }
        if constexpr (S != KEY) {
            constexpr int n = Samples<S, N>::colours;
            const u32 colour = (S == FULL ? x : x / 2) * size;
            put<size, n>(line(1, row) + colour, s.b);
            put<size, n>(line(2, row) + colour, s.r);
        }
    }
    if constexpr (OUT == P010 || OUT == P210 || OUT == NV12) {
        constexpr int size = OUT == NV12 ? 1 : 2;
        const auto code = [](u32 s) { return OUT == NV12 ? s << top >> 8 : s << top & 0xffc0; };
#pragma unroll
        for (int i = 0; i < rows; i++) {
            u32 v[N];
#pragma unroll
            for (int k = 0; k < N; k++) v[k] = code(s.y[i][k]);
            if (i == 0 || row * 2 + 1 < g.height) put<size, N>(line(0, row * rows + i) + x * size, v);
        }
        constexpr int n = odd ? 2 : N, step = S == FULL ? 2 : 1;
        u32 v[n];
#pragma unroll
        for (int k = 0; k < n; k += 2) v[k] = code(s.b[k / 2 * step]), v[k + 1] = code(s.r[k / 2 * step]);
        if (!odd || (x & 1) == 0) {
            if constexpr (OUT == P210) {
#pragma unroll
                for (int i = 0; i < rows; i++) {
                    if (i == 0 || row * 2 + 1 < g.height) put<size, n>(line(1, row * rows + i) + x * size, v);
                }
            } else {
                const i32 colour = colour_row<S>(g, row);
                if (colour >= 0) put<size, n>(line(1, colour) + x * size, v);
            }
        }
    }
    if constexpr (OUT == UYVY || OUT == V210) {
        const auto code = [](u32 s) { return OUT == V210 ? s << top >> 6 : s << top >> 8; };
        constexpr int n = odd ? 3 : 2 * N, step = S == FULL ? 2 : 1;
#pragma unroll
        for (int i = 0; i < rows; i++) {
            if (i == 1 && row * 2 + 1 >= g.height) break;
            u8* p = line(0, row * rows + i);
            u32 v[n];
            if constexpr (odd) {
                v[0] = code(s.b[0]), v[1] = code(s.y[i][0]), v[2] = code(s.r[0]);
                // An odd column has its luma alone.
                u32 start = x * 2, count = 3;
                if (x & 1) start++, count = 1, v[0] = v[1];
                if constexpr (OUT == V210) {
                    merge_v210<n>(p, start, v, count);
                } else {
                    p[start] = v[0];
                    if (count == 3) p[start + 1] = v[1], p[start + 2] = v[2];
                }
            } else {
#pragma unroll
                for (int k = 0; k < N / 2; k++) {
                    v[4 * k] = code(s.b[k * step]), v[4 * k + 1] = code(s.y[i][2 * k]);
                    v[4 * k + 2] = code(s.r[k * step]), v[4 * k + 3] = code(s.y[i][2 * k + 1]);
                }
                if constexpr (OUT == UYVY) {
                    put8<n>(p + x * 2, v);
                } else if constexpr (N % 6 == 0) {
                    u32 w[n / 3];
#pragma unroll
                    for (int k = 0; k < n / 3; k++) w[k] = v[3 * k] | v[3 * k + 1] << 10 | v[3 * k + 2] << 20;
                    put32<n / 3>(p + x / 6 * 16, w);
                } else {
                    merge_v210<n>(p, x * 2, v, n);
                }
            }
        }
    }
    if constexpr (OUT == RGBA || OUT == RGB16F) {
        // Ten bits a sample, less its offset.
        const auto centre = [&](u32 s, int c) -> i32 {
            if constexpr (BITS == 16) {
                if (g.table[0]) return (i32)__ldg(reinterpret_cast<const u16*>(g.table[c]) + s) - g.offset[c];
            }
            return (i32)(s << top >> 6) - g.offset[c];
        };
        constexpr int colours = Samples<S, N>::colours;
        // What colour adds to R, G and B.
        i32 sum[colours][3];
#pragma unroll
        for (int k = 0; k < colours; k++) {
            const i32 b = S == KEY ? 0 : centre(s.b[k], 1), r = S == KEY ? 0 : centre(s.r[k], 2);
#pragma unroll
            for (int c = 0; c < 3; c++) {
                sum[k][c] = g.matrix[c][1] * b + g.matrix[c][2] * r + (OUT == RGBA ? 1 << 14 : 0);
            }
        }
#pragma unroll
        for (int i = 0; i < rows; i++) {
            if (i == 1 && row * 2 + 1 >= g.height) break;
            if constexpr (OUT == RGBA) {
                u32 v[N];
#pragma unroll
                for (int k = 0; k < N; k++) {
                    const i32 y = centre(s.y[i][k], 0);
                    const i32* add = sum[S == FULL ? k : S == KEY ? 0 : k / 2];
                    u32 c[3];
#pragma unroll
                    for (int j = 0; j < 3; j++) c[j] = clip255((g.matrix[j][0] * y + add[j]) >> 15);
                    v[k] = __byte_perm(c[0] | c[1] << 8, c[2] | 0xff00, 0x5410);
                }
                put32<N>(line(0, row * rows + i) + x * 4, v);
            } else {
                i32 y[N];
#pragma unroll
                for (int k = 0; k < N; k++) y[k] = centre(s.y[i][k], 0);
#pragma unroll
                for (int c = 0; c < 3; c++) {
                    u32 v[N];
#pragma unroll
                    for (int k = 0; k < N; k++) {
                        v[k] = half_of(g.matrix[c][0] * y[k] + sum[S == FULL ? k : S == KEY ? 0 : k / 2][c]);
                    }
                    put16<N>(line(c, row * rows + i) + x * 2, v);
                }
            }
        }
    }
}
