/* The stand-in by the header's own inline functions, as a program with libibverbs would use it. */
#include "check.h"

#include <arpa/inet.h>

struct ibv_context *open_card(const char *name)
{
    int count, error = ENODEV;
    struct ibv_device **list = ibv_get_device_list(&count);
    struct ibv_context *context = NULL;
    CHECK(list);
    CHECK(!list[count]);
    for (int i = 0; i < count; i++) {
        if (strcmp(ibv_get_device_name(list[i]), name)) continue;
        context = ibv_open_device(list[i]);
        error = errno;
    }
    ibv_free_device_list(list);
    if (!context) errno = error;
    return context;
}

void add_card(const char *name, uint32_t flags)
{
    const stand_in_device device = {.name = name, .flags = flags};
    IS(stand_in_add(&device), 0);
}

void remove_card(const char *name)
{
    stand_in_counts c = counts(name);
    if (c.misuse) fprintf(stderr, "%s: misuse: %s\n", name, c.last_misuse);
    IS(stand_in_remove(name), 0);
}

stand_in_counts counts(const char *name)
{
    stand_in_counts c;
    IS(stand_in_count(name, &c), 0);
    return c;
}

void to_rtr(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    IS(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), 0);
    attr.qp_state = IBV_QPS_RTR;
    IS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
}

struct receiver open_receiver(const char *name, uint64_t wc_flags)
{
    struct receiver r = {.card = name, .context = open_card(name)};
    CHECK(r.context);
    CHECK((r.pd = ibv_alloc_pd(r.context)));
    CHECK((r.channel = ibv_create_comp_channel(r.context)));
    if (wc_flags) {
        struct ibv_cq_init_attr_ex attr = {.cqe = CQ_ENTRIES - 1, .channel = r.channel, .cq_context = &r, .wc_flags = wc_flags};
        CHECK((r.ex = ibv_create_cq_ex(r.context, &attr)));
        r.cq = ibv_cq_ex_to_cq(r.ex);
    } else {
        CHECK((r.cq = ibv_create_cq(r.context, CQ_ENTRIES - 1, &r, r.channel, 0)));
    }
    struct ibv_qp_init_attr attr = {.send_cq = r.cq, .recv_cq = r.cq, .qp_type = IBV_QPT_RAW_PACKET,
                                    .cap = {.max_recv_wr = ENTRIES, .max_recv_sge = 2}};
    CHECK((r.qp = ibv_create_qp(r.pd, &attr)));
    IS(attr.cap.max_recv_wr, ENTRIES);
    IS(attr.cap.max_recv_sge, 2);
    r.head = calloc(ENTRIES, HEAD);
    r.body = calloc(ENTRIES, BODY);
    CHECK(r.head && r.body);
    CHECK((r.head_mr = ibv_reg_mr(r.pd, r.head, ENTRIES * HEAD, IBV_ACCESS_LOCAL_WRITE)));
    CHECK((r.body_mr = ibv_reg_mr(r.pd, r.body, ENTRIES * BODY, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING)));
    to_rtr(r.qp);
    return r;
}

void close_receiver(struct receiver *r)
{
    if (r->flow) IS(ibv_destroy_flow(r->flow), 0);
    IS(ibv_destroy_qp(r->qp), 0);
    IS(ibv_destroy_cq(r->cq), 0);
    IS(ibv_destroy_comp_channel(r->channel), 0);
    IS(ibv_dereg_mr(r->head_mr), 0);
    IS(ibv_dereg_mr(r->body_mr), 0);
    IS(ibv_dealloc_pd(r->pd), 0);
    IS(ibv_close_device(r->context), 0);
    free(r->head);
    free(r->body);
}

int post_entry(struct receiver *r, uint64_t at)
{
    uint64_t slot = at % ENTRIES;
    struct ibv_sge segments[2] = {
        {.addr = (uintptr_t)(r->head + slot * HEAD), .length = HEAD, .lkey = r->head_mr->lkey},
        {.addr = (uintptr_t)(r->body + slot * BODY), .length = BODY, .lkey = r->body_mr->lkey},
    };
    struct ibv_recv_wr wr = {.wr_id = at, .sg_list = segments, .num_sge = 2}, *bad = NULL;
    int error = ibv_post_recv(r->qp, &wr, &bad);
    CHECK(!error || bad == &wr);
    return error;
}

struct ibv_flow *udp_rule(struct ibv_qp *qp, const char *to, uint16_t port, uint16_t priority)
{
    struct {
        struct ibv_flow_attr attr;
        struct ibv_flow_spec_eth eth;
        struct ibv_flow_spec_ipv4 ipv4;
        struct ibv_flow_spec_tcp_udp udp;
    } rule = {
        .attr = {.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof rule, .num_of_specs = 3, .port = 1, .priority = priority},
        .eth = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof rule.eth},
        .ipv4 = {.type = IBV_FLOW_SPEC_IPV4, .size = sizeof rule.ipv4},
        .udp = {.type = IBV_FLOW_SPEC_UDP, .size = sizeof rule.udp},
    };
    uint32_t ip = inet_addr(to);
    uint8_t b[4];
    memcpy(b, &ip, 4);
    const uint8_t mac[6] = {1, 0, 0x5e, b[1] & 0x7f, b[2], b[3]};
    memcpy(rule.eth.val.dst_mac, mac, 6);
    memset(rule.eth.mask.dst_mac, 0xff, 6);
    rule.eth.val.ether_type = htons(0x0800);
    rule.eth.mask.ether_type = 0xffff;
    rule.ipv4.val.dst_ip = ip;
    rule.ipv4.mask.dst_ip = 0xffffffff;
    rule.udp.val.dst_port = htons(port);
    rule.udp.mask.dst_port = port ? 0xffff : 0;
    return ibv_create_flow(qp, &rule.attr);
}

size_t datagram(uint8_t frame[2048], uint8_t group, uint16_t port, size_t payload)
{
    /* Ethernet, IPv4 (its checksum comes below), UDP from 10.0.0.9 port 5000, without a checksum. */
    const uint8_t head[42] = {0x01, 0x00, 0x5e, 0x01, 0x01, group, 0x02, 0, 0, 0, 0, 9, 0x08, 0x00,
                              0x45, 0, (uint8_t)((28 + payload) >> 8), (uint8_t)(28 + payload), 0, 1, 0x40, 0, 16, 17, 0, 0,
                              10, 0, 0, 9, 239, 1, 1, group,
                              0x13, 0x88, (uint8_t)(port >> 8), (uint8_t)port,
                              (uint8_t)((8 + payload) >> 8), (uint8_t)(8 + payload), 0, 0};
    memcpy(frame, head, sizeof head);
    uint32_t sum = 0;
    for (size_t i = 14; i < 34; i += 2) sum += (uint32_t)(frame[i] << 8 | frame[i + 1]);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = ~((sum & 0xffff) + (sum >> 16));
    frame[24] = (uint8_t)(sum >> 8);
    frame[25] = (uint8_t)sum;
    for (size_t i = 0; i < payload; i++) frame[sizeof head + i] = (uint8_t)i;
    return sizeof head + payload;
}

void write_capture(const char *path, uint32_t frames)
{
    uint8_t frame[2048];
    uint32_t length = (uint32_t)datagram(frame, 1, 5004, 100);
    const uint32_t head[6] = {0xa1b2c3d4, 2 | 4 << 16, 0, 0, 65535, 1};
    FILE *file = fopen(path, "wbe");
    CHECK(file);
    IS(fwrite(head, sizeof head, 1, file), 1);
    for (uint32_t i = 0; i < frames; i++) {
        const uint32_t packet[4] = {7, 5 + 1000 * i, length, length};
        IS(fwrite(packet, sizeof packet, 1, file), 1);
        IS(fwrite(frame, length, 1, file), 1);
    }
    IS(fclose(file), 0);
}

int main(void)
{
    check_devices();
    check_memory();
    check_receiving();
    check_rules();
    check_failures();
    check_sources();
    check_veth();
    check_gpu();
    check_threads();
    puts("the stand-in is as the header wants it");
    return 0;
}
