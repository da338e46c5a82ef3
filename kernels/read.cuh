// From wire octets to samples (ST 2110-20:2022, 6.2): samples of `BITS` bits, concatenated most significant bit first.
#pragma once
#include "abi.cuh"

#define FULL 444     // Y'CbCr and ICtCp 4:4:4, RGB, XYZ
#define HALF 422
#define QUARTER 420  // two rows
#define KEY 400      // one component

template <int S, int BITS>
struct Wire {
    static constexpr int rows = S == QUARTER ? 2 : 1;
    // A pgroup's columns, and its octets (tables 1 to 5).
    static constexpr int columns = S == HALF      ? 2
                                   : S == QUARTER ? (BITS == 10 ? 4 : 2)
                                                  : (BITS == 10 ? 4 : BITS == 12 ? 2 : 1);
    // Samples of two columns.
    static constexpr int samples = S == HALF ? 4 : S == KEY ? 2 : 6;
    static constexpr int octets = columns * samples / 2 * BITS / 8;
};

// Samples of `N` columns.
template <int S, int N>
struct Samples {
    static constexpr int colours = S == FULL ? N : S == KEY ? 1 : N / 2;
    u32 y[S == QUARTER ? 2 : 1][N];
    u32 b[colours];  // the colour that comes first on the wire
    u32 r[colours];
};

// `N` columns from octet `at` of `stage` on; up to 7 octets behind them are loaded too. `stage` is aligned to words.
template <int S, int BITS, int N>
__device__ __forceinline__ void read(const u8* stage, u32 at, Samples<S, N>& out) {
    constexpr int count = N * Wire<S, BITS>::samples / 2;
    constexpr int words = (count * BITS + 31) / 32;
    u32 w[words];
    const u32* p = reinterpret_cast<const u32*>(stage + (at & ~3u));
    // Takes octets m .. m + 4 of two little-endian words as one big-endian word.
    const u32 select = 0x0123 + (at & 3) * 0x1111;
    u32 low = p[0];
#pragma unroll
    for (int k = 0; k < words; k++) {
        const u32 high = p[k + 1];
        w[k] = __byte_perm(low, high, select);
        low = high;
    }
    u32 s[count];
#pragma unroll
    for (int i = 0; i < count; i++) {
        const int k = i * BITS / 32, end = i * BITS % 32 + BITS;
        const u32 bits = end <= 32 ? w[k] >> (32 - end) : __funnelshift_l(w[k + 1 < words ? k + 1 : k], w[k], end - 32);
        s[i] = bits & ((1u << BITS) - 1);
    }
    if constexpr (S == FULL) {
#pragma unroll
        for (int i = 0; i < N; i++) out.b[i] = s[3 * i], out.y[0][i] = s[3 * i + 1], out.r[i] = s[3 * i + 2];
    } else if constexpr (S == HALF) {
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            out.b[i] = s[4 * i], out.y[0][2 * i] = s[4 * i + 1];
            out.r[i] = s[4 * i + 2], out.y[0][2 * i + 1] = s[4 * i + 3];
        }
    } else if constexpr (S == QUARTER) {
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            out.y[0][2 * i] = s[6 * i], out.y[0][2 * i + 1] = s[6 * i + 1];
            out.y[1][2 * i] = s[6 * i + 2], out.y[1][2 * i + 1] = s[6 * i + 3];
            out.b[i] = s[6 * i + 4], out.r[i] = s[6 * i + 5];
        }
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) out.y[0][i] = s[i];
    }
}
