/* Where frames come from while a device is open: a packet socket on the card's interface, and the environment's capture. */
#include "internal.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 32, ROOM = LARGEST_FRAME + 64, CONTROL = 256, BUFFER = 64 << 20, NAP_MS = 10, GSO_UDP_L4 = 5 };

struct batch {
    struct mmsghdr messages[BATCH];
    struct iovec pieces[BATCH];
    struct sockaddr_ll from[BATCH];
    _Alignas(struct cmsghdr) uint8_t control[BATCH][CONTROL];
    uint8_t frames[BATCH][ROOM]; /* with the kernel's header, and room for a VLAN tag */
};

/* --- the packet socket --- */

static int set_up(struct card *card, int fd)
{
    const int yes = 1, buffer = BUFFER;
    struct ifreq interface;
    memset(&interface, 0, sizeof interface);
    memcpy(interface.ifr_name, card->interface, sizeof interface.ifr_name - 1); /* a longer name is nobody's */
    int index = (int)if_nametoindex(card->interface);
    if (!index) return ENODEV;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer))
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    if (setsockopt(fd, SOL_PACKET, PACKET_AUXDATA, &yes, sizeof yes)) return errno;
    if (setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &yes, sizeof yes)) return errno;
    if (setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &yes, sizeof yes)) return errno;
    struct packet_mreq all = {.mr_ifindex = index, .mr_type = PACKET_MR_PROMISC};
    if (setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all)) return errno;
    if (!ioctl(fd, SIOCGIFFLAGS, &interface)) card->any_mac = interface.ifr_flags & IFF_LOOPBACK;
    if (!card->is.mtu && !ioctl(fd, SIOCGIFMTU, &interface)) card->mtu = (size_t)interface.ifr_mtu;
    struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = index};
    return bind(fd, (struct sockaddr *)&to, sizeof to) ? errno : 0;
}

struct details {
    uint64_t ns;
    bool has_tag;
    uint16_t tag, tag_type;
};

static struct details read_control(struct msghdr *message)
{
    struct details d = {0, false, 0, 0};
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMPNS) {
            struct timespec t;
            memcpy(&t, CMSG_DATA(c), sizeof t);
            d.ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
        } else if (c->cmsg_level == SOL_PACKET && c->cmsg_type == PACKET_AUXDATA) {
            struct tpacket_auxdata aux;
            memcpy(&aux, CMSG_DATA(c), sizeof aux);
            d.has_tag = aux.tp_status & TP_STATUS_VLAN_VALID;
            d.tag = aux.tp_vlan_tci;
            d.tag_type = aux.tp_status & TP_STATUS_VLAN_TPID_VALID ? aux.tp_vlan_tpid : ETH_P_8021Q;
        }
    }
    return d;
}

static bool one_segment(void *context, const uint8_t *frame, size_t length, uint64_t ns)
{
    arrive(context, frame, length, ns, true);
    return true;
}

/* As it was on the wire: with its tag, its checksum, and cut where the kernel has left that to the card. Under the lock. */
static void one_message(struct card *card, struct mmsghdr *message, uint8_t *data)
{
    struct virtio_net_hdr head;
    size_t length = message->msg_len;
    if (length < sizeof head) return;
    struct details d = read_control(&message->msg_hdr);
    memcpy(&head, data, sizeof head);
    uint8_t *frame = data + sizeof head;
    length -= sizeof head;
    bool partial = head.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM;
    size_t start = head.csum_start;
    if (d.has_tag && length >= 12) {
        memmove(frame + 12 + VLAN_TAG, frame + 12, length - 12);
        const uint8_t tag[VLAN_TAG] = {(uint8_t)(d.tag_type >> 8), (uint8_t)d.tag_type, (uint8_t)(d.tag >> 8), (uint8_t)d.tag};
        memcpy(frame + 12, tag, sizeof tag);
        length += VLAN_TAG;
        start += VLAN_TAG;
    }
    uint64_t ns = d.ns ? d.ns + (uint64_t)card->is.wall_ahead_ns : wall_now(card);
    if ((head.gso_type & ~VIRTIO_NET_HDR_GSO_ECN) == GSO_UDP_L4) {
        cut_segments(frame, length, head.gso_size, one_segment, card, ns);
        return;
    }
    if (partial) finish_checksum(frame, length, start, head.csum_offset);
    arrive(card, frame, length, ns, partial);
}

static void count_lost(struct card *card)
{
    struct tpacket_stats stats;
    socklen_t size = sizeof stats;
    if (!getsockopt(card->socket, SOL_PACKET, PACKET_STATISTICS, &stats, &size)) card->counts.source_lost += stats.tp_drops;
}

static void receive(struct card *card, struct batch *b)
{
    for (int i = 0; i < BATCH; i++) {
        b->pieces[i] = (struct iovec){b->frames[i], ROOM - VLAN_TAG};
        b->messages[i].msg_hdr = (struct msghdr){.msg_name = &b->from[i],
                                                 .msg_namelen = sizeof b->from[i],
                                                 .msg_iov = &b->pieces[i],
                                                 .msg_iovlen = 1,
                                                 .msg_control = b->control[i],
                                                 .msg_controllen = CONTROL};
    }
    int got = recvmmsg(card->socket, b->messages, BATCH, MSG_DONTWAIT, NULL);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < got; i++)
        if (b->from[i].sll_pkttype != PACKET_OUTGOING) one_message(card, &b->messages[i], b->frames[i]);
    /* What the kernel cannot describe (it knows no cut UDP before 6.2) is lost, too. */
    if (got < 0 && errno == EINVAL) card->counts.source_lost++;
    count_lost(card);
    write_counter(card);
    pthread_mutex_unlock(&lock);
}

/* --- the capture --- */

struct playing {
    struct card *card;
    uint64_t first, begun; /* by the capture, and monotonic */
    bool started;
};

static uint64_t monotonic(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool stopped(const struct card *card, int ms)
{
    struct pollfd stop = {.fd = card->stop, .events = POLLIN};
    return poll(&stop, 1, ms) > 0;
}

static bool play_one(void *context, const uint8_t *frame, size_t length, uint64_t ns)
{
    struct playing *p = context;
    if (!p->started) *p = (struct playing){p->card, ns, monotonic(), true};
    uint64_t due = p->begun + (ns > p->first ? ns - p->first : 0);
    for (uint64_t now; (now = monotonic()) < due;) {
        uint64_t left = (due - now) / 1000000;
        if (stopped(p->card, left < NAP_MS ? (int)left : NAP_MS)) return false;
    }
    pthread_mutex_lock(&lock);
    arrive(p->card, frame, length, wall_now(p->card), false);
    write_counter(p->card);
    pthread_mutex_unlock(&lock);
    return !stopped(p->card, 0);
}

static bool may_play(struct card *card)
{
    pthread_mutex_lock(&lock);
    bool now = *card->capture && !card->played && card->rules;
    card->played |= now;
    pthread_mutex_unlock(&lock);
    return now;
}

static void *run(void *context)
{
    struct card *card = context;
    struct batch *batch = card->socket >= 0 ? calloc(1, sizeof *batch) : NULL;
    struct pollfd fds[2] = {{.fd = card->stop, .events = POLLIN}, {.fd = batch ? card->socket : -1, .events = POLLIN}};
    bool has_capture = *card->capture;
    for (;;) {
        if (poll(fds, 2, has_capture && !card->played ? NAP_MS : -1) < 0 && errno != EINTR) break;
        if (fds[0].revents) break;
        if (fds[1].revents) receive(card, batch);
        if (has_capture && may_play(card)) {
            struct playing playing = {.card = card};
            if (read_capture(card->capture, play_one, &playing) < 0)
                fprintf(stderr, "verbs stand-in: %s cannot be read\n", card->capture);
        }
    }
    free(batch);
    return NULL;
}

int start_source(struct card *card)
{
    if (!*card->interface && !*card->capture) return 0;
    int error = 0;
    if (*card->interface) {
        card->socket = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
        error = card->socket < 0 ? errno : set_up(card, card->socket);
    }
    card->stop = error ? -1 : eventfd(0, EFD_CLOEXEC);
    if (!error && card->stop < 0) error = errno;
    if (!error) error = pthread_create(&card->thread, NULL, run, card);
    card->has_thread = !error;
    if (error) {
        if (card->socket >= 0) close(card->socket);
        if (card->stop >= 0) close(card->stop);
        card->socket = card->stop = -1;
    }
    return error;
}

void stop_source(struct card *card)
{
    const uint64_t one = 1;
    if (!card->has_thread) return;
    if (write(card->stop, &one, sizeof one) != sizeof one) return;
    pthread_join(card->thread, NULL);
    if (card->socket >= 0) close(card->socket);
    close(card->stop);
    card->socket = card->stop = -1;
    card->has_thread = false;
}
