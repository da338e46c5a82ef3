// Brings a piece's octets into shared memory, head plane and body plane in one run.
#pragma once
#include "abi.cuh"

#define WARP 32
#define BLOCK 128
#define WARPS (BLOCK / WARP)

// Octets of a piece that are staged at once at most: more than a packet of 1500 octets carries.
#define CHUNK 1488
// With the misalignment of both planes, and what a reader loads behind its last octet.
#define STAGE (CHUNK + 64)
// Vectors of 16 octets that a lane brings.
#define VECTORS ((CHUNK + 30 + 16 * WARP - 1) / (16 * WARP))

// A piece and where it lies.
struct Item {
    u64 head;   // first octet in the head plane, if any lies there
    u64 body;   // first octet in the body plane, if any lies there
    u64 frame;
    u32 len;
    u32 first;
    u32 row;    // of the wire
    u32 at;     // first octet in that row
};

__device__ __forceinline__ u32 row_of(const Geometry& g, u32 dst) { return __umulhi(dst * 2, g.row_magic) >> g.row_shift; }

__device__ __forceinline__ u32 segment_of(const Launch& l, u32 index) {
    u32 k = 0;
    while (k + 1 < l.segments && index >= l.segment[k].end) k++;
    return k;
}

__device__ __forceinline__ uint4 load_piece(const Launch& l, u32 index) {
    const Segment& s = l.segment[segment_of(l, index)];
    if (s.pitch == 0) return __ldg(reinterpret_cast<const uint4*>(l.pieces) + index);
    const u32 n = index - s.begin;
    const Piece& p = s.piece;
    return make_uint4(p.src + n * s.pitch, p.dst + n * p.len, p.rest + n * s.pitch, p.len | (u32)p.first << 16);
}

__device__ __forceinline__ Item item(const Launch& l, u32 index, uint4 piece) {
    const Segment& s = l.segment[segment_of(l, index)];
    Item it;
    it.head = s.head + piece.x;
    it.body = s.body + piece.z;
    it.frame = s.frame;
    it.len = piece.w & 0xffff;
    it.first = piece.w >> 16;
    it.row = row_of(l.geometry, piece.y);
    it.at = piece.y - it.row * l.geometry.row_octets;
    return it;
}

// For checked builds: the piece lies in its segment's planes, and in the frame.
__device__ __forceinline__ bool fits(const Launch& l, u32 index, uint4 piece) {
    const Segment& s = l.segment[segment_of(l, index)];
    const u32 len = piece.w & 0xffff, first = piece.w >> 16;
    return index >= s.begin && index < s.end && len > 0 && first <= len
        && (first == 0 || (u64)piece.x + first <= s.head_octets)
        && (first == len || (u64)piece.z + (len - first) <= s.body_octets)
        && (u64)piece.y + len <= l.geometry.frame_octets;
}

__device__ __forceinline__ void refuse(u64 faults, u32 lane) {
    if (lane == 0 && faults) atomicAdd(reinterpret_cast<u32*>(faults), 1u);
}

// Stages octets from .. to of a piece and returns where the first of them lies in `stage`. Both planes are read in whole
// aligned vectors; where a piece has octets in both, those of the head plane go singly before the body's vectors.
__device__ __forceinline__ u32 stage(u8* stage, const Item& it, u32 from, u32 to, u32 lane) {
    const u32 head = from < it.first ? min(to, it.first) - from : 0, count = to - from;
    const u32 singly = head < count ? head : 0;
    const u64 source = head == count ? it.head + from : it.body + (from + head - it.first);
    const u32 skew = (u32)source & 15, base = (singly + 15) & ~15u;
    const u32 vectors = (skew + count - singly + 15) / 16, at = base + skew - singly;
    // All loads are on their way before the first is waited for.
    const uint4* p = reinterpret_cast<const uint4*>(source - skew);
    uint4 v[VECTORS];
#pragma unroll
    for (u32 i = 0; i < VECTORS; i++) {
        if (lane + WARP * i < vectors) v[i] = __ldcs(p + lane + WARP * i);
    }
    const u8* octets = reinterpret_cast<const u8*>(it.head + from);
    u8 octet = 0;
    if (lane < singly) octet = octets[lane];
    uint4* to_vectors = reinterpret_cast<uint4*>(stage + base);
#pragma unroll
    for (u32 i = 0; i < VECTORS; i++) {
        if (lane + WARP * i < vectors) to_vectors[lane + WARP * i] = v[i];
    }
    if (singly) {
        // The first vector may hold octets before the body's first.
        __syncwarp();
        if (lane < singly) stage[at + lane] = octet;
        for (u32 i = lane + WARP; i < singly; i += WARP) stage[at + i] = octets[i];
    }
    __syncwarp();
    return at;
}

// Where the chunk that begins at `from` ends: at a unit of the row, or with the piece.
template <u32 UNIT>
__device__ __forceinline__ u32 chunk_end(const Item& it, u32 from) {
    if (it.len - from <= CHUNK) return it.len;
    return (it.at + from + CHUNK) / UNIT * UNIT - it.at;
}
