/* See card.h. */
#define _GNU_SOURCE
#include "card.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>

#define WAITING 1024
#define FRAME 2048
#define RULES 16
#define PCI "0000:ca:fd."
#define BENEATH "net_null_card"

struct frame {
	uint32_t octets;
	uint64_t stamp;
	uint8_t data[FRAME];
};

struct list {
	struct frame *frames;
	unsigned first, count;
};

struct rte_flow {
	uint32_t destination, source;
	uint16_t port;
	bool used;
};

enum number {
	STAMPS, CLOCK, ISOLATED, INTERFACE, LINK, MAP, REMOVAL, MISSED, NO_BUFFER, ERRORS, PACKETS, NO_RULES, SPLITS, HEADERS, LONGER,
	STARTED, ONLY_RULES, RULES_NOW, REACHED, REMOVAL_TOLD, GROUPS, LINKS, STATS, NUMBERS
};

static const char *const names[NUMBERS] = {
	"stamps", "clock", "isolated", "interface", "link", "map", "removal", "missed", "no_buffer", "errors", "packets", "no_rules",
	"splits", "headers", "longer", "started", "only_rules", "rules", "reached", "removal_told", "groups", "links", "stats"};

static struct card {
	int64_t is[NUMBERS];
	char driver[32];
	char name[sizeof(PCI) + 4];
	/* Of DPDK, while it is attached. */
	bool attached;
	uint16_t port;
	uint32_t flags;
	struct rte_mempool *pools[2];
	uint16_t cut;
	uint64_t offloads;
	rte_eth_dev_cb_fn told;
	void *told_what;
	void *queues[RTE_MAX_QUEUES_PER_PORT];
	struct rte_flow rules[RULES];
	struct list came, sent;
} cards[CARDS];

/* Of all cards: tests look while others poll. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* DPDK's own function of this name. */
#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (found == NULL) {
		fprintf(stderr, "the stand-in finds no %s\n", name);
		abort();
	}
	return found;
}

static struct card *card_of(uint16_t port)
{
	for (unsigned n = 0; n < CARDS; n++)
		if (cards[n].attached && cards[n].port == port)
			return &cards[n];
	return NULL;
}

/* By the beginning of a text, PCI address or what is beneath; its rest. */
static struct card *named(const char *text, const char **rest)
{
	size_t length = strncmp(text, PCI, strlen(PCI)) == 0 ? strlen(PCI) : strlen(BENEATH);

	if (length == strlen(BENEATH) && strncmp(text, BENEATH, length) != 0)
		return NULL;
	if (text[length] < '0' || text[length] >= '0' + CARDS)
		return NULL;
	*rest = text + length + 1;
	return &cards[text[length] - '0'];
}

/* --- for tests --- */

__attribute__((constructor)) static void begin(void)
{
	for (unsigned n = 0; n < CARDS; n++) {
		snprintf(cards[n].name, sizeof(cards[n].name), PCI "%u", n);
		cards[n].came.frames = calloc(WAITING, sizeof(struct frame));
		cards[n].sent.frames = calloc(WAITING, sizeof(struct frame));
		card_reset(n);
	}
}

void card_reset(unsigned n)
{
	pthread_mutex_lock(&lock);
	memset(cards[n].is, 0, sizeof(cards[n].is));
	memset(cards[n].rules, 0, sizeof(cards[n].rules));
	cards[n].is[LINK] = 1;
	cards[n].came.count = cards[n].sent.count = 0;
	snprintf(cards[n].driver, sizeof(cards[n].driver), "net_stand_in");
	pthread_mutex_unlock(&lock);
}

static int number(const char *name)
{
	for (int n = 0; n < NUMBERS; n++)
		if (strcmp(names[n], name) == 0)
			return n;
	return -1;
}

int card_set(unsigned n, const char *name, int64_t value)
{
	int which = number(name);

	if (n >= CARDS || which < 0)
		return -1;
	pthread_mutex_lock(&lock);
	cards[n].is[which] = value;
	pthread_mutex_unlock(&lock);
	return 0;
}

int64_t card_get(unsigned n, const char *name)
{
	int which = number(name);
	int64_t value;

	if (n >= CARDS || which < 0)
		return -1;
	pthread_mutex_lock(&lock);
	value = cards[n].is[which];
	pthread_mutex_unlock(&lock);
	return value;
}

void card_driver(unsigned n, const char *name)
{
	pthread_mutex_lock(&lock);
	snprintf(cards[n].driver, sizeof(cards[n].driver), "%s", name);
	pthread_mutex_unlock(&lock);
}

static int put(struct list *list, const void *frame, size_t octets, uint64_t stamp)
{
	struct frame *place = &list->frames[(list->first + list->count) % WAITING];

	if (list->count == WAITING || octets > FRAME)
		return 0;
	memcpy(place->data, frame, octets);
	place->octets = (uint32_t)octets;
	place->stamp = stamp;
	list->count++;
	return 1;
}

static struct frame *take(struct list *list)
{
	struct frame *frame = &list->frames[list->first];

	if (list->count == 0)
		return NULL;
	list->first = (list->first + 1) % WAITING;
	list->count--;
	return frame;
}

/* Ethernet without a tag, IPv4 without options, UDP. */
static bool matches(const struct card *card, const uint8_t *frame, size_t octets)
{
	for (unsigned n = 0; n < RULES; n++) {
		const struct rte_flow *rule = &card->rules[n];

		if (rule->used && octets >= 42 && memcmp(frame + 12, "\x08\x00\x45", 3) == 0 && frame[23] == 17 &&
		    memcmp(frame + 30, &rule->destination, 4) == 0 &&
		    (rule->source == 0 || memcmp(frame + 26, &rule->source, 4) == 0) && memcmp(frame + 36, &rule->port, 2) == 0)
			return true;
	}
	return false;
}

int card_feed(unsigned n, const void *frame, size_t octets, uint64_t stamp)
{
	struct card *card = &cards[n];
	int taken;

	pthread_mutex_lock(&lock);
	taken = card->attached && card->is[STARTED] != 0 && card->is[LINK] != 0 &&
		(card->is[ONLY_RULES] == 0 || matches(card, frame, octets)) && put(&card->came, frame, octets, stamp);
	pthread_mutex_unlock(&lock);
	return taken;
}

size_t card_sent(unsigned n, void *to, size_t room)
{
	struct frame *frame;
	size_t octets = 0;

	pthread_mutex_lock(&lock);
	frame = take(&cards[n].sent);
	if (frame != NULL) {
		octets = frame->octets;
		memcpy(to, frame->data, RTE_MIN(octets, room));
	}
	pthread_mutex_unlock(&lock);
	return octets;
}

void card_pull(unsigned n, int by_vfio)
{
	struct card *card = &cards[n];

	if (by_vfio)
		rte_dev_event_callback_process(card->name, RTE_DEV_EVENT_REMOVE);
	/* As ethdev has it: who did not ask when it was configured is not told. */
	else if (card->told != NULL && card->is[REMOVAL_TOLD] != 0)
		card->told(card->port, RTE_ETH_EVENT_INTR_RMV, card->told_what, NULL);
}

/* --- devices --- */

int rte_dev_probe(const char *spec)
{
	const char *rest = "";
	struct card *card = named(spec, &rest);
	char beneath[64];
	int rc;

	if (card == NULL)
		return REAL(rte_dev_probe)(spec);
	snprintf(beneath, sizeof(beneath), BENEATH "%u", (unsigned)(card - cards));
	rc = REAL(rte_dev_probe)(beneath);
	if (rc == 0 && REAL(rte_eth_dev_get_port_by_name)(beneath, &card->port) == 0) {
		card->attached = true;
		card->is[STARTED] = card->is[ONLY_RULES] = 0;
	}
	return rc;
}

int rte_eth_dev_get_port_by_name(const char *name, uint16_t *port)
{
	const char *rest = "";
	struct card *card = strncmp(name, PCI, strlen(PCI)) == 0 ? named(name, &rest) : NULL;

	if (card == NULL)
		return REAL(rte_eth_dev_get_port_by_name)(name, port);
	if (!card->attached)
		return -ENODEV;
	*port = card->port;
	return 0;
}

const char *rte_dev_name(const struct rte_device *device)
{
	const char *rest = "", *name = REAL(rte_dev_name)(device);
	struct card *card = named(name, &rest);

	return card != NULL ? card->name : name;
}

static struct card *under(const struct rte_device *device)
{
	const char *rest = "";

	return named(REAL(rte_dev_name)(device), &rest);
}

int rte_dev_dma_map(struct rte_device *device, void *start, uint64_t iova, size_t octets)
{
	struct card *card = under(device);

	if (card == NULL)
		return REAL(rte_dev_dma_map)(device, start, iova, octets);
	if (card->is[MAP] != 0) {
		if (card->is[MAP] > 0)
			rte_errno = (int)card->is[MAP];
		return -1;
	}
	card->is[REACHED] += (int64_t)octets;
	return 0;
}

int rte_dev_dma_unmap(struct rte_device *device, void *start, uint64_t iova, size_t octets)
{
	struct card *card = under(device);

	if (card == NULL)
		return REAL(rte_dev_dma_unmap)(device, start, iova, octets);
	card->is[REACHED] -= (int64_t)octets;
	return 0;
}

/* --- ports --- */

int rte_eth_dev_info_get(uint16_t port, struct rte_eth_dev_info *info)
{
	struct card *card = card_of(port);
	int rc = REAL(rte_eth_dev_info_get)(port, info);

	if (card == NULL || rc != 0)
		return rc;
	info->driver_name = card->driver;
	info->if_index = (unsigned)card->is[INTERFACE];
	card->flags = *info->dev_flags | (card->is[REMOVAL] != 0 ? RTE_ETH_DEV_INTR_RMV : 0);
	info->dev_flags = &card->flags;
	if (card->is[STAMPS] != 0)
		info->rx_offload_capa |= RTE_ETH_RX_OFFLOAD_TIMESTAMP;
	if (card->is[SPLITS] != 0) {
		info->rx_offload_capa |= RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT | RTE_ETH_RX_OFFLOAD_SCATTER;
		info->rx_seg_capa.max_nseg = 2;
		info->rx_seg_capa.multi_pools = 1;
	}
	return 0;
}

int rte_eth_buffer_split_get_supported_hdr_ptypes(uint16_t port, uint32_t *list, int room)
{
	struct card *card = card_of(port);

	if (card == NULL)
		return REAL(rte_eth_buffer_split_get_supported_hdr_ptypes)(port, list, room);
	for (int n = 0; n < room && n < card->is[HEADERS]; n++)
		list[n] = RTE_PTYPE_L2_ETHER;
	return card->is[HEADERS] != 0 ? (int)card->is[HEADERS] : -ENOTSUP;
}

int rte_eth_dev_configure(uint16_t port, uint16_t receive, uint16_t send, const struct rte_eth_conf *conf)
{
	struct card *card = card_of(port);
	struct rte_eth_conf plain = *conf;

	if (card == NULL)
		return REAL(rte_eth_dev_configure)(port, receive, send, conf);
	/* As ethdev has it. */
	if (conf->intr_conf.rmv != 0 && card->is[REMOVAL] == 0)
		return -EINVAL;
	card->is[REMOVAL_TOLD] = conf->intr_conf.rmv;
	card->offloads = conf->rxmode.offloads;
	plain.intr_conf.rmv = 0;
	plain.rxmode.offloads = 0;
	return REAL(rte_eth_dev_configure)(port, receive, send, &plain);
}

int rte_eth_rx_queue_setup(uint16_t port, uint16_t queue, uint16_t count, unsigned socket, const struct rte_eth_rxconf *conf,
			   struct rte_mempool *pool)
{
	struct card *card = card_of(port);
	struct rte_eth_rxconf plain;

	if (card == NULL)
		return REAL(rte_eth_rx_queue_setup)(port, queue, count, socket, conf, pool);
	card->cut = 0;
	card->pools[0] = pool;
	if (conf->rx_nseg == 2) {
		if (card->is[HEADERS] != 0)
			return -EINVAL;
		card->pools[0] = conf->rx_seg[0].split.mp;
		card->pools[1] = conf->rx_seg[1].split.mp;
		card->cut = conf->rx_seg[0].split.length;
	}
	plain = *conf;
	plain.offloads = 0;
	plain.rx_nseg = 0;
	plain.rx_seg = NULL;
	return REAL(rte_eth_rx_queue_setup)(port, queue, count, socket, &plain, card->pools[0]);
}

/* To memory of a GPU, where the pool's may be. A context is the calling thread's. */
static void put_there(struct rte_mempool *pool, void *to, const uint8_t *data, uint32_t octets)
{
	static int (*copy)(uint64_t, const void *, size_t);
	void *cuda;

	if ((rte_pktmbuf_priv_flags(pool) & RTE_PKTMBUF_POOL_F_PINNED_EXT_BUF) != 0 && copy == NULL) {
		cuda = dlopen("libcuda.so.1", RTLD_NOW);
		copy = cuda != NULL ? (__typeof__(copy))dlsym(cuda, "cuMemcpyHtoD_v2") : NULL;
	}
	/* CUDA refuses memory of the host that it does not know. */
	if ((rte_pktmbuf_priv_flags(pool) & RTE_PKTMBUF_POOL_F_PINNED_EXT_BUF) == 0 || copy == NULL ||
	    copy((uint64_t)(uintptr_t)to, data, octets) != 0)
		memcpy(to, data, octets);
}

/* Appends what has room in a packet of this pool. */
static struct rte_mbuf *packet(struct rte_mempool *pool, const uint8_t *data, uint32_t octets)
{
	struct rte_mbuf *buffer = rte_pktmbuf_alloc(pool);

	if (buffer == NULL)
		return NULL;
	octets = RTE_MIN(octets, rte_pktmbuf_tailroom(buffer));
	put_there(pool, rte_pktmbuf_mtod(buffer, void *), data, octets);
	buffer->data_len = (uint16_t)octets;
	buffer->pkt_len = octets;
	return buffer;
}

static struct rte_mbuf *received(struct card *card, const struct frame *frame)
{
	uint32_t head = card->cut != 0 ? RTE_MIN(frame->octets, card->cut) : frame->octets;
	struct rte_mbuf *first = packet(card->pools[0], frame->data, head), *rest;
	uint64_t flag;
	int at;

	if (first == NULL)
		return NULL;
	if (head < frame->octets) {
		rest = packet(card->pools[1], frame->data + head, frame->octets - head);
		if (rest == NULL) {
			rte_pktmbuf_free(first);
			return NULL;
		}
		first->next = rest;
		first->nb_segs = 2;
		first->pkt_len += rest->data_len;
	}
	first->pkt_len += (uint32_t)card->is[LONGER];
	if (frame->stamp != 0 && (card->offloads & RTE_ETH_RX_OFFLOAD_TIMESTAMP) != 0 &&
	    rte_mbuf_dyn_rx_timestamp_register(&at, &flag) == 0) {
		*RTE_MBUF_DYNFIELD(first, at, rte_mbuf_timestamp_t *) = frame->stamp;
		first->ol_flags |= flag;
	}
	return first;
}

static uint16_t card_rx(void *queue, struct rte_mbuf **packets, uint16_t most)
{
	struct card *card = queue;
	uint16_t count = 0;
	struct frame *frame;

	pthread_mutex_lock(&lock);
	while (count < most && (frame = take(&card->came)) != NULL) {
		packets[count] = received(card, frame);
		if (packets[count] != NULL)
			count++;
		else
			card->is[NO_BUFFER]++;
	}
	card->is[PACKETS] += count;
	pthread_mutex_unlock(&lock);
	return count;
}

static uint16_t card_tx(void *queue, struct rte_mbuf **packets, uint16_t count)
{
	struct card *card = queue;

	pthread_mutex_lock(&lock);
	for (uint16_t n = 0; n < count; n++) {
		if (card->is[LINK] != 0)
			put(&card->sent, rte_pktmbuf_mtod(packets[n], void *), packets[n]->data_len, 0);
		rte_pktmbuf_free(packets[n]);
	}
	pthread_mutex_unlock(&lock);
	return count;
}

int rte_eth_dev_start(uint16_t port)
{
	struct card *card = card_of(port);
	int rc = REAL(rte_eth_dev_start)(port);
	struct rte_eth_fp_ops *calls = &rte_eth_fp_ops[port];

	if (card == NULL || rc != 0)
		return rc;
	for (size_t n = 0; n < RTE_DIM(card->queues); n++)
		card->queues[n] = card;
	calls->rx_pkt_burst = card_rx;
	calls->tx_pkt_burst = card_tx;
	calls->rxq.data = calls->txq.data = card->queues;
	card->is[STARTED] = 1;
	return 0;
}

int rte_eth_dev_stop(uint16_t port)
{
	struct card *card = card_of(port);

	if (card != NULL)
		card->is[STARTED] = 0;
	return REAL(rte_eth_dev_stop)(port);
}

int rte_eth_dev_close(uint16_t port)
{
	struct card *card = card_of(port);
	int rc = REAL(rte_eth_dev_close)(port);

	if (card != NULL)
		card->attached = false;
	return rc;
}

int rte_eth_dev_callback_register(uint16_t port, enum rte_eth_event_type event, rte_eth_dev_cb_fn call, void *what)
{
	struct card *card = card_of(port);

	if (card == NULL || event != RTE_ETH_EVENT_INTR_RMV)
		return REAL(rte_eth_dev_callback_register)(port, event, call, what);
	card->told = call;
	card->told_what = what;
	return 0;
}

int rte_eth_dev_callback_unregister(uint16_t port, enum rte_eth_event_type event, rte_eth_dev_cb_fn call, void *what)
{
	struct card *card = card_of(port);

	if (card == NULL || event != RTE_ETH_EVENT_INTR_RMV)
		return REAL(rte_eth_dev_callback_unregister)(port, event, call, what);
	card->told = NULL;
	return 0;
}

int rte_eth_link_get_nowait(uint16_t port, struct rte_eth_link *link)
{
	struct card *card = card_of(port);

	if (card == NULL)
		return REAL(rte_eth_link_get_nowait)(port, link);
	memset(link, 0, sizeof(*link));
	link->link_status = card->is[LINK] != 0 ? RTE_ETH_LINK_UP : RTE_ETH_LINK_DOWN;
	card->is[LINKS]++;
	return 0;
}

int rte_eth_stats_get(uint16_t port, struct rte_eth_stats *stats)
{
	struct card *card = card_of(port);

	if (card == NULL)
		return REAL(rte_eth_stats_get)(port, stats);
	memset(stats, 0, sizeof(*stats));
	stats->ipackets = (uint64_t)card->is[PACKETS];
	stats->imissed = (uint64_t)card->is[MISSED];
	stats->rx_nombuf = (uint64_t)card->is[NO_BUFFER];
	stats->ierrors = (uint64_t)card->is[ERRORS];
	card->is[STATS]++;
	return 0;
}

int rte_eth_read_clock(uint16_t port, uint64_t *ticks)
{
	struct card *card = card_of(port);
	struct timespec now;

	if (card == NULL)
		return REAL(rte_eth_read_clock)(port, ticks);
	if (card->is[CLOCK] == 0 || (card->is[ONLY_RULES] != 0 && card->is[ISOLATED] == 0))
		return -ENOTSUP;
	clock_gettime(CLOCK_MONOTONIC, &now);
	*ticks = (uint64_t)(((__uint128_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec) * (uint64_t)card->is[CLOCK] / 1000000u);
	return 0;
}

int rte_eth_dev_set_mc_addr_list(uint16_t port, struct rte_ether_addr *list, uint32_t count)
{
	struct card *card = card_of(port);

	if (card == NULL)
		return REAL(rte_eth_dev_set_mc_addr_list)(port, list, count);
	card->is[GROUPS] = count;
	return 0;
}

/* --- rules --- */

int rte_flow_isolate(uint16_t port, int on, struct rte_flow_error *error)
{
	struct card *card = card_of(port);

	if (card == NULL)
		return REAL(rte_flow_isolate)(port, on, error);
	card->is[ONLY_RULES] = on;
	return 0;
}

int rte_flow_validate(uint16_t port, const struct rte_flow_attr *attributes, const struct rte_flow_item items[],
		      const struct rte_flow_action actions[], struct rte_flow_error *error)
{
	struct card *card = card_of(port);

	if (card == NULL)
		return REAL(rte_flow_validate)(port, attributes, items, actions, error);
	if (card->is[NO_RULES] == 0)
		return 0;
	error->message = "the stand-in takes no rules";
	return -ENOTSUP;
}

struct rte_flow *rte_flow_create(uint16_t port, const struct rte_flow_attr *attributes, const struct rte_flow_item items[],
				 const struct rte_flow_action actions[], struct rte_flow_error *error)
{
	struct card *card = card_of(port);
	struct rte_flow *rule = NULL;

	if (card == NULL)
		return REAL(rte_flow_create)(port, attributes, items, actions, error);
	pthread_mutex_lock(&lock);
	for (unsigned n = 0; n < RULES && rule == NULL; n++)
		if (!card->rules[n].used)
			rule = &card->rules[n];
	if (rule == NULL) {
		rte_errno = ENOSPC;
		pthread_mutex_unlock(&lock);
		return NULL;
	}
	for (; items->type != RTE_FLOW_ITEM_TYPE_END; items++) {
		if (items->type == RTE_FLOW_ITEM_TYPE_IPV4) {
			rule->destination = ((const struct rte_flow_item_ipv4 *)items->spec)->hdr.dst_addr;
			rule->source = ((const struct rte_flow_item_ipv4 *)items->spec)->hdr.src_addr;
		} else if (items->type == RTE_FLOW_ITEM_TYPE_UDP) {
			rule->port = ((const struct rte_flow_item_udp *)items->spec)->hdr.dst_port;
		}
	}
	rule->used = true;
	card->is[RULES_NOW]++;
	pthread_mutex_unlock(&lock);
	return rule;
}

int rte_flow_destroy(uint16_t port, struct rte_flow *rule, struct rte_flow_error *error)
{
	struct card *card = card_of(port);

	if (card == NULL)
		return REAL(rte_flow_destroy)(port, rule, error);
	pthread_mutex_lock(&lock);
	rule->used = false;
	card->is[RULES_NOW]--;
	pthread_mutex_unlock(&lock);
	return 0;
}
