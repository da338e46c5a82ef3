/* Flows: which packets are a stream's, and the sockets that they come from. */
#include "internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 64, RECEIVE_BUFFER = 32 << 20 };

static bool is_group(uint32_t ip) { return IN_MULTICAST(ntohl(ip)); }

static bool same(const struct sockaddr_in *a, const struct sockaddr_in *b)
{
    return a->sin_addr.s_addr == b->sin_addr.s_addr && a->sin_port == b->sin_port;
}

const struct flow *flow_of(const struct stream *s, int fd, uint32_t destination, uint16_t destination_port,
                           uint32_t source, uint16_t source_port)
{
    const struct flow *best = NULL;
    int best_rank = -1;
    for (size_t i = 0; i < s->flow_count; i++) {
        const struct flow *f = &s->flows[i];
        uint32_t to = f->key.local.sin_addr.s_addr, from = f->key.remote.sin_addr.s_addr;
        uint16_t to_port = ntohs(f->key.local.sin_port), from_port = ntohs(f->key.remote.sin_port);
        if (fd != -2 && fd != f->fd) continue;
        if ((to && to != destination) || (to_port && to_port != destination_port)) continue;
        if ((from && from != source) || (from_port && from_port != source_port)) continue;
        int rank = 8 * (to != 0) + 4 * (to_port != 0) + 2 * (from != 0) + (from_port != 0);
        if (rank > best_rank) best = f, best_rank = rank;
    }
    return best;
}

/* --- sockets ----------------------------------------------------------------------------------------------------- */

static bool join(int fd, const struct stream *s, const rmx_input_flow *key)
{
    if (!key->remote.sin_addr.s_addr) {
        struct ip_mreqn any = {.imr_multiaddr = key->local.sin_addr, .imr_ifindex = (int)s->index};
        return !setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &any, sizeof any);
    }
    struct group_source_req only = {.gsr_interface = s->index};
    memcpy(&only.gsr_group, &key->local, sizeof key->local);
    memcpy(&only.gsr_source, &key->remote, sizeof key->remote);
    return !setsockopt(fd, IPPROTO_IP, MCAST_JOIN_SOURCE_GROUP, &only, sizeof only);
}

static int open_socket(const struct stream *s, const rmx_input_flow *key)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1, off = 0, room = RECEIVE_BUFFER;
    if (fd < 0) return -1;
    struct sockaddr_in at = key->local;
    at.sin_family = AF_INET;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &off, sizeof off);
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room)) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    if (setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) || bind(fd, (struct sockaddr *)&at, sizeof at)
        || (is_group(at.sin_addr.s_addr) && !join(fd, s, key))) {
        close(fd);
        return -1;
    }
    return fd;
}

/* A group has a socket for each flow, as its members differ; all flows of a unicast address share one. */
static int socket_for(const struct stream *s, const rmx_input_flow *key)
{
    for (size_t i = 0; i < s->flow_count && !is_group(key->local.sin_addr.s_addr); i++)
        if (same(&s->flows[i].key.local, &key->local)) return s->flows[i].fd;
    return open_socket(s, key);
}

static void close_flow(struct stream *s, size_t at)
{
    int fd = s->flows[at].fd;
    s->flows[at] = s->flows[--s->flow_count];
    for (size_t i = 0; i < s->flow_count; i++)
        if (s->flows[i].fd == fd) fd = -1;
    if (fd >= 0) close(fd);
}

/* --- the thread that receives ------------------------------------------------------------------------------------ */

struct batch {
    size_t room;
    uint8_t *data;
    struct mmsghdr message[BATCH];
    struct iovec piece[BATCH];
    struct sockaddr_in from[BATCH];
    char control[BATCH][CMSG_SPACE(sizeof(struct timespec))];
};

static struct batch *make_batch(const struct stream *s)
{
    struct batch *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    b->room = s->block[0].max + (s->sub_blocks == 2 ? s->block[1].max : 0) + 1; /* one more tells what is too long */
    b->data = malloc(BATCH * b->room);
    if (b->data) return b;
    free(b);
    return NULL;
}

static uint64_t received_at(struct msghdr *message)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
            struct timespec t;
            memcpy(&t, CMSG_DATA(c), sizeof t);
            return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
        }
    return now_ns(CLOCK_REALTIME);
}

/* One batch of one socket; says whether there may be more. Under the stream's lock. */
static bool receive(struct stream *s, struct batch *b, int fd, const struct sockaddr_in *local)
{
    for (size_t i = 0; i < BATCH; i++) {
        b->piece[i] = (struct iovec){b->data + i * b->room, b->room};
        b->message[i].msg_hdr = (struct msghdr){.msg_name = &b->from[i], .msg_namelen = sizeof b->from[i],
                                                .msg_iov = &b->piece[i], .msg_iovlen = 1,
                                                .msg_control = b->control[i], .msg_controllen = sizeof b->control[i]};
    }
    int n = recvmmsg(fd, b->message, BATCH, MSG_DONTWAIT, NULL);
    for (int i = 0; i < n; i++) {
        const struct flow *f = flow_of(s, fd, local->sin_addr.s_addr, ntohs(local->sin_port),
                                       b->from[i].sin_addr.s_addr, ntohs(b->from[i].sin_port));
        if (f) write_packet(s, b->data + (size_t)i * b->room, b->message[i].msg_len, f->key.tag, received_at(&b->message[i].msg_hdr));
    }
    if (n > 0) show_written(s);
    return n == BATCH;
}

static void *receive_all(void *context)
{
    struct stream *s = context;
    struct pollfd wait[MAX_FLOWS + 1];
    pthread_mutex_lock(&s->lock);
    struct batch *b = make_batch(s);
    bool more = false;
    while (b && !s->stop) {
        nfds_t n = 1;
        wait[0] = (struct pollfd){.fd = s->wake, .events = POLLIN};
        for (size_t i = 0; i < s->flow_count; i++) wait[n++] = (struct pollfd){.fd = s->flows[i].fd, .events = POLLIN};
        /* Flows come and go meanwhile; the lock's other users get it here. */
        pthread_mutex_unlock(&s->lock);
        poll(wait, n, more ? 0 : -1);
        uint64_t count;
        if (wait[0].revents && read(s->wake, &count, sizeof count) < 0) { /* somebody else's */
        }
        pthread_mutex_lock(&s->lock);
        more = false;
        for (size_t i = 0; i < s->flow_count && !s->stop; i++) {
            struct flow f = s->flows[i];
            more |= receive(s, b, f.fd, &f.key.local);
        }
    }
    pthread_mutex_unlock(&s->lock);
    if (b) free(b->data);
    free(b);
    return NULL;
}

static void wake(struct stream *s)
{
    uint64_t one = 1;
    if (write(s->wake, &one, sizeof one) < 0) { /* it is awake already */
    }
}

static bool start(struct stream *s)
{
    if (!s->has_thread) {
        s->has_thread = !pthread_create(&s->thread, NULL, receive_all, s);
        if (!s->has_thread) return false;
        pthread_setname_np(s->thread, "rmx-stand-in");
        run_where_asked(s->thread);
    }
    wake(s);
    return true;
}

/* --- calls ------------------------------------------------------------------------------------------------------- */

static size_t find(const struct stream *s, const rmx_input_flow *flow)
{
    size_t at = 0;
    while (at < s->flow_count && !(same(&s->flows[at].key.local, &flow->local) && same(&s->flows[at].key.remote, &flow->remote))) at++;
    return at;
}

static rmx_status attach(struct stream *s, const rmx_input_flow *flow)
{
    rmx_status status = injected(s->ip, "rmx_input_attach_flow");
    if (status) return status;
    if (find(s, flow) < s->flow_count) return RMX_ALREADY_ATTACHED;
    if (s->flow_count == MAX_FLOWS) return RMX_NO_HARDWARE_RESOURCES;
    int fd = -1;
    if (!s->switches.manual) {
        /* A socket cannot receive from every port. */
        if (!flow->local.sin_port) return RMX_INVALID_PARAM_2;
        fd = socket_for(s, flow);
        if (fd < 0) return RMX_NO_HARDWARE_RESOURCES;
    }
    s->flows[s->flow_count++] = (struct flow){*flow, fd};
    s->was_attached = true;
    if (fd < 0 || start(s)) return RMX_OK;
    close_flow(s, s->flow_count - 1);
    return RMX_NO_HARDWARE_RESOURCES;
}

rmx_status rmx_input_attach_flow(rmx_stream_id id, const rmx_input_flow *flow)
{
    if (!flow) return RMX_INVALID_PARAM_2;
    pthread_rwlock_rdlock(&streams_lock);
    struct stream *s = find_stream(id);
    rmx_status status = RMX_INVALID_PARAM_1;
    uint32_t ip = 0;
    if (s) {
        pthread_mutex_lock(&s->lock);
        status = attach(s, flow);
        ip = s->ip;
        pthread_mutex_unlock(&s->lock);
    }
    pthread_rwlock_unlock(&streams_lock);
    if (s && !status) play_capture_once(ip);
    return status;
}

rmx_status rmx_input_detach_flow(rmx_stream_id id, const rmx_input_flow *flow)
{
    if (!flow) return RMX_INVALID_PARAM_2;
    pthread_rwlock_rdlock(&streams_lock);
    struct stream *s = find_stream(id);
    rmx_status status = RMX_INVALID_PARAM_1;
    if (s) {
        pthread_mutex_lock(&s->lock);
        size_t at = find(s, flow);
        status = at < s->flow_count ? injected(s->ip, "rmx_input_detach_flow") : RMX_NOT_ATTACHED;
        if (!status) close_flow(s, at);
        wake(s);
        pthread_mutex_unlock(&s->lock);
    }
    pthread_rwlock_unlock(&streams_lock);
    return !status && stop_asked() ? RMX_SIGNAL : status;
}

void close_flows(struct stream *s)
{
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    wake(s);
    pthread_mutex_unlock(&s->lock);
    if (s->has_thread) pthread_join(s->thread, NULL);
    while (s->flow_count) close_flow(s, s->flow_count - 1);
}
