/* Frames from a capture and from an interface, memory behind a dma-buf, and the card's files. */
#include "check.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static void remove_folder(const char *path)
{
    char command[256];
    snprintf(command, sizeof command, "rm -r '%s'", path);
    IS(system(command), 0);
}

static void check_file(const char *root, const char *name, const char *text)
{
    char path[512], got[64] = "";
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "re");
    CHECK(file);
    CHECK(fgets(got, sizeof got, file));
    fclose(file);
    CHECK(!strcmp(got, text));
}

static void files_and_capture(void)
{
    char root[] = "/tmp/verbs-stand-in-XXXXXX", capture[64];
    CHECK(mkdtemp(root));
    snprintf(capture, sizeof capture, "%s/one.pcap", root);
    const stand_in_device device = {.name = "file0", .net = "ens1", .sysfs = root};
    IS(stand_in_add(&device), 0);
    check_file(root, "class/infiniband/file0/ports/1/hw_counters/out_of_buffer", "0\n");
    check_file(root, "class/infiniband/file0/device/net/ens1/dev_port", "0\n");
    check_file(root, "class/net/ens1/device/infiniband/file0/ports/1/link_layer", "Ethernet\n");
    check_file(root, "class/net/ens1/device/vendor", "0x15b3\n");

    write_capture(capture, 3);
    struct receiver r = open_receiver("file0", IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
    char path[300];
    snprintf(path, sizeof path, "%s/class/infiniband/file0", root);
    CHECK(!strcmp(r.context->device->ibdev_path, path));
    CHECK((r.flow = udp_rule(r.qp, "239.1.1.1", 5004, 0)));
    IS(post_entry(&r, 0), 0);
    IS(stand_in_inject_capture("file0", capture), 3);
    IS(stand_in_inject_capture("file0", "/nowhere"), -1);
    IS(ibv_start_poll(r.ex, NULL), 0);
    IS(ibv_wc_read_completion_wallclock_ns(r.ex), 7000005000);
    ibv_end_poll(r.ex);
    check_file(root, "class/infiniband/file0/ports/1/hw_counters/out_of_buffer", "2\n");
    IS(stand_in_port("file0", 0), 0);
    check_file(root, "class/net/ens1/device/infiniband/file0/ports/1/state", "1: DOWN\n");
    close_receiver(&r);
    remove_card("file0");
    remove_folder(root);
}

/* The rest of each frame goes through a dma-buf: one that can be mapped, and one that the test knows. */
static void dmabuf(void)
{
    enum { SIZE = 8192, AT = 4096 + 512, IOVA = 0x7000000 + 512 };
    for (int known = 0; known < 2; known++) {
        add_card("dma0", 0);
        struct receiver r = open_receiver("dma0", 0);
        int fd = memfd_create("dmabuf", 0);
        IS(ftruncate(fd, SIZE), 0);
        uint8_t *mapped = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), *own = calloc(1, SIZE);
        CHECK(mapped != MAP_FAILED && own);
        if (known) IS(stand_in_dmabuf(fd, own), 0);
        struct ibv_mr *mr = ibv_reg_dmabuf_mr(r.pd, AT, SIZE - AT, IOVA, fd, IBV_ACCESS_LOCAL_WRITE);
        CHECK(mr);
        IS(stand_in_dmabuf(fd, NULL), 0);
        close(fd);
        CHECK((r.flow = udp_rule(r.qp, "239.1.1.1", 5004, 0)));
        struct ibv_sge segments[2] = {{.addr = (uintptr_t)r.head, .length = HEAD, .lkey = r.head_mr->lkey},
                                      {.addr = IOVA + 16, .length = 1500, .lkey = mr->lkey}};
        struct ibv_recv_wr wr = {.sg_list = segments, .num_sge = 2}, *bad;
        IS(ibv_post_recv(r.qp, &wr, &bad), 0);
        uint8_t frame[2048];
        size_t length = datagram(frame, 1, 5004, 1000);
        IS(stand_in_inject("dma0", frame, length, 0), 1);
        CHECK(!memcmp((known ? own : mapped) + AT + 16, frame + HEAD, length - HEAD));
        IS(mapped[AT + 16], known ? 0 : frame[HEAD]);
        IS(ibv_dereg_mr(mr), 0);
        munmap(mapped, SIZE);
        free(own);
        close_receiver(&r);
        remove_card("dma0");
    }
}

/* Whether the datagram's checksum, which is there, is right (RFC 768): all of it with the pseudo header gives ones alone. */
static bool checksum_is_right(const struct receiver *r, uint64_t slot, size_t length)
{
    uint8_t frame[HEAD + BODY + 1] = {0};
    memcpy(frame, r->head + slot * HEAD, HEAD);
    memcpy(frame + HEAD, r->body + slot * BODY, length - HEAD);
    uint32_t sum = 17 + (uint32_t)length - 34;
    for (size_t i = 26; i < length; i += 2) sum += (uint32_t)(frame[i] << 8 | frame[i + 1]);
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return (frame[40] || frame[41]) && sum == 0xffff;
}

/* Waits for a completion; which, by the number in the payload's first octet. */
static int next_payload(struct receiver *r)
{
    for (int ms = 0; ms < 5000; ms++) {
        struct ibv_wc wc;
        if (ibv_poll_cq(r->cq, 1, &wc)) {
            IS(wc.status, IBV_WC_SUCCESS);
            CHECK(wc.wc_flags & IBV_WC_IP_CSUM_OK);
            CHECK(checksum_is_right(r, wc.wr_id % ENTRIES, wc.byte_len));
            int first = r->head[wc.wr_id % ENTRIES * HEAD + 42];
            IS(post_entry(r, wc.wr_id), 0);
            return first;
        }
        poll(NULL, 0, 1);
    }
    CHECK(!"a datagram comes");
    return -1;
}

/* Over the loopback interface: datagrams one by one, and several in one piece that the kernel leaves to the card to cut. */
static void interface(void)
{
    const stand_in_device device = {.name = "lo0", .interface = "lo"}, nowhere = {.name = "lo1", .interface = "nowhere0"};
    IS(stand_in_add(&nowhere), 0);
    struct ibv_context *none = open_card("lo1");
    CHECK(!none);
    bool privileged = errno == ENODEV;
    CHECK(privileged || errno == EPERM);
    remove_card("lo1");
    if (!privileged) {
        puts("skipped: packet sockets need CAP_NET_RAW");
        return;
    }
    IS(stand_in_add(&device), 0);
    struct receiver r = open_receiver("lo0", 0);
    for (uint64_t at = 0; at < ENTRIES; at++) IS(post_entry(&r, at), 0);
    int to = socket(AF_INET, SOCK_DGRAM, 0), from = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    IS(bind(to, (struct sockaddr *)&address, size), 0);
    IS(getsockname(to, (struct sockaddr *)&address, &size), 0);
    CHECK((r.flow = udp_rule(r.qp, "127.0.0.1", ntohs(address.sin_port), 0)));
    uint8_t payload[3000];
    for (int i = 0; i < 3; i++) {
        memset(payload, i + 1, sizeof payload);
        IS(sendto(from, payload, 400, 0, (struct sockaddr *)&address, size), 400);
        IS(next_payload(&r), i + 1);
    }
    enum { UDP_SEGMENT_ = 103, SEGMENT = 700 };
    const int segment = SEGMENT;
    for (size_t i = 0; i < 2500; i++) payload[i] = (uint8_t)(10 + i / SEGMENT);
    if (!setsockopt(from, IPPROTO_UDP, UDP_SEGMENT_, &segment, sizeof segment)) {
        IS(sendto(from, payload, 2500, 0, (struct sockaddr *)&address, size), 2500);
        for (int i = 0; i < 4; i++) IS(next_payload(&r), 10 + i);
        IS(counts("lo0").octets, 3 * 442 + 3 * 742 + 442);
    }
    IS(counts("lo0").out_of_buffer, 0);
    close(to);
    close(from);
    close_receiver(&r);
    remove_card("lo0");
}

void check_sources(void)
{
    files_and_capture();
    dmabuf();
    interface();
}
