/* A port: attached by its name, set up, polled, and taken away again. */
#include "shim.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>
#include <rte_mempool.h>

/* Frames of our own: answers to ARP, reports of groups. The largest is a report of version 3 with 64 sources: Ethernet with a tag 18,
 * IPv4 with its option 24, IGMP 8 + 8 + 64 * 4, which is 314 octets. */
#define OWN 63
#define OWN_ROOM 512

/* Packets in two pieces: mlx5 refuses to cut where it is not told that packets may have several. */
#define SPLIT (RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT | RTE_ETH_RX_OFFLOAD_SCATTER)

/* What is known of a port beside what DPDK knows. */
static struct {
	struct rte_mempool *own;
	bool started;
	bool stamps;
	bool gone;
	bool everything;
} known[RTE_MAX_ETHPORTS];

static int stamp_at = -1;
static uint64_t stamp_flag;

static int removed(uint16_t port, enum rte_eth_event_type event, void *opaque, void *answer)
{
	(void)event, (void)opaque, (void)answer;
	__atomic_store_n(&known[port].gone, true, __ATOMIC_RELAXED);
	return 0;
}

/* Of a device on vfio-pci the kernel asks for it back, which is no event of its port. */
static void unplugged(const char *name, enum rte_dev_event_type event, void *opaque)
{
	(void)name;
	if (event == RTE_DEV_EVENT_REMOVE)
		__atomic_store_n(&known[(uintptr_t)opaque].gone, true, __ATOMIC_RELAXED);
}

static struct rte_device *device_of(uint16_t port)
{
	struct rte_eth_dev_info info;

	return rte_eth_dev_info_get(port, &info) == 0 ? info.device : NULL;
}

static int describe(uint16_t port, struct gd_info *out)
{
	struct rte_eth_dev_info info;
	struct rte_ether_addr mac = {0};
	uint32_t header;
	int headers, rc = rte_eth_dev_info_get(port, &info);

	if (rc != 0)
		return rc;
	memset(out, 0, sizeof(*out));
	snprintf(out->driver, sizeof(out->driver), "%s", info.driver_name);
	out->if_index = info.if_index;
	out->pci = info.device != NULL && strchr(rte_dev_name(info.device), ':') != NULL;
	out->max_queues = info.max_rx_queues;
	out->max_mtu = info.max_mtu;
	/* Virtual devices name the frames of Ethernet, and take what their interface has. */
	if (!out->pci && info.max_rx_pktlen > RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN)
		out->max_mtu = RTE_MIN(out->max_mtu, info.max_rx_pktlen - RTE_ETHER_HDR_LEN - RTE_ETHER_CRC_LEN);
	out->spreads = (info.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP)) != 0;
	/* Virtual drivers give the kernel's (net_af_packet of later releases). */
	out->stamps = out->pci && (info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_TIMESTAMP) != 0;
	out->splits = (info.rx_offload_capa & SPLIT) == SPLIT && info.rx_seg_capa.max_nseg >= 2 &&
		      info.rx_seg_capa.multi_pools;
	headers = rte_eth_buffer_split_get_supported_hdr_ptypes(port, &header, 1);
	out->headers = (uint16_t)RTE_MIN(RTE_MAX(headers, 0), UINT16_MAX);
	if (rte_eth_macaddr_get(port, &mac) == 0)
		memcpy(out->mac, mac.addr_bytes, sizeof(out->mac));
	return 0;
}

/* `spec` is what the bus is told, `name` how the port is then called. */
int gd_port_open(const char *spec, const char *name, uint16_t *port, struct gd_info *info)
{
	uint16_t id;
	int rc;

	if (rte_eth_dev_get_port_by_name(name, &id) == 0)
		return -EEXIST;
	rc = rte_dev_probe(spec);
	if (rc < 0)
		return rc;
	if (rte_eth_dev_get_port_by_name(name, &id) != 0) {
		struct rte_dev_iterator all;
		uint16_t each;

		id = RTE_MAX_ETHPORTS;
		RTE_ETH_FOREACH_MATCHING_DEV(each, spec, &all) {
			if (id == RTE_MAX_ETHPORTS)
				id = each;
		}
		if (id == RTE_MAX_ETHPORTS)
			return -ENODEV;
	}
	memset(&known[id], 0, sizeof(known[id]));
	rc = describe(id, info);
	if (rc != 0) {
		gd_port_close(id);
		return rc;
	}
	/* Virtual devices never tell. */
	rte_eth_dev_callback_register(id, RTE_ETH_EVENT_INTR_RMV, removed, NULL);
	if (device_of(id) != NULL)
		rte_dev_event_callback_register(rte_dev_name(device_of(id)), unplugged, (void *)(uintptr_t)id);
	*port = id;
	return 0;
}

static int queues(uint16_t port, const struct gd_setup *setup, const struct rte_eth_dev_info *info, uint64_t offloads)
{
	uint16_t descriptors = setup->descriptors, send = 64;
	int rc = rte_eth_dev_adjust_nb_rx_tx_desc(port, &descriptors, &send);

	for (uint16_t queue = 0; rc == 0 && queue < setup->queues; queue++) {
		struct rte_eth_rxconf conf = info->default_rxconf;
		union rte_eth_rxseg segments[2];

		conf.offloads = offloads;
		/* A port that is slow to be polled drops what comes; it does not hold up the others. */
		conf.rx_drop_en = 1;
		if (setup->split > 0) {
			memset(segments, 0, sizeof(segments));
			segments[0].split.mp = setup->pool;
			segments[0].split.length = setup->split;
			segments[1].split.mp = setup->bodies;
			conf.rx_seg = segments;
			conf.rx_nseg = 2;
		}
		rc = rte_eth_rx_queue_setup(port, queue, descriptors, (unsigned)rte_eth_dev_socket_id(port), &conf,
					    setup->split > 0 ? NULL : setup->pool);
	}
	if (rc == 0)
		rc = rte_eth_tx_queue_setup(port, 0, send, (unsigned)rte_eth_dev_socket_id(port), NULL);
	return rc;
}

int gd_port_start(uint16_t port, const struct gd_setup *setup)
{
	struct rte_eth_dev_info info;
	struct rte_eth_conf conf;
	struct rte_flow_error error;
	char name[RTE_MEMPOOL_NAMESIZE];
	int rc = rte_eth_dev_info_get(port, &info);

	if (rc != 0)
		return rc;
	memset(&conf, 0, sizeof(conf));
	conf.rxmode.mtu = setup->mtu;
	if (setup->queues > 1) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf =
			info.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP);
	}
	if (setup->split > 0)
		conf.rxmode.offloads |= SPLIT;
	if (setup->stamps) {
		if (stamp_at < 0 && rte_mbuf_dyn_rx_timestamp_register(&stamp_at, &stamp_flag) != 0)
			return -rte_errno;
		conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_TIMESTAMP;
	}
	/* Without it the driver tells nobody that its card has gone. */
	if (info.dev_flags != NULL && (*info.dev_flags & RTE_ETH_DEV_INTR_RMV) != 0)
		conf.intr_conf.rmv = 1;
	if (setup->isolated && rte_flow_isolate(port, 1, &error) != 0)
		return -ENOTSUP;
	rc = rte_eth_dev_configure(port, setup->queues, 1, &conf);
	if (rc == 0)
		rc = queues(port, setup, &info, conf.rxmode.offloads & info.rx_queue_offload_capa);
	if (rc == 0)
		rc = rte_eth_dev_start(port);
	if (rc != 0)
		return rc;
	known[port].started = true;
	known[port].stamps = setup->stamps != 0;
	snprintf(name, sizeof(name), "gd_own_%u", port);
	known[port].own = rte_pktmbuf_pool_create(name, OWN, 0, 0, RTE_PKTMBUF_HEADROOM + OWN_ROOM, SOCKET_ID_ANY);
	return known[port].own != NULL ? 0 : -rte_errno;
}

/* The device writes to no pool any more. Once is enough. */
void gd_port_stop(uint16_t port)
{
	if (known[port].everything)
		rte_eth_promiscuous_disable(port);
	if (known[port].started)
		rte_eth_dev_stop(port);
	known[port].everything = false;
	known[port].started = false;
}

void gd_port_close(uint16_t port)
{
	struct rte_device *device = device_of(port);

	rte_eth_dev_callback_unregister(port, RTE_ETH_EVENT_INTR_RMV, removed, NULL);
	/* It may be called just now, which is over soon. */
	for (int n = 0; device != NULL && n < 1000; n++) {
		if (rte_dev_event_callback_unregister(rte_dev_name(device), unplugged, (void *)(uintptr_t)port) != -EAGAIN)
			break;
		usleep(1000);
	}
	gd_port_stop(port);
	rte_eth_dev_close(port);
	if (device != NULL)
		rte_dev_remove(device);
	rte_mempool_free(known[port].own);
	memset(&known[port], 0, sizeof(known[port]));
}

int gd_port_gone(uint16_t port)
{
	return __atomic_load_n(&known[port].gone, __ATOMIC_RELAXED);
}

/* Whether its link is up. Does not wait for one that is being negotiated. */
int gd_link(uint16_t port)
{
	struct rte_eth_link link = {0};
	int rc = rte_eth_link_get_nowait(port, &link);

	return rc != 0 ? (rc < 0 ? rc : -EIO) : link.link_status == RTE_ETH_LINK_UP;
}

uint32_t gd_receive(uint16_t port, uint16_t queue, struct gd_packet *packets, uint32_t most)
{
	struct rte_mbuf *buffers[256];
	bool stamps = known[port].stamps;
	uint16_t count = rte_eth_rx_burst(port, queue, buffers, (uint16_t)RTE_MIN(most, (uint32_t)RTE_DIM(buffers)));

	for (uint16_t n = 0; n < count; n++) {
		struct rte_mbuf *first = buffers[n];
		struct gd_packet *packet = &packets[n];

		packet->data = rte_pktmbuf_mtod(first, const uint8_t *);
		packet->body = first->next != NULL ? rte_pktmbuf_mtod(first->next, const uint8_t *) : NULL;
		packet->buffer = first;
		packet->here = first->data_len;
		packet->octets = first->pkt_len;
		packet->pieces = first->nb_segs;
		packet->rest = first->next != NULL ? first->next->data_len : 0;
		packet->stamp = 0;
		if (stamps && (first->ol_flags & stamp_flag) != 0)
			packet->stamp = *RTE_MBUF_DYNFIELD(first, stamp_at, const rte_mbuf_timestamp_t *);
	}
	return count;
}

/* Of a packet that lies in no pool of ours, whose place says nothing. */
void gd_free(void *buffer)
{
	rte_pktmbuf_free(buffer);
}

int gd_send(uint16_t port, const uint8_t *frame, uint32_t octets)
{
	struct rte_mbuf *buffer = known[port].own != NULL ? rte_pktmbuf_alloc(known[port].own) : NULL;
	char *to = buffer != NULL ? rte_pktmbuf_append(buffer, (uint16_t)octets) : NULL;

	if (to == NULL) {
		rte_pktmbuf_free(buffer);
		return -ENOBUFS;
	}
	memcpy(to, frame, octets);
	if (rte_eth_tx_burst(port, 0, &buffer, 1) == 1)
		return 0;
	rte_pktmbuf_free(buffer);
	return -EAGAIN;
}

int gd_counts(uint16_t port, struct gd_counts *counts)
{
	struct rte_eth_stats stats;
	int rc = rte_eth_stats_get(port, &stats);

	if (rc == 0)
		*counts = (struct gd_counts){stats.ipackets, stats.imissed, stats.rx_nombuf, stats.ierrors};
	return rc;
}

int gd_clock(uint16_t port, uint64_t *ticks)
{
	return rte_eth_read_clock(port, ticks);
}

/* Frames to these groups come: 0 by their addresses, 1 with all groups, 2 with all there is. */
int gd_groups(uint16_t port, const uint8_t *addresses, uint32_t count)
{
	struct rte_ether_addr list[64];

	if (count <= RTE_DIM(list)) {
		memcpy(list, addresses, count * sizeof(*list));
		if (rte_eth_dev_set_mc_addr_list(port, list, count) == 0)
			return 0;
	}
	if (rte_eth_allmulticast_enable(port) == 0)
		return 1;
	/* Of an interface of the kernel that stays, so it is taken back. */
	known[port].everything = rte_eth_promiscuous_enable(port) == 0;
	return known[port].everything ? 2 : -ENOTSUP;
}
