/* Entries, completions of both kinds, events, clocks, work queues, and rules. */
#include "check.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>

static const uint64_t BYTES = IBV_WC_EX_WITH_BYTE_LEN, RAW = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
                      WALL = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

/* Three times round the queue, two segments an entry. */
static void round_and_round(uint64_t wc_flags)
{
    add_card("rx0", 0);
    struct receiver r = open_receiver("rx0", wc_flags);
    CHECK((r.flow = udp_rule(r.qp, "239.1.1.1", 5004, 0)));
    uint8_t frame[2048];
    for (uint64_t at = 0; at < ENTRIES; at++) IS(post_entry(&r, at), 0);
    IS(post_entry(&r, ENTRIES), ENOMEM);
    for (uint64_t at = 0; at < 3 * ENTRIES; at++) {
        size_t length = datagram(frame, 1, 5004, 200 + at);
        IS(stand_in_inject("rx0", frame, length, 1000 + at), 1);
        if (r.ex) {
            IS(ibv_start_poll(r.ex, NULL), 0);
            IS(r.ex->wr_id, at);
            IS(r.ex->status, IBV_WC_SUCCESS);
            IS(ibv_wc_read_byte_len(r.ex), length);
            IS(ibv_wc_read_opcode(r.ex), IBV_WC_RECV);
            CHECK(ibv_wc_read_wc_flags(r.ex) & IBV_WC_IP_CSUM_OK);
            IS(ibv_next_poll(r.ex), ENOENT);
            ibv_end_poll(r.ex);
            IS(ibv_start_poll(r.ex, NULL), ENOENT);
        } else {
            struct ibv_wc wc[2];
            IS(ibv_poll_cq(r.cq, 2, wc), 1);
            IS(wc[0].wr_id, at);
            IS(wc[0].status, IBV_WC_SUCCESS);
            IS(wc[0].byte_len, length);
            IS(wc[0].qp_num, r.qp->qp_num);
        }
        const uint8_t *head = r.head + at % ENTRIES * HEAD, *body = r.body + at % ENTRIES * BODY;
        CHECK(!memcmp(head, frame, HEAD));
        CHECK(!memcmp(body, frame + HEAD, length - HEAD));
        /* Nothing behind the frame was written: the rounds before were shorter. */
        CHECK(!body[length - HEAD]);
        IS(post_entry(&r, at + ENTRIES), 0);
    }
    stand_in_counts c = counts("rx0");
    IS(c.delivered, 3 * ENTRIES);
    IS(c.posted, ENTRIES);
    close_receiver(&r);
    remove_card("rx0");
}

/* An entry is not free before its completion was polled. */
static void starvation(void)
{
    add_card("rx1", 0);
    struct receiver r = open_receiver("rx1", 0);
    CHECK((r.flow = udp_rule(r.qp, "239.1.1.1", 5004, 0)));
    uint8_t frame[2048];
    size_t length = datagram(frame, 1, 5004, 100);
    IS(stand_in_inject("rx1", frame, length, 0), 0);
    IS(counts("rx1").out_of_buffer, 1);
    for (uint64_t at = 0; at < ENTRIES; at++) IS(post_entry(&r, at), 0);
    for (int i = 0; i < ENTRIES + 2; i++) IS(stand_in_inject("rx1", frame, length, 0), i < ENTRIES);
    IS(counts("rx1").out_of_buffer, 3);
    IS(counts("rx1").waiting, ENTRIES);
    IS(post_entry(&r, 8), ENOMEM);
    struct ibv_wc wc[3];
    IS(ibv_poll_cq(r.cq, 3, wc), 3);
    IS(wc[2].wr_id, 2);
    IS(post_entry(&r, 8), 0);
    IS(stand_in_inject("rx1", frame, length, 0), 1);
    /* With completions that nobody has polled: they go with their queue. */
    IS(counts("rx1").waiting, ENTRIES - 2);
    struct ibv_qp_init_attr attr = {.send_cq = r.cq, .recv_cq = r.cq, .qp_type = IBV_QPT_RAW_PACKET,
                                    .cap = {.max_recv_wr = 1, .max_recv_sge = 1}};
    struct ibv_qp *other = ibv_create_qp(r.pd, &attr), *own = r.qp;
    IS(ibv_destroy_flow(r.flow), 0);
    r.flow = NULL;
    IS(ibv_destroy_qp(own), 0);
    IS(ibv_poll_cq(r.cq, 1, wc), 0);
    r.qp = other;
    close_receiver(&r);
    remove_card("rx1");
}

static void too_many_segments(void)
{
    add_card("rx2", 0);
    struct receiver r = open_receiver("rx2", 0);
    struct ibv_sge segments[3];
    memset(segments, 0, sizeof segments);
    struct ibv_recv_wr second = {.wr_id = 1, .sg_list = segments, .num_sge = 3};
    struct ibv_recv_wr first = {.wr_id = 0, .next = &second, .sg_list = segments, .num_sge = 2}, *bad = NULL;
    IS(ibv_post_recv(r.qp, &first, &bad), EINVAL);
    CHECK(bad == &second);
    IS(counts("rx2").posted, 1);
    struct ibv_qp_init_attr attr = {.send_cq = r.cq, .recv_cq = r.cq, .qp_type = IBV_QPT_RAW_PACKET,
                                    .cap = {.max_recv_wr = 16, .max_recv_sge = 31}};
    CHECK(!ibv_create_qp(r.pd, &attr));
    IS(errno, EINVAL);
    attr.cap.max_recv_sge = 1;
    attr.cap.max_recv_wr = 32769;
    CHECK(!ibv_create_qp(r.pd, &attr));
    IS(errno, EINVAL);
    attr.cap.max_recv_wr = 100;
    attr.cap.max_recv_sge = 3;
    struct ibv_qp *qp = ibv_create_qp(r.pd, &attr);
    CHECK(qp);
    IS(attr.cap.max_recv_wr, 128);
    IS(attr.cap.max_recv_sge, 4);
    IS(ibv_destroy_qp(qp), 0);
    close_receiver(&r);
    remove_card("rx2");
}

static void events(void)
{
    add_card("rx3", 0);
    struct receiver r = open_receiver("rx3", BYTES);
    CHECK((r.flow = udp_rule(r.qp, "239.1.1.1", 5004, 0)));
    fcntl(r.channel->fd, F_SETFL, O_NONBLOCK);
    struct pollfd fd = {.fd = r.channel->fd, .events = POLLIN};
    struct ibv_cq *cq;
    void *context;
    uint8_t frame[2048];
    size_t length = datagram(frame, 1, 5004, 10);
    for (uint64_t at = 0; at < 4; at++) IS(post_entry(&r, at), 0);
    stand_in_inject("rx3", frame, length, 0);
    IS(ibv_req_notify_cq(r.cq, 0), 0); /* what came before is no event */
    IS(poll(&fd, 1, 0), 0);
    IS(ibv_get_cq_event(r.channel, &cq, &context), -1);
    IS(errno, EAGAIN);
    stand_in_inject("rx3", frame, length, 0);
    stand_in_inject("rx3", frame, length, 0); /* one event for both */
    IS(poll(&fd, 1, 0), 1);
    IS(ibv_get_cq_event(r.channel, &cq, &context), 0);
    CHECK(cq == r.cq);
    IS(ibv_get_cq_event(r.channel, &cq, &context), -1);
    ibv_ack_cq_events(r.cq, 1);
    IS(ibv_req_notify_cq(r.cq, 0), 0);
    stand_in_inject("rx3", frame, length, 0); /* an event that nobody reads does not outlive its queue */
    close_receiver(&r);
    remove_card("rx3");
}

static void clocks(void)
{
    /* 2000 ticks a microsecond from 1970 + 1 ns on, a thousandth fast, and a wall clock on TAI. */
    const stand_in_device device = {.name = "rx4", .clock_khz = 2000000, .clock_origin_ns = 1, .clock_mask = 0xffffffff,
                                    .clock_ppb = 1000000, .wall_ahead_ns = 37000000000};
    IS(stand_in_add(&device), 0);
    struct receiver r = open_receiver("rx4", BYTES | RAW | WALL);
    CHECK((r.flow = udp_rule(r.qp, "239.1.1.1", 5004, 0)));
    CHECK(!r.ex->read_flow_tag); /* was not asked for */
    uint8_t frame[2048];
    IS(post_entry(&r, 0), 0);
    IS(stand_in_inject("rx4", frame, datagram(frame, 1, 5004, 10), 37000000000 + 1 + 4000000000u), 1);
    IS(ibv_start_poll(r.ex, NULL), 0);
    IS(ibv_wc_read_completion_wallclock_ns(r.ex), 41000000001);
    IS(ibv_wc_read_completion_ts(r.ex), 8008000000 & 0xffffffff);
    ibv_end_poll(r.ex);
    close_receiver(&r);
    remove_card("rx4");
    add_card("rx5", STAND_IN_NO_STAMPS);
    struct ibv_context *context = open_card("rx5");
    struct ibv_cq_init_attr_ex attr = {.cqe = 8, .wc_flags = RAW};
    CHECK(!ibv_create_cq_ex(context, &attr));
    IS(errno, EOPNOTSUPP);
    IS(ibv_close_device(context), 0);
    IS(stand_in_set_flags("rx5", STAND_IN_NO_CQ_EX), 0);
    context = open_card("rx5");
    attr.wc_flags = BYTES;
    CHECK(!ibv_create_cq_ex(context, &attr));
    IS(errno, EOPNOTSUPP);
    IS(ibv_close_device(context), 0);
    remove_card("rx5");
}

static bool says_right(struct receiver *r, const uint8_t *frame, size_t length)
{
    struct ibv_wc wc;
    IS(stand_in_inject(r->card, frame, length, 0), 1);
    IS(ibv_poll_cq(r->cq, 1, &wc), 1);
    IS(post_entry(r, wc.wr_id), 0);
    return wc.wc_flags & IBV_WC_IP_CSUM_OK;
}

/* Four octets, whose sum with the headers was worked out by hand. */
static void checksums(void)
{
    add_card("rx7", 0);
    struct receiver r = open_receiver("rx7", 0);
    CHECK((r.flow = udp_rule(r.qp, "239.1.1.1", 5004, 0)));
    IS(post_entry(&r, 0), 0);
    uint8_t frame[2048];
    size_t length = datagram(frame, 1, 5004, 4);
    CHECK(says_right(&r, frame, length)); /* no checksum of UDP */
    /* 0a00 + 0009 + ef01 + 0101 + 0011 + 000c, 1388 + 138c + 000c, 0001 + 0203: 1 234c, that is 234d; dcb2 is missing. */
    frame[40] = 0xdc;
    frame[41] = 0xb2;
    CHECK(says_right(&r, frame, length));
    frame[45] ^= 1;
    CHECK(!says_right(&r, frame, length));
    frame[45] ^= 1;
    frame[25] ^= 1; /* IPv4's */
    CHECK(!says_right(&r, frame, length));
    frame[25] ^= 1;
    IS(stand_in_set_flags("rx7", STAND_IN_NO_CSUM), 0);
    CHECK(!says_right(&r, frame, length));
    close_receiver(&r);
    remove_card("rx7");
}

/* The queue takes the tag off, and tells it; the rule tells its own. */
static void stripping(void)
{
    add_card("rx6", 0);
    struct receiver r = open_receiver("rx6", BYTES | IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_FLOW_TAG);
    struct ibv_qp *own = r.qp;
    struct ibv_qp_init_attr_ex init = {
        .qp_type = IBV_QPT_RAW_PACKET,
        .send_cq = r.cq,
        .recv_cq = r.cq,
        .cap = {.max_recv_wr = 4, .max_recv_sge = 2},
        .pd = r.pd,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
        .create_flags = IBV_QP_CREATE_CVLAN_STRIPPING,
    };
    struct {
        struct ibv_flow_attr attr;
        struct ibv_flow_spec_eth eth;
        struct ibv_flow_spec_action_tag tag;
    } rule = {
        .attr = {.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof rule, .num_of_specs = 2, .port = 1},
        .eth = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof rule.eth},
        .tag = {.type = IBV_FLOW_SPEC_ACTION_TAG, .size = sizeof rule.tag, .tag_id = 4711},
    };
    CHECK((r.qp = ibv_create_qp_ex(r.context, &init)));
    to_rtr(r.qp);
    CHECK((r.flow = ibv_create_flow(r.qp, &rule.attr)));
    uint8_t frame[2048], tagged[2048];
    size_t length = datagram(frame, 1, 5004, 300);
    memcpy(tagged, frame, 12);
    memcpy(tagged + 12, (uint8_t[]){0x81, 0, 0x60, 0x64}, 4);
    memcpy(tagged + 16, frame + 12, length - 12);
    IS(post_entry(&r, 0), 0);
    IS(stand_in_inject("rx6", tagged, length + 4, 0), 1);
    IS(ibv_start_poll(r.ex, NULL), 0);
    IS(ibv_wc_read_byte_len(r.ex), length);
    IS(ibv_wc_read_cvlan(r.ex), 0x6064);
    IS(ibv_wc_read_flow_tag(r.ex), 4711);
    CHECK(ibv_wc_read_wc_flags(r.ex) & IBV_WC_IP_CSUM_OK);
    ibv_end_poll(r.ex);
    CHECK(!memcmp(r.head, frame, HEAD) && !memcmp(r.body, frame + HEAD, length - HEAD));
    IS(ibv_destroy_qp(own), 0);
    close_receiver(&r);
    remove_card("rx6");
}

/* Two work queues behind a table: one of them has each flow. */
static void work_queues(void)
{
    add_card("wq0", 0);
    struct ibv_context *context = open_card("wq0");
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 63, NULL, NULL, 0);
    static uint8_t memory[2][2048];
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_wq *wqs[2];
    for (int i = 0; i < 2; i++) {
        struct ibv_wq_init_attr attr = {.wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1, .pd = pd, .cq = cq};
        struct ibv_wq_attr ready = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY};
        CHECK((wqs[i] = ibv_create_wq(context, &attr)));
        IS(ibv_modify_wq(wqs[i], &ready), 0);
        struct ibv_sge segment = {.addr = (uintptr_t)memory[i], .length = 2048, .lkey = mr->lkey};
        struct ibv_recv_wr wr = {.wr_id = 100u + (unsigned)i, .sg_list = &segment, .num_sge = 1}, *bad;
        IS(ibv_post_wq_recv(wqs[i], &wr, &bad), 0);
    }
    struct ibv_rwq_ind_table_init_attr attr = {.log_ind_tbl_size = 1, .ind_tbl = wqs};
    struct ibv_rwq_ind_table *table = ibv_create_rwq_ind_table(context, &attr);
    CHECK(table);
    /* The hash's last bit for bit i of the input is bit i + 31 of the key: with bit 46 alone it is the port's last bit. */
    uint8_t key[40] = {[5] = 2};
    struct ibv_qp_init_attr_ex ex = {
        .qp_type = IBV_QPT_RAW_PACKET,
        .pd = pd,
        .rwq_ind_tbl = table,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
        .rx_hash_conf = {.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ, .rx_hash_key_len = 40, .rx_hash_key = key,
                         .rx_hash_fields_mask = IBV_RX_HASH_DST_PORT_UDP},
    };
    struct ibv_qp *qp = ibv_create_qp_ex(context, &ex);
    CHECK(qp);
    struct ibv_flow *flow = udp_rule(qp, "239.1.1.1", 0, 0);
    CHECK(flow);
    uint8_t frame[2048];
    struct ibv_wc wc;
    for (uint16_t odd = 0; odd < 2; odd++) {
        IS(stand_in_inject("wq0", frame, datagram(frame, 1, 5004 + odd, 10), 0), 1);
        IS(ibv_poll_cq(cq, 1, &wc), 1);
        IS(wc.wr_id, 100 + odd);
        CHECK(!memcmp(memory[odd], frame, wc.byte_len));
    }
    IS(ibv_destroy_flow(flow), 0);
    IS(ibv_destroy_qp(qp), 0);
    IS(ibv_destroy_rwq_ind_table(table), 0);
    for (int i = 0; i < 2; i++) IS(ibv_destroy_wq(wqs[i]), 0);
    IS(ibv_destroy_cq(cq), 0);
    IS(ibv_dereg_mr(mr), 0);
    IS(ibv_dealloc_pd(pd), 0);
    IS(ibv_close_device(context), 0);
    remove_card("wq0");
}

void check_receiving(void)
{
    round_and_round(0);
    round_and_round(BYTES | RAW | WALL);
    starvation();
    too_many_segments();
    events();
    clocks();
    checksums();
    stripping();
    work_queues();
}
