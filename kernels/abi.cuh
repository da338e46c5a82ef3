// What the host hands to a kernel. The same in src/kernel/cuda/abi.rs; both sides assert sizes and offsets.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;

// Octets of one packet that belong at an octet of a frame.
struct __align__(16) Piece {
    u32 src;    // octet of the head plane where the piece begins (first > 0)
    u32 dst;    // octet of the wire-format frame: a pgroup boundary; the piece stays inside of one wire row
    u32 rest;   // octet of the body plane where the octets behind `first` lie (first < len)
    u16 len;    // octets, a multiple of the pgroup
    u16 first;  // how many of them lie in the head plane
};
static_assert(sizeof(Piece) == 16, "Piece");

// Pieces begin .. end belong to this ring and this frame. With a pitch they are a run: the first one is given here, the
// others follow it that many octets apart in their plane (a run lies in one), and one behind the other in the frame.
struct Segment {
    u64 head;         // device addresses
    u64 body;
    u64 frame;
    u32 begin;
    u32 end;
    Piece piece;      // the first of a run
    u32 head_octets;  // sizes of the planes, for checked builds
    u32 body_octets;
    u32 pitch;        // 0: pieces are in memory, each by itself
    u32 nothing;
};
static_assert(sizeof(Segment) == 64, "Segment");

#define SEGMENTS 16

// The frame, as the kernel needs it. Three components in the order of the wire: `0` is luma (the second of three where
// nothing is subsampled: Y, G, Y of XYZ; or the key), `1` the colour that comes first, `2` the one that comes last.
struct Geometry {
    u64 plane[3];       // first octet of a component's plane in the frame; one or two where outputs have fewer; rgb16f: R, G, B
    u64 table[3];       // device address of 65536 ten-bit codes for every half float, per component; 0 where samples are integers
    u64 size;           // octets of a frame's memory
    u32 stride[3];      // octets from row to row
    u32 row_octets;     // of the wire
    u32 row_magic;      // n / row_octets == umulhi(2n, row_magic) >> row_shift for n < 2^31
    u32 row_shift;
    u32 rows;           // of the wire
    u32 height;
    u32 frame_octets;   // of the wire
    u32 interlaced;
    i32 offset[3];      // law of rgba: taken from each component
    i32 matrix[3][3];   // rows R, G, B; in units of 2^-15
};
static_assert(sizeof(Geometry) == 144, "Geometry");

struct __align__(16) Launch {
    u64 pieces;    // device address of those that are in no run
    u64 faults;    // device address of a u32: what a checked build refused
    u32 count;     // pieces
    u32 segments;  // of them, 1 .. SEGMENTS
    Geometry geometry;
    u64 nothing;
    Segment segment[SEGMENTS];
};
static_assert(sizeof(Launch) == 176 + 64 * SEGMENTS, "Launch");
