/* Frames from a pair of virtual interfaces, in a network namespace of a thread's own: with and without tags, to groups that nobody
 * has joined. Needs root. */
#include "check.h"

#include <arpa/inet.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct request {
    struct nlmsghdr head;
    struct ifinfomsg link;
    uint8_t attributes[512];
};

static struct rtattr *add(struct request *r, unsigned short type, const void *data, size_t length)
{
    struct rtattr *attribute = (struct rtattr *)(void *)((uint8_t *)r + NLMSG_ALIGN(r->head.nlmsg_len));
    attribute->rta_type = type;
    attribute->rta_len = (unsigned short)RTA_LENGTH(length);
    if (length) memcpy(RTA_DATA(attribute), data, length);
    r->head.nlmsg_len = NLMSG_ALIGN(r->head.nlmsg_len) + RTA_ALIGN(attribute->rta_len);
    return attribute;
}

static void end(const struct request *r, struct rtattr *attribute)
{
    attribute->rta_len = (unsigned short)((const uint8_t *)r + r->head.nlmsg_len - (uint8_t *)attribute);
}

static void add_pair(void)
{
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
    } answer;
    struct request r = {.head = {.nlmsg_len = NLMSG_LENGTH(sizeof r.link), .nlmsg_type = RTM_NEWLINK,
                                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL}};
    const struct ifinfomsg peer = {0};
    add(&r, IFLA_IFNAME, "tx0", 4);
    struct rtattr *info = add(&r, IFLA_LINKINFO, NULL, 0);
    add(&r, IFLA_INFO_KIND, "veth", 5);
    struct rtattr *data = add(&r, IFLA_INFO_DATA, NULL, 0), *other = add(&r, VETH_INFO_PEER, &peer, sizeof peer);
    add(&r, IFLA_IFNAME, "rx0", 4);
    end(&r, other);
    end(&r, data);
    end(&r, info);
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    IS(send(fd, &r, r.head.nlmsg_len, 0), r.head.nlmsg_len);
    CHECK(recv(fd, &answer, sizeof answer, 0) >= (ssize_t)sizeof answer.head + 4);
    IS(answer.error.error, 0);
    for (int i = 0; i < 2; i++) {
        struct ifreq up = {.ifr_flags = IFF_UP};
        memcpy(up.ifr_name, i ? "tx0" : "rx0", 4);
        int udp = socket(AF_INET, SOCK_DGRAM, 0);
        IS(ioctl(udp, SIOCSIFFLAGS, &up), 0);
        close(udp);
    }
    close(fd);
}

static void send_frame(int fd, const uint8_t *frame, size_t length)
{
    struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex("tx0")};
    for (int ms = 0; ms < 5000; ms++) {
        if (sendto(fd, frame, length, 0, (struct sockaddr *)&to, sizeof to) == (ssize_t)length) return;
        CHECK(errno == ENOBUFS || errno == ENETDOWN);
        poll(NULL, 0, 1);
    }
    CHECK(!"a frame can be sent");
}

/* Waits until so many frames have been written to the queue. */
static void wait_for(uint64_t delivered)
{
    for (int ms = 0; ms < 5000 && counts("veth0").delivered < delivered; ms++) poll(NULL, 0, 1);
    IS(counts("veth0").delivered, delivered);
}

/* What is sent before the kernel has seen the carrier is dropped without a word: until one comes, for which there is no entry. */
static void wait_for_carrier(int fd, const uint8_t *frame, size_t length)
{
    for (int ms = 0; ms < 5000 && !counts("veth0").out_of_buffer; ms++) {
        send_frame(fd, frame, length);
        poll(NULL, 0, 1);
    }
    CHECK(counts("veth0").out_of_buffer);
}

static void over_the_pair(void)
{
    const stand_in_device device = {.name = "veth0", .interface = "rx0", .wall_ahead_ns = 37000000000};
    IS(stand_in_add(&device), 0);
    struct receiver r = open_receiver("veth0", IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
    CHECK((r.flow = udp_rule(r.qp, "239.1.1.1", 5004, 0)));
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    uint8_t plain[2048], tagged[2048], strange[2048];
    size_t length = datagram(plain, 3, 5004, 400);
    struct ibv_flow *probe = udp_rule(r.qp, "239.1.1.3", 5004, 0);
    wait_for_carrier(fd, plain, length);
    IS(ibv_destroy_flow(probe), 0);
    for (uint64_t at = 0; at < 4; at++) IS(post_entry(&r, at), 0);
    length = datagram(plain, 1, 5004, 400);
    memcpy(tagged, plain, 12);
    memcpy(tagged + 12, (uint8_t[]){0x81, 0, 0x60, 0x64}, 4);
    memcpy(tagged + 16, plain + 12, length - 12);
    send_frame(fd, strange, datagram(strange, 2, 5004, 400));
    send_frame(fd, plain, length);
    send_frame(fd, tagged, length + 4);
    send_frame(fd, plain, length);
    wait_for(3);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t tai = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + 37000000000u;
    IS(ibv_start_poll(r.ex, NULL), 0);
    for (uint64_t at = 0; at < 3; at++) {
        const uint8_t *sent = at == 1 ? tagged : plain;
        size_t octets = at == 1 ? length + 4 : length;
        IS(r.ex->status, IBV_WC_SUCCESS);
        IS(r.ex->wr_id, at);
        IS(ibv_wc_read_byte_len(r.ex), octets);
        uint64_t stamp = ibv_wc_read_completion_wallclock_ns(r.ex);
        CHECK(stamp <= tai && tai - stamp < 10000000000u);
        CHECK(!memcmp(r.head + at * HEAD, sent, HEAD));
        CHECK(!memcmp(r.body + at * BODY, sent + HEAD, octets - HEAD));
        IS(ibv_next_poll(r.ex), at < 2 ? 0 : ENOENT);
    }
    ibv_end_poll(r.ex);
    CHECK(counts("veth0").kernel >= 1);
    close(fd);
    close_receiver(&r);
    remove_card("veth0");
}

static void *elsewhere(void *context)
{
    (void)context;
    if (unshare(CLONE_NEWNET)) {
        puts("skipped: network namespaces need root");
        return NULL;
    }
    add_pair();
    over_the_pair();
    return NULL;
}

void check_veth(void)
{
    pthread_t thread;
    IS(pthread_create(&thread, NULL, elsewhere, NULL), 0);
    IS(pthread_join(thread, NULL), 0);
}
