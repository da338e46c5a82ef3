// From a finished frame: a smaller picture, counts for scopes, one without alpha, and the number that the test pattern carries.
#include "write.cuh"

// What `scale` wants to know; the same in src/kernel/cuda/scale.rs. Components are in the order of the planes.
struct Scale {
    u64 frame;
    u64 to;           // R G B A, rows without padding
    u64 plane[3];     // first octet of a component's plane
    u64 table[3];     // ten-bit codes of every half float; 0 where samples are integers
    u64 pixels;       // of a box
    u32 stride[3];    // 0: no such component
    u32 output;       // of the frame, a number of write.cuh
    u32 bits;         // of planar samples
    u32 pair;         // planar: 1 where two columns share their colour
    u32 colour_rows;  // 0: a row of colour for each; 1: for two; 2: for two of a field
    u32 columns;      // of the picture
    u32 rows;
    u32 across;       // columns and rows of a box
    u32 down;
    u32 lanes;        // that share a box: 1, 2, 4 .. 32
    i32 offset[3];
    i32 matrix[3][3];
};
static_assert(sizeof(Scale) == 168, "Scale");

// Component `i` of a pixel in ten bits; of RGBA in eight.
__device__ __forceinline__ u32 sample(const Scale& s, u32 i, u32 x, u32 y) {
    if (i > 0 && s.colour_rows) y = s.colour_rows == 2 ? y / 4 * 2 + y % 2 : y / 2;
    const auto row = [&](u32 plane) { return reinterpret_cast<const u8*>(s.frame + s.plane[plane] + (u64)y * s.stride[plane]); };
    const auto word = [](const u8* row, u32 at) -> u32 { return __ldg(reinterpret_cast<const u16*>(row) + at); };
    switch (s.output) {
        case PLANAR: {
            if (s.stride[i] == 0) return 0;
            const u32 at = i > 0 ? x >> s.pair : x, code = s.bits == 8 ? __ldg(row(i) + at) : word(row(i), at);
            return s.table[i] ? word(reinterpret_cast<const u8*>(s.table[i]), code) : (code << (16 - s.bits) & 0xffff) >> 6;
        }
        case P010:
        case P210: return word(row(i > 0), i > 0 ? (x & ~1u) + i - 1 : x) >> 6;
        case NV12: return __ldg(row(i > 0) + (i > 0 ? (x & ~1u) + i - 1 : x)) << 2;
        case UYVY:
        case V210: {
            // Cb Y Cr Y
            const u32 at = i == 0 ? x * 2 + 1 : (x & ~1u) * 2 + (i - 1) * 2;
            const u8* p = reinterpret_cast<const u8*>(s.frame + s.plane[0] + (u64)y * s.stride[0]);
            if (s.output == UYVY) return __ldg(p + at) << 2;
            return __ldg(reinterpret_cast<const u32*>(p) + at / 3) >> (at % 3 * 10) & 0x3ff;
        }
        default: return __ldg(reinterpret_cast<const u8*>(s.frame + s.plane[0] + (u64)y * s.stride[0]) + x * 4 + i);
    }
}

extern "C" __global__ void __launch_bounds__(128) scale(const __grid_constant__ Scale s) {
    const u64 pixel = blockIdx.x * (u64)(128 / s.lanes) + threadIdx.x / s.lanes;
    const u32 lane = threadIdx.x % s.lanes;
    const bool mine = pixel < (u64)s.columns * s.rows;
    u64 sum[3] = {0, 0, 0};
    if (mine) {
        const u32 left = (u32)(pixel % s.columns) * s.across, top = (u32)(pixel / s.columns) * s.down;
        for (u32 y = top; y < top + s.down; y++) {
            for (u32 x = left + lane; x < left + s.across; x += s.lanes) {
#pragma unroll
                for (u32 i = 0; i < 3; i++) sum[i] += sample(s, i, x, y);
            }
        }
    }
    for (u32 step = s.lanes / 2; step > 0; step /= 2) {
#pragma unroll
        for (u32 i = 0; i < 3; i++) sum[i] += __shfl_down_sync(~0u, sum[i], step, s.lanes);
    }
    if (!mine || lane > 0) return;
    u32 c[3];
    i32 d[3];
#pragma unroll
    for (u32 i = 0; i < 3; i++) {
        c[i] = (u32)((sum[i] + s.pixels / 2) / s.pixels);
        d[i] = (i32)c[i] - s.offset[i];
    }
    if (s.output != RGBA) {
#pragma unroll
        for (u32 i = 0; i < 3; i++) {
            c[i] = clip255((s.matrix[i][0] * d[0] + s.matrix[i][1] * d[1] + s.matrix[i][2] * d[2] + (1 << 14)) >> 15);
        }
    }
    reinterpret_cast<u32*>(s.to)[pixel] = c[0] | c[1] << 8 | c[2] << 16 | 0xff000000;
}

// What `count` wants to know; the same in src/kernel/cuda/scope.rs.
struct Count {
    Scale frame;      // what is read
    u64 waveform;     // 32-bit cells, all of them 0: trace, column, level
    u64 vectorscope;  // Cb, Cr; 0: none
    u32 width;
    u32 height;
    u32 columns;
    u32 traces;
    u32 component[3]; // that a trace shows
    u32 up;           // bits that samples lack of ten
};
static_assert(sizeof(Count) == 216, "Count");

// One more in a cell, for each thread that is `mine`: those of a warp that hit the same cell add at once, since most of
// a picture is like its neighbour. All threads of the warp come here.
__device__ __forceinline__ void add(u32* cells, u32 cell, bool mine) {
    const u32 same = __match_any_sync(~0u, mine ? cell : ~0u);
    if (mine && (threadIdx.x & 31) == __ffs(same) - 1) atomicAdd(cells + cell, (u32)__popc(same));
}

// A block a column of the waveform.
extern "C" __global__ void __launch_bounds__(256) count(const __grid_constant__ Count c) {
    __shared__ u32 levels[3][256];
    for (u32 i = 0; i < 3; i++) levels[i][threadIdx.x] = 0;
    __syncthreads();
    // The columns x of the picture for which x * columns / width is this one.
    const u32 left = (u32)(((u64)blockIdx.x * c.width + c.columns - 1) / c.columns);
    const u32 right = (u32)(((u64)(blockIdx.x + 1) * c.width + c.columns - 1) / c.columns);
    const u32 across = right - left;
    const u64 pixels = (u64)across * c.height;
    const auto level = [&](u32 i, u32 x, u32 y) { return sample(c.frame, i, x, y) << c.up >> 2 & 0xff; };
    for (u64 first = 0; first < pixels; first += 256) {
        const u64 pixel = first + threadIdx.x;
        const bool mine = pixel < pixels;
        const u32 x = mine ? left + (u32)(pixel % across) : left, y = mine ? (u32)(pixel / across) : 0;
        for (u32 trace = 0; trace < c.traces; trace++) add(levels[trace], level(c.component[trace], x, y), mine);
        if (c.vectorscope) add(reinterpret_cast<u32*>(c.vectorscope), level(1, x, y) << 8 | level(2, x, y), mine);
    }
    __syncthreads();
    for (u32 trace = 0; trace < c.traces; trace++) {
        reinterpret_cast<u32*>(c.waveform)[(trace * c.columns + blockIdx.x) * 256 + threadIdx.x] = levels[trace][threadIdx.x];
    }
}

// Where the strips of the test pattern lie and how their pixels do; the same in src/send/pattern/gpu.rs.
struct Numbers {
    u64 frame;
    u64 to;            // a u64: the number, or all ones
    u64 plane;         // first octet of the plane that carries luminance
    u32 stride;
    u32 kind;          // 0: octets, 1: words of 16 bits, 2: v210, 3: bits, most significant first
    u32 step;          // octets from column to column (kind 0); of bits, columns of a pgroup
    u32 first;         // the octet of a column (kind 0); of bits, the bit of the pgroup
    u32 group_bits;    // of bits: bits of a pgroup, and of a sample
    u32 bits;
    u32 group_rows;    // rows of the picture in a row of memory
    u32 columns;       // blocks side by side; 0: the raster is too small
    u32 block_width;
    u32 block_height;
    u32 first_rows[2]; // of the strip at the top and of the one at the bottom
    u32 fields;
    u32 scan;
};
static_assert(sizeof(Numbers) == 80, "Numbers");

__device__ u32 luminance(const Numbers& n, u32 x, u32 y) {
    const u8* row = reinterpret_cast<const u8*>(n.frame + n.plane + (u64)(y / n.group_rows) * n.stride);
    if (n.kind == 0) return row[x * n.step + n.first];
    if (n.kind == 1) return reinterpret_cast<const u16*>(row)[x];
    if (n.kind == 2) {
        const u32 sample = x * 2 + 1;
        return reinterpret_cast<const u32*>(row)[sample / 3] >> (sample % 3 * 10) & 0x3ff;
    }
    const u32 bit = x / n.step * n.group_bits + n.first;
    const u8* p = row + bit / 8;
    const u32 three = (u32)p[0] << 16 | (u32)p[1] << 8 | p[2];
    return three << (8 + bit % 8) >> (32 - n.bits);
}

// CRC-16/CCITT-FALSE over 48 bits.
__device__ u32 crc16(u64 body) {
    u32 crc = 0xffff;
    for (i32 bit = 47; bit >= 0; bit--) {
        const u32 top = crc >> 15 ^ (u32)(body >> bit & 1);
        crc = (crc << 1 ^ (top ? 0x1021 : 0)) & 0xffff;
    }
    return crc;
}

// Four strips of 64 blocks, a thread a block: top and bottom, both fields.
extern "C" __global__ void __launch_bounds__(256) read_number(const __grid_constant__ Numbers n) {
    __shared__ u32 levels[4][64];
    __shared__ u32 halves[8];
    const u32 place = threadIdx.x / 64, block = threadIdx.x % 64;
    const auto field = [&](u32 place) { return n.fields == 2 ? place & 1 : 0; };
    u64 found = ~0ull;
    if (n.columns > 0) {
        const u32 x = block % n.columns * n.block_width + n.block_width / 2;
        u32 y = n.first_rows[place / 2] + block / n.columns * n.block_height + n.block_height / 2;
        if (n.fields == 2) y = (y & ~1u) + field(place);
        const u32 level = luminance(n, x, y);
        levels[place][block] = level;
        __syncthreads();
        const u32 middle = (levels[place][0] + levels[place][1]) / 2;
        const u32 above = __ballot_sync(~0u, level > middle);
        if (threadIdx.x % 32 == 0) halves[threadIdx.x / 32] = __brev(above);
        __syncthreads();
        if (threadIdx.x == 0) {
            const u64 numbers = (1ull << 40) - 1;
            found = ((u64)halves[0] << 32 | halves[1]) >> 16 & numbers;
            bool same = true;
            for (u32 p = 0; p < 4; p++) {
                const u64 word = (u64)halves[2 * p] << 32 | halves[2 * p + 1];
                const u64 tag = n.scan << 2 | (p / 2) << 1 | field(p);
                const u64 body = 2ull << 46 | tag << 40 | found;
                same = same && word == (body << 16 | crc16(body));
            }
            if (!same) found = ~0ull;
        }
    }
    if (threadIdx.x == 0) *reinterpret_cast<u64*>(n.to) = found;
}

// R G B of R G B A, four pixels a thread: 16 octets in, 12 out. Rows of both have room for whole groups of four.
extern "C" __global__ void __launch_bounds__(128) drop_alpha(u64 from, u64 to, u32 stride, u32 pitch, u32 groups) {
    const u32 group = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (group >= groups) return;
    const uint4 p = __ldg(reinterpret_cast<const uint4*>(from + (u64)row * stride) + group);
    u32* out = reinterpret_cast<u32*>(to + (u64)row * pitch) + 3 * group;
    out[0] = (p.x & 0xffffff) | p.y << 24;
    out[1] = (p.y >> 8 & 0xffff) | p.z << 16;
    out[2] = (p.z >> 16 & 0xff) | p.w << 8;
}
