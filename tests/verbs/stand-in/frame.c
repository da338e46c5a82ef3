/* Frames: headers, checksums, captures. */
#include "internal.h"

#include <arpa/inet.h>
#include <stdlib.h>

enum { IPV4 = 0x0800, CVLAN = 0x8100, SVLAN = 0x88a8, IP_HEAD = 20, UDP_HEAD = 8, UDP = 17, TCP = 6 };

static uint16_t be16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }

static void put_be16(uint8_t *p, size_t n)
{
    p[0] = (uint8_t)(n >> 8);
    p[1] = (uint8_t)n;
}

void read_headers(const uint8_t *frame, size_t length, struct headers *h)
{
    memset(h, 0, sizeof *h);
    if (length < ETHERNET_HEAD) return;
    memcpy(h->dst_mac, frame, 6);
    memcpy(h->src_mac, frame + 6, 6);
    size_t at = 12;
    while (length >= at + VLAN_TAG + 2 && (be16(frame + at) == CVLAN || be16(frame + at) == SVLAN)) {
        if (!h->has_vlan) memcpy(&h->vlan_tag, frame + at + 2, 2);
        h->has_vlan = true;
        at += VLAN_TAG;
    }
    memcpy(&h->ether_type, frame + at, 2);
    at += 2;
    if (ntohs(h->ether_type) != IPV4 || length < at + IP_HEAD || frame[at] >> 4 != 4) return;
    const uint8_t *ip = frame + at;
    size_t head = 4u * (ip[0] & 15u), total = be16(ip + 2);
    if (head < IP_HEAD || total < head || length < at + head) return;
    h->is_ipv4 = true;
    h->ip_at = at;
    memcpy(&h->src_ip, ip + 12, 4);
    memcpy(&h->dst_ip, ip + 16, 4);
    h->tos = ip[1];
    h->ttl = ip[8];
    h->proto = ip[9];
    /* The ports of fragments are not looked at. */
    if (be16(ip + 6) & 0x3fff || total < head + UDP_HEAD || length < at + head + UDP_HEAD) return;
    h->is_udp = h->proto == UDP;
    h->is_tcp = h->proto == TCP;
    if (!h->is_udp && !h->is_tcp) return;
    h->udp_at = at + head;
    memcpy(&h->src_port, ip + head, 2);
    memcpy(&h->dst_port, ip + head + 2, 2);
}

static uint32_t sum(const uint8_t *data, size_t length, uint32_t so_far)
{
    for (; length > 1; data += 2, length -= 2) so_far += be16(data);
    if (length) so_far += (uint32_t)data[0] << 8;
    while (so_far >> 16) so_far = (so_far & 0xffff) + (so_far >> 16);
    return so_far;
}

static uint32_t pseudo_sum(const uint8_t *ip, size_t length) { return sum(ip + 12, 8, (uint32_t)(ip[9] + length)); }

bool checksums_hold(const uint8_t *frame, size_t length, const struct headers *h)
{
    const uint8_t *ip = frame + h->ip_at, *udp = frame + h->udp_at;
    if (!h->is_ipv4 || !h->is_udp || sum(ip, h->udp_at - h->ip_at, 0) != 0xffff) return false;
    size_t datagram = be16(udp + 4), room = be16(ip + 2) - (h->udp_at - h->ip_at);
    if (datagram < UDP_HEAD || datagram > room || datagram > length - h->udp_at) return false;
    return !be16(udp + 6) || sum(udp, datagram, pseudo_sum(ip, datagram)) == 0xffff;
}

/* What the kernel leaves to the card: from `start` on, with the sum of the pseudo header in its place. */
void finish_checksum(uint8_t *frame, size_t length, size_t start, size_t offset)
{
    if (start > length || offset + 2 > length - start) return;
    uint32_t all = sum(frame + start, length - start, 0);
    put_be16(frame + start + offset, all == 0xffff ? 0xffff : ~all & 0xffff);
}

void cut_segments(const uint8_t *frame, size_t length, size_t payload, each_frame *with, void *context, uint64_t ns)
{
    struct headers h;
    uint8_t *segment = malloc(length);
    read_headers(frame, length, &h);
    size_t head = h.udp_at + UDP_HEAD;
    if (!segment || !h.is_udp || !payload) {
        free(segment);
        return;
    }
    uint16_t id = be16(frame + h.ip_at + 4);
    for (size_t at = head; at < length; at += payload, id++) {
        size_t n = length - at < payload ? length - at : payload;
        memcpy(segment, frame, head);
        memcpy(segment + head, frame + at, n);
        uint8_t *ip = segment + h.ip_at, *udp = segment + h.udp_at;
        put_be16(ip + 2, head - h.ip_at + n);
        put_be16(ip + 4, id);
        put_be16(ip + 10, 0);
        put_be16(ip + 10, ~sum(ip, h.udp_at - h.ip_at, 0) & 0xffff);
        put_be16(udp + 4, UDP_HEAD + n);
        put_be16(udp + 6, pseudo_sum(ip, UDP_HEAD + n));
        finish_checksum(segment, head + n, h.udp_at, 6);
        if (!with(context, segment, head + n, ns)) break;
    }
    free(segment);
}

/* --- captures: pcap, Ethernet --- */

static uint32_t swapped(uint32_t n, bool swap) { return swap ? __builtin_bswap32(n) : n; }

static int64_t read_frames(FILE *file, bool swap, bool nano, uint8_t *frame, each_frame *with, void *context)
{
    enum { ROOM = 1 << 18 };
    uint32_t head[4]; /* seconds, fraction, length in the file, length on the wire */
    int64_t count = 0;
    while (fread(head, sizeof head, 1, file) == 1) {
        size_t length = swapped(head[2], swap);
        if (length > ROOM || fread(frame, 1, length, file) != length) return -1;
        uint64_t fraction = swapped(head[1], swap);
        count++;
        if (!with(context, frame, length, swapped(head[0], swap) * UINT64_C(1000000000) + fraction * (nano ? 1 : 1000))) break;
    }
    return count;
}

int64_t read_capture(const char *path, each_frame *with, void *context)
{
    enum { ROOM = 1 << 18, ETHERNET = 1 };
    uint32_t head[6]; /* magic, version, zone, accuracy, longest, link type */
    FILE *file = fopen(path, "rbe");
    if (!file) return -1;
    uint8_t *frame = malloc(ROOM);
    int64_t count = -1;
    if (frame && fread(head, sizeof head, 1, file) == 1) {
        bool swap = head[0] == 0xd4c3b2a1u || head[0] == 0x4d3cb2a1u;
        uint32_t magic = swapped(head[0], swap);
        bool good = (magic == 0xa1b2c3d4u || magic == 0xa1b23c4du) && swapped(head[5], swap) == ETHERNET;
        if (good) count = read_frames(file, swap, magic == 0xa1b23c4du, frame, with, context);
    }
    free(frame);
    fclose(file);
    return count;
}
