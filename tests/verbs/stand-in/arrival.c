/* A frame on its way from the port into memory. */
#include "internal.h"

#include <arpa/inet.h>

/* For each bit of the input that is set, the 32 bits of the key from there on. */
static uint32_t toeplitz(const uint8_t *key, const uint8_t *input, size_t length)
{
    uint32_t hash = 0, window = (uint32_t)key[0] << 24 | (uint32_t)key[1] << 16 | (uint32_t)key[2] << 8 | key[3];
    for (size_t i = 0; i < length; i++)
        for (int bit = 7; bit >= 0; bit--) {
            if (input[i] >> bit & 1) hash ^= window;
            window = window << 1 | (key[i + 4] >> bit & 1);
        }
    return hash;
}

static struct queue *spread(const struct qp *qp, const struct headers *h)
{
    uint8_t input[12];
    size_t n = 0;
    const struct {
        uint64_t field;
        const void *at;
        size_t size;
    } fields[] = {
        {IBV_RX_HASH_SRC_IPV4, &h->src_ip, 4},
        {IBV_RX_HASH_DST_IPV4, &h->dst_ip, 4},
        {IBV_RX_HASH_SRC_PORT_UDP, &h->src_port, 2},
        {IBV_RX_HASH_DST_PORT_UDP, &h->dst_port, 2},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!(qp->hash_fields & fields[i].field)) continue;
        memcpy(input + n, fields[i].at, fields[i].size);
        n += fields[i].size;
    }
    size_t at = n ? toeplitz(qp->hash_key, input, n) % qp->table->count : 0;
    return &qp->table->wqs[at]->queue;
}

struct arrival {
    const uint8_t *frame;
    size_t length;
    const struct headers *headers;
    uint64_t wall;
    bool checksums_done;
};

/* Copies the frame over the entry's segments; false: one of them may not be written. */
static bool scatter(const struct queue *q, size_t at, const uint8_t *data, size_t length)
{
    const struct ibv_sge *segments = &q->segments[at * q->max_segments];
    for (int i = 0; length && i < q->ring[at].segments; i++) {
        const struct ibv_sge *s = &segments[i];
        size_t n = s->length < length ? s->length : length;
        if (!n) continue;
        struct mr *mr = memory_of(q, s, n);
        if (!mr || !write_memory(mr, s->addr, data, n)) return false;
        data += n;
        length -= n;
    }
    return true;
}

static size_t room_of(const struct queue *q, size_t at)
{
    size_t room = 0;
    for (int i = 0; i < q->ring[at].segments; i++) room += q->segments[at * q->max_segments + (size_t)i].length;
    return room;
}

static void too_long(struct queue *q, const struct completion *completion)
{
    uint32_t flags = q->context->card->is.flags;
    q->context->card->counts.too_long++;
    if (flags & STAND_IN_TOO_LONG_DROPS) return;
    q->used++;
    complete(q->cq, completion);
    if (flags & STAND_IN_TOO_LONG_KEEPS) return;
    fail_queue(q);
    tell_queue(q);
}

/* Without the tag, where the queue wants that. */
static const uint8_t *strip(const struct arrival *a, uint8_t *room, size_t *length)
{
    memcpy(room, a->frame, 12);
    memcpy(room + 12, a->frame + 12 + VLAN_TAG, a->length - 12 - VLAN_TAG);
    *length = a->length - VLAN_TAG;
    return room;
}

/* Whether it was written. */
static bool take_in(struct queue *q, const struct arrival *a, uint32_t tag)
{
    static uint8_t without_tag[LARGEST_FRAME]; /* under the lock */
    struct card *card = q->context->card;
    stand_in_counts *counts = &card->counts;
    if (!q->ready || q->cq->failed) return counts->not_ready++, false;
    if (q->used == q->posted) return counts->out_of_buffer++, false;
    size_t at = q->used % q->size, length = a->length;
    const uint8_t *data = a->frame;
    struct completion c = {.wr_id = q->ring[at].wr_id, .queue = q, .wall = a->wall, .flow_tag = tag};
    c.raw = raw_ticks(card, a->wall);
    if (q->strip_vlan && a->headers->has_vlan) {
        data = strip(a, without_tag, &length);
        c.vlan = ntohs(a->headers->vlan_tag);
    }
    if (length > room_of(q, at)) {
        c.status = IBV_WC_LOC_LEN_ERR;
        too_long(q, &c);
        return false;
    }
    q->used++;
    if (!scatter(q, at, data, length)) {
        counts->protection++;
        c.status = IBV_WC_LOC_PROT_ERR;
        complete(q->cq, &c);
        fail_queue(q);
        tell_queue(q);
        return false;
    }
    bool sums = !(card->is.flags & STAND_IN_NO_CSUM) && a->headers->is_udp;
    if (sums && (a->checksums_done || checksums_hold(a->frame, a->length, a->headers))) c.flags = IBV_WC_IP_CSUM_OK;
    c.octets = (uint32_t)length;
    counts->delivered++;
    counts->octets += length;
    complete(q->cq, &c);
    return true;
}

/* The same rule twice for one QP is one rule to the card. */
static bool seen(const struct rule *first, const struct rule *rule)
{
    for (const struct rule *r = first; r && r != rule; r = r->next)
        if (r->qp == rule->qp && same_match(r, rule)) return true;
    return false;
}

int arrive(struct card *card, const uint8_t *frame, size_t length, uint64_t stamp_ns, bool checksums_done)
{
    struct headers headers;
    stand_in_counts *counts = &card->counts;
    counts->arrived++;
    if (card->pulled || !card->up) return counts->lost_down++, 0;
    if (length < ETHERNET_HEAD) return counts->malformed++, 0;
    read_headers(frame, length, &headers);
    if (length > LARGEST_FRAME || length > card->mtu + ETHERNET_HEAD + VLAN_TAG) return counts->oversize++, 0;
    const struct arrival arrival = {frame, length, &headers, stamp_ns, checksums_done};
    bool any_mac = card->any_mac || card->is.flags & STAND_IN_ANY_MAC, taken = false;
    int written = 0;
    const struct rule *first = NULL;
    for (const struct rule *r = card->rules; r; r = r->next) {
        if (first ? !same_match(first, r) : !matches(r, &headers, any_mac)) continue;
        if (seen(card->rules, r)) continue;
        if (!r->dont_trap) first = r;
        taken = true;
        if (r->drop) continue;
        written += take_in(r->qp->table ? spread(r->qp, &headers) : &r->qp->queue, &arrival, r->tag);
    }
    counts->kernel += !taken;
    return written;
}
