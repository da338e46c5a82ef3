// CRC32C of a frame where it lies, in pieces: a thread a piece, put together by the host (src/record/crc.rs).
#include "abi.cuh"

// Castagnoli's polynomial (RFC 3720 B.4), reflected.
#define POLYNOMIAL 0x82f63b78u
#define CRC_BLOCK 256

// `octets` octets from `from` on, a multiple of 16; `piece` is one, too. A sum for each piece goes to `sums`.
extern "C" __global__ void __launch_bounds__(CRC_BLOCK) crc32c(u64 from, u64 octets, u32 piece, u64 sums) {
    // What four octets do to a sum, each by its own table.
    __shared__ u32 table[4][CRC_BLOCK];
    const u32 lane = threadIdx.x;
    u32 entry = lane;
#pragma unroll
    for (u32 bit = 0; bit < 8; bit++) entry = entry & 1 ? entry >> 1 ^ POLYNOMIAL : entry >> 1;
    table[0][lane] = entry;
    __syncthreads();
#pragma unroll
    for (u32 k = 1; k < 4; k++) {
        entry = entry >> 8 ^ table[0][entry & 0xff];
        table[k][lane] = entry;
    }
    __syncthreads();
    const u64 index = (u64)blockIdx.x * CRC_BLOCK + lane, begin = index * piece;
    if (begin >= octets) return;
    const u64 end = min(begin + piece, octets);
    const u8* frame = reinterpret_cast<const u8*>(from);
    u32 sum = ~0u;
    const auto word = [&](u32 value) {
        sum ^= value;
        sum = table[3][sum & 0xff] ^ table[2][sum >> 8 & 0xff] ^ table[1][sum >> 16 & 0xff] ^ table[0][sum >> 24];
    };
    u64 at = begin;
    for (; at + 16 <= end; at += 16) {
        const uint4 v = __ldg(reinterpret_cast<const uint4*>(frame + at));
        word(v.x);
        word(v.y);
        word(v.z);
        word(v.w);
    }
    for (; at < end; at++) sum = sum >> 8 ^ table[0][(sum ^ frame[at]) & 0xff];
    reinterpret_cast<u32*>(sums)[index] = ~sum;
}
