// From pieces to the frame: a warp a piece.
#pragma once
#include "stage.cuh"
#include "write.cuh"

template <int OUT, int S, int BITS>
struct Unit {
    using W = Wire<S, BITS>;
    // Columns that a lane takes at once, at multiples of their number: a 16-octet store of 16-bit samples; for v210 its
    // blocks of six.
    static constexpr int columns = OUT != V210 ? 8 : W::columns <= 2 ? 6 : 12;
    static constexpr u32 octets = columns / W::columns * W::octets;
};

// Octets from .. to of the piece, staged from octet `staged` on.
template <int OUT, int S, int BITS>
__device__ __forceinline__ void convert(const Geometry& g, const Item& it, const u8* stage, u32 staged, u32 from, u32 to, u32 lane) {
    using W = Wire<S, BITS>;
    using U = Unit<OUT, S, BITS>;
    u8* frame = reinterpret_cast<u8*>(it.frame);
    const u32 begin = it.at + from, end = it.at + to;  // in the row
    const u32 first = (begin + U::octets - 1) / U::octets, last = end / U::octets;
    const u32 origin = staged - begin;
#pragma unroll 1
    for (u32 unit = first + lane; unit < last; unit += WARP) {
        Samples<S, U::columns> s;
        read<S, BITS, U::columns>(stage, origin + unit * U::octets, s);
        write<OUT, S, BITS, U::columns>(g, frame, it.row, unit * U::columns, s);
    }
    if constexpr (U::octets > W::octets) {
        // Units that the piece covers in part, pgroup by pgroup: before `first`, and from `last` on.
        const u32 a = begin / W::octets, b = min(first * (U::octets / W::octets), end / W::octets);
        const u32 c = max(last * (U::octets / W::octets), b), d = end / W::octets;
        const u32 before = b - a;
        for (u32 i = lane; i < before + (d - c); i += WARP) {
            const u32 group = i < before ? a + i : c + (i - before);
            Samples<S, W::columns> s;
            read<S, BITS, W::columns>(stage, origin + group * W::octets, s);
            write<OUT, S, BITS, W::columns>(g, frame, it.row, group * W::columns, s);
        }
    }
}

// For checked builds: the piece is whole pgroups of one row, and all rows that it fills lie in the frame's memory.
template <int OUT, int S, int BITS>
__device__ __forceinline__ bool fits_rows(const Geometry& g, const Item& it) {
    using W = Wire<S, BITS>;
    const auto inside = [&](int plane, i32 row) {
        return row < 0 || g.plane[plane] + (u64)(row + 1) * g.stride[plane] <= g.size;
    };
    const u32 top = it.row * W::rows, last = min(top + W::rows, g.height) - 1;
    bool ok = it.row < g.rows && it.at + it.len <= g.row_octets && it.at % W::octets == 0 && it.len % W::octets == 0;
    ok = ok && top < g.height && inside(0, last);
    if (OUT == PLANAR && S != KEY) ok = ok && inside(1, it.row) && inside(2, it.row);
    if (OUT == P010 || OUT == NV12) ok = ok && inside(1, colour_row<S>(g, it.row));
    if (OUT == P210 || OUT == RGB16F) ok = ok && inside(1, last);
    if (OUT == RGB16F) ok = ok && inside(2, last);
    return ok;
}

template <int OUT, int S, int BITS>
__device__ __forceinline__ void unpack(const Launch& l) {
    __shared__ __align__(16) u8 stages[WARPS][STAGE];
    const u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const u32 index = blockIdx.x * WARPS + warp;
    if (index >= l.count) return;
    const uint4 piece = load_piece(l, index);
    const Item it = item(l, index, piece);
#ifdef GDMEDIA_CHECKED
    if (!fits(l, index, piece) || !fits_rows<OUT, S, BITS>(l.geometry, it)) return refuse(l.faults, lane);
#endif
    u32 from = 0;
#pragma unroll 1
    do {
        const u32 to = chunk_end<Unit<OUT, S, BITS>::octets>(it, from);
        const u32 staged = stage(stages[warp], it, from, to, lane);
        convert<OUT, S, BITS>(l.geometry, it, stages[warp], staged, from, to, lane);
        __syncwarp();
        from = to;
    } while (from < it.len);
}
