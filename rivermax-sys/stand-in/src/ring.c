/* Packets to slots. */
#include "internal.h"

#include <stdatomic.h>

enum { RTP = 12, EXTENDED = 14 }; /* octets up to the payload, and with the extended sequence number */

static bool option(const struct stream *s, rmx_input_option o) { return s->options >> o & 1; }

/* ST 2110-20:2017 6.1.1 and 6.1.2: the RTP sequence number has the low 16 bits, the first two octets of the payload header the high. */
static bool slot_of(const struct stream *s, const uint8_t *data, size_t length, uint32_t *slot)
{
    if (option(s, RMX_INPUT_STREAM_RTP_SEQN_PLACEMENT_ORDER)) {
        if (length < RTP) return false;
        *slot = (uint32_t)((data[2] << 8 | data[3]) % s->capacity);
    } else if (option(s, RMX_INPUT_STREAM_RTP_EXT_SEQN_PLACEMENT_ORDER)) {
        size_t at = RTP + 4u * (length ? data[0] & 15u : 0); /* behind contributing sources */
        if (length < at + EXTENDED - RTP) return false;
        uint32_t sequence = (uint32_t)data[at] << 24 | (uint32_t)data[at + 1] << 16 | (uint32_t)data[2] << 8 | data[3];
        *slot = (uint32_t)(sequence % s->capacity);
    } else {
        *slot = (uint32_t)(s->next % s->capacity);
    }
    return true;
}

static void write_piece(struct stream *s, struct block *b, uint32_t slot, const uint8_t *data, size_t length)
{
    if (!length) return;
    uint8_t *to = b->addr + slot * b->stride;
    if (!b->cuda) memcpy(to, data, length);
    else if (!cuda_write(b->cuda, to, data, length)) s->copies_failed = true;
}

bool write_packet(struct stream *s, const uint8_t *data, size_t length, uint32_t tag, uint64_t time)
{
    size_t head = s->sub_blocks == 2 && s->block[0].length ? s->block[0].max : 0;
    if (head > length) head = length;
    size_t body = s->sub_blocks - 1; /* the block of what follows the header */
    uint32_t slot;
    if (length - head > s->block[body].max) {
        s->counts.too_long++;
        return false;
    }
    if (!slot_of(s, data, length, &slot)) {
        s->counts.no_header++;
        return false;
    }
    s->next++;

    /* A reader that looks at the header twice, before and after the payload, is to see the change. */
    bool payload_first = s->switches.payload_first;
    if (payload_first) write_piece(s, &s->block[body], slot, data + head, length - head);
    if (body) {
        atomic_thread_fence(memory_order_release);
        write_piece(s, &s->block[0], slot, data, head);
        atomic_thread_fence(memory_order_release);
    }
    if (!payload_first) write_piece(s, &s->block[body], slot, data + head, length - head);

    if (s->written - s->taken >= s->capacity) s->counts.lapped++;
    if (s->written - s->taken == 2 * s->capacity) {
        s->taken++;
        s->counts.forgotten++;
    }
    struct record *r = &s->records[s->written++ % (2 * s->capacity)];
    *r = (struct record){.time = time, .arrived = now_ns(CLOCK_MONOTONIC), .slot = slot, .tag = tag};
    r->size[0] = (uint32_t)(body ? head : length);
    if (body) r->size[1] = (uint32_t)(length - head);
    s->counts.written++;
    return true;
}

void show_written(struct stream *s)
{
    for (size_t i = 0; i < s->sub_blocks; i++)
        if (s->block[i].cuda && !cuda_finish(s->block[i].cuda)) s->copies_failed = true;
    /* What did not get there is not shown: the next poll is an error. */
    if (s->copies_failed) s->written = s->shown > s->taken ? s->shown : s->taken;
    bool more = s->shown != s->written || s->copies_failed;
    s->shown = s->written;
    if (more) tell(s);
}
