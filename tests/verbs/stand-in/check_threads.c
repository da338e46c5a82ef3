/* Several threads at one card: one that brings frames, one that receives and waits for events, one that comes and goes, one that
 * pulls the cable and looks. What was counted adds up in the end. */
#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>

enum { FRAMES = 4000, ROUNDS = 60 };

static atomic_bool over;

static void *bring(void *context)
{
    uint8_t frame[2048];
    size_t length = datagram(frame, 1, 5004, 700);
    for (int i = 0; i < FRAMES; i++) stand_in_inject(context, frame, length, 0);
    over = true;
    return NULL;
}

static void *come_and_go(void *context)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct receiver r = open_receiver(context, i & 1 ? IBV_WC_EX_WITH_BYTE_LEN : 0);
        CHECK((r.flow = udp_rule(r.qp, "239.1.1.1", 5004, 0)));
        for (uint64_t at = 0; at < ENTRIES; at++) IS(post_entry(&r, at), 0);
        close_receiver(&r);
    }
    return NULL;
}

static void *meddle(void *context)
{
    char text[4096];
    for (int i = 0; i < ROUNDS; i++) {
        stand_in_port(context, 0);
        counts(context);
        stand_in_port(context, 1);
        stand_in_rules(context, text, sizeof text);
        poll(NULL, 0, 1);
    }
    return NULL;
}

static uint64_t take_all(struct receiver *r)
{
    struct ibv_wc wc[ENTRIES];
    uint64_t taken = 0;
    for (int n; (n = ibv_poll_cq(r->cq, ENTRIES, wc)) > 0; taken += (uint64_t)n)
        for (int i = 0; i < n; i++) {
            IS(wc[i].status, IBV_WC_SUCCESS);
            IS(post_entry(r, wc[i].wr_id), 0);
        }
    return taken;
}

static uint64_t receive(struct receiver *r)
{
    struct pollfd fds[2] = {{.fd = r->channel->fd, .events = POLLIN}, {.fd = r->context->async_fd, .events = POLLIN}};
    struct ibv_async_event event;
    struct ibv_cq *cq;
    void *context;
    uint64_t taken = 0;
    while (!over) {
        IS(ibv_req_notify_cq(r->cq, 0), 0);
        taken += take_all(r);
        if (poll(fds, 2, 5) <= 0) continue;
        while (!ibv_get_cq_event(r->channel, &cq, &context)) ibv_ack_cq_events(cq, 1);
        while (!ibv_get_async_event(r->context, &event)) ibv_ack_async_event(&event);
    }
    return taken + take_all(r);
}

void check_threads(void)
{
    static char name[] = "busy0";
    void *(*const work[])(void *) = {bring, come_and_go, meddle};
    pthread_t threads[3];
    add_card(name, 0);
    struct receiver r = open_receiver(name, 0);
    fcntl(r.channel->fd, F_SETFL, O_NONBLOCK);
    fcntl(r.context->async_fd, F_SETFL, O_NONBLOCK);
    CHECK((r.flow = udp_rule(r.qp, "239.1.1.1", 5004, 0)));
    for (uint64_t at = 0; at < ENTRIES; at++) IS(post_entry(&r, at), 0);
    for (int i = 0; i < 3; i++) IS(pthread_create(&threads[i], NULL, work[i], name), 0);
    uint64_t taken = receive(&r);
    for (int i = 0; i < 3; i++) IS(pthread_join(threads[i], NULL), 0);
    stand_in_counts c = counts(name);
    IS(c.arrived, FRAMES);
    IS(c.kernel, 0); /* the one rule was always there */
    CHECK(taken && taken <= c.delivered);
    CHECK(c.delivered + c.out_of_buffer + c.lost_down >= FRAMES); /* others had copies */
    close_receiver(&r);
    remove_card(name);
}
