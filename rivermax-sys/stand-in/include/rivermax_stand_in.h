/* Controls of the stand-in, for tests. Switches belong to a device, which is named by its IP address: tests that use
 * different addresses (all of 127.0.0.0/8 will do) do not see each other's.
 *
 * For programs that are run as they are, in the environment:
 *   RIVERMAX_STAND_IN          switches of every device that has no others: manual, no-split, payload-first,
 *                              idle-polls=1, extra-stride=64, capacity-multiple=1024, after-detach=STATUS,
 *                              raw-offset=NS; with commas between
 *   RIVERMAX_STAND_IN_CAPTURE  a capture that every device receives once, in place of the network, at the capture's own
 *                              pace, from its first flow on
 *   RIVERMAX_STAND_IN_FAULTS   seed=7, lose=100, duplicate=100, reorder=50, reorder-by=8, delay=100, delay-ns=1000000:
 *                              what happens to the capture, each to one packet in so many
 *   RIVERMAX_STAND_IN_FAIL     CALL=STATUS,...: what calls answer, always (rmx_init=62)
 *   RIVERMAX_STAND_IN_CUDA     the CUDA driver's library, in place of libcuda.so.1; empty: none
 */
#ifndef RIVERMAX_STAND_IN_H
#define RIVERMAX_STAND_IN_H

#include "rivermax_api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rmx_stand_in_device {
    bool manual;               /* no sockets, no thread: only what rmx_stand_in_deliver and _step bring */
    bool no_split;             /* the NIC cannot split: the header block has length 0, packets lie whole in the other */
    bool payload_first;        /* the ring's payload is written before its header */
    size_t idle_polls;         /* so many polls in vain before each chunk */
    size_t extra_stride;       /* bytes between the largest entry and the next */
    size_t capacity_multiple;  /* capacity is rounded up to a multiple; 0: as asked */
    rmx_status after_detach;   /* of a poll when nothing is attached any more and all is read */
    int64_t raw_clock_offset;  /* raw time stamps are this many ns off UTC */
} rmx_stand_in_device;

/* Of streams that are created from now on; after_detach at once. */
RMX_EXPORT void rmx_stand_in_set_device(uint32_t ip, const rmx_stand_in_device *device);

/* The next `times` calls of this name answer `status` and do nothing else. ip 0: calls that belong to no device, or to any. A poll with
 * RMX_CHECKSUM_ISSUE delivers its data, and is only counted when it has some. */
RMX_EXPORT void rmx_stand_in_fail(uint32_t ip, const char *call, rmx_status status, size_t times);

/* Addresses in the byte order of the network, ports in that of the host, UTC in ns (0: now). */
typedef struct rmx_stand_in_packet {
    uint32_t source, destination;
    uint16_t source_port, destination_port;
    uint64_t time;
    const uint8_t *data;
    size_t length;
} rmx_stand_in_packet;

/* Each to one packet in so many (0: to none), as the seed says. */
typedef struct rmx_stand_in_faults {
    uint64_t seed;
    uint32_t lose, duplicate, reorder, reorder_by, delay;
    uint64_t delay_ns;
} rmx_stand_in_faults;

/* The packets arrive at the device, all of them before the call returns. Says how many slots were written. */
RMX_EXPORT size_t rmx_stand_in_deliver(uint32_t ip, const rmx_stand_in_packet *packets, size_t count);

/* Puts packets, with their faults, in the device's queue; copies them. The capture: pcap, Ethernet, IPv4, UDP. Says how
 * many packets the queue has now, or -1 when the capture cannot be read. */
RMX_EXPORT int64_t rmx_stand_in_queue(uint32_t ip, const rmx_stand_in_packet *packets, size_t count,
                                      const rmx_stand_in_faults *faults);
RMX_EXPORT int64_t rmx_stand_in_queue_capture(uint32_t ip, const char *path, const rmx_stand_in_faults *faults);

/* The next packets of the queue arrive. Says how many did: fewer at its end. */
RMX_EXPORT size_t rmx_stand_in_step(uint32_t ip, size_t count);

/* A thread lets the queue arrive from now on, spaced as its time stamps are. */
RMX_EXPORT rmx_status rmx_stand_in_play(uint32_t ip);

typedef struct rmx_stand_in_counts {
    uint64_t written;    /* slots, duplicates included */
    uint64_t too_long;   /* packets that no entry holds: dropped in silence */
    uint64_t no_header;  /* packets too short for a sequence number, with placement: dropped in silence */
    uint64_t lapped;     /* slots written again before their completion was taken */
    uint64_t forgotten;  /* completions of lapped slots that were dropped in silence */
    uint64_t taken;      /* packets in chunks */
} rmx_stand_in_counts;

RMX_EXPORT rmx_status rmx_stand_in_count(rmx_stream_id id, rmx_stand_in_counts *counts);

/* Registered regions now, and what was done in a wrong order so far: memory deregistered twice or under a stream,
 * cleaned up with streams or memory left, parameters moved. */
RMX_EXPORT size_t rmx_stand_in_registered(void);
RMX_EXPORT size_t rmx_stand_in_misuse(void);

#ifdef __cplusplus
}
#endif

#endif
