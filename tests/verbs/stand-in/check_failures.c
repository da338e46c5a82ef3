/* What goes wrong: entries, queues, the port, the card, and the program itself. */
#include "check.h"

#include <fcntl.h>

static void expect_event(struct ibv_context *context, enum ibv_event_type type, void *element)
{
    struct ibv_async_event event;
    fcntl(context->async_fd, F_SETFL, O_NONBLOCK);
    IS(ibv_get_async_event(context, &event), 0);
    IS(event.event_type, type);
    CHECK(!element || (void *)event.element.qp == element);
    ibv_ack_async_event(&event);
}

static void no_event(struct ibv_context *context)
{
    struct ibv_async_event event;
    fcntl(context->async_fd, F_SETFL, O_NONBLOCK);
    IS(ibv_get_async_event(context, &event), -1);
    IS(errno, EAGAIN);
}

static void expect_flush(struct receiver *r, int first, int count)
{
    struct ibv_wc wc[ENTRIES];
    IS(ibv_poll_cq(r->cq, ENTRIES, wc), count);
    for (int i = 0; i < count; i++) {
        IS(wc[i].wr_id, first + i);
        IS(wc[i].status, IBV_WC_WR_FLUSH_ERR);
    }
}

static struct receiver ready(const char *name, uint32_t flags)
{
    add_card(name, flags);
    struct receiver r = open_receiver(name, 0);
    CHECK((r.flow = udp_rule(r.qp, "239.1.1.1", 5004, 0)));
    for (uint64_t at = 0; at < 4; at++) IS(post_entry(&r, at), 0);
    return r;
}

static void protection(void)
{
    struct receiver r = ready("bad0", 0);
    uint8_t frame[2048];
    struct ibv_wc wc;
    size_t length = datagram(frame, 1, 5004, 100);
    IS(ibv_dereg_mr(r.body_mr), 0);
    IS(stand_in_inject("bad0", frame, 60, 0), 1); /* the first segment has room for all of it */
    IS(ibv_poll_cq(r.cq, 1, &wc), 1);
    IS(wc.status, IBV_WC_SUCCESS);
    IS(stand_in_inject("bad0", frame, length, 0), 0);
    IS(ibv_poll_cq(r.cq, 1, &wc), 1);
    IS(wc.wr_id, 1);
    IS(wc.status, IBV_WC_LOC_PROT_ERR);
    expect_flush(&r, 2, 2);
    expect_event(r.context, IBV_EVENT_QP_FATAL, r.qp);
    IS(r.qp->state, IBV_QPS_ERR);
    r.body_mr = r.head_mr;
    IS(post_entry(&r, 9), 0); /* given back at once */
    expect_flush(&r, 9, 1);
    IS(stand_in_inject("bad0", frame, length, 0), 0);
    IS(counts("bad0").not_ready, 1);
    /* Again from the beginning. */
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    IS(ibv_modify_qp(r.qp, &reset, IBV_QP_STATE), 0);
    to_rtr(r.qp);
    CHECK((r.body_mr = ibv_reg_mr(r.pd, r.body, ENTRIES * BODY, IBV_ACCESS_LOCAL_WRITE)));
    IS(post_entry(&r, 20), 0);
    IS(stand_in_inject("bad0", frame, length, 0), 1);
    close_receiver(&r);
    remove_card("bad0");
}

/* One octet behind the region; a region for reading; one of another domain. */
static void wrong_segments(void)
{
    struct receiver r = ready("bad1", 0);
    struct ibv_pd *pd = ibv_alloc_pd(r.context);
    uint8_t memory[128], frame[2048];
    struct ibv_mr *read_only = ibv_reg_mr(r.pd, memory, 128, 0), *strange = ibv_reg_mr(pd, memory, 128, IBV_ACCESS_LOCAL_WRITE);
    const struct ibv_sge wrong[] = {
        {.addr = (uintptr_t)(r.head + ENTRIES * HEAD - 63), .length = 64, .lkey = r.head_mr->lkey},
        {.addr = (uintptr_t)(r.head - 1), .length = 64, .lkey = r.head_mr->lkey},
        {.addr = (uintptr_t)memory, .length = 64, .lkey = read_only->lkey},
        {.addr = (uintptr_t)memory, .length = 64, .lkey = strange->lkey},
        {.addr = (uintptr_t)memory, .length = 64, .lkey = 0},
    };
    datagram(frame, 1, 5004, 22); /* 64 octets */
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
        IS(ibv_modify_qp(r.qp, &reset, IBV_QP_STATE), 0);
        to_rtr(r.qp);
        struct ibv_sge segment = wrong[i];
        struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &segment, .num_sge = 1}, *bad;
        struct ibv_wc wc;
        IS(ibv_post_recv(r.qp, &wr, &bad), 0);
        IS(stand_in_inject("bad1", frame, 64, 0), 0);
        IS(ibv_poll_cq(r.cq, 1, &wc), 1);
        IS(wc.status, IBV_WC_LOC_PROT_ERR);
        expect_event(r.context, IBV_EVENT_QP_FATAL, r.qp);
    }
    IS(counts("bad1").protection, 5);
    IS(ibv_dereg_mr(read_only), 0);
    IS(ibv_dereg_mr(strange), 0);
    IS(ibv_dealloc_pd(pd), 0);
    close_receiver(&r);
    remove_card("bad1");
}

static void too_long(void)
{
    const uint32_t ways[] = {0, STAND_IN_TOO_LONG_KEEPS, STAND_IN_TOO_LONG_DROPS};
    for (int i = 0; i < 3; i++) {
        const stand_in_device device = {.name = "bad2", .flags = ways[i], .mtu = 9000};
        IS(stand_in_add(&device), 0);
        struct receiver r = open_receiver("bad2", 0);
        CHECK((r.flow = udp_rule(r.qp, "239.1.1.1", 5004, 0)));
        for (uint64_t at = 0; at < 4; at++) IS(post_entry(&r, at), 0);
        uint8_t frame[2048];
        struct ibv_wc wc;
        size_t length = datagram(frame, 1, 5004, HEAD + BODY - 42);
        IS(length, HEAD + BODY);
        IS(stand_in_inject("bad2", frame, length, 0), 1); /* just so */
        IS(ibv_poll_cq(r.cq, 1, &wc), 1);
        IS(stand_in_inject("bad2", frame, length + 1, 0), 0);
        IS(counts("bad2").too_long, 1);
        if (ways[i] != STAND_IN_TOO_LONG_DROPS) {
            IS(ibv_poll_cq(r.cq, 1, &wc), 1);
            IS(wc.status, IBV_WC_LOC_LEN_ERR);
        }
        if (ways[i]) {
            IS(stand_in_inject("bad2", frame, length, 0), 1);
        } else {
            expect_flush(&r, 2, 2);
            expect_event(r.context, IBV_EVENT_QP_FATAL, r.qp);
        }
        no_event(r.context);
        close_receiver(&r);
        remove_card("bad2");
    }
}

/* A completion queue of 7 under a queue of 8. */
static void overrun(void)
{
    add_card("bad3", 0);
    struct receiver r = open_receiver("bad3", 0);
    struct ibv_cq *small = ibv_create_cq(r.context, 5, NULL, NULL, 0);
    IS(small->cqe, 7);
    struct ibv_qp_init_attr attr = {.send_cq = small, .recv_cq = small, .qp_type = IBV_QPT_RAW_PACKET,
                                    .cap = {.max_recv_wr = 8, .max_recv_sge = 2}};
    struct ibv_qp *own = r.qp, *qp = ibv_create_qp(r.pd, &attr);
    to_rtr(qp);
    CHECK((r.flow = udp_rule(qp, "239.1.1.1", 5004, 0)));
    r.qp = qp;
    uint8_t frame[2048];
    size_t length = datagram(frame, 1, 5004, 100);
    for (uint64_t at = 0; at < 8; at++) IS(post_entry(&r, at), 0);
    for (int i = 0; i < 8; i++) stand_in_inject("bad3", frame, length, 0);
    expect_event(r.context, IBV_EVENT_CQ_ERR, small);
    expect_event(r.context, IBV_EVENT_QP_FATAL, qp);
    IS(counts("bad3").overruns, 1);
    struct ibv_wc wc[8];
    IS(ibv_poll_cq(small, 8, wc), 7);
    IS(post_entry(&r, 8), 0); /* would be given back, but nothing completes any more */
    IS(ibv_poll_cq(small, 8, wc), 0);
    IS(ibv_destroy_flow(r.flow), 0);
    r.flow = NULL;
    IS(ibv_destroy_qp(qp), 0);
    IS(ibv_destroy_cq(small), 0);
    r.qp = own;
    close_receiver(&r);
    remove_card("bad3");
}

static void port(void)
{
    struct receiver r = ready("bad4", 0);
    struct ibv_port_attr attr;
    uint8_t frame[2048];
    size_t length = datagram(frame, 1, 5004, 100);
    IS(stand_in_port("bad4", 1), 0);
    no_event(r.context);
    IS(stand_in_port("bad4", 0), 0);
    expect_event(r.context, IBV_EVENT_PORT_ERR, NULL);
    IS(ibv_query_port(r.context, 1, &attr), 0);
    IS(attr.state, IBV_PORT_DOWN);
    IS(stand_in_inject("bad4", frame, length, 0), 0);
    IS(stand_in_port("bad4", 1), 0);
    expect_event(r.context, IBV_EVENT_PORT_ACTIVE, NULL);
    IS(stand_in_inject("bad4", frame, length, 0), 1);
    IS(counts("bad4").lost_down, 1);
    uint8_t large[1519];
    datagram(frame, 1, 5004, 1476);
    memcpy(large, frame, 1518);
    IS(stand_in_inject("bad4", large, 1518, 0), 1);
    IS(stand_in_inject("bad4", large, 1519, 0), 0);
    IS(counts("bad4").oversize, 1);
    IS(stand_in_inject("bad4", large, 13, 0), 0);
    IS(counts("bad4").malformed, 1);
    close_receiver(&r);
    remove_card("bad4");
}

static void pulled(void)
{
    struct receiver r = ready("bad5", 0);
    uint8_t frame[2048];
    size_t length = datagram(frame, 1, 5004, 100);
    struct ibv_recv_wr none = {0}, *bad;
    IS(stand_in_pull("bad5"), 0);
    expect_event(r.context, IBV_EVENT_DEVICE_FATAL, NULL);
    expect_flush(&r, 0, 4);
    IS(stand_in_inject("bad5", frame, length, 0), 0);
    IS(ibv_post_recv(r.qp, &none, &bad), EIO);
    CHECK(!ibv_alloc_pd(r.context));
    IS(errno, EIO);
    CHECK(!open_card("bad5"));
    IS(errno, ENODEV);
    /* It is back: what was open stays as it is, and both can be there. */
    IS(stand_in_put_back("bad5"), 0);
    struct receiver again = open_receiver("bad5", 0);
    CHECK((again.flow = udp_rule(again.qp, "239.1.1.1", 5004, 0)));
    IS(post_entry(&again, 0), 0);
    for (int twice = 0; twice < 2; twice++) {
        IS(ibv_destroy_flow(r.flow), EIO);
        IS(ibv_destroy_qp(r.qp), EIO);
        IS(ibv_destroy_cq(r.cq), EIO);
        IS(ibv_dereg_mr(r.head_mr), EIO);
        IS(ibv_dereg_mr(r.body_mr), EIO);
        IS(ibv_dealloc_pd(r.pd), EIO);
    }
    IS(ibv_destroy_comp_channel(r.channel), 0);
    IS(ibv_close_device(r.context), 0);
    free(r.head);
    free(r.body);
    IS(stand_in_inject("bad5", frame, length, 0), 1);
    close_receiver(&again);
    remove_card("bad5");
}

/* In a wrong order: refused, and counted. */
static void misused(void)
{
    struct receiver r = ready("bad6", 0);
    IS(ibv_destroy_qp(r.qp), EBUSY);
    IS(ibv_destroy_cq(r.cq), EBUSY);
    IS(ibv_destroy_comp_channel(r.channel), EBUSY);
    IS(ibv_dealloc_pd(r.pd), EBUSY);
    IS(counts("bad6").misuse, 4);
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET}, rtr = {.qp_state = IBV_QPS_RTR};
    IS(ibv_modify_qp(r.qp, &reset, IBV_QP_STATE), 0);
    IS(post_entry(&r, 0), EINVAL);
    IS(ibv_modify_qp(r.qp, &rtr, IBV_QP_STATE), EINVAL);
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT};
    IS(ibv_modify_qp(r.qp, &init, IBV_QP_STATE), EINVAL); /* no port */
    stand_in_counts c = counts("bad6");
    IS(c.misuse, 5);
    CHECK(strstr(c.last_misuse, "RESET"));
    close_receiver(&r);
    IS(stand_in_remove("bad6"), EINVAL); /* is gone all the same */
    IS(stand_in_remove("bad6"), ENODEV);
}

static void told(void)
{
    struct receiver r = ready("bad7", 0);
    struct ibv_wc wc;
    IS(stand_in_fail("bad7", "ibv_post_recv", ENOMEM, 2), 0);
    IS(post_entry(&r, 4), ENOMEM);
    IS(post_entry(&r, 4), ENOMEM);
    IS(post_entry(&r, 4), 0);
    IS(stand_in_fail("bad7", "ibv_poll_cq", EIO, UINT32_MAX), 0);
    IS(ibv_poll_cq(r.cq, 1, &wc), -EIO);
    IS(ibv_poll_cq(r.cq, 1, &wc), -EIO);
    IS(stand_in_fail("bad7", "ibv_poll_cq", 0, 0), 0);
    IS(ibv_poll_cq(r.cq, 1, &wc), 0);
    IS(stand_in_fatal("bad7"), 0);
    expect_flush(&r, 0, 5);
    expect_event(r.context, IBV_EVENT_QP_FATAL, r.qp);
    IS(stand_in_overrun("bad7"), 0);
    expect_event(r.context, IBV_EVENT_CQ_ERR, r.cq);
    /* An event that was not read goes with its queue. */
    struct ibv_qp_init_attr attr = {.send_cq = r.cq, .recv_cq = r.cq, .qp_type = IBV_QPT_RAW_PACKET};
    struct ibv_qp *qp = ibv_create_qp(r.pd, &attr);
    CHECK(qp);
    IS(stand_in_fatal("bad7"), 0);
    expect_event(r.context, IBV_EVENT_QP_FATAL, qp);
    IS(ibv_destroy_flow(r.flow), 0);
    IS(ibv_destroy_qp(r.qp), 0);
    no_event(r.context);
    r.flow = NULL;
    r.qp = qp;
    close_receiver(&r);
    remove_card("bad7");
}

void check_failures(void)
{
    protection();
    wrong_segments();
    too_long();
    overrun();
    port();
    pulled();
    misused();
    told();
}
