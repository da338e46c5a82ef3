// Octets as they are: from pieces to a frame of wire octets, and from frame to frame.
#include "stage.cuh"

// Octets count .. of shared memory to anywhere, in aligned vectors.
__device__ __forceinline__ void put_octets(u8* to, const u8* stage, u32 at, u32 count, u32 lane) {
    const u32 before = min((16 - ((u32)(u64)to & 15)) & 15, count), vectors = (count - before) / 16;
    if (lane < before) to[lane] = stage[at + lane];
    for (u32 k = lane; k < vectors; k += WARP) {
        const u32 from = at + before + 16 * k, shift = (from & 3) * 8;
        const u32* w = reinterpret_cast<const u32*>(stage + (from & ~3u));
        const uint4 v = make_uint4(__funnelshift_r(w[0], w[1], shift), __funnelshift_r(w[1], w[2], shift),
                                   __funnelshift_r(w[2], w[3], shift), __funnelshift_r(w[3], w[4], shift));
        __stcs(reinterpret_cast<uint4*>(to + before + 16 * k), v);
    }
    const u32 done = before + vectors * 16;
    if (lane < count - done) to[done + lane] = stage[at + done + lane];
}

extern "C" __global__ void __launch_bounds__(BLOCK) copy_wire(const __grid_constant__ Launch l) {
    __shared__ __align__(16) u8 stages[WARPS][STAGE];
    const u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const u32 index = blockIdx.x * WARPS + warp;
    if (index >= l.count) return;
    const uint4 piece = load_piece(l, index);
    const Item it = item(l, index, piece);
#ifdef GDMEDIA_CHECKED
    if (!fits(l, index, piece) || l.geometry.plane[0] + piece.y + it.len > l.geometry.size) return refuse(l.faults, lane);
#endif
    u8* frame = reinterpret_cast<u8*>(it.frame + l.geometry.plane[0] + piece.y);
    u32 from = 0;
#pragma unroll 1
    do {
        const u32 to = chunk_end<1>(it, from);
        const u32 at = stage(stages[warp], it, from, to, lane);
        put_octets(frame + from, stages[warp], at, to - from, lane);
        __syncwarp();
        from = to;
    } while (from < it.len);
}

// A span of a frame; the same in src/kernel/cuda/abi.rs.
struct Span {
    u32 offset;
    u32 count;
};
static_assert(sizeof(Span) == 8, "Span");

// Octets of the spans, from the frame before: a warp a span. Both frames begin at multiples of 16.
extern "C" __global__ void __launch_bounds__(BLOCK)
copy_spans(u64 frame, u64 previous, u64 spans, u32 count, u64 size, u64 faults) {
    const u32 lane = threadIdx.x % WARP, index = (blockIdx.x * BLOCK + threadIdx.x) / WARP;
    if (index >= count) return;
    const Span s = reinterpret_cast<const Span*>(spans)[index];
#ifdef GDMEDIA_CHECKED
    if ((u64)s.offset + s.count > size) return refuse(faults, lane);
#endif
    u8* to = reinterpret_cast<u8*>(frame + s.offset);
    const u8* from = reinterpret_cast<const u8*>(previous + s.offset);
    const u32 before = min((16 - (s.offset & 15)) & 15, s.count), vectors = (s.count - before) / 16;
    if (lane < before) to[lane] = from[lane];
    for (u32 k = lane; k < vectors; k += WARP) {
        reinterpret_cast<uint4*>(to + before)[k] = __ldg(reinterpret_cast<const uint4*>(from + before) + k);
    }
    const u32 done = before + vectors * 16;
    if (lane < s.count - done) to[done + lane] = from[done + lane];
}

// The same of v210: spans count in samples, three in a word. Words that a span covers in part keep their other samples,
// which another warp may be writing.
extern "C" __global__ void __launch_bounds__(BLOCK)
copy_spans_v210(u64 frame, u64 previous, u64 spans, u32 count, u64 size, u64 faults) {
    const u32 lane = threadIdx.x % WARP, index = (blockIdx.x * BLOCK + threadIdx.x) / WARP;
    if (index >= count) return;
    const Span s = reinterpret_cast<const Span*>(spans)[index];
    const u64 end = (u64)s.offset + s.count;
#ifdef GDMEDIA_CHECKED
    if ((end + 2) / 3 * 4 > size) return refuse(faults, lane);
#endif
    u32* to = reinterpret_cast<u32*>(frame);
    const u32* from = reinterpret_cast<const u32*>(previous);
    for (u64 word = s.offset / 3 + lane; word * 3 < end; word += WARP) {
        u32 mask = 0;
#pragma unroll
        for (u32 i = 0; i < 3; i++) {
            if (word * 3 + i >= s.offset && word * 3 + i < end) mask |= 0x3ffu << (i * 10);
        }
        const u32 bits = __ldg(from + word) & mask;
        if (mask == 0x3fffffff) {
            to[word] = bits;
        } else {
            atomicAnd(to + word, ~mask & 0x3fffffff);
            atomicOr(to + word, bits);
        }
    }
}
