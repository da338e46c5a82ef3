/* The flow table. */
#include "check.h"

#include <arpa/inet.h>

static void fill(struct receiver *r)
{
    for (uint64_t at = 0; at < ENTRIES; at++) IS(post_entry(r, at), 0);
}

static bool takes(struct receiver *r, const uint8_t *frame, size_t length)
{
    struct ibv_wc wc[4];
    stand_in_inject(r->card, frame, length, 0);
    int n = ibv_poll_cq(r->cq, 4, wc);
    for (int i = 0; i < n; i++) post_entry(r, wc[i].wr_id);
    return n > 0;
}

/* Each field that differs keeps a frame from the queue. */
static void fields(void)
{
    add_card("rule0", 0);
    struct receiver r = open_receiver("rule0", 0);
    CHECK((r.flow = udp_rule(r.qp, "239.1.1.1", 5004, 0)));
    fill(&r);
    uint8_t frame[2048], other[2048];
    size_t length = datagram(frame, 1, 5004, 20);
    CHECK(takes(&r, frame, length));
    CHECK(!takes(&r, other, datagram(other, 2, 5004, 20)));
    CHECK(!takes(&r, other, datagram(other, 1, 5005, 20)));
    /* In place of: the MAC, the type, UDP, a fragment, IPv4. */
    const struct {
        size_t at;
        uint8_t value;
    } changes[] = {{5, 2}, {13, 6}, {23, 6}, {20, 0x20}, {14, 0x65}, {33, 9}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        memcpy(other, frame, length);
        other[changes[i].at] = changes[i].value;
        CHECK(!takes(&r, other, length));
    }
    stand_in_counts c = counts("rule0");
    IS(c.kernel, 8);
    IS(c.arrived, 9);
    /* Without strict MACs the first of them is taken. */
    IS(stand_in_set_flags("rule0", STAND_IN_ANY_MAC), 0);
    memcpy(other, frame, length);
    memset(other, 0, 12);
    CHECK(takes(&r, other, length));
    close_receiver(&r);
    remove_card("rule0");
}

/* A rule without a tag takes both; one with a tag only its own. */
static void tags(void)
{
    add_card("rule1", 0);
    struct receiver r = open_receiver("rule1", 0);
    struct {
        struct ibv_flow_attr attr;
        struct ibv_flow_spec_eth eth;
    } rule = {
        .attr = {.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof rule, .num_of_specs = 1, .port = 1},
        .eth = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof rule.eth,
                .val = {.dst_mac = {1, 0, 0x5e, 1, 1, 1}, .vlan_tag = htons(0x0064)},
                .mask = {.dst_mac = {255, 255, 255, 255, 255, 255}, .vlan_tag = htons(0x0fff)}},
    };
    CHECK((r.flow = ibv_create_flow(r.qp, &rule.attr)));
    fill(&r);
    uint8_t frame[2048], tagged[2048];
    size_t length = datagram(frame, 1, 5004, 20);
    memcpy(tagged, frame, 12);
    memcpy(tagged + 12, (uint8_t[]){0x81, 0, 0x60, 0x64}, 4); /* another priority in the tag, which the mask leaves out */
    memcpy(tagged + 16, frame + 12, length - 12);
    CHECK(takes(&r, tagged, length + 4));
    CHECK(!takes(&r, frame, length));
    tagged[15] = 0x65;
    CHECK(!takes(&r, tagged, length + 4));
    char text[256];
    const char *line = "16 QP 65 eth dst 01:00:5e:01:01:01 vlan 100/0fff\n";
    IS(stand_in_rules("rule1", text, sizeof text), strlen(line));
    CHECK(!strcmp(text, line));
    IS(ibv_destroy_flow(r.flow), 0);
    rule.eth.val.vlan_tag = 0; /* a tag for priority alone is a tag */
    CHECK((r.flow = ibv_create_flow(r.qp, &rule.attr)));
    CHECK(!takes(&r, frame, length));
    tagged[15] = 0;
    CHECK(takes(&r, tagged, length + 4));
    IS(ibv_destroy_flow(r.flow), 0);
    CHECK((r.flow = udp_rule(r.qp, "239.1.1.1", 5004, 0)));
    CHECK(takes(&r, tagged, length + 4));
    CHECK(takes(&r, frame, length));
    close_receiver(&r);
    remove_card("rule1");
}

/* Two receivers: copies for both with the same rule, else the one with the better priority. */
static void priorities(void)
{
    add_card("rule2", 0);
    struct receiver a = open_receiver("rule2", 0), b = open_receiver("rule2", 0);
    struct ibv_wc wc[2];
    fill(&a);
    fill(&b);
    CHECK((a.flow = udp_rule(a.qp, "239.1.1.1", 5004, 3)));
    CHECK((b.flow = udp_rule(b.qp, "239.1.1.1", 5004, 1))); /* multicast alone: its priority does not count */
    struct ibv_flow *twice = udp_rule(b.qp, "239.1.1.1", 5004, 1);
    CHECK(twice);
    uint8_t frame[2048];
    size_t length = datagram(frame, 1, 5004, 20);
    IS(stand_in_inject("rule2", frame, length, 0), 2);
    IS(ibv_poll_cq(a.cq, 2, wc), 1);
    IS(ibv_poll_cq(b.cq, 2, wc), 1);
    IS(ibv_destroy_flow(twice), 0);
    IS(ibv_destroy_flow(b.flow), 0);
    struct {
        struct ibv_flow_attr attr;
        struct ibv_flow_spec_tcp_udp udp;
    } rule = {
        .attr = {.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof rule, .num_of_specs = 1, .port = 1, .priority = 15},
        .udp = {.type = IBV_FLOW_SPEC_UDP, .size = sizeof rule.udp,
                .val = {.dst_port = htons(5004)}, .mask = {.dst_port = 0xffff}},
    };
    CHECK((b.flow = ibv_create_flow(b.qp, &rule.attr)));
    IS(stand_in_inject("rule2", frame, length, 0), 1);
    IS(ibv_poll_cq(a.cq, 2, wc), 0);
    IS(ibv_poll_cq(b.cq, 2, wc), 1); /* not for multicast alone: before all that are */
    IS(ibv_destroy_flow(b.flow), 0);
    /* Two that match, at the same priority: the older one. */
    CHECK((b.flow = udp_rule(b.qp, "239.1.1.1", 0, 0)));
    IS(stand_in_inject("rule2", frame, length, 0), 1);
    IS(ibv_poll_cq(a.cq, 2, wc), 1);
    IS(ibv_destroy_flow(b.flow), 0);
    rule.attr.type = IBV_FLOW_ATTR_ALL_DEFAULT;
    rule.attr.num_of_specs = 0;
    CHECK((b.flow = ibv_create_flow(b.qp, &rule.attr)));
    IS(stand_in_inject("rule2", frame, length, 0), 1);
    IS(ibv_poll_cq(a.cq, 2, wc), 1);
    IS(stand_in_inject("rule2", frame, datagram(frame, 9, 9, 9), 0), 1);
    IS(ibv_poll_cq(b.cq, 2, wc), 1);
    close_receiver(&a);
    close_receiver(&b);
    remove_card("rule2");
}

static void bad_rules(void)
{
    add_card("rule3", STAND_IN_NO_NET_RAW);
    struct ibv_context *context = open_card("rule3");
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 7, NULL, NULL, 0);
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RAW_PACKET,
                                    .cap = {.max_recv_wr = 1, .max_recv_sge = 1}};
    CHECK(!ibv_create_qp(pd, &init));
    IS(errno, EPERM);
    IS(stand_in_set_flags("rule3", STAND_IN_INFINIBAND), 0);
    CHECK(!ibv_create_qp(pd, &init));
    IS(errno, EOPNOTSUPP);
    IS(stand_in_set_flags("rule3", 0), 0);
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp);
    struct {
        struct ibv_flow_attr attr;
        struct ibv_flow_spec_eth eth;
        struct ibv_flow_spec_ipv4 ipv4;
    } rule = {
        .attr = {.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof rule, .num_of_specs = 2, .port = 1},
        .eth = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof rule.eth,
                .val = {.ether_type = htons(0x86dd)}, .mask = {.ether_type = 0xffff}},
        .ipv4 = {.type = IBV_FLOW_SPEC_IPV4, .size = sizeof rule.ipv4},
    };
    CHECK(!ibv_create_flow(qp, &rule.attr)); /* IPv4 in frames of IPv6 */
    IS(errno, EINVAL);
    rule.eth.mask.ether_type = 0;
    rule.attr.port = 0;
    CHECK(!ibv_create_flow(qp, &rule.attr));
    IS(errno, EINVAL);
    rule.attr.port = 1;
    rule.attr.priority = 16;
    CHECK(!ibv_create_flow(qp, &rule.attr));
    IS(errno, ENOMEM);
    rule.attr.priority = 0;
    rule.attr.size--;
    CHECK(!ibv_create_flow(qp, &rule.attr));
    IS(errno, EINVAL);
    rule.attr.size++;
    rule.ipv4.size++;
    CHECK(!ibv_create_flow(qp, &rule.attr));
    IS(errno, EINVAL);
    IS(stand_in_set_flags("rule3", STAND_IN_NO_NET_RAW), 0);
    rule.ipv4.size--;
    CHECK(!ibv_create_flow(qp, &rule.attr));
    IS(errno, EPERM);
    IS(counts("rule3").flows, 0);
    IS(ibv_destroy_qp(qp), 0);
    IS(ibv_destroy_cq(cq), 0);
    IS(ibv_dealloc_pd(pd), 0);
    IS(ibv_close_device(context), 0);
    remove_card("rule3");
}

void check_rules(void)
{
    fields();
    tags();
    priorities();
    bad_rules();
}
