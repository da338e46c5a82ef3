/* What the checks share: a card with a receiver on it, by the header's own inline functions. */
#ifndef VERBS_STAND_IN_CHECK_H
#define VERBS_STAND_IN_CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "control.h"

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(that)                                                          \
    do {                                                                     \
        if (!(that)) {                                                       \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #that); \
            abort();                                                         \
        }                                                                    \
    } while (0)

/* Whether this says what is expected, with both numbers where it does not. */
#define IS(that, expected)                                                                                   \
    do {                                                                                                     \
        long long is_ = (long long)(that), wanted_ = (long long)(expected);                                  \
        if (is_ != wanted_) {                                                                                \
            fprintf(stderr, "%s:%d: %s is %lld and not %lld\n", __FILE__, __LINE__, #that, is_, wanted_);     \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

enum { HEAD = 64, BODY = 1500, ENTRIES = 8, CQ_ENTRIES = 64 };

/* A QP with two segments an entry: the first 64 octets here, the rest there. */
struct receiver {
    const char *card;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_cq_ex *ex; /* the same, where it is of that kind */
    struct ibv_qp *qp;
    struct ibv_mr *head_mr, *body_mr;
    uint8_t *head, *body;
    struct ibv_flow *flow;
};

struct ibv_context *open_card(const char *name); /* NULL and errno, as ibv_open_device */
void add_card(const char *name, uint32_t flags);
void remove_card(const char *name);
struct receiver open_receiver(const char *name, uint64_t wc_flags); /* 0: the plain kind of completion queue */
void close_receiver(struct receiver *r);
void to_rtr(struct ibv_qp *qp);
int post_entry(struct receiver *r, uint64_t at);
/* A rule for UDP to this address and port (0: any), and this multicast MAC. */
struct ibv_flow *udp_rule(struct ibv_qp *qp, const char *to, uint16_t port, uint16_t priority);
stand_in_counts counts(const char *name);

/* A UDP datagram to 239.1.1.`group`, port `port`, with `payload` octets that count up; how long the frame is. */
size_t datagram(uint8_t frame[2048], uint8_t group, uint16_t port, size_t payload);

/* So many such datagrams of 100 octets to group 1, port 5004, a millisecond apart from 1970 + 7.000005 s on. */
void write_capture(const char *path, uint32_t frames);

void check_devices(void);
void check_memory(void);
void check_receiving(void);
void check_rules(void);
void check_failures(void);
void check_sources(void);
void check_veth(void);
void check_gpu(void);
void check_threads(void);

#endif
