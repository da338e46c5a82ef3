/* pcap files: Ethernet, with or without VLAN tags, IPv4, UDP. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>

enum { ETHERNET = 1, LARGEST = 1 << 18 };

static uint16_t be16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
static uint32_t swapped(uint32_t n, bool swap) { return swap ? __builtin_bswap32(n) : n; }

/* Fills the packet's addresses and data; false: not a whole UDP packet. */
static bool dissect(const uint8_t *frame, size_t length, rmx_stand_in_packet *packet)
{
    size_t at = 12;
    while (length >= at + 4 && (be16(frame + at) == 0x8100 || be16(frame + at) == 0x88a8)) at += 4;
    if (length < at + 2 + 20 || be16(frame + at) != 0x0800) return false;
    const uint8_t *ip = frame + at + 2;
    size_t rest = length - at - 2, head = 4u * (ip[0] & 15u);
    bool fragment = (be16(ip + 6) & 0x3fff) != 0;
    if (ip[0] >> 4 != 4 || head < 20 || rest < head + 8 || ip[9] != IPPROTO_UDP || fragment) return false;
    const uint8_t *udp = ip + head;
    size_t datagram = be16(udp + 4);
    if (datagram < 8 || rest < head + datagram) return false;
    memcpy(&packet->source, ip + 12, 4);
    memcpy(&packet->destination, ip + 16, 4);
    packet->source_port = be16(udp);
    packet->destination_port = be16(udp + 2);
    packet->data = udp + 8;
    packet->length = datagram - 8;
    return true;
}

static bool read_packets(FILE *file, bool swap, bool nano, uint8_t *frame, void (*with)(void *, const rmx_stand_in_packet *),
                         void *context)
{
    uint32_t head[4]; /* seconds, fraction, length in the file, length on the wire */
    while (fread(head, sizeof head, 1, file) == 1) {
        uint32_t length = swapped(head[2], swap);
        if (length > LARGEST || fread(frame, 1, length, file) != length) return false;
        rmx_stand_in_packet packet = {0};
        packet.time = swapped(head[0], swap) * UINT64_C(1000000000) + swapped(head[1], swap) * UINT64_C(1) * (nano ? 1 : 1000);
        if (dissect(frame, length, &packet)) with(context, &packet);
    }
    return true;
}

bool read_capture(const char *path, void (*with)(void *context, const rmx_stand_in_packet *packet), void *context)
{
    FILE *file = fopen(path, "rb");
    if (!file) return false;
    uint32_t head[6]; /* magic, version, zone, accuracy, longest, link type */
    bool good = fread(head, sizeof head, 1, file) == 1;
    bool swap = head[0] == 0xd4c3b2a1u || head[0] == 0x4d3cb2a1u;
    uint32_t magic = swapped(head[0], swap);
    uint8_t *frame = malloc(LARGEST);
    good = good && frame && (magic == 0xa1b2c3d4u || magic == 0xa1b23c4du) && swapped(head[5], swap) == ETHERNET
           && read_packets(file, swap, magic == 0xa1b23c4du, frame, with, context);
    free(frame);
    fclose(file);
    return good;
}
